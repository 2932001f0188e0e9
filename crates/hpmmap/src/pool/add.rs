//! Taking memory from Linux into a pool.

use hpmmap_host::memory::{Change, Zone};
use hpmmap_sys::{Errno, uapi};

use super::choose::{Candidate, Queue};
use super::{Failure, Machine, Step};

/// The memory to keep if the whole size cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Whole,
    /// As much as was possible.
    Less,
    /// All that was taken before the end, also after a signal or a failure.
    Any,
}

/// The task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// NUMA node.
    pub node: u32,
    /// Size of a memory block.
    pub block_bytes: u64,
    /// Number of memory blocks.
    pub blocks: u64,
    /// The memory to keep if there are fewer.
    pub keep: Keep,
}

/// The reason for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All memory blocks were taken.
    Complete,
    /// Fewer.
    Short,
    /// The user stopped it.
    Interrupted,
    /// The last failure concerns every block.
    Hopeless(Failure),
}

/// The outcome.
#[derive(Debug)]
pub struct Outcome {
    /// The reason for the end.
    pub end: End,
    /// Memory blocks that were taken, kept or not.
    pub taken: Vec<Candidate>,
    /// They are in the pool; otherwise they were given back.
    pub kept: bool,
    /// Memory blocks that could not be taken.
    pub failures: Vec<Failure>,
    /// Memory blocks that could not be given back.
    pub stranded: Vec<Failure>,
}

impl Outcome {
    /// Memory blocks that this call has added to the pool.
    pub fn added(&self) -> &[Candidate] {
        if self.kept { &self.taken } else { &[] }
    }
}

/// Takes memory blocks: first those of `offline`, which are offline already, then those of
/// `queue`. For each failure another one is tried; those whose failure may pass are tried once
/// more at the end. While at least a whole gigabyte is missing, the rest of a gigabyte with a
/// failed memory block waits until whole ones are used up. `progress` gets the numbers of memory
/// blocks taken and failed.
pub fn add(
    machine: &mut impl Machine,
    request: &Request,
    offline: Vec<Candidate>,
    mut queue: Queue,
    mut progress: impl FnMut(usize, usize),
) -> Outcome {
    let mut outcome = Outcome {
        end: End::Complete,
        taken: Vec::new(),
        kept: true,
        failures: Vec::new(),
        stranded: Vec::new(),
    };
    let mut offline = offline.into_iter();
    let mut again: Vec<Candidate> = Vec::new();
    let mut second_round = false;
    while (outcome.taken.len() as u64) < request.blocks {
        if machine.is_interrupted() {
            outcome.end = End::Interrupted;
            break;
        }
        let candidate = match offline.next().or_else(|| queue.next()) {
            Some(candidate) => candidate,
            None if !second_round && !again.is_empty() => {
                second_round = true;
                outcome.failures.retain(|failure| !failure.is_passing());
                offline = std::mem::take(&mut again).into_iter();
                continue;
            }
            None => {
                outcome.end = End::Short;
                break;
            }
        };
        match take(machine, request, &candidate, &mut outcome.stranded) {
            Ok(()) => outcome.taken.push(candidate),
            Err(failure) if failure.errno == Errno::EINTR => {
                outcome.end = End::Interrupted;
                break;
            }
            Err(failure) => {
                outcome.failures.push(failure);
                if failure.is_hopeless() {
                    outcome.end = End::Hopeless(failure);
                    break;
                }
                let missing = request.blocks - outcome.taken.len() as u64;
                if missing * request.block_bytes >= uapi::LARGE_BYTES {
                    queue.demote(&candidate);
                }
                if failure.is_passing() && !second_round {
                    again.push(candidate);
                }
            }
        }
        progress(outcome.taken.len(), outcome.failures.len());
    }
    let keep = match outcome.end {
        End::Complete => true,
        End::Short => request.keep != Keep::Whole,
        End::Interrupted | End::Hopeless(_) => request.keep == Keep::Any,
    };
    if !keep {
        give_back(machine, request, &mut outcome);
    }
    outcome
}

fn take(
    machine: &mut impl Machine,
    request: &Request,
    candidate: &Candidate,
    stranded: &mut Vec<Failure>,
) -> Result<(), Failure> {
    let fail = |step, errno| Failure::new(candidate.index, step, errno);
    if candidate.online {
        machine
            .set_state(candidate.index, Change::Offline)
            .map_err(|errno| fail(Step::Offline, errno))?;
    }
    let movable = candidate.zone == Zone::Movable;
    machine
        .pool_add(candidate.start, request.block_bytes, request.node, movable)
        .map_err(|errno| {
            stranded.extend(set_online(machine, candidate).err());
            fail(Step::PoolAdd, errno)
        })
}

