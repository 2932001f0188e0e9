//! Partitions: CPUs, and pool memory, that only the tasks of one cgroup use.
//!
//! A partition is a record in /run, a cgroup, and changes of values of the host. The record comes
//! first and goes last. A command that finds the record of a half-made or half-deleted partition
//! undoes the rest, whoever died when.

mod cgroup;
pub mod enter;
mod lock;
pub mod machine;
pub mod quiet;
mod record;
#[cfg(test)]
mod simulated;
mod tasks;
#[cfg(test)]
mod tests;
pub mod values;

use hpmmap_base::error::{Error, Result};
use hpmmap_host::Root;

pub use cgroup::{processes, ranks, state};
pub use lock::{lock, lock_entry};
use machine::{Cpus, Live, Machine, format_cpus};
use record::{Host, taken};
pub use record::{Partition, Phase, all, find, online};
use tasks::Last;
use values::Refused;

/// The longest name of a partition.
const MOST_NAME: usize = 32;

/// A partition to make.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub name: String,
    pub cpus: Cpus,
    pub balance: bool,
    pub memory_bytes: u64,
    pub node: Option<u32>,
    pub user: Option<u32>,
    /// The cgroup to make it in, as a path below the mount point; the root if empty.
    pub under: String,
    /// That cgroup itself becomes the partition, with the CPUs that it has.
    pub adopts: bool,
    /// As `Partition` has it.
    pub halt_poll_ns: Option<u64>,
    /// The same.
    pub unthrottled: bool,
}

/// Checks a request against the machine and these partitions.
fn checked(root: &Root, request: &Request, partitions: &[Partition]) -> Result<Partition> {
    let name = &request.name;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.len() > MOST_NAME || !name.chars().all(is_word) {
        return Err(Error::Usage(format!(
            "'{name}' is no name of a partition: it has 1 to {MOST_NAME} letters, digits and '_'"
        )));
    }
    if let Some(one) = partitions.iter().find(|one| one.name == *name) {
        return Err(Error::Failed(format!(
            "there is a partition '{name}' already, with CPUs {}: delete it with \
             'hpmmap partition delete {name}'",
            format_cpus(&one.cpus)
        )));
    }
    let mount = cgroup::mount(root)?;
    let under = request.under.trim_matches('/');
    let option = if request.adopts {
        "--of-cgroup"
    } else {
        "--cgroup"
    };
    let has_remote = root.join(&mount).join("cpuset.cpus.isolated").exists();
    if !under.is_empty() && !has_remote {
        return Err(Error::Failed(format!(
            "{option} /{under}: a partition below a cgroup needs Linux 6.12 or newer"
        )));
    }
    let above = format!("{mount}/{under}");
    let above = above.trim_end_matches('/');
    if !root.join(above).is_dir() {
        return Err(Error::Usage(format!(
            "{option}: there is no cgroup /{under}"
        )));
    }
    let (cpus, given) = match request.adopts {
        true => {
            let cpus = cgroup::own_cpus(root, above)?;
            let given = format!("--of-cgroup /{under} with CPUs {}", format_cpus(&cpus));
            (cpus, given)
        }
        false => {
            let given = format!("--cpus {}", format_cpus(&request.cpus));
            (request.cpus.clone(), given)
        }
    };
    let online = online(root)?;
    let off: Cpus = &cpus - &online;
    if cpus.is_empty() || !off.is_empty() {
        return Err(Error::Usage(format!(
            "{given}: CPUs {} are not online; online are {}",
            format_cpus(&off),
            format_cpus(&online)
        )));
    }
    let ours = partitions
        .iter()
        .map(|one| (format!("partition '{}'", one.name), one.cpus.clone()));
    let others = cgroup::others(root, &mount, &cpus);
    let others = others.map(|(path, cpus)| (format!("the partition of cgroup {path}"), cpus));
    if let Some((whose, has)) = ours.chain(others).find(|(_, has)| !has.is_disjoint(&cpus)) {
        return Err(Error::Failed(format!(
            "{given}: CPUs {} belong to {whose}",
            format_cpus(&(&has & &cpus))
        )));
    }
    if (&(&online - &taken(partitions)) - &cpus).is_empty() {
        return Err(Error::Usage(format!(
            "{given} leaves no CPU for everything else: of the CPUs {} that are online one at \
             least must stay out of partitions",
            format_cpus(&online)
        )));
    }
    if request.halt_poll_ns.is_some() && !root.join(values::HALT_POLL).exists() {
        return Err(Error::Failed(
            "--halt-poll-ns: KVM is not loaded: modprobe kvm_intel (AMD: kvm_amd)".into(),
        ));
    }
    let systemd = under.is_empty() && root.join("run/systemd/system").is_dir();
    let suffix = if systemd { ".slice" } else { "" };
    let cgroup = match request.adopts {
        true => above.to_string(),
        false => format!("{above}/hpmmap_{name}{suffix}"),
    };
    Ok(Partition {
        name: name.clone(),
        phase: Phase::Making,
        cpus,
        balance: request.balance,
        memory_bytes: request.memory_bytes,
        node: request.node,
        user: request.user,
        cgroup,
        mount,
        systemd,
        adopted: request.adopts,
        halt_poll_ns: request.halt_poll_ns,
        unthrottled: request.unthrottled,
    })
}

