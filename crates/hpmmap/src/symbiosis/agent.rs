//! The agent on the host: writes the host's part of the page each second, and does what the guest
//! asks for. Nothing that the guest writes makes it act on other threads than QEMU's, or longer than
//! the deadline; it never reads its own part.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hpmmap_base::error::{Error, Result, describe};
use hpmmap_base::output::{print, warn};
use hpmmap_base::signals;
use hpmmap_base::size::{counted, short};
use hpmmap_host::{Root, pool};
use nix::fcntl::OFlag;
use nix::sys::stat::{major, minor};
use zerocopy::{FromZeros, IntoBytes};

use super::page::{
    CRITICAL, Device, GuestPart, HostPart, NONE, PAGE_BYTES, PART_BYTES, RUNNING, SEQUENCE_AT,
    TIMER,
};
use super::threads::{Actor, Live, Vcpu};
use super::{memory, qmp};
use crate::partition::machine::{Cpus, parse_cpus};
use crate::partition::{self, Phase};

/// Time between two updates of the host's part.
const UPDATE: Duration = Duration::from_secs(1);
/// Time between two looks at QEMU's memory and vCPUs, which take longer.
const REFRESH: Duration = Duration::from_secs(60);

/// The arguments.
#[derive(Debug)]
pub struct Options {
    pub page: PathBuf,
    pub pid: u32,
    pub monitor: PathBuf,
    pub deadline: Duration,
    pub poll: Duration,
    pub physical: bool,
}

/// The file that is the device's memory.
struct Page {
    file: File,
    /// Device and inode as in /proc/PID/maps.
    id: (String, u64),
    sequence: u32,
}

impl Page {
    fn open(path: &PathBuf) -> Result<Self> {
        let failed = |what: String| Error::Failed(format!("{}: {what}", path.display()));
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path)
            .map_err(|error| failed(describe(&error)))?;
        let about = file.metadata()?;
        if !about.is_file() || about.len() < PAGE_BYTES as u64 {
            return Err(failed(format!(
                "not a regular file of at least {PAGE_BYTES} bytes: give the file of QEMU's \
                 memory-backend-file for ivshmem-plain"
            )));
        }
        let dev = about.dev();
        Ok(Self {
            file,
            id: (
                format!("{:02x}:{:02x}", major(dev), minor(dev)),
                about.ino(),
            ),
            sequence: 0,
        })
    }

    /// The guest's part as it is now, copied once. It may change at any moment.
    fn guest(&self) -> io::Result<GuestPart> {
        let mut part = GuestPart::new_zeroed();
        let at = PART_BYTES as u64;
        self.file.read_exact_at(part.as_mut_bytes(), at)?;
        Ok(part)
    }

    /// Replaces the host's part.
    fn write(&mut self, part: &mut HostPart) -> io::Result<()> {
        part.sequence = self.sequence.wrapping_add(1) | 1;
        self.sequence = part.sequence.wrapping_add(1);
        let at = SEQUENCE_AT as u64;
        self.file.write_all_at(part.sequence.as_bytes(), at)?;
        self.file.write_all_at(part.as_bytes(), 0)?;
        self.file.write_all_at(self.sequence.as_bytes(), at)
    }
}

/// The CPUs on which a thread of a process may run.
fn allowed(root: &Root, pid: u32, thread: u32) -> Option<Cpus> {
    let status = root.read(format!("proc/{pid}/task/{thread}/status")).ok()?;
    let mut lines = status.lines();
    parse_cpus(
        lines
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?
            .trim(),
    )
}

/// The CPU that a thread is bound to, or `NONE`.
fn bound(cpus: &Cpus) -> u16 {
    match (cpus.len(), cpus.first()) {
        (1, Some(&cpu)) => u16::try_from(cpu).unwrap_or(NONE),
        _ => NONE,
    }
}

