//! A machine for tests: a fixture tree to be read, and a module with the rules of the real one.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use hpmmap_host::fixture::Fixture;
use hpmmap_host::memory::{self, Block, Change, State};
use hpmmap_sys::uapi::{self, PoolRange};
use hpmmap_sys::{Errno, RemoveError};

use super::choose::{Candidate, Queue};
use super::{Machine, PooledBlock, join_ranges};

/// Size of a memory block.
pub const BLOCK: u64 = 128 << 20;

/// A memory block in the pool of a node, all of it, with bytes that are held and pinned.
pub fn pooled(node: i32, index: u64, busy: u64, pinned: u64) -> PooledBlock {
    PooledBlock {
        index,
        start: index * BLOCK,
        pooled_bytes: BLOCK,
        free_bytes: BLOCK - busy - pinned,
        pinned_bytes: pinned,
        bad_bytes: 0,
        node,
        movable: false,
    }
}

/// The simulated machine.
pub struct Simulated {
    fixture: Fixture,
    pool: BTreeMap<u64, PoolRange>,
    fail_offline: HashMap<u64, (Errno, u32)>,
    fail_online: HashMap<u64, Errno>,
    fail_pool_add: HashMap<u64, Errno>,
    attempts: HashMap<u64, u32>,
    changes: HashMap<u64, Change>,
    interrupted: bool,
    interrupt_after: Option<u64>,
}

impl Simulated {
    /// Node 0 with these memory blocks, online in one zone.
    pub fn new(blocks: Range<u64>, zone: &str) -> Self {
        let fixture = Fixture::new();
        fixture.block_size(BLOCK);
        fixture.nodes("0");
        for index in blocks {
            fixture.block(0, index, "online", zone);
        }
        Self {
            fixture,
            pool: BTreeMap::new(),
            fail_offline: HashMap::new(),
            fail_online: HashMap::new(),
            fail_pool_add: HashMap::new(),
            attempts: HashMap::new(),
            changes: HashMap::new(),
            interrupted: false,
            interrupt_after: None,
        }
    }

    /// Lets setting `block` offline fail the first `times` times.
    pub fn fail_offline(&mut self, block: u64, errno: Errno, times: u32) {
        self.fail_offline.insert(block, (errno, times));
    }

    /// Lets setting `block` online fail.
    pub fn fail_online(&mut self, block: u64, errno: Errno) {
        self.fail_online.insert(block, errno);
    }

    /// Lets the module refuse `block`.
    pub fn fail_pool_add(&mut self, block: u64, errno: Errno) {
        self.fail_pool_add.insert(block, errno);
    }

    /// Lets the user interrupt once `block` is offline.
    pub fn interrupt_after_offline(&mut self, block: u64) {
        self.interrupt_after = Some(block);
    }

    /// Lets the user interrupt now.
    pub fn interrupt(&mut self) {
        self.interrupted = true;
    }

    /// Sets `block` offline beforehand.
    pub fn set_offline_before(&mut self, block: u64) {
        memory::set_state(&self.fixture.root(), block, Change::Offline).unwrap();
    }

    /// Lets launches hold, and devices pin, bytes of a memory block in the pool.
    pub fn use_bytes(&mut self, block: u64, busy: u64, pinned: u64) {
        let range = self.pool.get_mut(&(block * BLOCK)).unwrap();
        range.free_bytes = range.length - busy - pinned;
        range.pinned_bytes = pinned;
    }

    pub fn blocks(&self) -> Vec<Block> {
        memory::blocks_of_node(&self.fixture.root(), 0).unwrap()
    }

    pub fn queue(&self) -> Queue {
        Queue::new(&self.blocks(), &self.pooled().into_iter().collect(), BLOCK)
    }

    pub fn already_offline(&self) -> Vec<Candidate> {
        Queue::already_offline(&self.blocks(), &self.pooled().into_iter().collect())
    }

    /// Numbers of the memory blocks in the pool.
    pub fn pooled(&self) -> Vec<u64> {
        self.pool.keys().map(|start| start / BLOCK).collect()
    }

    pub fn pooled_blocks(&self) -> Vec<PooledBlock> {
        let ranges: Vec<PoolRange> = self.pool.values().copied().collect();
        join_ranges(&ranges, BLOCK)
    }

    pub fn movable(&self, block: u64) -> bool {
        self.pool[&(block * BLOCK)].flags & uapi::POOL_F_MOVABLE != 0
    }

    pub fn state(&self, block: u64) -> State {
        memory::state(&self.fixture.root(), block).unwrap()
    }

    pub fn offline_attempts(&self, block: u64) -> u32 {
        self.attempts.get(&block).copied().unwrap_or(0)
    }

    /// The last successful change.
    pub fn last_change(&self, block: u64) -> Option<Change> {
        self.changes.get(&block).copied()
    }

    fn write_state(&self, block: u64, state: &str) {
        self.fixture.write(
            &format!("sys/devices/system/memory/memory{block}/state"),
            &format!("{state}\n"),
        );
    }
}

impl Machine for Simulated {
    fn set_state(&mut self, block: u64, change: Change) -> Result<(), Errno> {
        if change == Change::Offline {
            *self.attempts.entry(block).or_default() += 1;
            assert_eq!(self.state(block), State::Online, "memory{block}");
            match self.fail_offline.get_mut(&block) {
                Some((errno, times)) if *times > 0 => {
                    *times -= 1;
                    return Err(*errno);
                }
                _ => (),
            }
            self.write_state(block, "offline");
            self.interrupted |= self.interrupt_after == Some(block);
        } else {
            let pooled = self.pool.contains_key(&(block * BLOCK));
            assert!(!pooled, "memory{block} set online while in the pool");
            if let Some(errno) = self.fail_online.get(&block) {
                return Err(*errno);
            }
            self.write_state(block, "online");
        }
        self.changes.insert(block, change);
        Ok(())
    }

    fn pool_add(&mut self, start: u64, length: u64, node: u32, movable: bool) -> Result<(), Errno> {
        let block = start / BLOCK;
        if let Some(errno) = self.fail_pool_add.get(&block) {
            return Err(*errno);
        }
        if self.state(block) != State::Offline {
            return Err(Errno::EBUSY);
        }
        let range = PoolRange {
            start,
            length,
            free_bytes: length,
            pinned_bytes: 0,
            bad_bytes: 0,
            node: node as i32,
            flags: if movable { uapi::POOL_F_MOVABLE } else { 0 },
        };
        match self.pool.insert(start, range) {
            None => Ok(()),
            Some(_) => Err(Errno::EEXIST),
        }
    }

    fn pool_remove(&mut self, start: u64, _length: u64) -> Result<(), RemoveError> {
        let error = |errno, busy_bytes, pinned_bytes| RemoveError {
            errno,
            busy_bytes,
            pinned_bytes,
        };
        let range = self.pool.get(&start).ok_or(error(Errno::ENOENT, 0, 0))?;
        if range.free_bytes < range.length {
            let busy = range.length - range.free_bytes - range.pinned_bytes;
            return Err(error(Errno::EBUSY, busy, range.pinned_bytes));
        }
        self.pool.remove(&start);
        Ok(())
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted
    }
}