/// Gives back all of `outcome.taken`, the last first.
fn give_back(machine: &mut impl Machine, request: &Request, outcome: &mut Outcome) {
    outcome.kept = false;
    for candidate in outcome.taken.iter().rev() {
        let undone = machine
            .pool_remove(candidate.start, request.block_bytes)
            .map_err(|error| Failure::remove(candidate.index, error))
            .and_then(|()| set_online(machine, candidate));
        outcome.stranded.extend(undone.err());
    }
}

/// Sets a memory block online in the zone that it came from.
fn set_online(machine: &mut impl Machine, candidate: &Candidate) -> Result<(), Failure> {
    if !candidate.online {
        return Ok(());
    }
    let change = match candidate.zone {
        Zone::Movable => Change::OnlineMovable,
        _ => Change::Online,
    };
    machine
        .set_state(candidate.index, change)
        .map_err(|errno| Failure::new(candidate.index, Step::Online, errno))
}

#[cfg(test)]
mod tests {
    use hpmmap_host::memory::State;

    use super::super::simulated::{BLOCK, Simulated};
    use super::*;

    fn request(blocks: u64, less: bool) -> Request {
        Request {
            node: 0,
            block_bytes: BLOCK,
            blocks,
            keep: if less { Keep::Less } else { Keep::Whole },
        }
    }

    fn run(machine: &mut Simulated, request: Request) -> Outcome {
        let queue = machine.queue();
        add(machine, &request, Vec::new(), queue, |_, _| ())
    }

    fn indices(candidates: &[Candidate]) -> Vec<u64> {
        candidates.iter().map(|c| c.index).collect()
    }

    #[test]
    fn blocks_go_offline_and_into_the_pool() {
        let mut machine = Simulated::new(32..40, "Normal");
        let outcome = run(&mut machine, request(2, false));
        assert_eq!(outcome.end, End::Complete);
        assert_eq!(indices(outcome.added()), [39, 38]);
        assert_eq!(machine.pooled(), [38, 39]);
        assert_eq!(machine.state(39), State::Offline);
        assert_eq!(machine.state(37), State::Online);
        assert!(!machine.movable(39));
    }

    #[test]
    fn movable_memory_is_marked() {
        let mut machine = Simulated::new(32..40, "Movable");
        run(&mut machine, request(1, false));
        assert!(machine.movable(39));
    }

    #[test]
    fn a_busy_block_is_replaced_by_another_and_named() {
        let mut machine = Simulated::new(32..40, "Normal");
        machine.fail_offline(39, Errno::EBUSY, 1);
        let outcome = run(&mut machine, request(7, false));
        assert_eq!(outcome.end, End::Complete);
        assert_eq!(machine.pooled(), (32..39).collect::<Vec<_>>());
        assert_eq!(
            outcome.failures,
            [Failure::new(39, Step::Offline, Errno::EBUSY)]
        );
        assert_eq!(machine.state(39), State::Online);
    }

    #[test]
    fn a_small_request_stays_in_the_gigabyte_it_began() {
        let mut machine = Simulated::new(32..48, "Normal");
        machine.fail_offline(46, Errno::EBUSY, 9);
        run(&mut machine, request(4, false));
        assert_eq!(machine.pooled(), [43, 44, 45, 47]);
    }

    #[test]
    fn a_large_request_leaves_a_broken_gigabyte_for_a_whole_one() {
        let mut machine = Simulated::new(32..48, "Normal");
        machine.fail_offline(47, Errno::EBUSY, 9);
        run(&mut machine, request(8, false));
        assert_eq!(machine.pooled(), (32..40).collect::<Vec<_>>());
    }

    #[test]
    fn a_block_that_was_busy_is_tried_again_at_the_end() {
        let mut machine = Simulated::new(32..40, "Normal");
        machine.fail_offline(39, Errno::EBUSY, 1);
        let outcome = run(&mut machine, request(8, false));
        assert_eq!(outcome.end, End::Complete);
        assert_eq!(outcome.failures, []);
        assert_eq!(machine.pooled(), (32..40).collect::<Vec<_>>());
    }

    #[test]
    fn a_block_that_stays_busy_is_tried_twice_and_named_once() {
        let mut machine = Simulated::new(32..40, "Normal");
        machine.fail_offline(39, Errno::EBUSY, 99);
        machine.fail_offline(38, Errno::EINVAL, 99);
        let outcome = run(&mut machine, request(8, true));
        assert_eq!(outcome.end, End::Short);
        assert_eq!(machine.offline_attempts(39), 2);
        assert_eq!(machine.offline_attempts(38), 1);
        let failed: Vec<u64> = outcome.failures.iter().map(|f| f.block).collect();
        assert_eq!(failed, [38, 39]);
    }

