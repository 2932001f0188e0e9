//! A machine for tests: a fixture tree with the rules of the kernel for cpusets, affinities and
//! workqueues. Each change is checked to be recorded before, and any change can be the last.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use hpmmap_base::error::Result;
use hpmmap_host::Root;
use hpmmap_host::fixture::Fixture;

use super::machine::{Cpus, Machine, RECORDS, format_cpus, parse_cpus};
use super::values::{HALT_POLL, RT_RUNTIME, parse_mask};
use super::{Partition, all};

pub(super) const CGROUP: &str = "sys/fs/cgroup";
pub(super) const WORKQUEUES: &str = "sys/devices/virtual/workqueue/cpumask";
pub(super) const ALL: [u32; 6] = [0, 1, 2, 3, 4, 5];

/// Which kernel it is like.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kernel {
    /// All tasks lose their affinity, and workqueues know nothing of partitions.
    V6_1,
    /// Tasks of users keep theirs, and workqueues leave isolated CPUs.
    V6_12,
}

pub(super) struct Simulated {
    pub(super) fixture: Fixture,
    pub(super) root: Root,
    pub(super) kernel: Kernel,
    /// Changes before the death of the command.
    pub(super) left: Cell<Option<usize>>,
    pub(super) is_dead: Cell<bool>,
    /// CPUs that irqbalance leaves out.
    pub(super) banned: RefCell<String>,
    /// The user's own affinity of tasks.
    pub(super) own: RefCell<BTreeMap<u32, Cpus>>,
    pub(super) given: RefCell<Vec<(String, u32)>>,
}

fn dead() -> io::Error {
    io::Error::other("killed")
}

impl Simulated {
    pub(super) fn new(kernel: Kernel) -> Self {
        let fixture = Fixture::new();
        let root = fixture.root();
        fixture.write("sys/devices/system/cpu/online", "0-5\n");
        fixture.write(
            "proc/self/mounts",
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        );
        fixture.write(
            &format!("{CGROUP}/cgroup.controllers"),
            "cpuset cpu memory\n",
        );
        fixture.write(&format!("{CGROUP}/cgroup.subtree_control"), "cpu memory\n");
        fixture.write("proc/irq/default_smp_affinity", "3f\n");
        for (irq, cpus) in [(0, "0-5"), (24, "0-5"), (25, "2"), (26, "1,3"), (27, "0")] {
            fixture.write(
                &format!("proc/irq/{irq}/smp_affinity_list"),
                &format!("{cpus}\n"),
            );
            fixture.write(&format!("proc/irq/{irq}/eth0/x"), "");
        }
        fixture.write(WORKQUEUES, "3f\n");
        if kernel == Kernel::V6_12 {
            fixture.write(&format!("{WORKQUEUES}_requested"), "3f\n");
            fixture.write(&format!("{CGROUP}/cpuset.cpus.isolated"), "\n");
        }
        fixture.write(
            "sys/devices/virtual/workqueue/writeback/cpumask",
            "0000003f\n",
        );
        fixture.write("proc/sys/kernel/watchdog_cpumask", "0-5\n");
        for cpu in ALL.into_iter().filter(|_| kernel == Kernel::V6_12) {
            fixture.write(
                &format!("sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime"),
                "50000000\n",
            );
        }
        fixture.write(
            "sys/devices/system/machinecheck/machinecheck0/ignore_ce",
            "0\n",
        );
        fixture.write(HALT_POLL, "200000\n");
        fixture.write(RT_RUNTIME, "950000\n");
        let machine = Self {
            fixture,
            root,
            kernel,
            left: Cell::new(None),
            is_dead: Cell::new(false),
            banned: RefCell::new("00000000".into()),
            own: RefCell::default(),
            given: RefCell::default(),
        };
        // A thread of the kernel, one that is bound, one of a NUMA node, and tasks of users.
        machine.task(2, 0x0020_0000, "0-5");
        machine.task(3, 0x0420_0000, "2");
        machine.task(4, 0x0020_0000, "2-5");
        machine.task(100, 0, "0-5");
        machine.task(101, 0, "0");
        machine.task(102, 0, "1-3");
        machine.task(103, 0, "2");
        for (task, cpus) in [(101, "0"), (102, "1-3"), (103, "2")] {
            let cpus = parse_cpus(cpus).unwrap();
            machine.own.borrow_mut().insert(task, cpus);
        }
        machine
    }

