//! The figures of a recorded file, which are also its JSON.

use std::collections::{BTreeMap, HashMap};

use clap::ValueEnum;
use hpmmap_bpf::{Kind, Stall};
use serde::Serialize;

use crate::format::{Counts, Fault, Happened, Header, Mapping, Overhead, Stolen, Trace};
use crate::statistics::Statistics;

/// Version of the JSON.
const SCHEMA: u32 = 2;

/// The rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// What the faults did
    Kind,
    /// The mappings of the faults
    Mapping,
    /// The threads that took the faults
    Thread,
    /// The ranks, or processes
    Rank,
}

/// The unit of costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    /// Microseconds
    Us,
    /// Cycles of the time stamp counter
    Cycles,
}

/// A process of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// The name of the program that it executed last.
    pub comm: String,
    /// Rank in an MPI job.
    pub rank: Option<u32>,
}

/// The processes of a recording by their numbers.
pub fn processes(trace: &Trace) -> BTreeMap<u32, Process> {
    let mut processes: BTreeMap<u32, Process> = BTreeMap::new();
    for task in &trace.tasks {
        let process = processes.entry(task.pid).or_default();
        // Other threads may have other names.
        if process.comm.is_empty() || matches!(task.event, Happened::Exec | Happened::Found) {
            process.comm.clone_from(&task.comm);
        }
        process.rank = task.rank.or(process.rank);
    }
    processes
}

/// A group of faults, and their cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The properties that the faults share.
    #[serde(flatten)]
    pub what: What,
    /// Faults without an exception, which the other figures leave out except in rows of calls.
    pub calls: u64,
    /// Their costs.
    #[serde(flatten)]
    pub figures: Statistics,
    /// Their cost as a part of the recorded time.
    pub run_share: f64,
}

/// What the faults of a row have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum What {
    /// What they did and waited for.
    Kind {
        /// Without an exception.
        call: bool,
        /// What they did.
        kind: &'static str,
        /// What they waited for.
        stall: &'static str,
    },
    /// The mapping.
    Mapping {
        /// Process.
        pid: u32,
        /// Its name.
        process: String,
        /// Class of mapping.
        class: String,
        /// Its name.
        mapping: String,
        /// First address.
        start: u64,
        /// The end: the address after the last.
        end: u64,
    },
    /// The thread.
    Thread {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Name of the process.
        process: String,
    },
    /// The rank, or a process without one.
    Rank {
        /// Rank.
        rank: Option<u32>,
        /// Process.
        pid: u32,
        /// Its name.
        process: String,
    },
}

/// The counts of the kernel and of the recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Faults and filled pages by the kernel's rules.
    pub recorded: u64,
    /// Minor ones of `recorded`.
    pub minor: u64,
    /// Major ones of `recorded`.
    pub major: u64,
    /// Faults of `recorded` that are in the file.
    pub in_file: u64,
    /// Exceptions among those in the file.
    pub exceptions: u64,
    /// Pages filled by calls among those in the file.
    pub calls: u64,
    /// The kernel's counters of the threads.
    pub kernel: Option<Counts>,
    /// The counts of getrusage.
    pub getrusage: Option<Counts>,
    /// Do all of these agree?
    pub agree: bool,
}

/// The report on a file.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this JSON.
    pub schema: u32,
    /// The circumstances of the recording.
    pub header: Header,
    /// Could the recorder finish?
    pub complete: bool,
    /// The recorded time.
    pub run_ns: u64,
    /// The tables have only faults that began at least this long after the start.
    pub after_ns: u64,
    /// By kind.
    pub kinds: Vec<Row>,
    /// By mapping.
    pub mappings: Vec<Row>,
    /// By thread.
    pub threads: Vec<Row>,
    /// By rank or process.
    pub ranks: Vec<Row>,
    /// Stolen time of the whole run.
    pub stolen: Vec<Stolen>,
    /// Agreement with the kernel in the whole run.
    pub faults: Agreement,
    /// Events that are missing in the file.
    pub dropped: u64,
    /// Processes and threads that could not be traced.
    pub untracked: u64,
    /// Attempts that the kernel began anew.
    pub retries: u64,
    /// Processes that were still running at the end.
    pub running: u32,
    /// Exit status of the command.
    pub exit_status: Option<i32>,
    /// The cost of recording.
    pub overhead: Overhead,
}

