//! One run: the neighbours, the job, what it took, and its result.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hpmmap_host::{Root, pool, process};
use hpmmap_sys::child::{Setup, Signal};
use nix::sys::signal::{kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, Uid};

use super::neighbour::Neighbours;
use super::plan::{Cell, Manager, Parameters, Profile};
use super::rank::{self, RankRecord};
use super::record::Figures;
use super::workload::Start;
use crate::machine::{hugetlb_free, pools_free};

/// How often the job and its neighbours are looked after.
const LOOK: Duration = Duration::from_millis(200);
/// How long mpirun may take to end its ranks.
const END: Duration = Duration::from_secs(5);

/// Makes glibc's malloc take everything from reserved huge pages.
const HUGETLB: &str = "GLIBC_TUNABLES=glibc.malloc.hugetlb=2:glibc.malloc.mmap_max=0";

/// Counters of /proc/vmstat that tell how hard memory was to get; those whose
/// names begin so, too.
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

/// Why a run has no figures.
#[derive(Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The study was interrupted.
    Interrupted,
    /// It failed.
    Failed(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

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

/// mpirun, which ends its ranks when it is told to end.
struct Job {
    child: Child,
}

/// All descendants of a process.
fn descendants(root: &Root, of: i32) -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for name in root.entries("proc").unwrap_or_default() {
        let Ok(pid) = name.parse::<i32>() else {
            continue;
        };
        let text = root.read(format!("proc/{pid}/stat")).unwrap_or_default();
        let parent = text
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut left = vec![of];
    while let Some(pid) = left.pop() {
        let mine = children.remove(&pid).unwrap_or_default();
        found.extend(mine.iter().map(|&pid| Pid::from_raw(pid)));
        left.extend(mine);
    }
    found
}

impl Drop for Job {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.child.id() as i32);
        let deadline = Instant::now() + END;
        if matches!(self.child.try_wait(), Ok(None)) {
            // An error means that nothing of it is left.
            let _ = killpg(group, Signal::SIGTERM);
            while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(50));
            }
            let _ = killpg(group, Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// Nothing that a run has started is left when this is dropped: this process
/// must be the one that adopts orphans, and have no other children.
struct Nothing;

impl Drop for Nothing {
    fn drop(&mut self) {
        let own = std::process::id() as i32;
        let deadline = Instant::now() + END;
        while Instant::now() < deadline {
            for pid in descendants(&Root::default(), own) {
                let _ = kill(pid, Signal::SIGKILL);
            }
            match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Err(_) => break,
                Ok(WaitStatus::StillAlive) => thread::sleep(Duration::from_millis(20)),
                Ok(_) => (),
            }
        }
    }
}

/// What a run needs to know.
pub struct Runner<'a> {
    /// The machine.
    pub root: &'a Root,
    /// Of the study.
    pub parameters: &'a Parameters,
    /// This command.
    pub command: PathBuf,
    /// Where neighbour D has its file; by default where the run has its own.
    pub cache: Option<&'a Path>,
    /// True once the study is to stop.
    pub stop: &'a dyn Fn() -> bool,
}

