//! One run: the machines and their neighbours, the job, its figures, and its result.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hpmmap_host::Root;
use hpmmap_sys::child::{Setup, Signal, end_group};
use nix::sys::signal::kill;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, Uid};

use super::plan::{Cell, Manager, Parameters};
use super::rank::RankRecord;
use super::record::{Figures, OnHost};
use super::settings::populate_library;
use super::workload::Start;

/// Interval at which the job and its neighbours are looked after.
pub const LOOK: Duration = Duration::from_millis(200);
/// Time that mpirun may take to end its ranks.
const END: Duration = Duration::from_secs(5);

/// Makes glibc's malloc take everything from reserved huge pages.
pub const HUGETLB: &str = "GLIBC_TUNABLES=glibc.malloc.hugetlb=2:glibc.malloc.mmap_max=0";

/// Reasons why a run has no figures.
#[derive(Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The study was interrupted.
    Interrupted,
    /// The run failed.
    Failed(String),
    /// A machine is gone, so no further run is possible.
    Lost(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// mpirun, which ends its ranks when it is terminated.
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
        if matches!(self.child.try_wait(), Ok(None)) {
            end_group(&mut self.child, END);
        }
    }
}

/// Dropping this ends everything that a run has started. This process must be the one that adopts
/// orphans.
#[derive(Default)]
pub struct Nothing {
    /// Children that do not belong to the run.
    pub but: Vec<u32>,
}

/// All descendants of this process, except some children with theirs.
fn descendants_but(but: &[u32]) -> Vec<Pid> {
    let root = Root::default();
    let mut left = descendants(&root, std::process::id() as i32);
    for &other in but {
        let theirs = descendants(&root, other as i32);
        left.retain(|pid| pid.as_raw() != other as i32 && !theirs.contains(pid));
    }
    left
}

