//! The options of `hpmmap run`, `mark` and `unmark`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::Size;
use hpmmap_sys::uapi;

use crate::allocator::Malloc;
use crate::launch::{Options, Placement, Shared, Stacks};
use crate::promise::Promise;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PageSize {
    #[value(name = "2M", alias = "2MiB")]
    TwoMega,
    #[value(name = "1G", alias = "1GiB")]
    OneGiga,
}

impl PageSize {
    /// Its size in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::TwoMega => uapi::BLOCK_BYTES,
            Self::OneGiga => uapi::LARGE_BYTES,
        }
    }
}

/// Options of a launch that a mark can have, too.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// Size of the contiguous pieces of memory, and of the page-table entries that map them
    /// (1G: on Linux 6.12 and newer, see 'hpmmap doctor')
    #[arg(
        long,
        value_enum,
        value_name = "2M|1G",
        default_value = "2M",
        ignore_case = true,
        hide_possible_values = true
    )]
    pub page_size: PageSize,
    /// NUMA node of memory without a memory policy (set_mempolicy, mbind, numactl)
    #[arg(long, value_enum, value_name = "HOW", default_value = "local")]
    pub placement: Placement,
    /// When the main stack and those of threads are populated
    #[arg(long, value_enum, value_name = "WHEN", default_value = "grow")]
    pub stacks: Stacks,
    /// Source of shared memory without a name in a file system: mmap with MAP_SHARED and
    /// MAP_ANONYMOUS, memfd_create, shmget
    #[arg(long, value_enum, value_name = "WHOSE", default_value = "pools")]
    pub shared: Shared,
    /// Fail allocations with ENOMEM when the pools are exhausted or a limit is reached,
    /// instead of falling back to ordinary memory
    #[arg(long)]
    pub strict: bool,
    /// Do not register the programs that child processes execute
    #[arg(long)]
    pub no_inherit: bool,
    /// Map SIZE of memory before the first instruction of each program; malloc, mmap and brk
    /// take theirs from it without changing a mapping
    ///
    /// Such calls change no page table and interrupt no other CPU. Freed memory stays accessible:
    /// an access to it does not end in SIGSEGV. SIZE is rounded up to the page size.
    /// Every registered program gets a region of its own (see --only). Without memory for it a
    /// program runs without a region; with --strict it is killed.
    #[arg(long = "static", value_name = "SIZE")]
    pub static_size: Option<Size>,
}

impl LaunchArgs {
    /// All of them, with what `run` and `mark` each have an option of their own
    /// for: the image.
    pub fn options(&self, image: bool) -> Result<Options> {
        if self.placement == Placement::FirstTouch && self.page_size == PageSize::OneGiga {
            return Err(Error::Usage(
                "--placement first-touch places 2M at a time: leave out --page-size 1G".into(),
            ));
        }
        Ok(Options {
            static_bytes: self.static_bytes()?,
            image,
            strict: self.strict,
            no_inherit: self.no_inherit,
            placement: self.placement,
            stacks: self.stacks,
            shared: self.shared,
            page_size: self.page_size.bytes(),
        })
    }

