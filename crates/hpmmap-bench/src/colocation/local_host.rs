//! One machine: its properties, and its part in a run: settings, neighbours, counters, and the
//! records of its ranks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use hpmmap_base::error::Result as CommandResult;
use hpmmap_host::{Root, node, number_list, pool, process};
use hpmmap_sys::child::allowed_cpus;
use nix::unistd::gethostname;
use serde::{Deserialize, Serialize};

use super::job::{Machines, Place, Trouble};
use super::neighbour::{self, Neighbours};
use super::plan::{Cell, Manager, Parameters, Profile, Workload};
use super::rank::{self, RankRecord};
use super::record::OnHost;
use super::settings::{self, Settings};
use super::workload::{self, Start};
use crate::machine::{self, hugetlb_free, pools_free};
use crate::plan::LARGE_PAGE;
use crate::prepared::say_not_set_back;

/// Its contents differ at each boot.
const BOOT: &str = "proc/sys/kernel/random/boot_id";

/// Counters of /proc/vmstat that show how hard memory was to get, also those with these prefixes.
const VMSTAT: [&str; 13] = [
    "pgfault",
    "pgmajfault",
    "allocstall",
    "compact_stall",
    "compact_migrate_scanned",
    "thp_fault_alloc",
    "thp_fault_fallback",
    "thp_collapse_alloc",
    "thp_split",
    "pgsteal_direct",
    "pgsteal_kswapd",
    "pswpout",
    "oom_kill",
];

/// The growth of the counters.
fn vmstat(root: &Root) -> BTreeMap<String, u64> {
    let text = root.read("proc/vmstat").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            let wanted = VMSTAT.iter().any(|start| name.starts_with(start));
            wanted.then_some(())?;
            Some((name.to_string(), value.parse().ok()?))
        })
        .collect()
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Version of its package, or a hash.
    pub version: String,
}

/// The properties of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Its own host name.
    pub hostname: String,
    /// ID of this boot, which no other machine has.
    pub boot: String,
    /// CPUs, by node.
    pub nodes: Vec<Vec<u32>>,
    /// Number of CPUs that this process may use, if the study has several hosts.
    pub allowed_cpus: Option<u32>,
    /// Total memory.
    pub memory_bytes: u64,
    /// Kernel, module, command, mpirun, compiler.
    pub versions: BTreeMap<String, String>,
    /// CPU, memory, command line of the kernel.
    pub machine: BTreeMap<String, String>,
    /// The programs, or why one cannot be run.
    pub programs: BTreeMap<Workload, Result<Program, String>>,
}

impl Facts {
    /// Reads the properties of this machine.
    pub fn look(root: &Root, workloads: &[Workload], apps: Option<&Path>) -> CommandResult<Self> {
        let cpus = |path: String| number_list::parse(&root.read(path).ok()?).ok();
        let nodes: Vec<Vec<u32>> = node::with_memory(root)?
            .iter()
            .filter_map(|node| cpus(format!("sys/devices/system/node/node{node}/cpulist")))
            .filter(|cpus| !cpus.is_empty())
            .collect();
        let nodes = match nodes.is_empty() {
            true => cpus("sys/devices/system/cpu/online".into())
                .into_iter()
                .collect(),
            false => nodes,
        };
        let meminfo = root.read("proc/meminfo")?;
        let total = meminfo.lines().find_map(|line| {
            let words = line.strip_prefix("MemTotal:")?;
            words.split_whitespace().next()?.parse::<u64>().ok()
        });
        let mut versions = machine::versions(root, &[]);
        for (name, program) in [("mpirun", "/usr/bin/mpirun"), ("cc", "/usr/bin/cc")] {
            versions.insert(name.into(), workload::version(Path::new(program)));
        }
        let programs = workloads.iter().map(|&one| {
            let found = one.find(apps).map(|path| Program {
                version: workload::version(&path),
                path,
            });
            (one, found)
        });
        Ok(Self {
            hostname: gethostname()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            boot: root.read(BOOT).unwrap_or_default(),
            nodes,
            allowed_cpus: None,
            memory_bytes: total.unwrap_or(0) * 1024,
            versions,
            machine: machine::machine(root),
            programs: programs.collect(),
        })
    }

    /// The same for one of several machines, which are used as a whole.
    pub fn look_at_host(
        root: &Root,
        workloads: &[Workload],
        apps: Option<&Path>,
    ) -> CommandResult<Self> {
        Ok(Self {
            allowed_cpus: Some(allowed_cpus()?),
            ..Self::look(root, workloads, apps)?
        })
    }

    /// The number of CPUs.
    pub fn cpus(&self) -> u32 {
        self.nodes.iter().map(|cpus| cpus.len() as u32).sum()
    }

    /// All versions that have to be the same, with these programs.
    pub fn versions_with(&self, workloads: &[Workload]) -> BTreeMap<String, String> {
        let mut versions = self.versions.clone();
        for (one, program) in &self.programs {
            if let (true, Ok(program)) = (workloads.contains(one), program) {
                versions.insert(one.name().into(), program.version.clone());
            }
        }
        versions
    }
}

