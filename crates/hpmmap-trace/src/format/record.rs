//! The items of a recorded file, in the order of the file.

use hpmmap_bpf::{Kind, Origin, Stall};
use serde::{Deserialize, Serialize};

/// The first text of a file. The version of the format and the header follow it.
pub const NAME: &str = "hpmmap trace";
/// Version of the format. Every change of a type below needs another one.
pub const VERSION: u32 = 2;

/// An item after the header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// A page fault.
    Fault(Fault),
    /// A mapping that is new or has grown.
    Mapping(Mapping),
    /// An event of a task.
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
    /// The command; empty for a process that existed already.
    pub command: Vec<String>,
    /// That process.
    pub pid: Option<u32>,
    /// The start: seconds since 1970.
    pub started: u64,
    /// The start by CLOCK_MONOTONIC, the clock of all other times.
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
    /// Start.
    pub start_ns: u64,
    /// Cost.
    pub cost_ns: u64,
    /// Address.
    pub address: u64,
    /// Part of the cost: until the handler was entered.
    pub wait_ns: u64,
    /// Part of the cost: direct reclaim.
    pub reclaim_ns: u64,
    /// Part of the cost: direct compaction.
    pub compaction_ns: u64,
    /// Part of the cost: moving pages.
    pub migration_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Number of its mapping.
    pub mapping: u32,
    /// CPU.
    pub cpu: u16,
    /// Number of times it was begun anew.
    pub retries: u16,
    /// What it did.
    pub kind: Kind,
    /// What it waited for.
    pub stall: Stall,
    /// Its origin.
    pub origin: Origin,
    /// It wrote.
    pub write: bool,
    /// It fetched an instruction.
    pub exec: bool,
    /// The kernel counts it as a major one.
    pub major: bool,
    /// Level of the entry that maps the page after it: 1 4 KB, 2 2 MB, 3 1 GB.
    pub level: u8,
}

impl Fault {
    /// Does getrusage count it?
    pub fn is_counted(&self) -> bool {
        self.kind != Kind::Error
    }

    /// Did it interrupt the program, as every real page fault does?
    pub fn is_exception(&self) -> bool {
        self.origin != Origin::Call
    }
}

/// A range of addresses with one purpose. A later one with the same number replaces an earlier
/// one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Its number.
    pub id: u32,
    /// Process.
    pub pid: u32,
    /// `anon`, `heap`, `stack`, `file` or `special`.
    pub class: String,
    /// Name of the file; without a file the class.
    pub name: String,
    /// First address.
    pub start: u64,
    /// The end: the address after the last.
    pub end: u64,
}

/// An event in the life of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Happened {
    /// It existed before.
    Found,
    /// It began.
    Fork,
    /// It executes another program.
    Exec,
    /// It ended.
    Exit,
}

/// An event of a process or thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The event.
    pub event: Happened,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The process that made it; with `fork`.
    pub parent: Option<u32>,
    /// The time.
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
    /// The process that lost it.
    pub pid: u32,
    /// The thread that lost it; for a merge, the thread that merged.
    pub tid: u32,
    /// Start.
    pub start_ns: u64,
    /// Length.
    pub ns: u64,
}

/// All faults of a kind, including those whose events were dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// What they did.
    pub kind: String,
    /// What they waited for.
    pub stall: String,
    /// Their origin.
    pub origin: String,
    /// Number of faults.
    pub count: u64,
    /// Their total cost.
    pub sum_ns: u64,
    /// The highest cost.
    pub max_ns: u64,
}

/// All time stolen by a cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stolen {
    /// The cause.
    pub cause: String,
    /// Number of times.
    pub count: u64,
    /// Total time.
    pub sum_ns: u64,
    /// The longest time.
    pub max_ns: u64,
}

/// Counts of minor and major faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Faults without input or output.
    pub minor: u64,
    /// Faults with input or output.
    pub major: u64,
}

impl Counts {
    /// Their sum.
    pub fn all(self) -> u64 {
        self.minor + self.major
    }
}

/// The cost of recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overhead {
    /// Number of runs of the programs in the kernel.
    pub runs: u64,
    /// Their time, in tasks that were traced and in others.
    pub run_ns: u64,
    /// Runs that were skipped.
    pub missed: u64,
    /// CPU time of the recorder itself.
    pub recorder_ns: u64,
}

/// Facts that are known at the end. A file without them is of a recorder that was killed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The end.
    pub end_ns: u64,
    /// Exit status of the command, as a shell returns it; `None` if it was not waited for.
    pub exit_status: Option<i32>,
    /// Exact totals.
    pub totals: Vec<Total>,
    /// Exact totals of stolen time.
    pub stolen: Vec<Stolen>,
    /// The faults of `totals`, counted by the kernel's rules.
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
    /// Attempts that the kernel began anew.
    pub retries: u64,
    /// Processes that were still running.
    pub running: u32,
    /// The cost of recording.
    pub overhead: Overhead,
}

impl Summary {
    /// All numbers that are summed up.
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