impl Runner<'_> {
    fn mpirun(&self, cell: &Cell, start: &Start, dir: &Path) -> Command {
        let mut mpirun = Command::new("mpirun");
        mpirun.args(["-n", &self.parameters.ranks.to_string(), "--oversubscribe"]);
        if Uid::effective().is_root() {
            mpirun.arg("--allow-run-as-root");
        }
        // Ranks of one machine need no network nor its probing. Each has its CPU from
        // us, and does not give it up while it waits for others.
        mpirun.args(["--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl"]);
        mpirun.args(["self,vader", "--mca", "mpi_yield_when_idle", "0"]);
        mpirun.arg(&self.command).args(["bench", "colocation-rank"]);
        mpirun.arg("--record").arg(dir);
        let cpus: Vec<String> = self
            .parameters
            .rank_cpus
            .iter()
            .map(u32::to_string)
            .collect();
        mpirun.args(["--cpus", &cpus.join(",")]);
        if cell.manager == Manager::Small {
            mpirun.arg("--no-thp");
        }
        if let Some(marker) = start.marker {
            mpirun.arg("--started").arg(dir.join(marker));
        }
        mpirun.arg("--");
        match cell.manager {
            Manager::Small | Manager::Thp => (),
            Manager::Hugetlb => {
                mpirun.args(["env", HUGETLB]);
            }
            Manager::Hpmmap => {
                mpirun.arg(&self.command).args(["run", "--"]);
            }
        }
        mpirun.arg(&start.program).args(&start.arguments);
        mpirun
    }

    /// What the program that fills memory gets.
    fn fill_bytes(&self, cell: &Cell) -> Option<u64> {
        let room = self.parameters.room_bytes?;
        let job = match cell.manager {
            Manager::Small | Manager::Thp => cell.workload.memory_bytes(self.parameters),
            Manager::Hugetlb | Manager::Hpmmap => 0,
        };
        let available = process::available_bytes(self.root).unwrap_or(0);
        let fill = available.saturating_sub(job + room);
        (cell.neighbour != Profile::None && fill > 0).then_some(fill)
    }

    fn reserved_free(&self, manager: Manager) -> u64 {
        match manager {
            Manager::Small | Manager::Thp => 0,
            Manager::Hugetlb => hugetlb_free(self.root),
            Manager::Hpmmap => pools_free(self.root),
        }
    }

    /// Runs it, with its files in `dir`.
    pub fn run(&self, cell: &Cell, start: &Start, dir: &Path) -> Result<Figures, Trouble> {
        let wrap = |error: std::io::Error| format!("{}: {error}", dir.display());
        if dir.exists() {
            // What is left of an attempt that was interrupted.
            fs::remove_dir_all(dir).map_err(wrap)?;
        }
        fs::create_dir_all(dir).map_err(wrap)?;
        for (name, text) in &start.files {
            fs::write(dir.join(name), text).map_err(wrap)?;
        }
        // Dropped last.
        let _nothing = Nothing;
        let fill_bytes = self.fill_bytes(cell);
        let beside = dir.join("neighbour");
        let mut neighbours = Neighbours::start(
            self.root,
            cell.neighbour,
            self.parameters,
            fill_bytes,
            &beside,
            self.cache,
        )?;
        neighbours.settle(self.root, self.stop)?;

        let before = vmstat(self.root);
        let free = self.reserved_free(cell.manager);
        let seen = self.attend(cell, start, dir, &mut neighbours)?;
        let after = vmstat(self.root);
        let builds = neighbours.builds_ended();
        drop(neighbours);
        // Sources and objects tell nothing.
        let _ = fs::remove_dir_all(&beside);

        let answer = cell.workload.answer(dir)?;
        let ranks = self.ranks(dir)?;
        let mean =
            |of: fn(&RankRecord) -> f64| ranks.iter().map(of).sum::<f64>() / ranks.len() as f64;
        let is_counted = ranks.iter().all(|rank| rank.blocked_seconds.is_some());
        let late = ranks.iter().map(|rank| rank.late_faults);
        Ok(Figures {
            seconds: ranks.iter().map(|rank| rank.seconds).fold(0.0, f64::max),
            loop_seconds: answer.loop_seconds,
            rank_seconds: mean(|rank| rank.seconds),
            user_seconds: mean(|rank| rank.user_seconds),
            system_seconds: mean(|rank| rank.system_seconds),
            run_seconds: (mean(|rank| rank.run_seconds) - answer.aside_seconds).max(0.0),
            wait_seconds: mean(|rank| rank.wait_seconds),
            blocked_seconds: mean(|rank| rank.blocked_seconds.unwrap_or_else(|| rest(rank))),
            asleep_seconds: is_counted
                .then(|| mean(|rank| rest(rank) - rank.blocked_seconds.unwrap_or(0.0)).max(0.0)),
            faults: ranks.iter().map(|r| r.faults.minor + r.faults.major).sum(),
            major_faults: ranks.iter().map(|rank| rank.faults.major).sum(),
            late_faults: late.map(|late| Some(late?.minor + late?.major)).sum(),
            fault_counter: ranks[0].fault_counter.clone(),
            late_faults_said: answer.late_faults,
            rss_peak_bytes: ranks
                .iter()
                .map(|rank| rank.rss_peak_bytes)
                .max()
                .unwrap_or(0),
            reserved_peak_bytes: free.saturating_sub(seen.least_free),
            fallbacks: seen.fallbacks,
            pool_faults: seen.pool_faults,
            memory: answer.memory,
            fill_bytes,
            builds,
            vmstat: after
                .into_iter()
                .map(|(name, value)| {
                    let before = before.get(&name).copied().unwrap_or(0);
                    (name, value.saturating_sub(before))
                })
                .collect(),
            digest: answer.digest,
            ranks,
        })
    }

    /// Runs mpirun to its end, and looks after everything meanwhile.
    fn attend(
        &self,
        cell: &Cell,
        start: &Start,
        dir: &Path,
        neighbours: &mut Neighbours,
    ) -> Result<Seen, Trouble> {
        let output = File::create(dir.join("output")).map_err(|error| error.to_string())?;
        let mut command = self.mpirun(cell, start, dir);
        command
            .current_dir(dir)
            .stdin(Stdio::null())
            .stderr(output.try_clone().map_err(|error| error.to_string())?)
            .stdout(output);
        Setup {
            own_group: true,
            dies_with_parent: Some(Signal::SIGTERM),
            ..Setup::default()
        }
        .apply(&mut command)
        .map_err(|error| error.to_string())?;
        let child = command
            .spawn()
            .map_err(|error| format!("mpirun: {error} (package openmpi-bin)"))?;
        let mut job = Job { child };
        let limit = Duration::from_secs(self.parameters.timeout_seconds.into());
        let begun = Instant::now();
        let mut seen = Seen {
            least_free: u64::MAX,
            fallbacks: None,
            pool_faults: None,
        };
        loop {
            seen.least_free = seen.least_free.min(self.reserved_free(cell.manager));
            if cell.manager == Manager::Hpmmap {
                let contexts = pool::contexts(self.root).unwrap_or_default();
                let now = contexts
                    .visible
                    .iter()
                    .map(|context| context.fallbacks)
                    .sum();
                seen.fallbacks = seen.fallbacks.max(Some(now));
                let faults = contexts
                    .visible
                    .iter()
                    .map(|one| one.faults + one.faults_kernel);
                seen.pool_faults = seen.pool_faults.max(Some(faults.sum()));
            }
            let status = job.child.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = status {
                if status.success() {
                    return Ok(seen);
                }
                return Err(format!("{status}: {}", said(dir)).into());
            }
            if (self.stop)() {
                return Err(Trouble::Interrupted);
            }
            if begun.elapsed() > limit {
                let limit = limit.as_secs();
                return Err(format!("it was still running after {limit} s").into());
            }
            neighbours.tend()?;
            thread::sleep(LOOK);
        }
    }

    fn ranks(&self, dir: &Path) -> Result<Vec<RankRecord>, String> {
        (0..self.parameters.ranks)
            .map(|n| {
                let path = rank::path(dir, n);
                let text = fs::read(&path).map_err(|error| format!("rank {n}: {error}"))?;
                serde_json::from_slice(&text).map_err(|error| format!("rank {n}: {error}"))
            })
            .collect()
    }
}

