//! Arguments as they are parsed. Each verb turns them into its own checked
//! type before it does anything.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use hpmmap_host::Root;

use crate::bench::colocation::plan::{Manager, Profile, Workload};
use crate::bench::noise::plan::{Mode, Variant};
use crate::bench::plan::{Allocator, Method, Pattern};
use crate::size::Size;

/// The version of the product; the file VERSION is the only place.
pub const VERSION: &str = include_str!("../../../VERSION").trim_ascii();

/// Status of `run` when hpmmap itself fails, as env(1) has it.
pub const RUN_FAILED: u8 = 125;

/// Give HPC jobs their own memory: pools of memory taken offline from Linux,
/// mapped eagerly with large pages.
#[derive(Debug, Parser)]
#[command(name = "hpmmap", version = VERSION, arg_required_else_help = true)]
#[command(after_help = "Exit status: 0 success, 1 failure, 2 wrong usage; \
    'run' passes on the status of the program.")]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Move memory between Linux and the pools
    #[command(subcommand)]
    Pool(PoolVerb),
    /// Run a program whose memory comes from the pools
    ///
    /// Registers itself as a new job and becomes the program: process number,
    /// signals and exit status are the program's own. With --report or
    /// --verbose it is a child of hpmmap. Exit status 125: hpmmap failed; 126: the program cannot be executed; 127: it was not found.
    Run(RunArgs),
    /// Show the pools and the jobs that use them
    ///
    /// Columns: PAGE is the page size asked for, HELD the pool memory of the
    /// process, 2M and 4K how much of it is mapped by entries of that size,
    /// LINUX memory of Linux that stands in for pool memory, FALLBACKS how
    /// often that was needed, FAULTS the page faults taken in user mode, PINS
    /// the blocks given up but still pinned by a device.
    Status(StatusArgs),
    /// Check whether this machine can run hpmmap and say what is missing
    ///
    /// Exit status 1 if anything is missing; warnings do not count.
    Doctor(DoctorArgs),
    /// Mark programs, which then register themselves when they are executed
    ///
    /// A marked program runs as under 'hpmmap run' with the options of the
    /// mark, if its user may open /dev/hpmmap, the module is loaded and there
    /// are pools; otherwise as ever. Set-user-ID programs are never registered,
    /// and in a job of 'hpmmap run' the options of the job count, to which the
    /// mark can only add the program image.
    ///
    /// The mark is four bytes in the ELF header (e_flags, which means nothing
    /// on x86-64): the file is otherwise the same, and 'hpmmap unmark' restores
    /// it. strip, objcopy and patchelf keep the mark. A new file takes the
    /// place of the old one in one step, with its owner, mode, ACL and extended
    /// attributes; processes that run the old one go on. Of a symbolic link the
    /// file it points to is marked. Files with several hard links are refused.
    ///
    /// Prints the bytes that change and the SHA-256 of the file before and
    /// after. A package manager will find that the file has changed.
    Mark(MarkArgs),
    /// Take the mark out of programs
    ///
    /// Restores the file as it was before 'hpmmap mark'.
    Unmark(UnmarkArgs),
    /// Measure what memory costs, beside what Linux has
    #[command(subcommand)]
    Bench(Box<BenchVerb>),
    /// See the page faults of a program and everything it starts
    #[command(subcommand)]
    Trace(TraceVerb),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man(ManArgs),
}

