//! `hpmmap pool add`

use std::num::NonZeroU32;
use std::process::ExitCode;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{print, print_versioned, warn};
use hpmmap_base::size::{Size, memory_blocks, multiple_of};
use hpmmap_host::Root;
use hpmmap_host::memory::{self, Zone};
use serde::Serialize;

use super::progress::Progress;
use super::require_node;
use crate::cli::PoolAddArgs;
use crate::device;
use crate::pool::add::{End, Keep, Outcome, Request, add};
use crate::pool::plan::{Plan, State, Taking, Wish};
use crate::pool::{FailureReport, LiveMachine, join_ranges, summary};

pub fn perform(args: &PoolAddArgs) -> Result<ExitCode> {
    let root = Root::default();
    let (node, block_bytes) = checked(&root, args)?;
    let device = device::open_as_root("to change pools")?;
    let ranges = device::pool_ranges(&device)?;
    let has = ranges
        .iter()
        .filter(|range| i64::from(range.node) == i64::from(node));
    let missing = missing(args, block_bytes, has.map(|range| range.length).sum());
    if missing.0 == 0 {
        return nothing_missing(args, node);
    }
    let args = &PoolAddArgs {
        size: missing,
        ..*args
    };
    let state = State::read(&root, node, block_bytes, join_ranges(&ranges, block_bytes))?;
    let plan = Plan::new(&wish(args), &state)?;
    for text in &plan.less {
        warn(text);
    }

    let mut machine = LiveMachine::new(&device, NonZeroU32::new(args.taking.timeout))?;
    let outcome = {
        let bar = Progress::new("pool add", plan.request.blocks, block_bytes);
        add(
            &mut machine,
            &plan.request,
            plan.offline,
            plan.queue,
            |done, failed| bar.set(done, failed),
        )
    };
    conclude(args, &plan.request, &outcome)
}

/// The arguments about memory.
fn wish(args: &PoolAddArgs) -> Wish {
    Wish {
        size: args.size,
        keep: if args.partial {
            Keep::Less
        } else {
            Keep::Whole
        },
        taking: Taking {
            offline_blocks: args.taking.offline_blocks,
            leave: args.taking.leave,
        },
    }
}

/// The size to add to a pool that has `has` bytes.
fn missing(args: &PoolAddArgs, block_bytes: u64, has: u64) -> Size {
    match args.up_to {
        true => Size(
            args.size
                .0
                .saturating_sub(has)
                .next_multiple_of(block_bytes),
        ),
        false => args.size,
    }
}

