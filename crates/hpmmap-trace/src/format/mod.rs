//! The recorded file: `docs/trace.md` describes it. Later versions read all
//! earlier ones.

mod read;
mod wire;
mod write;

use hpmmap_bpf::{Kind, Origin, Stall};
use serde::{Deserialize, Serialize};

pub use read::Trace;
pub use write::Writer;

/// What is known before the first fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Version of the command that recorded.
    pub hpmmap: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the machine.
    pub machine: String,
    /// Its CPUs.
    pub cpus: u32,
    /// Rate of its time stamp counter.
    pub tsc_hz: u64,
    /// The command; empty with a process that was there already.
    pub command: Vec<String>,
    /// That process.
    pub pid: Option<u32>,
    /// `bpf` or `tracefs`.
    pub method: String,
    /// Why it is not `bpf`, if that was not asked for.
    pub method_reason: Option<String>,
    /// When it began: seconds of the calendar.
    pub started: u64,
    /// The same by CLOCK_MONOTONIC, by which all other times are given.
    pub start_ns: u64,
    /// What the kernel lacks, so that nothing is known about it.
    pub missing: Vec<String>,
}

impl Header {
    /// What was recorded, in one line.
    pub fn what(&self) -> String {
        let text = match self.pid {
            Some(pid) => format!("process {pid}"),
            None => self.command.join(" "),
        };
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// A page fault, or a page filled by a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// When it began.
    pub start_ns: u64,
    /// How long it took.
    pub cost_ns: u64,
    /// Where.
    pub address: u64,
    /// Of the cost, until the handler was entered.
    pub wait_ns: u64,
    /// Of the cost, for direct reclaim.
    pub reclaim_ns: u64,
    /// Of the cost, for direct compaction.
    pub compaction_ns: u64,
    /// Of the cost, for moving pages.
    pub migration_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Number of its mapping.
    pub mapping: u32,
    /// CPU.
    pub cpu: u16,
    /// How often it was begun anew.
    pub retries: u16,
    /// What it did.
    pub kind: Kind,
    /// What it waited for.
    pub stall: Stall,
    /// Who took it.
    pub origin: Origin,
    /// It wrote.
    pub write: bool,
    /// It fetched an instruction.
    pub exec: bool,
    /// The kernel counts it as a major one.
    pub major: bool,
    /// Of the entry that maps the page after it: 1 4 KB, 2 2 MB, 3 1 GB.
    pub level: u8,
}

impl Fault {
    /// Whether getrusage counts it.
    pub fn is_counted(&self) -> bool {
        self.kind != Kind::Error
    }

    /// Whether the program was interrupted, as by every real page fault.
    pub fn is_exception(&self) -> bool {
        self.origin != Origin::Call
    }
}

/// A range of addresses with one purpose. A later one of the same number takes
/// the place of an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Its number.
    pub id: u32,
    /// Process.
    pub pid: u32,
    /// `anon`, `heap`, `stack`, `file` or `special`.
    pub class: String,
    /// Of the file; otherwise as the class.
    pub name: String,
    /// First address.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
}

/// What happened to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Happened {
    /// It was there before.
    Found,
    /// It began.
    Fork,
    /// It executes another program.
    Exec,
    /// It ended.
    Exit,
}

/// Something happened to a process or thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// What.
    pub event: Happened,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Who made it; with `fork`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// When.
    pub time_ns: u64,
    /// Its short name.
    pub comm: String,
    /// Rank in an MPI job; with `exec` and `found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

/// Time that was stolen, or a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// `reclaim`, `compaction`, `migration` or `merge`.
    pub cause: String,
    /// From which process.
    pub pid: u32,
    /// From which thread; for a merge, the one that merged.
    pub tid: u32,
    /// From when.
    pub start_ns: u64,
    /// How long.
    pub ns: u64,
}

/// All faults of a kind, including those whose events were dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// What they did.
    pub kind: String,
    /// What they waited for.
    pub stall: String,
    /// Who took them.
    pub origin: String,
    /// How many.
    pub count: u64,
    /// How long, all together.
    pub sum_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// All time stolen by a cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stolen {
    /// By what.
    pub cause: String,
    /// How often.
    pub count: u64,
    /// How long, all together.
    pub sum_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Counts of minor and major faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Without input or output.
    pub minor: u64,
    /// With.
    pub major: u64,
}

impl Counts {
    /// Both.
    pub fn all(self) -> u64 {
        self.minor + self.major
    }
}

/// What recording cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overhead {
    /// How often the programs in the kernel ran.
    pub runs: u64,
    /// How long, in the tasks that were traced and in others.
    pub run_ns: u64,
    /// How often one did not run although it should have.
    pub missed: u64,
    /// CPU time of the recorder itself.
    pub recorder_ns: u64,
}

/// What is known at the end. A file without one is of a recorder that was
/// killed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// When it ended.
    pub end_ns: u64,
    /// Of the command, as a shell has it; `None` if it was not waited for.
    pub exit_status: Option<i32>,
    /// Exact totals; none from tracefs.
    pub totals: Vec<Total>,
    /// The same of stolen time.
    pub stolen: Vec<Stolen>,
    /// The faults of `totals` by the kernel's rules; those in the file with
    /// tracefs.
    pub recorded: Counts,
    /// What the kernel's counters of the threads grew by.
    pub kernel: Option<Counts>,
    /// getrusage of the command and those of its descendants that were
    /// waited for.
    pub getrusage: Option<Counts>,
    /// Events that are missing in the file.
    pub dropped: u64,
    /// Processes and threads that could not be traced.
    pub untracked: u64,
    /// Attempts after which the kernel began anew.
    pub retries: u64,
    /// Processes that were still running.
    pub running: u32,
    /// What recording cost.
    pub overhead: Overhead,
}