impl Verb {
    /// Exit status for failures of hpmmap itself, where it is fixed.
    pub fn own_failure(&self) -> Option<u8> {
        match self {
            Self::Run(_) | Self::Trace(TraceVerb::Record(_)) => Some(RUN_FAILED),
            _ => None,
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum PoolVerb {
    /// Take memory from Linux into the pool of a node
    ///
    /// Picks memory blocks of the node, sets them offline and hands them to
    /// the pool. Blocks that hold only movable memory come first, then those
    /// that fill a whole gigabyte, then high addresses. Blocks that Linux
    /// cannot give up are left alone and others are tried. If the whole size
    /// cannot be had, everything is given back.
    Add(PoolAddArgs),
    /// Give memory of the pools back to Linux
    ///
    /// Takes memory blocks that are entirely free out of the pool and sets
    /// them online again, in the zone they came from. Blocks in use are left
    /// alone and named.
    Remove(PoolRemoveArgs),
    /// Show the pools
    List(PoolListArgs),
    /// Limit how much of the pools one user may hold
    ///
    /// A user that holds more than a new limit keeps it but gets no more.
    /// Limits last until the module is unloaded.
    Limit(PoolLimitArgs),
}

#[derive(Debug, Subcommand)]
pub enum BenchVerb {
    /// What it costs to get memory, touch it and give it back
    ///
    /// Runs each method, pattern and size in a process of its own, several
    /// times, and prints tables, each result with its ratio to the best peer
    /// (the cheapest method of Linux at the same pattern and size).
    ///
    /// Methods: '4k', 'thp', 'hugetlb', each also filled before the first
    /// touch ('-populate'); 'hpmmap', a plain call under 'hpmmap run --strict';
    /// 'hpmmap-dirty', the same after every block of the pools has been used;
    /// 'hpmmap-reuse', with the flag for memory that need not be zero.
    ///
    /// Patterns: 'map': map, touch each 4 KB page, unmap; 'crowded': the same
    /// in a process that has 10,000 mappings; 'cycle': map, touch, unmap
    /// several times in one process; 'brk', 'mremap': a heap and an array that
    /// grow; 'stacks': stacks of 8 MB with a guard page, of which 64 KB are
    /// used; 'amr': blocks of varied sizes, as a mesh that is refined and
    /// coarsened has them; 'amr-malloc', 'malloc': these and small objects from
    /// an allocator; 'threads' (with --threads).
    ///
    /// Columns: MAP, UNMAP the calls that get memory and give it back, TOUCH
    /// the first touches less what a touch costs that finds its page, TOTAL the
    /// three, FAULTS page faults, WORST TOUCH, WORST CALL the costliest one,
    /// TABLES memory for page tables, MEMORY what was resident or held at the
    /// peak, EXIT the CPU time of the process after the pattern (zeroing that was
    /// put off until its end is there), OTHERS that of all other tasks until
    /// 100 ms after its end, RATIO+EXIT the ratio of TOTAL and EXIT together, SPREAD the
    /// largest distance of a TOTAL from the median of the repetitions, with '!'
    /// above 1 %.
    ///
    /// Costs are cycles of the time stamp counter. In a guest with one CPU
    /// under QEMU's '-icount shift=0' those are instructions; say so with
    /// --icount.
    #[command(
        after_help = "Exit status: 1 if HPMMAP took page faults, or if --compare finds \
        a difference of more than 1 %.\n\n\
        The JSON has the members benchmark, schema, unit, tsc_hz, versions, machine, \
        parameters, pool_add, left_out[] and results[]; each result has pattern, method, \
        allocator, size_bytes, threads, measured (kind, median, repetitions[]), spread, agree, \
        ratio_to_best_peer, ratio_with_exit. bench/README.md of the source describes them all."
    )]
    Alloc(BenchAllocArgs),
    /// What neighbours do to a job, under HPMMAP and what Linux has
    ///
    /// Runs MPI programs alone and beside compile jobs, with 4 KB pages,
    /// transparent huge pages, reserved huge pages (malloc's) and HPMMAP, in
    /// rounds: each round runs every combination once, in an order of its own.
    /// Prints tables and writes everything into one directory: the plan, a
    /// record and the output of each run, a report in HTML. It can be stopped
    /// at any time (Ctrl-C) and goes on with --resume.
    ///
    /// Neighbours: 'none', always measured; 'a': one parallel compile on any CPU,
    /// with as many jobs as there are CPUs without a rank; 'b': two of these;
    /// 'c': two, each on a half of the CPUs without a rank. They go on until the
    /// job ends. Ranks are bound to a CPU each.
    ///
    /// Workloads: 'lammps' and 'hpcc' (Debian's packages), and the programs of
    /// the source's bench/apps. Their results must be right, and the same in
    /// all runs.
    ///
    /// Columns: SECONDS mean of the runtimes, +- half of its 95 % confidence
    /// interval; SLOWDOWN by the neighbour, and its parts: KERNEL and BLOCKED,
    /// together MEMORY, the most that is due to memory management, WAIT for a CPU,
    /// USER mode; FAULTS page faults of a run, LATE after the start-up, POOL in
    /// memory of the pools, MAJOR with a disk; of the whole machine STALLS for
    /// memory, HUGE pages had, MERGED by khugepaged. docs/colocation.md of the
    /// source has the formulas.
    #[command(after_help = "Exit status: 1 if a run failed or gave a wrong result, \
        or the study was interrupted.")]
    Colocation(Box<BenchColocationArgs>),
    /// Run one rank of a study and record what it took
    #[command(hide = true)]
    ColocationRank(ColocationRankArgs),
    /// How much of the CPUs' time is taken away, and what random accesses cost
    ///
    /// Detours (the benchmark 'selfish'): on every CPU at once a loop reads the
    /// clock; a round that takes much longer than usual is a detour, its time
    /// was taken by something else. Loops: 'plain' does nothing else, and shows
    /// interrupts and other tasks, but no memory management; 'touch' also writes
    /// to pages that are there, one after the other, and shows what is done to
    /// resident memory (khugepaged, migration, reclaim); 'fresh' writes to pages
    /// it has just mapped, 2 MB at a time, and shows page faults; what mmap and
    /// munmap take is in no detour but apart, in CALLS.
    ///
    /// Random accesses: to arrays of growing size, on the first CPU. 'dependent':
    /// each number is the index of the next, so a read has to wait for the one
    /// before; 'independent': updates at random places, as GUPS does them.
    ///
    /// Methods: '4k', 'thp', 'hugetlb', and 'hpmmap', a plain call under 'hpmmap
    /// run --strict'. The plain loop has no memory; it runs once natively and
    /// once under HPMMAP.
    ///
    /// With --neighbour detours are looked for again while something that uses
    /// much memory runs on half of the CPUs.
    ///
    /// Columns: NOISE the part of the time that detours took, mean of the CPUs,
    /// WORST that of the CPU with the most, DETOURS how many a second, LONGEST the
    /// longest one, CALLS the part of the time in mmap and munmap, SLOWEST the
    /// longest of these, FAULTS page faults a second, ROUNDS rounds of the loop a
    /// second, with memory that is pages.
    #[command(
        after_help = "An emulated guest has no TLB model: random accesses differ there \
        only by instructions and page faults, and detours have in them what the emulator and \
        the machine below it take.\n\n\
        The JSON has the members benchmark, schema, unit, tsc_hz, versions, machine, parameters, \
        pool_add, left_out[], detours[] (variant, method, condition, neighbour_bytes, summary, \
        cpus[]) and accesses[] (mode, method, size_bytes, median, least, most, faults, set_up_ns, \
        last). bench/README.md of the source describes them all."
    )]
    Noise(BenchNoiseArgs),
}

