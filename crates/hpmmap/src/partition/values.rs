//! The values of the host that partitions change: masks of interrupts, workqueues and watchdogs,
//! the fair server, corrected machine checks, halt polling, RT throttling, and what cgroups above a
//! partition grant it.
//!
//! Each has the value that it had before the first partition, which is recorded, and a value that
//! follows from it and from the partitions that there are. So a partition that goes never brings
//! back the CPUs of another one, and whoever comes after a command that died does what was left.

use std::collections::BTreeSet;
use std::fs;

use hpmmap_base::error::{Error, Result};
use hpmmap_host::Root;
use serde::Serialize;

use super::cgroup;
use super::machine::{Cpus, Machine, format_cpus, parse_cpus};
use super::record::{Host, Partition, online, taken};

const IRQ: &str = "proc/irq";
const WORKQUEUES: &str = "sys/devices/virtual/workqueue";
const WATCHDOG: &str = "proc/sys/kernel/watchdog_cpumask";
const FAIR_SERVER: &str = "sys/kernel/debug/sched/fair_server";
/// How long KVM polls before a halted vCPU leaves its CPU.
pub const HALT_POLL: &str = "sys/module/kvm/parameters/halt_poll_ns";
/// How much of a second real-time tasks get.
pub const RT_RUNTIME: &str = "proc/sys/kernel/sched_rt_runtime_us";
const IGNORE_CE: &str = "sys/devices/system/machinecheck/machinecheck0/ignore_ce";

/// How a file follows from what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A list of CPUs that loses those of partitions.
    List,
    /// The same as a mask.
    Mask,
    /// The fair server of a CPU, which is off in a partition.
    FairServer(u32),
    /// Corrected machine checks, which no CPU looks for if there is a partition.
    IgnoreCe,
    /// The longest halt polling that a partition asks for.
    HaltPoll,
    /// RT throttling, which is off if a partition asks for that.
    RtRuntime,
    /// The controllers of a cgroup above partitions.
    Controllers,
    /// CPUs that a cgroup grants to partitions below it.
    Exclusive,
}

impl Kind {
    fn of(path: &str) -> Option<Self> {
        let (dir, name) = path.rsplit_once('/')?;
        Some(match name {
            "smp_affinity_list" | "watchdog_cpumask" => Self::List,
            "default_smp_affinity" | "cpumask" => Self::Mask,
            "runtime" => Self::FairServer(dir.rsplit_once("/cpu")?.1.parse().ok()?),
            "ignore_ce" => Self::IgnoreCe,
            "halt_poll_ns" => Self::HaltPoll,
            "sched_rt_runtime_us" => Self::RtRuntime,
            "cgroup.subtree_control" => Self::Controllers,
            "cpuset.cpus.exclusive" => Self::Exclusive,
            _ => return None,
        })
    }
}

/// The facts that decide on the values.
struct Wanted<'a> {
    partitions: &'a [Partition],
    /// CPUs of all partitions.
    taken: Cpus,
    /// CPUs of none.
    left: Cpus,
}

impl<'a> Wanted<'a> {
    fn new(root: &Root, partitions: &'a [Partition]) -> Result<Self> {
        let taken = taken(partitions);
        let left = &online(root)? - &taken;
        Ok(Self {
            partitions,
            taken,
            left,
        })
    }

    /// The CPUs of `before` without those of partitions; others of the host if none is left.
    fn without(&self, before: &Cpus) -> Cpus {
        let rest: Cpus = before - &self.taken;
        match rest.is_empty() && !before.is_empty() {
            true => self.left.clone(),
            false => rest,
        }
    }