/// Costs by what the faults have in common.
#[derive(Default)]
struct Groups(BTreeMap<What, (u64, Vec<u64>)>);

impl Groups {
    fn add(&mut self, what: What, fault: &Fault, calls_too: bool) {
        let group = self.0.entry(what).or_default();
        if fault.is_exception() || calls_too {
            group.1.push(fault.cost_ns);
        }
        if !fault.is_exception() {
            group.0 += 1;
        }
    }

    /// Sorts rows, the most expensive first.
    fn rows(self, run_ns: u64) -> Vec<Row> {
        let mut rows: Vec<Row> = self
            .0
            .into_iter()
            .map(|(what, (calls, costs))| Row::new(what, calls, Statistics::of(costs), run_ns))
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.figures.sum_ns, row.calls)));
        rows
    }
}

impl Row {
    fn new(what: What, calls: u64, figures: Statistics, run_ns: u64) -> Self {
        Self {
            what,
            calls,
            figures,
            run_share: figures.sum_ns as f64 / run_ns.max(1) as f64,
        }
    }
}

fn kind_of(fault: &Fault) -> What {
    What::Kind {
        call: !fault.is_exception(),
        kind: fault.kind.name(),
        stall: fault.stall.name(),
    }
}

impl Report {
    /// Makes the report on faults that began at least `after_ns` after the start.
    pub fn new(trace: &Trace, after_ns: u64) -> Self {
        let from = trace.header.start_ns + after_ns;
        let run_ns = trace.run_ns().saturating_sub(after_ns);
        let processes = processes(trace);
        let process = |pid: u32| processes.get(&pid).cloned().unwrap_or_default();
        let (mut kinds, mut mappings) = (Groups::default(), Groups::default());
        let (mut threads, mut ranks) = (Groups::default(), Groups::default());
        let ranges = ranges(trace);
        for fault in trace.faults.iter().filter(|one| one.start_ns >= from) {
            let Process { comm, rank } = process(fault.pid);
            kinds.add(kind_of(fault), fault, true);
            if let Some(range) = ranges.get(&fault.mapping) {
                mappings.add(range.named(&comm), fault, false);
            }
            threads.add(
                What::Thread {
                    pid: fault.pid,
                    tid: fault.tid,
                    process: comm.clone(),
                },
                fault,
                false,
            );
            ranks.add(
                What::Rank {
                    rank,
                    pid: fault.pid,
                    process: comm,
                },
                fault,
                false,
            );
        }
        let summary = trace.summary.clone().unwrap_or_default();
        let mut kinds = kinds.rows(run_ns);
        if after_ns == 0 {
            take_totals(&mut kinds, trace, run_ns);
        }
        Self {
            schema: SCHEMA,
            header: trace.header.clone(),
            complete: trace.summary.is_some(),
            run_ns,
            after_ns,
            kinds,
            mappings: mappings.rows(run_ns),
            threads: threads.rows(run_ns),
            ranks: ranks.rows(run_ns),
            stolen: summary.stolen.clone(),
            faults: agreement(trace),
            dropped: summary.dropped,
            untracked: summary.untracked,
            retries: summary.retries,
            running: summary.running,
            exit_status: summary.exit_status,
            overhead: summary.overhead,
        }
    }

    /// The rows of one table.
    pub fn rows(&self, by: By) -> &[Row] {
        match by {
            By::Kind => &self.kinds,
            By::Mapping => &self.mappings,
            By::Thread => &self.threads,
            By::Rank => &self.ranks,
        }
    }
}

/// All mappings of one process with the same name.
struct Range<'a> {
    pid: u32,
    class: &'a str,
    name: &'a str,
    start: u64,
    end: u64,
}

