//! Virtual machines on pool memory: what QEMU and libvirt are told, how vCPUs get CPUs of their own,
//! and the exits of running ones. KVM and QEMU are used as they are.

pub mod exits;
pub mod pin;
mod print;

use std::path::PathBuf;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::{Size, counted, multiple_of};
use hpmmap_host::{Root, pool, vm};

use crate::partition::enter::nearest;
use crate::partition::{self, Partition};

/// A virtual machine as it is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    pub name: String,
    pub memory: Size,
    pub page_size: u64,
    pub cpus: u32,
    pub node: Option<u32>,
    pub partition: Option<String>,
    pub fifo: Option<u32>,
    pub devices: Vec<String>,
    pub mount: Option<PathBuf>,
}

/// Who starts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// A user, who has given devices to vfio-pci before.
    Qemu,
    /// A service, which gives devices to vfio-pci itself.
    Libvirt,
}

/// A virtual machine that this host can run.
#[derive(Debug)]
pub struct Guest {
    name: String,
    memory_bytes: u64,
    page_size: u64,
    cpus: u32,
    node: Option<u32>,
    partition: Option<InPartition>,
    fifo: Option<u32>,
    devices: Vec<Device>,
    mount: String,
}

#[derive(Debug)]
struct InPartition {
    name: String,
    path: String,
    cpus: Cpus,
}

/// The CPUs of a virtual machine in a partition.
#[derive(Debug, PartialEq, Eq)]
pub struct Cpus {
    /// The CPU of each vCPU.
    pub vcpus: Vec<u32>,
    /// Those of the other threads; without any they share those of the vCPUs.
    pub others: Vec<u32>,
}

impl Cpus {
    /// Gives each vCPU a CPU of the partition: the last ones, so that the other threads have the first.
    pub fn of(root: &Root, one: &Partition, vcpus: usize, fifo: bool) -> Result<Self> {
        let all = nearest(root, &one.cpus);
        let needed = vcpus + usize::from(fifo);
        if all.len() < needed {
            let why = match fifo {
                true => " and one for the other threads, which vCPUs with --fifo never let run",
                false => "",
            };
            return Err(Error::Failed(format!(
                "partition '{}' has {}, and {} need one each{why}",
                one.name,
                counted(all.len(), "CPU"),
                counted(vcpus, "vCPU")
            )));
        }
        let (others, vcpus) = all.split_at(all.len() - vcpus);
        Ok(Self {
            vcpus: vcpus.to_vec(),
            others: others.to_vec(),
        })
    }
}

/// A PCI device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Device {
    domain: u16,
    bus: u8,
    slot: u8,
    function: u8,
}

impl Device {
    /// `0000:01:00.0`, or without the domain.
    fn parse(text: &str) -> Option<Self> {
        let (rest, function) = text.split_once('.')?;
        let numbers: Vec<&str> = rest.split(':').collect();
        let (domain, bus, slot) = match numbers[..] {
            [bus, slot] => ("0", bus, slot),
            [domain, bus, slot] => (domain, bus, slot),
            _ => return None,
        };
        let one = Self {
            domain: u16::from_str_radix(domain, 16).ok()?,
            bus: u8::from_str_radix(bus, 16).ok()?,
            slot: u8::from_str_radix(slot, 16).ok()?,
            function: function.parse().ok()?,
        };
        (one.slot < 32 && one.function < 8).then_some(one)
    }

    /// Checks that it can be passed through.
    fn checked(root: &Root, text: &str, starter: Starter) -> Result<Self> {
        let one = Self::parse(text).ok_or_else(|| {
            Error::Usage(format!(
                "--device {text}: a PCI address is such as 0000:01:00.0 (see: lspci -D)"
            ))
        })?;
        let dir = root.join(format!("sys/bus/pci/devices/{one}"));
        if !dir.exists() {
            return Err(Error::Usage(format!(
                "--device {text}: there is no PCI device {one} (see: lspci -D)"
            )));
        }
        if !dir.join("iommu_group").exists() {
            return Err(Error::Failed(format!(
                "--device {text}: no IOMMU keeps its DMA within the guest: turn the IOMMU on in the \
                 firmware, and boot with intel_iommu=on (Intel)"
            )));
        }
        let driver = std::fs::read_link(dir.join("driver")).ok();
        let driver = driver.as_deref().and_then(|link| link.file_name());
        let driver = driver.map_or("no driver".into(), |name| name.to_string_lossy());
        if starter == Starter::Qemu && driver != "vfio-pci" {
            return Err(Error::Failed(format!(
                "--device {text}: it has {driver}, not vfio-pci: modprobe vfio-pci && echo vfio-pci \
                 >/sys/bus/pci/devices/{one}/driver_override && echo {one} \
                 >/sys/bus/pci/devices/{one}/driver/unbind; echo {one} >/sys/bus/pci/drivers_probe"
            )));
        }
        Ok(one)
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{}",
            self.domain, self.bus, self.slot, self.function
        )
    }
}