#[derive(Debug, Args)]
pub struct BenchColocationArgs {
    /// Only these workloads; by default all that are installed
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub workload: Vec<Workload>,
    /// Only these memory managers
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub manager: Vec<Manager>,
    /// Only these neighbours
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub neighbour: Vec<Profile>,
    /// How often each combination is run [default: 10, 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Ranks of a job [default: the largest power of two of at most two thirds
    /// of the CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub ranks: Option<u32>,
    /// Memory of a job in all, which is reserved for it under hugetlb and
    /// HPMMAP [default: three quarters of the machine's, 256M with --quick]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Beside each build have a program fill and free Linux's memory over and
    /// over, all but this much
    #[arg(long, value_name = "SIZE")]
    pub room: Option<Size>,
    /// Time steps of lammps, minimd and miniamr; the others solve to the end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: Option<u32>,
    /// Seed of the order of the runs [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Small problems that an emulated machine can solve
    #[arg(long)]
    pub quick: bool,
    /// The clock of this machine counts instructions (one CPU, one rank)
    #[arg(long)]
    pub icount: bool,
    /// Set transparent huge pages, reserve huge pages and add pools as each run
    /// needs it, and set everything back afterwards (root)
    ///
    /// Otherwise only what is there is used.
    #[arg(long)]
    pub prepare: bool,
    /// A run that takes longer has failed [default: 3600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: Option<u32>,
    /// Directory for the study, new or empty [default: colocation-DATE]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub out: Option<PathBuf>,
    /// Go on with the study in this directory, or report it again
    ///
    /// The options are those it was begun with; the machine must be the same.
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// With --resume: run nothing, report what there is, on any machine
    #[arg(long, requires = "resume")]
    pub report: bool,
    /// Directory for the files of a run while it goes on, those of the
    /// neighbours' builds too [default: in the study's]
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// Where the programs of bench/apps are, if they are not in their place
    #[arg(long, value_name = "DIR")]
    pub apps: Option<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
    /// Say what is run, if standard error is no terminal
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(Debug, Args)]
pub struct ColocationRankArgs {
    /// Directory for the record
    #[arg(long)]
    pub record: PathBuf,
    /// CPUs of the ranks, in order
    #[arg(long, value_delimiter = ',')]
    pub cpus: Vec<u32>,
    /// No transparent huge pages
    #[arg(long)]
    pub no_thp: bool,
    /// A file that the program makes when its start-up ends
    #[arg(long)]
    pub started: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct BenchNoiseArgs {
    /// Only these methods: 4k, thp, hugetlb, hpmmap
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub method: Vec<Method>,
    /// Only these loops
    #[arg(
        long = "loop",
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "no_detours"
    )]
    pub variant: Vec<Variant>,
    /// Only these random accesses
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "no_accesses"
    )]
    pub mode: Vec<Mode>,
    /// Random accesses only
    #[arg(long, conflicts_with = "no_accesses")]
    pub no_detours: bool,
    /// Detours only
    #[arg(long)]
    pub no_accesses: bool,
    /// Only these CPUs, such as 0,2-3
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<String>,
    /// Look for detours beside a neighbour, too: a COMMAND for the shell that is
    /// repeated, or processes that fill memory and write files as a build does
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub neighbour: Option<String>,
    /// Where it runs, instead of on the upper half of the CPUs
    #[arg(long, value_name = "LIST", requires = "neighbour")]
    pub neighbour_cpu: Option<String>,
    /// How long each search for detours takes [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub seconds: Option<u32>,
    /// A detour takes so many times as long as a usual round
    #[arg(long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub factor: u32,
    /// What the loops write to, on each CPU: a multiple of 2M [default: 64M, or
    /// an eighth of what is available to each CPU]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// These sizes of arrays: powers of two [default: 64K to 1G, four times each,
    /// as far as a quarter of the available memory]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub size: Vec<Size>,
    /// Random accesses in a round [default: 4194304]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub accesses: Option<u64>,
    /// Rounds; the median counts
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Where nothing else is said: 1 second, 8M, sizes up to 16M, 65536 accesses
    #[arg(long)]
    pub quick: bool,
    /// The clock of this machine counts instructions
    #[arg(long)]
    pub icount: bool,
    /// Reserve huge pages, add pools and allow transparent huge pages as the
    /// methods need it, and set everything back afterwards (root)
    ///
    /// Otherwise only what is there is used.
    #[arg(long)]
    pub prepare: bool,
    /// Write noise.json, noise.png and noise.svg into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// A table of every CPU, too
    #[arg(long)]
    pub per_cpu: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
    /// Say what is measured, if standard error is no terminal
    #[arg(short, long)]
    pub verbose: bool,
    /// The program that does the work, if it is not in its place
    #[arg(long, value_name = "FILE")]
    pub worker: Option<PathBuf>,
}

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
    /// every call under 'hpmmap run') are recorded as calls.
    ///
    /// Ends with the command, and has its exit status; 125: hpmmap failed; 126:
    /// the command cannot be executed; 127: it was not found. With --pid it ends
    /// with that process or with SIGINT or SIGTERM. A file whose recorder was
    /// killed can be read up to there.
    ///
    /// Needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE, and a kernel with
    /// BTF, as all of Debian's are. Where BPF is not allowed, tracefs is used: it
    /// gives the counts, and the costs to a microsecond, but tells neither what a
    /// fault did nor the names of mappings.
    Record(TraceRecordArgs),
    /// Show what a recorded file says
    ///
    /// Kinds: '4k' a page of anonymous memory; '2m' memory mapped by one entry of
    /// 2 MB; 'hugetlb' a page of hugetlbfs; 'cow' a copy of a page; 'write' a page
    /// made writable; 'swap' a page from swap; 'file' a page of a file or of shared
    /// memory; 'numa' a page that NUMA balancing asked about; 'migration' a page
    /// that was being moved; 'spurious' nothing left to do; 'error' a signal, not
    /// counted by the kernel; 'fault' with tracefs. '+merge', '+compaction',
    /// '+reclaim': what it waited for. 'call': no exception, filled by a call.
    ///
    /// Columns: MEAN, STDDEV, P50, P99, MAX cost of a fault, TOTAL of all, RUN the
    /// same as a part of the time of the run (of several threads it can be more than
    /// 100 %), CALLS pages filled by calls.
    #[command(
        after_help = "The JSON has the members schema, header, complete, run_ns, after_ns, kinds[], \
        mappings[], threads[], ranks[], stolen[], faults (counts, and whether they agree with the \
        kernel's), dropped, untracked, retries, running, exit_status, overhead. The CSV has all \
        faults, one a line. docs/trace.md of the source describes both, and the file."
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceMethod {
    /// Everything
    Bpf,
    /// Counts and costs
    Tracefs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceBy {
    /// What the faults did
    Kind,
    /// The mappings they were in
    Mapping,
    /// The threads that took them
    Thread,
    /// The ranks, or processes
    Rank,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceUnit {
    /// Microseconds
    Us,
    /// Cycles of the time stamp counter
    Cycles,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["pid", "command"]))]