impl Range<'_> {
    fn named(&self, process: &str) -> What {
        What::Mapping {
            pid: self.pid,
            process: process.into(),
            class: self.class.into(),
            mapping: self.name.into(),
            start: self.start,
            end: self.end,
        }
    }
}

/// The ranges, by the numbers of their mappings.
fn ranges(trace: &Trace) -> HashMap<u32, Range<'_>> {
    let key = |mapping: &Mapping| (mapping.pid, mapping.class.clone(), mapping.name.clone());
    let mut spans: BTreeMap<(u32, String, String), (u64, u64)> = BTreeMap::new();
    for mapping in trace.mappings.values() {
        let span = spans
            .entry(key(mapping))
            .or_insert((mapping.start, mapping.end));
        *span = (span.0.min(mapping.start), span.1.max(mapping.end));
    }
    trace
        .mappings
        .values()
        .map(|mapping| {
            let (start, end) = spans[&key(mapping)];
            let range = Range {
                pid: mapping.pid,
                class: &mapping.class,
                name: &mapping.name,
                start,
                end,
            };
            (mapping.id, range)
        })
        .collect()
}

/// The totals of the programs include faults whose events were dropped.
fn take_totals(kinds: &mut Vec<Row>, trace: &Trace, run_ns: u64) {
    let totals = trace.summary.iter().flat_map(|summary| &summary.totals);
    let mut sums: BTreeMap<What, (u64, u64, u64)> = BTreeMap::new();
    for total in totals {
        let (Some(kind), Some(stall)) =
            (Kind::from_name(&total.kind), Stall::from_name(&total.stall))
        else {
            continue;
        };
        let what = What::Kind {
            call: total.origin == "call",
            kind: kind.name(),
            stall: stall.name(),
        };
        let sum = sums.entry(what).or_default();
        *sum = (
            sum.0.saturating_add(total.count),
            sum.1.saturating_add(total.sum_ns),
            sum.2.max(total.max_ns),
        );
    }
    for (what, (count, sum_ns, max_ns)) in sums {
        let at = kinds.iter().position(|row| row.what == what);
        let seen = at.map_or_else(Statistics::default, |at| kinds[at].figures);
        let calls = match &what {
            What::Kind { call: true, .. } => count,
            _ => 0,
        };
        let row = Row::new(what, calls, seen.with_totals(count, sum_ns, max_ns), run_ns);
        match at {
            Some(at) => kinds[at] = row,
            None => kinds.push(row),
        }
    }
    kinds.sort_by_key(|row| std::cmp::Reverse(row.figures.sum_ns));
}

/// Compares the recording with the kernel's counters.
fn agreement(trace: &Trace) -> Agreement {
    let counted = || trace.faults.iter().filter(|fault| fault.is_counted());
    let in_file = counted().count() as u64;
    let exceptions = counted().filter(|fault| fault.is_exception()).count() as u64;
    let seen = Agreement {
        in_file,
        exceptions,
        calls: in_file - exceptions,
        ..Agreement::default()
    };
    let Some(summary) = &trace.summary else {
        let major = counted().filter(|fault| fault.major).count() as u64;
        return Agreement {
            recorded: in_file,
            minor: in_file - major,
            major,
            ..seen
        };
    };
    let recorded = summary.recorded;
    let mut others = [summary.kernel, summary.getrusage].into_iter().flatten();
    Agreement {
        recorded: recorded.all(),
        minor: recorded.minor,
        major: recorded.major,
        kernel: summary.kernel,
        getrusage: summary.getrusage,
        agree: others.all(|counts| counts == recorded),
        ..seen
    }
}

#[cfg(test)]
pub mod tests {
    use hpmmap_bpf::Origin;

    use super::*;
    use crate::format::tests::fault;
    use crate::format::{Summary, Task, Total};
    use crate::report::text::{notes, title};
    use crate::report::{agreement_lines, csv, text};

    fn task(event: Happened, pid: u32, tid: u32, comm: &str, rank: Option<u32>) -> Task {
        Task {
            event,
            pid,
            tid,
            parent: None,
            time_ns: 1,
            comm: comm.into(),
            rank,
        }
    }

