//! The options of `hpmmap trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};
use hpmmap_base::size::Size;

use crate::report::{By, Unit};

/// See the page faults of a program and everything it starts, and what takes CPUs away from it
#[derive(Debug, Parser)]
#[command(
    name = "trace",
    bin_name = "hpmmap trace",
    display_name = "hpmmap-trace",
    arg_required_else_help = true
)]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub verb: TraceVerb,
}

/// The verbs of `hpmmap trace`.
#[derive(Debug, Subcommand)]
pub enum TraceVerb {
    /// Record every page fault of a command or process
    ///
    /// Records the command, its threads and all descendants, registered or not: for each fault the
    /// time, CPU, process and thread, what the fault did, its address, what it waited for, and its
    /// cost from the exception to the end of the handler. Also records the time of direct reclaim,
    /// direct compaction, migration and merges of small pages into large ones. Pages that calls
    /// fill without an exception (mmap with MAP_POPULATE, and some of what HPMMAP does in mmap)
    /// are recorded as calls.
    ///
    /// Recording ends with the command and has its exit status; 125: hpmmap failed; 126: the
    /// command cannot be executed; 127: it was not found. With --pid it ends with that process or
    /// with SIGINT or SIGTERM. If the recorder is killed, the file can be read up to that moment.
    ///
    /// Needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE, and a kernel with BTF, which all of
    /// Debian's have.
    Record(TraceRecordArgs),
    /// Show the faults of a recorded file as tables
    ///
    /// Kinds: '4k' a page of anonymous memory; '2m' memory mapped by one entry of 2 MB; 'hugetlb'
    /// a page of hugetlbfs; 'cow' a copy of a page; 'write' a page made writable; 'swap' a page
    /// from swap; 'file' a page of a file or of shared memory; 'numa' a page that NUMA balancing
    /// asked about; 'migration' a page that was being moved; 'spurious' a fault with nothing left
    /// to do; 'error' a signal, which the kernel does not count. '+merge', '+compaction',
    /// '+reclaim': the fault waited for this. 'call': a page that a call filled without an
    /// exception.
    ///
    /// Columns: MEAN, STDDEV, P50, P99, MAX cost of a fault; TOTAL cost of all; RUN the total as a
    /// part of the run time (with several threads it can be more than 100 %); CALLS pages filled
    /// by calls.
    #[command(
        after_help = "The JSON has the members schema, header, complete, run_ns, after_ns, kinds[], \
        mappings[], threads[], ranks[], stolen[], faults (counts, and whether they agree with the \
        kernel's), dropped, untracked, retries, running, exit_status, overhead. The CSV has all \
        faults, one a line, and names its columns in the first. docs/trace.md of the source \
        describes the recorded file."
    )]
    Report(TraceReportArgs),
    /// Draw the faults of a recorded file: cost over time
    ///
    /// Draws a point for each fault, in cycles of the time stamp counter on a logarithmic scale,
    /// coloured by kind; a panel for each rank of an MPI job, or each process. Triangles are
    /// merges of small pages into large ones. Pages filled by calls are not shown.
    Plot(TracePlotArgs),
    /// Count what takes CPUs away from a command: interrupts by kind, and other tasks
    ///
    /// For each CPU that tasks of the command ran on: interrupts by the names of /proc/interrupts,
    /// and those that came while the command was running; switches to tasks of others, by name, and
    /// whether they preempted the command; moves of its tasks to another CPU; and, on a CPU of
    /// nohz_full=, why ticks went on. Every event is counted, none is sampled. The counts are
    /// printed to standard error when the command has ended.
    ///
    /// The last line is a verdict. 'quiet': at most 2 interrupts a second, and no other task.
    /// 'not known': no more was seen, but something could not be counted; it says what.
    ///
    /// The exit status is the command's; 125: hpmmap failed; 126: the command cannot be executed;
    /// 127: it was not found.
    ///
    /// Needs root, or CAP_BPF and CAP_PERFMON, and a kernel with BTF, which all of Debian's have.
    /// Without them only /proc/interrupts is read, and the verdict is at best 'not known'.
    Noise(TraceNoiseArgs),
}

/// The process or command to record, and the file.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["pid", "command"]))]
pub struct TraceRecordArgs {
    /// The file to write; only its owner can read it
    #[arg(short, long, value_name = "FILE", default_value = "hpmmap.trace")]
    pub output: PathBuf,
    /// Record this process and its descendants from now on
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Size of the buffer for events that have not been written yet: a power of two
    ///
    /// An event has 112 bytes. Events without room are counted and left out of the file; the
    /// totals by kind include them.
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    pub buffer: Size,
    /// Print nothing at the end
    #[arg(short, long)]
    pub quiet: bool,
    /// The command and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

/// The CPUs and the command.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("job").required(true).args(["beside", "command"]))]
pub struct TraceNoiseArgs {
    /// Count on these CPUs, such as 0,2-3, from the start of the command to its end, whether it
    /// runs there or not
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<String>,
    /// Also write the counts to FILE (JSON, the member 'noise' of docs/report.md)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Count for the children of the parent process, as it says on standard input
    #[arg(long, hide = true, conflicts_with = "output")]
    pub beside: bool,
    /// The command and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

/// The file and the form of the report.
#[derive(Debug, Args)]
pub struct TraceReportArgs {
    /// The recorded file
    pub file: PathBuf,
    /// Rows of the table
    #[arg(long, value_enum, value_name = "WHAT", default_value = "kind")]
    pub by: By,
    /// Unit of the costs
    #[arg(long, value_enum, value_name = "UNIT", default_value = "us")]
    pub unit: Unit,
    /// Leave out faults before this time: seconds after the start or, as @SECONDS, of
    /// CLOCK_MONOTONIC
    #[arg(long, value_name = "SECONDS")]
    pub after: Option<String>,
    /// Report as JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print all faults as CSV
    #[arg(long, conflicts_with_all = ["by", "unit"])]
    pub csv: bool,
}

/// The file and the picture.
#[derive(Debug, Args)]
pub struct TracePlotArgs {
    /// The recorded file
    pub file: PathBuf,
    /// The picture to write, .png or .svg; may be given several times. Default: beside the
    /// recorded file
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Leave out faults before this time: seconds after the start or, as @SECONDS, of
    /// CLOCK_MONOTONIC
    #[arg(long, value_name = "SECONDS")]
    pub after: Option<String>,
}
