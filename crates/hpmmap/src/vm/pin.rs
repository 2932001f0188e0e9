//! vCPUs on CPUs of their own.

use std::io::ErrorKind;

use hpmmap_base::error::{Error, Result};
use hpmmap_host::{Root, cgroup, vm};
use hpmmap_sys::scheduling::Policy;

use super::Cpus;
use crate::partition::machine::Machine;
use crate::partition::{self, Partition};

/// The threads of a virtual machine.
pub struct Threads {
    pub pid: u32,
    /// Those of the vCPUs, in their order.
    pub vcpus: Vec<u32>,
}

impl Threads {
    pub fn of(root: &Root, pid: u32) -> Result<Self> {
        if !vm::has_vm(root, pid) {
            return Err(Error::Usage(format!(
                "process {pid} has no virtual machine that you may see: hpmmap vm status"
            )));
        }
        let vcpus = vm::vcpus(root, pid)?;
        if vcpus.is_empty() {
            return Err(Error::Failed(format!(
                "process {pid} has no thread that is known to be a vCPU: start QEMU with \
                 -name NAME,debug-threads=on, or see debugfs as root"
            )));
        }
        Ok(Self {
            pid,
            vcpus: vcpus.into_values().collect(),
        })
    }
}

/// The partition that a process is in.
pub fn partition_of(root: &Root, pid: u32) -> Result<Option<Partition>> {
    let Some(path) = cgroup::of(root, &pid.to_string()) else {
        return Ok(None);
    };
    let is_within = |one: &Partition| {
        let rest = path.strip_prefix(one.path());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    Ok(partition::all(root)?.into_iter().find(is_within))
}

/// Binds each vCPU to a CPU of the partition, and the other threads to the CPUs that are left.
pub fn pin(
    machine: &impl Machine,
    threads: &Threads,
    one: &Partition,
    fifo: Option<u32>,
) -> Result<Cpus> {
    let root = machine.root();
    let cpus = Cpus::of(root, one, threads.vcpus.len(), fifo.is_some())?;
    // The number of one that has ended may be another process's by now.
    let is_own = |thread| vm::has_thread(root, threads.pid, thread);
    let bind = |thread: u32, to: &[u32]| {
        if !is_own(thread) {
            return Ok(());
        }
        let to = to.iter().copied().collect();
        match machine.set_affinity(thread, &to) {
            // It has ended.
            Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(()),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Error::NoPermission {
                what: format!("to bind threads of process {}", threads.pid),
                hint: "only its user and root may".into(),
            }),
            other => other
                .map_err(|error| Error::Failed(format!("cannot bind thread {thread}: {error}"))),
        }
    };
    if !cpus.others.is_empty() {
        for thread in vm::threads(root, threads.pid)? {
            if !threads.vcpus.contains(&thread) {
                bind(thread, &cpus.others)?;
            }
        }
    }
    for (&thread, &cpu) in threads.vcpus.iter().zip(&cpus.vcpus) {
        bind(thread, &[cpu])?;
    }
    if let Some(priority) = fifo {
        for &thread in threads.vcpus.iter().filter(|&&thread| is_own(thread)) {
            Policy::fifo_alone(i32::try_from(priority).unwrap_or(i32::MAX))
                .set(thread)
                .map_err(|errno| Error::NoPermission {
                    what: format!(
                        "to give thread {thread} SCHED_FIFO {priority} ({})",
                        errno.desc()
                    ),
                    hint: "root may, and users with rtprio in /etc/security/limits.conf".into(),
                })?;
        }
    }
    Ok(cpus)
}