    /// The value of a file that was `before`; `None` for `before` itself.
    fn value(&self, path: &str, before: &str) -> Option<String> {
        match Kind::of(path)? {
            Kind::List => {
                let cpus = parse_cpus(before)?;
                (!cpus.is_disjoint(&self.taken)).then(|| format_cpus(&self.without(&cpus)))
            }
            Kind::Mask => {
                let cpus = parse_mask(before)?;
                (!cpus.is_disjoint(&self.taken)).then(|| format_mask(&self.without(&cpus)))
            }
            Kind::FairServer(cpu) => self.taken.contains(&cpu).then(|| "0".into()),
            Kind::IgnoreCe => (!self.taken.is_empty()).then(|| "1".into()),
            Kind::HaltPoll => {
                let asked = self.partitions.iter().filter_map(|one| one.halt_poll_ns);
                asked.max().map(|ns| ns.to_string())
            }
            Kind::RtRuntime => {
                let asks = self.partitions.iter().any(|one| one.unthrottled);
                asks.then(|| "-1".into())
            }
            Kind::Controllers => {
                let has = before.split_whitespace().any(|name| name == "cpuset");
                let below = self.below(path).next().is_some();
                (below && !has).then(|| "+cpuset".into())
            }
            Kind::Exclusive => {
                let mut cpus = parse_cpus(before)?;
                let had = cpus.len();
                cpus.extend(self.below(path).flat_map(|one| &one.cpus));
                (cpus.len() > had).then(|| format_cpus(&cpus))
            }
        }
    }

    /// The partitions below the cgroup that has this file.
    fn below(&self, path: &str) -> impl Iterator<Item = &Partition> {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir).to_string();
        self.partitions.iter().filter(move |one| {
            !one.systemd
                && one
                    .cgroup
                    .strip_prefix(&dir)
                    .is_some_and(|rest| rest.starts_with('/'))
        })
    }
}

/// Is the file as it should be?
fn is_met(path: &str, present: &str, wanted: &str) -> bool {
    match Kind::of(path) {
        Some(Kind::List | Kind::Exclusive) => parse_cpus(present) == parse_cpus(wanted),
        Some(Kind::Mask) => parse_mask(present) == parse_mask(wanted),
        Some(Kind::Controllers) => {
            let has = |text: &str| text.split_whitespace().any(|name| name.ends_with("cpuset"));
            has(present) == has(wanted)
        }
        _ => present.trim() == wanted.trim(),
    }
}

/// The text that brings a file to its recorded value.
fn undo_text(path: &str, before: &str) -> String {
    match Kind::of(path) {
        Some(Kind::Controllers) => "-cpuset".into(),
        _ => before.to_string(),
    }
}

/// A value that the kernel did not let change.
#[derive(Debug)]
pub struct Refused {
    pub path: String,
    pub why: String,
}

/// Lets the cgroups above those of these partitions grant them what they need.
pub fn grant(
    machine: &impl Machine,
    host: &mut Host,
    partitions: &[Partition],
) -> Result<Vec<Refused>> {
    let wanted = Wanted::new(machine.root(), partitions)?;
    let mut refused = Vec::new();
    // A file comes to be by what is written to the one before.
    for path in partitions.iter().flat_map(Partition::files_above) {
        refused.extend(change(machine, host, &wanted, BTreeSet::from([path]))?);
    }
    Ok(refused)
}

/// Stops the fair servers of partitions. The kernel lets their runtime become less only in a domain
/// of the scheduler that it has just built (6.12: EBUSY elsewhere, and for isolated CPUs).
pub fn stop_fair_servers(
    machine: &impl Machine,
    host: &mut Host,
    partitions: &[Partition],
) -> Result<()> {
    let wanted = Wanted::new(machine.root(), partitions)?;
    let paths = fair_servers(machine.root());
    change(machine, host, &wanted, paths.into_iter().collect()).map(|_| ())
}

/// The runtimes of the fair servers, if this kernel has any and debugfs is mounted.
pub fn fair_servers(root: &Root) -> Vec<String> {
    let servers = root.numbered::<u32>(FAIR_SERVER, "cpu").unwrap_or_default();
    let path = |cpu| format!("{FAIR_SERVER}/cpu{cpu}/runtime");
    servers.into_iter().map(path).collect()
}

/// Brings the values of the host to what these partitions need, and back to what they were without.
/// Returns what the kernel refused.
pub fn settle(
    machine: &impl Machine,
    host: &mut Host,
    partitions: &[Partition],
) -> Result<Vec<Refused>> {
    let root = machine.root();
    let wanted = Wanted::new(root, partitions)?;
    balance(machine, host, &wanted)?;
    let paths = paths(root, host, partitions);
    change(machine, host, &wanted, paths)
}

/// The files that are not as they should be.
pub fn unmet(root: &Root, host: &Host, partitions: &[Partition]) -> Result<Vec<String>> {
    let wanted = Wanted::new(root, partitions)?;
    let due = due(root, host, &wanted, paths(root, host, partitions));
    Ok(due.into_iter().map(|due| due.path).collect())
}