/// When a process started, in ticks; `None` if it has ended.
fn started(root: &Root, pid: u32) -> Option<u64> {
    let stat = root.read(format!("proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    (fields.next()? != "Z").then(|| fields.nth(18)?.parse().ok())?
}

/// The devices that a process has from VFIO.
fn devices(root: &Root, pid: u32) -> Vec<Device> {
    let mut groups = Vec::new();
    let fds = format!("proc/{pid}/fd");
    for fd in root.entries(&fds).unwrap_or_default() {
        let target = fs::read_link(root.join(&fds).join(fd)).unwrap_or_default();
        let name = target
            .strip_prefix("/dev/vfio")
            .ok()
            .and_then(|name| name.to_str());
        match name {
            Some(name) if name.starts_with("devices/") => {
                groups.push(format!("sys/class/vfio-dev/{}/device", &name[8..]));
            }
            Some(name) if name.starts_with(|c: char| c.is_ascii_digit()) => {
                let group = format!("sys/kernel/iommu_groups/{name}/devices");
                let all = root.entries(&group).unwrap_or_default();
                groups.extend(all.into_iter().map(|one| format!("{group}/{one}")));
            }
            _ => (),
        }
    }
    groups.sort();
    groups.dedup();
    let number = |text: String| u16::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let one = |dir: &String| {
        let driver = fs::read_link(root.join(dir).join("driver")).ok()?;
        let text = |file: &str| root.read(format!("{dir}/{file}")).ok();
        driver.ends_with("vfio-pci").then_some(Device {
            vendor: number(text("vendor")?)?,
            device: number(text("device")?)?,
            node: text("numa_node")
                .and_then(|node| node.parse().ok())
                .unwrap_or(-1),
            reserved: 0,
        })
    };
    groups.iter().filter_map(one).collect()
}

/// Percent of the pools that are used, or `NONE`.
fn pool_used(root: &Root) -> u16 {
    let nodes = pool::nodes(root).unwrap_or_default();
    let total: u64 = nodes.iter().map(|node| node.total_bytes).sum();
    let free: u64 = nodes.iter().map(|node| node.free_bytes).sum();
    let used = u128::from(total.saturating_sub(free)) * 100;
    used.checked_div(total.into())
        .map_or(NONE, |percent| percent as u16)
}

struct Agent<'a> {
    root: Root,
    options: &'a Options,
    page: Page,
    part: HostPart,
    threads: Vec<u32>,
    actor: Actor<Live>,
}

impl Agent<'_> {
    /// Asks QEMU for its memory and vCPUs. No vCPU is held meanwhile: QEMU may take long.
    fn refresh(&mut self) -> Result<()> {
        self.actor.release();
        let Options { pid, physical, .. } = *self.options;
        let machine = qmp::machine(&self.options.monitor)?;
        let ranges = memory::ranges(&self.root, pid, &machine.ram, &self.page.id, physical)?;
        self.part.set_ranges(&ranges);
        self.part.nested = machine.nested;
        self.threads = machine.threads;
        self.threads
            .retain(|&thread| self.actor.threads.has(thread));
        for &thread in &self.threads {
            self.actor.threads.recover(thread);
        }
        let partitions = partition::all(&self.root).unwrap_or_default();
        let own_cpu = |thread: u32| {
            let cpus = allowed(&self.root, pid, thread)?;
            let mut ready = partitions.iter().filter(|one| one.phase == Phase::Ready);
            let is_alone = ready.any(|one| cpus.is_subset(&one.cpus));
            Some(bound(&cpus)).filter(|&cpu| is_alone && cpu != NONE)
        };
        let vcpus = self.threads.iter().map(|&thread| Vcpu {
            thread,
            cpu: own_cpu(thread),
        });
        self.actor.begin(vcpus.collect(), self.options.deadline);
        Ok(())
    }

    /// Writes what is true now.
    fn update(&mut self) -> Result<()> {
        let pid = self.options.pid;
        let cpus = |&thread: &u32| allowed(&self.root, pid, thread).map_or(NONE, |all| bound(&all));
        let vcpus: Vec<u16> = self.threads.iter().map(cpus).collect();
        self.part.set_vcpus(&vcpus);
        self.part.set_devices(&devices(&self.root, pid));
        self.part.pool_used = pool_used(&self.root);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.part.updated = now.map_or(0, |now| now.as_secs());
        self.part.deadline_ms = self.options.deadline.as_millis() as u32;
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        self.part.flags =
            RUNNING | flag(self.actor.can_hold, CRITICAL) | flag(self.actor.can_be_exact, TIMER);
        Ok(self.page.write(&mut self.part)?)
    }

    fn describe(&self) -> String {
        let bytes = self.part.ranges().iter().map(|range| range.bytes).sum();
        let critical = match self.actor.can_hold {
            true => format!("up to {} ms", self.options.deadline.as_millis()),
            false => "not honoured: a vCPU needs a CPU of a partition for itself (hpmmap run \
                      --partition), and the agent CAP_SYS_NICE or QEMU an RLIMIT_RTPRIO of 1"
                .into(),
        };
        let timer = match self.actor.can_be_exact {
            true => "honoured",
            false => {
                "not honoured: a vCPU needs a CPU of a partition for itself, and the agent root"
            }
        };
        format!(
            "{} of RAM, {}\ncritical sections: {critical}\ntimer sensitivity: {timer}",
            short(bytes),
            counted(self.threads.len(), "vCPU")
        )
    }

    /// Runs until the VM ends, or `stop`.
    fn serve(&mut self, stop: &AtomicBool) -> Result<()> {
        let begun = Instant::now();
        let birth = started(&self.root, self.options.pid);
        let (mut refreshed, mut updated, mut complained) = (begun, begun, false);
        while !stop.load(Ordering::Relaxed) {
            if started(&self.root, self.options.pid) != birth {
                print("the VM has ended")?;
                return Ok(());
            }
            if refreshed.elapsed() >= REFRESH {
                let result = self.refresh();
                if let Some(error) = result.as_ref().err().filter(|_| !complained) {
                    warn(&error.to_string());
                }
                complained = result.is_err();
                refreshed = Instant::now();
            }
            let guest = self.page.guest()?;
            if updated.elapsed() >= UPDATE {
                self.actor.act_on_timers(&guest);
                self.update()?;
                updated = Instant::now();
            }
            self.actor.act(begun.elapsed(), &guest);
            thread::sleep(self.options.poll);
        }
        Ok(())
    }
}