/// A combination of manager and neighbour that is not possible on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// The manager.
    pub manager: Manager,
    /// The neighbour.
    pub neighbour: Profile,
    /// The reason.
    pub reason: String,
}

/// The combinations that cannot be measured on the machine as it is.
pub fn obstacles(root: &Root, parameters: &Parameters) -> Vec<Obstacle> {
    let mut all = Vec::new();
    for &manager in &parameters.managers {
        for &neighbour in &parameters.neighbours {
            let reason = settings::obstacle(root, manager, parameters)
                .or_else(|| parameters.obstacle(neighbour))
                .or_else(|| match neighbour {
                    Profile::D => neighbour::find_fragment().err(),
                    _ => None,
                });
            all.extend(reason.map(|reason| Obstacle {
                manager,
                neighbour,
                reason,
            }));
        }
    }
    all
}

/// Values seen while a job ran.
#[derive(Default)]
struct Seen {
    least_free: Option<u64>,
    fallbacks: Option<u64>,
    pool_faults: Option<u64>,
}

/// A run in progress.
struct Running {
    cell: Cell,
    dir: PathBuf,
    beside: PathBuf,
    neighbours: Neighbours,
    fill_bytes: Option<u64>,
    vmstat: BTreeMap<String, u64>,
    free: u64,
    seen: Seen,
}

/// This machine's part in a study. Dropping it restores the settings.
pub struct LocalHost<'a> {
    root: &'a Root,
    parameters: Parameters,
    /// Directory for the file of neighbour D; by default that of the run.
    cache: Option<PathBuf>,
    stop: &'a dyn Fn() -> bool,
    settings: Settings,
    running: Option<Running>,
}

impl<'a> LocalHost<'a> {
    /// Without any setting yet.
    pub fn new(
        root: &'a Root,
        parameters: &Parameters,
        cache: Option<PathBuf>,
        stop: &'a dyn Fn() -> bool,
    ) -> Self {
        Self {
            root,
            parameters: parameters.clone(),
            cache,
            stop,
            settings: Settings::new(root),
            running: None,
        }
    }

    /// Memory for the program that fills memory.
    fn fill_bytes(&self, cell: &Cell) -> Option<u64> {
        let room = self.parameters.room_bytes?;
        let job = match cell.manager {
            Manager::Small | Manager::Thp => cell.workload.memory_bytes(&self.parameters),
            Manager::Hugetlb | Manager::HugetlbPopulate | Manager::Hpmmap => 0,
        };
        let available = process::available_bytes(self.root).unwrap_or(0);
        let fill = available.saturating_sub(job + room);
        (cell.neighbour != Profile::None && fill > 0).then_some(fill)
    }

    fn reserved_free(&self, manager: Manager) -> u64 {
        match manager {
            Manager::Small | Manager::Thp => 0,
            Manager::Hugetlb | Manager::HugetlbPopulate => {
                hugetlb_free(self.root, LARGE_PAGE, None)
            }
            Manager::Hpmmap => pools_free(self.root, None),
        }
    }

    /// Reads the job's use of the pools.
    fn sample(&mut self) {
        let Some(manager) = self.running.as_ref().map(|one| one.cell.manager) else {
            return;
        };
        let free = self.reserved_free(manager);
        let contexts = match manager {
            Manager::Hpmmap => pool::contexts(self.root).ok(),
            _ => None,
        };
        let Some(running) = &mut self.running else {
            return;
        };
        let seen = &mut running.seen;
        seen.least_free = Some(seen.least_free.map_or(free, |least| least.min(free)));
        if let Some(contexts) = contexts {
            let all = || contexts.visible.iter();
            let fallbacks = all().map(|one| one.fallbacks).sum();
            let faults = all().map(|one| one.faults + one.faults_kernel).sum();
            seen.fallbacks = seen.fallbacks.max(Some(fallbacks));
            seen.pool_faults = seen.pool_faults.max(Some(faults));
        }
    }

    /// Looks after the neighbours once.
    pub fn look(&mut self) -> Result<(), Trouble> {
        self.sample();
        match &mut self.running {
            Some(running) => running.neighbours.tend().map_err(Trouble::from),
            None => Ok(()),
        }
    }

    /// Settings that could not be restored before runs, since the last call.
    pub fn failed(&mut self) -> Vec<String> {
        self.settings.failed()
    }

    /// Ends the neighbours and restores everything; returns what could not be restored, and why.
    pub fn set_all_back(&mut self) -> Vec<String> {
        self.end();
        self.settings.set_back()
    }

