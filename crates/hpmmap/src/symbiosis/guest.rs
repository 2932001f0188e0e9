//! The reader in the guest: what the host tells.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hpmmap_base::size::{Size, short};
use hpmmap_host::Root;
use hpmmap_sys::Errno;
use hpmmap_sys::device_page::DevicePage;
use serde::Serialize;
use zerocopy::FromBytes;

use super::page::{
    CRITICAL, HOST_MAGIC, HostPart, NONE, PAGE_BYTES, RUNNING, Range, TIMER, UNKNOWN, VERSION,
};

const DEVICES: &str = "sys/bus/pci/devices";
/// Red Hat's ivshmem.
const IDS: (&str, &str) = ("0x1af4", "0x1110");
/// Looks at a page that is being written.
const TRIES: usize = 100;
/// An agent that has not written for so many seconds does not run.
const SILENCE: u64 = 10;

/// What was found.
#[derive(Debug)]
pub enum Found {
    /// No device, or one that is for something else.
    Nothing,
    /// The page of a device cannot be read: the reason.
    Unreadable(String),
    /// What the host tells.
    Told(Box<Told>),
}

/// What the host tells of a range of RAM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ram {
    /// Guest-physical address.
    pub start: u64,
    pub bytes: u64,
    /// `None`: unknown.
    pub large_bytes: Option<u64>,
    pub entry_bytes: Option<u64>,
    pub align_bytes: u64,
    /// Host-physical address; only if the host's administrator lets the guest know.
    pub physical: Option<u64>,
    pub runs: Option<u32>,
    pub node: Option<i32>,
    /// Largest nested entries that most of it can have.
    pub nested_bytes: Option<u64>,
}

/// A passed-through device.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Device {
    pub vendor: u16,
    pub device: u16,
    pub node: Option<i16>,
}

/// What the host tells.
#[derive(Debug, Serialize)]
pub struct Told {
    /// The agent has written within the last seconds.
    pub running: bool,
    /// Seconds since it has written.
    pub silent_seconds: u64,
    pub ram: Vec<Ram>,
    /// RAM by nested entries of each size, as KVM counts.
    pub nested_4k_bytes: Option<u64>,
    pub nested_2m_bytes: Option<u64>,
    pub nested_1g_bytes: Option<u64>,
    pub devices: Vec<Device>,
    /// The CPU of the host that each vCPU is bound to.
    pub vcpus: Vec<Option<u16>>,
    pub pool_used_percent: Option<u16>,
    /// Longest critical section that the host honours; `None`: none.
    pub critical_ms: Option<u32>,
    pub timers_exact: bool,
}

fn known(value: u64) -> Option<u64> {
    (value != UNKNOWN).then_some(value)
}

impl Told {
    pub fn new(part: &HostPart, now: u64) -> Self {
        let ram = |range: &Range| Ram {
            start: range.start,
            bytes: range.bytes,
            large_bytes: known(range.large_bytes),
            entry_bytes: Some(range.entry_bytes).filter(|&bytes| bytes != 0),
            align_bytes: range.align_bytes,
            physical: known(range.physical),
            runs: Some(range.runs).filter(|&runs| runs != 0),
            node: Some(range.node).filter(|&node| node >= 0),
            nested_bytes: Some(range.nested_bytes()).filter(|&bytes| bytes != 0),
        };
        let silent_seconds = now.saturating_sub(part.updated);
        let running = part.flags & RUNNING != 0 && silent_seconds < SILENCE;
        Self {
            running,
            silent_seconds,
            ram: part.ranges().iter().map(ram).collect(),
            nested_4k_bytes: known(part.nested[0]),
            nested_2m_bytes: known(part.nested[1]),
            nested_1g_bytes: known(part.nested[2]),
            devices: part
                .devices()
                .iter()
                .map(|one| Device {
                    vendor: one.vendor,
                    device: one.device,
                    node: Some(one.node).filter(|&node| node >= 0),
                })
                .collect(),
            vcpus: part
                .vcpus()
                .iter()
                .map(|&cpu| Some(cpu).filter(|&cpu| cpu != NONE))
                .collect(),
            pool_used_percent: Some(part.pool_used).filter(|&percent| percent <= 100),
            critical_ms: (running && part.flags & CRITICAL != 0).then_some(part.deadline_ms),
            timers_exact: running && part.flags & TIMER != 0,
        }
    }

