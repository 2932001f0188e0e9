//! The options of `hpmmap pool`.

use clap::{ArgGroup, Args, Subcommand};

use crate::size::Size;

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
    /// Limits last until the module is unloaded. Who makes a user namespace is
    /// charged for all users in it; in one that root has made, each is.
    Limit(PoolLimitArgs),
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