pub struct TraceRecordArgs {
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "hpmmap.trace")]
    pub output: PathBuf,
    /// Record this process and its descendants from now on
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// How to record; by default bpf, or tracefs where that is not possible
    #[arg(long, value_enum, value_name = "HOW")]
    pub method: Option<TraceMethod>,
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

#[derive(Debug, Args)]
pub struct TraceReportArgs {
    /// The recorded file
    pub file: PathBuf,
    /// What the table is about
    #[arg(long, value_enum, value_name = "WHAT", default_value = "kind")]
    pub by: TraceBy,
    /// Unit of the costs
    #[arg(long, value_enum, value_name = "UNIT", default_value = "us")]
    pub unit: TraceUnit,
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

#[derive(Debug, Args)]
pub struct BenchAllocArgs {
    /// Only these methods
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub method: Vec<Method>,
    /// Only these patterns
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub pattern: Vec<Pattern>,
    /// Only these allocators, for the patterns that use one
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub allocator: Vec<Allocator>,
    /// These sizes instead of 4K to 4G: multiples of 4K; those the machine has
    /// no memory for are left out
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub size: Vec<Size>,
    /// Largest size of patterns other than 'map'
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    pub limit: Size,
    /// Processes for each result, after one that does not count
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Rounds in one process of the patterns 'cycle' and 'threads'
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rounds: u32,
    /// Measure throughput with 1 to N threads instead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// The clock of this machine counts instructions
    #[arg(long)]
    pub icount: bool,
    /// Reserve huge pages, add pools and set transparent huge pages as the
    /// methods need it, and set everything back afterwards (root)
    ///
    /// Otherwise only what is there is used.
    #[arg(long)]
    pub prepare: bool,
    /// Write alloc.json, alloc.png and alloc.svg into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
    /// Say what is measured, if standard error is no terminal
    #[arg(short, long)]
    pub verbose: bool,
    /// The library of the allocator 'hpmmap-jemalloc'
    #[arg(long, value_name = "FILE")]
    pub hpmmap_jemalloc: Option<PathBuf>,
    /// The program that does the work, if it is not in its place
    #[arg(long, value_name = "FILE")]
    pub worker: Option<PathBuf>,
    /// Only compare two results
    #[arg(long, num_args = 2, value_names = ["FIRST.json", "SECOND.json"], exclusive = true)]
    pub compare: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PoolAddArgs {
    /// NUMA node to take memory from; may be left out if there is only one
    #[arg(long, value_name = "N")]
    pub node: Option<u32>,
    /// How much: bytes, or a number with K, M, G or T; a multiple of the
    /// memory block size
    #[arg(long)]
    pub size: Size,
    /// Keep what was possible if the whole size cannot be had
    #[arg(long)]
    pub partial: bool,
    /// First use blocks that are offline already, such as after a crash
    #[arg(long)]
    pub offline_blocks: bool,
    /// Give up on a block that Linux cannot empty within this time
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub timeout: u32,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("amount").required(true).args(["size", "all"]))]
pub struct PoolRemoveArgs {
    /// NUMA node; may be left out if there is only one, and with --all, which
    /// then means every node
    #[arg(long, value_name = "N")]
    pub node: Option<u32>,
    /// How much: bytes, or a number with K, M, G or T; a multiple of the
    /// memory block size
    #[arg(long)]
    pub size: Option<Size>,
    /// Everything
    #[arg(long)]
    pub all: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PoolListArgs {
    /// Also show each memory block
    #[arg(short, long)]
    pub verbose: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whom").required(true).args(["user", "default"]))]
pub struct PoolLimitArgs {
    /// Name or number of the user
    #[arg(long, value_name = "NAME|UID")]
    pub user: Option<String>,
    /// Every user without a limit of their own
    #[arg(long)]
    pub default: bool,
    /// The limit, a multiple of 2M, or 'none'
    #[arg(long, value_name = "SIZE|none", value_parser = parse_limit)]
    pub size: Limit,
}

/// A limit as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// No limit.
    None,
    /// At most this much.
    Size(Size),
}

fn parse_limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit::None),
        _ => text
            .parse()
            .map(Limit::Size)
            .map_err(|error| format!("{error}, or 'none'")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PageSize {
    #[value(name = "2M")]
    TwoMega,
    #[value(name = "1G")]
    OneGiga,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Malloc {
    Jemalloc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    /// On the node of the CPU that maps it, or the nearest
    Local,
    /// On the nodes in turn, 2 MB by 2 MB
    Interleave,
    /// On the node of the CPU that touches it first, 2 MB by 2 MB, with one
    /// page fault each; for threads that initialise their own part
    FirstTouch,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Size of the contiguous pieces memory is made of
    #[arg(
        long,
        value_enum,
        value_name = "2M|1G",
        default_value = "2M",
        ignore_case = true,
        hide_possible_values = true
    )]
    pub page_size: PageSize,
    /// Take memory only from these NUMA nodes, such as 0,2-3, whatever the
    /// memory policies of the program say; 'interleave' is all nodes with
    /// --placement interleave
    #[arg(long, value_name = "LIST|interleave")]
    pub node: Option<String>,
    /// Where memory lies for which the program has no memory policy of its
    /// own (set_mempolicy, mbind, numactl)
    #[arg(long, value_enum, value_name = "HOW")]
    pub placement: Option<Placement>,
    /// The same as --placement interleave
    #[arg(long, conflicts_with = "placement")]
    pub interleave: bool,
    /// Fail allocations when the pools are used up, instead of using memory
    /// of Linux
    #[arg(long)]
    pub strict: bool,
    /// Leave out the programs that child processes execute
    #[arg(long)]
    pub no_inherit: bool,
    /// Put the text, data and bss of the programs into the pools, too, and
    /// map shared libraries in advance: a run has no file faults
    ///
    /// Segments are mapped with 2 MB pages where they cover them whole: link
    /// with -Wl,-z,max-page-size=0x200000. Uprobes do not see such programs,
    /// and perf does not find their symbols.
    #[arg(long)]
    pub image: bool,
    /// Use another malloc: jemalloc, which takes large allocations from the
    /// pools without zeroing what the same process has had before
    ///
    /// Puts Debian's libjemalloc2, which has to be installed, and a library of
    /// hooks for it into LD_PRELOAD, and options for it in front of those in
    /// MALLOC_CONF. Programs linked statically keep their malloc.
    #[arg(long, value_enum, value_name = "jemalloc", hide_possible_values = true)]
    pub malloc: Option<Malloc>,
    /// Have glibc's malloc keep memory instead of giving it back and taking
    /// it again
    ///
    /// Adds glibc.malloc.trim_threshold, mmap_threshold and top_pad to
    /// GLIBC_TUNABLES, where they are not set already.
    #[arg(long)]
    pub malloc_tune: bool,
    /// At the end, write to FILE (JSON) whether the job ran undisturbed: page
    /// faults, fallbacks, latency of calls, waits, peak, places
    ///
    /// For all processes the job has had. hpmmap stays, as the parent of the
    /// program: signals that are sent to it are passed on, and it ends as the
    /// program does. FILE is replaced in one step. Format: docs/report.md.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The same on standard error, in a few lines
    #[arg(short, long)]
    pub verbose: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct MarkArgs {
    /// Only tell whether the files are marked, and how
    #[arg(long, conflicts_with_all = ["page_size", "interleave", "strict", "no_inherit", "no_image"])]
    pub show: bool,
    /// Size of the contiguous pieces memory is made of
    #[arg(
        long,
        value_enum,
        value_name = "2M|1G",
        default_value = "2M",
        ignore_case = true,
        hide_possible_values = true
    )]
    pub page_size: PageSize,
    /// Spread memory over the nodes in turn
    #[arg(long)]
    pub interleave: bool,
    /// Fail allocations when the pools are used up, instead of using memory
    /// of Linux
    #[arg(long)]
    pub strict: bool,
    /// Leave out the programs that child processes execute
    #[arg(long)]
    pub no_inherit: bool,
    /// Leave text, data and bss to Linux
    #[arg(long)]
    pub no_image: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
    /// The programs
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct UnmarkArgs {
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
    /// The programs
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Repeat every so many seconds, by default 2; 'q' or Ctrl-C ends it
    ///
    /// On a terminal it is a screen: the pools as bars, and one line for each
    /// job, in colour unless NO_COLOR is set, in red where memory of Linux had to
    /// help out. Columns that do not fit are left out. Elsewhere the plain report
    /// is repeated.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        allow_negative_numbers = true
    )]
    pub watch: Option<f64>,
    /// Report as JSON; with --watch one line each time
    #[arg(long)]
    pub json: bool,
    /// Report for Prometheus, in its text format, such as for the textfile
    /// collector of node_exporter
    #[arg(long, conflicts_with_all = ["watch", "json"])]
    pub prometheus: bool,
    /// Replace this file by the report for Prometheus, in one step
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
    /// Read /sys, /proc, /boot and /lib/modules below this directory, such as
    /// a copy from another machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

