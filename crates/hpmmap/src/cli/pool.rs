//! The options of `hpmmap pool`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use hpmmap_base::size::Size;

use crate::promise::Promise;

#[derive(Debug, Subcommand)]
pub enum PoolVerb {
    /// Take memory from Linux into the pool of a NUMA node
    ///
    /// Sets memory blocks of the NUMA node offline and adds them to the pool. Movable
    /// memory blocks come first, then those that complete a gigabyte, then those at high
    /// addresses. In a virtual machine whose host tells (hpmmap vm agent), those with larger
    /// nested page-table entries come first. If Linux cannot give up a memory block, another
    /// one is tried. If the whole size cannot be had, all of it goes back to Linux and the
    /// exit status is 1.
    ///
    /// Linux keeps 2 GB or 5 % of the NUMA node, whichever is more, unless --leave says
    /// otherwise.
    Add(PoolAddArgs),
    /// Give memory of the pools back to Linux
    ///
    /// Takes free memory blocks out of the pool and sets them online, in the zone that
    /// they came from. Memory blocks in use stay in the pool and are named.
    ///
    /// A memory block with a memory error leaves the pool, stays offline and is named; the
    /// exit status is 1 then.
    Remove(PoolRemoveArgs),
    /// Make the pools as large as /etc/hpmmap/pools says
    ///
    /// Takes memory from Linux or gives it back until the pool of each NUMA node has the
    /// size of its line, or --size for --node. A second call changes nothing. A NUMA node
    /// without a line has no pool; a file without any line changes nothing.
    ///
    /// A pool keeps the memory that launches hold: these memory blocks are named, and go
    /// at the next call. If Linux cannot give up the whole size, the pool keeps what it
    /// got. Linux keeps 2 GB or 5 % of each NUMA node, whichever is more, unless --leave
    /// or a line 'leave SIZE' of the file says otherwise. While that line is wrong, no pool
    /// grows. A size larger than the NUMA node is an error.
    ///
    /// The exit status is 1 if a pool does not have its size. Each error names the file
    /// and the line.
    Set(PoolSetArgs),
    /// Reserve movable memory for the pools at the next boot
    ///
    /// Writes 'movablecore=' to /etc/default/grub.d/hpmmap.cfg and runs update-grub. From
    /// the next boot on Linux puts only movable pages into this memory, so pools of this
    /// size can be had in full at any time. Linux uses the memory until a pool takes it.
    ///
    /// Without --node all NUMA nodes give their part. With --node this NUMA node has the
    /// size. Others may then reserve some, too: Linux keeps the same amount for itself on
    /// each NUMA node.
    Reserve(PoolReserveArgs),
    /// Show the pools
    List(PoolListArgs),
    /// Print /proc/iomem without the memory of the pools
    ///
    /// kexec reads /proc/iomem when it loads a crash kernel, to know what to dump. With
    /// this list in its place dumps have no memory of the pools:
    /// /usr/lib/hpmmap/kdump-load loads a crash kernel in this way. Load it again after
    /// each change of the pools. Only root sees addresses.
    Iomem,
    /// Limit how much of the pools a user or a cgroup may hold, or promise it memory
    ///
    /// Pool memory is charged to the user of the process, to its cgroup (version 2) and to
    /// all cgroups above. A process with a limit that is reached gets ordinary memory, or
    /// ENOMEM with 'run --strict'.
    ///
    /// A user without a limit has the default limit: half of all pool memory unless
    /// --default changes it. root and cgroups have no limit unless one is set. The limit
    /// of a cgroup ends with the cgroup. A limit in percent follows the size of the pools.
    /// A user or cgroup that holds more than a new limit keeps it but gets no more. A user
    /// who makes a user namespace is charged for all users in it; in a namespace that root
    /// has made each user is charged.
    ///
    /// --min is the opposite of a limit: memory that the user or cgroup gets whenever it
    /// asks for it, per NUMA node. Other programs cannot take it, and it cannot leave the
    /// pools. A promise to a cgroup within another one with a promise is taken out of that.
    ///
    /// Limits and promises last until the module is unloaded. --load sets those of /etc/hpmmap/limits;
    /// the service hpmmap-limits does so at boot and when the module is loaded. See
    /// hpmmap-limits(5).
    Limit(PoolLimitArgs),
}

/// Options for taking memory from Linux.
#[derive(Debug, Clone, Copy, Args)]
pub struct TakingArgs {
    /// First use memory blocks that are offline already, such as after a crash of this
    /// command
    #[arg(long)]
    pub offline_blocks: bool,
    /// Memory that Linux keeps of each NUMA node; by default 2G or 5 % of the node,
    /// whichever is more, and nothing of a node with only movable memory (CXL)
    #[arg(long, value_name = "SIZE")]
    pub leave: Option<Size>,
    /// Give up on a memory block that Linux cannot empty within this time
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub timeout: u32,
}

