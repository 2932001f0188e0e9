//! KVM: its module, which decides between nested and shadow paging for all virtual machines of the
//! host, and its counters.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use hpmmap_base::error::{Error, Result};
use hpmmap_host::Root;
use serde::{Deserialize, Serialize};

use super::plan::Paging;
use crate::prepared::Prepared;
use crate::switch::Switch;

const INSTANCE: &str = "sys/kernel/tracing/instances/hpmmap-bench-vm";
const STATISTICS: &str = "sys/kernel/debug/kvm";

/// KVM's module for the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vendor {
    Amd,
    Intel,
}

impl Vendor {
    fn of(root: &Root) -> Result<Self> {
        let info = root.read("proc/cpuinfo")?;
        let has = |flag: &str| {
            info.lines()
                .any(|line| line.starts_with("flags") && line.split(' ').any(|word| word == flag))
        };
        match (has("svm"), has("vmx")) {
            (true, _) => Ok(Self::Amd),
            (_, true) => Ok(Self::Intel),
            _ => Err(Error::Failed(
                "this CPU has no virtualization: /proc/cpuinfo has neither svm nor vmx \
                 (turn it on in the firmware)"
                    .into(),
            )),
        }
    }

    /// Its parameter for nested paging.
    fn switch(self) -> Switch {
        match self {
            Self::Amd => Switch::npt(),
            Self::Intel => Switch::ept(),
        }
    }

    /// The name of an exit.
    fn reason(self, code: u64) -> String {
        match (self, code) {
            (Self::Amd, 0x4e) => "page-fault",
            (Self::Amd, 0x03 | 0x13) => "cr3",
            (Self::Amd, 0x00..=0x1f | 0x65) | (Self::Intel, 28) => "control-register",
            (Self::Amd, 0x79 | 0x7a) | (Self::Intel, 14) => "invlpg",
            (Self::Amd, 0xa2) | (Self::Intel, 58) => "invpcid",
            (Self::Amd, 0x400) | (Self::Intel, 48 | 49) => "nested-fault",
            (Self::Amd, 0x60) | (Self::Intel, 1) => "interrupt",
            (Self::Amd, 0x64) | (Self::Intel, 7) => "interrupt-window",
            (Self::Amd, 0x72) | (Self::Intel, 10) => "cpuid",
            (Self::Amd, 0x77) | (Self::Intel, 40) => "pause",
            (Self::Amd, 0x78) | (Self::Intel, 12) => "hlt",
            (Self::Amd, 0x7b) | (Self::Intel, 30) => "io",
            (Self::Amd, 0x7c) | (Self::Intel, 31 | 32) => "msr",
            (Self::Amd, 0x81) | (Self::Intel, 18) => "hypercall",
            (Self::Intel, 0) => "exception",
            (Self::Intel, 52) => "timer",
            _ => return format!("{code:#x}"),
        }
        .into()
    }
}

/// Is such an exit one that paging causes?
pub fn is_of_paging(reason: &str) -> bool {
    matches!(
        reason,
        "page-fault"
            | "cr3"
            | "control-register"
            | "invlpg"
            | "invpcid"
            | "nested-fault"
            | "exception"
    )
}

/// Exits by reason.
pub type Exits = BTreeMap<String, u64>;