/// Promises pool memory to the cgroup of a partition; the promise ends with the cgroup.
pub type Promise<'a> = &'a dyn Fn(&Partition) -> Result<()>;

/// Makes a partition. If it cannot be had in full, nothing has changed in the end.
pub fn create(
    machine: &impl Machine,
    request: &Request,
    promise: Promise,
) -> Result<(Partition, Vec<Refused>)> {
    let root = machine.root();
    let mut partitions = recover(machine)?;
    let one = checked(root, request, &partitions)?;
    let before = taken(&partitions);
    partitions.push(one.clone());
    let made = one.save(machine).and_then(|()| {
        let mut host = Host::load(root)?;
        tasks::record(root, &mut host, &before, Last::Anybody)?;
        host.save(machine)?;
        let refused = values::grant(machine, &mut host, &partitions)?;
        for path in one.files_above() {
            values::required(&refused, &path)?;
        }
        cgroup::make(machine, &one)?;
        if !values::fair_servers(root).is_empty() {
            cgroup::become_partition(machine, &one, "root")?;
            values::stop_fair_servers(machine, &mut host, &partitions)?;
        }
        cgroup::become_partition(machine, &one, one.kind())?;
        cgroup::open(machine, &one)?;
        promise(&one)?;
        tasks::settle(machine, &mut host, &taken(&partitions))?;
        let refused = values::settle(machine, &mut host, &partitions)?;
        let ready = Partition {
            phase: Phase::Ready,
            ..one.clone()
        };
        ready.save(machine)?;
        Ok((ready, refused))
    });
    made.inspect_err(|_| {
        if let Err(error) = undo(machine, &one) {
            machine.warn(&format!(
                "partition '{}' is half made: {error}; then run 'hpmmap partition delete {}'",
                one.name, one.name
            ));
        }
    })
}

/// Deletes a partition without tasks; returns what the kernel did not let put back.
pub fn delete(machine: &impl Machine, name: &str) -> Result<Vec<Refused>> {
    find(machine.root(), name)?;
    let left = recover(machine)?;
    match left.iter().find(|one| one.name == name) {
        Some(one) if one.phase == Phase::Ready => undo(machine, one),
        Some(_) => Err(Error::Failed(format!(
            "partition '{name}' is not undone in full: run 'hpmmap partition delete {name}' again \
             once the cause is gone"
        ))),
        // It was half made or half deleted.
        None => Ok(Vec::new()),
    }
}

/// Undoes the partitions that are half made or half deleted, and those whose owner has ended their
/// cgroup; returns the others. One that cannot be undone stays among them.
pub fn recover(machine: &impl Machine) -> Result<Vec<Partition>> {
    for one in all(machine.root())? {
        if one.phase == Phase::Ready && !cgroup::is_ended(machine.root(), &one) {
            continue;
        }
        if let Err(error) = undo(machine, &one) {
            machine.warn(&format!(
                "partition '{}' cannot be undone: {error}",
                one.name
            ));
        }
    }
    all(machine.root())
}

/// Undoes what has been done for a partition, in whichever phase it is.
fn undo(machine: &impl Machine, one: &Partition) -> Result<Vec<Refused>> {
    let root = machine.root();
    let mut host = Host::load(root)?;
    let mut others = all(root)?;
    if one.phase == Phase::Ready {
        // In later phases the kernel may have set affinities anew.
        let last = match cgroup::is_ended(root, one) {
            true => Last::Kernel,
            false => Last::Anybody,
        };
        tasks::record(root, &mut host, &taken(&others), last)?;
        host.save(machine)?;
        let deleting = Partition {
            phase: Phase::Deleting,
            ..one.clone()
        };
        deleting.save(machine)?;
    }
    others.retain(|other| other.name != one.name);
    cgroup::remove(machine, one)?;
    let refused = values::settle(machine, &mut host, &others)?;
    tasks::settle(machine, &mut host, &taken(&others))?;
    if others.is_empty() {
        Host::forget(machine)?;
    }
    machine.forget(&one.name)?;
    Ok(refused)
}

/// Moves tasks and interrupts that have come since off the partitions, such as the module's threads
/// for a new pool. Without partitions it does nothing.
pub fn refresh() -> Result<()> {
    let root = Root::default();
    if all(&root)?.is_empty() {
        return Ok(());
    }
    let machine = Live::default();
    let _lock = lock(&machine)?;
    settle(&machine)
}

fn settle(machine: &impl Machine) -> Result<()> {
    let root = machine.root();
    let partitions = recover(machine)?;
    if partitions.is_empty() {
        return Ok(());
    }
    let mut host = Host::load(root)?;
    // Beside one that cannot be undone the kernel may have set affinities anew.
    if partitions.iter().all(|one| one.phase == Phase::Ready) {
        tasks::record(root, &mut host, &taken(&partitions), Last::Anybody)?;
        host.save(machine)?;
    }
    tasks::settle(machine, &mut host, &taken(&partitions))?;
    values::settle(machine, &mut host, &partitions).map(|_| ())
}
