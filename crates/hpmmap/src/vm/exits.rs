//! Exits of virtual machines by reason, counted by the kernel's tracer.
//!
//! A histogram of the tracepoint kvm:kvm_exit, in an instance of its own: other users of the tracer
//! notice nothing, and no event is written to a buffer.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use hpmmap_base::error::{Error, Result};
use hpmmap_host::Root;
use serde::Serialize;

const INSTANCES: &str = "sys/kernel/tracing/instances";
const NAME: &str = "hpmmap-vm-";
const EVENT: &str = "events/kvm/kvm_exit";

/// Exits for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exits {
    /// The kernel's name of the reason, or its number.
    pub reason: String,
    pub count: u64,
}

/// Counts from its making on. The kernel's instance goes with it; that of a killed command goes with
/// the next one.
pub struct Counter {
    root: Root,
    dir: String,
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.root.join(&self.dir));
    }
}

impl Counter {
    /// Begins to count the exits of all virtual machines.
    pub fn start(root: &Root) -> Result<Self> {
        let own = std::process::id().to_string();
        for name in root.entries(INSTANCES)? {
            let of = name.strip_prefix(NAME);
            if of.is_some_and(|pid| pid == own || !root.join("proc").join(pid).exists()) {
                let _ = fs::remove_dir(root.join(INSTANCES).join(&name));
            }
        }
        let dir = format!("{INSTANCES}/{NAME}{own}");
        let refused = |error: io::Error| Error::Failed(format!("/{dir}: {error}"));
        fs::create_dir(root.join(&dir)).map_err(refused)?;
        let counter = Self {
            root: root.clone(),
            dir: dir.clone(),
        };
        let trigger = root.join(&dir).join(EVENT).join("trigger");
        fs::write(trigger, "hist:keys=common_pid,exit_reason:size=8192").map_err(refused)?;
        Ok(counter)
    }

    /// The exits of each thread so far, by reason.
    pub fn read(&self) -> Result<BTreeMap<u32, BTreeMap<u32, u64>>> {
        Ok(parse(
            &self.root.read(format!("{}/{EVENT}/hist", self.dir))?,
        ))
    }

    /// Exits for which the kernel had no room.
    pub fn dropped(&self) -> Result<bool> {
        let text = self.root.read(format!("{}/{EVENT}/hist", self.dir))?;
        Ok(!text.contains("Dropped: 0"))
    }

    /// The kernel's names of the reasons on this CPU.
    pub fn names(&self) -> Result<BTreeMap<u32, String>> {
        let is_amd = self.root.join("sys/module/kvm_amd").exists();
        Ok(names(
            &self.root.read(format!("{}/{EVENT}/format", self.dir))?,
            is_amd,
        ))
    }
}

/// Lines such as `{ common_pid:  4711, exit_reason:  1024 } hitcount:  12`.
fn parse(text: &str) -> BTreeMap<u32, BTreeMap<u32, u64>> {
    let mut all: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
    for line in text.lines() {
        let mut numbers = line
            .split(|c: char| !c.is_ascii_digit())
            .filter(|word| !word.is_empty());
        if !line.starts_with("{ common_pid:") {
            continue;
        }
        let mut next = || numbers.next().and_then(|word| word.parse::<u64>().ok());
        if let (Some(thread), Some(reason), Some(count)) = (next(), next(), next()) {
            *all.entry(thread as u32)
                .or_default()
                .entry(reason as u32)
                .or_default() += count;
        }
    }
    all
}

/// The pairs of the first (Intel) or second (AMD) table in the format of the event.
fn names(format: &str, is_amd: bool) -> BTreeMap<u32, String> {
    let table = format
        .split("__print_symbolic(")
        .nth(1 + usize::from(is_amd));
    let pair = |text: &str| {
        let (number, rest) = text.split_once(',')?;
        let name = rest.split('"').nth(1)?;
        // The names of exceptions are sums.
        let sum: Option<u32> = number.split('+').map(number_of).sum();
        Some((sum?, name.to_string()))
    };
    table
        .unwrap_or_default()
        .split('{')
        .filter_map(pair)
        .collect()
}