/// The exits between two times.
pub fn between(before: &Exits, after: &Exits) -> Exits {
    after
        .iter()
        .map(|(name, count)| (name.clone(), count - before.get(name).unwrap_or(&0)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// KVM's module. Dropping it sets the paging back.
pub struct Kvm {
    root: Root,
    vendor: Vendor,
    switch: Switch,
    changes: Prepared,
}

impl Kvm {
    /// Fails if the host cannot run virtual machines.
    pub fn new(root: &Root) -> Result<Self> {
        let vendor = Vendor::of(root)?;
        Ok(Self {
            root: root.clone(),
            vendor,
            switch: vendor.switch(),
            changes: Prepared::new(root),
        })
    }

    /// Restores what a killed benchmark changed, before anything is measured. Fails while another
    /// process may make changes.
    pub fn begin(&mut self) -> Result<()> {
        self.changes.begin()
    }

    /// Other changes of this benchmark.
    pub fn beside(&self) -> Prepared {
        self.changes.beside()
    }

    /// The paging of virtual machines; `None` if the module is not loaded.
    pub fn paging(&self) -> Option<Paging> {
        let is_nested = self.switch.is_on(&self.root)?;
        Some(match is_nested {
            true => Paging::Nested,
            false => Paging::Shadow,
        })
    }

    /// The reason why the paging cannot be this one, or cannot become it.
    pub fn obstacle(&self, want: Paging, may_reload: bool) -> Option<String> {
        let module = &self.switch.module;
        match self.paging() {
            Some(now) if now == want => None,
            Some(now) if !may_reload => Some(format!(
                "{module} was loaded with {}, that is {} paging: --prepare loads it anew",
                self.option(now),
                now.name()
            )),
            None if !may_reload => Some(format!("{module} is not loaded: --prepare loads it")),
            None => None,
            Some(_) => self.switch.obstacle(&self.root, want == Paging::Nested),
        }
    }

    fn option(&self, paging: Paging) -> String {
        self.switch.option(paging == Paging::Nested)
    }

    /// Loads the module with this paging. It is never unloaded under a virtual machine.
    pub fn set(&mut self, want: Paging) -> Result<()> {
        if self.paging() == Some(want) {
            return Ok(());
        }
        self.changes.switch(&self.switch, want == Paging::Nested)?;
        match self.paging() {
            Some(now) if now == want => Ok(()),
            now => Err(Error::Failed(format!(
                "{} {}: paging is {} (this CPU may have no other)",
                self.switch.module,
                self.option(want),
                now.map_or("none", Paging::name)
            ))),
        }
    }

    /// Starts to count exits.
    pub fn counters(&self) -> Result<Counters> {
        Counters::new(&self.root, self.vendor)
    }
}

/// Entries of the tables that a virtual machine's CPU uses, by size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// Of 4 KB.
    pub of_4k: u64,
    /// Of 2 MB.
    pub of_2m: u64,
    /// Of 1 GB.
    pub of_1g: u64,
}

/// Counts exits in a tracing instance of its own, which goes when this is dropped.
pub struct Counters {
    root: Root,
    vendor: Vendor,
    dir: PathBuf,
}

impl Counters {
    fn new(root: &Root, vendor: Vendor) -> Result<Self> {
        let dir = root.join(INSTANCE);
        // That of a run that was killed.
        let _ = fs::remove_dir(&dir);
        let counters = Self {
            root: root.clone(),
            vendor,
            dir,
        };
        let trigger = counters.dir.join("events/kvm/kvm_exit/trigger");
        fs::create_dir(&counters.dir)
            .and_then(|()| fs::write(trigger, "hist:keys=exit_reason"))
            .map_err(|error| {
                let dir = counters.dir.display();
                Error::Failed(format!(
                    "cannot count exits in {dir}: {error} (mount -t tracefs none /sys/kernel/tracing)"
                ))
            })?;
        Ok(counters)
    }

    /// Exits of all virtual machines so far.
    pub fn exits(&self) -> Result<Exits> {
        let text = self
            .root
            .read(format!("{INSTANCE}/events/kvm/kvm_exit/hist"))?;
        Ok(parse_exits(&text, self.vendor))
    }

    /// Memory of KVM's page tables, of all virtual machines; `None` before Linux 6.1.
    pub fn table_bytes(&self) -> Option<u64> {
        // Reading it adds up what CPUs have counted each by itself, which may be more than all tables.
        let _ = self.root.read("proc/sys/vm/stat_refresh");
        let text = self.root.read("proc/meminfo").ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("SecPageTables:"))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib << 10)
    }

    /// Entries of the virtual machine of a process; `None` without debugfs.
    pub fn entries(&self, pid: u32) -> Option<Entries> {
        let own = format!("{pid}-");
        let machines = self.root.entries(STATISTICS).ok()?;
        let dir = machines.iter().find(|name| name.starts_with(&own))?;
        let of = |size: &str| {
            self.root
                .read_number(format!("{STATISTICS}/{dir}/pages_{size}"))
                .ok()
        };
        Some(Entries {
            of_4k: of("4k")?,
            of_2m: of("2m")?,
            of_1g: of("1g")?,
        })
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let trigger = self.dir.join("events/kvm/kvm_exit/trigger");
        let _ = fs::write(trigger, "!hist:keys=exit_reason");
        let _ = fs::remove_dir(&self.dir);
    }
}

