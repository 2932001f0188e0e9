//! Virtual machines of KVM that run on this host, and where their RAM can come from.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::root::optional;
use crate::{Result, Root, number_list};

/// The links of descriptors that refer to a virtual machine.
const KVM_VM: &str = "anon_inode:kvm-vm";
const DEBUGFS: &str = "sys/kernel/debug/kvm";

/// A mount of the pools' files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its directory.
    pub path: String,
    /// The page size that it names, as hugetlbfs does; `None` if it names none.
    pub page_size: Option<u64>,
}

/// The mounts of the pools' files.
pub fn mounts(root: &Root) -> Result<Vec<Mount>> {
    let text = root.read("proc/self/mounts")?;
    let mount = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, path, "hpmmap", options, ..] = words[..] else {
            return None;
        };
        let size = options
            .split(',')
            .find_map(|one| one.strip_prefix("pagesize="));
        let mega = size.and_then(|size| size.strip_suffix('M')?.parse::<u64>().ok());
        Some(Mount {
            path: path.to_string(),
            page_size: mega.map(|mega| mega << 20),
        })
    };
    Ok(text.lines().filter_map(mount).collect())
}

/// RAM by the size of the nested page-table entries that map it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Entries {
    /// Bytes by entries of 4 KB.
    #[serde(rename = "4k_bytes")]
    pub small: u64,
    /// Bytes by entries of 2 MB.
    #[serde(rename = "2m_bytes")]
    pub large: u64,
    /// Bytes by entries of 1 GB.
    #[serde(rename = "1g_bytes")]
    pub huge: u64,
}

/// The processes that have a virtual machine, of those that this user may look into.
pub fn all(root: &Root) -> Result<Vec<u32>> {
    let mut processes: Vec<u32> = root.numbered("proc", "")?;
    processes.retain(|&pid| has_vm(root, pid));
    Ok(processes)
}

/// Does a process have a virtual machine? False if this user may not look.
pub fn has_vm(root: &Root, pid: u32) -> bool {
    let dir = format!("proc/{pid}/fd");
    let descriptors = root.entries(&dir).unwrap_or_default();
    descriptors.iter().any(|name| {
        let link = fs::read_link(root.join(&dir).join(name));
        link.is_ok_and(|link| link == Path::new(KVM_VM))
    })
}

/// The directories of a process's virtual machines in debugfs, which only root sees.
fn directories(root: &Root, pid: u32) -> Vec<String> {
    let names = root.entries(DEBUGFS).unwrap_or_default();
    let own = format!("{pid}-");
    let own = names.into_iter().filter(|name| name.starts_with(&own));
    own.map(|name| format!("{DEBUGFS}/{name}")).collect()
}

/// The nested entries of a process's virtual machines; `None` where debugfs does not show them.
pub fn entries(root: &Root, pid: u32) -> Option<Entries> {
    let directories = directories(root, pid);
    let sum = |name: &str| -> Option<u64> {
        let numbers = directories.iter();
        let numbers = numbers.map(|dir| root.read_number::<u64>(format!("{dir}/{name}")).ok());
        numbers.sum()
    };
    (!directories.is_empty()).then_some(())?;
    Some(Entries {
        small: sum("pages_4k")? << 12,
        large: sum("pages_2m")? << 21,
        huge: sum("pages_1g")? << 30,
    })
}

/// The threads of the vCPUs, by number: as debugfs says, or by their names (QEMU's `CPU 0/KVM`,
/// cloud-hypervisor's `vcpu0`, Firecracker's `fc_vcpu 0`).
pub fn vcpus(root: &Root, pid: u32) -> Result<BTreeMap<u32, u32>> {
    let mut threads = BTreeMap::new();
    for dir in directories(root, pid) {
        for vcpu in root.numbered::<u32>(&dir, "vcpu").unwrap_or_default() {
            let thread = root.read_number(format!("{dir}/vcpu{vcpu}/pid"));
            // 0 before it has run, and the number of another process's thread once it has ended.
            let own = thread.ok().filter(|&thread| has_thread(root, pid, thread));
            threads.extend(own.map(|thread| (vcpu, thread)));
        }
    }
    if threads.is_empty() {
        for thread in self::threads(root, pid)? {
            let name = root.read(format!("proc/{pid}/task/{thread}/comm"));
            let vcpu = name.ok().as_deref().and_then(vcpu_of);
            threads.extend(vcpu.map(|vcpu| (vcpu, thread)));
        }
    }
    Ok(threads)
}

/// All threads of a process.
pub fn threads(root: &Root, pid: u32) -> Result<Vec<u32>> {
    root.numbered(format!("proc/{pid}/task"), "")
}

/// Is this thread one of the process?
pub fn has_thread(root: &Root, pid: u32, thread: u32) -> bool {
    root.join(format!("proc/{pid}/task/{thread}")).exists()
}

fn vcpu_of(name: &str) -> Option<u32> {
    let qemu = || name.strip_prefix("CPU ")?.strip_suffix("/KVM");
    let others = || {
        name.strip_prefix("fc_")
            .unwrap_or(name)
            .strip_prefix("vcpu")
    };
    qemu().or_else(others)?.trim().parse().ok()
}