    pub(super) fn task(&self, number: u32, flags: u64, cpus: &str) {
        let dir = format!("proc/{number}/task/{number}");
        self.fixture.write(
            &format!("{dir}/stat"),
            &format!(
                "{number} (a) b) S 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {} 0\n",
                number * 7
            ),
        );
        self.fixture.write(
            &format!("{dir}/status"),
            &format!("Name:\ta\nCpus_allowed_list:\t{cpus}\n"),
        );
    }

    pub(super) fn tasks(&self) -> Vec<u32> {
        let all = self.root.numbered::<u32>("proc", "").unwrap();
        all.into_iter().filter(|number| *number > 1).collect()
    }

    pub(super) fn is_kernels(&self, task: u32) -> bool {
        task < 100
    }

    pub(super) fn cpus(&self, task: u32) -> Cpus {
        let status = self
            .root
            .read(format!("proc/{task}/task/{task}/status"))
            .unwrap();
        parse_cpus(status.rsplit_once('\t').unwrap().1).unwrap()
    }

    pub(super) fn set_cpus(&self, task: u32, cpus: &Cpus) {
        self.fixture.write(
            &format!("proc/{task}/task/{task}/status"),
            &format!("Name:\ta\nCpus_allowed_list:\t{}\n", format_cpus(cpus)),
        );
    }

    /// The command dies after this number of changes.
    pub(super) fn die_after(&self, changes: usize) {
        self.left.set(Some(changes));
    }

    pub(super) fn revive(&self) -> bool {
        self.left.set(None);
        self.is_dead.replace(false)
    }

    pub(super) fn step(&self) -> io::Result<()> {
        match self.left.get() {
            Some(0) => self.is_dead.set(true),
            Some(left) => self.left.set(Some(left - 1)),
            None => (),
        }
        match self.is_dead.get() {
            true => Err(dead()),
            false => Ok(()),
        }
    }

    /// The cgroups that are partitions, with their CPUs.
    pub(super) fn isolated(&self) -> Cpus {
        let mut all = Cpus::new();
        self.walk(CGROUP, &mut |path| {
            let kind = fs::read_to_string(path).unwrap();
            if path.ends_with("cpuset.cpus.partition") && kind.trim() != "member" {
                let cpus = fs::read_to_string(path.with_file_name("cpuset.cpus")).unwrap();
                all.extend(parse_cpus(&cpus).unwrap());
            }
        });
        all
    }

    /// Is the CPU in a partition of kind "root"?
    pub(super) fn is_balanced(&self, cpu: u32) -> bool {
        let mut is_balanced = false;
        self.walk(CGROUP, &mut |path| {
            if path.ends_with("cpuset.cpus.partition") {
                let kind = fs::read_to_string(path).unwrap();
                let cpus = fs::read_to_string(path.with_file_name("cpuset.cpus")).unwrap();
                let has = parse_cpus(&cpus).unwrap().contains(&cpu);
                is_balanced |= kind.trim() == "root" && has;
            }
        });
        is_balanced
    }

