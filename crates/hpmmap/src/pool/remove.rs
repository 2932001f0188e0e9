//! Giving memory of a pool back to Linux.

use std::collections::HashMap;

use hpmmap_host::memory::Change;
use hpmmap_sys::uapi;

use super::{Failure, Machine, PooledBlock, Step};

/// The outcome.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Memory blocks that were given back.
    pub removed: Vec<PooledBlock>,
    /// Memory blocks that stayed, or are stuck between pool and Linux.
    pub failures: Vec<Failure>,
    /// The user stopped it.
    pub interrupted: bool,
}

/// The unused memory blocks, in the order in which to give them back: first those of gigabytes of
/// which the pool has only parts, low addresses first; last those with memory errors, which Linux
/// does not accept.
pub fn free_blocks(blocks: &[PooledBlock], block_bytes: u64) -> Vec<PooledBlock> {
    let run = |block: &PooledBlock| block.start / uapi::LARGE_BYTES;
    let mut run_bytes: HashMap<u64, u64> = HashMap::new();
    let mut free: Vec<PooledBlock> = Vec::new();
    for block in blocks.iter().filter(|b| b.is_free(block_bytes)) {
        *run_bytes.entry(run(block)).or_default() += block_bytes;
        free.push(*block);
    }
    free.sort_by_key(|block| {
        let whole = run_bytes[&run(block)] >= uapi::LARGE_BYTES;
        (block.bad_bytes > 0, whole, block.start)
    });
    free
}

/// Gives back up to `wanted` of `candidates`. Another one is tried for each that got busy
/// meanwhile. `progress` gets the numbers of memory blocks given back and failed.
pub fn remove(
    machine: &mut impl Machine,
    candidates: &[PooledBlock],
    wanted: usize,
    block_bytes: u64,
    mut progress: impl FnMut(usize, usize),
) -> Outcome {
    let mut outcome = Outcome::default();
    for block in candidates {
        if outcome.removed.len() == wanted {
            break;
        }
        if machine.is_interrupted() {
            outcome.interrupted = true;
            break;
        }
        match give(machine, block, block_bytes) {
            Ok(()) => outcome.removed.push(*block),
            Err(failure) => {
                outcome.failures.push(failure);
                if failure.is_hopeless() {
                    break;
                }
            }
        }
        progress(outcome.removed.len(), outcome.failures.len());
    }
    outcome
}

fn give(machine: &mut impl Machine, block: &PooledBlock, block_bytes: u64) -> Result<(), Failure> {
    machine
        .pool_remove(block.start, block_bytes)
        .map_err(|error| Failure::remove(block.index, error))?;
    let change = if block.movable {
        Change::OnlineMovable
    } else {
        Change::Online
    };
    machine
        .set_state(block.index, change)
        .map_err(|errno| Failure::new(block.index, Step::Online, errno))
}

#[cfg(test)]
mod tests {
    use hpmmap_host::memory::State;
    use hpmmap_sys::Errno;

    use super::super::add;
    use super::super::simulated::{BLOCK, Simulated};
    use super::*;

    /// A machine with all its memory blocks in the pool.
    fn filled(blocks: std::ops::Range<u64>, zone: &str) -> Simulated {
        let mut machine = Simulated::new(blocks.clone(), zone);
        let queue = machine.queue();
        let request = add::Request {
            node: 0,
            block_bytes: BLOCK,
            blocks: blocks.end - blocks.start,
            keep: add::Keep::Whole,
        };
        let outcome = add::add(&mut machine, &request, Vec::new(), queue, |_, _| ());
        assert_eq!(outcome.end, add::End::Complete);
        machine
    }

    fn indices(blocks: &[PooledBlock]) -> Vec<u64> {
        blocks.iter().map(|b| b.index).collect()
    }

    #[test]
    fn free_blocks_go_back_online() {
        let mut machine = filled(32..36, "Normal");
        let free = free_blocks(&machine.pooled_blocks(), BLOCK);
        let outcome = remove(&mut machine, &free, 2, BLOCK, |_, _| ());
        assert_eq!(indices(&outcome.removed), [32, 33]);
        assert_eq!(machine.pooled(), [34, 35]);
        assert_eq!(machine.state(32), State::Online);
        assert_eq!(machine.last_change(32), Some(Change::Online));
    }

    #[test]
    fn movable_blocks_become_movable_again() {
        let mut machine = filled(32..33, "Movable");
        let free = free_blocks(&machine.pooled_blocks(), BLOCK);
        remove(&mut machine, &free, 1, BLOCK, |_, _| ());
        assert_eq!(machine.last_change(32), Some(Change::OnlineMovable));
    }

    #[test]
    fn whole_gigabytes_are_kept_longest() {
        // 32-39 is a whole gigabyte, 40-41 a part of one.
        let machine = filled(32..42, "Normal");
        let free = free_blocks(&machine.pooled_blocks(), BLOCK);
        assert_eq!(indices(&free)[..3], [40, 41, 32]);
    }

    #[test]
    fn blocks_with_memory_errors_come_last() {
        let machine = filled(32..36, "Normal");
        let mut blocks = machine.pooled_blocks();
        blocks[1].bad_bytes = 2 << 20;
        blocks[1].free_bytes -= 2 << 20;
        assert_eq!(indices(&free_blocks(&blocks, BLOCK)), [32, 34, 35, 33]);
    }

    #[test]
    fn used_blocks_are_not_candidates() {
        let mut machine = filled(32..36, "Normal");
        machine.use_bytes(33, 2 << 20, 0);
        machine.use_bytes(34, 0, 2 << 20);
        let free = free_blocks(&machine.pooled_blocks(), BLOCK);
        assert_eq!(indices(&free), [32, 35]);
    }

    #[test]
    fn a_block_that_got_busy_is_named_and_another_is_tried() {
        let mut machine = filled(32..36, "Normal");
        let free = free_blocks(&machine.pooled_blocks(), BLOCK);
        machine.use_bytes(32, 4 << 20, 2 << 20);
        let outcome = remove(&mut machine, &free, 2, BLOCK, |_, _| ());
        assert_eq!(indices(&outcome.removed), [33, 34]);
        assert_eq!(outcome.failures.len(), 1);
        let failure = outcome.failures[0];
        assert_eq!((failure.block, failure.errno), (32, Errno::EBUSY));
        assert_eq!(
            (failure.busy_bytes, failure.pinned_bytes),
            (4 << 20, 2 << 20)
        );
        assert_eq!(machine.state(32), State::Offline);
    }

    #[test]
    fn a_block_that_does_not_go_online_is_named() {
        let mut machine = filled(32..34, "Normal");
        machine.fail_online(32, Errno::EHWPOISON);
        let free = free_blocks(&machine.pooled_blocks(), BLOCK);
        let outcome = remove(&mut machine, &free, 2, BLOCK, |_, _| ());
        assert_eq!(indices(&outcome.removed), [33]);
        assert_eq!(
            outcome.failures,
            [Failure::new(32, Step::Online, Errno::EHWPOISON)]
        );
    }

    #[test]
    fn an_interruption_ends_it_between_two_blocks() {
        let mut machine = filled(32..34, "Normal");
        machine.interrupt();
        let free = free_blocks(&machine.pooled_blocks(), BLOCK);
        let outcome = remove(&mut machine, &free, 2, BLOCK, |_, _| ());
        assert!(outcome.interrupted);
        assert!(outcome.removed.is_empty());
        assert_eq!(machine.pooled(), [32, 33]);
    }
}