/// The files of the host that may have to change.
fn paths(root: &Root, host: &Host, partitions: &[Partition]) -> BTreeSet<String> {
    let mut paths: BTreeSet<String> = host.values.keys().cloned().collect();
    if !partitions.is_empty() {
        paths.extend(of_host(root));
    }
    paths
}

/// A change of a file.
struct Due {
    path: String,
    before: String,
    text: String,
}

fn due(root: &Root, host: &Host, wanted: &Wanted, paths: BTreeSet<String>) -> Vec<Due> {
    let change = |path: String| {
        // An interrupt that is gone needs nothing.
        let present = contents(root, &path)?;
        let before = match host.values.get(&path) {
            Some(before) => before.clone(),
            None => {
                wanted.value(&path, &present)?;
                requested(root, &path).unwrap_or_else(|| present.clone())
            }
        };
        let value = wanted.value(&path, &before);
        let is_met = is_met(&path, &present, value.as_deref().unwrap_or(&before));
        let text = value.unwrap_or_else(|| undo_text(&path, &before));
        (!is_met).then_some(Due { path, before, text })
    };
    paths.into_iter().filter_map(change).collect()
}

/// Records are durable before anything changes.
fn change(
    machine: &impl Machine,
    host: &mut Host,
    wanted: &Wanted,
    paths: BTreeSet<String>,
) -> Result<Vec<Refused>> {
    let root = machine.root();
    let mut due = due(root, host, wanted, paths);
    due.retain(|due| due.text != "-cpuset" || !cgroup::has_cpusets_below(root, &due.path));
    if due.iter().any(|due| !host.values.contains_key(&due.path)) {
        for Due { path, before, .. } in &due {
            let value = host.values.entry(path.clone());
            value.or_insert_with(|| before.clone());
        }
        host.save(machine)?;
    }
    // A cgroup grants what the one above it has: from above, and taken back from below.
    due.sort_by_key(|due| due.path.matches('/').count());
    let grants = |due: &Due| wanted.below(&due.path).next().is_some();
    let (first, last): (Vec<_>, Vec<_>) = due.into_iter().partition(grants);
    let mut refused = Vec::new();
    for Due { path, text, .. } in first.into_iter().chain(last.into_iter().rev()) {
        if let Err(error) = machine.write(&path, &text) {
            let why = error.to_string();
            refused.push(Refused { path, why });
        }
    }
    Ok(refused)
}

/// Keeps irqbalance off the partitions. It forgets nothing, but answers with what it uses since its
/// last round: so it is always told.
fn balance(machine: &impl Machine, host: &mut Host, wanted: &Wanted) -> Result<()> {
    if host.irqbalance.is_none() && !wanted.taken.is_empty() {
        let banned = machine.irqbalance("setup").as_deref().and_then(banned);
        let Some(banned) = banned else {
            return Ok(());
        };
        if wanted.taken.is_subset(&banned) {
            return Ok(());
        }
        host.irqbalance = Some(format_cpus(&banned));
        host.save(machine)?;
    }
    let Some(before) = host.irqbalance.as_deref().and_then(parse_cpus) else {
        return Ok(());
    };
    let list = match format_cpus(&(&before | &wanted.taken)) {
        none if none.is_empty() => "NULL".into(),
        list => list,
    };
    machine.irqbalance(&format!("settings cpus {list}"));
    Ok(())
}

/// The CPUs without interrupts in irqbalance's answer.
fn banned(answer: &str) -> Option<Cpus> {
    parse_mask(answer.rsplit_once("BANNED ")?.1.trim_end_matches('\0'))
}

/// Files of the host that partitions change, of those that there are.
fn of_host(root: &Root) -> Vec<String> {
    let irqs = root.numbered::<u32>(IRQ, "").unwrap_or_default();
    let mut paths: Vec<String> = irqs
        .iter()
        .map(|irq| format!("{IRQ}/{irq}/smp_affinity_list"))
        .collect();
    paths.push(format!("{IRQ}/default_smp_affinity"));
    paths.push(WATCHDOG.into());
    paths.push(format!("{WORKQUEUES}/cpumask"));
    let queues = root.entries(WORKQUEUES).unwrap_or_default();
    paths.extend(
        queues
            .iter()
            .map(|name| format!("{WORKQUEUES}/{name}/cpumask")),
    );
    paths.extend(fair_servers(root));
    paths.extend([IGNORE_CE, HALT_POLL, RT_RUNTIME].map(String::from));
    paths
}

