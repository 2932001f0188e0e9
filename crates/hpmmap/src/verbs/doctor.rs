//! `hpmmap doctor`

use std::process::ExitCode;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{print, print_versioned};

use crate::cli::DoctorArgs;
use crate::doctor::{Facts, Report, examine};
use crate::verbs::pool_limit;

pub fn perform(args: &DoctorArgs) -> Result<ExitCode> {
    let root = args.root();
    if !root.join("proc").is_dir() {
        return Err(Error::Usage(format!(
            "--root {} holds no directory proc",
            args.root.display()
        )));
    }
    let checks = examine(&root, &Facts::gather(&root, pool_limit::unmet(&root)));
    let report = Report::new(checks);
    if args.json {
        print_versioned(1, &report)?;
    } else {
        print(&report.text())?;
    }
    Ok(if report.able {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