fn nothing_missing(args: &PoolAddArgs, node: u32) -> Result<ExitCode> {
    if args.json {
        print_versioned(
            1,
            &Report {
                node,
                requested_bytes: 0,
                added_bytes: 0,
                blocks: Vec::new(),
                failed: Vec::new(),
                not_given_back: Vec::new(),
            },
        )?;
    } else {
        let size = args.size;
        print(&format!("the pool of node {node} has {size} already"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the arguments as far as that needs no module.
fn checked(root: &Root, args: &PoolAddArgs) -> Result<(u32, u64)> {
    if !memory::is_supported(root) {
        return Err(Error::Failed(
            "this kernel has no memory blocks in /sys/devices/system/memory \
             (CONFIG_MEMORY_HOTPLUG is off)"
                .into(),
        ));
    }
    let node = require_node(root, args.node)?;
    let block_bytes = memory::block_bytes(root)?;
    multiple_of(args.size, block_bytes, "the memory block size")?;
    Ok((node, block_bytes))
}

#[derive(Debug, Serialize)]
struct BlockReport {
    memory_block: u64,
    start: u64,
    length: u64,
    movable: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    node: u32,
    requested_bytes: u64,
    added_bytes: u64,
    blocks: Vec<BlockReport>,
    failed: Vec<FailureReport>,
    not_given_back: Vec<FailureReport>,
}

fn report(args: &PoolAddArgs, request: &Request, outcome: &Outcome) -> Report {
    let added = outcome.added();
    Report {
        node: request.node,
        requested_bytes: args.size.0,
        added_bytes: added.len() as u64 * request.block_bytes,
        blocks: added
            .iter()
            .map(|candidate| BlockReport {
                memory_block: candidate.index,
                start: candidate.start,
                length: request.block_bytes,
                movable: candidate.zone == Zone::Movable,
            })
            .collect(),
        failed: outcome.failures.iter().map(|f| f.report()).collect(),
        not_given_back: outcome.stranded.iter().map(|f| f.report()).collect(),
    }
}

fn conclude(args: &PoolAddArgs, request: &Request, outcome: &Outcome) -> Result<ExitCode> {
    if args.json {
        print_versioned(1, &report(args, request, outcome))?;
    }
    if let Some(message) = refusal(args, request, outcome) {
        return Err(message);
    }
    if !outcome.failures.is_empty() {
        warn(&format!("not taken: {}", summary(&outcome.failures)));
    }
    if !outcome.stranded.is_empty() {
        warn(&stranded_text(outcome));
    }
    let added = Size(outcome.added().len() as u64 * request.block_bytes);
    if added < args.size {
        warn(&format!("only {added} of {} could be taken", args.size));
    }
    if !args.json {
        print(&format!(
            "added {added} to the pool of node {} ({})",
            request.node,
            memory_blocks(outcome.added().len())
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The error if nothing was added.
fn refusal(args: &PoolAddArgs, request: &Request, outcome: &Outcome) -> Option<Error> {
    if !outcome.added().is_empty() {
        return None;
    }
    let taken = Size(outcome.taken.len() as u64 * request.block_bytes);
    let mut text = match outcome.end {
        End::Interrupted => format!("interrupted after {taken}; everything was given back"),
        End::Hopeless(failure) if failure.is_denied() => {
            return Some(device::only_root("to change pools"));
        }
        End::Hopeless(failure) => format!(
            "stopped after {taken}, everything was given back: {}",
            summary(&[failure])
        ),
        End::Complete | End::Short => {
            let mut text = format!(
                "only {taken} of {} could be taken from node {}; everything was given back",
                args.size, request.node
            );
            if !outcome.taken.is_empty() {
                text += " (--partial keeps what is possible)";
            }
            if !outcome.failures.is_empty() {
                text += &format!("; not taken: {}", summary(&outcome.failures));
            }
            text
        }
    };
    if !outcome.stranded.is_empty() {
        text += &format!("; {}", stranded_text(outcome));
    }
    Some(Error::Failed(text))
}

fn stranded_text(outcome: &Outcome) -> String {
    format!("could not be given back: {}", summary(&outcome.stranded))
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;
    use hpmmap_sys::Errno;

    use super::*;
    use crate::cli::TakingArgs;
    use crate::pool::plan::RESERVE_BYTES;
    use crate::pool::{Failure, Step};

    const BLOCK: u64 = 128 << 20;

    fn args(size: &str) -> PoolAddArgs {
        PoolAddArgs {
            node: None,
            size: size.parse().unwrap(),
            up_to: false,
            partial: false,
            taking: TakingArgs {
                offline_blocks: false,
                timeout: 60,
                leave: Some(Size(0)),
            },
            json: false,
        }
    }

    fn machine(online: std::ops::Range<u64>) -> Fixture {
        let fixture = Fixture::new();
        fixture.block_size(BLOCK);
        fixture.nodes("0");
        for index in online {
            fixture.block(0, index, "online", "Normal");
        }
        fixture
    }

    fn plan(fixture: &Fixture, args: &PoolAddArgs, available: u64) -> Result<Plan> {
        let (node, block_bytes) = checked(&fixture.root(), args)?;
        let state = State {
            node,
            block_bytes,
            blocks: memory::blocks_of_node(&fixture.root(), node)?,
            pooled: Vec::new(),
            linux: 8 * BLOCK,
            available,
            host: None,
        };
        Plan::new(&wish(args), &state)
    }

    #[test]
    fn linux_keeps_a_part_of_each_node() {
        let wish = |leave: Option<u64>| Wish {
            size: Size(8 * BLOCK),
            keep: Keep::Whole,
            taking: Taking {
                offline_blocks: false,
                leave: leave.map(Size),
            },
        };
        let state = |linux, zone: &str| {
            let fixture = Fixture::new();
            fixture.block_size(BLOCK);
            for index in 0..64 {
                fixture.block(0, 32 + index, "online", zone);
            }
            State {
                node: 0,
                block_bytes: BLOCK,
                blocks: memory::blocks_of_node(&fixture.root(), 0).unwrap(),
                pooled: Vec::new(),
                linux,
                available: 1 << 40,
                host: None,
            }
        };
        // Five percent of a large node.
        assert_eq!(state(100 << 30, "Normal").left(), (100 << 30) / 100 * 5);
        // At least 2 GB.
        let small = state(3 << 30, "Normal");
        assert!(Plan::new(&wish(None), &small).is_ok());
        let error = Plan::new(&wish(None), &state((3 << 30) - 1, "Normal")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Linux has 2.9G of NUMA node 0 and keeps 2G unless 'leave' says less: \
             896M can be taken, not 1G"
        );
        assert!(Plan::new(&wish(Some(256 << 20)), &state(3 << 29, "Normal")).is_ok());
        assert!(Plan::new(&wish(Some(1 << 30)), &state(3 << 29, "Normal")).is_err());
        // A node with only CXL memory.
        assert!(Plan::new(&wish(None), &state(1 << 30, "Movable")).is_ok());
        let some = Wish {
            keep: Keep::Less,
            ..wish(None)
        };
        let plan = Plan::new(&some, &state((3 << 30) - 1, "Normal")).unwrap();
        assert_eq!((plan.request.blocks, plan.less.len()), (7, 1));
    }

    #[test]
    fn a_size_between_two_blocks_is_wrong_usage() {
        let error = plan(&machine(32..40), &args("200M"), 1 << 40).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().ends_with("use 128M or 256M"), "{error}");
    }

    #[test]
    fn only_what_is_missing_is_added() {
        let mut wish = args("512M");
        assert_eq!(missing(&wish, BLOCK, 1 << 30).0, 512 << 20);
        wish.up_to = true;
        assert_eq!(missing(&wish, BLOCK, 0).0, 512 << 20);
        assert_eq!(missing(&wish, BLOCK, 3 * BLOCK).0, BLOCK);
        assert_eq!(missing(&wish, BLOCK, 3 * BLOCK - 1).0, 2 * BLOCK);
        assert_eq!(missing(&wish, BLOCK, 4 * BLOCK).0, 0);
        assert_eq!(missing(&wish, BLOCK, 5 * BLOCK).0, 0);
    }

    #[test]
    fn a_kernel_without_memory_blocks_is_told() {
        let fixture = Fixture::new();
        let error = plan(&fixture, &args("128M"), 1 << 40).unwrap_err();
        assert!(
            error.to_string().contains("CONFIG_MEMORY_HOTPLUG"),
            "{error}"
        );
    }

    #[test]
    fn more_than_the_node_has_is_refused_before_anything_is_touched() {
        let fixture = machine(32..40);
        assert_eq!(
            plan(&fixture, &args("1G"), 1 << 40).unwrap().request.blocks,
            8
        );
        let error = plan(&fixture, &args("2G"), 1 << 40).unwrap_err();
        assert_eq!(
            error.to_string(),
            "node 0 has only 1G in memory blocks that can be taken, not 2G"
        );
        assert_eq!(error.exit_code(), 1);
    }

    #[test]
    fn partial_asks_for_what_there_is() {
        let fixture = machine(32..40);
        let mut wish = args("2G");
        wish.partial = true;
        assert_eq!(plan(&fixture, &wish, 1 << 40).unwrap().request.blocks, 8);
        let available = RESERVE_BYTES + 3 * BLOCK;
        assert_eq!(plan(&fixture, &wish, available).unwrap().request.blocks, 3);
        assert!(plan(&fixture, &wish, RESERVE_BYTES).is_err());
    }

    #[test]
    fn linux_keeps_enough_to_live() {
        let fixture = machine(32..40);
        let available = RESERVE_BYTES + 3 * BLOCK;
        assert!(plan(&fixture, &args("384M"), available).is_ok());
        assert_eq!(
            plan(&fixture, &args("512M"), available)
                .unwrap_err()
                .to_string(),
            "Linux can spare only 384M (640M are available, 256M stay with it), not 512M"
        );
    }

    #[test]
    fn offline_blocks_are_used_only_when_asked_for() {
        let fixture = machine(32..34);
        fixture.block(0, 34, "offline", "Normal");
        let error = plan(&fixture, &args("384M"), 1 << 40).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("128M more are offline and in no pool"),
            "{error}"
        );
        let mut wish = args("384M");
        wish.taking.offline_blocks = true;
        // Two online memory blocks are needed, not three.
        let plan = plan(&fixture, &wish, RESERVE_BYTES + 2 * BLOCK).unwrap();
        assert_eq!((plan.offline.len(), plan.queue.len()), (1, 2));
        assert_eq!(plan.request.blocks, 3);
    }

    fn outcome(fixture: &Fixture, end: End, kept: bool) -> (Request, Outcome) {
        let mut plan = plan(fixture, &args("256M"), 1 << 40).unwrap();
        let outcome = Outcome {
            end,
            taken: vec![plan.queue.next().unwrap()],
            kept,
            failures: vec![Failure::new(32, Step::Offline, Errno::EBUSY)],
            stranded: Vec::new(),
        };
        (plan.request, outcome)
    }

    #[test]
    fn the_error_says_how_much_was_possible_and_which_blocks_failed() {
        let fixture = machine(32..34);
        let (request, outcome) = outcome(&fixture, End::Short, false);
        assert_eq!(
            refusal(&args("256M"), &request, &outcome)
                .unwrap()
                .to_string(),
            "only 128M of 256M could be taken from node 0; everything was given back \
             (--partial keeps what is possible); not taken: \
             memory32 (offline: EBUSY, holds memory that Linux cannot move)"
        );
    }

    #[test]
    fn no_permission_is_told_as_such() {
        let fixture = machine(32..34);
        let failure = Failure::new(33, Step::Offline, Errno::EACCES);
        let (request, outcome) = outcome(&fixture, End::Hopeless(failure), false);
        assert_eq!(
            refusal(&args("256M"), &request, &outcome)
                .unwrap()
                .to_string(),
            "no permission to change pools: only root may (CAP_SYS_ADMIN)"
        );
    }

    #[test]
    fn json_has_bytes_as_integers() {
        let fixture = machine(32..34);
        let (request, outcome) = outcome(&fixture, End::Short, true);
        assert!(refusal(&args("256M"), &request, &outcome).is_none());
        let json = serde_json::to_value(report(&args("256M"), &request, &outcome)).unwrap();
        assert_eq!(json["node"], 0);
        assert_eq!(json["requested_bytes"], 256 << 20);
        assert_eq!(json["added_bytes"], BLOCK);
        assert_eq!(json["blocks"][0]["memory_block"], 33);
        assert_eq!(json["blocks"][0]["start"], 33 * BLOCK);
        assert_eq!(json["blocks"][0]["movable"], false);
        assert_eq!(json["failed"][0]["errno"], "EBUSY");
        assert_eq!(json["not_given_back"], serde_json::json!([]));
    }
}