    /// Ends the neighbours.
    fn end(&mut self) -> Option<Ended> {
        let running = self.running.take()?;
        let after = vmstat(self.root);
        let builds = running.neighbours.builds_ended();
        drop(running.neighbours);
        // Sources and objects are of no interest.
        let _ = fs::remove_dir_all(&running.beside);
        let before = running.vmstat;
        let least = running.seen.least_free.unwrap_or(running.free);
        Some(Ended {
            dir: running.dir,
            on_host: OnHost {
                reserved_peak_bytes: running.free.saturating_sub(least),
                fallbacks: running.seen.fallbacks,
                pool_faults: running.seen.pool_faults,
                fill_bytes: running.fill_bytes,
                builds,
                vmstat: after
                    .into_iter()
                    .map(|(name, value)| {
                        let before = before.get(&name).copied().unwrap_or(0);
                        (name, value.saturating_sub(before))
                    })
                    .collect(),
                ..OnHost::default()
            },
        })
    }
}

/// The figures of a run that has ended, without its ranks.
struct Ended {
    dir: PathBuf,
    on_host: OnHost,
}

impl Machines for LocalHost<'_> {
    fn begin(&mut self, cell: &Cell, start: &Start, dir: &Path) -> Result<(), Trouble> {
        let wrap = |error: std::io::Error| format!("{}: {error}", dir.display());
        self.settings
            .set(cell, &self.parameters)
            .map_err(|error| error.to_string())?;
        for (name, text) in &start.files {
            fs::write(dir.join(name), text).map_err(wrap)?;
        }
        let fill_bytes = self.fill_bytes(cell);
        let beside = dir.join("neighbour");
        let mut neighbours = Neighbours::start(
            self.root,
            cell.neighbour,
            &self.parameters,
            fill_bytes,
            &beside,
            self.cache.as_deref(),
        )?;
        neighbours.settle(self.root, self.stop)?;
        self.running = Some(Running {
            cell: *cell,
            dir: dir.to_path_buf(),
            beside,
            neighbours,
            fill_bytes,
            vmstat: vmstat(self.root),
            free: self.reserved_free(cell.manager),
            seen: Seen::default(),
        });
        Ok(())
    }

    fn tend(&mut self, time: Duration) -> Result<(), Trouble> {
        self.look()?;
        thread::sleep(time);
        Ok(())
    }

    fn finish(&mut self, _dir: &Path) -> Result<Vec<OnHost>, Trouble> {
        self.sample();
        let Some(Ended { dir, mut on_host }) = self.end() else {
            return Ok(Vec::new());
        };
        on_host.put(records(&dir)?);
        Ok(vec![on_host])
    }

    fn abandon(&mut self) -> Result<(), Trouble> {
        self.end();
        Ok(())
    }

    fn set_back(&mut self) -> bool {
        let failed = self.set_all_back();
        say_not_set_back(&failed);
        failed.is_empty()
    }

    fn place(&self, _nodes: u32) -> Place {
        Place::Here
    }
}

/// The records of ranks in a directory, in order.
fn records(dir: &Path) -> Result<Vec<RankRecord>, String> {
    let wrap = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).map_err(wrap)? {
        let name = entry.map_err(wrap)?.file_name();
        let Some(n) = name.to_str().and_then(rank::number) else {
            continue;
        };
        let text = fs::read(dir.join(name)).map_err(wrap)?;
        let record = serde_json::from_slice::<RankRecord>(&text);
        let record = record.map_err(|error| format!("rank {n}: {error}"))?;
        record.check()?;
        all.push(record);
    }
    all.sort_by_key(|record| record.rank);
    Ok(all)
}

/// Ends the processes that run in a directory, and removes it.
pub fn clear(root: &Root, dir: &Path) {
    let pids = root.entries("proc").unwrap_or_default();
    let pids = pids.iter().filter_map(|name| name.parse::<i32>().ok());
    for pid in pids.filter(|&pid| {
        let there = fs::read_link(root.join(format!("proc/{pid}/cwd")));
        there.is_ok_and(|there| there.starts_with(dir))
    }) {
        let pid = nix::unistd::Pid::from_raw(pid);
        // It may have ended meanwhile.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
    let _ = fs::remove_dir_all(dir);
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    #[test]
    fn counters_are_those_that_are_asked_for() {
        let fixture = Fixture::new();
        fixture.write(
            "proc/vmstat",
            "nr_free_pages 7\npgfault 12\nallocstall_dma 1\nallocstall_movable 3\nfoo 2\n",
        );
        let found: Vec<_> = vmstat(&fixture.root()).into_iter().collect();
        let want = [
            ("allocstall_dma", 1),
            ("allocstall_movable", 3),
            ("pgfault", 12),
        ];
        assert_eq!(found, want.map(|(name, n)| (name.to_string(), n)));
    }

    #[test]
    fn what_goes_on_in_a_directory_ends_with_it() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("run");
        fs::create_dir(&dir).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .current_dir(&dir)
            .spawn()
            .unwrap();
        clear(&Root::default(), &dir);
        assert!(!child.wait().unwrap().success());
        assert!(!dir.exists());
    }
}
