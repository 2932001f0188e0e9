//! Workers of `bench alloc`: one process for each repetition, so that none affects the next.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::signals::{Means, Watched};
use hpmmap_host::Root;
use hpmmap_sys::child::{Setup, Signal};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::Deserialize;

use super::machine::tasks_ns;
use super::plan::{Allocator, Case, Method, Provider};
use super::program::{self, content, memory_file};
use super::result::{Figures, ThreadFigures};

/// Time for work that is put off until after the end of a process.
const AFTER: Duration = Duration::from_millis(100);

/// Makes glibc's malloc use reserved huge pages.
const HUGETLB_MALLOC: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2");

/// Makes jemalloc allocate no more than it needs, and give it back.
const HPMMAP_JEMALLOC: (&str, &str) = ("MALLOC_CONF", "retain:false,oversize_threshold:2097152");

/// The worker program and its start.
pub struct Worker {
    /// Path of the program.
    pub program: PathBuf,
    /// Rounds in one process.
    pub rounds: u32,
    /// Its CPUs; empty: those of this process.
    pub cpus: Vec<u32>,
}

/// The result of one process.
#[derive(Debug, PartialEq, Eq)]
pub enum Sample {
    /// One thread.
    Single {
        /// The figures.
        figures: Figures,
        /// The counter of faults.
        fault_counter: String,
        /// Clean bytes of the pools before, if the module tells.
        clean_bytes: Option<u64>,
    },
    /// Several threads.
    Threads(ThreadFigures),
    /// The module or the kernel lacks something that the method needs.
    LeftOut(String),
}

/// A line of the worker's output, with the names that it prints.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    LeftOut {
        left_out: String,
    },
    Threads {
        wall_ns: u64,
        cpu_ns: u64,
        run_delay_ns: u64,
        blocked_ns: u64,
        voluntary_switches: u64,
        involuntary_switches: u64,
        pages: u64,
        touch_p10: u64,
        touch_p25: u64,
        touch_p50: u64,
        touch_p75: u64,
        touch_p90: u64,
    },
    Single(Box<Single>),
}

#[derive(Deserialize)]
struct Single {
    map: u64,
    touch: u64,
    unmap: u64,
    total: u64,
    #[serde(rename = "loop")]
    loop_cost: u64,
    worst_touch: u64,
    worst_call: u64,
    calls: u64,
    touched_pages: u64,
    faults: u64,
    fault_counter: String,
    page_table_bytes: u64,
    resident_bytes: u64,
    held_bytes: u64,
    base_bytes: u64,
    cleared_bytes: u64,
    clean_bytes: Option<u64>,
    cpu_ns: u64,
    tasks_ns: Option<u64>,
}

/// Values read when a worker had ended.
struct Ended {
    /// Its total CPU time.
    cpu_ns: u64,
    /// CPU time of all tasks, read a little later.
    tasks_ns: Option<u64>,
}

/// Parses a worker's line.
fn parse(text: &str, ended: &Ended) -> std::result::Result<Sample, String> {
    let line = text.lines().last().unwrap_or("");
    let line: Line =
        serde_json::from_str(line).map_err(|_| format!("it printed '{}'", text.trim()))?;
    Ok(match line {
        Line::LeftOut { left_out } => Sample::LeftOut(left_out),
        Line::Threads {
            wall_ns,
            cpu_ns,
            run_delay_ns,
            blocked_ns,
            voluntary_switches,
            involuntary_switches,
            pages,
            touch_p10,
            touch_p25,
            touch_p50,
            touch_p75,
            touch_p90,
        } => Sample::Threads(ThreadFigures {
            wall_ns,
            cpu_ns,
            run_delay_ns,
            blocked_ns,
            voluntary_switches,
            involuntary_switches,
            pages,
            pages_per_second: (u128::from(pages) * 1_000_000_000 / u128::from(wall_ns.max(1)))
                as u64,
            touch_p10,
            touch_p25,
            touch_p50,
            touch_p75,
            touch_p90,
        }),
        Line::Single(one) => {
            let exit_ns = ended.cpu_ns.saturating_sub(one.cpu_ns);
            let tasks = ended.tasks_ns.zip(one.tasks_ns);
            let others = tasks.map_or(0, |(after, before)| after.saturating_sub(before));
            Sample::Single {
                figures: Figures {
                    map: one.map,
                    touch: one.touch,
                    unmap: one.unmap,
                    total: one.total,
                    loop_cost: one.loop_cost,
                    worst_touch: one.worst_touch,
                    worst_call: one.worst_call,
                    calls: one.calls,
                    touched_pages: one.touched_pages,
                    faults: one.faults,
                    page_table_bytes: one.page_table_bytes,
                    resident_bytes: one.resident_bytes,
                    held_bytes: one.held_bytes,
                    base_bytes: one.base_bytes,
                    cleared_bytes: one.cleared_bytes,
                    exit_ns,
                    others_ns: others.saturating_sub(exit_ns),
                },
                fault_counter: one.fault_counter,
                clean_bytes: one.clean_bytes,
            }
        }
    })
}

