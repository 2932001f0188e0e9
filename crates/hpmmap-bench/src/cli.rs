//! The options of `hpmmap bench`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use hpmmap_base::size::Size;

use crate::colocation::plan::{Manager, Profile, Workload};
use crate::noise::plan::{Mode, Variant};
use crate::plan::{Allocator, Method, Pattern};
use crate::vm::plan::{Pages, Paging, Workload as VmWorkload};

/// Measure the cost of memory under HPMMAP and under Linux
#[derive(Debug, Parser)]
#[command(
    name = "bench",
    bin_name = "hpmmap bench",
    display_name = "hpmmap-bench",
    arg_required_else_help = true
)]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub verb: BenchVerb,
}

/// The verbs of `hpmmap bench`.
#[derive(Debug, Subcommand)]
pub enum BenchVerb {
    /// Measure the cost of getting memory, touching it and giving it back
    ///
    /// Runs each method, pattern and size in a process of its own, several times. Prints tables,
    /// each result with its ratio to the best peer: the cheapest method of Linux at the same
    /// pattern and size.
    ///
    /// Methods: '4k', 'thp', 'hugetlb', each also filled before the first
    /// touch ('-populate'); 'hugetlb-1g', reserved pages of 1 GB; 'hpmmap', a plain
    /// call under 'hpmmap run --strict'; 'hpmmap-dirty', the same after every block
    /// of the pools has been used; 'hpmmap-reuse', with the flag for memory that need
    /// not be zero; 'hpmmap-1g', a plain call under 'hpmmap run --strict --page-size 1G';
    /// 'hpmmap-static', one under 'hpmmap run --strict --static', with a region for all of it.
    ///
    /// Patterns: 'map': map, touch each 4 KB page, unmap; 'crowded': the same in a process that
    /// has 10,000 mappings; 'cycle': map, touch, unmap several times in one process; 'brk',
    /// 'mremap': a heap and an array that grow; 'stacks': stacks of 8 MB with a guard page, of
    /// which 64 KB are used; 'amr': blocks of varied sizes, as in a mesh that is refined and
    /// coarsened; 'amr-malloc', 'malloc': these and small objects from an allocator; 'threads',
    /// 'processes' (with --threads).
    ///
    /// Columns: MAP, UNMAP: the calls that get memory and give it back; TOUCH: the first touches,
    /// without the cost of a touch that finds its page; TOTAL: the sum of the three; FAULTS: page
    /// faults; WORST TOUCH, WORST CALL: the costliest one; TABLES: memory for page tables; MEMORY:
    /// resident or held memory at the peak; EXIT: CPU time of the process after the pattern, with
    /// zeroing that was put off until then; OTHERS: CPU time of all other tasks until 100 ms after
    /// its end; RATIO+EXIT: the ratio of TOTAL and EXIT together; SPREAD: the largest distance of
    /// a TOTAL from the median of the repetitions, with '!' above 1 %.
    ///
    /// Costs are cycles of the time stamp counter. In a guest with one CPU under QEMU's '-icount
    /// shift=0' these are instructions; --icount says so.
    #[command(
        after_help = "Exit status: 1 if HPMMAP took page faults, or if --compare finds \
        a difference of more than 1 %.\n\n\
        The JSON has the members benchmark, schema, unit, tsc_hz, versions, machine, \
        parameters, pool_add, left_out[] and results[]; each result has pattern, method, \
        allocator, size_bytes, threads, measured (kind, median, repetitions[]), spread, agree, \
        ratio_to_best_peer, ratio_with_exit. bench/README.md of the source describes them all."
    )]
    Alloc(BenchAllocArgs),
    /// Measure how neighbours slow a job down, under HPMMAP and under Linux
    ///
    /// Runs MPI programs alone and beside compile jobs, with 4 KB pages, transparent huge pages,
    /// reserved huge pages (for malloc) and HPMMAP, in rounds: each round runs every combination
    /// once, in a random order. Prints tables and writes everything into one directory: the plan,
    /// a record and the output of each run, a report in HTML. It can be stopped at any time
    /// (Ctrl-C) and continued with --resume.
    ///
    /// Neighbours: 'none', always measured; 'a': one parallel compile on any CPU, with as many
    /// jobs as there are CPUs without a rank; 'b': two of these; 'c': two, each on half of the
    /// CPUs without a rank. They run until the job ends. Each rank is bound to a CPU.
    ///
    /// Workloads: 'lammps' and 'hpcc' (Debian's packages), and the programs of the source's
    /// bench/apps. Results must be right, and the same in all runs.
    ///
    /// Columns: SECONDS: mean of the runtimes, +- half of its 95 % confidence interval; SLOWDOWN
    /// by the neighbour, and its parts: KERNEL and BLOCKED, together MEMORY, the most that memory
    /// management can have caused, WAIT for a CPU, USER mode; FAULTS: page faults of a run, LATE:
    /// after the start-up, POOL: in pool memory, MAJOR: with disk reads; for the whole machine
    /// STALLS for memory, HUGE pages allocated, MERGED by khugepaged. With --icount: INSTR.:
    /// instructions of a rank in thousand millions, their GROWTH by the neighbour, and how many
    /// FEWER HPMMAP takes. docs/colocation.md of the source has the formulas.
    #[command(after_help = "Exit status: 1 if a run failed or gave a wrong result, \
        or the study was interrupted.")]
    Colocation(Box<BenchColocationArgs>),
    /// Run one rank of a study and record its figures
    #[command(hide = true)]
    ColocationRank(ColocationRankArgs),
    /// Do this machine's part of a study that another machine runs
    #[command(hide = true)]
    ColocationAgent,
    /// Measure the CPU time that is taken away, and the cost of random accesses
    ///
    /// Detours (the benchmark 'selfish'): on every CPU at once a loop reads the clock. A round
    /// that takes much longer than usual is a detour: something else took the time. Loops: 'plain'
    /// does nothing else, and shows interrupts and other tasks but no memory management; 'touch'
    /// also writes to resident pages, one after the other, and shows what happens to them
    /// (khugepaged, migration, reclaim); 'fresh' writes to newly mapped pages, 2 MB at a time, and
    /// shows page faults. The time of mmap and munmap is in no detour but in CALLS.
    ///
    /// Random accesses: to arrays of growing size, on the first CPU. 'dependent': each number is
    /// the index of the next, so a read waits for the one before; 'independent': updates at random
    /// places, as in GUPS.
    ///
    /// Methods: '4k', 'thp', 'hugetlb', and 'hpmmap', a plain call under 'hpmmap run --strict'.
    /// The plain loop uses no memory; it runs once natively and once under HPMMAP.
    ///
    /// With --neighbour detours are measured again while a program that uses much memory runs on
    /// half of the CPUs.
    ///
    /// Columns: NOISE: the part of the time that detours took, mean of the CPUs; WORST: that of
    /// the CPU with the most; DETOURS: number per second; LONGEST: the longest one; CALLS: the
    /// part of the time in mmap and munmap; SLOWEST: the longest of these calls; FAULTS: page
    /// faults per second; ROUNDS: rounds of the loop per second, with memory: pages.
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
    /// Measure a real machine, within an hour, and judge what HPMMAP claims
    ///
    /// Measures what emulated machines cannot show: latency, random updates and bandwidth on 1, 2,
    /// 4, ... CPUs, TLB misses by the CPU's counters, runtimes of the programs of bench/apps, the
    /// cost of memory, noise. It compares 4 KB pages ('4k'), transparent huge pages ('thp'),
    /// reserved huge pages ('hugetlb'), and pool memory with entries of 2 MB ('hpmmap') and 1 GB
    /// ('hpmmap-1g'), and says of each claim 'yes', 'no', 'not decided', or 'not measured'.
    ///
    /// It is made for nodes that others use, too: it runs on the CPUs that the caller may use (of
    /// its affinity and cgroup), takes a quarter of the free memory at most, and changes nothing of
    /// the machine. What is missing is left out, with the reason. With --prepare it reserves huge
    /// pages and adds pools, each as much once more for each NUMA node, and sets everything back at
    /// the end, after an error and after SIGINT, SIGTERM, SIGHUP or SIGQUIT. After SIGKILL the next
    /// benchmark with --prepare does that first.
    ///
    /// Each round makes every measurement by every method once, the methods in random order, until
    /// the time is over. An answer takes 6 rounds.
    ///
    /// Columns: MEDIAN of the runs, QUARTILES, 95 % INTERVAL of the median (by order statistics,
    /// from 6 runs on); medians of TLB LOADS and STORES, misses of reads and writes, and of page
    /// FAULTS, all of the whole process in user mode.
    #[command(
        after_help = "Exit status: 1 if a measurement failed or gave a wrong result, \
        if something could not be set back, or after a signal.\n\n\
        The directory has node.json, the file to send, node.txt, this report, and node.svg and \
        node.png, charts over CPUs. node.json has no name of the host or of users. It has the \
        members benchmark, schema, versions, machine, parameters, seconds, interrupted, prepared, \
        pool_add, missing_counters, left_out[], failed[], results[] and verdicts[]. docs/node.md \
        of the source describes them all, and the rule of the verdicts."
    )]
    Node(BenchNodeArgs),
    /// Measure work in virtual machines under nested and under shadow paging
    ///
    /// Starts a virtual machine of QEMU and KVM for each paging and each memory of the host, and
    /// does the same work in it as on the host. Prints a table for each workload, and which paging
    /// to take for it. Results must be those of the host.
    ///
    /// Paging is a parameter of KVM's module: 'npt' of kvm_amd, 'ept' of kvm_intel. It holds for
    /// all virtual machines of a host. With --prepare the module is loaded anew for each paging,
    /// and as it was at the end. While a virtual machine runs the module stays as it is: the other
    /// paging is left out, and the report says so.
    ///
    /// Methods, for the memory of a machine: '4k'; 'thp'; 'hugetlb', reserved huge pages;
    /// 'hpmmap', a file of the pools; 'hpmmap-1g', the same by entries of 1 GB.
    ///
    /// Columns: PAGES: of the workload in its machine; SET-UP: cost of filling its memory, and
    /// EXITS meanwhile; WORK: cost of the work, RATIO to that on the host, and EXITS; TABLES: KVM's
    /// page tables at its end; WALK: references to page tables for a TLB miss, at most; MOST
    /// EXITS: the two most frequent reasons.
    ///
    /// Needs root, /dev/kvm, QEMU, a kernel image, and tracefs.
    #[command(
        after_help = "An emulated host has no TLB model: costs do not include WALK there. With \
        --icount costs are instructions.\n\n\
        The JSON has the members benchmark, schema, unit, tsc_hz, versions, machine, parameters, \
        kernel, qemu, left_out[], native[], results[] (paging, method, work, figures, \
        exits_of_set_up, exits, kvm_table_bytes, entries, ratio) and recommendations[]. \
        bench/README.md of the source describes them all."
    )]
    Vm(Box<BenchVmArgs>),
}

