//! The options of `hpmmap pool`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use hpmmap_base::size::Size;

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
    /// alone and named. Those in which there is a memory error leave the pool,
    /// too, but stay offline and are named; the exit status is 1 then.
    Remove(PoolRemoveArgs),
    /// Make the pools what /etc/hpmmap/pools says
    ///
    /// Takes memory from Linux, or gives it back, until the pool of each node is as
    /// large as its line of the file says, or --size for --node. Done again it does
    /// nothing. A node without a line has no pool; a file without any line leaves all
    /// pools as they are. What jobs hold stays theirs: the memory blocks that are in the
    /// way are named, and go the next time. What Linux cannot give up is named, too, and
    /// what was possible is kept. The exit status is 1 where a pool is not what it is
    /// to be.
    Set(PoolSetArgs),
    /// Let Linux keep memory ready for the pools at the next boot
    ///
    /// Linux puts into memory reserved by 'movablecore=' only what it can move away, so
    /// that pools of this size can be had in full at any time. Writes that to
    /// /etc/default/grub.d/hpmmap.cfg, with what Linux itself puts there at boot in
    /// addition, and runs update-grub. Until a pool takes it the memory is Linux's.
    /// Without --node all nodes give their part. With it, the node is to have that much:
    /// since Linux keeps as much for itself on each node, others may reserve some, too.
    Reserve(PoolReserveArgs),
    /// Show the pools
    List(PoolListArgs),
    /// Print /proc/iomem without the memory of the pools
    ///
    /// kexec makes the list of what a crash kernel dumps from /proc/iomem when it is
    /// loaded. Shown this list in its place, it leaves the pools out of dumps:
    /// /usr/lib/hpmmap/kdump-load loads a crash kernel so. Again when memory was added
    /// to the pools or removed. Only root is told addresses.
    Iomem,
    /// Limit how much of the pools a user or a cgroup may hold
    ///
    /// Memory counts for the user and for the cgroup (version 2) of the process that
    /// gets it, and for all cgroups above; which these are is decided at execve and
    /// fork. A user without a limit of their own has the default one, half of all
    /// pool memory unless something else is set; root has none. Cgroups have none
    /// unless one is set, and it goes with the cgroup. A limit in percent follows the
    /// size of the pools. Who holds more than a new limit keeps it but gets no more.
    /// Who makes a user namespace is charged for all users in it; in one that root
    /// has made, each is.
    ///
    /// The service hpmmap-limits sets those of /etc/hpmmap/limits at every boot, and
    /// when the module is loaded again, with --load: a line each, 'user NAME SIZE',
    /// 'group NAME SIZE', 'cgroup PATH SIZE' or 'default SIZE'. For a cgroup that is not there yet at that
    /// time, reload it when it is. Other limits last until the module is unloaded.
    Limit(PoolLimitArgs),
}

/// How memory is taken from Linux.
#[derive(Debug, Clone, Copy, Args)]
pub struct TakingArgs {
    /// First use blocks that are offline already, such as after a crash
    #[arg(long)]
    pub offline_blocks: bool,
    /// Give up on a block that Linux cannot empty within this time
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub timeout: u32,
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
    /// Let --size be what the pool of the node is to have in all: add what is
    /// missing, nothing if it has as much
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
pub struct PoolSetArgs {
    /// NUMA node; may be left out if there is only one
    #[arg(long, value_name = "N", requires = "size")]
    pub node: Option<u32>,
    /// What the pool of the node is to have in all: 0, bytes, or a number with K, M, G
    /// or T; a multiple of the memory block size
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
    /// How much: bytes, or a number with K, M, G or T; a multiple of the memory block
    /// size
    #[arg(long)]
    pub size: Option<Size>,
    /// Undo it: the next boot is one without
    #[arg(long)]
    pub remove: bool,
}

#[derive(Debug, Args)]
pub struct PoolListArgs {
    /// Also show each memory block
    #[arg(short, long)]
    pub verbose: bool,
    /// Print what all pools have in all as a line of Slurm's gres.conf
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
    /// Every user without a limit of their own
    #[arg(long)]
    pub default: bool,
    /// A cgroup with all below it: path of its directory, or what /proc/PID/cgroup
    /// says
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,
    /// The limit: a multiple of 2M, a part of all pool memory as '50%', 'none', or
    /// 'default' for none of its own
    #[arg(long, value_name = "SIZE|N%|none|default", value_parser = parse_limit,
          required_unless_present_any = ["list", "load"], conflicts_with_all = ["list", "load"])]
    pub size: Option<Limit>,
    /// Show what everybody may hold, and does; to an ordinary user, what concerns them
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