    /// The size of the host's entries that an address has, or rather of its nested entries; 0:
    /// unknown. What an agent has told stays true when it ends: memory does not move.
    pub fn nested_bytes(&self, address: u64) -> u64 {
        let mut ram = self.ram.iter();
        let range = ram.find(|one| address.wrapping_sub(one.start) < one.bytes);
        range.and_then(|one| one.nested_bytes).unwrap_or(0)
    }

    /// RAM whose nested entries are, or can be, smaller than 2 MB.
    pub fn small_bytes(&self) -> u64 {
        let small = |one: &Ram| match one.large_bytes {
            _ if one.align_bytes < 2 << 20 => one.bytes,
            Some(large) => one.bytes.saturating_sub(large),
            None => 0,
        };
        self.ram.iter().map(small).fold(0, u64::saturating_add)
    }

    /// RAM in all.
    pub fn bytes(&self) -> u64 {
        let bytes = self.ram.iter().map(|one| one.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let mut parts = Vec::new();
        for one in &self.ram {
            let entries = match one.entry_bytes {
                Some(bytes) => format!("entries of {}", Size(bytes)),
                None => "unknown entries".into(),
            };
            let node = one
                .node
                .map_or(String::new(), |node| format!(" on node {node}"));
            parts.push(format!("{} by {entries}{node}", short(one.bytes)));
        }
        let nested = [
            ("1G", self.nested_1g_bytes),
            ("2M", self.nested_2m_bytes),
            ("4K", self.nested_4k_bytes),
        ];
        let nested: Vec<String> = nested
            .into_iter()
            .filter_map(|(name, bytes)| Some(format!("{} by {name}", short(bytes?))))
            .collect();
        if !nested.is_empty() {
            parts.push(format!("nested entries {}", nested.join(", ")));
        }
        let bound = self.vcpus.iter().flatten().count();
        parts.push(format!("vCPUs bound {bound} of {}", self.vcpus.len()));
        if !self.devices.is_empty() {
            parts.push(format!("passed-through devices {}", self.devices.len()));
        }
        if let Some(percent) = self.pool_used_percent {
            parts.push(format!("pools {percent} % used"));
        }
        if let Some(ms) = self.critical_ms {
            parts.push(format!("critical sections up to {ms} ms"));
        }
        if !self.running {
            parts.push("its agent does not run".into());
        }
        format!("Host: {}.", parts.join("; "))
    }
}

/// Finds the device with a page, and reads it.
pub fn find(root: &Root) -> Found {
    let mut found = Found::Nothing;
    for name in root.entries(DEVICES).unwrap_or_default() {
        let dir = Path::new(DEVICES).join(name);
        let is = |file, id| root.read(dir.join(file)).is_ok_and(|text| text == id);
        if !is("vendor", IDS.0) || !is("device", IDS.1) {
            continue;
        }
        match read(&root.join(&dir)) {
            Ok(Some(part)) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let now = now.map_or(0, |now| now.as_secs());
                return Found::Told(Box::new(Told::new(&part, now)));
            }
            Ok(None) => (),
            Err(reason) => found = Found::Unreadable(reason),
        }
    }
    found
}

/// What the host tells, or nothing.
pub fn told(root: &Root) -> Option<Box<Told>> {
    match find(root) {
        Found::Told(told) => Some(told),
        _ => None,
    }
}

/// Reads the page of a device; `None` if it is not one of an agent.
fn read(device: &Path) -> Result<Option<HostPart>, String> {
    let path: PathBuf = device.join("resource2");
    let page = DevicePage::open(&path).map_err(|error| match error.raw_os_error() {
        Some(number) if number == Errno::EPERM as i32 => {
            format!("{}: the kernel is locked down", path.display())
        }
        _ => format!("{}: {error}", path.display()),
    })?;
    if page.copy() == [0xff; PAGE_BYTES] {
        // Firmware may leave a device without a driver disabled.
        let _ = fs::write(device.join("enable"), "1");
    }
    consistent(|| page.copy()).map_err(|reason| format!("{}: {reason}", path.display()))
}