/// What a benchmark prints.
#[derive(Debug, Clone, Args)]
pub struct OutputArgs {
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
    /// Print what is done, if standard error is not a terminal
    #[arg(short, long)]
    pub verbose: bool,
}

/// Where a benchmark finds the programs that it measures.
#[derive(Debug, Args)]
pub struct ProgramArgs {
    /// Directory of the programs of bench/apps, if they are not installed
    #[arg(long, value_name = "DIR")]
    pub apps: Option<PathBuf>,
}

/// Methods of a benchmark that has one for each kind of page.
#[derive(Debug, Args)]
pub struct PageMethodArgs {
    /// Only these methods: 4k, thp, hugetlb, hpmmap, hpmmap-1g
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub method: Vec<Method>,
}

/// The options of a study.
#[derive(Debug, Args)]
pub struct BenchColocationArgs {
    /// Only these workloads [default: all that are installed]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub workload: Vec<Workload>,
    /// Only these memory managers [default: 4k, thp, hugetlb, hpmmap]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub manager: Vec<Manager>,
    /// Only these neighbours [default: none, a, b and c]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub neighbour: Vec<Profile>,
    /// Runs of each combination [default: 10, 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Run the jobs on these machines, and the neighbours on each
    ///
    /// They are reached by ssh, which must not ask for anything. Inside an allocation of Slurm
    /// they must be hosts of it and are reached by srun, never by ssh. Each has this command at
    /// the same path, the same versions of everything, and the same CPUs. --ranks, --memory and
    /// the size of the problem are per host. By default only neighbour c is measured.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// Numbers of hosts that jobs run on, the first ones each time [default: 1, 2, 4, ... and all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub nodes: Vec<u32>,
    /// Ranks of a job [default: the largest power of two that is at most two thirds of the CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub ranks: Option<u32>,
    /// Memory of a whole job, which is reserved for it under hugetlb and HPMMAP [default: three
    /// quarters of the machine's, 256M with --quick]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Beside the builds run a program that fills and frees ordinary memory repeatedly, all but
    /// this much
    #[arg(long, value_name = "SIZE")]
    pub room: Option<Size>,
    /// Time steps of lammps, minimd and miniamr; the others run to the solution
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
    /// Linux keeps 256M of each NUMA node then. Otherwise only existing huge pages and pools are
    /// used.
    #[arg(long)]
    pub prepare: bool,
    /// Time after which a run has failed [default: 3600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: Option<u32>,
    /// Directory for the study, new or empty [default: colocation-SECONDS]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub out: Option<PathBuf>,
    /// Continue the study in this directory, or report it again
    ///
    /// The options are those of its begin; the machine must be the same. To continue, the
    /// directory and its contents must belong to the caller or root, and no other user may be able
    /// to write to it.
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// With --resume: run nothing, report what was measured, on any machine
    #[arg(long, requires = "resume")]
    pub report: bool,
    /// Directory for the files of a run and of the neighbours' builds [default: in the study's
    /// directory; with --hosts in /var/tmp of each host]
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// Directory for the file that neighbour D reads, on a file system with a page cache [default:
    /// with the files of a run]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// This run did not end, so it has failed and is not tried again
    #[arg(long, value_name = "RUN", requires = "resume", hide = true)]
    pub gave_up: Vec<u32>,
    /// Where the programs are.
    #[command(flatten)]
    pub programs: ProgramArgs,
    /// What is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The options of a rank.
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

/// The options of benchmarks with a worker.
#[derive(Debug, Args)]
pub struct SessionArgs {
    /// The clock of this machine counts instructions
    #[arg(long)]
    pub icount: bool,
    /// Reserve huge pages, add pools and set transparent huge pages as the
    /// methods need it, and set everything back afterwards (root)
    ///
    /// Linux keeps 256M of each NUMA node then. Otherwise only existing huge pages and pools are
    /// used.
    #[arg(long)]
    pub prepare: bool,
    /// Write the results as JSON, and charts of them as PNG and SVG, into this
    /// directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What is printed.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The worker program, if it is not installed
    #[arg(long, value_name = "FILE")]
    pub worker: Option<PathBuf>,
}

/// The options of `bench vm`.
#[derive(Debug, Args)]
pub struct BenchVmArgs {
    /// Only these workloads
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub workload: Vec<VmWorkload>,
    /// Only these kinds of paging
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub paging: Vec<Paging>,
    /// The methods to measure.
    #[command(flatten)]
    pub methods: PageMethodArgs,
    /// Only these pages of the workload
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub pages: Vec<Pages>,
    /// The largest array, a power of two [default: 256M, 1M with --quick]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Size>,
    /// Memory of a virtual machine, with hpmmap-1g whole gigabytes and at least 2G [default: 1G,
    /// 256M with --quick]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Little work, and small machines
    #[arg(long)]
    pub quick: bool,
    /// Kernel of the virtual machines [default: that of the host, from /boot]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// QEMU
    #[arg(long, value_name = "FILE", default_value = "qemu-system-x86_64")]
    pub qemu: PathBuf,
    /// Time for the boot of a machine, and for each step of a workload
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
    /// Options of all benchmarks.
    #[command(flatten)]
    pub session: SessionArgs,
}

/// A number of minutes.
fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "it is no number".to_string())?;
    match (0.1..=1440.0).contains(&minutes) {
        true => Ok(minutes),
        false => Err("it must be 0.1 to 1440".into()),
    }
}

