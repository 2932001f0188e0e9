//! A study on disk: the plan, and a line for each run that has ended.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use hpmmap_base::error::{Error, Result, describe};
use hpmmap_base::safe_files::Dir;
use serde::{Deserialize, Serialize};

use super::plan::{Cell, Parameters, Planned};
use super::rank::{RankRecord, check_seconds};
use super::workload::Memory;

/// Version of the files.
pub const SCHEMA: u32 = 1;

const PLAN: &str = "study.json";
const RUNS: &str = "runs.jsonl";
const RUN_DIRS: &str = "runs";
/// The largest file of a study that is read.
const MAX_BYTES: u64 = 1 << 30;

/// The largest count, so that sums cannot overflow.
const MAX_COUNT: u64 = 1 << 48;

/// A machine's part in a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OnHost {
    /// Its name.
    pub host: String,
    /// The longest runtime of its ranks.
    pub seconds: f64,
    /// Page faults of its ranks.
    pub faults: u64,
    /// Faults after the start-up, if that is known.
    pub late_faults: Option<u64>,
    /// The highest use of its pools or reserved pages that was seen.
    pub reserved_peak_bytes: u64,
    /// Calls that fell back to ordinary memory, under HPMMAP.
    pub fallbacks: Option<u64>,
    /// Page faults in its pool memory, as last seen, under HPMMAP.
    pub pool_faults: Option<u64>,
    /// Bytes for the program that fills memory.
    pub fill_bytes: Option<u64>,
    /// Builds that its neighbours completed.
    pub builds: u32,
    /// Growth of its counters.
    pub vmstat: BTreeMap<String, u64>,
    /// Its ranks, until they are collected with all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankRecord>,
}

impl OnHost {
    /// Adds these ranks.
    pub fn put(&mut self, ranks: Vec<RankRecord>) {
        self.seconds = ranks.iter().map(|rank| rank.seconds).fold(0.0, f64::max);
        self.faults = ranks.iter().map(|r| r.faults.minor + r.faults.major).sum();
        let late = ranks.iter().map(|rank| rank.late_faults);
        self.late_faults = late.map(|late| Some(late?.minor + late?.major)).sum();
        self.ranks = ranks;
    }

    fn numbers(&self) -> impl Iterator<Item = u64> {
        let some = [
            self.late_faults,
            self.fallbacks,
            self.pool_faults,
            self.fill_bytes,
        ];
        let all = [self.faults, self.reserved_peak_bytes, self.builds.into()];
        all.into_iter()
            .chain(some.into_iter().flatten())
            .chain(self.vmstat.values().copied())
    }
}

/// The figures of a run that succeeded. Times are means of the ranks, except `seconds`, which is
/// the longest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Runtime of the program, from exec to exit.
    pub seconds: f64,
    /// Time of its main loop, from its output.
    pub loop_seconds: Option<f64>,
    /// Mean of the ranks' runtimes.
    pub rank_seconds: f64,
    /// CPU time in user mode.
    pub user_seconds: f64,
    /// CPU time in the kernel.
    pub system_seconds: f64,
    /// CPU time as the scheduler counts it.
    pub run_seconds: f64,
    /// Ready, but without a CPU.
    pub wait_seconds: f64,
    /// Blocked uninterruptibly; if the scheduler does not count that, all of the rest.
    pub blocked_seconds: f64,
    /// The rest: asleep by its own choice; `None` if that is not known.
    pub asleep_seconds: Option<f64>,
    /// Page faults of all ranks.
    pub faults: u64,
    /// Faults that waited for a disk.
    pub major_faults: u64,
    /// Faults after the start-up, if that is known.
    pub late_faults: Option<u64>,
    /// The counter of faults.
    pub fault_counter: String,
    /// The program's own count of faults after its start-up.
    pub late_faults_said: Option<u64>,
    /// Largest resident size of a rank.
    pub rss_peak_bytes: u64,
    /// The highest use of pools or reserved pages that was seen, five times a second.
    pub reserved_peak_bytes: u64,
    /// Calls that fell back to ordinary memory, under HPMMAP.
    pub fallbacks: Option<u64>,
    /// Page faults in pool memory, as last seen, under HPMMAP.
    pub pool_faults: Option<u64>,
    /// The program's own figures of its memory.
    #[serde(default)]
    pub memory: Option<Memory>,
    /// Bytes for the program that fills memory.
    pub fill_bytes: Option<u64>,
    /// Builds that the neighbours completed.
    pub builds: u32,
    /// Growth of counters of the whole machine.
    pub vmstat: BTreeMap<String, u64>,
    /// Hash of the result.
    pub digest: String,
    /// Each rank.
    pub ranks: Vec<RankRecord>,
    /// Each machine, in a study of several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<OnHost>,
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The planned run.
    #[serde(flatten)]
    pub planned: Planned,
    /// Start, in seconds since 1970.
    pub begun: u64,
    /// The figures of a run that succeeded.
    pub figures: Option<Figures>,
    /// The reason why it failed.
    pub error: Option<String>,
}

