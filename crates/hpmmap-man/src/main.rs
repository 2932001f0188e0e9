//! `hpmmap-man MAN COMPLETIONS` writes the manual pages of all programs of hpmmap into one
//! directory, and completions for bash, zsh and fish into the other. Pages come from the
//! definition of the arguments, with what that does not say: examples, files, other pages.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgAction, Command, CommandFactory, Parser};
use clap_complete::Shell;
use clap_mangen::Man;
use hpmmap_base::VERSION;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::{output, safe_files};

/// An example: what it is for, and its lines.
type Example = (&'static str, &'static [&'static str]);

/// What the definition of the arguments does not say of a page.
struct More {
    page: &'static str,
    examples: &'static [Example],
    files: &'static [&'static str],
    see: &'static [&'static str],
}

const DEVICE: &str = "/dev/hpmmap";
const SYSFS: &str = "/sys/kernel/hpmmap";

/// What each of the files is.
const FILES: [(&str, &str); 10] = [
    (
        DEVICE,
        "the device of the module; its group may use the pools",
    ),
    (SYSFS, "counters of the module"),
    ("/etc/hpmmap/pools", "sizes of the pools at boot"),
    ("/etc/hpmmap/limits", "limits of users and cgroups"),
    (
        "/sys/devices/system/memory",
        "the memory blocks, and whether they are online",
    ),
    ("/etc/cdi/hpmmap.json", "how containers get the device"),
    (
        "/etc/default/grub.d/hpmmap.cfg",
        "what is reserved at boot, for GRUB",
    ),
    (
        "/usr/lib/hpmmap/kdump-load",
        "loads a crash kernel that leaves the pools out",
    ),
    (
        "/usr/lib/hpmmap/bench-alloc",
        "what is measured by hpmmap bench alloc",
    ),
    (
        "/usr/lib/hpmmap/bench-noise",
        "what is measured by hpmmap bench noise",
    ),
];