/// The options of `bench node`.
#[derive(Debug, Args)]
pub struct BenchNodeArgs {
    /// The time for all measurements; at most one of them ends later
    #[arg(long, value_name = "N", default_value_t = 60.0, value_parser = minutes)]
    pub minutes: f64,
    /// Memory of the arrays of a measurement; each process takes up to 64M more [default: 4G, in a
    /// shorter time than an hour less, and at most a quarter of what the NUMA node with the
    /// least has free]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Only these CPUs, such as 0,2-3 [default: all that the caller may use]
    ///
    /// Of each core one is used.
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// The methods to measure.
    #[command(flatten)]
    pub methods: PageMethodArgs,
    /// Most rounds
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Seed of the order of the methods
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Reserve huge pages, add pools, and turn on transparent huge pages for programs that ask
    /// for them; set everything back afterwards (root)
    ///
    /// Linux keeps 256M of each NUMA node then. Otherwise only existing huge pages and pools are
    /// used.
    #[arg(long)]
    pub prepare: bool,
    /// Directory for the results [default: node-SECONDS]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Where the programs are.
    #[command(flatten)]
    pub programs: ProgramArgs,
    /// What is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The options of `bench noise`.
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
    /// Measure in this partition, on its CPUs, and count as with --count: a name of 'hpmmap
    /// partition create', or the directory of a cgroup
    #[arg(long, value_name = "NAME|DIR")]
    pub partition: Option<String>,
    /// Also count interrupts and other tasks on the CPUs while detours are looked for, as
    /// 'hpmmap trace noise' does (package hpmmap-trace, root)
    #[arg(long, conflicts_with = "no_detours")]
    pub count: bool,
    /// Random accesses by N tasks at once, each with an array of its own: bound to a CPU each, and
    /// unbound on these N CPUs
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "no_accesses",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub tasks: u32,
    /// Also look for detours beside a neighbour: COMMAND, repeated by a shell, or without one
    /// processes that fill memory and write files like a build
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub neighbour: Option<String>,
    /// CPUs of the neighbour, instead of the upper half
    #[arg(long, value_name = "LIST", requires = "neighbour")]
    pub neighbour_cpu: Option<String>,
    /// Length of each search for detours [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub seconds: Option<u32>,
    /// A round is a detour if it takes this many times as long as a usual one
    #[arg(long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub factor: u32,
    /// Memory that the loops write to, on each CPU: a multiple of 2M [default: 64M, or an eighth
    /// of the memory available to each CPU]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Sizes of arrays: powers of two [default: 64K to 1G by factors of four, up to a quarter of
    /// the available memory]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub size: Vec<Size>,
    /// Random accesses in a round [default: 4194304]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub accesses: Option<u64>,
    /// Rounds; the median counts
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Other defaults: 1 second, 8M, sizes up to 16M, 65536 accesses
    #[arg(long)]
    pub quick: bool,
    /// Also print a table for each CPU
    #[arg(long)]
    pub per_cpu: bool,
    /// The options of benchmarks with a worker.
    #[command(flatten)]
    pub session: SessionArgs,
}

/// The options of `bench alloc`.
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
    /// These sizes instead of 4K to 4G: multiples of 4K; sizes without enough memory are left out
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub size: Vec<Size>,
    /// Largest size of patterns other than 'map'
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    pub limit: Size,
    /// Processes for each result, after one that is not counted
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Rounds in one process of the patterns 'cycle', 'threads' and 'processes'
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rounds: u32,
    /// Measure throughput, and quantiles of first touches, with 1 to N threads or processes instead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// The library of the allocator 'hpmmap-jemalloc'
    #[arg(long, value_name = "FILE")]
    pub hpmmap_jemalloc: Option<PathBuf>,
    /// Only compare two results
    #[arg(long, num_args = 2, value_names = ["FIRST.json", "SECOND.json"], exclusive = true)]
    pub compare: Vec<PathBuf>,
    /// The options of benchmarks with a worker.
    #[command(flatten)]
    pub session: SessionArgs,
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::{BenchVerb, Cli};

    /// Parses these words after `hpmmap bench`.
    pub fn parse(words: &[&str]) -> BenchVerb {
        let all = ["bench"].iter().chain(words);
        Cli::try_parse_from(all).unwrap().verb
    }
}