    /// Two processes, one of them rank 3; three faults and a filled page within a second.
    pub fn trace() -> Trace {
        let start_ns = 1_000_000_000;
        let mapping = |id: u32, pid: u32, name: &str, start: u64| Mapping {
            id,
            pid,
            class: "file".into(),
            name: name.into(),
            start,
            end: start + 0x1000,
        };
        let merged = Fault {
            stall: Stall::Merge,
            ..fault(start_ns + 900_000_000, 2_000_000, Kind::Small)
        };
        let call = Fault {
            origin: Origin::Call,
            ..fault(start_ns + 100, 50, Kind::Large)
        };
        let other = Fault {
            pid: 20,
            tid: 20,
            mapping: 3,
            ..fault(start_ns + 300, 4000, Kind::Cow)
        };
        Trace {
            header: Header {
                command: vec!["mpirun".into(), "prog".into()],
                kernel: "6.12".into(),
                cpus: 2,
                tsc_hz: 2_000_000_000,
                start_ns,
                ..Header::default()
            },
            faults: vec![
                call,
                fault(start_ns + 200, 1000, Kind::Small),
                other,
                merged,
            ],
            mappings: BTreeMap::from([
                (1, mapping(1, 10, "libc.so.6", 0x1000)),
                (2, mapping(2, 10, "libc.so.6", 0x8000)),
                (3, mapping(3, 20, "data, \"x\"", 0x1000)),
            ]),
            tasks: vec![
                task(Happened::Fork, 10, 10, "sh", None),
                task(Happened::Exec, 10, 10, "prog", Some(3)),
                task(Happened::Fork, 10, 11, "worker", None),
                task(Happened::Fork, 20, 20, "sh", None),
            ],
            times: Vec::new(),
            summary: Some(Summary {
                end_ns: start_ns + 1_000_000_000,
                recorded: Counts { minor: 0, major: 4 },
                kernel: Some(Counts { minor: 0, major: 4 }),
                getrusage: Some(Counts { minor: 0, major: 4 }),
                ..Summary::default()
            }),
        }
    }

    #[test]
    fn rows_are_by_what_faults_have_in_common() {
        let report = Report::new(&trace(), 0);
        let names = |by: By| -> Vec<String> {
            report.rows(by).iter().map(|row| title(&row.what)).collect()
        };
        assert_eq!(names(By::Kind), ["4k+merge", "cow", "4k", "call 2m"]);
        assert_eq!(
            names(By::Mapping),
            ["libc.so.6 of prog 10", "data, \"x\" of sh 20"]
        );
        assert_eq!(names(By::Thread), ["prog 10/11", "sh 20"]);
        assert_eq!(names(By::Rank), ["rank 3: prog 10", "sh 20"]);
        let first = &report.mappings[0];
        assert_eq!((first.figures.count, first.calls), (2, 1));
        assert!((first.run_share - 2_001_000.0 / 1e9).abs() < 1e-9);
        let What::Mapping { start, end, .. } = first.what else {
            panic!();
        };
        assert_eq!((start, end), (0x1000, 0x9000));
    }

    #[test]
    fn only_what_came_after_is_counted() {
        let report = Report::new(&trace(), 500_000_000);
        assert_eq!(report.kinds.len(), 1);
        assert_eq!(report.run_ns, 500_000_000);
        assert!((report.kinds[0].run_share - 0.004).abs() < 1e-9);
        assert_eq!(report.faults.in_file, 4);
        let none = Report::new(&trace(), 950_000_000);
        assert!(text(&none, By::Kind, Unit::Us).contains("No faults."));
    }