/// Ends all child processes with this process, however it ends.
pub fn ends_with_this() -> Setup {
    Setup {
        dies_with_parent: Some(Signal::SIGKILL),
        ..Setup::default()
    }
}

/// CPU time of all workers that have ended.
fn children_ns() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_err(|errno| Error::Failed(format!("getrusage: {}", errno.desc())))?;
    let micros = |time: TimeVal| (time.tv_sec() * 1_000_000 + time.tv_usec()) as u64;
    Ok((micros(usage.user_time()) + micros(usage.system_time())) * 1000)
}

impl Worker {
    fn command(&self, case: &Case, libraries: &[PathBuf]) -> Command {
        let mut command = if case.method.provider() == Provider::Pools {
            let mut run = Command::new(program::hpmmap());
            run.args(["run", "--strict"]);
            if case.method == Method::Hpmmap1g {
                run.args(["--page-size", "1G"]);
            }
            if case.method == Method::HpmmapStatic {
                run.args(["--static", &case.need_bytes().to_string()]);
            }
            run.arg("--").arg(&self.program);
            run
        } else {
            Command::new(&self.program)
        };
        command
            .args(["--pattern", case.pattern.name()])
            .args(["--method", case.method.name()])
            .args(["--size", &case.size_bytes.to_string()])
            .args(["--rounds", &self.rounds.to_string()])
            .args(["--threads", &case.threads.to_string()]);
        if !libraries.is_empty() {
            let libraries: Vec<&OsStr> = libraries.iter().map(|path| path.as_os_str()).collect();
            command
                .arg("--preload")
                .arg(libraries.join(OsStr::new(":")));
        }
        if case.allocator == Some(Allocator::HpmmapJemalloc) {
            command.env(HPMMAP_JEMALLOC.0, HPMMAP_JEMALLOC.1);
        }
        if case.pattern.uses_allocator() && case.method == Method::Hugetlb {
            command.env(HUGETLB_MALLOC.0, HUGETLB_MALLOC.1);
        }
        command
    }