impl DoctorArgs {
    /// The machine to look at.
    pub fn root(&self) -> Root {
        Root::new(&self.root)
    }
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// The directory; it must exist
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Prints what clap has to say (an error, or the help asked for) and gives
/// the exit status.
pub fn report(error: &clap::Error) -> ExitCode {
    // Nothing can be done if there is nobody to print to.
    let _ = error.print();
    let words: Vec<OsString> = std::env::args_os().skip(1).take(2).collect();
    let word = |n: usize, text: &str| words.get(n).is_some_and(|word| word == text);
    let runs = word(0, "run") || (word(0, "trace") && word(1, "record"));
    if error.use_stderr() && runs {
        ExitCode::from(RUN_FAILED)
    } else {
        ExitCode::from(error.exit_code() as u8)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    fn parse(args: &[&str]) -> Result<Verb, ErrorKind> {
        Cli::try_parse_from([&["hpmmap"], args].concat())
            .map(|cli| cli.verb)
            .map_err(|error| error.kind())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_version_is_the_one_of_the_file() {
        assert!(!VERSION.is_empty());
        assert!(
            VERSION.split('.').all(|n| n.parse::<u32>().is_ok()),
            "{VERSION}"
        );
    }

    #[test]
    fn options_behind_the_program_are_the_programs() {
        for args in [
            &["run", "--strict", "--", "prog", "--json", "-x"][..],
            &["run", "--strict", "prog", "--json", "-x"],
        ] {
            let Ok(Verb::Run(run)) = parse(args) else {
                panic!("{args:?}");
            };
            assert!(run.strict && !run.interleave);
            assert_eq!(run.command, ["prog", "--json", "-x"]);
        }
        assert_eq!(
            parse(&["run"]).unwrap_err(),
            ErrorKind::MissingRequiredArgument
        );
    }

    #[test]
    fn page_sizes_are_two() {
        let Ok(Verb::Run(run)) = parse(&["run", "--page-size", "1g", "x"]) else {
            panic!();
        };
        assert_eq!(run.page_size, PageSize::OneGiga);
        assert_eq!(
            parse(&["run", "--page-size", "4K", "x"]).unwrap_err(),
            ErrorKind::InvalidValue
        );
    }

    #[test]
    fn remove_wants_either_a_size_or_everything() {
        assert!(parse(&["pool", "remove", "--all"]).is_ok());
        assert!(parse(&["pool", "remove", "--size", "1G"]).is_ok());
        assert_eq!(
            parse(&["pool", "remove"]).unwrap_err(),
            ErrorKind::MissingRequiredArgument
        );
        assert_eq!(
            parse(&["pool", "remove", "--all", "--size", "1G"]).unwrap_err(),
            ErrorKind::ArgumentConflict
        );
    }

    #[test]
    fn a_limit_is_for_a_user_or_for_all() {
        let Ok(Verb::Pool(PoolVerb::Limit(limit))) =
            parse(&["pool", "limit", "--default", "--size", "none"])
        else {
            panic!();
        };
        assert_eq!(limit.size, Limit::None);
        assert_eq!(
            parse(&["pool", "limit", "--size", "1G"]).unwrap_err(),
            ErrorKind::MissingRequiredArgument
        );
        assert_eq!(
            parse(&["pool", "limit", "--default", "--user", "a", "--size", "1G"]).unwrap_err(),
            ErrorKind::ArgumentConflict
        );
        assert_eq!(
            parse(&["pool", "limit", "--default", "--size", "much"]).unwrap_err(),
            ErrorKind::ValueValidation
        );
    }

    #[test]
    fn failures_of_run_have_their_own_status() {
        assert_eq!(parse(&["run", "x"]).unwrap().own_failure(), Some(125));
        assert_eq!(parse(&["status"]).unwrap().own_failure(), None);
    }
}
