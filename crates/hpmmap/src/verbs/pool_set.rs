//! `hpmmap pool set`

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::process::ExitCode;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{complain_of, print, print_versioned};
use hpmmap_base::size::{Size, memory_blocks, short};
use hpmmap_host::{Root, memory, node};
use hpmmap_sys::Device;
use serde::Serialize;

use super::pool_remove::{describe_used, whose};
use super::progress::Progress;
use super::require_nodes;
use crate::cli::PoolSetArgs;
use crate::device;
use crate::pool::config::{Pools, checked};
use crate::pool::plan::{State, Taking};
use crate::pool::set::{self, Brought, Done, bring, bytes};
use crate::pool::{FailureReport, LiveMachine, PooledBlock, join_ranges, summary};

pub fn perform(args: &PoolSetArgs) -> Result<ExitCode> {
    let root = Root::default();
    let block_bytes = memory::block_bytes(&root)?;
    let nodes = node::with_memory(&root)?;
    let mut request = match args.size {
        // The node is given: it may have all its memory in its pool, and none of it ordinary.
        Some(size) => Request::of_node(
            args.node
                .map_or_else(|| super::require_node(&root, None), Ok)?,
            size,
        ),
        None => Request::read(args)?,
    };
    if request.is_empty() {
        print(&format!(
            "{} has no line of a node: the pools stay as they are",
            request.whence
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let device = device::open_as_root("to change pools")?;
    let before = pools(&device, block_bytes)?;
    request.check(&nodes, &before, block_bytes, |node| {
        let blocks = memory::blocks_of_node(&root, node)?;
        Ok(blocks.len() as u64 * block_bytes)
    })?;
    request.complete(&before);
    if args.taking.leave.is_none() {
        request.keep_from_growing(&before);
    }

    let taking = Taking {
        offline_blocks: args.taking.offline_blocks,
        leave: args.taking.leave.or(request.leave),
    };
    let mut machine = LiveMachine::new(&device, NonZeroU32::new(args.taking.timeout))?;
    let mut reports = Vec::new();
    for goal in request.in_order(&before) {
        let pooled = before.get(&goal.node).cloned().unwrap_or_default();
        let state = State::read(&root, goal.node, block_bytes, pooled)?;
        let brought = {
            let blocks = goal.bytes.abs_diff(bytes(&state)).div_ceil(block_bytes);
            let bar = Progress::new("pool set", blocks, block_bytes);
            bring(&mut machine, &state, goal.bytes, taking, |done, failed| {
                bar.set(done, failed);
            })
        };
        match brought {
            Ok(brought) => {
                let report = Report::new(goal.node, block_bytes, &brought);
                if !args.json {
                    print(&report.text())?;
                }
                if let Some(mut lacks) = lacks(&brought, block_bytes) {
                    if let Done::Removed(outcome) = &brought.done
                        && let Some(whose) = whose(&root, &device, outcome)
                    {
                        lacks += &format!("; {whose}");
                    }
                    request.complain(&goal.place, &lacks);
                }
                reports.push(report);
            }
            Err(error) => {
                reports.push(Report::untouched(goal.node, goal.bytes, bytes(&state)));
                request.complain(&goal.place, &error.to_string());
            }
        }
    }
    reports.sort_by_key(|report| report.node);
    if args.json {
        print_versioned(1, &Reports { nodes: &reports })?;
    }
    Ok(match request.failed {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// The memory blocks in the pools, by node.
fn pools(device: &Device, block_bytes: u64) -> Result<BTreeMap<u32, Vec<PooledBlock>>> {
    let ranges = device::pool_ranges(device)?;
    let mut pools: BTreeMap<u32, Vec<PooledBlock>> = BTreeMap::new();
    for block in join_ranges(&ranges, block_bytes) {
        if let Ok(node) = u32::try_from(block.node) {
            pools.entry(node).or_default().push(block);
        }
    }
    Ok(pools)
}

/// The requested size of a node's pool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Goal {
    node: u32,
    bytes: u64,
    /// The source of the request, for messages.
    place: String,
}

/// All requests, and the errors so far.
#[derive(Debug, Default)]
struct Request {
    goals: Vec<Goal>,
    /// Memory that Linux keeps of each node, if the file gives it.
    leave: Option<Size>,
    /// A wrong line of the file may have said that.
    leave_unknown: bool,
    /// The file; empty without one.
    whence: String,
    failed: bool,
}

impl Request {
    fn of_node(node: u32, size: Size) -> Self {
        Self {
            goals: vec![Goal {
                node,
                bytes: size.0,
                place: String::new(),
            }],
            ..Self::default()
        }
    }

    fn read(args: &PoolSetArgs) -> Result<Self> {
        let whence = args.file.display().to_string();
        let text =
            fs::read(&args.file).map_err(|error| Error::Failed(format!("{whence}: {error}")))?;
        Ok(Self::parse(whence, &String::from_utf8_lossy(&text)))
    }

    fn parse(whence: String, text: &str) -> Self {
        let pools = Pools::parse(text);
        let place = |number| format!("{whence}:{number}: ");
        let goals = pools.lines.iter().map(|line| Goal {
            node: line.node,
            bytes: line.size.0,
            place: place(line.number),
        });
        let mut request = Self {
            goals: goals.collect(),
            leave: pools.leave,
            leave_unknown: pools.leave_unknown,
            ..Self::default()
        };
        for wrong in &pools.wrong {
            request.complain(&place(wrong.number), &wrong.reason);
        }
        request.whence = whence;
        request
    }

    fn complain(&mut self, place: &str, text: &str) {
        self.failed = true;
        complain_of(&format!("{place}{text}"), 1);
    }

    /// Is the file without any request?
    fn is_empty(&self) -> bool {
        self.goals.is_empty() && !self.failed
    }

    /// Removes impossible requests; one from the command line is an error. `size_of` returns the
    /// size of a node; a node with all its memory in its pool has no ordinary memory.
    fn check(
        &mut self,
        nodes: &[u32],
        before: &BTreeMap<u32, Vec<PooledBlock>>,
        block_bytes: u64,
        size_of: impl Fn(u32) -> Result<u64>,
    ) -> Result<()> {
        let mut known: Vec<u32> = nodes.iter().chain(before.keys()).copied().collect();
        known.sort_unstable();
        known.dedup();
        for goal in std::mem::take(&mut self.goals) {
            let right = require_nodes(&known, &[goal.node])
                .and_then(|()| checked(Size(goal.bytes), block_bytes))
                .and_then(|()| match size_of(goal.node)? {
                    size if goal.bytes > size => Err(Error::Usage(format!(
                        "{} is more than NUMA node {} has: {}",
                        Size(goal.bytes),
                        goal.node,
                        Size(size)
                    ))),
                    _ => Ok(()),
                });
            match right {
                Ok(()) => self.goals.push(goal),
                Err(error) if self.whence.is_empty() => return Err(error),
                Err(error) => self.complain(&goal.place, &error.to_string()),
            }
        }
        Ok(())
    }

    /// A file is complete: a node without a line gets no pool. Not while a line is wrong, which
    /// may have meant that node.
    fn complete(&mut self, before: &BTreeMap<u32, Vec<PooledBlock>>) {
        if self.whence.is_empty() || self.failed {
            return;
        }
        for &node in before.keys() {
            if !self.goals.iter().any(|goal| goal.node == node) {
                self.goals.push(Goal {
                    node,
                    bytes: 0,
                    place: format!("{}: no line of NUMA node {node}: ", self.whence),
                });
            }
        }
    }

    /// Removes requests of pools that would grow if it is not known what Linux keeps.
    fn keep_from_growing(&mut self, before: &BTreeMap<u32, Vec<PooledBlock>>) {
        if !self.leave_unknown {
            return;
        }
        let goals = std::mem::take(&mut self.goals).into_iter();
        let (grow, rest): (Vec<_>, _) =
            goals.partition(|goal| goal.bytes > size(before, goal.node));
        self.goals = rest;
        for goal in grow {
            let text = format!(
                "the pool does not grow from {} to {}: a wrong line of the file may say what \
                 Linux keeps ('leave SIZE'): correct it, then repeat the command",
                short(size(before, goal.node)),
                Size(goal.bytes)
            );
            self.complain(&goal.place, &text);
        }
    }

    /// Pools that shrink come first: Linux can then spare more.
    fn in_order(&self, before: &BTreeMap<u32, Vec<PooledBlock>>) -> Vec<Goal> {
        let mut goals = self.goals.clone();
        goals.sort_by_key(|goal| (goal.bytes >= size(before, goal.node), goal.node));
        goals
    }
}

/// The size of a node's pool.
fn size(before: &BTreeMap<u32, Vec<PooledBlock>>, node: u32) -> u64 {
    let blocks = before.get(&node).map_or(&[][..], Vec::as_slice);
    blocks.iter().map(|block| block.pooled_bytes).sum()
}

#[derive(Debug, Serialize)]
struct Reports<'a> {
    nodes: &'a [Report],
}

#[derive(Debug, Serialize)]
struct Report {
    node: u32,
    wanted_bytes: u64,
    had_bytes: u64,
    has_bytes: u64,
    /// Memory blocks that were tried in vain.
    failed: Vec<FailureReport>,
    /// Memory blocks that would have been given back but are held by launches.
    in_use: Vec<u64>,
    #[serde(skip)]
    blocks: usize,
}

impl Report {
    fn new(node: u32, block_bytes: u64, brought: &Brought) -> Self {
        let (failures, blocks) = match &brought.done {
            set::Done::Nothing => (Vec::new(), 0),
            Done::Added(outcome) => {
                let failures = outcome.failures.iter().chain(&outcome.stranded);
                (failures.copied().collect(), outcome.added().len())
            }
            Done::Removed(outcome) => (outcome.failures.clone(), outcome.removed.len()),
        };
        Self {
            node,
            wanted_bytes: brought.wanted,
            had_bytes: brought.had,
            has_bytes: brought.has(block_bytes),
            failed: failures.iter().map(|failure| failure.report()).collect(),
            in_use: brought.in_use.iter().map(|block| block.index).collect(),
            blocks,
        }
    }

    fn untouched(node: u32, wanted_bytes: u64, has_bytes: u64) -> Self {
        Self {
            node,
            wanted_bytes,
            had_bytes: has_bytes,
            has_bytes,
            failed: Vec::new(),
            in_use: Vec::new(),
            blocks: 0,
        }
    }

    fn text(&self) -> String {
        let node = self.node;
        let size = short(self.has_bytes);
        let change = short(self.has_bytes.abs_diff(self.had_bytes));
        let blocks = memory_blocks(self.blocks);
        if self.has_bytes > self.had_bytes {
            format!("NUMA node {node}: the pool has {size}, {change} taken from Linux ({blocks})")
        } else if self.has_bytes < self.had_bytes {
            format!(
                "NUMA node {node}: the pool has {size}, {change} given back to Linux ({blocks})"
            )
        } else {
            format!("NUMA node {node}: the pool has {size}, as before")
        }
    }
}

/// The reason why a pool does not have its size; `None` if it does.
fn lacks(brought: &Brought, block_bytes: u64) -> Option<String> {
    let stuck = match &brought.done {
        Done::Nothing => return None,
        Done::Added(outcome) => summary(&outcome.stranded),
        Done::Removed(outcome) => {
            let stuck = |failure: &&crate::pool::Failure| failure.step == crate::pool::Step::Online;
            summary(
                &outcome
                    .failures
                    .iter()
                    .filter(stuck)
                    .copied()
                    .collect::<Vec<_>>(),
            )
        }
    };
    let has = short(brought.has(block_bytes));
    let wanted = Size(brought.wanted);
    let mut reasons = Vec::new();
    if !brought.is_done(block_bytes) {
        match &brought.done {
            Done::Nothing => (),
            Done::Added(outcome) => {
                reasons.extend(brought.less.iter().cloned());
                if !outcome.failures.is_empty() {
                    reasons.push(format!("not taken: {}", summary(&outcome.failures)));
                }
            }
            Done::Removed(outcome) => {
                if !brought.in_use.is_empty() {
                    reasons.push(format!(
                        "in use: {}",
                        describe_used(&brought.in_use, block_bytes)
                    ));
                }
                if !outcome.failures.is_empty() {
                    reasons.push(summary(&outcome.failures));
                }
            }
        }
    } else if stuck.is_empty() {
        return None;
    }
    if !stuck.is_empty() {
        reasons.push(format!("neither in the pool nor online: {stuck}"));
    }
    let mut text = format!("the pool has {has} instead of {wanted}");
    if !reasons.is_empty() {
        text += &format!("; {}", reasons.join("; "));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use hpmmap_sys::Errno;

    use super::*;
    use crate::pool::simulated::{BLOCK, pooled};
    use crate::pool::{Failure, Step, add, remove};

    fn block(node: i32, index: u64, busy: u64) -> PooledBlock {
        pooled(node, index, busy, 0)
    }

    fn before() -> BTreeMap<u32, Vec<PooledBlock>> {
        BTreeMap::from([
            (0, vec![block(0, 32, 0)]),
            (1, vec![block(1, 64, 0), block(1, 65, 0)]),
        ])
    }

    fn request(text: &str) -> Request {
        let mut request = Request::parse("/etc/hpmmap/pools".into(), text);
        request
            .check(&[0], &before(), BLOCK, |_| Ok(16 * BLOCK))
            .unwrap();
        request.complete(&before());
        request.keep_from_growing(&before());
        request
    }

    fn goals(request: &Request) -> Vec<(u32, u64)> {
        let goals = request.in_order(&before());
        goals
            .iter()
            .map(|goal| (goal.node, goal.bytes / BLOCK))
            .collect()
    }

    #[test]
    fn a_node_without_a_line_has_no_pool_and_what_goes_back_goes_first() {
        let one = request("0 256M\n");
        assert_eq!(goals(&one), [(1, 0), (0, 2)]);
        assert_eq!(
            one.in_order(&before())[0].place,
            "/etc/hpmmap/pools: no line of NUMA node 1: "
        );
        assert!(!one.failed);
        // The node is known by its pool, even if it has no ordinary memory any more.
        assert_eq!(goals(&request("1 1G\n0 0\n")), [(0, 0), (1, 8)]);
    }

    #[test]
    fn a_line_that_is_wrong_may_have_meant_any_node() {
        for text in [
            "0 256M\n1\n",
            "0 256M\n7 1G\n",
            "0 256M\n1 1M\n",
            "0 256M\n1 64G\n",
        ] {
            let one = request(text);
            assert!(one.failed, "{text}");
            assert_eq!(goals(&one), [(0, 2)], "{text}");
        }
    }

    #[test]
    fn no_pool_grows_while_it_is_not_known_what_to_leave() {
        // Node 0 has one memory block, node 1 two.
        let one = request("leave 5%\n0 256M\n1 128M\n");
        assert!(one.failed);
        assert_eq!(goals(&one), [(1, 1)]);
        assert_eq!(
            goals(&request("leave 1G\n0 256M\n1 128M\n")),
            [(1, 1), (0, 2)]
        );
    }

    #[test]
    fn a_file_without_lines_says_nothing() {
        assert!(Request::parse("x".into(), "# 0 1G\n\n").is_empty());
        assert!(!Request::parse("x".into(), "0\n").is_empty());
        assert!(!Request::parse("x".into(), "0 0\n").is_empty());
    }

    #[test]
    fn one_node_is_one_node() {
        let mut one = Request::of_node(1, Size(BLOCK));
        one.check(&[0], &before(), BLOCK, |_| Ok(BLOCK)).unwrap();
        one.complete(&before());
        assert_eq!(goals(&one), [(1, 1)]);
        for mut wrong in [
            Request::of_node(7, Size(BLOCK)),
            Request::of_node(0, Size(1)),
            Request::of_node(0, Size(2 * BLOCK)),
        ] {
            let error = wrong
                .check(&[0], &before(), BLOCK, |_| Ok(BLOCK))
                .unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }

    #[test]
    fn more_than_a_node_has_is_an_error_of_its_line() {
        let mut one = Request::of_node(0, Size(64 << 30));
        let error = one.check(&[0], &before(), BLOCK, |_| Ok(4 << 30));
        assert_eq!(
            error.unwrap_err().to_string(),
            "64G is more than NUMA node 0 has: 4G"
        );
        // Every message about a file begins like this.
        let file = Request::parse("/etc/hpmmap/pools".into(), "# big\n0 64G\n");
        assert_eq!(file.goals[0].place, "/etc/hpmmap/pools:2: ");
        let file = Request::parse("x".into(), "leave 1G\n0 1G\n");
        assert_eq!(file.leave, Some(Size(1 << 30)));
    }

    fn brought(wanted: u64, had: u64, done: Done) -> Brought {
        Brought {
            wanted: wanted * BLOCK,
            had: had * BLOCK,
            done,
            in_use: Vec::new(),
            less: Vec::new(),
        }
    }

    #[test]
    fn what_is_as_it_should_be_lacks_nothing() {
        let same = brought(2, 2, Done::Nothing);
        assert_eq!(lacks(&same, BLOCK), None);
        assert_eq!(
            Report::new(0, BLOCK, &same).text(),
            "NUMA node 0: the pool has 256M, as before"
        );
        let outcome = remove::Outcome {
            removed: vec![block(0, 32, 0)],
            // Another memory block was given back instead.
            failures: vec![Failure::new(33, Step::PoolRemove, Errno::EBUSY)],
            interrupted: false,
        };
        let less = brought(1, 2, Done::Removed(outcome));
        assert_eq!(lacks(&less, BLOCK), None);
        assert_eq!(
            Report::new(0, BLOCK, &less).text(),
            "NUMA node 0: the pool has 128M, 128M given back to Linux (1 memory block)"
        );
    }

    #[test]
    fn less_than_wanted_says_why() {
        let outcome = add::Outcome {
            end: add::End::Short,
            taken: Vec::new(),
            kept: true,
            failures: vec![Failure::new(33, Step::Offline, Errno::EBUSY)],
            stranded: Vec::new(),
        };
        let mut less = brought(2, 1, Done::Added(outcome));
        less.less = vec!["Linux keeps 2G".into()];
        assert_eq!(
            lacks(&less, BLOCK).unwrap(),
            "the pool has 128M instead of 256M; Linux keeps 2G; not taken: \
             memory33 (offline: EBUSY, holds memory that Linux cannot move)"
        );
        let json = serde_json::to_value(Report::new(3, BLOCK, &less)).unwrap();
        assert_eq!(json["node"], 3);
        assert_eq!(json["wanted_bytes"], 2 * BLOCK);
        assert_eq!(json["has_bytes"], BLOCK);
        assert_eq!(json["failed"][0]["memory_block"], 33);
    }

    #[test]
    fn what_jobs_hold_is_named() {
        let mut more = brought(0, 1, Done::Removed(remove::Outcome::default()));
        more.in_use = vec![block(0, 33, 6 << 20)];
        assert_eq!(
            lacks(&more, BLOCK).unwrap(),
            "the pool has 128M instead of 0; in use: memory33 (6M held by jobs)"
        );
    }

    #[test]
    fn a_block_between_pool_and_linux_is_always_told() {
        let outcome = remove::Outcome {
            removed: vec![block(0, 32, 0)],
            failures: vec![Failure::new(33, Step::Online, Errno::ENOMEM)],
            interrupted: false,
        };
        let text = lacks(&brought(1, 2, Done::Removed(outcome)), BLOCK).unwrap();
        assert!(
            text.contains("neither in the pool nor online: memory33"),
            "{text}"
        );
    }
}
