//! `hpmmap pool remove`

use std::process::ExitCode;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{print, print_versioned, warn};
use hpmmap_base::size::{Size, memory_blocks, multiple_of, short};
use hpmmap_host::{Root, memory};
use hpmmap_sys::Device;
use serde::Serialize;

use super::progress::Progress;
use super::{chosen_node, require_node};
use crate::cli::PoolRemoveArgs;
use crate::device;
use crate::pool::remove::{Outcome, free_blocks, remove};
use crate::pool::{Failure, FailureReport, LiveMachine, PooledBlock, Step, join_ranges, summary};
use crate::promise;

pub fn perform(args: &PoolRemoveArgs) -> Result<ExitCode> {
    let root = Root::default();
    let (node, amount, block_bytes) = checked(&root, args)?;
    let device = device::open_as_root("to change pools")?;
    let ranges = device::pool_ranges(&device)?;
    let blocks: Vec<PooledBlock> = join_ranges(&ranges, block_bytes)
        .into_iter()
        .filter(|block| node.is_none_or(|n| i64::from(block.node) == i64::from(n)))
        .collect();
    let plan = Plan::new(amount, node, block_bytes, &blocks)?;

    let mut machine = LiveMachine::new(&device, None)?;
    let outcome = {
        let bar = Progress::new("pool remove", plan.wanted as u64, block_bytes);
        remove(
            &mut machine,
            &plan.candidates,
            plan.wanted,
            block_bytes,
            |done, failed| bar.set(done, failed),
        )
    };
    conclude(args, node, &plan, &outcome, whose(&root, &device, &outcome))
}

/// To whom memory is promised that had to stay, if any had.
pub fn whose(root: &Root, device: &Device, outcome: &Outcome) -> Option<String> {
    let stayed = outcome.failures.iter().any(Failure::is_promised);
    stayed.then(|| promise::whose(root, device))?
}

/// The amount, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Amount {
    All,
    Blocks(u64),
}

fn checked(root: &Root, args: &PoolRemoveArgs) -> Result<(Option<u32>, Amount, u64)> {
    let block_bytes = memory::block_bytes(root)?;
    match args.size {
        Some(size) => {
            let node = require_node(root, args.node)?;
            let blocks = multiple_of(size, block_bytes, "the memory block size")?;
            Ok((Some(node), Amount::Blocks(blocks), block_bytes))
        }
        // Without --node all nodes are meant, even if there are several.
        None if args.node.is_none() => Ok((None, Amount::All, block_bytes)),
        None => Ok((chosen_node(root, args.node)?, Amount::All, block_bytes)),
    }
}

/// The memory blocks to remove.
#[derive(Debug)]
struct Plan {
    candidates: Vec<PooledBlock>,
    wanted: usize,
    block_bytes: u64,
    /// Requested memory blocks that are in use, in words; may be empty.
    in_use: String,
    in_use_blocks: Vec<PooledBlock>,
}

impl Plan {
    fn new(
        amount: Amount,
        node: Option<u32>,
        block_bytes: u64,
        blocks: &[PooledBlock],
    ) -> Result<Self> {
        let candidates = free_blocks(blocks, block_bytes);
        let used: Vec<PooledBlock> = blocks
            .iter()
            .filter(|block| !block.is_free(block_bytes))
            .copied()
            .collect();
        let in_use = describe_used(&used, block_bytes);
        let wanted = match amount {
            Amount::All => candidates.len(),
            Amount::Blocks(wanted) if wanted <= candidates.len() as u64 => wanted as usize,
            Amount::Blocks(wanted) => {
                let pool = node.map_or("the pools have".into(), |n| {
                    format!("the pool of node {n} has")
                });
                let mut text = format!(
                    "{pool} only {} in memory blocks that are entirely free, not {}",
                    Size(candidates.len() as u64 * block_bytes),
                    Size(wanted.saturating_mul(block_bytes))
                );
                if !in_use.is_empty() {
                    text += &format!("; {in_use}");
                }
                return Err(Error::Failed(text));
            }
        };
        let all = amount == Amount::All;
        Ok(Self {
            candidates,
            wanted,
            block_bytes,
            in_use: if all { in_use } else { String::new() },
            in_use_blocks: if all { used } else { Vec::new() },
        })
    }
}