/// A combination that cannot be run here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The combination.
    #[serde(flatten)]
    pub cell: Cell,
    /// The reason.
    pub reason: String,
}

/// The part of a study that is fixed at its begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// `"colocation"`.
    pub benchmark: String,
    /// `SCHEMA`.
    pub schema: u32,
    /// The command that plans the same study anew.
    pub redo: String,
    /// Kernel, module, command, programs.
    pub versions: BTreeMap<String, String>,
    /// CPU, memory, command line of the kernel.
    pub machine: BTreeMap<String, String>,
    /// The options.
    pub parameters: Parameters,
    /// Combinations that cannot be run here.
    pub left_out: Vec<LeftOut>,
    /// All runs, in order.
    pub runs: Vec<Planned>,
}

impl Figures {
    /// Fails if these cannot have been measured.
    fn check(&self) -> std::result::Result<(), String> {
        let times = [
            ("seconds", Some(self.seconds)),
            ("loop_seconds", self.loop_seconds),
            ("rank_seconds", Some(self.rank_seconds)),
            ("user_seconds", Some(self.user_seconds)),
            ("system_seconds", Some(self.system_seconds)),
            ("run_seconds", Some(self.run_seconds)),
            ("wait_seconds", Some(self.wait_seconds)),
            ("blocked_seconds", Some(self.blocked_seconds)),
            ("asleep_seconds", self.asleep_seconds),
        ];
        for (what, seconds) in times {
            seconds.map_or(Ok(()), |seconds| check_seconds(what, seconds))?;
        }
        for rank in &self.ranks {
            rank.check()?;
        }
        for host in &self.hosts {
            check_seconds(&format!("seconds of {}", host.host), host.seconds)?;
        }
        let numbers = [
            self.faults,
            self.major_faults,
            self.rss_peak_bytes,
            self.reserved_peak_bytes,
        ];
        let more = [
            self.late_faults,
            self.late_faults_said,
            self.fallbacks,
            self.pool_faults,
            self.fill_bytes,
        ];
        let said = self.memory.iter().flat_map(Memory::numbers);
        let all = numbers.into_iter().chain(more.into_iter().flatten());
        let all = all.chain(said);
        let all = all.chain(self.hosts.iter().flat_map(OnHost::numbers));
        match all.chain(self.vmstat.values().copied()).max() {
            Some(most) if most > MAX_COUNT => Err(format!("{most} is too large a number")),
            _ => Ok(()),
        }
    }

    /// The compared figure: the runtime; if the clock counts instructions, CPU time of a rank in
    /// which a second is a thousand million of them.
    pub fn cost(&self, icount: bool) -> f64 {
        match icount {
            true => self.run_seconds,
            false => self.seconds,
        }
    }
}

/// Parses the lines of runs that have ended; also returns the length of the complete lines.
fn parse_runs(text: &[u8]) -> std::result::Result<(Vec<Run>, usize), String> {
    let last = text.iter().rposition(|&byte| byte == b'\n');
    let whole = last.map_or(0, |at| at + 1);
    let lines = text[..whole].split(|&byte| byte == b'\n');
    let mut runs = Vec::new();
    for (n, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
        let run: Run =
            serde_json::from_slice(line).map_err(|error| format!("line {}: {error}", n + 1))?;
        if let Some(figures) = &run.figures {
            figures
                .check()
                .map_err(|why| format!("line {}: {why}", n + 1))?;
        }
        runs.push(run);
    }
    Ok((runs, whole))
}

impl Plan {
    /// Parses a plan and checks it.
    fn parse(text: &[u8]) -> std::result::Result<Self, String> {
        let plan: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if plan.benchmark != "colocation" || plan.schema != SCHEMA {
            return Err(format!(
                "expected a study of schema {SCHEMA}, found {}",
                plan.schema
            ));
        }
        plan.parameters.check()?;
        let cells = plan.runs.iter().map(|run| &run.cell);
        let all = cells.chain(plan.left_out.iter().map(|one| &one.cell));
        for cell in all {
            if !plan.parameters.nodes.contains(&cell.nodes) {
                return Err(format!(
                    "{cell}: the study has no runs on {} nodes",
                    cell.nodes
                ));
            }
        }
        Ok(plan)
    }

    /// The first difference that keeps a study from continuing.
    pub fn difference(&self, now: &Self) -> Option<String> {
        let then = decisive(&self.versions, &self.machine);
        let (name, then, now) = first_difference(&then, &decisive(&now.versions, &now.machine))?;
        Some(format!(
            "it was begun with {name} '{then}', this is '{now}'"
        ))
    }
}

