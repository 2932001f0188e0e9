//! Plans which memory to take, as far as it can be known beforehand.

use std::collections::HashSet;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::{Size, multiple_of, short};
use hpmmap_host::memory::{Block, State as BlockState, Zone};
use hpmmap_host::{Root, memory, node, process};

use super::PooledBlock;
use super::add::{Keep, Request};
use super::choose::{Candidate, Queue};
use crate::symbiosis::guest::{self, Told};

/// Of the available memory this much stays available: with less Linux would have to kill
/// processes.
pub const RESERVE_BYTES: u64 = 256 << 20;

/// The least memory that Linux keeps of a NUMA node, and the share, unless told otherwise.
pub const LEAVE_BYTES: u64 = 2 << 30;
pub const LEAVE_PERCENT: u64 = 5;

/// The state of a node.
#[derive(Debug)]
pub struct State {
    /// Its number.
    pub node: u32,
    /// Size of every memory block.
    pub block_bytes: u64,
    /// All its memory blocks.
    pub blocks: Vec<Block>,
    /// The parts of it that are in a pool; entries of other nodes do no harm.
    pub pooled: Vec<PooledBlock>,
    /// Ordinary memory of the node.
    pub linux: u64,
    /// Memory that Linux could give up, on all nodes.
    pub available: u64,
    /// What the host tells, in a virtual machine.
    pub host: Option<Box<Told>>,
}

impl State {
    /// Reads the state of a node of this machine.
    pub fn read(
        root: &Root,
        node: u32,
        block_bytes: u64,
        pooled: Vec<PooledBlock>,
    ) -> Result<Self> {
        Ok(Self {
            node,
            block_bytes,
            blocks: memory::blocks_of_node(root, node)?,
            pooled,
            linux: node::linux_bytes(root, node)?,
            available: process::available_bytes(root)?,
            host: guest::told(root),
        })
    }

    /// The memory of the node that Linux keeps unless told otherwise: none of a node with only
    /// movable memory, such as CXL.
    pub fn left(&self) -> u64 {
        let mut online = self
            .blocks
            .iter()
            .filter(|block| block.state == BlockState::Online)
            .peekable();
        if online.peek().is_some() && online.all(|block| block.zone == Zone::Movable) {
            return 0;
        }
        let of_node = |block: &&PooledBlock| i64::from(block.node) == i64::from(self.node);
        let pooled = self.pooled.iter().filter(of_node);
        let all = self.linux + pooled.map(|block| block.pooled_bytes).sum::<u64>();
        LEAVE_BYTES.max(all / 100 * LEAVE_PERCENT)
    }
}

/// The memory to take.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// The size.
    pub size: Size,
    /// The memory to keep if the size cannot be had.
    pub keep: Keep,
    /// The memory blocks to choose from.
    pub taking: Taking,
}

/// The memory that may be taken.
#[derive(Debug, Clone, Copy, Default)]
pub struct Taking {
    /// Also use memory blocks that are offline already.
    pub offline_blocks: bool,
    /// Memory that Linux keeps of the node, if given.
    pub leave: Option<Size>,
}

/// A request that this machine can fulfil, as far as it can be known.
#[derive(Debug)]
pub struct Plan {
    /// The request.
    pub request: Request,
    /// Memory blocks that are offline already, which come first.
    pub offline: Vec<Candidate>,
    /// The other memory blocks.
    pub queue: Queue,
    /// Reasons why the request is for less than the wish.
    pub less: Vec<String>,
}

impl Plan {
    /// Plans a wish. If it is too large, that is an error unless less may be kept.
    pub fn new(wish: &Wish, state: &State) -> Result<Self> {
        let size = |blocks: u64| Size(blocks * state.block_bytes);
        let wanted = multiple_of(wish.size, state.block_bytes, "the memory block size")?;
        let pooled: HashSet<u64> = state.pooled.iter().map(|block| block.index).collect();
        let mut queue = Queue::new(&state.blocks, &pooled, state.block_bytes);
        if let Some(host) = &state.host {
            queue.prefer(|address| host.nested_bytes(address));
        }
        let all_offline = Queue::already_offline(&state.blocks, &pooled);
        let unused = all_offline.len() as u64;
        let offline = if wish.taking.offline_blocks {
            all_offline
        } else {
            Vec::new()
        };

        let mut less = Vec::new();
        let mut possible = offline.len() as u64 + queue.len() as u64;
        if possible < wanted {
            let mut text = format!(
                "node {} has only {} in memory blocks that can be taken, not {}",
                state.node,
                size(possible),
                wish.size
            );
            if unused > 0 && !wish.taking.offline_blocks {
                text += &format!(
                    "; {} more are offline and in no pool (--offline-blocks uses them)",
                    size(unused)
                );
            }
            less.push(refused(wish, possible, text)?);
        }
        // Memory blocks that are offline already take no memory from Linux.
        let left = wish
            .taking
            .leave
            .map_or_else(|| state.left(), |size| size.0);
        let spare = state.linux.saturating_sub(left) / state.block_bytes;
        if wanted.min(possible) > offline.len() as u64 + spare {
            possible = offline.len() as u64 + spare;
            let text = format!(
                "Linux has {} of NUMA node {} and keeps {} unless 'leave' says less: \
                 {} can be taken, not {}",
                short(state.linux),
                state.node,
                short(left),
                size(possible),
                wish.size
            );
            less.push(refused(wish, possible, text)?);
        }
        let spare = state.available.saturating_sub(RESERVE_BYTES) / state.block_bytes;
        if wanted.min(possible) > offline.len() as u64 + spare {
            possible = offline.len() as u64 + spare;
            let text = format!(
                "Linux can spare only {} ({} are available, {} stay with it), not {}",
                size(possible),
                Size(state.available >> 20 << 20),
                Size(RESERVE_BYTES),
                wish.size
            );
            less.push(refused(wish, possible, text)?);
        }
        let request = Request {
            node: state.node,
            block_bytes: state.block_bytes,
            blocks: wanted.min(possible),
            keep: wish.keep,
        };
        Ok(Self {
            request,
            offline,
            queue,
            less,
        })
    }
}

/// The message that only `possible` memory blocks can be had: an error unless fewer may be kept.
fn refused(wish: &Wish, possible: u64, text: String) -> Result<String> {
    if wish.keep == Keep::Whole || possible == 0 {
        return Err(Error::Failed(text));
    }
    Ok(text)
}
