//! The affinity of tasks.
//!
//! When CPUs come to a partition or leave one, the kernel sets the affinity of tasks outside of it
//! anew: of kernel threads always, and before Linux 6.2 of all. Tasks with fewer CPUs than all lose
//! that. So what they had is recorded, and set again without the CPUs of partitions. Threads of the
//! kernel that came later, such as the module's, leave the partitions, too.

use hpmmap_base::error::Result;
use hpmmap_host::Root;

use super::machine::{Cpus, Machine, parse_cpus};
use super::record::{Host, Task, online};

/// Flags of a task in /proc/PID/stat.
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;
const PF_KTHREAD: u64 = 0x0020_0000;

/// A task as it is.
struct Present {
    task: Task,
    is_kernels: bool,
    is_bound: bool,
}

impl Present {
    fn read(root: &Root, dir: &str, number: u32) -> Option<Self> {
        let stat = root.read(format!("{dir}/stat")).ok()?;
        // The name may have spaces and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let flags: u64 = fields.get(6)?.parse().ok()?;
        let status = root.read(format!("{dir}/status")).ok()?;
        let cpus = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(Self {
            task: Task {
                number,
                start: fields.get(19)?.parse().ok()?,
                cpus: parse_cpus(cpus)?,
            },
            is_kernels: flags & PF_KTHREAD != 0,
            is_bound: flags & PF_NO_SETAFFINITY != 0,
        })
    }

    /// All tasks whose affinity may be set.
    fn all(root: &Root) -> Vec<Self> {
        let mut all = Vec::new();
        for process in root.numbered::<u32>("proc", "").unwrap_or_default() {
            let tasks = root.numbered::<u32>(format!("proc/{process}/task"), "");
            // A process may end meanwhile.
            for number in tasks.unwrap_or_default() {
                all.extend(Self::read(
                    root,
                    &format!("proc/{process}/task/{number}"),
                    number,
                ));
            }
        }
        all.retain(|one| !one.is_bound);
        all
    }
}

/// Who may have set the affinity of kernel threads since it was recorded or settled.
#[derive(Clone, Copy, PartialEq)]
pub enum Last {
    /// The threads, or a user.
    Anybody,
    /// The kernel, as CPUs have come back from a partition. It leaves tasks of users alone on
    /// kernels where a cgroup can be adopted, and only such a partition ends by itself.
    Kernel,
}

/// Records the tasks with fewer CPUs than all that `taken` leaves, before that changes. A task that
/// was recorded and has set other CPUs since keeps those.
pub fn record(root: &Root, host: &mut Host, taken: &Cpus, last: Last) -> Result<()> {
    let online = online(root)?;
    let left = &online - taken;
    let old = std::mem::take(&mut host.tasks);
    for Present {
        task: now,
        is_kernels,
        ..
    } in Present::all(root)
    {
        let was = old
            .iter()
            .find(|was| was.number == now.number && was.start == now.start);
        let unchanged = was.filter(|was| {
            let rest: Cpus = &was.cpus - taken;
            let is_reset = is_kernels && last == Last::Kernel;
            is_reset || rest.is_empty() || (&rest & &online) == (&now.cpus & &online)
        });
        match unchanged {
            Some(was) => host.tasks.push(was.clone()),
            // In a partition.
            None if now.cpus.is_subset(taken) => (),
            None if left.is_subset(&now.cpus) => (),
            None => host.tasks.push(now),
        }
    }
    Ok(())
}

/// Sets the affinity of recorded tasks without the CPUs that are taken; kernel threads that have
/// some of these are recorded before.
pub fn settle(machine: &impl Machine, host: &mut Host, taken: &Cpus) -> Result<()> {
    let root = machine.root();
    let online = online(root)?;
    let mut due = Vec::new();
    let mut late = Vec::new();
    for Present {
        task: now,
        is_kernels,
        ..
    } in Present::all(root)
    {
        let was = host
            .tasks
            .iter()
            .find(|was| was.number == now.number && was.start == now.start);
        let wanted = match was {
            Some(was) => &was.cpus - taken,
            None if is_kernels && !now.cpus.is_disjoint(taken) => {
                late.push(now.clone());
                &now.cpus - taken
            }
            None => continue,
        };
        let wanted = &wanted & &online;
        if !wanted.is_empty() && wanted != (&now.cpus & &online) {
            due.push((now.number, wanted));
        }
    }
    if !late.is_empty() {
        host.tasks.append(&mut late);
        host.save(machine)?;
    }
    for (task, cpus) in due {
        // It may have ended, or the kernel has bound it since.
        let _ = machine.set_affinity(task, &cpus);
    }
    Ok(())
}
