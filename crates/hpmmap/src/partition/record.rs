//! The records in /run/hpmmap/partitions: the partitions, and what the host was before them.

use std::collections::BTreeMap;

use hpmmap_base::error::{Error, Result};
use hpmmap_host::Root;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::machine::{Cpus, Machine, RECORDS, parse_cpus};

/// The name of the record of the host; no partition has a dot in its name.
const RECORD: &str = ".host";

/// How far a partition has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Its record is written; anything else may be done or not.
    Making,
    /// All is done.
    Ready,
    /// Anything may be undone already.
    Deleting,
}

/// A partition as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    pub name: String,
    pub phase: Phase,
    pub cpus: Cpus,
    /// Does the scheduler balance load between its CPUs?
    pub balance: bool,
    /// Promised pool memory.
    pub memory_bytes: u64,
    /// The NUMA node of its memory.
    pub node: Option<u32>,
    /// The user who may run programs in it, beside root.
    pub user: Option<u32>,
    /// Where the hierarchy is mounted, relative to the root.
    pub mount: String,
    /// The directory of its cgroup, relative to the root.
    pub cgroup: String,
    /// Is the cgroup a slice of systemd?
    pub systemd: bool,
    /// Is it the cgroup of another owner, which makes and ends it?
    #[serde(default)]
    pub adopted: bool,
    /// How long KVM polls on a halted vCPU, on the whole host, while the partition lives.
    #[serde(default)]
    pub halt_poll_ns: Option<u64>,
    /// May real-time tasks run without a break, on the whole host, while the partition lives?
    #[serde(default)]
    pub unthrottled: bool,
}

impl Partition {
    /// The kind of the partition, as cpuset.cpus.partition has it.
    pub fn kind(&self) -> &'static str {
        match self.balance {
            true => "root",
            false => "isolated",
        }
    }

    /// systemd's slices: the partition, and in it that of programs. The latter has CPUs, too: so
    /// systemd leaves the controller to the cgroups in the partition.
    pub fn units(&self) -> [String; 2] {
        ["", "-tasks"].map(|suffix| format!("hpmmap_{}{suffix}.slice", self.name))
    }

    /// The cgroup where programs run; those of ranks lie beside it.
    pub fn tasks(&self) -> String {
        match self.systemd {
            true => self.units()[1].clone(),
            false => "tasks".into(),
        }
    }

    /// Does another cgroup lie above its own?
    pub fn is_remote(&self) -> bool {
        self.above().nth(1).is_some()
    }

    /// The path of its cgroup below the mount point.
    pub fn path(&self) -> &str {
        &self.cgroup[self.mount.len()..]
    }

    /// The cgroups above its own, the root first.
    fn above(&self) -> impl Iterator<Item = &str> {
        let start = self.mount.len();
        let slashes = self.cgroup[start..].match_indices('/');
        slashes.map(move |(at, _)| &self.cgroup[..start + at])
    }

    /// Files of the cgroups above that let it be a partition, in the order in which they come to be.
    /// systemd sets those of its tree.
    pub fn files_above(&self) -> Vec<String> {
        if self.systemd {
            return Vec::new();
        }
        let files = self.above().flat_map(|dir| {
            let granted = (dir != self.mount).then(|| format!("{dir}/cpuset.cpus.exclusive"));
            let controllers = format!("{dir}/cgroup.subtree_control");
            granted.into_iter().chain([controllers])
        });
        files.collect()
    }

    /// Makes the record durable.
    pub fn save(&self, machine: &impl Machine) -> Result<()> {
        save(machine, &self.name, self)
    }
}

fn save(machine: &impl Machine, name: &str, value: &impl Serialize) -> Result<()> {
    let bytes = serde_json::to_vec(value).map_err(std::io::Error::from)?;
    machine.save(name, &bytes)
}

fn load<T: DeserializeOwned>(root: &Root, name: &str) -> Result<Option<T>> {
    let path = format!("{RECORDS}/{name}");
    match root.read_bytes(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            Error::Failed(format!("/{path} is no record of this command: {error}"))
        }),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// All recorded partitions, by name.
pub fn all(root: &Root) -> Result<Vec<Partition>> {
    let names = match root.entries(RECORDS) {
        Ok(names) => names,
        Err(error) if error.is_absent() => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut all = Vec::new();
    for name in names.iter().filter(|name| !name.starts_with('.')) {
        all.extend(load(root, name)?);
    }
    Ok(all)
}

/// The partition with this name; the error tells the names that there are.
pub fn find(root: &Root, name: &str) -> Result<Partition> {
    let all = all(root)?;
    if let Some(one) = all.iter().find(|one| one.name == name) {
        return Ok(one.clone());
    }
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    Err(Error::Usage(match names.is_empty() {
        true => format!(
            "there is no partition '{name}', and no other: make one with \
             'hpmmap partition create {name} --cpus LIST'"
        ),
        false => format!(
            "there is no partition '{name}'; there are: {}",
            names.join(", ")
        ),
    }))
}

/// The CPUs of partitions.
pub fn taken(partitions: &[Partition]) -> Cpus {
    partitions
        .iter()
        .flat_map(|one| &one.cpus)
        .copied()
        .collect()
}

/// The CPUs that are online.
pub fn online(root: &Root) -> Result<Cpus> {
    let path = "sys/devices/system/cpu/online";
    let text = root.read(path)?;
    parse_cpus(&text)
        .ok_or_else(|| Error::Failed(format!("/{path} has '{text}', which is no list of CPUs")))
}

/// The host as it was before the first partition.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The contents of files.
    pub values: BTreeMap<String, String>,
    /// The CPUs on which irqbalance placed no interrupts; `None` if that was not changed.
    pub irqbalance: Option<String>,
    /// The CPUs of tasks that had not all of them.
    pub tasks: Vec<Task>,
}

impl Host {
    /// Reads the record; empty if there is none.
    pub fn load(root: &Root) -> Result<Self> {
        load(root, RECORD).map(Option::unwrap_or_default)
    }

    /// Makes what is recorded durable.
    pub fn save(&self, machine: &impl Machine) -> Result<()> {
        save(machine, RECORD, self)
    }

    /// Removes the record once the last partition is gone.
    pub fn forget(machine: &impl Machine) -> Result<()> {
        machine.forget(RECORD)
    }
}

/// A task, and the CPUs that it may use without any partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub number: u32,
    /// In ticks since boot: another task with the number has another one.
    pub start: u64,
    pub cpus: Cpus,
}
