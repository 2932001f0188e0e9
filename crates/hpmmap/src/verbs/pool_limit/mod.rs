//! `hpmmap pool limit`

mod file;
mod request;

use std::process::ExitCode;

use hpmmap_base::error::Result;
use hpmmap_base::output::Column::{Number, Text};
use hpmmap_base::output::{print, print_versioned, say, table};
use hpmmap_base::size::short;
use hpmmap_host::Root;
use serde::Serialize;

pub use file::unmet;
pub use request::find_user;

use crate::cli::PoolLimitArgs;
use crate::device;
use crate::limits::{Reported, list};
use crate::promise::{self, Promised};
use request::Request;

pub fn perform(args: &PoolLimitArgs) -> Result<ExitCode> {
    let root = Root::default();
    if args.list {
        let device = device::open()?;
        let limits = list(&root, &device)?;
        let promises = promise::list(&root, &device)?;
        let listed = Listed {
            limits: &limits,
            promises: &promises,
        };
        match args.json {
            true => print_versioned(1, &listed)?,
            false => print(&listed.text())?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &args.load {
        return file::load(&root, path);
    }
    let request = Request::new(args)?;
    let device = device::open_as_root("to set limits")?;
    request.apply(&root, &device)?;
    print(&request.to_string())?;
    let limits = list(&root, &device)?;
    request.bounded(&limits).iter().for_each(|note| say(note));
    Ok(ExitCode::SUCCESS)
}

/// The printed form.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    limits: &'a [Reported],
    promises: &'a [Promised],
}

impl Listed<'_> {
    fn text(&self) -> String {
        let limits = text(self.limits);
        match self.promises {
            [] => limits,
            promises => format!("{limits}\n\n{}", promise::text(promises)),
        }
    }
}

fn text(limits: &[Reported]) -> String {
    table(
        &[
            Text("WHO"),
            Text("NAME"),
            Text("SET"),
            Number("LIMIT"),
            Number("HELD"),
        ],
        limits.iter().map(|one| {
            vec![
                one.kind.to_string(),
                match one.kind {
                    "default" => "-".to_string(),
                    _ => one.name.clone().unwrap_or_else(|| "(gone)".into()),
                },
                one.rule.clone().unwrap_or_else(|| "-".into()),
                one.limit_bytes.map_or_else(|| "none".into(), short),
                match one.kind {
                    "default" => "-".to_string(),
                    _ => short(one.held_bytes),
                },
            ]
        }),
    )
}