/// The host's part out of copies of the page, as a whole.
pub fn consistent(mut copy: impl FnMut() -> [u8; PAGE_BYTES]) -> Result<Option<HostPart>, String> {
    let mut part = || {
        let bytes = copy();
        let (part, _) = HostPart::read_from_prefix(&bytes).expect("a page is larger");
        part
    };
    for _ in 0..TRIES {
        let first = part();
        if first.magic != HOST_MAGIC {
            return Ok(None);
        }
        if first.sequence % 2 == 0 && part().sequence == first.sequence {
            return match first.version {
                VERSION => Ok(Some(first)),
                other => Err(format!(
                    "the host's agent has version {other} of the page, this command {VERSION}: \
                     install the same version of hpmmap on both"
                )),
            };
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err("the host's agent has ended while it wrote: start it again".into())
}

#[cfg(test)]
pub mod tests {
    use hpmmap_host::fixture::Fixture;
    use zerocopy::IntoBytes;

    use super::*;

    const DEVICE: &str = "sys/bus/pci/devices/0000:00:04.0";
    const GB: u64 = 1 << 30;

    /// A guest whose host tells of 1 GB at `start` by entries of `entry_bytes`, and of 1 GB at 4 GB
    /// by entries of 4 KB.
    pub fn host(fixture: &Fixture, start: u64, entry_bytes: u64, silent_seconds: u64) {
        let mut part = HostPart::new();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        part.updated = now.as_secs() - silent_seconds;
        part.flags = RUNNING | CRITICAL;
        part.deadline_ms = 50;
        part.nested = [4096, 8 << 20, UNKNOWN];
        part.pool_used = 25;
        part.set_vcpus(&[3, NONE]);
        let range = |start, entry_bytes| Range {
            start,
            bytes: GB,
            large_bytes: if entry_bytes > 4096 { GB } else { 0 },
            entry_bytes,
            align_bytes: GB,
            physical: UNKNOWN,
            runs: 0,
            node: 0,
        };
        part.set_ranges(&[range(start, entry_bytes), range(4 * GB, 4096)]);
        write(fixture, &part);
    }

    fn write(fixture: &Fixture, part: &HostPart) {
        let mut page = part.as_bytes().to_vec();
        page.resize(PAGE_BYTES, 0);
        fixture.write(&format!("{DEVICE}/vendor"), "0x1af4\n");
        fixture.write(&format!("{DEVICE}/device"), "0x1110\n");
        fixture.write_bytes(&format!("{DEVICE}/resource2"), &page);
    }

    #[test]
    fn the_host_is_told_in_a_line_and_as_json() {
        let fixture = Fixture::new();
        assert!(matches!(find(&fixture.root()), Found::Nothing));
        host(&fixture, 5 * GB, 2 << 20, 0);
        let told = told(&fixture.root()).unwrap();
        assert_eq!(
            told.line(),
            "Host: 1G by entries of 2M on node 0; 1G by entries of 4K on node 0; nested entries \
             8M by 2M, 4K by 4K; vCPUs bound 1 of 2; pools 25 % used; critical sections up to 50 ms."
        );
        assert_eq!((told.bytes(), told.small_bytes()), (2 * GB, GB));
        assert_eq!(told.nested_bytes(5 * GB), 2 << 20);
        assert_eq!(told.nested_bytes(6 * GB), 0);
        let json = serde_json::to_value(&told).unwrap();
        assert_eq!(json["ram"][0]["nested_bytes"], 2 << 20);
        assert_eq!(json["nested_1g_bytes"], serde_json::Value::Null);
        host(&fixture, 0, 2 << 20, 100);
        let line = super::told(&fixture.root()).unwrap().line();
        assert!(line.ends_with("; its agent does not run."), "{line}");
    }

    #[test]
    fn other_devices_and_versions_are_not_read() {
        let fixture = Fixture::new();
        let mut part = HostPart::new();
        part.version = 9;
        write(&fixture, &part);
        let Found::Unreadable(reason) = find(&fixture.root()) else {
            panic!();
        };
        assert!(reason.contains("version 9"), "{reason}");
        part.magic = 0;
        write(&fixture, &part);
        assert!(matches!(find(&fixture.root()), Found::Nothing));
        (part.magic, part.version, part.sequence) = (HOST_MAGIC, VERSION, 3);
        write(&fixture, &part);
        assert!(matches!(find(&fixture.root()), Found::Unreadable(_)));
    }
}
