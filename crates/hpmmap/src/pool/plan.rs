//! What can be taken, as far as can be seen before anything is touched.

use std::collections::HashSet;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::warn;
use hpmmap_base::size::{Size, multiple_of};
use hpmmap_host::memory::Block;

use super::PooledBlock;
use super::add::{Keep, Request};
use super::choose::{Candidate, Queue};

/// What Linux must keep, or it would have to kill processes.
pub const RESERVE_BYTES: u64 = 256 << 20;

/// How a node is.
#[derive(Debug)]
pub struct State {
    /// Its number.
    pub node: u32,
    /// Size of every memory block.
    pub block_bytes: u64,
    /// All its memory blocks.
    pub blocks: Vec<Block>,
    /// Those of them that are in a pool; others' do no harm.
    pub pooled: Vec<PooledBlock>,
    /// What Linux could give up.
    pub available: u64,
}

/// What is to be taken.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// How much.
    pub size: Size,
    /// What is kept of less.
    pub keep: Keep,
    /// Blocks that are offline already may be taken.
    pub offline_blocks: bool,
}

/// A request that this machine can fulfil, as far as can be seen.
#[derive(Debug)]
pub struct Plan {
    /// How many blocks.
    pub request: Request,
    /// Those that are offline already, to begin with.
    pub offline: Vec<Candidate>,
    /// The others.
    pub queue: Queue,
}

impl Plan {
    /// For a wish. What is too much is an error, or where less is kept a warning.
    pub fn new(wish: &Wish, state: &State) -> Result<Self> {
        let size = |blocks: u64| Size(blocks * state.block_bytes);
        let wanted = multiple_of(wish.size, state.block_bytes, "the memory block size")?;
        let pooled: HashSet<u64> = state.pooled.iter().map(|block| block.index).collect();
        let queue = Queue::new(&state.blocks, &pooled, state.block_bytes);
        let all_offline = Queue::already_offline(&state.blocks, &pooled);
        let unused = all_offline.len() as u64;
        let offline = if wish.offline_blocks {
            all_offline
        } else {
            Vec::new()
        };

        let less = wish.keep != Keep::Whole;
        let mut possible = offline.len() as u64 + queue.len() as u64;
        if possible < wanted {
            let mut text = format!(
                "node {} has only {} in memory blocks that can be taken, not {}",
                state.node,
                size(possible),
                wish.size
            );
            if unused > 0 && !wish.offline_blocks {
                text += &format!(
                    "; {} more are offline and in no pool (--offline-blocks uses them)",
                    size(unused)
                );
            }
            if !less || possible == 0 {
                return Err(Error::Failed(text));
            }
            warn(&text);
        }
        // Blocks that are offline already cost Linux nothing.
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
            if !less || possible == 0 {
                return Err(Error::Failed(text));
            }
            warn(&text);
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
        })
    }
}