#[derive(Debug, Args)]
pub struct PoolAddArgs {
    /// NUMA node to take memory from; optional if only one has memory
    #[arg(long, value_name = "N")]
    pub node: Option<u32>,
    /// Bytes, or a number with K, M, G or T; a multiple of the memory block size
    #[arg(long)]
    pub size: Size,
    /// Take --size as the total size of the pool, and add what is missing
    #[arg(long)]
    pub up_to: bool,
    /// Keep what was possible if the whole size cannot be had
    #[arg(long)]
    pub partial: bool,
    #[command(flatten)]
    pub taking: TakingArgs,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("amount").required(true).args(["size", "all"]))]
pub struct PoolRemoveArgs {
    /// NUMA node; optional if only one has memory. --all without it means every NUMA node
    #[arg(long, value_name = "N")]
    pub node: Option<u32>,
    /// Bytes, or a number with K, M, G or T; a multiple of the memory block size
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
pub struct PoolSetArgs {
    /// NUMA node; optional if only one has memory
    #[arg(long, value_name = "N", requires = "size")]
    pub node: Option<u32>,
    /// Total size of the pool: 0, bytes, or a number with K, M, G or T; a multiple of the
    /// memory block size
    #[arg(long, conflicts_with = "file")]
    pub size: Option<Size>,
    /// Read this file instead
    #[arg(long, default_value = "/etc/hpmmap/pools")]
    pub file: PathBuf,
    #[command(flatten)]
    pub taking: TakingArgs,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("amount").required(true).args(["size", "remove"]))]
pub struct PoolReserveArgs {
    /// NUMA node
    #[arg(long, value_name = "N", conflicts_with = "remove")]
    pub node: Option<u32>,
    /// Bytes, or a number with K, M, G or T; a multiple of the memory block size
    #[arg(long)]
    pub size: Option<Size>,
    /// Reserve nothing from the next boot on
    #[arg(long)]
    pub remove: bool,
}

#[derive(Debug, Args)]
pub struct PoolListArgs {
    /// Also show each memory block
    #[arg(short, long)]
    pub verbose: bool,
    /// Print the total size of all pools as a line of Slurm's gres.conf
    #[arg(long, conflicts_with_all = ["verbose", "json"])]
    pub gres: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Default, Args)]
#[command(group = ArgGroup::new("whom").required(true)
          .args(["user", "cgroup", "default", "list", "load"]))]
pub struct PoolLimitArgs {
    /// Name or number of the user
    #[arg(long, value_name = "NAME|UID")]
    pub user: Option<String>,
    /// Every user without a limit
    #[arg(long)]
    pub default: bool,
    /// A cgroup with all cgroups below it: the path of /proc/PID/cgroup, or the directory
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,
    /// The limit: 0 (nothing), a multiple of 2M, a share of all pool memory such as '50%',
    /// 'none' (no limit), or 'default' to drop this limit
    #[arg(long, value_name = "SIZE|N%|none|default", value_parser = parse_limit,
          required_unless_present_any = ["min", "list", "load"],
          conflicts_with_all = ["list", "load"])]
    pub size: Option<Limit>,
    /// Promise pool memory: a size, spread evenly over the NUMA nodes, one for each, such as
    /// 0:16G,1:16G, or 'none'
    ///
    /// As long as the user or cgroup holds less, no other gets the free memory that it
    /// lacks. A promise is refused if it cannot be kept, and ends with the cgroup. It
    /// replaces an earlier one.
    #[arg(long, value_name = "SIZE|N:SIZE,...|none",
          conflicts_with_all = ["default", "list", "load"])]
    pub min: Option<Promise>,
    /// Show what users and cgroups may hold, what they hold, and what is promised to them;
    /// a user other than root sees what concerns this user
    #[arg(long)]
    pub list: bool,
    /// Report as JSON
    #[arg(long, requires = "list")]
    pub json: bool,
    /// Set the limits of a file
    #[arg(long, value_name = "FILE", num_args = 0..=1,
          default_missing_value = "/etc/hpmmap/limits")]
    pub load: Option<PathBuf>,
}

/// A limit as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// No limit.
    None,
    /// None of its own.
    Default,
    /// At most this much.
    Size(Size),
    /// At most this part of all pool memory.
    Percent(u8),
}

pub fn parse_limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => return Ok(Limit::None),
        "default" => return Ok(Limit::Default),
        _ => (),
    }
    if let Some(percent) = text.strip_suffix('%') {
        return match percent.parse() {
            Ok(percent @ 1..=100) => Ok(Limit::Percent(percent)),
            _ => Err(format!("'{text}' is not between 1% and 100%")),
        };
    }
    text.parse()
        .map(Limit::Size)
        .map_err(|error| format!("{error}, '50%', 'none' or 'default'"))
}