/// The entries of a machine and its versions that affect figures.
pub fn decisive(
    versions: &BTreeMap<String, String>,
    machine: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let is_decisive = |name: &str| ["cpu", "cpus", "mpi_settings"].contains(&name);
    let of_machine = machine.iter().filter(|(name, _)| is_decisive(name));
    let all = versions.iter().chain(of_machine);
    all.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The first name with different values, and both values.
pub fn first_difference(
    one: &BTreeMap<String, String>,
    other: &BTreeMap<String, String>,
) -> Option<(String, String, String)> {
    let value = |of: &BTreeMap<String, String>, name: &str| {
        of.get(name).cloned().unwrap_or_else(|| "none".into())
    };
    one.keys()
        .chain(other.keys())
        .map(|name| (name.clone(), value(one, name), value(other, name)))
        .find(|(_, one, other)| one != other)
}

/// The directory of a study.
pub struct Store {
    dir: Dir,
    runs: Option<File>,
}

/// The purpose of opening a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To read it, and to write reports into its directory.
    Report,
    /// To continue it: its contents then control changes of the machine.
    GoOn,
}

fn failed(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::Failed(format!("{}: {why}", path.display()))
}

impl Store {
    /// Makes a new study in a directory that is empty or does not exist.
    pub fn create(dir: &Path, plan: &Plan) -> Result<Self> {
        // Other users must not be able to put anything into it.
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(dir)
            .map_err(|error| failed(dir, error))?;
        let opened = Dir::open(dir).map_err(|error| failed(dir, error))?;
        let mut entries = fs::read_dir(dir).map_err(|error| failed(dir, error))?;
        if entries.next().is_some() {
            return Err(Error::Usage(format!(
                "{} is not empty: name another directory with --out, or go on with the study \
                 in it with --resume",
                dir.display()
            )));
        }
        opened.check_trusted().map_err(|error| {
            Error::Usage(format!(
                "{} {}: name another directory with --out",
                dir.display(),
                describe(&error)
            ))
        })?;
        let mut json = serde_json::to_vec_pretty(plan).map_err(io::Error::from)?;
        json.push(b'\n');
        let mut store = Self {
            dir: opened,
            runs: None,
        };
        store.write(PLAN, &json)?;
        store.open()?;
        Ok(store)
    }

    /// Prepares it for more runs.
    fn open(&mut self) -> Result<()> {
        let runs = self.dir.append(RUNS).and_then(|file| {
            self.dir.make_dir(RUN_DIRS)?;
            Ok(file)
        });
        self.runs = Some(runs.map_err(|error| failed(&self.dir().join(RUNS), describe(&error)))?);
        Ok(())
    }

