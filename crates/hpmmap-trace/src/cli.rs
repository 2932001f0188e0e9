//! The options of `hpmmap trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};
use hpmmap_base::size::Size;

use crate::report::{By, Unit};

/// See the page faults of a program and everything it starts
#[derive(Debug, Parser)]
#[command(
    name = "trace",
    bin_name = "hpmmap trace",
    display_name = "hpmmap-trace",
    arg_required_else_help = true
)]
pub struct Cli {
    /// What is done.
    #[command(subcommand)]
    pub verb: TraceVerb,
}

/// The verbs of `hpmmap trace`.
#[derive(Debug, Subcommand)]
pub enum TraceVerb {
    /// Record every page fault of a command or process
    ///
    /// Of the command, its threads, its children and theirs, whether registered
    /// or not: when, on which CPU, in which process and thread, what the fault
    /// did, where, what it waited for, and how long it took, from the exception
    /// to the end of the handler. Also the time that direct reclaim, direct
    /// compaction, migration and merges of small pages into large ones took.
    /// Pages that calls fill without an exception (mmap with MAP_POPULATE, and
    /// some of what HPMMAP does in mmap) are recorded as calls.
    ///
    /// Ends with the command, and has its exit status; 125: hpmmap failed; 126:
    /// the command cannot be executed; 127: it was not found. With --pid it ends
    /// with that process or with SIGINT or SIGTERM. A file whose recorder was
    /// killed can be read up to there.
    ///
    /// Needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE, and a kernel with
    /// BTF, as all of Debian's are.
    Record(TraceRecordArgs),
    /// Show what a recorded file says
    ///
    /// Kinds: '4k' a page of anonymous memory; '2m' memory mapped by one entry of
    /// 2 MB; 'hugetlb' a page of hugetlbfs; 'cow' a copy of a page; 'write' a page
    /// made writable; 'swap' a page from swap; 'file' a page of a file or of shared
    /// memory; 'numa' a page that NUMA balancing asked about; 'migration' a page
    /// that was being moved; 'spurious' nothing left to do; 'error' a signal, not
    /// counted by the kernel. '+merge', '+compaction',
    /// '+reclaim': what it waited for. 'call': no exception, filled by a call.
    ///
    /// Columns: MEAN, STDDEV, P50, P99, MAX cost of a fault, TOTAL of all, RUN the
    /// same as a part of the time of the run (of several threads it can be more than
    /// 100 %), CALLS pages filled by calls.
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
    /// A point for each fault, in cycles of the time stamp counter on a
    /// logarithmic scale, coloured by kind; a panel for each rank of an MPI job, or
    /// each process. Triangles are merges of small pages into large ones. Pages
    /// filled by calls are not shown.
    Plot(TracePlotArgs),
}

/// What is recorded, and where to.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["pid", "command"]))]
pub struct TraceRecordArgs {
    /// The file to write; only its owner can read it
    #[arg(short, long, value_name = "FILE", default_value = "hpmmap.trace")]
    pub output: PathBuf,
    /// Record this process and its descendants from now on
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Memory for events that have not been written yet: a power of two
    ///
    /// An event has 112 bytes. Events that find no room are counted and left
    /// out; the totals by kind hold them.
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    pub buffer: Size,
    /// Say nothing at the end
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

/// What is reported.
#[derive(Debug, Args)]
pub struct TraceReportArgs {
    /// The recorded file
    pub file: PathBuf,
    /// What the table is about
    #[arg(long, value_enum, value_name = "WHAT", default_value = "kind")]
    pub by: By,
    /// Unit of the costs
    #[arg(long, value_enum, value_name = "UNIT", default_value = "us")]
    pub unit: Unit,
    /// Leave out faults before so many seconds after the start, or, as
    /// @SECONDS, before a time of CLOCK_MONOTONIC
    #[arg(long, value_name = "SECONDS")]
    pub after: Option<String>,
    /// Report as JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print all faults as CSV
    #[arg(long, conflicts_with_all = ["by", "unit"])]
    pub csv: bool,
}

/// What is drawn.
#[derive(Debug, Args)]
pub struct TracePlotArgs {
    /// The recorded file
    pub file: PathBuf,
    /// The picture to write, .png or .svg; may be given several times. By
    /// default beside the recorded file
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Leave out faults before so many seconds after the start, or, as
    /// @SECONDS, before a time of CLOCK_MONOTONIC
    #[arg(long, value_name = "SECONDS")]
    pub after: Option<String>,
}
