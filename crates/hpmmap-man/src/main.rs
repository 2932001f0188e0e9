//! `hpmmap-man MAN COMPLETIONS` writes the manual pages of all programs of hpmmap into one
//! directory, and completions for bash, zsh and fish into the other. Pages come from the
//! definition of the arguments, and from `more.rs`: examples, files, related pages.

mod more;
mod page;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Command, CommandFactory, Parser};
use clap_complete::Shell;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::{output, safe_files};

use crate::more::OF_FILES;
use crate::page::{page, section, title};

/// Formats seconds since 1970 as a date of a page.
fn day(seconds: u64) -> String {
    // A year that begins in March has its leap day at the end.
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
}

/// The date of the build, or that of SOURCE_DATE_EPOCH.
fn today() -> String {
    let told = std::env::var("SOURCE_DATE_EPOCH").ok();
    let seconds = told.and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| now.as_secs())
    });
    day(seconds)
}

/// Collects a command and all its verbs, with the names of their pages.
fn commands(command: &Command, all: &mut Vec<(String, Command)>) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    all.push((name.to_string(), command.clone()));
    for below in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        commands(below, all);
    }
}

/// The directories for the output.
#[derive(Debug, Parser)]
struct Dirs {
    /// Directory for the manual pages
    man: PathBuf,
    /// Directory for the completions
    completions: PathBuf,
}

fn main() -> ExitCode {
    let dirs = Dirs::parse();
    match write_pages(&dirs.man).and_then(|()| write_completions(&dirs.completions)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// The command with its verbs, also those of other programs.
fn whole() -> Command {
    hpmmap::command()
        .mut_subcommand("bench", |_| hpmmap_bench::cli::Cli::command())
        .mut_subcommand("trace", |_| hpmmap_trace::cli::Cli::command())
}

fn checked(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{} is not a directory",
        dir.display()
    )))
}

fn write_pages(dir: &Path) -> Result<()> {
    checked(dir)?;
    let mut command = whole().disable_help_subcommand(true);
    command.build();
    let mut all = Vec::new();
    commands(&command, &mut all);
    let pages: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    let date = today();
    for (name, command) in all {
        let text = page(&name, command, &pages, &date)?;
        safe_files::write(&dir.join(format!("{name}.{}", section(&name))), text)?;
    }
    for (name, text) in OF_FILES {
        let text = title(name, "5", &date) + text;
        safe_files::write(&dir.join(format!("{name}.5")), text)?;
    }
    Ok(())
}

/// For bash: the words after `run --` are a command, which clap_complete does not handle.
const COMMAND_OF_RUN: &str = r#"    local at
    if [[ "${COMP_WORDS[1]}" == run ]]; then
        for ((at = 2; at < COMP_CWORD; at++)); do
            [[ "${COMP_WORDS[at]}" == -- ]] || continue
            if declare -F _command_offset >/dev/null; then
                _command_offset $((at + 1))
            elif ((at + 1 == COMP_CWORD)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$2")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$2")
            fi
            return
        done
    fi
"#;

