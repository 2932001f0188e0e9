//! `hpmmap bench colocation`

mod machines;
mod options;
mod progress;

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{print, print_json, say, tell};
use hpmmap_base::signals;
use hpmmap_base::size::short;
use hpmmap_host::{Root, number_list};
use hpmmap_sys::child::adopt_orphans;
use hpmmap_sys::sigpipe;

use machines::Here;
use options::{cannot_go_on, changed_since};
use progress::Progress;

use crate::cli::BenchColocationArgs;
use crate::colocation::job::{Machines, Runner, Trouble};
use crate::colocation::plan::{Cell, Planned, Profile, Workload};
use crate::colocation::record::{Figures, Plan, Purpose, Run, Store};
use crate::colocation::summary::Summary;
use crate::colocation::{chart, html, text};

/// The error of a run that the caller has ended for the second time.
const GAVE_UP: &str = "it did not end within its limit, nor did it when it was repeated";

pub fn perform(args: &BenchColocationArgs) -> Result<ExitCode> {
    let root = Root::default();
    let then = args.resume.as_deref();
    let then = then.map(|dir| read(dir, args.report)).transpose()?;
    if let Some((store, plan, runs)) = &then {
        let is_whole = runs.len() == plan.runs.len();
        if args.report {
            return conclude(args, store, plan, runs);
        }
        if is_whole && !plan.parameters.hosts.is_empty() {
            return match changed_since(args, &plan.parameters)? {
                None => conclude(args, store, plan, runs),
                Some(why) => Err(cannot_go_on(store.dir(), &why)),
            };
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    // Changes are restored when the study is interrupted.
    signals::catch(&stop)?;
    adopt_orphans()?;
    let stops = || signals::has_come(&stop);
    let before = then.as_ref().map(|(_, plan, _)| &plan.parameters);
    let mut here = Here::new(&root, args, before, &stops)?;
    let parameters = here.parameters(args, before)?;
    let (store, plan, runs) = match then {
        None => {
            let plan = here.plan(args, parameters, false)?;
            (create(args, &plan)?, plan, Vec::new())
        }
        Some((store, plan, runs)) if runs.len() == plan.runs.len() => {
            sigpipe::restore();
            return conclude(args, &store, &plan, &runs);
        }
        Some((store, plan, runs)) => {
            if let Some(why) = refusal(&plan, &here.plan(args, parameters, true)?) {
                return Err(cannot_go_on(store.dir(), &why));
            }
            (store, plan, runs)
        }
    };
    let programs = here.programs(&plan.parameters)?;
    let mut study = Study {
        args,
        programs,
        store,
        plan,
        runs,
        stop: &stops,
    };
    let mut machines = here.machines(&study.plan.parameters, args.cache.clone());
    let ended = study.run_all(&mut *machines);
    let is_set_back = machines.set_back();
    drop(machines);
    drop(here);
    let Study {
        store, plan, runs, ..
    } = study;
    if ended.is_err() && !runs.is_empty() {
        // The report on the runs so far; their errors are printed elsewhere.
        let _ = write_report(&store, &Summary::new(&plan, &runs), &runs);
    }
    ended?;
    // Nothing is left to be restored.
    sigpipe::restore();
    let status = conclude(args, &store, &plan, &runs)?;
    Ok(match is_set_back {
        true => status,
        false => ExitCode::FAILURE,
    })
}

/// The reason why a study cannot continue as it was planned.
fn refusal(then: &Plan, now: &Plan) -> Option<String> {
    then.difference(now).or_else(|| {
        let of = |plan: &Plan| (plan.parameters.rank_cpus.clone(), plan.left_out.clone());
        (of(then) != of(now))
            .then(|| "other CPUs or managers can be used than when it was begun".into())
    })
}

type Opened = (Store, Plan, Vec<Run>);

/// Makes a new study.
fn create(args: &BenchColocationArgs, plan: &Plan) -> Result<Store> {
    let dir = match &args.out {
        Some(dir) => dir.clone(),
        None => PathBuf::from(format!("colocation-{}", now())),
    };
    // Programs start in another directory.
    Store::create(&std::path::absolute(&dir)?, plan)
}

/// Reads a study that was begun.
fn read(dir: &Path, only_shown: bool) -> Result<Opened> {
    let purpose = match only_shown {
        true => Purpose::Report,
        false => Purpose::GoOn,
    };
    Store::resume(&std::path::absolute(dir)?, purpose)
}

/// Copies the files of a directory, if it exists.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let entries = match fs::read_dir(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| time.as_secs())
}

/// A study in progress and its results so far.
struct Study<'a> {
    args: &'a BenchColocationArgs,
    programs: BTreeMap<Workload, PathBuf>,
    store: Store,
    plan: Plan,
    runs: Vec<Run>,
    stop: &'a dyn Fn() -> bool,
}