impl Drop for Nothing {
    fn drop(&mut self) {
        let deadline = Instant::now() + END;
        while Instant::now() < deadline {
            let left = descendants_but(&self.but);
            if left.is_empty() {
                break;
            }
            for pid in left {
                let _ = kill(pid, Signal::SIGKILL);
                // An error means that it is not a child of this process yet.
                let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The machines that a job runs on.
pub trait Machines {
    /// Makes the settings for a run, and starts its neighbours.
    fn begin(&mut self, cell: &Cell, start: &Start, dir: &Path) -> Result<(), Trouble>;
    /// Looks after them for this time.
    fn tend(&mut self, time: Duration) -> Result<(), Trouble>;
    /// The job has ended: ends the neighbours. `dir` then has the files that it left.
    fn finish(&mut self, dir: &Path) -> Result<Vec<OnHost>, Trouble>;
    /// The run has failed: ends all of it.
    fn abandon(&mut self) -> Result<(), Trouble>;
    /// Restores everything; false if that failed, which is printed.
    fn set_back(&mut self) -> bool;
    /// The place to start ranks.
    fn place(&self, nodes: u32) -> Place;
}

/// The place of ranks, and mpirun's way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On this machine.
    Here,
    /// On other machines, in this directory of theirs.
    There {
        /// Their names.
        hosts: Vec<String>,
        /// Options for mpirun to start something there.
        how: Vec<String>,
        /// The directory.
        dir: PathBuf,
        /// Processes that are not part of the job.
        others: Vec<u32>,
    },
}

/// The context of a run.
pub struct Runner<'a> {
    /// The study's parameters.
    pub parameters: &'a Parameters,
    /// Path of this program.
    pub program: PathBuf,
    /// True when the study is to stop.
    pub stop: &'a dyn Fn() -> bool,
}

/// mpirun for so many ranks, on this machine alone or on several. The rank program binds each to
/// its CPU, which it does not yield while it waits.
pub fn mpirun(ranks: u32, is_alone: bool) -> Command {
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["-n", &ranks.to_string(), "--oversubscribe"]);
    if Uid::effective().is_root() {
        mpirun.arg("--allow-run-as-root");
    }
    mpirun.args(["--bind-to", "none", "--mca", "mpi_yield_when_idle", "0"]);
    if is_alone {
        // Ranks of one machine need neither a network nor its detection.
        mpirun.args(["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]);
    }
    mpirun
}

impl Runner<'_> {
    fn mpirun(&self, cell: &Cell, start: &Start, place: &Place, dir: &Path) -> Command {
        let ranks = self.parameters.ranks;
        let mut mpirun = mpirun(ranks * cell.nodes, cell.nodes == 1);
        let dir = match place {
            Place::Here => dir,
            Place::There {
                hosts, how, dir, ..
            } => {
                let slots: Vec<String> = hosts.iter().map(|one| format!("{one}:{ranks}")).collect();
                mpirun.args(["--host", &slots.join(",")]).args(how);
                mpirun.args([
                    "--map-by",
                    &format!("ppr:{ranks}:node"),
                    "--rank-by",
                    "slot",
                ]);
                mpirun.arg("--wdir").arg(dir);
                // With srun, mpirun's steps run beside the agents.
                mpirun.env("SLURM_OVERLAP", "1").env("SLURM_HPMMAP", "no");
                dir
            }
        };
        mpirun.arg(&self.program).arg("colocation-rank");
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
        if let Some(marker) = &start.marker {
            mpirun.arg("--started").arg(dir.join(marker));
        }
        mpirun.arg("--");
        match cell.manager {
            Manager::Small | Manager::Thp => (),
            Manager::Hugetlb => {
                mpirun.args(["env", HUGETLB]);
            }
            Manager::HugetlbPopulate => {
                // A manager without it is left out of the plan.
                let library = populate_library().unwrap_or_default();
                mpirun.args(["env", HUGETLB]);
                mpirun.arg(format!("LD_PRELOAD={}", library.display()));
            }
            Manager::Hpmmap => {
                let command = self.program.with_file_name("hpmmap");
                mpirun.arg(command).args(["run", "--"]);
            }
        }
        mpirun.arg(&start.program).args(&start.arguments);
        mpirun
    }

    /// Runs the job, with its files in `dir`.
    pub fn run(
        &self,
        machines: &mut dyn Machines,
        cell: &Cell,
        start: &Start,
        dir: &Path,
    ) -> Result<Figures, Trouble> {
        let wrap = |error: std::io::Error| format!("{}: {error}", dir.display());
        if dir.exists() {
            // Files of an interrupted attempt.
            fs::remove_dir_all(dir).map_err(wrap)?;
        }
        fs::create_dir_all(dir).map_err(wrap)?;
        let place = machines.place(cell.nodes);
        let but = match &place {
            Place::Here => Vec::new(),
            Place::There { others, .. } => others.clone(),
        };
        // Dropped last.
        let _nothing = Nothing { but };
        let ended = machines
            .begin(cell, start, dir)
            .and_then(|()| self.attend(machines, cell, start, &place, dir))
            .and_then(|()| machines.finish(dir));
        match ended {
            Ok(hosts) => self.figures(cell, hosts, dir),
            Err(trouble) => {
                // The others failed because this one is lost.
                machines.abandon()?;
                Err(trouble)
            }
        }
    }

    /// The figures of the whole run.
    fn figures(&self, cell: &Cell, mut hosts: Vec<OnHost>, dir: &Path) -> Result<Figures, Trouble> {
        let answer = cell.workload.answer(dir)?;
        let ranks: Vec<RankRecord> = hosts
            .iter_mut()
            .flat_map(|host| std::mem::take(&mut host.ranks))
            .collect();
        let want = self.parameters.ranks * cell.nodes;
        if let Some(n) = (0..want).find(|&n| !ranks.iter().any(|rank| rank.rank == n)) {
            return Err(format!("rank {n} has left no record").into());
        }
        let all = |of: fn(&OnHost) -> Option<u64>| -> Option<u64> { hosts.iter().map(of).sum() };
        let mut vmstat: BTreeMap<String, u64> = BTreeMap::new();
        for (name, value) in hosts.iter().flat_map(|host| &host.vmstat) {
            *vmstat.entry(name.clone()).or_default() += value;
        }
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
            reserved_peak_bytes: hosts.iter().map(|host| host.reserved_peak_bytes).sum(),
            fallbacks: all(|host| host.fallbacks),
            pool_faults: all(|host| host.pool_faults),
            memory: answer.memory,
            fill_bytes: all(|host| host.fill_bytes),
            builds: hosts.iter().map(|host| host.builds).sum(),
            vmstat,
            digest: answer.digest,
            ranks,
            // On this machine alone they are the same.
            hosts: match self.parameters.hosts.is_empty() {
                true => Vec::new(),
                false => hosts,
            },
        })
    }

    /// Runs mpirun to its end, and looks after everything meanwhile.
    fn attend(
        &self,
        machines: &mut dyn Machines,
        cell: &Cell,
        start: &Start,
        place: &Place,
        dir: &Path,
    ) -> Result<(), Trouble> {
        let command = self.mpirun(cell, start, place, dir);
        let limit = Duration::from_secs(self.parameters.timeout_seconds.into());
        attend(command, dir, limit, || {
            if (self.stop)() {
                return Err(Trouble::Interrupted);
            }
            machines.tend(LOOK)
        })
    }
}