    /// The size of the static region, rounded up to the page size.
    fn static_bytes(&self) -> Result<u64> {
        let Some(Size(bytes)) = self.static_size else {
            return Ok(0);
        };
        if self.placement == Placement::FirstTouch {
            return Err(Error::Usage(
                "--static maps all memory at once: leave out --placement first-touch".into(),
            ));
        }
        bytes
            .checked_next_multiple_of(self.page_size.bytes())
            .filter(|rounded| (1..=uapi::LAUNCH_STATIC_MAX_BYTES).contains(rounded))
            .ok_or_else(|| {
                Error::Usage(format!(
                    "--static {}: it has to be between 1 and {}",
                    Size(bytes),
                    Size(uapi::LAUNCH_STATIC_MAX_BYTES)
                ))
            })
    }
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub launch: LaunchArgs,
    /// Take memory only from these NUMA nodes, such as 0,2-3, even if a memory policy of
    /// the program names others
    #[arg(long, value_name = "LIST")]
    pub node: Option<String>,
    /// Promise pool memory to this launch: a size, or one for each NUMA node, such as
    /// 0:16G,1:16G; it is refused if it cannot be kept
    ///
    /// No other launch gets this memory, used or not, until the last process of the launch
    /// has ended. Root reserves free memory. Other users reserve memory that is promised to
    /// them or their cgroup, such as a grant of Slurm (see 'hpmmap pool limit --min'). More than
    /// a limit of the user or cgroup is refused, as it could never be used.
    #[arg(long, value_name = "SIZE|N:SIZE,...")]
    pub reserve: Option<Promise>,
    /// Map SIZE of pool memory at address ADDR of each program, bound to NUMA node N, before its first
    /// instruction; may be given several times
    ///
    /// The program finds its regions in HPMMAP_REGIONS=START+SIZE[@NODE],... (hexadecimal, in the
    /// order of the options). They are resident, zero, readable and writable, and ordinary memory
    /// from then on: it can unmap and protect them, and a fork shares them. SIZE and ADDR are
    /// multiples of 2M, with page-size=1G of 1G; that also is --page-size 1G for the launch. Without
    /// ADDR they follow each other from 0x120000000000 on. Without memory for them the program does
    /// not start. Every registered program gets its own (see --only); one that is executed later and
    /// finds no memory is killed.
    #[arg(long, value_name = "SIZE[@ADDR][,node=N][,page-size=1G]")]
    pub region: Vec<String>,
    /// Register only programs with this file name, such as 'lmp*'; may be given several times
    ///
    /// Other programs (a launcher, shells, helpers) use ordinary memory; the programs that
    /// they start are registered if they match. '*', '?' and '[...]' are as in a shell, and
    /// also match a dot and a slash. A PATTERN with a slash is compared with the path that
    /// the program is executed by. A script matches by its own name or by that of its
    /// interpreter.
    #[arg(long, value_name = "PATTERN")]
    pub only: Vec<OsString>,
    /// Also put text, data and bss of the programs into the pools, and map shared libraries
    /// in advance: the programs have no file faults
    ///
    /// 2 MB page-table entries map what covers 2 MB in full: link with
    /// -Wl,-z,max-page-size=0x200000. Uprobes do not see such programs, and perf does not
    /// find their symbols.
    #[arg(long)]
    pub image: bool,
    /// Use another malloc: jemalloc, which reuses large allocations of the same process
    /// without zeroing
    ///
    /// Puts libjemalloc2 of the distribution, which has to be installed, and a library with
    /// hooks into LD_PRELOAD, and options in front of those in MALLOC_CONF. Programs that
    /// are linked statically keep their malloc.
    #[arg(long, value_enum, value_name = "jemalloc", hide_possible_values = true)]
    pub malloc: Option<Malloc>,
    /// Make glibc's malloc keep freed memory
    ///
    /// Adds glibc.malloc.trim_threshold, mmap_threshold and top_pad to GLIBC_TUNABLES
    /// unless they are set. With --page-size 1G these are trim_threshold, mmap_max and
    /// top_pad, so that memory is taken by gigabytes.
    #[arg(long)]
    pub malloc_tune: bool,
    /// Write a report to FILE (JSON) at the end: page faults, fallbacks, latency of calls,
    /// waits, peak, NUMA nodes
    ///
    /// The report covers all processes of the launch. hpmmap stays as the parent of the
    /// program, passes signals on, and ends as the program does. FILE is replaced in one
    /// step. In its name %h is the host, %r the rank (MPI, Slurm), %p the process number of
    /// hpmmap, %j the batch job, and %% a %. Format: docs/report.md.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print the report on standard error, in a few lines
    #[arg(short, long)]
    pub verbose: bool,
    /// Run in this partition, which only its user and root may (see 'hpmmap partition')
    ///
    /// The program and all that it starts have the CPUs of the partition, and nothing else
    /// runs there. Unless OMP_PROC_BIND or OMP_PLACES is set, OpenMP binds its threads: in a
    /// partition without --balance the kernel moves none.
    #[arg(long, value_name = "NAME")]
    pub partition: Option<String>,
    /// Give this rank its own part of the partition: with n ranks on the host 1/n of the CPUs
    /// and of the promised memory, no more and no less
    ///
    /// Rank and number of ranks come from the environment of MPI or Slurm; with as many ranks
    /// as CPUs each has one.
    #[arg(long, requires = "partition")]
    pub per_core: bool,
    /// Also report what took CPUs away from the launch: interrupts, other tasks, migrations
    /// (package hpmmap-trace)
    ///
    /// Every event on the CPUs of the launch is counted in the kernel, none is sampled. The
    /// verdict is 'quiet' with at most 2 interrupts a second and no other task; 'not known' where
    /// something could not be counted. Needs root, or CAP_BPF and CAP_PERFMON: without them only
    /// /proc/interrupts is reported. Each launch counts for itself on all CPUs of the host: with
    /// many ranks on a host use it once, in front of mpirun.
    #[arg(long)]
    pub noise: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND",
          value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct MarkArgs {
    /// Only print whether the files are marked, and with which options
    #[arg(long, conflicts_with_all = ["page_size", "placement", "stacks", "shared", "strict", "no_inherit", "static_size", "no_image"])]
    pub show: bool,
    #[command(flatten)]
    pub launch: LaunchArgs,
    /// Keep text, data and bss in ordinary memory
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