impl Study<'_> {
    fn run_all(&mut self, machines: &mut dyn Machines) -> Result<()> {
        let done: Vec<u32> = self.runs.iter().map(|run| run.planned.run).collect();
        let left: Vec<Planned> = self
            .plan
            .runs
            .iter()
            .filter(|planned| !done.contains(&planned.run))
            .copied()
            .collect();
        self.announce(&left);
        let (count, before) = (left.len(), self.runs.len());
        let progress = Progress::new(
            before,
            before + count,
            self.args.output.verbose,
            self.plan.parameters.icount,
        );
        for &workload in &self.plan.parameters.workloads {
            let same = left.iter().filter(|one| one.cell.workload == workload);
            // The first run that uses all the machines.
            if let Some(planned) = same.rev().max_by_key(|one| one.cell.nodes) {
                progress.say(&format!("{} once, not counted", workload.name()));
                self.warm_up(machines, planned)?;
            }
        }
        let begun = Instant::now();
        for (n, planned) in left.into_iter().enumerate() {
            progress.next(before + n, before + count, &planned);
            let outcome = match self.args.gave_up.contains(&planned.run) {
                true => Err(Trouble::Failed(GAVE_UP.into())),
                false => self.attempt(machines, &planned),
            };
            let run = match outcome {
                _ if (self.stop)() => return Err(self.interrupted()),
                Err(Trouble::Interrupted) => return Err(self.interrupted()),
                Err(Trouble::Lost(why)) => return Err(self.stopped(&why)),
                Err(Trouble::Failed(error)) => Run {
                    planned,
                    begun: now(),
                    figures: None,
                    error: Some(error),
                },
                Ok(run) => run,
            };
            self.store.append(&run)?;
            let each = begun.elapsed() / (n as u32 + 1);
            let left = (n + 1 < count).then(|| each * (count - n - 1) as u32);
            progress.ended(&run, left);
            self.runs.push(run);
        }
        Ok(())
    }

    /// Prints what will be done.
    fn announce(&self, left: &[Planned]) {
        let parameters = &self.plan.parameters;
        say(&format!(
            "{} runs, {} ranks on CPU {}, {} for the job{}; again with:\n  {}",
            left.len(),
            parameters.ranks,
            number_list::format(&parameters.rank_cpus),
            short(parameters.memory_bytes),
            match parameters.hosts.is_empty() {
                true => "",
                false => " on each host",
            },
            self.plan.redo
        ));
        for round in left.chunk_by(|a, b| a.repetition == b.repetition) {
            let cells: Vec<String> = round.iter().map(|one| one.cell.to_string()).collect();
            tell(&format!(
                "  round {}: {}",
                round[0].repetition + 1,
                cells.join(", ")
            ));
        }
    }

    /// Runs a cell in the directory for scratch files, and keeps its output.
    fn run_cell(
        &self,
        machines: &mut dyn Machines,
        cell: &Cell,
        dir: &Path,
    ) -> std::result::Result<Figures, Trouble> {
        let parameters = &self.plan.parameters;
        let runner = Runner {
            parameters,
            program: env::current_exe().map_err(|error| error.to_string())?,
            stop: self.stop,
        };
        let program = &self.programs[&cell.workload];
        let start = cell.workload.start(program, parameters, cell.nodes);
        // Other hosts have such a directory of their own.
        let work = self.args.work.as_ref();
        let Some(work) = work.filter(|_| parameters.hosts.is_empty()) else {
            return runner.run(machines, cell, &start, dir);
        };
        let failed = |error: io::Error| Trouble::Failed(format!("{}: {error}", work.display()));
        fs::create_dir_all(work).map_err(failed)?;
        let scratch = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(work)
            .map_err(failed)?;
        let there = scratch.path().join("run");
        let result = runner.run(machines, cell, &start, &there);
        copy_files(&there, dir).map_err(failed)?;
        result
    }

    /// Reads the program and its files from the disk beforehand.
    fn warm_up(&self, machines: &mut dyn Machines, planned: &Planned) -> Result<()> {
        let cell = Cell {
            neighbour: Profile::None,
            ..planned.cell
        };
        let name = format!("runs/warm-up-{}", cell.workload.name());
        let dir = self.store.dir().join(name);
        match self.run_cell(machines, &cell, &dir) {
            _ if (self.stop)() => Err(self.interrupted()),
            Ok(_) => Ok(()),
            Err(Trouble::Interrupted) => Err(self.interrupted()),
            Err(Trouble::Lost(why)) => Err(self.stopped(&why)),
            Err(Trouble::Failed(why)) => Err(Error::Failed(format!(
                "{cell} does not run: {why} (its output is in {})",
                dir.display()
            ))),
        }
    }

    fn attempt(
        &self,
        machines: &mut dyn Machines,
        planned: &Planned,
    ) -> std::result::Result<Run, Trouble> {
        let cell = planned.cell;
        let begun = now();
        let figures = self.run_cell(machines, &cell, &self.store.run_dir(planned))?;
        let first = self.runs.iter().find_map(|run| {
            let of = |cell: &Cell| (cell.workload, cell.nodes);
            let same = of(&run.planned.cell) == of(&cell);
            Some((run.planned.run, run.figures.as_ref().filter(|_| same)?))
        });
        if let Some((run, first)) = first.filter(|(_, first)| first.digest != figures.digest) {
            return Err(format!(
                "its result {} is not that of run {run}, {}",
                figures.digest, first.digest
            )
            .into());
        }
        Ok(Run {
            planned: *planned,
            begun,
            figures: Some(figures),
            error: None,
        })
    }

    fn interrupted(&self) -> Error {
        self.stopped("interrupted")
    }

    fn stopped(&self, why: &str) -> Error {
        let dir = self.store.dir().display();
        let report = match self.runs.is_empty() {
            true => String::new(),
            false => format!(" (report of these: {dir}/report.html)"),
        };
        Error::Failed(format!(
            "{why} after {} of {} runs; go on with: hpmmap bench colocation --resume {dir}{report}",
            self.runs.len(),
            self.plan.runs.len(),
        ))
    }
}

/// Writes the report as files of the study.
fn write_report(store: &Store, summary: &Summary, runs: &[Run]) -> Result<()> {
    let mut json = serde_json::to_vec_pretty(summary).map_err(io::Error::from)?;
    json.push(b'\n');
    store.write("summary.json", &json)?;
    for (name, svg) in chart::charts(summary)? {
        store.write(&format!("{name}.svg"), svg.as_bytes())?;
    }
    let report = html::report(summary, runs)?;
    store.write("report.html", report.as_bytes())
}

/// Writes the report, and prints it.
fn conclude(
    args: &BenchColocationArgs,
    store: &Store,
    plan: &Plan,
    runs: &[Run],
) -> Result<ExitCode> {
    let summary = Summary::new(plan, runs);
    write_report(store, &summary, runs)?;
    if args.output.json {
        print_json(&summary)?;
    } else {
        print(&text::text(&summary))?;
        let path = store.dir().join("report.html");
        print(&format!("\nReport: {}", path.display()))?;
    }
    Ok(if summary.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
