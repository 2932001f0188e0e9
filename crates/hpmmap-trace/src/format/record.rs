//! The items of a recorded file, in the order of the file.

use hpmmap_bpf::{Kind, Origin, Stall};
use serde::{Deserialize, Serialize};

/// The first text of a file. The version of the format and the header follow it.
pub const NAME: &str = "hpmmap trace";
/// Of the format. Every change of a type below makes another one.
pub const VERSION: u32 = 2;

/// An item after the header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// A page fault.
    Fault(Fault),
    /// A mapping that is new or has grown.
    Mapping(Mapping),
    /// Something happened to a task.
    Task(Task),
    /// Stolen time.
    Time(Time),
    /// The end.
    Summary(Summary),
}

/// Facts that are known before the first fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// When it began: seconds of the calendar.
    pub started: u64,
    /// The same by CLOCK_MONOTONIC, by which all other times are given.
    pub start_ns: u64,
    /// Probes that the kernel does not offer. The file says nothing about them.
    pub missing: Vec<String>,
}

impl Header {
    /// The recorded process or command, in one line.
    pub fn what(&self) -> String {
        let text = match self.pid {
            Some(pid) => format!("process {pid}"),
            None => self.command.join(" "),
        };
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// A page fault, or a page filled by a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// A change in the life of a task.
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
    pub parent: Option<u32>,
    /// When.
    pub time_ns: u64,
    /// Its short name.
    pub comm: String,
    /// Rank in an MPI job; with `exec` and `found`.
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

/// The cost of recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
pub struct Summary {
    /// When it ended.
    pub end_ns: u64,
    /// Of the command, as a shell has it; `None` if it was not waited for.
    pub exit_status: Option<i32>,
    /// Exact totals.
    pub totals: Vec<Total>,
    /// The same of stolen time.
    pub stolen: Vec<Stolen>,
    /// The faults of `totals` by the kernel's rules.
    pub recorded: Counts,
    /// Growth of the kernel's counters of the threads.
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
    /// The cost of recording.
    pub overhead: Overhead,
}

impl Summary {
    /// All numbers that others are added to.
    pub fn counts(&self) -> Vec<u64> {
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