/// How a thread is scheduled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// The CPUs that it may use.
    pub allowed: Vec<u32>,
    /// The CPU that it used last.
    pub cpu: u32,
    /// The priority of SCHED_FIFO; `None` for other policies.
    pub fifo: Option<u32>,
    /// Time on a CPU.
    pub run_ns: u64,
    /// Time that it was runnable and waited for a CPU: the guest's steal time.
    pub wait_ns: u64,
}

/// Reads a thread of a process; `None` if it has ended.
pub fn thread(root: &Root, pid: u32, thread: u32) -> Result<Option<Thread>> {
    const SCHED_FIFO: u32 = 1;
    let dir = format!("proc/{pid}/task/{thread}");
    let read = || {
        let status = format!("{dir}/status");
        let allowed = root.parse(status, "a line Cpus_allowed_list", |text| {
            let list = text
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            number_list::parse(list?.trim()).ok()
        })?;
        let stat = format!("{dir}/stat");
        let [cpu, priority, policy] = root.parse(stat, "a line of numbers", |text| {
            // The name may have spaces and parentheses.
            let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
            let field = |number: usize| -> Option<u32> { fields.get(number)?.parse().ok() };
            Some([field(36)?, field(37)?, field(38)?])
        })?;
        let schedstat = format!("{dir}/schedstat");
        let [run_ns, wait_ns] = root.parse(schedstat, "three numbers", |text| {
            let mut words = text.split(' ').map(|word| word.parse().ok());
            Some([words.next()??, words.next()??])
        })?;
        Ok(Thread {
            allowed,
            cpu,
            fifo: (policy == SCHED_FIFO).then_some(priority),
            run_ns,
            wait_ns,
        })
    };
    optional(read())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn mounts_name_their_page_size() {
        let fixture = Fixture::new();
        let mounts_file = "none /dev/hp hpmmap rw,nr_inodes=0 0 0\n\
                           x /mnt tmpfs rw,pagesize=2M 0 0\n\
                           none /v hpmmap rw,relatime,pagesize=1024M,nr_inodes=0 0 0\n";
        fixture.write("proc/self/mounts", mounts_file);
        let found = mounts(&fixture.root()).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|one| (&*one.path, one.page_size))
            .collect();
        assert_eq!(found, [("/dev/hp", None), ("/v", Some(1 << 30))]);
    }

    #[test]
    fn a_virtual_machine_is_a_descriptor() {
        let fixture = Fixture::new();
        for (pid, link) in [(7, KVM_VM), (8, "/dev/null")] {
            fixture.write(&format!("proc/{pid}/fd/x"), "");
            symlink(link, fixture.path().join(format!("proc/{pid}/fd/11"))).unwrap();
        }
        assert_eq!(all(&fixture.root()).unwrap(), [7]);
    }

    #[test]
    fn vcpus_have_names_or_are_told_by_debugfs() {
        let fixture = Fixture::new();
        for (thread, name) in [
            (7, "qemu"),
            (9, "CPU 1/KVM"),
            (8, "CPU 0/KVM"),
            (10, "CPU x/KVM"),
        ] {
            fixture.write(&format!("proc/7/task/{thread}/comm"), name);
        }
        let root = fixture.root();
        let named = BTreeMap::from([(0, 8), (1, 9)]);
        assert_eq!(vcpus(&root, 7).unwrap(), named);
        assert_eq!(
            ["vcpu3", "fc_vcpu 4", "vcpus"].map(vcpu_of),
            [Some(3), Some(4), None]
        );
        assert_eq!(entries(&root, 7), None);
        for (name, text) in [
            ("vcpu0/pid", "10"),
            ("pages_4k", "3"),
            ("pages_2m", "2"),
            ("pages_1g", "1"),
        ] {
            fixture.write(&format!("{DEBUGFS}/7-12/{name}"), text);
            fixture.write(&format!("{DEBUGFS}/77-12/{name}"), text);
        }
        fixture.write(&format!("{DEBUGFS}/7-12/vcpu1/pid"), "0");
        // Its thread has ended, and the number is another process's.
        fixture.write(&format!("{DEBUGFS}/7-12/vcpu2/pid"), "12");
        fixture.write("proc/12/task/12/comm", "x");
        assert_eq!(vcpus(&root, 7).unwrap(), BTreeMap::from([(0, 10)]));
        let expected = Entries {
            small: 3 << 12,
            large: 2 << 21,
            huge: 1 << 30,
        };
        assert_eq!(entries(&root, 7), Some(expected));
    }

    #[test]
    fn a_thread_has_times_and_a_policy() {
        let fixture = Fixture::new();
        let root = fixture.root();
        assert_eq!(thread(&root, 7, 8).unwrap(), None);
        let dir = "proc/7/task/8";
        fixture.write(
            &format!("{dir}/status"),
            "Name:\tx\nCpus_allowed_list:\t2-3\n",
        );
        let rest = format!("S {} 3 5 1 0 0", "0 ".repeat(35).trim());
        fixture.write(&format!("{dir}/stat"), &format!("8 (CPU 0) x) {rest}\n"));
        fixture.write(&format!("{dir}/schedstat"), "1000 20 3\n");
        let expected = Thread {
            allowed: vec![2, 3],
            cpu: 3,
            fifo: Some(5),
            run_ns: 1000,
            wait_ns: 20,
        };
        assert_eq!(thread(&root, 7, 8).unwrap(), Some(expected));
    }
}