    #[test]
    fn totals_hold_what_was_dropped() {
        let mut trace = trace();
        let summary = trace.summary.as_mut().unwrap();
        summary.dropped = 9;
        let total = |kind: &str, stall: &str, origin: &str, count, sum_ns, max_ns| Total {
            kind: kind.into(),
            stall: stall.into(),
            origin: origin.into(),
            count,
            sum_ns,
            max_ns,
        };
        summary.totals = vec![
            total("4k", "", "user", 5, 5000, 3000),
            total("4k", "", "kernel", 1, 1000, 1000),
            total("swap", "", "user", 1, 7000, 7000),
        ];
        let report = Report::new(&trace, 0);
        let row = |name: &str| {
            let row = report.kinds.iter().find(|row| title(&row.what) == name);
            row.unwrap().figures
        };
        let small = row("4k");
        assert_eq!((small.count, small.sum_ns, small.max_ns), (6, 6000, 3000));
        assert_eq!((small.mean_ns, small.p50_ns), (1000.0, 1000));
        assert_eq!((row("swap").count, row("swap").p99_ns), (1, 0));
        assert!(notes(&report).contains("9 events had no room"));
        // They do not hold for a part of the run.
        let late = Report::new(&trace, 100);
        assert!(late.kinds.iter().all(|row| title(&row.what) != "swap"));
    }

    #[test]
    fn counts_that_differ_are_told() {
        let mut trace = trace();
        let lines = |trace: &Trace| agreement_lines(&Report::new(trace, 0)).join(" ");
        assert!(lines(&trace).ends_with("by getrusage 4: they agree."));
        trace.summary.as_mut().unwrap().getrusage = Some(Counts { minor: 0, major: 3 });
        let report = Report::new(&trace, 0);
        assert!(!report.faults.agree);
        assert!(lines(&trace).contains("they DIFFER. getrusage lacks processes"));
        trace.summary.as_mut().unwrap().kernel = Some(Counts { minor: 1, major: 3 });
        assert!(lines(&trace).ends_with("by getrusage 3 (0 minor, 3 major): they DIFFER."));
    }

    #[test]
    fn a_recorder_that_was_killed_is_told() {
        let mut trace = trace();
        trace.summary = None;
        let report = Report::new(&trace, 0);
        assert!(!report.complete && !report.faults.agree);
        assert_eq!((report.faults.recorded, report.faults.major), (4, 4));
        assert!(notes(&report).contains("The recorder was killed"));
    }

    #[test]
    fn the_text_has_costs_in_the_unit_asked_for() {
        let report = Report::new(&trace(), 0);
        let us = text(&report, By::Kind, Unit::Us);
        assert!(us.contains("4k+merge") && us.contains(" 2000 "), "{us}");
        let cycles = text(&report, By::Kind, Unit::Cycles);
        assert!(cycles.contains(" 4.0M "), "{cycles}");
        let longest = us.lines().map(str::len).max().unwrap();
        assert!(longest <= 80, "{longest}");
    }

    #[test]
    fn the_csv_has_a_line_for_each_fault_and_quotes_names() {
        let mut out = Vec::new();
        csv(&trace(), 0, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        let columns = lines[0].split(',').count();
        assert_eq!(lines[1].split(',').count(), columns);
        assert!(lines[3].contains("\"data, \"\"x\"\"\""), "{}", lines[3]);
        assert!(lines[4].starts_with("900000000,2000000,4000000,"));
        assert!(lines[2].contains(",prog,3,4k,,user,1,0,1,6,2,0x1000,file,libc.so.6,"));
    }

    #[test]
    fn the_json_has_what_the_manual_says() {
        let json = serde_json::to_value(Report::new(&trace(), 0)).unwrap();
        for member in [
            "schema",
            "header",
            "complete",
            "run_ns",
            "after_ns",
            "kinds",
            "mappings",
            "threads",
            "ranks",
            "stolen",
            "faults",
            "dropped",
            "untracked",
            "retries",
            "running",
            "exit_status",
            "overhead",
        ] {
            assert!(json.get(member).is_some(), "{member}");
        }
        assert_eq!(json["kinds"][0]["stall"], "merge");
        assert_eq!(json["kinds"][0]["count"], 1);
        assert_eq!(json["ranks"][0]["rank"], 3);
        assert_eq!(json["faults"]["agree"], true);
    }
}
