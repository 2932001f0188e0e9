//! Chooses the memory blocks to try, and their order.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use hpmmap_host::memory::{Block, Zone};
use hpmmap_sys::uapi;

/// A memory block that may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The number N of memoryN.
    pub index: u64,
    /// Physical address.
    pub start: u64,
    /// Its zone, now or before it went offline.
    pub zone: Zone,
    /// It is online: it must be set offline first.
    pub online: bool,
    /// The aligned gigabyte that contains it.
    run: u64,
    /// The pool can get that gigabyte as a whole.
    whole_run: bool,
    /// Memory blocks of that gigabyte that the pool has or can get.
    run_blocks: usize,
    /// In a virtual machine, the size of its nested page-table entries; 0: unknown.
    nested_bytes: u64,
}

impl Candidate {
    fn new(block: &Block) -> Self {
        Self {
            index: block.index,
            start: block.start,
            zone: block.zone,
            online: block.can_go_offline(),
            run: block.start / uapi::LARGE_BYTES,
            whole_run: false,
            run_blocks: 0,
            nested_bytes: 0,
        }
    }
}

/// Candidates, the best first: low memory last; in a virtual machine what
/// the host maps by larger entries before other memory; movable memory before other memory; whole gigabytes before parts of them, fuller parts before
/// emptier ones; high addresses before low ones.
#[derive(Debug)]
pub struct Queue {
    candidates: Vec<Candidate>,
}

impl Queue {
    /// Candidates from the memory blocks of a node and the numbers of those in a pool. Memory
    /// blocks that are offline for another reason are left out.
    pub fn new(blocks: &[Block], pooled: &HashSet<u64>, block_bytes: u64) -> Self {
        let mut run_blocks: HashMap<(Zone, u64), usize> = HashMap::new();
        let mut pooled_blocks: HashMap<u64, usize> = HashMap::new();
        let mut candidates = Vec::new();
        for block in blocks {
            let candidate = Candidate::new(block);
            if pooled.contains(&block.index) {
                *pooled_blocks.entry(candidate.run).or_default() += 1;
            } else if candidate.online {
                *run_blocks.entry((block.zone, candidate.run)).or_default() += 1;
                candidates.push(candidate);
            }
        }
        let full = usize::try_from(uapi::LARGE_BYTES / block_bytes).unwrap_or(1);
        for candidate in &mut candidates {
            candidate.run_blocks = run_blocks[&(candidate.zone, candidate.run)]
                + pooled_blocks.get(&candidate.run).unwrap_or(&0);
            candidate.whole_run = candidate.run_blocks >= full.max(1);
        }
        let mut queue = Self { candidates };
        queue.sort();
        queue
    }

    /// Prefers memory blocks with larger nested entries, which `nested_bytes` knows by address.
    pub fn prefer(&mut self, nested_bytes: impl Fn(u64) -> u64) {
        for candidate in &mut self.candidates {
            candidate.nested_bytes = nested_bytes(candidate.start);
        }
        self.sort();
    }

    /// Memory blocks that are offline and in no pool, high addresses first.
    pub fn already_offline(blocks: &[Block], pooled: &HashSet<u64>) -> Vec<Candidate> {
        use hpmmap_host::memory::State;
        let mut found: Vec<Candidate> = blocks
            .iter()
            .filter(|b| b.state == State::Offline && !pooled.contains(&b.index))
            .map(Candidate::new)
            .collect();
        found.sort_by_key(|c| Reverse(c.start));
        found
    }

    /// Number of candidates left.
    pub fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Takes the best one.
    pub fn next(&mut self) -> Option<Candidate> {
        self.candidates.pop()
    }

    /// A memory block failed: the rest of its gigabyte loses its rank.
    pub fn demote(&mut self, failed: &Candidate) {
        let mut changed = false;
        for candidate in &mut self.candidates {
            if candidate.run == failed.run {
                candidate.whole_run = false;
                candidate.run_blocks = candidate.run_blocks.saturating_sub(1);
                changed = true;
            }
        }
        if changed {
            self.sort();
        }
    }

    /// Sorts the best candidate to the end, where it can be popped.
    fn sort(&mut self) {
        self.candidates.sort_by_key(|c| {
            Reverse((
                c.zone == Zone::Low,
                Reverse(c.nested_bytes),
                c.zone,
                !c.whole_run,
                Reverse(c.run_blocks),
                Reverse(c.start),
            ))
        });
    }
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;
    use hpmmap_host::memory;

    use super::*;