/// Runs a job to its end or to the limit of its time, with its output in the file `output` of
/// `dir`; `tend` waits a little and may end it.
pub fn attend(
    mut command: Command,
    dir: &Path,
    limit: Duration,
    mut tend: impl FnMut() -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let output = File::create(dir.join("output")).map_err(|error| error.to_string())?;
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
    let child = command.spawn().map_err(|error| {
        let name = command.get_program().to_string_lossy();
        match name.as_ref() {
            "mpirun" => format!("mpirun: {error} (package openmpi-bin)"),
            name => format!("{name}: {error}"),
        }
    })?;
    let mut job = Job { child };
    let begun = Instant::now();
    loop {
        let status = job.child.try_wait().map_err(|error| error.to_string())?;
        if let Some(status) = status {
            if status.success() {
                return Ok(());
            }
            return Err(format!("{status}: {}", said(dir)).into());
        }
        if begun.elapsed() > limit {
            let limit = limit.as_secs();
            return Err(format!("it was still running after {limit} s").into());
        }
        tend()?;
    }
}

/// Time in which it neither ran nor was ready.
fn rest(rank: &RankRecord) -> f64 {
    (rank.seconds - rank.run_seconds - rank.wait_seconds).max(0.0)
}

/// The last line of a program's output.
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
    use crate::colocation::agent::tests::{cell, start};
    use crate::colocation::plan::tests::parameters;

    #[test]
    fn a_job_ends_by_itself_at_its_limit_or_when_it_is_told_to() {
        let dir = tempfile::tempdir().unwrap();
        let run = |script: &str, limit, tend: &dyn Fn() -> Result<(), Trouble>| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            attend(command, dir.path(), Duration::from_secs(limit), tend)
        };
        let wait = || {
            thread::sleep(Duration::from_millis(5));
            Ok(())
        };
        assert_eq!(run("exit 0", 60, &wait), Ok(()));
        let failed = |why: &str| Err(Trouble::Failed(why.into()));
        let why = "exit status: 3: no memory";
        assert_eq!(run("echo no memory; exit 3", 60, &wait), failed(why));
        let why = "it was still running after 0 s";
        assert_eq!(run("exec sleep 60", 0, &wait), failed(why));
        let stop = || Err(Trouble::Interrupted);
        assert_eq!(run("exec sleep 60", 60, &stop), Err(Trouble::Interrupted));
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

    fn words(cell: &Cell, place: &Place) -> String {
        let mut parameters = parameters();
        parameters.ranks = 2;
        parameters.rank_cpus = vec![0, 1];
        let runner = Runner {
            parameters: &parameters,
            program: "/b/hpmmap-bench".into(),
            stop: &|| false,
        };
        let start = start();
        let command = runner.mpirun(cell, &start, place, Path::new("/study/run"));
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        words.join(" ")
    }

    #[test]
    fn ranks_are_started_where_the_job_is_to_run() {
        let here = words(&cell(1), &Place::Here);
        assert!(here.starts_with("-n 2 --oversubscribe"), "{here}");
        assert!(
            here.contains("self,vader") && !here.contains("--host"),
            "{here}"
        );
        assert!(here.contains("--record /study/run --cpus 0,1"), "{here}");
        let place = Place::There {
            hosts: vec!["n1".into(), "n2".into()],
            how: vec!["--mca".into(), "plm".into(), "slurm".into()],
            dir: "/var/tmp/x/run".into(),
            others: Vec::new(),
        };
        let there = words(&cell(2), &place);
        for part in [
            "-n 4 ",
            " --host n1:2,n2:2 --mca plm slurm --map-by ppr:2:node ",
            " --wdir /var/tmp/x/run ",
            " --record /var/tmp/x/run --cpus 0,1 ",
            " --started /var/tmp/x/run/started -- /p",
        ] {
            assert!(there.contains(part), "{part} is not in {there}");
        }
        assert!(!there.contains("vader"), "{there}");
    }

    #[test]
    fn what_is_no_part_of_a_job_outlives_it() {
        let sleep = || Command::new("sleep").arg("100").spawn().unwrap();
        let (mut other, mut part) = (sleep(), sleep());
        let (of_other, of_part) = (other.id(), part.id());
        let holds = |pids: &[Pid], pid: u32| pids.iter().any(|one| one.as_raw() == pid as i32);
        let found = descendants_but(&[of_other]);
        assert!(holds(&found, of_part) && !holds(&found, of_other));
        for child in [&mut other, &mut part] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