    /// Runs one process to its end.
    pub fn run(&self, root: &Root, case: &Case, libraries: &[PathBuf]) -> Result<Sample> {
        let failed =
            |why: String| Error::Failed(format!("the worker of '{}' failed: {why}", case.title()));
        let (output, errors) = (memory_file("output")?, memory_file("errors")?);
        let before = children_ns()?;
        let mut command = self.command(case, libraries);
        Setup {
            cpus: self.cpus.clone(),
            ..ends_with_this()
        }
        .apply(&mut command)?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(errors.try_clone()?)
            .spawn()
            .map_err(|error| failed(format!("{}: {error}", self.program.display())))?;
        Watched::new(child.id(), Means::Kill).wait();
        let status = child.wait()?;
        let cpu_ns = children_ns()? - before;
        thread::sleep(AFTER);
        let ended = Ended {
            cpu_ns,
            tasks_ns: tasks_ns(root),
        };
        if !status.success() {
            let said = content(errors)?;
            let last = said.lines().last().unwrap_or("it said nothing");
            return Err(failed(format!("{status}: {last}")));
        }
        parse(&content(output)?, &ended).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Pattern;

    fn case(method: Method) -> Case {
        Case {
            pattern: Pattern::Malloc,
            method,
            allocator: Some(Allocator::Glibc),
            size_bytes: 1 << 20,
            threads: 1,
        }
    }

    fn words(case: &Case, libraries: &[PathBuf]) -> Vec<String> {
        let worker = Worker {
            program: "/w".into(),
            rounds: 3,
            cpus: Vec::new(),
        };
        let command = worker.command(case, libraries);
        std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn only_our_methods_are_launched() {
        let words_native = words(&case(Method::Small), &[]);
        assert_eq!(words_native[0], "/w");
        let words = words(&case(Method::Hpmmap), &["/l.so".into(), "/m.so".into()]);
        assert!(words[0].ends_with("/hpmmap"), "{}", words[0]);
        assert_eq!(words[1..5], ["run", "--strict", "--", "/w"]);
        assert_eq!(words[words.len() - 2..], ["--preload", "/l.so:/m.so"]);
    }

    #[test]
    fn entries_of_1g_are_asked_for() {
        let words = words(&case(Method::Hpmmap1g), &[]);
        assert_eq!(words[1..5], ["run", "--strict", "--page-size", "1G"]);
    }

    #[test]
    fn a_region_is_as_large_as_the_case() {
        let case = case(Method::HpmmapStatic);
        let words = words(&case, &[]);
        assert_eq!(words[1..4], ["run", "--strict", "--static"]);
        assert_eq!(words[4], case.need_bytes().to_string());
    }

    #[test]
    fn lines_are_understood() {
        let text = r#"{"map": 1, "touch": 2, "unmap": 3, "total": 6, "loop": 4, "worst_touch": 5,
            "worst_call": 6, "calls": 2, "touched_pages": 7, "faults": 8, "fault_counter": "perf",
            "page_table_bytes": 9, "resident_bytes": 10, "held_bytes": 11, "base_bytes": 12, "cleared_bytes": 13,
            "clean_bytes": null, "cpu_ns": 1000, "tasks_ns": 5000}"#
            .replace('\n', "");
        let ended = Ended {
            cpu_ns: 1500,
            tasks_ns: Some(5507),
        };
        let Ok(Sample::Single { figures, .. }) = parse(&text, &ended) else {
            panic!();
        };
        assert_eq!((figures.total, figures.loop_cost), (6, 4));
        assert_eq!((figures.exit_ns, figures.others_ns), (500, 7));

        let text =
            r#"{"threads": 2, "pages": 1000, "wall_ns": 500000000, "cpu_ns": 1, "run_delay_ns": 2,
            "blocked_ns": 3, "voluntary_switches": 4, "involuntary_switches": 5, "touch_p10": 6,
            "touch_p25": 7, "touch_p50": 8, "touch_p75": 9, "touch_p90": 10}"#
                .replace('\n', "");
        let Ok(Sample::Threads(figures)) = parse(&text, &ended) else {
            panic!();
        };
        assert_eq!(figures.pages_per_second, 2000);
        assert_eq!((figures.touch_p50, figures.touch_p90), (8, 10));
        assert_eq!(
            parse(r#"{"left_out": "no reuse"}"#, &ended),
            Ok(Sample::LeftOut("no reuse".into()))
        );
        assert_eq!(parse("oops\n", &ended), Err("it printed 'oops'".into()));
    }

    #[test]
    fn a_worker_that_fails_is_an_error_with_its_words() {
        let worker = Worker {
            program: "/bin/false".into(),
            rounds: 1,
            cpus: Vec::new(),
        };
        let error = worker
            .run(&Root::default(), &case(Method::Small), &[])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("the worker of 'malloc 4k 1M glibc' failed: exit status: 1"),
            "{error}"
        );
    }
}