    pub(super) fn walk(&self, dir: impl AsRef<Path>, visit: &mut dyn FnMut(&Path)) {
        let path = self.root.join(&dir);
        for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap()) {
            match entry.path().is_dir() {
                true => self.walk(dir.as_ref().join(entry.file_name()), visit),
                false => visit(&entry.path()),
            }
        }
    }

    /// The kernel's changes after CPUs have joined or left a partition.
    pub(super) fn repartition(&self) {
        let isolated = self.isolated();
        let left = &Cpus::from(ALL) - &isolated;
        for task in self.tasks().into_iter().filter(|task| *task != 3) {
            let own = self.own.borrow().get(&task).cloned();
            let cpus = match own.map(|own| &own & &left) {
                Some(cpus) if self.kernel == Kernel::V6_12 && !cpus.is_empty() => cpus,
                _ => left.clone(),
            };
            self.set_cpus(task, &cpus);
        }
        if self.kernel == Kernel::V6_12 {
            let requested = self.root.read(format!("{WORKQUEUES}_requested")).unwrap();
            let cpus = &parse_mask(&requested).unwrap() - &isolated;
            let mask = cpus.iter().fold(0, |mask, cpu| mask | 1 << cpu);
            self.fixture.write(WORKQUEUES, &format!("{mask:02x}\n"));
        }
    }

    pub(super) fn make_cgroup(&self, path: &str) {
        for (file, text) in [
            ("cpuset.cpus", "\n"),
            ("cpuset.cpus.effective", "0-5\n"),
            ("cpuset.cpus.exclusive", "\n"),
            ("cpuset.cpus.partition", "member\n"),
            ("cpuset.mems", "\n"),
            ("cgroup.procs", ""),
            ("cgroup.threads", ""),
            ("cgroup.subtree_control", "\n"),
            ("cgroup.max.depth", "max\n"),
        ] {
            self.fixture.write(&format!("{path}/{file}"), text);
        }
    }

    pub(super) fn remove_cgroup(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let dir = self.root.join(path);
        let mut entries = fs::read_dir(&dir)?.map(|entry| entry.unwrap().path());
        let procs = fs::read_to_string(dir.join("cgroup.procs"))?;
        if entries.any(|path| path.is_dir()) || !procs.is_empty() {
            return Err(io::Error::from_raw_os_error(nix::libc::EBUSY));
        }
        fs::remove_dir_all(dir)?;
        self.repartition();
        Ok(())
    }

    /// All files but the records, and irqbalance's CPUs.
    pub(super) fn snapshot(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        self.walk("", &mut |path| {
            let name = path.strip_prefix(self.fixture.path()).unwrap();
            let name = name.display().to_string();
            if !name.starts_with("run/") {
                all.insert(name, fs::read_to_string(path).unwrap().trim().to_string());
            }
        });
        all.insert("irqbalance".into(), self.banned.borrow().clone());
        all
    }

    pub(super) fn is_clean(&self) -> bool {
        let names = self.root.entries(RECORDS);
        names.is_ok_and(|names| names.is_empty()) || !self.root.join(RECORDS).exists()
    }

    /// Fails the test unless this value can be put back.
    pub(super) fn assert_recorded(&self, key: &str, record: &str) {
        assert!(
            self.root.join(RECORDS).join(record).exists(),
            "{key}: no {record}"
        );
        let text = self.root.read(format!("{RECORDS}/{record}")).unwrap();
        assert!(text.contains(key), "{key} is not in {text}");
    }
}

