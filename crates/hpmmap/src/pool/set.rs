//! Gives a pool the requested size, whatever its size is.

use hpmmap_base::error::Result;
use hpmmap_base::size::Size;

use super::add::{self, Keep};
use super::plan::{Plan, State, Taking, Wish};
use super::remove::{self, free_blocks};
use super::{Machine, PooledBlock};

/// The change that gives a pool its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    None,
    /// This many memory blocks are missing.
    Missing(u64),
    /// This many memory blocks are too many.
    TooMuch(u64),
}

/// A missing part of a memory block takes a whole one; an excess part stays.
fn difference(has: u64, wanted: u64, block_bytes: u64) -> Difference {
    match (
        wanted.saturating_sub(has).div_ceil(block_bytes),
        has.saturating_sub(wanted) / block_bytes,
    ) {
        (0, 0) => Difference::None,
        (0, blocks) => Difference::TooMuch(blocks),
        (blocks, _) => Difference::Missing(blocks),
    }
}

/// The change that was made.
#[derive(Debug)]
pub enum Done {
    /// None: the pool has its size.
    Nothing,
    /// Memory was taken from Linux, or could not be taken.
    Added(add::Outcome),
    /// Memory was given back to Linux, as far as no launch holds it.
    Removed(remove::Outcome),
}

/// The outcome for one pool.
#[derive(Debug)]
pub struct Brought {
    /// The requested bytes.
    pub wanted: u64,
    /// The bytes before.
    pub had: u64,
    /// The change that was made.
    pub done: Done,
    /// Memory blocks that would have been given back but are in use.
    pub in_use: Vec<PooledBlock>,
    /// Reasons why less than the missing memory could be taken.
    pub less: Vec<String>,
}

/// The bytes that a node's pool has.
pub fn bytes(state: &State) -> u64 {
    state.pooled.iter().map(|block| block.pooled_bytes).sum()
}

impl Brought {
    /// The bytes that the pool has now.
    pub fn has(&self, block_bytes: u64) -> u64 {
        match &self.done {
            Done::Nothing => self.had,
            Done::Added(outcome) => self.had + outcome.added().len() as u64 * block_bytes,
            Done::Removed(outcome) => {
                let gone: u64 = outcome.removed.iter().map(|block| block.pooled_bytes).sum();
                self.had - gone
            }
        }
    }

    /// Does the pool have its size, as far as whole memory blocks allow?
    pub fn is_done(&self, block_bytes: u64) -> bool {
        difference(self.has(block_bytes), self.wanted, block_bytes) == Difference::None
    }
}

/// Gives the pool of a node the size `wanted`, or as near to it as possible: launches keep the
/// memory they hold, and Linux keeps what it cannot give up. `progress` gets the numbers of memory
/// blocks done and failed.
pub fn bring(
    machine: &mut impl Machine,
    state: &State,
    wanted: u64,
    taking: Taking,
    progress: impl FnMut(usize, usize),
) -> Result<Brought> {
    let had = bytes(state);
    let mut brought = Brought {
        wanted,
        had,
        done: Done::Nothing,
        in_use: Vec::new(),
        less: Vec::new(),
    };
    match difference(had, wanted, state.block_bytes) {
        Difference::None => (),
        Difference::Missing(blocks) => {
            let wish = Wish {
                size: Size(blocks * state.block_bytes),
                keep: Keep::Any,
                taking,
            };
            let plan = Plan::new(&wish, state)?;
            brought.less = plan.less;
            let outcome = add::add(machine, &plan.request, plan.offline, plan.queue, progress);
            brought.done = Done::Added(outcome);
        }
        Difference::TooMuch(blocks) => {
            let wanted = usize::try_from(blocks).unwrap_or(usize::MAX);
            let candidates = free_blocks(&state.pooled, state.block_bytes);
            let outcome = remove::remove(machine, &candidates, wanted, state.block_bytes, progress);
            if outcome.removed.len() < wanted {
                let used = |block: &&PooledBlock| !block.is_free(state.block_bytes);
                brought.in_use = state.pooled.iter().filter(used).copied().collect();
            }
            brought.done = Done::Removed(outcome);
        }
    }
    Ok(brought)
}

#[cfg(test)]
mod tests {
    use hpmmap_host::memory::State as BlockState;
    use hpmmap_sys::Errno;

    use super::super::add::End;
    use super::super::plan::RESERVE_BYTES;
    use super::super::simulated::{BLOCK, Simulated};
    use super::*;

    fn state(machine: &Simulated) -> State {
        State {
            node: 0,
            block_bytes: BLOCK,
            blocks: machine.blocks(),
            pooled: machine.pooled_blocks(),
            linux: 1 << 40,
            available: 1 << 40,
            host: None,
        }
    }

    fn set(machine: &mut Simulated, blocks: u64) -> Brought {
        let state = state(machine);
        let brought = bring(
            machine,
            &state,
            blocks * BLOCK,
            Taking::default(),
            |_, _| (),
        )
        .unwrap();
        assert_eq!(
            brought.has(BLOCK),
            machine.pooled().len() as u64 * BLOCK,
            "{brought:?}"
        );
        brought
    }