impl Summary {
    /// All numbers that others are added to.
    fn counts(&self) -> Vec<u64> {
        let both = |counts: &Counts| [counts.minor, counts.major];
        let given = [Some(self.recorded), self.kernel, self.getrusage];
        let mut all: Vec<u64> = given.iter().flatten().flat_map(both).collect();
        all.extend(self.totals.iter().map(|one| one.count));
        all.extend(self.stolen.iter().map(|one| one.count));
        all.extend([self.dropped, self.untracked, self.retries]);
        all.extend([self.overhead.runs, self.overhead.missed]);
        all
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    /// A fault of process 10 that took this long.
    pub fn fault(start_ns: u64, cost_ns: u64, kind: Kind) -> Fault {
        Fault {
            start_ns,
            cost_ns,
            address: 0x1000,
            wait_ns: 1,
            reclaim_ns: 2,
            compaction_ns: 3,
            migration_ns: 4,
            pid: 10,
            tid: 11,
            mapping: 1,
            cpu: 5,
            retries: 6,
            kind,
            stall: Stall::None,
            origin: Origin::User,
            write: true,
            exec: false,
            major: true,
            level: 2,
        }
    }

    fn header() -> Header {
        Header {
            kernel: "6.12".into(),
            command: vec!["prog".into()],
            method: "bpf".into(),
            start_ns: 5,
            ..Header::default()
        }
    }

    pub fn written(path: &Path) -> Trace {
        let mut writer = Writer::create(path, &header()).unwrap();
        let mapping = Mapping {
            id: 1,
            pid: 10,
            class: "heap".into(),
            name: "heap".into(),
            start: 0x1000,
            end: 0x2000,
        };
        writer.mapping(&mapping).unwrap();
        let grown = Mapping {
            end: 0x3000,
            ..mapping
        };
        writer.mapping(&grown).unwrap();
        let fault = fault(10, 20, Kind::Large);
        writer.fault(&fault).unwrap();
        let task = Task {
            event: Happened::Exec,
            pid: 10,
            tid: 10,
            parent: None,
            time_ns: 9,
            comm: "prog".into(),
            rank: Some(3),
        };
        writer.task(&task).unwrap();
        let time = Time {
            cause: "reclaim".into(),
            pid: 10,
            tid: 11,
            start_ns: 12,
            ns: 2,
        };
        writer.time(&time).unwrap();
        let summary = Summary {
            end_ns: 100,
            recorded: Counts { minor: 1, major: 2 },
            ..Summary::default()
        };
        writer.summary(&summary).unwrap();
        Trace {
            header: header(),
            faults: vec![fault],
            mappings: BTreeMap::from([(1, grown)]),
            tasks: vec![task],
            times: vec![time],
            summary: Some(summary),
        }
    }

    #[test]
    fn what_was_recorded_is_one_line() {
        let mut header = header();
        header.command = vec!["sh".into(), "-c".into(), "\n a\n\tb".into()];
        assert_eq!(header.what(), "sh -c a b");
        header.pid = Some(7);
        assert_eq!(header.what(), "process 7");
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let trace = written(&path);
        assert_eq!(Trace::read(&path).unwrap(), trace);
        assert_eq!(trace.run_ns(), 95);
    }

    #[test]
    fn a_file_that_is_cut_off_is_read_up_to_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        written(&path);
        let whole = std::fs::read(&path).unwrap();
        let head = 16 + u32::from_le_bytes(whole[12..16].try_into().unwrap()) as usize;
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let trace = Trace::read(&path);
            if length < head {
                assert!(trace.is_err(), "{length}");
            } else {
                let trace = trace.unwrap();
                assert_eq!(trace.header, header());
                assert_eq!(trace.summary, None, "{length}");
            }
        }
    }

    #[test]
    fn a_later_version_is_refused_and_an_unknown_record_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let trace = written(&path);
        let mut bytes = std::fs::read(&path).unwrap();
        let unknown = [99, 0, 0, 0, 2, 0, 0, 0, 1, 2];
        bytes.extend(unknown);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(Trace::read(&path).unwrap(), trace);

        bytes[8] = 2;
        std::fs::write(&path, &bytes).unwrap();
        let message = Trace::read(&path).unwrap_err().to_string();
        assert!(message.contains("has version 2 of the format"), "{message}");
        bytes[8] = 0;
        std::fs::write(&path, &bytes).unwrap();
        assert!(Trace::read(&path).is_err());
    }

    #[test]
    fn another_file_is_none_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        std::fs::write(&path, "{\"json\": \"and so on\"}").unwrap();
        let message = Trace::read(&path).unwrap_err().to_string();
        assert!(message.contains("not a file of 'hpmmap trace record'"));
        std::fs::write(&path, "").unwrap();
        assert!(Trace::read(&path).is_err());
        assert!(Trace::read(&dir.path().join("none")).is_err());
    }

    #[test]
    fn broken_records_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        written(&path);
        let whole = std::fs::read(&path).unwrap();
        for record in [
            // A fault of three bytes, a summary that is no JSON, one without end.
            &[1, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3][..],
            &[5, 0, 0, 0, 1, 0, 0, 0, b'x'],
            &[1, 0, 0, 0, 255, 255, 255, 255],
        ] {
            std::fs::write(&path, [&whole[..], record].concat()).unwrap();
            let message = Trace::read(&path).unwrap_err().to_string();
            assert!(message.contains("a record is broken"), "{message}");
        }
    }
}