/// `memory3 (6M held by jobs, 2M pinned); memory4 (...)`.
pub fn describe_used(used: &[PooledBlock], block_bytes: u64) -> String {
    let texts: Vec<String> = used
        .iter()
        .map(|block| {
            let mut reasons = Vec::new();
            if block.busy_bytes() > 0 {
                reasons.push(format!("{} held by jobs", short(block.busy_bytes())));
            }
            if block.pinned_bytes > 0 {
                reasons.push(format!("{} pinned", short(block.pinned_bytes)));
            }
            if block.pooled_bytes < block_bytes {
                reasons.push(format!("only {} of it pooled", short(block.pooled_bytes)));
            }
            format!("memory{} ({})", block.index, reasons.join(", "))
        })
        .collect();
    texts.join("; ")
}

#[derive(Debug, Serialize)]
struct UsedReport {
    memory_block: u64,
    busy_bytes: u64,
    pinned_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    node: Option<u32>,
    removed_bytes: u64,
    memory_blocks: Vec<u64>,
    in_use: Vec<UsedReport>,
    failed: Vec<FailureReport>,
}

fn report(node: Option<u32>, plan: &Plan, outcome: &Outcome) -> Report {
    Report {
        node,
        removed_bytes: outcome.removed.len() as u64 * plan.block_bytes,
        memory_blocks: outcome.removed.iter().map(|block| block.index).collect(),
        in_use: plan
            .in_use_blocks
            .iter()
            .map(|block| UsedReport {
                memory_block: block.index,
                busy_bytes: block.busy_bytes(),
                pinned_bytes: block.pinned_bytes,
            })
            .collect(),
        failed: outcome.failures.iter().map(|f| f.report()).collect(),
    }
}