/// What was seen while a job ran.
struct Seen {
    least_free: u64,
    fallbacks: Option<u64>,
    pool_faults: Option<u64>,
}

/// Neither running nor ready.
fn rest(rank: &RankRecord) -> f64 {
    (rank.seconds - rank.run_seconds - rank.wait_seconds).max(0.0)
}

/// The last line of a program's own words.
fn said(dir: &Path) -> String {
    let bytes = fs::read(dir.join("output")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let is_word = |line: &&str| line.chars().any(char::is_alphanumeric);
    let last = text.lines().rev().find(is_word);
    last.unwrap_or("it said nothing").trim().to_string()
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
    fn descendants_are_found_through_their_parents() {
        let fixture = Fixture::new();
        for (pid, parent) in [(2, 1), (3, 2), (4, 3), (5, 1)] {
            fixture.write(
                &format!("proc/{pid}/stat"),
                &format!("{pid} (x y) S {parent} 0\n"),
            );
        }
        let mut found = descendants(&fixture.root(), 2);
        found.sort();
        assert_eq!(found, [3, 4].map(Pid::from_raw));
    }

    #[test]
    fn the_last_words_are_those_of_the_program() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(said(dir.path()), "it said nothing");
        fs::write(dir.path().join("output"), "a\nout of memory\n-----\n\n").unwrap();
        assert_eq!(said(dir.path()), "out of memory");
    }
}