const MORE: [More; 23] = [
    More {
        page: "hpmmap",
        examples: &[(
            "A pool, a launch that uses it, and what it holds:",
            &[
                "# hpmmap pool add --node 0 --size 16G",
                "$ hpmmap run -- mpirun -n 4 ./app",
                "$ hpmmap status",
            ],
        )],
        files: &[DEVICE, SYSFS, "/etc/hpmmap/pools", "/etc/hpmmap/limits"],
        see: &["hpmmap-pools(5)", "hpmmap-limits(5)", "numactl(8)"],
    },
    More {
        page: "hpmmap-pool",
        examples: &[(
            "The pools, and the limits of users and cgroups:",
            &["$ hpmmap pool list", "$ hpmmap pool limit --list"],
        )],
        files: &["/etc/hpmmap/pools", "/etc/hpmmap/limits", SYSFS],
        see: &["hpmmap(1)", "hpmmap-pools(5)"],
    },
    More {
        page: "hpmmap-pool-add",
        examples: &[
            (
                "Take 16 GB of NUMA node 0 from Linux, or nothing:",
                &["# hpmmap pool add --node 0 --size 16G"],
            ),
            (
                "Make the pool of NUMA node 1 at least 1.5 TB large:",
                &["# hpmmap pool add --node 1 --size 1.5T --up-to"],
            ),
        ],
        files: &[DEVICE, "/etc/hpmmap/pools", "/sys/devices/system/memory"],
        see: &["hpmmap-pool-remove(8)", "hpmmap-pools(5)", "lsmem(1)"],
    },
    More {
        page: "hpmmap-pool-remove",
        examples: &[(
            "Give back all memory that no process holds:",
            &["# hpmmap pool remove --all"],
        )],
        files: &[DEVICE, "/sys/devices/system/memory"],
        see: &["hpmmap-pool-add(8)", "hpmmap-status(1)", "lsmem(1)"],
    },
    More {
        page: "hpmmap-pool-set",
        examples: &[
            (
                "Make the pools as large as /etc/hpmmap/pools says, as the service does:",
                &["# hpmmap pool set"],
            ),
            (
                "Make the pool of NUMA node 1 1.5 TB large, whatever it has now:",
                &["# hpmmap pool set --node 1 --size 1.5T"],
            ),
            (
                "On a small virtual machine, where Linux needs less than 2 GB:",
                &["# hpmmap pool set --size 2G --leave 1G"],
            ),
        ],
        files: &[DEVICE, "/etc/hpmmap/pools", "/sys/devices/system/memory"],
        see: &[
            "hpmmap-pools(5)",
            "hpmmap-pool-add(8)",
            "hpmmap-pool-remove(8)",
            "hpmmap-pool-reserve(8)",
        ],
    },
    More {
        page: "hpmmap-pool-reserve",
        examples: &[
            (
                "Reserve 64 GB from the next boot on:",
                &["# hpmmap pool reserve --size 64G"],
            ),
            (
                "Reserve nothing from the next boot on:",
                &["# hpmmap pool reserve --remove"],
            ),
        ],
        files: &[
            "/etc/default/grub.d/hpmmap.cfg",
            "/sys/devices/system/memory",
        ],
        see: &["hpmmap-pool-set(8)", "hpmmap-doctor(1)", "update-grub(8)"],
    },
    More {
        page: "hpmmap-pool-list",
        examples: &[(
            "Each memory block, as JSON:",
            &["# hpmmap pool list --verbose --json"],
        )],
        files: &[SYSFS, DEVICE],
        see: &["hpmmap-status(1)", "hpmmap-pool-limit(8)"],
    },
    More {
        page: "hpmmap-pool-limit",
        examples: &[
            (
                "8 GB for alice, and 16 GB for all batch jobs of Slurm:",
                &[
                    "# hpmmap pool limit --user alice --size 8G",
                    "# hpmmap pool limit --cgroup /system.slice/slurmstepd.scope --size 16G",
                ],
            ),
            (
                "The limits of all users and cgroups, and what they hold:",
                &["$ hpmmap pool limit --list"],
            ),
        ],
        files: &[DEVICE, "/etc/hpmmap/limits"],
        see: &["hpmmap-limits(5)", "hpmmap-status(1)", "cgroups(7)"],
    },
    More {
        page: "hpmmap-pool-iomem",
        examples: &[(
            "Load a crash kernel that leaves the pools out of dumps:",
            &["# /usr/lib/hpmmap/kdump-load"],
        )],
        files: &["/usr/lib/hpmmap/kdump-load"],
        see: &["hpmmap-pool-add(8)", "kexec(8)"],
    },
    More {
        page: "hpmmap-run",
        examples: &[
            (
                "All processes of an MPI program on this host:",
                &["$ hpmmap run -- mpirun -n 4 ./lmp -in in.lj"],
            ),
            (
                "Only the ranks, and not mpirun and its helpers:",
                &["$ hpmmap run --only 'lmp*' -- mpirun -n 4 ./lmp -in in.lj"],
            ),
            (
                "A launch and a report for each rank:",
                &["$ mpirun -n 4 hpmmap run --report 'r-%h-%r.json' -- ./lmp -in in.lj"],
            ),
            (
                "Fail when the pools are exhausted, and print a report at the end:",
                &["$ hpmmap run --strict --verbose -- ./app"],
            ),
        ],
        files: &[DEVICE, SYSFS],
        see: &[
            "hpmmap-status(1)",
            "hpmmap-mark(1)",
            "numactl(8)",
            "mpirun(1)",
        ],
    },
    More {
        page: "hpmmap-status",
        examples: &[
            (
                "A screen that is updated each second:",
                &["$ hpmmap status --watch 1"],
            ),
            (
                "Metrics for the textfile collector of node_exporter:",
                &[
                    "# hpmmap status --prometheus --output \\",
                    "    /var/lib/prometheus/node-exporter/hpmmap.prom",
                ],
            ),
        ],
        files: &[SYSFS],
        see: &["hpmmap-run(1)", "hpmmap-pool-list(8)"],
    },
    More {
        page: "hpmmap-doctor",
        examples: &[("Check this host:", &["$ hpmmap doctor"])],
        files: &[DEVICE, SYSFS],
        see: &["hpmmap-pool-add(8)", "modprobe(8)"],
    },
    More {
        page: "hpmmap-cdi",
        examples: &[(
            "A container with the device, for a user of its group:",
            &[
                "# hpmmap cdi --output /etc/cdi/hpmmap.json",
                "# podman run --device hpmmap.io/pool=all \\",
                "    --group-add $(stat -c %g /dev/hpmmap) image hpmmap run -- ./app",
            ],
        )],
        files: &[DEVICE, "/etc/cdi/hpmmap.json"],
        see: &["hpmmap-run(1)", "hpmmap-mark(1)", "podman-run(1)"],
    },
    More {
        page: "hpmmap-mark",
        examples: &[
            ("Mark a program:", &["$ hpmmap mark ./app"]),
            (
                "Print whether it is marked, and with which options:",
                &["$ hpmmap mark --show ./app"],
            ),
        ],
        files: &[DEVICE],
        see: &["hpmmap-unmark(1)", "hpmmap-run(1)", "elf(5)"],
    },
    More {
        page: "hpmmap-unmark",
        examples: &[("Remove the mark:", &["$ hpmmap unmark ./app"])],
        files: &[DEVICE],
        see: &["hpmmap-mark(1)"],
    },
    More {
        page: "hpmmap-bench",
        examples: &[("What memory costs here:", &["$ hpmmap bench alloc"])],
        files: &["/usr/lib/hpmmap/bench-alloc", "/usr/lib/hpmmap/bench-noise"],
        see: &["hpmmap-status(1)"],
    },
    More {
        page: "hpmmap-bench-alloc",
        examples: &[(
            "Pieces of 2 MB, of the pools and of Linux:",
            &["$ hpmmap bench alloc --method 4k,hpmmap --size 2M"],
        )],
        files: &["/usr/lib/hpmmap/bench-alloc", DEVICE],
        see: &["hpmmap-bench-noise(1)", "hpmmap-run(1)"],
    },
    More {
        page: "hpmmap-bench-noise",
        examples: &[("What takes time away here:", &["$ hpmmap bench noise"])],
        files: &["/usr/lib/hpmmap/bench-noise", DEVICE],
        see: &["hpmmap-bench-alloc(1)"],
    },
    More {
        page: "hpmmap-bench-colocation",
        examples: &[
            (
                "MPI jobs beside neighbours:",
                &["# hpmmap bench colocation"],
            ),
            (
                "On one and on two nodes of an allocation of Slurm:",
                &["# salloc -w n1,n2 --exclusive hpmmap bench colocation --prepare --hosts n1,n2"],
            ),
        ],
        files: &[DEVICE, SYSFS],
        see: &["hpmmap-run(1)", "mpirun(1)"],
    },
    More {
        page: "hpmmap-trace",
        examples: &[(
            "Record a program's page faults, and look at them:",
            &[
                "# hpmmap trace record -o faults -- ./app",
                "$ hpmmap trace report faults",
            ],
        )],
        files: &[SYSFS],
        see: &["hpmmap-run(1)", "perf(1)"],
    },
    More {
        page: "hpmmap-trace-record",
        examples: &[(
            "A program and all it starts:",
            &["# hpmmap trace record -o faults -- mpirun -n 2 ./app"],
        )],
        files: &[SYSFS],
        see: &["hpmmap-trace-report(1)", "perf-record(1)"],
    },
    More {
        page: "hpmmap-trace-report",
        examples: &[("For a program:", &["$ hpmmap trace report faults --json"])],
        files: &[SYSFS],
        see: &["hpmmap-trace-record(1)", "hpmmap-trace-plot(1)"],
    },
    More {
        page: "hpmmap-trace-plot",
        examples: &[("A picture:", &["$ hpmmap trace plot faults -o faults.svg"])],
        files: &[SYSFS],
        see: &["hpmmap-trace-record(1)", "hpmmap-trace-report(1)"],
    },
];