/// The mount for the RAM.
fn mount(root: &Root, request: &Request) -> Result<String> {
    let wanted = Size(request.page_size);
    let mounts = vm::mounts(root)?;
    let found = match &request.mount {
        Some(dir) => mounts
            .iter()
            .find(|one| dir == one.path.as_ref() as &std::path::Path),
        None => mounts
            .iter()
            .find(|one| one.page_size == Some(request.page_size)),
    };
    let dir = request
        .mount
        .clone()
        .unwrap_or_else(|| "/dev/hpmmap-vm".into());
    let dir = dir.display();
    let command = format!("mkdir -p {dir} && mount -t hpmmap -o pagesize={wanted} hpmmap {dir}");
    let Some(found) = found else {
        let what = match &request.mount {
            Some(_) => format!("--mount {dir}: the pools are not mounted there"),
            None => format!("the pools are not mounted with pagesize={wanted}"),
        };
        return Err(Error::Failed(format!("{what}: {command}")));
    };
    if found.page_size != Some(request.page_size) {
        let has = found.page_size.map_or("no pagesize=".into(), |size| {
            format!("pagesize={}", Size(size))
        });
        return Err(Error::Failed(format!(
            "--mount {dir}: it has {has}, and entries of {wanted} are asked for: umount {dir} && {command}"
        )));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    match found.path.chars().all(is_plain) {
        true => Ok(found.path.clone()),
        false => Err(Error::Usage(format!(
            "--mount '{}': mount it at a path of letters, digits and '/._-+', which needs no quotes",
            found.path
        ))),
    }
}

/// Refuses what the pools cannot hold; returns a warning if it does not fit now.
fn fits(root: &Root, request: &Request) -> Result<Option<String>> {
    let asked = request.memory.0;
    if !pool::is_loaded(root) {
        return Err(Error::NotLoaded);
    }
    let pools = pool::nodes(root)?;
    let ours = || {
        let is_ours = |node: u32| request.node.is_none_or(|wanted| wanted == node);
        pools.iter().filter(move |one| is_ours(one.node))
    };
    let total: u64 = ours().map(|one| one.total_bytes).sum();
    let free: u64 = ours().map(|one| one.free_bytes).sum();
    let place = request.node.map_or("the pools have".into(), |node| {
        format!("the pool of NUMA node {node} has")
    });
    if total < asked {
        let node = request
            .node
            .map_or(String::new(), |node| format!(" --node {node}"));
        return Err(Error::Failed(format!(
            "--memory {}: {place} only {}: hpmmap pool add{node} --size {} --up-to",
            request.memory,
            Size(total),
            request.memory
        )));
    }
    let warning = format!(
        "{place} {} free now: until {} is free the virtual machine does not start",
        Size(free),
        request.memory
    );
    Ok((free < asked).then_some(warning))
}

impl Guest {
    /// Checks a request against this host; also returns a warning, if there is one.
    pub fn checked(
        root: &Root,
        request: &Request,
        starter: Starter,
    ) -> Result<(Self, Option<String>)> {
        multiple_of(request.memory, request.page_size, "the page size")?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if request.name.is_empty() || !request.name.chars().all(is_word) {
            return Err(Error::Usage(format!(
                "--name '{}': a name has letters, digits and '._-'",
                request.name
            )));
        }
        if starter == Starter::Qemu && request.fifo.is_some() {
            return Err(Error::Usage(
                "--fifo: QEMU has no option for it: hpmmap vm pin PID --fifo, once it runs".into(),
            ));
        }
        let devices = request.devices.iter();
        let devices = devices
            .map(|text| Device::checked(root, text, starter))
            .collect::<Result<_>>()?;
        let warning = fits(root, request)?;
        let partition = request.partition.as_deref();
        let partition = partition
            .map(|name| {
                let one = partition::find(root, name)?;
                if (1..request.memory.0).contains(&one.memory_bytes) {
                    return Err(Error::Failed(format!(
                        "--memory {}: partition '{name}' may have {} of pool memory",
                        request.memory,
                        Size(one.memory_bytes)
                    )));
                }
                let cpus = Cpus::of(root, &one, request.cpus as usize, request.fifo.is_some())?;
                if starter == Starter::Libvirt && !one.systemd {
                    return Err(Error::Failed(format!(
                        "--partition {name}: it is cgroup {}, and libvirt starts guests only in slices of \
                         systemd: make the partition without --cgroup, where systemd is process 1",
                        one.path()
                    )));
                }
                Ok(InPartition {
                    cpus,
                    path: one.path().trim_end_matches(".slice").to_string(),
                    name: one.name,
                })
            })
            .transpose()?;
        let guest = Self {
            name: request.name.clone(),
            memory_bytes: request.memory.0,
            page_size: request.page_size,
            cpus: request.cpus,
            node: request.node,
            partition,
            fifo: request.fifo,
            devices,
            mount: mount(root, request)?,
        };
        Ok((guest, warning))
    }
}

#[cfg(test)]
mod tests;