/// The exact contents of a file; `None` if it does not exist.
fn contents(root: &Root, path: &str) -> Option<String> {
    String::from_utf8(fs::read(root.join(path)).ok()?).ok()
}

/// The requested value of a mask that has lost the CPUs of partitions already (Linux 6.12 takes those of
/// isolated ones out of the workqueues' mask itself).
fn requested(root: &Root, path: &str) -> Option<String> {
    contents(root, &format!("{path}_requested"))
}

/// A mask in hexadecimal digits, in groups of eight.
pub fn parse_mask(text: &str) -> Option<Cpus> {
    let digits: Vec<u32> = text
        .trim()
        .chars()
        .filter(|&digit| digit != ',')
        .map(|digit| digit.to_digit(16))
        .collect::<Option<_>>()?;
    let bits = digits.iter().rev().zip((0u32..).step_by(4));
    Some(
        bits.flat_map(|(digit, first)| {
            (0..4)
                .filter(move |bit| digit >> bit & 1 != 0)
                .map(move |bit| first + bit)
        })
        .collect(),
    )
}

fn format_mask(cpus: &Cpus) -> String {
    let groups = cpus.last().map_or(1, |last| last / 32 + 1);
    let group = |number: u32| {
        let bits = (0..32).filter(|bit| cpus.contains(&(number * 32 + bit)));
        format!("{:08x}", bits.fold(0u32, |mask, bit| mask | 1 << bit))
    };
    (0..groups).rev().map(group).collect::<Vec<_>>().join(",")
}

/// An interrupt that can come to CPUs of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    number: u32,
    /// The device or driver that has it.
    name: String,
    /// Where the kernel sends it.
    cpus: String,
}

/// The interrupts that the kernel sends to one of these CPUs: managed ones, which a driver has for
/// each CPU, and those that hardware ties to a CPU.
pub fn interrupts(root: &Root, cpus: &Cpus) -> Vec<Interrupt> {
    let irqs = root.numbered::<u32>(IRQ, "").unwrap_or_default();
    irqs.into_iter()
        .filter_map(|number| {
            let dir = format!("{IRQ}/{number}");
            // Without a handler there is no interrupt.
            let name = root
                .entries(&dir)
                .ok()?
                .into_iter()
                .find(|name| root.join(&dir).join(name).is_dir())?;
            // Where it goes can stay as it was until it comes the next time.
            let may = root.read(format!("{dir}/smp_affinity_list")).ok()?;
            let sent = root.read(format!("{dir}/effective_affinity_list"));
            let text = sent.unwrap_or_else(|_| may.clone());
            let sent = &parse_cpus(&may)? & &parse_cpus(&text)?;
            (!sent.is_disjoint(cpus)).then_some(Interrupt {
                number,
                name,
                cpus: text,
            })
        })
        .collect()
}

impl std::fmt::Display for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}, CPU {})", self.number, self.name, self.cpus)
    }
}

/// The error for a value that a partition cannot do without.
pub fn required(refused: &[Refused], path: &str) -> Result<()> {
    match refused.iter().find(|one| one.path == path) {
        None => Ok(()),
        Some(one) => Err(Error::Failed(format!("cannot write /{path}: {}", one.why))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_groups_of_eight_digits() {
        assert_eq!(parse_mask("ff\n"), Some((0..8).collect()));
        assert_eq!(
            parse_mask("00000001,00000003"),
            Some(Cpus::from([0, 1, 32]))
        );
        assert_eq!(parse_mask("xy"), None);
        assert_eq!(format_mask(&Cpus::from([0, 1, 32])), "00000001,00000003");
        assert_eq!(format_mask(&Cpus::new()), "00000000");
    }

    #[test]
    fn irqbalance_tells_its_banned_cpus() {
        let answer = "SLEEP 10 IRQ 4 LOAD 1 DIFF 2 CLASS 3 BANNED 00000000,0000000c";
        assert_eq!(banned(answer), Some(Cpus::from([2, 3])));
        assert_eq!(banned("SLEEP 10 "), None);
    }
}