/// Writes completions for three shells, under the names that the shells look for.
fn write_completions(dir: &Path) -> Result<()> {
    checked(dir)?;
    for (shell, name) in [
        (Shell::Bash, "hpmmap"),
        (Shell::Zsh, "_hpmmap"),
        (Shell::Fish, "hpmmap.fish"),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut whole(), "hpmmap", &mut text);
        if shell == Shell::Bash {
            let function = "_hpmmap() {\n";
            let script = String::from_utf8_lossy(&text);
            text = script
                .replacen(function, &format!("{function}{COMMAND_OF_RUN}"), 1)
                .into();
        }
        safe_files::write(&dir.join(name), text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::process::Command;

    use super::*;

    fn made() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        write_pages(dir.path()).unwrap();
        dir
    }

    fn names(dir: &Path) -> BTreeSet<String> {
        fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn one_page_per_verb() {
        let dir = made();
        let expected = [
            "hpmmap.1",
            "hpmmap-pool.8",
            "hpmmap-pool-add.8",
            "hpmmap-pool-remove.8",
            "hpmmap-pool-set.8",
            "hpmmap-pool-reserve.8",
            "hpmmap-pool-list.8",
            "hpmmap-pool-limit.8",
            "hpmmap-pool-iomem.8",
            "hpmmap-partition.8",
            "hpmmap-partition-create.8",
            "hpmmap-partition-list.8",
            "hpmmap-partition-show.8",
            "hpmmap-partition-delete.8",
            "hpmmap-partition-reserve.8",
            "hpmmap-vm.1",
            "hpmmap-vm-qemu.1",
            "hpmmap-vm-xml.1",
            "hpmmap-vm-status.1",
            "hpmmap-vm-pin.1",
            "hpmmap-bench.1",
            "hpmmap-bench-alloc.1",
            "hpmmap-bench-colocation.1",
            "hpmmap-bench-node.1",
            "hpmmap-bench-noise.1",
            "hpmmap-bench-vm.1",
            "hpmmap-vm-agent.1",
            "hpmmap-run.1",
            "hpmmap-mark.1",
            "hpmmap-unmark.1",
            "hpmmap-status.1",
            "hpmmap-doctor.1",
            "hpmmap-cdi.1",
            "hpmmap-trace.1",
            "hpmmap-trace-record.1",
            "hpmmap-trace-report.1",
            "hpmmap-trace-plot.1",
            "hpmmap-trace-noise.1",
            "hpmmap-pools.5",
            "hpmmap-limits.5",
            "hpmmap-mount.5",
        ];
        assert_eq!(names(dir.path()), expected.map(str::to_string).into());
        let page = fs::read_to_string(dir.path().join("hpmmap-pool-add.8")).unwrap();
        assert!(page.contains("memory block"), "{page}");
        assert!(page.starts_with(".TH HPMMAP-POOL-ADD 8 20"), "{page}");
    }

    #[test]
    fn every_page_has_examples_files_and_other_pages_that_there_are() {
        let dir = made();
        let all = names(dir.path());
        for name in &all {
            let page = fs::read_to_string(dir.path().join(name)).unwrap();
            for head in ["EXAMPLES", "FILES", "SEE ALSO"] {
                assert!(page.contains(&format!("\n.SH {head}\n")), "{name}: {head}");
            }
            for line in page.lines().filter(|line| line.starts_with(".BR hpmmap")) {
                let (page, rest) = line[4..].split_once(" (").unwrap();
                let file = format!("{}.{}", page.replace('\\', ""), &rest[..1]);
                assert!(all.contains(&file), "{name} refers to {file}");
            }
        }
        let page = fs::read_to_string(dir.path().join("hpmmap-pool.8")).unwrap();
        assert!(page.contains("hpmmap\\-pool\\-add(8)"), "{page}");
    }

    #[test]
    fn a_synopsis_has_values_and_paragraphs_are_apart() {
        let dir = made();
        let page = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        let run = page("hpmmap-run.1");
        for line in [
            "[\\fB\\-\\-page\\-size\\fR \\fI2M|1G\\fR]",
            "[\\fB\\-\\-only\\fR \\fIPATTERN\\fR] ...",
            "[\\fB\\-v|\\-\\-verbose\\fR]",
            "[\\-\\-] \\fICOMMAND\\fR [\\fIARGUMENT\\fR ...]",
        ] {
            assert!(run.lines().any(|one| one == line), "{line} in {run}");
        }
        let (first, rest) = run.split_once("\n.sp\n").unwrap();
        assert!(!first.ends_with('.') && !rest.starts_with('.'), "{run}");
        let limit = page("hpmmap-pool-limit.8");
        let group = "{\\fB\\-\\-user\\fR \\fINAME|UID\\fR | ";
        assert!(limit.contains(group), "{limit}");
        let status = page("hpmmap-status.1");
        assert!(
            status.contains("\\-watch\\fR [\\fISECONDS\\fR]"),
            "{status}"
        );
    }

    #[test]
    fn mandoc_has_nothing_to_complain_of() {
        let dir = made();
        for name in names(dir.path()) {
            let path = dir.path().join(&name);
            let done = Command::new("mandoc")
                .args(["-T", "lint"])
                .arg(path)
                .output();
            // Only if it is installed.
            let Ok(done) = done else { return };
            let said = String::from_utf8_lossy(&done.stdout);
            // Pages of other packages may be missing here.
            let own = said
                .lines()
                .filter(|line| !line.contains("referenced manual not found"));
            assert_eq!(own.collect::<Vec<_>>(), [""; 0], "{name}");
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(951_782_400), "2000-02-29");
        assert_eq!(day(1_735_689_599), "2024-12-31");
    }

    #[test]
    fn each_shell_has_its_completions() {
        let dir = tempfile::tempdir().unwrap();
        write_completions(dir.path()).unwrap();
        assert_eq!(
            names(dir.path()),
            ["_hpmmap", "hpmmap", "hpmmap.fish"]
                .map(str::to_string)
                .into()
        );
        for name in names(dir.path()) {
            let text = fs::read_to_string(dir.path().join(&name)).unwrap();
            for option in ["page-size", "hpmmap-jemalloc", "after"] {
                assert!(text.contains(option), "{name}: {option}");
            }
        }
        let bash = Command::new("bash")
            .arg("-n")
            .arg(dir.path().join("hpmmap"))
            .status();
        assert!(bash.unwrap().success());
        // With or without the package bash-completion.
        let complete = |words: &str, after: &str| {
            let script = format!(
                ". {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
                 _hpmmap hpmmap \"${{COMP_WORDS[COMP_CWORD]}}\" {after}; echo \"${{COMPREPLY[*]}}\"",
                dir.path().join("hpmmap").display()
            );
            let done = Command::new("bash").args(["-c", &script]).output().unwrap();
            String::from_utf8(done.stdout).unwrap()
        };
        let commands = complete("hpmmap run --strict -- basenam", "--");
        assert!(
            commands.split_whitespace().any(|word| word == "basename"),
            "{commands}"
        );
        assert!(complete("hpmmap run --stri", "run").contains("--strict"));
    }

    #[test]
    fn a_directory_that_is_not_there_is_wrong_usage() {
        let error = write_pages(Path::new("/nonexistent")).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }
}
