//! Moves memory between Linux and the pools. The algorithms work on a [`Machine`], so that tests
//! can simulate one for retries and undoing.

pub mod add;
pub mod choose;
pub mod config;
mod failure;
mod live;
mod machine;
pub mod plan;
pub mod remove;
pub mod set;
#[cfg(test)]
pub mod simulated;

use std::collections::BTreeMap;

use hpmmap_sys::uapi::{self, PoolRange};

pub use failure::{Failure, FailureReport, Step, summary};
pub use live::LiveMachine;
pub use machine::Machine;

/// A memory block of sysfs, as far as it is in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PooledBlock {
    /// The number N of memoryN.
    pub index: u64,
    /// Physical address of the block.
    pub start: u64,
    /// Bytes of it that are in the pool.
    pub pooled_bytes: u64,
    /// Bytes that are not held.
    pub free_bytes: u64,
    /// Bytes that no launch holds but that are still pinned.
    pub pinned_bytes: u64,
    /// Bytes of blocks with memory errors, which are never handed out.
    pub bad_bytes: u64,
    /// NUMA node.
    pub node: i32,
    /// It came from the zone for movable memory.
    pub movable: bool,
}

impl PooledBlock {
    /// Bytes that launches hold.
    pub fn busy_bytes(&self) -> u64 {
        self.pooled_bytes
            .saturating_sub(self.free_bytes)
            .saturating_sub(self.pinned_bytes)
            .saturating_sub(self.bad_bytes)
    }

    /// Is all of the memory block in the pool and unused?
    pub fn is_free(&self, block_bytes: u64) -> bool {
        self.pooled_bytes == block_bytes && self.free_bytes + self.bad_bytes == block_bytes
    }
}

/// Joins the module's ranges (sections) to memory blocks of sysfs, in order of address.
pub fn join_ranges(ranges: &[PoolRange], block_bytes: u64) -> Vec<PooledBlock> {
    let mut blocks: BTreeMap<u64, PooledBlock> = BTreeMap::new();
    for range in ranges {
        let index = range.start / block_bytes;
        let block = blocks.entry(index).or_insert(PooledBlock {
            index,
            start: index * block_bytes,
            pooled_bytes: 0,
            free_bytes: 0,
            pinned_bytes: 0,
            bad_bytes: 0,
            node: range.node,
            movable: range.flags & uapi::POOL_F_MOVABLE != 0,
        });
        block.pooled_bytes += range.length;
        block.free_bytes += range.free_bytes;
        block.pinned_bytes += range.pinned_bytes;
        block.bad_bytes += range.bad_bytes;
    }
    blocks.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_one_memory_block_are_joined() {
        let section = 128 << 20;
        let range = |nr: u64, free, pinned| PoolRange {
            start: nr * section,
            length: section,
            free_bytes: free,
            pinned_bytes: pinned,
            node: 1,
            flags: uapi::POOL_F_MOVABLE,
            bad_bytes: 0,
        };
        let ranges = [
            range(8, section, 0),
            range(9, section, 0),
            range(10, section, 0),
            range(11, section - 6, 2),
        ];
        let blocks = join_ranges(&ranges, 2 * section);
        assert_eq!(blocks.len(), 2);
        assert_eq!((blocks[0].index, blocks[0].start), (4, 8 * section));
        assert!(blocks[0].is_free(2 * section) && blocks[0].movable);
        assert_eq!(blocks[0].node, 1);
        assert!(!blocks[1].is_free(2 * section));
        assert_eq!(blocks[1].busy_bytes(), 4);
        assert_eq!(blocks[1].pinned_bytes, 2);
    }

    #[test]
    fn a_block_that_is_only_partly_pooled_is_not_free() {
        let section = 128 << 20;
        let ranges = [PoolRange {
            start: 8 * section,
            length: section,
            free_bytes: section,
            ..Default::default()
        }];
        assert!(!join_ranges(&ranges, 2 * section)[0].is_free(2 * section));
    }

    #[test]
    fn a_block_with_a_memory_error_can_leave_the_pool() {
        let section = 128 << 20;
        let ranges = [PoolRange {
            start: 8 * section,
            length: section,
            free_bytes: section - uapi::BLOCK_BYTES,
            bad_bytes: uapi::BLOCK_BYTES,
            ..Default::default()
        }];
        let block = join_ranges(&ranges, section)[0];
        assert!(block.is_free(section));
        assert_eq!(block.busy_bytes(), 0);
        assert_eq!(block.bad_bytes, uapi::BLOCK_BYTES);
    }
}