/// Serves a VM until it ends or a signal comes; then everything is undone.
pub fn run(options: &Options) -> Result<()> {
    let root = Root::default();
    let pid = options.pid;
    if started(&root, pid).is_none() {
        return Err(Error::Usage(format!(
            "--pid {pid}: there is no such process"
        )));
    }
    let stop = Arc::new(AtomicBool::new(false));
    signals::catch(&stop)?;
    let mut agent = Agent {
        page: Page::open(&options.page)?,
        part: HostPart::new(),
        threads: Vec::new(),
        actor: Actor::new(Live::new(&root, pid)),
        root,
        options,
    };
    agent.refresh().map_err(|error| match error {
        Error::Host(error) if error.is_denied() => Error::NoPermission {
            what: format!("to read the memory of process {pid}"),
            hint: "run the agent as the user that runs QEMU, or as root".into(),
        },
        other => other,
    })?;
    agent.update()?;
    print(&agent.describe())?;
    let served = agent.serve(&stop);
    agent.actor.release();
    agent.part.flags = 0;
    let ended = agent.page.write(&mut agent.part);
    served.and(ended.map_err(Error::from))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use hpmmap_host::fixture::Fixture;
    use zerocopy::FromBytes;

    use super::*;

    #[test]
    fn the_part_is_whole_when_its_number_is_even() {
        let fixture = Fixture::new();
        fixture.write_bytes("page", &[0; 100]);
        let path = fixture.path().join("page");
        let error = Page::open(&path).err().unwrap().to_string();
        assert!(error.contains("at least 4096 bytes"), "{error}");
        fixture.write_bytes("page", &[0xff; PAGE_BYTES]);
        let mut page = Page::open(&path).unwrap();
        let mut part = HostPart::new();
        part.set_vcpus(&[3, NONE]);
        for sequence in [2, 4] {
            page.write(&mut part).unwrap();
            let bytes = fs::read(&path).unwrap();
            let (read, _) = HostPart::read_from_prefix(&bytes).unwrap();
            assert_eq!((read.sequence, read.vcpus()), (sequence, &[3, NONE][..]));
            assert!(bytes[PART_BYTES..].iter().all(|&byte| byte == 0xff));
        }
        assert_eq!(page.guest().unwrap().demands(), None);
        symlink(&path, fixture.path().join("link")).unwrap();
        assert!(Page::open(&fixture.path().join("link")).is_err());
    }

    #[test]
    fn what_the_host_tells_is_read_from_its_files() {
        let fixture = Fixture::new();
        let root = fixture.root();
        fixture.write("proc/7/task/8/status", "Name:\tx\nCpus_allowed_list:\t3\n");
        fixture.write("proc/7/task/9/status", "Cpus_allowed_list:\t2-3\n");
        let cpu = |thread| bound(&allowed(&root, 7, thread).unwrap());
        assert_eq!((cpu(8), cpu(9)), (3, NONE));
        assert_eq!(allowed(&root, 7, 10), None);
        assert_eq!(pool_used(&root), NONE);
        fixture.module();
        fixture.node_pool(0, 4 << 30, 3 << 30, 0, 0);
        assert_eq!(pool_used(&root), 25);
        let after = "1 ".repeat(18);
        fixture.write("proc/7/stat", &format!("7 (a) b) S {after}4711 0"));
        assert_eq!(started(&root, 7), Some(4711));
        fixture.write("proc/7/stat", &format!("7 (a) b) Z {after}4711 0"));
        assert_eq!(started(&root, 7), None);
    }

    #[test]
    fn passed_through_devices_are_those_of_vfio() {
        let fixture = Fixture::new();
        let group = "sys/kernel/iommu_groups/5/devices/0000:01:00";
        for (function, driver) in [("0", "vfio-pci"), ("1", "pcieport")] {
            let dir = format!("{group}.{function}");
            fixture.write(&format!("{dir}/vendor"), "0x8086\n");
            fixture.write(&format!("{dir}/device"), "0x10d3\n");
            fixture.write(&format!("{dir}/numa_node"), "1\n");
            let link = fixture.path().join(&dir).join("driver");
            symlink(format!("/drivers/{driver}"), link).unwrap();
        }
        fixture.write("proc/7/fd/keep", "");
        for (fd, to) in [
            ("3", "/dev/vfio/vfio"),
            ("4", "/dev/vfio/5"),
            ("5", "/dev/null"),
        ] {
            symlink(to, fixture.path().join("proc/7/fd").join(fd)).unwrap();
        }
        let device = Device {
            vendor: 0x8086,
            device: 0x10d3,
            node: 1,
            reserved: 0,
        };
        assert_eq!(devices(&fixture.root(), 7), [device]);
    }
}
