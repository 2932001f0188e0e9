//! QEMU's monitor (QMP): where RAM lies, which threads are vCPUs, and by which nested entries KVM
//! maps the RAM. All answers are bounded: QEMU serves the guest.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use hpmmap_base::error::{Error, Result, describe};
use serde_json::{Value, json};

use super::page::{MOST_RANGES, MOST_VCPUS, UNKNOWN};

/// Longest answer: that of 'info mtree -f' has a few hundred lines.
const MOST_BYTES: u64 = 4 << 20;
/// Answers and events until the one that is waited for.
const MOST_LINES: usize = 100;
/// Pieces of RAM that are asked for.
const MOST_REGIONS: usize = 2 * MOST_RANGES;
const PATIENCE: Duration = Duration::from_secs(5);
/// Smaller pieces, as below 1 MB, are no memory for pools.
const LEAST_BYTES: u64 = 2 << 20;

/// RAM of the guest as QEMU has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ram {
    /// Guest-physical address.
    pub start: u64,
    pub bytes: u64,
    /// Address in QEMU's address space.
    pub at: u64,
    /// NUMA node that it is bound to.
    pub node: Option<i32>,
}

/// What QEMU tells.
#[derive(Debug, PartialEq, Eq)]
pub struct Machine {
    pub ram: Vec<Ram>,
    /// Threads of the vCPUs, in the order of their numbers.
    pub threads: Vec<u32>,
    /// RAM by nested entries of 4 KB, 2 MB and 1 GB.
    pub nested: [u64; 3],
}

/// A connection.
struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    fn connect(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut monitor = Self {
            stream: BufReader::new(stream),
        };
        monitor.line()?;
        monitor.execute("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    fn line(&mut self) -> std::io::Result<Value> {
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(MOST_BYTES);
        limited.read_until(b'\n', &mut line)?;
        Ok(serde_json::from_slice(&line)?)
    }

    /// The answer to a command. One that QEMU does not know is `Value::Null`.
    fn execute(&mut self, command: &str, arguments: Value) -> std::io::Result<Value> {
        let request = json!({"execute": command, "arguments": arguments});
        let stream = self.stream.get_mut();
        stream.write_all(format!("{request}\n").as_bytes())?;
        for _ in 0..MOST_LINES {
            let mut answer = self.line()?;
            if answer.get("return").is_some() {
                return Ok(answer["return"].take());
            }
            if answer.get("error").is_some() {
                return Ok(Value::Null);
            }
        }
        Err(std::io::Error::other("no answer, only events"))
    }

    /// The answer of the monitor for people.
    fn human(&mut self, line: &str) -> std::io::Result<String> {
        let answer = self.execute("human-monitor-command", json!({"command-line": line}))?;
        Ok(answer.as_str().unwrap_or_default().to_string())
    }

    fn machine(&mut self) -> std::io::Result<Machine> {
        let backends = self.execute("query-memdev", json!({}))?;
        let tree = self.human("info mtree -f")?;
        let mut ram = Vec::new();
        for (name, start, bytes) in regions(&tree).into_iter().take(MOST_REGIONS) {
            let Some(node) = node_of(&backends, &name) else {
                continue;
            };
            let told = self.human(&format!("gpa2hva {start:#x}"))?;
            let at = told.rsplit_once(" is 0x").map(|(_, hex)| hex.trim());
            if let Some(Ok(at)) = at.map(|hex| u64::from_str_radix(hex, 16)) {
                ram.push(Ram {
                    start,
                    bytes,
                    at,
                    node,
                });
            }
        }
        let stats = json!({"target": "vm",
            "providers": [{"provider": "kvm", "names": ["pages_4k", "pages_2m", "pages_1g"]}]});
        Ok(Machine {
            ram,
            threads: threads(&self.execute("query-cpus-fast", json!({}))?),
            nested: nested(&self.execute("query-stats", stats)?),
        })
    }
}

/// The NUMA node that a memory backend is bound to; `None`: there is no such backend.
fn node_of(backends: &Value, name: &str) -> Option<Option<i32>> {
    let mut all = backends.as_array()?.iter();
    let one = all.find(|one| one["id"] == name)?;
    let nodes = one["host-nodes"].as_array().filter(|all| all.len() == 1);
    Some(nodes.and_then(|all| i32::try_from(all[0].as_u64()?).ok()))
}

