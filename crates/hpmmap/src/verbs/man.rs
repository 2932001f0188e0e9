//! `hpmmap man`: the manual pages come from the definition of the arguments, with what
//! that does not say: examples, files, other pages. `hpmmap completions` likewise.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use hpmmap_base::VERSION;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::replace;

use crate::cli::{Cli, ManArgs};

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
    (DEVICE, "the module's device; its group may run jobs"),
    (SYSFS, "what the module counts"),
    ("/etc/hpmmap/pools", "how large the pools are at boot"),
    ("/etc/hpmmap/limits", "who may hold how much of them"),
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
            "A pool, a job in it, and what it holds:",
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
            "What there is, and who may hold how much of it:",
            &["$ hpmmap pool list", "$ hpmmap pool limit --list"],
        )],
        files: &["/etc/hpmmap/pools", "/etc/hpmmap/limits", SYSFS],
        see: &["hpmmap(1)", "hpmmap-pools(5)"],
    },
    More {
        page: "hpmmap-pool-add",
        examples: &[
            (
                "Take 16 GB of node 0 from Linux, or nothing:",
                &["# hpmmap pool add --node 0 --size 16G"],
            ),
            (
                "Add what the pool of node 1 lacks of 1.5 TB:",
                &["# hpmmap pool add --node 1 --size 1.5T --up-to"],
            ),
        ],
        files: &[DEVICE, "/etc/hpmmap/pools", "/sys/devices/system/memory"],
        see: &["hpmmap-pool-remove(8)", "hpmmap-pools(5)", "lsmem(1)"],
    },
    More {
        page: "hpmmap-pool-remove",
        examples: &[(
            "Give everything back that no job holds:",
            &["# hpmmap pool remove --all"],
        )],
        files: &[DEVICE, "/sys/devices/system/memory"],
        see: &["hpmmap-pool-add(8)", "hpmmap-status(1)", "lsmem(1)"],
    },
    More {
        page: "hpmmap-pool-set",
        examples: &[
            (
                "Make the pools what /etc/hpmmap/pools says, as the service does:",
                &["# hpmmap pool set"],
            ),
            (
                "The pool of node 1 is to have 1.5 TB, whatever it has now:",
                &["# hpmmap pool set --node 1 --size 1.5T"],
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
                "From the next boot on, 64 GB that can be had in full:",
                &["# hpmmap pool reserve --size 64G"],
            ),
            ("No longer:", &["# hpmmap pool reserve --remove"]),
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
            "With each memory block, for a program:",
            &["# hpmmap pool list --verbose --json"],
        )],
        files: &[SYSFS, DEVICE],
        see: &["hpmmap-status(1)", "hpmmap-pool-limit(8)"],
    },
    More {
        page: "hpmmap-pool-limit",
        examples: &[
            (
                "8 GB for alice, and 16 GB for all jobs of Slurm:",
                &[
                    "# hpmmap pool limit --user alice --size 8G",
                    "# hpmmap pool limit --cgroup /slurm --size 16G",
                ],
            ),
            (
                "What everybody may hold, and does:",
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
                "An MPI job:",
                &["$ hpmmap run -- mpirun -n 4 ./lmp -in in.lj"],
            ),
            (
                "The same, with what is no lmp left to Linux:",
                &["$ hpmmap run --only 'lmp*' -- mpirun -n 4 ./lmp -in in.lj"],
            ),
            (
                "A job for each rank, and a report of each:",
                &["$ mpirun -n 4 hpmmap run --report 'r-%h-%r.json' -- ./lmp -in in.lj"],
            ),
            (
                "Fail where the pools are used up, and say at the end how it went:",
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
                "A screen that is drawn each second:",
                &["$ hpmmap status --watch 1"],
            ),
            (
                "For the textfile collector of node_exporter:",
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
        examples: &[(
            "What is missing here, and what to do:",
            &["$ hpmmap doctor"],
        )],
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
            ("From now on it registers itself:", &["$ hpmmap mark ./app"]),
            ("Whether it does, and how:", &["$ hpmmap mark --show ./app"]),
        ],
        files: &[DEVICE],
        see: &["hpmmap-unmark(1)", "hpmmap-run(1)", "elf(5)"],
    },
    More {
        page: "hpmmap-unmark",
        examples: &[("It is again what it was:", &["$ hpmmap unmark ./app"])],
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
    ("hpmmap-pools", include_str!("../../man/hpmmap-pools.5")),
    ("hpmmap-limits", include_str!("../../man/hpmmap-limits.5")),
    ("hpmmap-mount", include_str!("../../man/hpmmap-mount.5")),
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
        let last = lines.last().map(String::as_str);
        if line.is_empty() || (line == ".br" && matches!(last, Some(".sp" | ".br"))) {
            continue;
        }
        if line == ".sp" && last == Some(".br") {
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
    let man = Man::new(command).section(section(name));
    let mut roff = Vec::new();
    man.render_name_section(&mut roff)?;
    man.render_synopsis_section(&mut roff)?;
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

fn checked(args: &ManArgs) -> Result<()> {
    if args.dir.is_dir() {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{} is not a directory",
        args.dir.display()
    )))
}

pub fn perform(args: &ManArgs) -> Result<ExitCode> {
    checked(args)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut all = Vec::new();
    commands(&command, &mut all);
    let pages: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    let date = today();
    for (name, command) in all {
        let text = page(&name, command, &pages, &date)?;
        replace::write(&args.dir.join(format!("{name}.{}", section(&name))), text)?;
    }
    for (name, text) in OF_FILES {
        let text = title(name, "5", &date) + text;
        replace::write(&args.dir.join(format!("{name}.5")), text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What completes the command's words in three shells, under the names they look for.
pub fn completions(args: &ManArgs) -> Result<ExitCode> {
    checked(args)?;
    for (shell, name) in [
        (Shell::Bash, "hpmmap"),
        (Shell::Zsh, "_hpmmap"),
        (Shell::Fish, "hpmmap.fish"),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "hpmmap", &mut text);
        replace::write(&args.dir.join(name), text)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn made() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        perform(&ManArgs {
            dir: dir.path().to_path_buf(),
        })
        .unwrap();
        dir
    }

    fn names(dir: &Path) -> BTreeSet<String> {
        fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn one_page_per_verb_and_none_for_the_hidden_one() {
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
        completions(&ManArgs {
            dir: dir.path().to_path_buf(),
        })
        .unwrap();
        assert_eq!(
            names(dir.path()),
            ["_hpmmap", "hpmmap", "hpmmap.fish"]
                .map(str::to_string)
                .into()
        );
        for name in names(dir.path()) {
            let text = fs::read_to_string(dir.path().join(&name)).unwrap();
            assert!(text.contains("page-size"), "{name}");
        }
        let bash = Command::new("bash")
            .arg("-n")
            .arg(dir.path().join("hpmmap"))
            .status();
        assert!(bash.unwrap().success());
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
