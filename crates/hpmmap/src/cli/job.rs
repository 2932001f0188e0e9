//! The options of `hpmmap run`, `mark` and `unmark`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hpmmap_base::error::{Error, Result};
use hpmmap_sys::uapi;

use crate::allocator::Malloc;
use crate::launch::{Options, Placement, Shared, Stacks};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PageSize {
    #[value(name = "2M", alias = "2MiB")]
    TwoMega,
    #[value(name = "1G", alias = "1GiB")]
    OneGiga,
}

impl PageSize {
    /// How many bytes it has.
    fn bytes(self) -> u64 {
        match self {
            Self::TwoMega => uapi::BLOCK_BYTES,
            Self::OneGiga => uapi::LARGE_BYTES,
        }
    }
}

/// What the launcher asks for, and a mark can.
#[derive(Debug, Args)]
pub struct LaunchArgs {
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
    /// Where memory lies for which the program has no memory policy of its
    /// own (set_mempolicy, mbind, numactl)
    #[arg(long, value_enum, value_name = "HOW", default_value = "local")]
    pub placement: Placement,
    /// When stacks have their memory, the main one and those of threads
    #[arg(long, value_enum, value_name = "WHEN", default_value = "grow")]
    pub stacks: Stacks,
    /// Where memory comes from that processes share without naming it in a
    /// file system: mmap with MAP_SHARED and MAP_ANONYMOUS, memfd_create, shmget
    #[arg(long, value_enum, value_name = "WHOSE", default_value = "pools")]
    pub shared: Shared,
    /// Fail allocations when the pools are used up, instead of using memory
    /// of Linux
    #[arg(long)]
    pub strict: bool,
    /// Leave out the programs that child processes execute
    #[arg(long)]
    pub no_inherit: bool,
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
            image,
            strict: self.strict,
            no_inherit: self.no_inherit,
            placement: self.placement,
            stacks: self.stacks,
            shared: self.shared,
            page_size: self.page_size.bytes(),
        })
    }
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub launch: LaunchArgs,
    /// Take memory only from these NUMA nodes, such as 0,2-3, whatever the
    /// memory policies of the program say
    #[arg(long, value_name = "LIST")]
    pub node: Option<String>,
    /// Register only programs with this file name, such as 'lmp*'; may be given several times
    ///
    /// The others (a launcher, shells, helpers) stay Linux's, and what they start
    /// is registered if it matches. '*', '?' and '[...]' are what they are in a
    /// shell, but match a dot and a slash, too. A PATTERN with a slash is compared with
    /// the path that the program is executed by. Of a script its own name counts, and
    /// that of the interpreter.
    #[arg(long, value_name = "PATTERN")]
    pub only: Vec<OsString>,
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
    /// program does. FILE is replaced in one step. In its name %h is the name of
    /// the host, %r the rank in MPI or Slurm, %p hpmmap's process number, %j the
    /// number of the batch job, and %% a %. Format: docs/report.md.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The same on standard error, in a few lines
    #[arg(short, long)]
    pub verbose: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct MarkArgs {
    /// Only tell whether the files are marked, and how
    #[arg(long, conflicts_with_all = ["page_size", "placement", "stacks", "shared", "strict", "no_inherit", "no_image"])]
    pub show: bool,
    #[command(flatten)]
    pub launch: LaunchArgs,
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
