//! `hpmmap vm`

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{
    Column::{Number, Text},
    print, print_versioned, table, warn,
};
use hpmmap_base::size::{counted, short};
use hpmmap_base::{signals, user_name};
use hpmmap_host::noise::interrupts::{self, Row};
use hpmmap_host::{Root, number_list, process, vm};
use nix::unistd::Uid;
use serde::Serialize;

use super::status_watch::SLICE;
use super::{require_nodes, vm_agent};
use crate::cli::{VmGuestArgs, VmPinArgs, VmStatusArgs, VmVerb};
use crate::partition;
use crate::partition::enter;
use crate::partition::machine::{Live, Machine};
use crate::vm::exits::{self, Counter, Exits};
use crate::vm::pin::{self, Threads};
use crate::vm::{Guest, Request, Starter};

pub fn perform(verb: &VmVerb) -> Result<ExitCode> {
    match verb {
        VmVerb::Qemu(args) => print(&guest(args, Starter::Qemu)?.qemu()),
        VmVerb::Xml(args) => print(&guest(args, Starter::Libvirt)?.xml()),
        VmVerb::Status(args) => status(args),
        VmVerb::Pin(args) => pin(args),
        VmVerb::Agent(args) => vm_agent::perform(args),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn guest(args: &VmGuestArgs, starter: Starter) -> Result<Guest> {
    let root = Root::default();
    if let Some(node) = args.node {
        require_nodes(&hpmmap_host::node::with_memory(&root)?, &[node])?;
    }
    let request = Request {
        name: args.name.clone(),
        memory: args.memory,
        page_size: args.page_size.bytes(),
        cpus: args.cpus,
        node: args.node,
        partition: args.partition.clone(),
        fifo: args.fifo,
        devices: args.device.clone(),
        mount: args.mount.clone(),
    };
    let (guest, warning) = Guest::checked(&root, &request, starter)?;
    if let Some(text) = warning {
        warn(&text);
    }
    Ok(guest)
}

fn pin(args: &VmPinArgs) -> Result<()> {
    let machine = Live::default();
    let root = machine.root();
    let threads = Threads::of(root, args.pid)?;
    let now = pin::partition_of(root, args.pid)?;
    let one = match &args.partition {
        Some(name) => partition::find(root, name)?,
        None => now.clone().ok_or_else(|| {
            Error::Usage(format!(
                "process {} is in no partition: name one with --partition (hpmmap partition list)",
                args.pid
            ))
        })?,
    };
    if now.is_none_or(|now| now.name != one.name) {
        if !Uid::effective().is_root() {
            return Err(Error::NoPermission {
                what: format!("to move process {} into partition '{}'", args.pid, one.name),
                hint: format!(
                    "root may; or start it with 'hpmmap run --partition {} --'",
                    one.name
                ),
            });
        }
        let lock = || partition::lock_entry(&machine);
        enter::enter(&machine, &one.name, args.pid, None, lock, &|_, _, _| Ok(()))?;
    }
    let cpus = pin::pin(&machine, &threads, &one, args.fifo)?;
    let others = match cpus.others.is_empty() {
        true => "the other threads share them".into(),
        false => format!(
            "the other threads have CPUs {}",
            number_list::format(&cpus.others)
        ),
    };
    let pairs = cpus.vcpus.iter().enumerate();
    let pairs: Vec<String> = pairs
        .map(|(vcpu, cpu)| format!("{vcpu} on {cpu}"))
        .collect();
    print(&format!("vCPUs: {}; {others}", pairs.join(", ")))
}

/// A vCPU, and its times in the interval.
#[derive(Debug, Serialize)]
struct Vcpu {
    vcpu: u32,
    thread: u32,
    /// The CPUs that it may use, and the one that it used last.
    cpus: String,
    cpu: u32,
    fifo: Option<u32>,
    run_ns: u64,
    /// Time that it was runnable and waited for a CPU.
    steal_ns: u64,
}

/// Interrupts of one kind on a CPU in the interval.
#[derive(Debug, Serialize)]
struct Interrupt {
    cpu: u32,
    name: String,
    label: String,
    count: u64,
}

/// A virtual machine.
#[derive(Debug, Serialize)]
struct Vm {
    pid: u32,
    command: String,
    user: String,
    partition: Option<String>,
    nested: Option<vm::Entries>,
    vcpus: Vec<Vcpu>,
    exits: Option<Vec<Exits>>,
    interrupts: Vec<Interrupt>,
}

/// The report.
#[derive(Debug, Serialize)]
struct Report {
    seconds: f64,
    vms: Vec<Vm>,
    /// Facts that this user does not see.
    unknown: Vec<String>,
}

/// The values before or after the interval.
struct Look {
    threads: Vec<(u32, u32, vm::Thread)>,
    interrupts: Vec<Row>,
}

impl Look {
    fn at(root: &Root, pid: u32) -> Result<Self> {
        let mut threads = Vec::new();
        for (vcpu, thread) in vm::vcpus(root, pid)? {
            threads.extend(vm::thread(root, pid, thread)?.map(|one| (vcpu, thread, one)));
        }
        Ok(Self {
            threads,
            interrupts: interrupts::read(root)?,
        })
    }
}

fn status(args: &VmStatusArgs) -> Result<()> {
    let interval = Duration::try_from_secs_f64(args.seconds).ok();
    let interval = interval.filter(|one| (0.1..=86400.0).contains(&one.as_secs_f64()));
    let interval = interval.ok_or_else(|| {
        Error::Usage(format!(
            "--seconds {} is not between 0.1 and 86400 seconds",
            args.seconds
        ))
    })?;
    let report = measure(&Root::default(), args.pid, interval)?;
    match args.json {
        true => print_versioned(1, &report),
        false => print(&report.text()),
    }
}

fn measure(root: &Root, pid: Option<u32>, interval: Duration) -> Result<Report> {
    let pids = match pid {
        None => vm::all(root)?,
        Some(pid) if vm::has_vm(root, pid) => vec![pid],
        Some(pid) => {
            return Err(Error::Usage(format!(
                "process {pid} has no virtual machine that you may see: hpmmap vm status"
            )));
        }
    };
    let mut unknown = Vec::new();
    if !Uid::effective().is_root() {
        unknown.push(
            "virtual machines of other users, sizes of nested entries and exits: only root sees them"
                .into(),
        );
    }
    let counter = match Uid::effective().is_root() && !pids.is_empty() {
        true => Counter::start(root)
            .inspect_err(|error| {
                unknown.push(format!(
                    "exits: {error} (mount -t tracefs tracefs /sys/kernel/tracing)"
                ))
            })
            .ok(),
        false => None,
    };
    let look = |pid: &u32| Look::at(root, *pid).ok();
    let before: Vec<Option<Look>> = pids.iter().map(look).collect();
    let exits_before = counter.as_ref().map(Counter::read).transpose()?;
    let start = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    signals::catch(&stop)?;
    while start.elapsed() < interval && !signals::has_come(&stop) {
        sleep(SLICE.min(interval.saturating_sub(start.elapsed())));
    }
    let exits_after = counter.as_ref().map(Counter::read).transpose()?;
    let names = counter.as_ref().map(Counter::names).transpose()?;
    if counter
        .as_ref()
        .is_some_and(|one| one.dropped().unwrap_or(true))
    {
        unknown.push("some exits: the kernel had no room for all reasons and vCPUs".into());
    }
    let mut report = Report {
        seconds: start.elapsed().as_secs_f64(),
        vms: Vec::new(),
        unknown,
    };
    for (&pid, before) in pids.iter().zip(before) {
        // One that has ended meanwhile is left out.
        let (Some(before), Some(after)) = (before, look(&pid)) else {
            continue;
        };
        let threads: Vec<u32> = after.threads.iter().map(|(_, thread, _)| *thread).collect();
        let exits = match (&exits_before, &exits_after, &names) {
            (Some(before), Some(after), Some(names)) => {
                Some(exits::between(before, after, &threads, names))
            }
            _ => None,
        };
        let nested = vm::entries(root, pid);
        if nested.is_none() && Uid::effective().is_root() {
            report.unknown.push(format!(
                "nested entries of process {pid}: mount -t debugfs debugfs /sys/kernel/debug"
            ));
        }
        if threads.is_empty() {
            report.unknown.push(format!(
                "vCPUs of process {pid}: start QEMU with -name NAME,debug-threads=on"
            ));
        }
        report.vms.push(Vm {
            pid,
            command: process::command(root, pid)?.unwrap_or_default(),
            user: owner(root, pid),
            partition: pin::partition_of(root, pid)?.map(|one| one.name),
            nested,
            vcpus: vcpus(&before, &after),
            exits,
            interrupts: on_cpus(root, &before, &after)?,
        });
    }
    Ok(report)
}

fn owner(root: &Root, pid: u32) -> String {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(root.join(format!("proc/{pid}")));
    metadata.map_or_else(|_| "-".into(), |one| user_name(one.uid()))
}

fn vcpus(before: &Look, after: &Look) -> Vec<Vcpu> {
    let vcpu = |(vcpu, thread, now): &(u32, u32, vm::Thread)| {
        let then = before.threads.iter().find(|(_, then, _)| then == thread);
        let then = then.map_or((0, 0), |(_, _, then)| (then.run_ns, then.wait_ns));
        Vcpu {
            vcpu: *vcpu,
            thread: *thread,
            cpus: number_list::format(&now.allowed),
            cpu: now.cpu,
            fifo: now.fifo,
            run_ns: now.run_ns.saturating_sub(then.0),
            steal_ns: now.wait_ns.saturating_sub(then.1),
        }
    };
    after.threads.iter().map(vcpu).collect()
}

/// The interrupts of the host on the CPUs of the vCPUs. With vCPUs that nothing binds these are all.
fn on_cpus(root: &Root, before: &Look, after: &Look) -> Result<Vec<Interrupt>> {
    let online = partition::online(root)?;
    let allowed = after.threads.iter().flat_map(|(_, _, one)| &one.allowed);
    let cpus: BTreeSet<u32> = allowed.copied().collect();
    let mut all = Vec::new();
    for &cpu in cpus.intersection(&online) {
        for (row, count) in interrupts::growth(&before.interrupts, &after.interrupts, cpu) {
            all.push(Interrupt {
                cpu,
                name: row.name.clone(),
                label: row.label.clone(),
                count,
            });
        }
    }
    Ok(all)
}

/// The most reasons on a line.
const SHOWN: usize = 6;

fn by_name(total: u64, mut counts: Vec<(String, u64)>) -> String {
    counts.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    let shown = counts.iter().take(SHOWN);
    let shown: Vec<String> = shown
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    match shown.is_empty() {
        true => total.to_string(),
        false => format!("{total} ({})", shown.join(", ")),
    }
}

impl Report {
    fn text(&self) -> String {
        let mut text: Vec<String> = self.vms.iter().map(|one| one.text(self.seconds)).collect();
        if self.vms.is_empty() {
            text.push("no virtual machine runs".into());
        }
        let unknown = self.unknown.iter();
        text.extend(unknown.map(|one| format!("not known: {one}")));
        text.join("\n")
    }
}

impl Vm {
    fn text(&self, seconds: f64) -> String {
        let partition = self.partition.as_ref();
        let partition = partition.map_or(String::new(), |name| format!(", partition {name}"));
        let mut lines = vec![format!(
            "process {} ({}, {}): {}{partition}",
            self.pid,
            self.command,
            self.user,
            counted(self.vcpus.len(), "vCPU")
        )];
        if let Some(one) = self.nested {
            lines.push(format!(
                "nested entries: {} by 1G, {} by 2M, {} by 4K",
                short(one.huge),
                short(one.large),
                short(one.small)
            ));
        }
        let percent = |ns: u64| format!("{:.1}%", ns as f64 / seconds / 1e7);
        let columns = [
            Number("VCPU"),
            Number("THREAD"),
            Text("CPUS"),
            Number("LAST"),
            Text("POLICY"),
            Number("RAN"),
            Number("STEAL"),
        ];
        let rows = self.vcpus.iter().map(|one| {
            vec![
                one.vcpu.to_string(),
                one.thread.to_string(),
                one.cpus.clone(),
                one.cpu.to_string(),
                one.fifo
                    .map_or("other".into(), |priority| format!("fifo {priority}")),
                percent(one.run_ns),
                percent(one.steal_ns),
            ]
        });
        if !self.vcpus.is_empty() {
            lines.push(table(&columns, rows));
        }
        if let Some(exits) = &self.exits {
            let counts = exits
                .iter()
                .map(|one| (one.reason.clone(), one.count))
                .collect();
            let total = exits.iter().map(|one| one.count).sum();
            lines.push(format!(
                "exits in {seconds:.1} s: {}",
                by_name(total, counts)
            ));
        }
        let cpus: Vec<u32> = self.interrupts.iter().map(|one| one.cpu).collect();
        let mut names: Vec<(String, u64)> = Vec::new();
        for one in &self.interrupts {
            match names.iter_mut().find(|(name, _)| *name == one.name) {
                Some((_, count)) => *count += one.count,
                None => names.push((one.name.clone(), one.count)),
            }
        }
        if !cpus.is_empty() {
            let total = self.interrupts.iter().map(|one| one.count).sum();
            lines.push(format!(
                "interrupts of the host on CPUs {} in {seconds:.1} s: {}",
                number_list::format(&cpus),
                by_name(total, names)
            ));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_paragraph_for_each_virtual_machine() {
        let vcpu = |vcpu, cpu: u32, run_ns| Vcpu {
            vcpu,
            thread: 4715 + vcpu,
            cpus: cpu.to_string(),
            cpu,
            fifo: Some(1),
            run_ns,
            steal_ns: 0,
        };
        let exits = |reason: &str, count| Exits {
            reason: reason.into(),
            count,
        };
        let interrupt = |cpu, name: &str, count| Interrupt {
            cpu,
            name: name.into(),
            label: "Local timer interrupts".into(),
            count,
        };
        let vm = Vm {
            pid: 4711,
            command: "qemu-system-x86".into(),
            user: "alice".into(),
            partition: Some("vm".into()),
            nested: Some(vm::Entries {
                small: 1 << 20,
                large: 2 << 20,
                huge: 4 << 30,
            }),
            vcpus: vec![vcpu(0, 3, 1_000_000_000), vcpu(1, 4, 40_000_000)],
            exits: Some(vec![exits("hlt", 250), exits("msr", 12)]),
            interrupts: vec![interrupt(3, "LOC", 2), interrupt(4, "LOC", 3)],
        };
        let report = Report {
            seconds: 1.0,
            vms: vec![vm],
            unknown: vec!["x".into()],
        };
        let expected = "\
process 4711 (qemu-system-x86, alice): 2 vCPUs, partition vm
nested entries: 4G by 1G, 2M by 2M, 1M by 4K
VCPU  THREAD  CPUS  LAST  POLICY     RAN  STEAL
   0    4715  3        3  fifo 1  100.0%   0.0%
   1    4716  4        4  fifo 1    4.0%   0.0%
exits in 1.0 s: 262 (hlt 250, msr 12)
interrupts of the host on CPUs 3-4 in 1.0 s: 5 (LOC 5)
not known: x";
        assert_eq!(report.text(), expected);
    }
}