impl Machine for Simulated {
    fn root(&self) -> &Root {
        &self.root
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        self.step()?;
        let adopts = |one: &Partition| one.adopted && path.starts_with(&one.cgroup);
        let is_adopted = all(&self.root).unwrap().iter().any(adopts);
        if let Some((_, rest)) = path.split_once("/hpmmap_") {
            let name = rest.split(['/', '.']).next().unwrap();
            self.assert_recorded(name, name);
        } else if !is_adopted {
            self.assert_recorded(path, ".host");
        }
        // An interrupt that cannot be moved.
        if path == "proc/irq/0/smp_affinity_list" {
            return Err(io::Error::from_raw_os_error(nix::libc::EIO));
        }
        // Less only in a new domain of the scheduler.
        if path.contains("fair_server") && text == "0" {
            let cpu = path.rsplit_once("/cpu").unwrap().1.split('/').next();
            if !self.is_balanced(cpu.unwrap().parse().unwrap()) {
                return Err(io::Error::from_raw_os_error(nix::libc::EBUSY));
            }
        }
        let present = self
            .root
            .read(path)
            .map_err(|_| io::Error::from_raw_os_error(nix::libc::ENOENT))?;
        let text = match text {
            "+cpuset" => format!("cpuset {present}"),
            "-cpuset" => present.replace("cpuset", ""),
            _ => text.to_string(),
        };
        assert!(
            text.trim() != present || path.ends_with("cgroup.procs"),
            "{path} has that value already"
        );
        assert!(is_adopted || !path.ends_with("cpuset.cpus.partition") || text != "member");
        self.fixture.write(path, &format!("{}\n", text.trim()));
        if path == WORKQUEUES && self.kernel == Kernel::V6_12 {
            self.fixture.write(
                &format!("{WORKQUEUES}_requested"),
                &format!("{}\n", text.trim()),
            );
        }
        if path.ends_with("cpuset.cpus.partition") {
            let dir = path.strip_suffix("/cpuset.cpus.partition").unwrap();
            let cpus = self.root.read(format!("{dir}/cpuset.cpus")).unwrap();
            self.fixture
                .write(&format!("{dir}/cpuset.cpus.effective"), &cpus);
            self.repartition();
        }
        Ok(())
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.step()?;
        if !self.root.join(path).is_dir() {
            self.make_cgroup(path);
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        match self.root.join(path).is_dir() {
            true => self.remove_cgroup(path),
            false => Ok(()),
        }
    }

    fn give(&self, path: &Path, uid: u32) -> io::Result<()> {
        self.step()?;
        let name = path.display().to_string();
        assert!(self.root.join(path).exists(), "{name}");
        self.given.borrow_mut().push((name, uid));
        Ok(())
    }

    fn set_affinity(&self, task: u32, cpus: &Cpus) -> io::Result<()> {
        self.step()?;
        self.assert_recorded(&format!("\"number\":{task},"), ".host");
        assert!(task != 3, "its affinity cannot be set");
        assert_ne!(self.cpus(task), *cpus, "task {task} has these CPUs already");
        if !self.is_kernels(task) {
            self.own.borrow_mut().insert(task, cpus.clone());
        }
        self.set_cpus(task, cpus);
        Ok(())
    }

    /// As systemd and its tools, as far as partitions ask them.
    fn run(&self, words: &[&str]) -> Result<()> {
        self.step()?;
        match words {
            [
                "busctl",
                "call",
                "org.freedesktop.systemd1",
                "/org/freedesktop/systemd1",
                manager,
                "StartTransientUnit",
                signature,
                unit,
                "fail",
                properties @ ..,
            ] => {
                assert_eq!(*manager, "org.freedesktop.systemd1.Manager");
                assert_eq!(*signature, "ssa(sv)a(sa(sv))");
                let [
                    "2",
                    "Description",
                    "s",
                    _,
                    "AllowedCPUs",
                    "ay",
                    "1",
                    mask,
                    "0",
                ] = properties
                else {
                    panic!("{properties:?}");
                };
                let mask: u32 = mask.parse().unwrap();
                let cpus = ALL.into_iter().filter(|cpu| mask >> cpu & 1 != 0).collect();
                let dir = match unit.split_once('-') {
                    Some((above, _)) => format!("{CGROUP}/{above}.slice/{unit}"),
                    None => format!("{CGROUP}/{unit}"),
                };
                assert!(!self.root.join(&dir).exists(), "{unit} is started already");
                self.make_cgroup(&dir);
                self.fixture.write(
                    &format!("{dir}/cpuset.cpus"),
                    &format!("{}\n", format_cpus(&cpus)),
                );
                let (above, _) = dir.rsplit_once('/').unwrap();
                let controllers = match above == CGROUP {
                    true => "cpuset cpu memory\n",
                    false => "cpuset\n",
                };
                let file = format!("{above}/cgroup.subtree_control");
                self.fixture.write(&file, controllers);
            }
            ["systemctl", "stop", tasks, unit] => {
                let name = unit.strip_suffix(".slice").unwrap();
                assert!(name.starts_with("hpmmap_") && *tasks == format!("{name}-tasks.slice"));
                for path in [format!("{unit}/{tasks}"), unit.to_string()] {
                    if self.root.join(CGROUP).join(&path).exists() {
                        self.remove_cgroup(format!("{CGROUP}/{path}"))?;
                    }
                }
                let names = self.root.entries(CGROUP).unwrap();
                if !names.iter().any(|name| name.ends_with(".slice")) {
                    let file = format!("{CGROUP}/cgroup.subtree_control");
                    self.fixture.write(&file, "cpu memory\n");
                }
            }
            _ => panic!("{words:?}"),
        }
        Ok(())
    }

    fn irqbalance(&self, request: &str) -> Option<String> {
        if request == "setup" {
            let answer = format!("SLEEP 10 BANNED {}", self.banned.borrow());
            return (!self.is_dead.get()).then_some(answer);
        }
        self.step().ok()?;
        self.assert_recorded("\"irqbalance\":\"", ".host");
        let list = request.strip_prefix("settings cpus ").unwrap();
        let cpus = match list {
            "NULL" => Cpus::new(),
            list => parse_cpus(list).unwrap(),
        };
        let mask = cpus.iter().fold(0u32, |mask, cpu| mask | 1 << cpu);
        *self.banned.borrow_mut() = format!("{mask:08x}");
        Some(String::new())
    }

    fn save(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.step()?;
        self.fixture
            .write_bytes(&format!("{RECORDS}/{name}"), bytes);
        Ok(())
    }

    fn warn(&self, _: &str) {}

    fn forget(&self, name: &str) -> Result<()> {
        self.step()?;
        if self.root.join(RECORDS).join(name).exists() {
            self.fixture.remove(&format!("{RECORDS}/{name}"));
        }
        Ok(())
    }
}