    #[test]
    fn too_little_is_given_back_completely() {
        let mut machine = Simulated::new(32..40, "Movable");
        machine.fail_offline(33, Errno::EBUSY, 99);
        let outcome = run(&mut machine, request(8, false));
        assert_eq!(outcome.end, End::Short);
        assert_eq!(outcome.taken.len(), 7);
        assert_eq!(outcome.added(), []);
        assert_eq!(outcome.stranded, []);
        assert!(machine.pooled().is_empty());
        for index in 32..40 {
            assert_eq!(machine.state(index), State::Online);
        }
        assert_eq!(machine.last_change(39), Some(Change::OnlineMovable));
    }

    #[test]
    fn partial_keeps_what_was_possible() {
        let mut machine = Simulated::new(32..40, "Normal");
        machine.fail_offline(33, Errno::EBUSY, 99);
        let outcome = run(&mut machine, request(8, true));
        assert_eq!(outcome.end, End::Short);
        assert_eq!(outcome.added().len(), 7);
        assert_eq!(machine.pooled().len(), 7);
    }

    #[test]
    fn a_block_the_module_refuses_goes_online_again() {
        let mut machine = Simulated::new(32..40, "Normal");
        machine.fail_pool_add(39, Errno::EXDEV);
        let outcome = run(&mut machine, request(1, false));
        assert_eq!(outcome.end, End::Complete);
        assert_eq!(machine.pooled(), [38]);
        assert_eq!(machine.state(39), State::Online);
        assert_eq!(machine.last_change(39), Some(Change::Online));
    }

    #[test]
    fn no_permission_ends_it_at_the_first_block() {
        let mut machine = Simulated::new(32..40, "Normal");
        for index in 32..40 {
            machine.fail_pool_add(index, Errno::EPERM);
        }
        let outcome = run(&mut machine, request(4, true));
        let failure = Failure::new(39, Step::PoolAdd, Errno::EPERM);
        assert_eq!(outcome.end, End::Hopeless(failure));
        assert_eq!(machine.offline_attempts(38), 0);
        assert_eq!(machine.state(39), State::Online);
    }

    #[test]
    fn an_interruption_gives_everything_back_even_with_partial() {
        let mut machine = Simulated::new(32..40, "Normal");
        machine.fail_offline(36, Errno::EINTR, 1);
        let outcome = run(&mut machine, request(8, true));
        assert_eq!(outcome.end, End::Interrupted);
        assert!(machine.pooled().is_empty());
        assert_eq!(machine.state(39), State::Online);
    }

    #[test]
    fn an_interruption_between_two_blocks_is_noticed() {
        let mut machine = Simulated::new(32..40, "Normal");
        machine.interrupt_after_offline(38);
        let outcome = run(&mut machine, request(8, false));
        assert_eq!(outcome.end, End::Interrupted);
        assert_eq!(outcome.taken.len(), 2);
        assert!(machine.pooled().is_empty());
    }

    #[test]
    fn what_cannot_be_given_back_is_named() {
        let mut machine = Simulated::new(32..34, "Normal");
        machine.fail_online(33, Errno::ENOMEM);
        let outcome = run(&mut machine, request(3, false));
        assert_eq!(outcome.end, End::Short);
        assert_eq!(
            outcome.stranded,
            [Failure::new(33, Step::Online, Errno::ENOMEM)]
        );
        assert_eq!(machine.state(32), State::Online);
    }

    #[test]
    fn blocks_offline_already_come_first_and_stay_offline_when_undone() {
        let mut machine = Simulated::new(32..34, "Normal");
        machine.set_offline_before(32);
        let (offline, queue) = (machine.already_offline(), machine.queue());
        let outcome = add(&mut machine, &request(1, false), offline, queue, |_, _| ());
        assert_eq!(indices(outcome.added()), [32]);
        assert_eq!(machine.state(33), State::Online);

        let mut machine = Simulated::new(32..34, "Normal");
        machine.set_offline_before(32);
        let (offline, queue) = (machine.already_offline(), machine.queue());
        let outcome = add(&mut machine, &request(3, false), offline, queue, |_, _| ());
        assert_eq!(outcome.end, End::Short);
        assert!(machine.pooled().is_empty());
        assert_eq!(machine.state(32), State::Offline);
        assert_eq!(machine.state(33), State::Online);
    }

    #[test]
    fn progress_counts_taken_and_failed() {
        let mut machine = Simulated::new(32..36, "Normal");
        machine.fail_offline(35, Errno::EINVAL, 9);
        let mut seen = Vec::new();
        let queue = machine.queue();
        add(
            &mut machine,
            &request(2, false),
            Vec::new(),
            queue,
            |t, f| seen.push((t, f)),
        );
        assert_eq!(seen, [(0, 1), (1, 1), (2, 1)]);
    }
}
