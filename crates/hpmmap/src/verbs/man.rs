//! `hpmmap man`: the manual pages come from the definition of the arguments.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;

use clap::CommandFactory;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::replace;

use crate::cli::{Cli, ManArgs};

pub fn perform(args: &ManArgs) -> Result<ExitCode> {
    if !args.dir.is_dir() {
        return Err(Error::Usage(format!(
            "{} is not a directory",
            args.dir.display()
        )));
    }
    let command = Cli::command().disable_help_subcommand(true);
    // Made elsewhere first: what is there may be links of others.
    let made = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o700))
        .tempdir()?;
    clap_mangen::generate_to(command, made.path())?;
    for entry in fs::read_dir(made.path())? {
        let entry = entry?;
        replace::write(&args.dir.join(entry.file_name()), fs::read(entry.path())?)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn one_page_per_verb_and_none_for_the_hidden_one() {
        let dir = tempfile::tempdir().unwrap();
        perform(&ManArgs {
            dir: dir.path().to_path_buf(),
        })
        .unwrap();
        let names: BTreeSet<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let expected = [
            "hpmmap.1",
            "hpmmap-pool.1",
            "hpmmap-pool-add.1",
            "hpmmap-pool-remove.1",
            "hpmmap-pool-list.1",
            "hpmmap-pool-limit.1",
            "hpmmap-pool-iomem.1",
            "hpmmap-bench.1",
            "hpmmap-bench-alloc.1",
            "hpmmap-bench-colocation.1",
            "hpmmap-bench-noise.1",
            "hpmmap-run.1",
            "hpmmap-mark.1",
            "hpmmap-unmark.1",
            "hpmmap-status.1",
            "hpmmap-doctor.1",
            "hpmmap-trace.1",
            "hpmmap-trace-record.1",
            "hpmmap-trace-report.1",
            "hpmmap-trace-plot.1",
        ];
        assert_eq!(names, expected.map(str::to_string).into());
        let page = fs::read_to_string(dir.path().join("hpmmap-pool-add.1")).unwrap();
        assert!(page.contains("memory block size"), "{page}");
    }

    #[test]
    fn a_directory_that_is_not_there_is_wrong_usage() {
        let error = perform(&ManArgs {
            dir: "/nonexistent".into(),
        })
        .unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }
}