/// Those of section 5, but for their titles.
const OF_FILES: [(&str, &str); 3] = [
    ("hpmmap-pools", include_str!("../man/hpmmap-pools.5")),
    ("hpmmap-limits", include_str!("../man/hpmmap-limits.5")),
    ("hpmmap-mount", include_str!("../man/hpmmap-mount.5")),
];

/// What is an administrator's is in section 8.
fn section(page: &str) -> &'static str {
    match page {
        "hpmmap-pool" => "8",
        page if page.starts_with("hpmmap-pool-") => "8",
        _ => "1",
    }
}

/// The day of some seconds since 1970, as pages have it.
fn day(seconds: u64) -> String {
    // Years that begin in March have their odd day at the end.
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

/// That of the build, or what SOURCE_DATE_EPOCH says.
fn today() -> String {
    let told = std::env::var("SOURCE_DATE_EPOCH").ok();
    let seconds = told.and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| now.as_secs())
    });
    day(seconds)
}

fn title(page: &str, section: &str, date: &str) -> String {
    let page = page.to_uppercase();
    format!(".TH {page} {section} {date} \"hpmmap {VERSION}\" \"HPMMAP\"\n")
}

/// Text for roff.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

/// A line of text as lines of at most so many characters.
const WIDTH: usize = 78;