fn parse_exits(text: &str, vendor: Vendor) -> Exits {
    let mut exits = Exits::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let number = |name: &str| {
            let rest = line.split(name).nth(1)?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        if let (Some(code), Some(count)) = (number("exit_reason:"), number("hitcount:")) {
            *exits.entry(vendor.reason(code)).or_default() += count;
        }
    }
    exits
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    fn host(npt: Option<&str>, users: &str) -> (Fixture, Kvm) {
        let fixture = Fixture::new();
        fixture.write("proc/cpuinfo", "flags\t\t: fpu svm npt\n");
        if let Some(npt) = npt {
            fixture.write("sys/module/kvm_amd/parameters/npt", npt);
            fixture.write("sys/module/kvm_amd/refcnt", users);
        }
        let kvm = Kvm::new(&fixture.root()).unwrap();
        (fixture, kvm)
    }

    #[test]
    fn paging_is_not_changed_under_a_machine_or_unasked() {
        let (_fixture, kvm) = host(Some("Y\n"), "2\n");
        assert_eq!(kvm.paging(), Some(Paging::Nested));
        assert_eq!(kvm.obstacle(Paging::Nested, false), None);
        assert_eq!(
            kvm.obstacle(Paging::Shadow, false).unwrap(),
            "kvm_amd was loaded with npt=1, that is nested paging: --prepare loads it anew"
        );
        let why = kvm.obstacle(Paging::Shadow, true).unwrap();
        assert!(
            why.starts_with("kvm_amd is in use (refcnt 2): paging cannot"),
            "{why}"
        );
        let (_fixture, kvm) = host(Some("N\n"), "0\n");
        assert_eq!(kvm.paging(), Some(Paging::Shadow));
        assert_eq!(kvm.obstacle(Paging::Nested, true), None);
        let (_fixture, kvm) = host(None, "");
        assert_eq!(
            kvm.obstacle(Paging::Nested, false).unwrap(),
            "kvm_amd is not loaded: --prepare loads it"
        );
        assert_eq!(kvm.obstacle(Paging::Nested, true), None);
    }

    #[test]
    fn a_cpu_without_virtualization_is_named() {
        let fixture = Fixture::new();
        fixture.write("proc/cpuinfo", "flags\t\t: fpu sse2\n");
        let Err(error) = Kvm::new(&fixture.root()) else {
            panic!();
        };
        assert!(
            error
                .to_string()
                .starts_with("this CPU has no virtualization")
        );
    }

    #[test]
    fn exits_have_names_on_both_cpus() {
        let text = "# event histogram\n#\n\n{ exit_reason:        120 } hitcount:          4\n\
            { exit_reason:       1024 } hitcount:     123456\n{ exit_reason:          3 } hitcount: 1\n\
            { exit_reason:         19 } hitcount: 6\n{ exit_reason: 200 } hitcount: 1\n\nTotals:\n    Hits: 1\n";
        let exits = parse_exits(text, Vendor::Amd);
        let expected = [
            ("hlt", 4),
            ("nested-fault", 123_456),
            ("cr3", 7),
            ("0xc8", 1),
        ];
        assert_eq!(
            exits,
            expected.map(|(name, n)| (name.to_string(), n)).into()
        );
        let text = "{ exit_reason:         48 } hitcount:          4\n";
        let intel = parse_exits(text, Vendor::Intel);
        assert_eq!(intel, Exits::from([("nested-fault".into(), 4)]));
        let later = Exits::from([("nested-fault".into(), 9), ("io".into(), 1)]);
        assert_eq!(
            between(&intel, &later),
            Exits::from([("nested-fault".into(), 5), ("io".into(), 1)])
        );
        assert!(is_of_paging("cr3") && !is_of_paging("io"));
    }

    #[test]
    fn a_machine_has_entries_by_size() {
        let fixture = Fixture::new();
        for (size, count) in [("4k", "3"), ("2m", "127"), ("1g", "0")] {
            fixture.write(&format!("sys/kernel/debug/kvm/77-12/pages_{size}"), count);
        }
        fixture.write("proc/meminfo", "MemTotal: 1 kB\nSecPageTables:     12 kB\n");
        let counters = Counters {
            root: fixture.root(),
            vendor: Vendor::Amd,
            dir: "/nowhere".into(),
        };
        assert_eq!(counters.table_bytes(), Some(12 << 10));
        assert_eq!(counters.entries(7), None);
        let entries = counters.entries(77).unwrap();
        assert_eq!((entries.of_4k, entries.of_2m, entries.of_1g), (3, 127, 0));
    }
}