/// Name, start and size of each piece of RAM that the guest's CPUs see.
pub fn regions(tree: &str) -> Vec<(String, u64, u64)> {
    let view = tree
        .split("FlatView #")
        .find(|view| view.contains("AS \"memory\", root: system"));
    let one = |line: &str| {
        let (range, rest) = line.trim().split_once(" (prio ")?;
        let (_, name) = rest.split_once(", ram): ")?;
        // An offset in the region, and the accelerator, may follow.
        let name = name.split(" @").next()?.split(" KVM").next()?;
        let (start, last) = range.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let last = u64::from_str_radix(last, 16).ok()?;
        let bytes = last.checked_sub(start)?.checked_add(1)?;
        (bytes >= LEAST_BYTES).then(|| (name.trim().to_string(), start, bytes))
    };
    view.map_or_else(Vec::new, |view| view.lines().filter_map(one).collect())
}

/// The threads of all vCPUs.
fn threads(cpus: &Value) -> Vec<u32> {
    let number = |one: &Value, name: &str| u32::try_from(one[name].as_u64()?).ok();
    let cpus = cpus.as_array().map_or(&[][..], Vec::as_slice);
    let mut all: Vec<(u32, u32)> = cpus
        .iter()
        .filter_map(|one| Some((number(one, "cpu-index")?, number(one, "thread-id")?)))
        .collect();
    all.sort_unstable();
    all.truncate(MOST_VCPUS);
    all.into_iter().map(|(_, thread)| thread).collect()
}

/// RAM by nested entries, from KVM's statistics.
fn nested(stats: &Value) -> [u64; 3] {
    let providers = stats.as_array().map_or(&[][..], Vec::as_slice);
    let values = || {
        let all = providers.iter().filter_map(|one| one["stats"].as_array());
        all.flatten()
    };
    let sizes = [
        ("pages_4k", 4096),
        ("pages_2m", 2 << 20),
        ("pages_1g", 1 << 30),
    ];
    sizes.map(|(name, bytes)| {
        let one = values().find(|one| one["name"] == name);
        let pages = one.and_then(|one| one["value"].as_u64());
        pages.map_or(UNKNOWN, |pages| pages.saturating_mul(bytes))
    })
}

/// Asks QEMU through its socket.
pub fn machine(socket: &Path) -> Result<Machine> {
    Monitor::connect(socket)
        .and_then(|mut monitor| monitor.machine())
        .map_err(|error| {
            Error::Failed(format!(
                "QEMU's monitor {} does not answer: {} (QEMU needs: -qmp unix:{},server=on,wait=off, \
                 which nothing else uses)",
                socket.display(),
                describe(&error),
                socket.display()
            ))
        })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const TREE: &str = "\
FlatView #0
 AS \"cpu-smm-0\", root: memory
  0000000000000000-000000001fffffff (prio 0, ram): other

FlatView #2
 AS \"memory\", root: system
 AS \"cpu-memory-0\", root: system
 Root memory region: system
  0000000000000000-00000000000bffff (prio 0, ram): mem KVM
  00000000000c0000-00000000000dffff (prio 1, rom): pc.rom KVM
  0000000000100000-000000007fffffff (prio 0, ram): mem @0000000000100000 KVM
  00000000fd000000-00000000fdffffff (prio 1, ram): vga.vram
  00000000fec00000-00000000fec00fff (prio 0, i/o): ioapic
  0000000100000000-000000017fffffff (prio 0, ram): mem @0000000080000000

";

    #[test]
    fn ram_is_what_the_cpus_see() {
        let mem = || "mem".to_string();
        assert_eq!(
            regions(TREE),
            [
                (mem(), 1 << 20, (2 << 30) - (1 << 20)),
                ("vga.vram".to_string(), 0xfd00_0000, 16 << 20),
                (mem(), 4 << 30, 2 << 30)
            ]
        );
    }

    #[test]
    fn nodes_threads_and_nested_entries_are_found() {
        let backends = json!([{"id": "page", "host-nodes": []}, {"id": "mem", "host-nodes": [1]}]);
        assert_eq!(node_of(&backends, "mem"), Some(Some(1)));
        assert_eq!(node_of(&backends, "page"), Some(None));
        assert_eq!(node_of(&backends, "vga.vram"), None);
        let cpus = json!([{"cpu-index": 1, "thread-id": 12}, {"cpu-index": 0, "thread-id": 11}]);
        assert_eq!(threads(&cpus), [11, 12]);
        let stats = json!([{"provider": "kvm", "stats": [
            {"name": "pages_2m", "value": 3}, {"name": "pages_4k", "value": 1}]}]);
        assert_eq!(nested(&stats), [4096, 6 << 20, UNKNOWN]);
        assert_eq!(nested(&Value::Null), [UNKNOWN; 3]);
    }
}