fn fill(line: &str, out: &mut String) {
    let mut length = 0;
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        if length != 0 && length + 1 + word.len() > WIDTH {
            out.push('\n');
            length = 0;
        }
        if length != 0 {
            out.push(' ');
            length += 1;
        } else if word.starts_with(['.', '\'']) {
            out.push_str("\\&");
        }
        out.push_str(word);
        length += word.len();
    }
    out.push('\n');
}

/// What clap_mangen has made, in lines that are neither long nor end in blanks, without
/// breaks beside spaces, and with the right sections.
fn tidied(roff: &str, pages: &[String]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in roff.lines().map(str::trim_end) {
        let last = lines.last().map_or(".", String::as_str);
        // A paragraph of an option's text ends.
        let line = match line {
            "" if !last.starts_with('.') => ".sp",
            "" => continue,
            line => line,
        };
        if line == ".br" && matches!(last, ".sp" | ".br") {
            continue;
        }
        if line.starts_with('.') && matches!((last, line), (".sp", _) | (".br", ".sp")) {
            lines.pop();
        }
        lines.push(line.to_string());
    }
    let mut out = String::new();
    let mut is_tag = false;
    for line in &lines {
        if line.starts_with('.') || line.starts_with('\'') || is_tag {
            out.push_str(line);
            out.push('\n');
        } else {
            fill(line, &mut out);
        }
        is_tag = line == ".TP";
    }
    for page in pages.iter().filter(|page| section(page) != "1") {
        let name = page.replace('-', "\\-");
        out = out.replace(&format!("{name}(1)"), &format!("{name}({})", section(page)));
    }
    out
}

fn value_names(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    names.join(" ")
}

/// An option as it is typed.
fn typed(arg: &Arg) -> String {
    let mut names = Vec::new();
    names.extend(arg.get_short().map(|short| format!("-{short}")));
    names.extend(arg.get_long().map(|long| format!("--{long}")));
    let mut text = format!("\\fB{}\\fR", escaped(&names.join("|")));
    let values = value_names(arg);
    if arg.get_action().takes_values() && !values.is_empty() {
        let value = format!("\\fI{}\\fR", escaped(&values));
        let may_lack = arg.get_num_args().is_some_and(|n| n.min_values() == 0);
        text += &match may_lack {
            true => format!(" [{value}]"),
            false => format!(" {value}"),
        };
    }
    text
}