    #[test]
    fn the_same_size_twice_is_the_same_as_once() {
        let mut machine = Simulated::new(32..48, "Normal");
        assert!(set(&mut machine, 4).is_done(BLOCK));
        let pooled = machine.pooled();
        assert_eq!(pooled.len(), 4);
        for _ in 0..3 {
            let brought = set(&mut machine, 4);
            assert!(matches!(brought.done, Done::Nothing), "{brought:?}");
            assert_eq!(machine.pooled(), pooled);
        }
    }

    #[test]
    fn it_grows_and_shrinks_to_what_it_is_to_be() {
        let mut machine = Simulated::new(32..48, "Normal");
        for blocks in [4, 9, 2, 2, 16, 0, 0, 1] {
            assert!(set(&mut machine, blocks).is_done(BLOCK));
            assert_eq!(machine.pooled().len() as u64, blocks);
        }
        assert_eq!(machine.state(40), BlockState::Online);
    }

    #[test]
    fn what_jobs_hold_stays_theirs() {
        let mut machine = Simulated::new(32..36, "Normal");
        set(&mut machine, 4);
        machine.use_bytes(33, 4 << 20, 0);
        machine.use_bytes(34, 0, 2 << 20);
        let brought = set(&mut machine, 1);
        assert_eq!(machine.pooled(), [33, 34]);
        assert!(!brought.is_done(BLOCK));
        let named: Vec<u64> = brought.in_use.iter().map(|block| block.index).collect();
        assert_eq!(named, [33, 34]);
        // Once no launch holds it, the rest is given back.
        machine.use_bytes(33, 0, 0);
        machine.use_bytes(34, 0, 0);
        assert!(set(&mut machine, 1).is_done(BLOCK));
    }

    #[test]
    fn a_pool_that_is_in_use_grows_by_what_is_missing_only() {
        let mut machine = Simulated::new(32..48, "Normal");
        set(&mut machine, 2);
        for block in machine.pooled() {
            machine.use_bytes(block, BLOCK, 0);
        }
        assert!(matches!(set(&mut machine, 2).done, Done::Nothing));
        set(&mut machine, 3);
        assert_eq!(machine.pooled().len(), 3);
    }

    #[test]
    fn less_is_kept_and_the_next_time_goes_on_from_there() {
        let mut machine = Simulated::new(32..36, "Normal");
        machine.fail_offline(34, Errno::EBUSY, 2);
        let brought = set(&mut machine, 4);
        assert!(!brought.is_done(BLOCK));
        assert_eq!(machine.pooled(), [32, 33, 35]);
        let Done::Added(outcome) = &brought.done else {
            panic!("{brought:?}");
        };
        assert_eq!(outcome.end, End::Short);
        assert_eq!(outcome.failures.len(), 1);
        assert!(set(&mut machine, 4).is_done(BLOCK));
    }

    #[test]
    fn an_interruption_keeps_what_was_taken() {
        let mut machine = Simulated::new(32..48, "Normal");
        machine.interrupt_after_offline(46);
        let brought = set(&mut machine, 8);
        assert_eq!(machine.pooled(), [46, 47]);
        assert!(!brought.is_done(BLOCK));
    }

    #[test]
    fn linux_keeps_what_it_needs() {
        let mut machine = Simulated::new(32..48, "Normal");
        let mut state = state(&machine);
        state.available = RESERVE_BYTES + 3 * BLOCK;
        let mut bring =
            |state: &State| bring(&mut machine, state, 8 * BLOCK, Taking::default(), |_, _| ());
        let brought = bring(&state).unwrap();
        assert_eq!(brought.has(BLOCK), 3 * BLOCK);
        assert!(!brought.is_done(BLOCK));
        assert!(
            brought.less[0].starts_with("Linux can spare only 384M"),
            "{brought:?}"
        );
        state.available = RESERVE_BYTES;
        assert!(bring(&state).is_err());
    }

    #[test]
    fn blocks_that_are_offline_already_are_taken_only_if_that_is_asked_for() {
        let mut machine = Simulated::new(32..36, "Normal");
        machine.set_offline_before(35);
        set(&mut machine, 1);
        assert_eq!(machine.pooled(), [34]);
        let state = state(&machine);
        let taking = Taking {
            offline_blocks: true,
            leave: None,
        };
        bring(&mut machine, &state, 2 * BLOCK, taking, |_, _| ()).unwrap();
        assert_eq!(machine.pooled(), [34, 35]);
    }

    #[test]
    fn parts_of_a_block_are_no_reason_to_give_it_back() {
        assert_eq!(difference(BLOCK, BLOCK, BLOCK), Difference::None);
        assert_eq!(difference(BLOCK + 1, BLOCK, BLOCK), Difference::None);
        assert_eq!(difference(BLOCK - 1, BLOCK, BLOCK), Difference::Missing(1));
        assert_eq!(difference(3 * BLOCK, 0, BLOCK), Difference::TooMuch(3));
    }
}