    /// Opens a study and reads its ended runs. An incomplete last line is left out, and removed
    /// when the study continues.
    pub fn resume(dir: &Path, purpose: Purpose) -> Result<(Self, Plan, Vec<Run>)> {
        let missing = |error: io::Error| {
            let why = describe(&error);
            Error::Failed(format!("there is no study in {}: {why}", dir.display()))
        };
        let mut store = Self {
            dir: Dir::open(dir).map_err(missing)?,
            runs: None,
        };
        let goes_on = purpose == Purpose::GoOn;
        let foreign = |path: &Path, error: io::Error| {
            Error::Failed(format!(
                "{} {}: its contents would control changes of this machine; --report \
                 only shows it",
                path.display(),
                describe(&error)
            ))
        };
        if goes_on {
            let checked = store.dir.check_trusted();
            checked.map_err(|error| foreign(dir, error))?;
        }
        let read = |name: &str| -> Result<Option<Vec<u8>>> {
            match store.dir.read(name, MAX_BYTES, goes_on) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) if goes_on && error.kind() == io::ErrorKind::PermissionDenied => {
                    Err(foreign(&dir.join(name), error))
                }
                Err(error) => Err(failed(&dir.join(name), describe(&error))),
            }
        };
        let text = read(PLAN)?.ok_or_else(|| missing(io::ErrorKind::NotFound.into()))?;
        let plan = Plan::parse(&text).map_err(|why| failed(&dir.join(PLAN), why))?;
        let text = read(RUNS)?.unwrap_or_default();
        let (runs, whole) = parse_runs(&text).map_err(|why| failed(&dir.join(RUNS), why))?;
        if goes_on {
            store.open()?;
            let path = store.dir().join(RUNS);
            let cut = store.runs.as_ref().map(|runs| runs.set_len(whole as u64));
            cut.transpose().map_err(|error| failed(&path, error))?;
        }
        Ok((store, plan, runs))
    }

    /// Writes a file of the study, whole or not at all.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.dir
            .write(name, bytes)
            .map_err(|error| failed(&self.dir().join(name), describe(&error)))
    }

    /// Its path.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The directory of a run.
    pub fn run_dir(&self, planned: &Planned) -> PathBuf {
        let name = planned.cell.to_string().replace(' ', "-");
        let name = format!("{RUN_DIRS}/{:04}-{name}", planned.run);
        self.dir().join(name)
    }

    /// Appends a run durably.
    pub fn append(&mut self, run: &Run) -> Result<()> {
        let mut line = serde_json::to_vec(run).map_err(io::Error::from)?;
        line.push(b'\n');
        let write = |runs: &mut File| -> io::Result<()> {
            runs.write_all(&line)?;
            runs.sync_all()
        };
        let written = match &mut self.runs {
            Some(runs) => write(runs),
            None => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        };
        written.map_err(|error| failed(&self.dir().join(RUNS), error))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::colocation::plan::tests::parameters;

    /// The plan of a small study.
    pub fn plan() -> Plan {
        let parameters = parameters();
        Plan {
            benchmark: "colocation".into(),
            schema: SCHEMA,
            redo: "hpmmap bench colocation".into(),
            versions: BTreeMap::from([("kernel".into(), "6.12".into())]),
            machine: BTreeMap::from([("cpu".into(), "x".into())]),
            runs: parameters.order(|_| false),
            parameters,
            left_out: Vec::new(),
        }
    }

    /// A run of this length, with this part of it in the kernel.
    pub fn run(planned: Planned, seconds: f64, system_seconds: f64) -> Run {
        Run {
            planned,
            begun: 1,
            error: None,
            figures: Some(Figures {
                seconds,
                loop_seconds: None,
                rank_seconds: seconds,
                user_seconds: seconds - system_seconds,
                system_seconds,
                run_seconds: seconds,
                wait_seconds: 0.0,
                blocked_seconds: 0.0,
                asleep_seconds: Some(0.0),
                faults: 10,
                major_faults: 1,
                late_faults: Some(3),
                fault_counter: "perf".into(),
                late_faults_said: None,
                rss_peak_bytes: 1 << 20,
                reserved_peak_bytes: 0,
                fallbacks: None,
                pool_faults: None,
                memory: None,
                fill_bytes: None,
                builds: 2,
                vmstat: BTreeMap::from([("compact_stall".into(), 4)]),
                digest: "ab".into(),
                ranks: Vec::new(),
                hosts: Vec::new(),
            }),
        }
    }

    #[test]
    fn a_study_is_kept_and_found_again() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("study");
        let plan = plan();
        let first = run(plan.runs[0], 1.0, 0.1);
        {
            let mut store = Store::create(&dir, &plan).unwrap();
            store.append(&first).unwrap();
        }
        let file = dir.join(RUNS);
        let whole = fs::read(&file).unwrap();
        // The state after a loss of power.
        let mut torn = whole.clone();
        torn.extend(b"{\"run\":1,");
        fs::write(&file, torn).unwrap();
        let (mut store, found, runs) = Store::resume(&dir, Purpose::GoOn).unwrap();
        assert_eq!((found, runs), (plan.clone(), vec![first.clone()]));
        let second = run(plan.runs[1], 2.0, 0.1);
        store.append(&second).unwrap();
        let (_, _, runs) = Store::resume(&dir, Purpose::GoOn).unwrap();
        assert_eq!(runs, vec![first, second]);
    }

    #[test]
    fn a_study_does_not_overwrite_anything() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("x"), "").unwrap();
        let error = Store::create(dir.path(), &plan()).err().unwrap();
        assert!(error.to_string().contains("is not empty"), "{error}");
        let error = Store::resume(dir.path(), Purpose::GoOn).err().unwrap();
        assert!(
            error.to_string().contains("there is no study in"),
            "{error}"
        );
    }

    #[test]
    fn a_plan_is_of_the_nodes_that_it_has() {
        let read = |plan: &Plan| Plan::parse(&serde_json::to_vec(plan).unwrap());
        assert!(read(&plan()).is_ok());
        let mut other = plan();
        other.runs[0].cell.nodes = 9;
        let why = read(&other).unwrap_err();
        assert!(why.ends_with("has no runs on 9 nodes"), "{why}");
        let mut other = plan();
        let mut cell = other.runs[0].cell;
        cell.nodes = 0;
        let reason = String::new();
        other.left_out.push(LeftOut { cell, reason });
        assert!(read(&other).is_err());
    }

    #[test]
    fn what_has_changed_is_named() {
        let then = plan();
        let mut now = then.clone();
        assert_eq!(then.difference(&now), None);
        now.versions.insert("kernel".into(), "6.1".into());
        assert_eq!(
            then.difference(&now).unwrap(),
            "it was begun with kernel '6.12', this is '6.1'"
        );
        now = then.clone();
        now.versions.insert("module".into(), "1".into());
        assert!(then.difference(&now).unwrap().contains("module 'none'"));
    }
}