/// How the command is called, with the values of options.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut words = vec![format!("\\fB{}\\fR", escaped(name))];
    if command.has_subcommands() {
        words.push("\\fIVERB\\fR [\\fIOPTION\\fR ...]".into());
    }
    let is_shown = |arg: &&Arg| {
        let help = matches!(arg.get_id().as_str(), "help" | "version");
        !help && !arg.is_hide_set() && !arg.is_positional()
    };
    let groups = command.get_groups().filter(|group| group.is_required_set());
    let one_of: Vec<_> = groups.flat_map(|group| group.get_args().cloned()).collect();
    let of_group = |arg: &&Arg| one_of.contains(arg.get_id());
    let options: Vec<&Arg> = command.get_arguments().filter(is_shown).collect();
    if !one_of.is_empty() {
        let group = options.iter().copied().filter(of_group).map(typed);
        words.push(format!("{{{}}}", group.collect::<Vec<_>>().join(" | ")));
    }
    for arg in options.iter().copied().filter(|arg| !of_group(arg)) {
        let again = match arg.get_action() {
            ArgAction::Append => " ...",
            _ => "",
        };
        words.push(match arg.is_required_set() {
            true => typed(arg),
            false => format!("[{}]{again}", typed(arg)),
        });
    }
    for arg in command.get_positionals().filter(|arg| !arg.is_hide_set()) {
        let name = value_names(arg);
        let name = format!("\\fI{}\\fR", escaped(&name));
        words.push(match (arg.is_trailing_var_arg_set(), arg.get_action()) {
            (true, _) => format!("[\\-\\-] {name} [\\fIARGUMENT\\fR ...]"),
            (_, ArgAction::Append) => format!("{name} ..."),
            _ if arg.is_required_set() => name,
            _ => format!("[{name}]"),
        });
    }
    format!(".SH SYNOPSIS\n{}\n", words.join("\n"))
}

fn examples(examples: &[Example]) -> String {
    let mut out = ".SH EXAMPLES\n".to_string();
    for (n, (what, lines)) in examples.iter().enumerate() {
        if n != 0 {
            out += ".PP\n";
        }
        out += &format!("{}\n.PP\n.RS 4\n.nf\n", escaped(what));
        for line in *lines {
            let _ = writeln!(out, "{}", escaped(line));
        }
        out += ".fi\n.RE\n";
    }
    out
}

fn files(paths: &[&str]) -> String {
    let mut out = ".SH FILES\n".to_string();
    for (path, what) in FILES.iter().filter(|(path, _)| paths.contains(path)) {
        let _ = writeln!(out, ".TP\n.I {}\n{}", escaped(path), escaped(what));
    }
    out
}

fn see_also(pages: &[&str]) -> String {
    let mut out = ".SH SEE ALSO\n".to_string();
    for (n, page) in pages.iter().enumerate() {
        let (name, section) = page.split_once('(').unwrap_or((page, "1)"));
        let comma = if n + 1 < pages.len() { "," } else { "" };
        let _ = writeln!(out, ".BR {} ({section}{comma}", escaped(name));
    }
    out
}

/// The pages of a command and all below it: their names, and what clap_mangen is given.
fn commands(command: &Command, all: &mut Vec<(String, Command)>) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    all.push((name.to_string(), command.clone()));
    for below in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        commands(below, all);
    }
}

fn page(name: &str, command: Command, pages: &[String], date: &str) -> Result<String> {
    let has_verbs = command.has_subcommands();
    let has_more = command.get_after_help().is_some();
    let synopsis = synopsis(&command);
    let man = Man::new(command).section(section(name));
    let mut roff = Vec::new();
    man.render_name_section(&mut roff)?;
    roff.extend_from_slice(synopsis.as_bytes());
    man.render_description_section(&mut roff)?;
    man.render_options_section(&mut roff)?;
    if has_verbs {
        man.render_subcommands_section(&mut roff)?;
    }
    if has_more {
        man.render_extra_section(&mut roff)?;
    }
    let roff = String::from_utf8_lossy(&roff);
    // Each of the pieces defines it again.
    let roff: Vec<&str> = roff
        .lines()
        .filter(|line| !line.contains("\\n(.g .ds Aq") && !line.starts_with(".el .ds Aq"))
        .collect();
    let quote = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";
    let mut out = title(name, section(name), date) + quote + &tidied(&roff.join("\n"), pages);
    if let Some(more) = MORE.iter().find(|more| more.page == name) {
        out += &(examples(more.examples) + &files(more.files) + &see_also(more.see));
    }
    Ok(out)
}

/// Where to write to.
#[derive(Debug, Parser)]
struct Dirs {
    /// The manual pages
    man: PathBuf,
    /// Completions
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

/// The command with its verbs, those of other programs too.
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

/// For bash, for which clap_complete does not: what follows the options of `run` is a command.
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

/// What completes the command's words in three shells, under the names they look for.
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
            "hpmmap-bench.1",
            "hpmmap-bench-alloc.1",
            "hpmmap-bench-colocation.1",
            "hpmmap-bench-noise.1",
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
            // Only where it is installed.
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