fn number_of(text: &str) -> Option<u32> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || "()".contains(c));
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The exits of some threads between two counts, the most frequent first.
pub fn between(
    before: &BTreeMap<u32, BTreeMap<u32, u64>>,
    after: &BTreeMap<u32, BTreeMap<u32, u64>>,
    threads: &[u32],
    names: &BTreeMap<u32, String>,
) -> Vec<Exits> {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for thread in threads {
        for (reason, count) in after.get(thread).into_iter().flatten() {
            let old = before.get(thread).and_then(|old| old.get(reason));
            *sums.entry(*reason).or_default() += count - old.unwrap_or(&0).min(count);
        }
    }
    sums.retain(|_, count| *count != 0);
    let exits = sums.into_iter().map(|(reason, count)| Exits {
        // Intel has flags above the reason.
        reason: names
            .get(&reason)
            .or_else(|| names.get(&(reason & 0xffff)))
            .cloned()
            .unwrap_or_else(|| format!("{reason:#x}")),
        count,
    });
    let mut exits: Vec<Exits> = exits.collect();
    exits.sort_by(|a, b| (b.count, &a.reason).cmp(&(a.count, &b.reason)));
    exits
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    const FORMAT: &str = "name: kvm_exit\nprint fmt: \"vcpu %u reason %s\", REC->vcpu_id, \
        (REC->isa == 1) ? __print_symbolic(REC->exit_reason & 0xffff, { 0, \"EXCEPTION_NMI\" }, \
        { 12, \"HLT\" }) : __print_symbolic(REC->exit_reason, { 0x000, \"read_cr0\" }, \
        { 0x040 + 14, \"PF excp\" }, { 0x078, \"hlt\" }, { 0x400, \"npf\" }), REC->guest_rip";
    const HIST: &str = "# event histogram\n#\n\n\
        { common_pid:        100, exit_reason:       1024 } hitcount:         12\n\
        { common_pid:        100, exit_reason:        120 } hitcount:          3\n\
        { common_pid:        101, exit_reason:        120 } hitcount:         40\n\n\
        Totals:\n    Hits: 55\n    Entries: 3\n    Dropped: 0\n";

    #[test]
    fn reasons_have_the_names_of_the_cpu() {
        let amd = names(FORMAT, true);
        assert_eq!(amd[&0x4e], "PF excp");
        assert_eq!((&*amd[&0x400], amd.len()), ("npf", 4));
        assert_eq!(names(FORMAT, false)[&12], "HLT");
        assert!(names("", true).is_empty());
    }

    #[test]
    fn exits_are_those_of_the_threads_and_of_the_interval() {
        let before = parse(HIST);
        let after = parse(&HIST.replace("12\n", "20\n").replace("40\n", "90\n"));
        let names = names(FORMAT, true);
        let shown = |threads: &[u32]| -> Vec<(String, u64)> {
            let exits = between(&before, &after, threads, &names);
            exits
                .into_iter()
                .map(|one| (one.reason, one.count))
                .collect()
        };
        assert_eq!(shown(&[100]), [("npf".to_string(), 8)]);
        assert_eq!(
            shown(&[100, 101]),
            [("hlt".to_string(), 50), ("npf".to_string(), 8)]
        );
        let unnamed = between(&BTreeMap::new(), &after, &[100], &BTreeMap::new());
        assert_eq!(unnamed[0].reason, "0x400");
    }

    #[test]
    fn an_instance_of_a_killed_command_goes() {
        let fixture = Fixture::new();
        fixture.write("proc/1/comm", "x");
        for name in ["hpmmap-vm-1", "hpmmap-vm-2", "others"] {
            fs::create_dir_all(fixture.path().join(INSTANCES).join(name)).unwrap();
        }
        // The fixture has no tracepoint.
        assert!(Counter::start(&fixture.root()).is_err());
        assert_eq!(
            fixture.root().entries(INSTANCES).unwrap(),
            ["hpmmap-vm-1", "others"]
        );
    }
}