fn conclude(
    args: &PoolRemoveArgs,
    node: Option<u32>,
    plan: &Plan,
    outcome: &Outcome,
    promised: Option<String>,
) -> Result<ExitCode> {
    if args.json {
        print_versioned(1, &report(node, plan, outcome))?;
    }
    if let Some(error) = shortfall(plan, outcome, promised) {
        return Err(error);
    }
    if !outcome.failures.is_empty() {
        warn(&format!(
            "others were taken for: {}",
            summary(&outcome.failures)
        ));
    }
    if !args.json {
        print(&format!(
            "gave {} back to Linux ({})",
            removed(plan, outcome),
            memory_blocks(outcome.removed.len())
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn removed(plan: &Plan, outcome: &Outcome) -> Size {
    Size(outcome.removed.len() as u64 * plan.block_bytes)
}

/// The error if less than requested was given back, or a memory block is stuck.
fn shortfall(plan: &Plan, outcome: &Outcome, promised: Option<String>) -> Option<Error> {
    if outcome.removed.is_empty() && outcome.failures.iter().any(|f| f.is_denied()) {
        return Some(device::only_root("to change pools"));
    }
    let mut reasons = Vec::new();
    if outcome.interrupted {
        reasons.push("interrupted".to_string());
    }
    let stuck = outcome.failures.iter().any(|f| f.step == Step::Online);
    if stuck || outcome.removed.len() < plan.wanted {
        reasons.extend((!outcome.failures.is_empty()).then(|| summary(&outcome.failures)));
    }
    reasons.extend(promised);
    if !plan.in_use.is_empty() {
        reasons.push(format!("in use: {}", plan.in_use));
    }
    (!reasons.is_empty()).then(|| {
        Error::Failed(format!(
            "only {} went back to Linux; {}",
            removed(plan, outcome),
            reasons.join("; ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;
    use hpmmap_sys::Errno;

    use super::*;
    use crate::pool::Failure;
    use crate::pool::simulated::{BLOCK, pooled};

    fn block(index: u64, busy: u64, pinned: u64) -> PooledBlock {
        pooled(0, index, busy, pinned)
    }

    fn args(size: Option<&str>, node: Option<u32>) -> PoolRemoveArgs {
        PoolRemoveArgs {
            node,
            size: size.map(|s| s.parse().unwrap()),
            all: size.is_none(),
            json: false,
        }
    }

    #[test]
    fn everything_without_a_node_means_every_node() {
        let fixture = Fixture::new();
        fixture.block_size(BLOCK);
        fixture.nodes("0-1");
        let check = |args| checked(&fixture.root(), &args);
        assert_eq!(check(args(None, None)).unwrap(), (None, Amount::All, BLOCK));
        assert_eq!(
            check(args(None, Some(1))).unwrap(),
            (Some(1), Amount::All, BLOCK)
        );
        assert_eq!(check(args(None, Some(5))).unwrap_err().exit_code(), 2);
        assert_eq!(check(args(Some("1G"), None)).unwrap_err().exit_code(), 2);
        assert_eq!(
            check(args(Some("1G"), Some(0))).unwrap(),
            (Some(0), Amount::Blocks(8), BLOCK)
        );
        assert_eq!(check(args(Some("1M"), Some(0))).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn more_than_is_free_is_refused_and_says_who_holds_it() {
        let blocks = [
            block(32, 0, 0),
            block(33, 6 << 20, 0),
            block(34, 0, 2 << 20),
        ];
        let error = Plan::new(Amount::Blocks(2), Some(0), BLOCK, &blocks).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the pool of node 0 has only 128M in memory blocks that are entirely free, \
             not 256M; memory33 (6M held by jobs); memory34 (2M pinned)"
        );
        let plan = Plan::new(Amount::Blocks(1), Some(0), BLOCK, &blocks).unwrap();
        assert_eq!(plan.wanted, 1);
        assert!(shortfall(&plan, &gone(&[32]), None).is_none());
    }

    fn gone(indices: &[u64]) -> Outcome {
        Outcome {
            removed: indices.iter().map(|&i| block(i, 0, 0)).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn everything_is_not_everything_while_a_block_is_in_use() {
        let blocks = [block(32, 0, 0), block(33, 6 << 20, 0)];
        let plan = Plan::new(Amount::All, None, BLOCK, &blocks).unwrap();
        assert_eq!(plan.wanted, 1);
        assert_eq!(
            shortfall(&plan, &gone(&[32]), None).unwrap().to_string(),
            "only 128M went back to Linux; in use: memory33 (6M held by jobs)"
        );
        let json = serde_json::to_value(report(None, &plan, &gone(&[32]))).unwrap();
        assert_eq!(json["node"], serde_json::Value::Null);
        assert_eq!(json["removed_bytes"], BLOCK);
        assert_eq!(json["memory_blocks"], serde_json::json!([32]));
        assert_eq!(json["in_use"][0]["busy_bytes"], 6 << 20);
    }

    #[test]
    fn an_empty_pool_has_nothing_to_give_back_and_that_is_fine() {
        let plan = Plan::new(Amount::All, Some(0), BLOCK, &[]).unwrap();
        assert!(shortfall(&plan, &gone(&[]), None).is_none());
    }

    #[test]
    fn a_block_that_got_busy_matters_only_if_no_other_was_found() {
        let blocks = [block(32, 0, 0), block(33, 0, 0)];
        let failures = vec![Failure::new(32, Step::PoolRemove, Errno::EBUSY)];
        let plan = Plan::new(Amount::Blocks(1), Some(0), BLOCK, &blocks).unwrap();
        let mut outcome = gone(&[33]);
        outcome.failures.clone_from(&failures);
        assert!(shortfall(&plan, &outcome, None).is_none());
        let mut outcome = gone(&[]);
        outcome.failures = failures;
        assert!(shortfall(&plan, &outcome, None).is_some());
    }

    #[test]
    fn a_block_stuck_offline_is_always_an_error() {
        let blocks = [block(32, 0, 0), block(33, 0, 0)];
        let plan = Plan::new(Amount::Blocks(1), Some(0), BLOCK, &blocks).unwrap();
        let mut outcome = gone(&[33]);
        outcome.failures = vec![Failure::new(32, Step::Online, Errno::ENOMEM)];
        assert!(
            shortfall(&plan, &outcome, None)
                .unwrap()
                .to_string()
                .contains("memory32")
        );
    }
}