    const BLOCK: u64 = 128 << 20;

    fn order(fixture: &Fixture, pooled: &[u64]) -> Vec<u64> {
        let blocks = memory::blocks_of_node(&fixture.root(), 0).unwrap();
        let mut queue = Queue::new(&blocks, &pooled.iter().copied().collect(), BLOCK);
        std::iter::from_fn(|| queue.next().map(|c| c.index)).collect()
    }

    fn machine(zones: &[(std::ops::Range<u64>, &str)]) -> Fixture {
        let fixture = Fixture::new();
        fixture.block_size(BLOCK);
        for (range, zone) in zones {
            for index in range.clone() {
                fixture.block(0, index, "online", zone);
            }
        }
        fixture
    }

    #[test]
    fn movable_first_low_memory_last_and_none_never() {
        let fixture = machine(&[
            (0..1, "none"),
            (1..2, "DMA32"),
            (40..41, "Normal"),
            (32..33, "Movable"),
        ]);
        assert_eq!(order(&fixture, &[]), [32, 40, 1]);
    }

    #[test]
    fn whole_gigabytes_first_then_fuller_parts_then_high_addresses() {
        // Gigabytes: 32-39 whole, 40-47 whole, 48-50 three, 56-60 five.
        let fixture = machine(&[(32..51, "Normal"), (56..61, "Normal")]);
        let expected: Vec<u64> = (40..48)
            .rev()
            .chain((32..40).rev())
            .chain((56..61).rev())
            .chain((48..51).rev())
            .collect();
        assert_eq!(order(&fixture, &[]), expected);
    }

    #[test]
    fn larger_nested_entries_come_before_movable_memory_and_low_memory_stays_last() {
        let fixture = machine(&[(1..2, "DMA32"), (32..34, "Normal"), (40..42, "Movable")]);
        let blocks = memory::blocks_of_node(&fixture.root(), 0).unwrap();
        let mut queue = Queue::new(&blocks, &HashSet::new(), BLOCK);
        queue.prefer(|start| match start / BLOCK {
            1 | 32 => 1 << 30,
            40 => 2 << 20,
            _ => 4096,
        });
        let order: Vec<u64> = std::iter::from_fn(|| queue.next().map(|c| c.index)).collect();
        assert_eq!(order, [32, 40, 41, 33, 1]);
    }

    #[test]
    fn a_gigabyte_the_pool_has_begun_is_finished_first() {
        let fixture = machine(&[(32..44, "Normal")]);
        for index in 44..48 {
            fixture.block(0, index, "offline", "Normal");
        }
        let order = order(&fixture, &[44, 45, 46, 47]);
        assert_eq!(order[..4], [43, 42, 41, 40]);
        assert_eq!(order.len(), 12);
    }

    #[test]
    fn blocks_offline_for_another_reason_are_left_alone() {
        let fixture = machine(&[(32..34, "Normal")]);
        fixture.block(0, 34, "offline", "Normal");
        fixture.block(0, 35, "offline", "Normal Movable");
        assert_eq!(order(&fixture, &[]), [33, 32]);
        let blocks = memory::blocks_of_node(&fixture.root(), 0).unwrap();
        let offline = Queue::already_offline(&blocks, &HashSet::from([35]));
        assert_eq!(offline.iter().map(|c| c.index).collect::<Vec<_>>(), [34]);
        assert!(!offline[0].online);
    }

    #[test]
    fn a_failure_puts_the_rest_of_its_gigabyte_behind_whole_ones() {
        let fixture = machine(&[(32..48, "Normal")]);
        let blocks = memory::blocks_of_node(&fixture.root(), 0).unwrap();
        let mut queue = Queue::new(&blocks, &HashSet::new(), BLOCK);
        let first = queue.next().unwrap();
        assert_eq!(first.index, 47);
        queue.demote(&first);
        assert_eq!(queue.next().unwrap().index, 39);
        assert_eq!(queue.len(), 14);
    }

    #[test]
    fn blocks_of_two_gigabytes_are_whole_by_themselves() {
        let fixture = Fixture::new();
        fixture.block_size(2 << 30);
        fixture.block(0, 2, "online", "Normal");
        fixture.block(0, 3, "online", "Normal");
        let blocks = memory::blocks_of_node(&fixture.root(), 0).unwrap();
        let mut queue = Queue::new(&blocks, &HashSet::new(), 2 << 30);
        let first = queue.next().unwrap();
        assert_eq!((first.index, first.whole_run), (3, true));
    }
}
