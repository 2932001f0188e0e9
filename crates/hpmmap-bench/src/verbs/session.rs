//! Shared by the benchmarks of costs and of noise: paths of programs, progress, and an orderly end
//! by a signal.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hpmmap_base::error::{Error, Result, describe};
use hpmmap_base::output::{print, print_json, save_json, say};
use hpmmap_base::{safe_files, signals};
use hpmmap_host::Root;
use hpmmap_sys::clock;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cli::SessionArgs;
use crate::machine;
use crate::program::beside;
use crate::result::Provenance;

/// One call of a benchmark.
pub struct Session<'a> {
    pub root: &'a Root,
    pub args: &'a SessionArgs,
    /// Rate of the time stamp counter, if it measures time.
    pub tsc_hz: Option<u64>,
    stop: Arc<AtomicBool>,
}

impl<'a> Session<'a> {
    pub fn new(root: &'a Root, args: &'a SessionArgs) -> Result<Self> {
        if let Some(dir) = &args.out {
            // Fails now rather than after an hour of measuring.
            output_dir(dir)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        // Changes are restored when the run is interrupted.
        signals::catch_and_watch(&stop)?;
        Ok(Self {
            root,
            args,
            tsc_hz: (!args.icount).then(clock::hertz),
            stop,
        })
    }

    /// Fails once a signal has come.
    pub fn go_on(&self) -> Result<()> {
        if signals::has_come(&self.stop) {
            return Err(Error::Failed("interrupted".into()));
        }
        Ok(())
    }

    /// The circumstances of the run for its record. Costs are in instructions if those are
    /// counted, otherwise in `unit`.
    pub fn provenance(
        &self,
        benchmark: &str,
        schema: u32,
        unit: &str,
        libraries: &[PathBuf],
    ) -> Provenance {
        Provenance {
            benchmark: benchmark.into(),
            schema,
            unit: match self.tsc_hz {
                Some(_) => unit.into(),
                None => "instructions".into(),
            },
            tsc_hz: self.tsc_hz,
            versions: machine::versions(self.root, libraries),
            machine: machine::machine(self.root),
        }
    }
}

/// Makes the directory for results, and fails if it is not writable.
fn output_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(|error| {
        let why = describe(&error);
        Error::Failed(format!("--out {}: {why}", dir.display()))
    })?;
    safe_files::check(&dir.join("results.json"))
}

/// The worker program: the requested one, or the first of these paths, relative to the command,
/// that exists.
pub fn worker_program(asked: Option<&Path>, places: &[&str]) -> Result<PathBuf> {
    if let Some(path) = asked {
        return Ok(path.to_path_buf());
    }
    beside(places).ok_or_else(|| {
        Error::Failed(format!(
            "the worker is missing: there is no {} beside this program \
             (make bench-tools builds it, --worker names another)",
            places.join(" or ")
        ))
    })
}

/// Prints a record, or as text what `text` makes of it, and writes `benchmark`.json into the
/// directory for results, if there is one.
pub fn report<R: Serialize>(
    args: &SessionArgs,
    benchmark: &str,
    record: &R,
    text: impl FnOnce(&R) -> String,
) -> Result<()> {
    if args.output.json {
        print_json(record)?;
    } else {
        print(&text(record))?;
    }
    if let Some(dir) = &args.out {
        save_json(dir, &format!("{benchmark}.json"), record)?;
    }
    Ok(())
}

/// Shows the progress: a bar on a terminal, otherwise on request a line for each case.
pub struct Progress {
    bar: Option<ProgressBar>,
    verbose: bool,
    done: usize,
    all: usize,
}

impl Progress {
    pub fn new(all: usize, verbose: bool) -> Self {
        let style = ProgressStyle::with_template("[{bar:32}] {pos}/{len} {msg} {eta} left")
            .expect("the template is sound")
            .progress_chars("=> ");
        let bar = io::stderr()
            .is_terminal()
            .then(|| ProgressBar::new(all as u64).with_style(style));
        Self {
            bar,
            verbose,
            done: 0,
            all,
        }
    }

    pub fn next(&mut self, title: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.done as u64);
                bar.set_message(title.to_string());
            }
            None if self.verbose => {
                say(&format!("{} of {}: {title}", self.done + 1, self.all));
            }
            None => (),
        }
        self.done += 1;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_for_results_is_made_or_the_reason_told() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/b");
        output_dir(&new).unwrap();
        assert_eq!(new.read_dir().unwrap().count(), 0);
        let error = output_dir(Path::new("/dev/null/x")).unwrap_err();
        assert_eq!(error.to_string(), "--out /dev/null/x: Not a directory");
    }
}
