//! `hpmmap bench colocation`

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, Permissions};
use std::io::{self, IsTerminal};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{print, print_json, say, tell};
use hpmmap_base::signals;
use hpmmap_base::size::{Size, short};
use hpmmap_host::{Root, list, node};
use hpmmap_sys::child::adopt_orphans;
use hpmmap_sys::sigpipe;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::cli::BenchColocationArgs;
use crate::colocation::job::{Runner, Trouble};
use crate::colocation::plan::{
    Cell, Parameters, Planned, Profile, Workload, default_ranks, divide_cpus,
};
use crate::colocation::record::{Figures, LeftOut, Plan, Purpose, Run, SCHEMA, Store};
use crate::colocation::settings::{self, Settings};
use crate::colocation::summary::Summary;
use crate::colocation::{chart, html, neighbour, text, workload};
use crate::machine;

/// Of a run that who started this has ended, and not for the first time.
const GAVE_UP: &str = "it did not end within its limit, nor did it when it was repeated";

const MEBIBYTE: u64 = 1 << 20;

pub fn perform(args: &BenchColocationArgs) -> Result<ExitCode> {
    let root = Root::default();
    let machine = Machine::look(&root)?;
    let (store, plan, runs) = match &args.resume {
        Some(dir) => resumed(&root, args, &machine, dir)?,
        None => begun(&root, args, &machine)?,
    };
    if args.report || runs.len() == plan.runs.len() {
        return conclude(args, &store, &plan, &runs);
    }
    let programs = programs(&plan.parameters, args.apps.as_deref())?;
    let stop = Arc::new(AtomicBool::new(false));
    // What was changed is set back when the study is interrupted.
    signals::catch(&stop)?;
    adopt_orphans()?;
    let mut study = Study {
        root: &root,
        args,
        programs,
        store,
        plan,
        runs,
        stop: &|| signals::has_come(&stop),
    };
    let ended = study.run_all();
    let Study {
        store, plan, runs, ..
    } = study;
    if ended.is_err() && !runs.is_empty() {
        // Of what there is; why it is not all is said once.
        let _ = write_report(&store, &Summary::new(&plan, &runs), &runs);
    }
    ended?;
    // Nothing is left to be set back.
    sigpipe::restore();
    conclude(args, &store, &plan, &runs)
}

/// What the plan is made of.
struct Machine {
    /// CPUs that may be used, by node.
    nodes: Vec<Vec<u32>>,
    memory_bytes: u64,
}

impl Machine {
    fn look(root: &Root) -> Result<Self> {
        let cpus = |path: String| {
            let text = root.read(path).ok()?;
            list::parse(&text).ok()
        };
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
        Ok(Self {
            nodes,
            memory_bytes: total.unwrap_or(0) * 1024,
        })
    }

    fn cpus(&self) -> u32 {
        self.nodes.iter().map(|cpus| cpus.len() as u32).sum()
    }
}

fn or_all<T: ValueEnum + Copy>(asked: &[T]) -> Vec<T> {
    match asked {
        [] => T::value_variants().to_vec(),
        asked => asked.to_vec(),
    }
}

/// What is decided from the options, and from `before` where they say nothing.
fn decided(
    args: &BenchColocationArgs,
    machine: &Machine,
    before: Option<&Parameters>,
) -> Result<Parameters> {
    let usage = |text: String| Err(Error::Usage(text));
    let quick = args.quick || before.is_some_and(|before| before.quick);
    let icount = args.icount || before.is_some_and(|before| before.icount);
    let ranks = args
        .ranks
        .or(before.map(|before| before.ranks))
        .unwrap_or_else(|| default_ranks(machine.cpus()));
    let Some((rank_cpus, other_cpus)) = divide_cpus(&machine.nodes, ranks) else {
        return usage(format!(
            "--ranks {ranks}: this machine has {} CPUs, and each rank needs one",
            machine.cpus()
        ));
    };
    if icount && (machine.cpus(), ranks) != (1, 1) {
        return usage("--icount is for a machine with one CPU, and one rank".into());
    }
    let memory = match (args.memory, before) {
        (Some(asked), _) => asked.0,
        (None, Some(before)) => before.memory_bytes,
        (None, None) if quick => 256 * MEBIBYTE,
        (None, None) => machine.memory_bytes / 4 * 3 / (256 * MEBIBYTE) * (256 * MEBIBYTE),
    };
    let least = 32 * MEBIBYTE * u64::from(ranks);
    if memory < least || memory % (2 * MEBIBYTE) != 0 {
        return usage(format!(
            "--memory {}: must be a multiple of 2M and at least {} for {ranks} ranks",
            Size(memory),
            Size(least)
        ));
    }
    let workloads = listed(&args.workload, before.map(|before| &before.workloads));
    if args.iterations.is_some() && !workloads.iter().any(|one| one.goes_in_steps()) {
        return usage(
            "--iterations is for lammps, minimd and miniamr: the others solve to the end".into(),
        );
    }
    let mut neighbours = match (&args.neighbour[..], before) {
        ([], Some(before)) => before.neighbours.clone(),
        ([], None) => vec![Profile::A, Profile::B, Profile::C],
        (asked, _) => asked.to_vec(),
    };
    neighbours.push(Profile::None);
    neighbours.sort();
    neighbours.dedup();
    fn listed<T: ValueEnum + Copy + Ord>(asked: &[T], before: Option<&Vec<T>>) -> Vec<T> {
        let mut all = match (asked, before) {
            ([], Some(before)) => before.clone(),
            (asked, _) => or_all(asked),
        };
        all.sort();
        all.dedup();
        all
    }
    Ok(Parameters {
        workloads,
        managers: listed(&args.manager, before.map(|before| &before.managers)),
        neighbours,
        repetitions: args
            .repeat
            .or(before.map(|before| before.repetitions))
            .unwrap_or(if quick { 2 } else { 10 }),
        ranks,
        rank_cpus,
        other_cpus,
        memory_bytes: memory,
        room_bytes: args
            .room
            .map(|room| room.0)
            .or(before.and_then(|before| before.room_bytes)),
        iterations: args
            .iterations
            .or(before.and_then(|before| before.iterations)),
        seed: args.seed.or(before.map(|before| before.seed)).unwrap_or(1),
        quick,
        icount,
        prepare: args.prepare || before.is_some_and(|before| before.prepare),
        timeout_seconds: args
            .timeout
            .or(before.map(|before| before.timeout_seconds))
            .unwrap_or(3600),
    })
}

/// The first option that is not the one the study was begun with.
fn changed(then: &Parameters, now: &Parameters) -> Option<String> {
    let (then, now) = (then.options(), now.options());
    let asked = now.iter().find(|option| !then.contains(option))?;
    let name = asked.split('=').next().unwrap_or(asked);
    let old = then
        .iter()
        .find(|option| option.split('=').next() == Some(name));
    let old = old.map_or_else(|| format!("without {name}"), |old| format!("with {old}"));
    Some(format!(
        "it was begun {old}, not with {asked}: leave the option out"
    ))
}

fn programs(parameters: &Parameters, apps: Option<&Path>) -> Result<BTreeMap<Workload, PathBuf>> {
    let mut programs = BTreeMap::new();
    for &one in &parameters.workloads {
        let program = one
            .find(apps)
            .map_err(|why| Error::Failed(format!("{}: {why}", one.name())))?;
        programs.insert(one, program);
    }
    Ok(programs)
}

/// The plan for this machine as it is.
fn plan(
    root: &Root,
    args: &BenchColocationArgs,
    mut parameters: Parameters,
    resumed: bool,
) -> Result<Plan> {
    let mut left_out = Vec::new();
    if args.workload.is_empty() && !resumed {
        let apps = args.apps.as_deref();
        let all = std::mem::take(&mut parameters.workloads);
        for one in all {
            match one.find(apps) {
                Ok(_) => parameters.workloads.push(one),
                Err(why) => say(&format!("{} is left out: {why}", one.name())),
            }
        }
    }
    for (n, &workload) in parameters.workloads.iter().enumerate() {
        for &manager in &parameters.managers {
            for &neighbour in &parameters.neighbours {
                let reason = settings::obstacle(root, manager, &parameters)
                    .or_else(|| parameters.obstacle(neighbour))
                    .or_else(|| match neighbour {
                        Profile::D => neighbour::find_fragment().err(),
                        _ => None,
                    });
                left_out.extend(reason.map(|reason| LeftOut {
                    cell: Cell {
                        workload,
                        manager,
                        neighbour,
                    },
                    reason,
                }));
            }
        }
        if left_out.len() == (n + 1) * parameters.managers.len() * parameters.neighbours.len() {
            return Err(Error::Failed(format!(
                "nothing can be run here: {}",
                left_out[0].reason
            )));
        }
    }
    let mut versions = machine::versions(root, &[]);
    for (workload, program) in programs(&parameters, args.apps.as_deref())? {
        versions.insert(workload.name().into(), workload::version(&program));
    }
    for (name, program) in [("mpirun", "/usr/bin/mpirun"), ("cc", "/usr/bin/cc")] {
        versions.insert(name.into(), workload::version(Path::new(program)));
    }
    let runs = parameters.order(|cell| left_out.iter().any(|one| one.cell == *cell));
    let command: Vec<String> = ["hpmmap", "bench", "colocation"]
        .map(String::from)
        .into_iter()
        .chain(parameters.options())
        .collect();
    Ok(Plan {
        benchmark: "colocation".into(),
        schema: SCHEMA,
        redo: command.join(" "),
        versions,
        machine: machine::machine(root),
        parameters,
        left_out,
        runs,
    })
}

type Opened = (Store, Plan, Vec<Run>);

fn begun(root: &Root, args: &BenchColocationArgs, machine: &Machine) -> Result<Opened> {
    let plan = plan(root, args, decided(args, machine, None)?, false)?;
    let dir = match &args.out {
        Some(dir) => dir.clone(),
        None => PathBuf::from(format!("colocation-{}", now())),
    };
    // Programs are started elsewhere.
    let dir = std::path::absolute(&dir)?;
    let store = Store::create(&dir, &plan)?;
    Ok((store, plan, Vec::new()))
}

fn resumed(
    root: &Root,
    args: &BenchColocationArgs,
    machine: &Machine,
    dir: &Path,
) -> Result<Opened> {
    let (store, then, runs) = Store::resume(
        &std::path::absolute(dir)?,
        match args.report {
            true => Purpose::Report,
            false => Purpose::GoOn,
        },
    )?;
    let refuse = |why: String| {
        Err(Error::Usage(format!(
            "{} cannot go on: {why}",
            dir.display()
        )))
    };
    if args.report {
        return Ok((store, then, runs));
    }
    let parameters = decided(args, machine, Some(&then.parameters))?;
    if let Some(why) = changed(&then.parameters, &parameters) {
        return refuse(why);
    }
    if runs.len() == then.runs.len() {
        return Ok((store, then, runs));
    }
    let now = plan(root, args, parameters, true)?;
    if let Some(why) = then.difference(&now) {
        return refuse(why);
    }
    if (&then.parameters.rank_cpus, &then.left_out) != (&now.parameters.rank_cpus, &now.left_out) {
        return refuse("other CPUs or managers can be used than when it was begun".into());
    }
    Ok((store, then, runs))
}

/// Copies the files of a directory, if it is there.
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

/// A bar on a terminal, otherwise a line for each run if asked for.
struct Progress {
    bar: Option<ProgressBar>,
    verbose: bool,
    icount: bool,
}

impl Progress {
    fn new(done: usize, all: usize, verbose: bool, icount: bool) -> Self {
        let style = ProgressStyle::with_template("[{bar:24}] {pos}/{len} {msg}, {eta} left")
            .expect("the template is sound")
            .progress_chars("=> ");
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(all as u64).with_style(style);
            bar.set_position(done as u64);
            bar.reset_eta();
            bar.enable_steady_tick(Duration::from_secs(1));
            bar
        });
        Self {
            bar,
            verbose,
            icount,
        }
    }

    fn say(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_string()),
            None if self.verbose => say(what),
            None => (),
        }
    }

    fn next(&self, done: usize, all: usize, planned: &Planned) {
        let cell = planned.cell;
        match &self.bar {
            Some(_) => self.say(&cell.to_string()),
            None => self.say(&format!("{} of {all}: {cell}", done + 1)),
        }
    }

    fn ended(&self, run: &Run, left: Option<Duration>) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
            return;
        }
        if !self.verbose {
            return;
        }
        let result = match (&run.figures, &run.error) {
            (Some(figures), _) if self.icount => {
                format!("{:.3} thousand million instructions", figures.cost(true))
            }
            (Some(figures), _) => format!("{:.2} s", figures.seconds),
            (None, Some(error)) => format!("failed: {error}"),
            (None, None) => String::new(),
        };
        let left = left.map_or(String::new(), |left| {
            format!(", about {} left", HumanDuration(left))
        });
        say(&format!("  {result}{left}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A study and what it has found so far.
struct Study<'a> {
    root: &'a Root,
    args: &'a BenchColocationArgs,
    programs: BTreeMap<Workload, PathBuf>,
    store: Store,
    plan: Plan,
    runs: Vec<Run>,
    stop: &'a dyn Fn() -> bool,
}

impl Study<'_> {
    fn run_all(&mut self) -> Result<()> {
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
            self.args.verbose,
            self.plan.parameters.icount,
        );
        let mut settings = Settings::new(self.root);
        for &workload in &self.plan.parameters.workloads {
            let same = |one: &&Planned| one.cell.workload == workload;
            if let Some(planned) = left.iter().find(same) {
                progress.say(&format!("{} once, not counted", workload.name()));
                self.warm_up(&mut settings, planned)?;
            }
        }
        let begun = Instant::now();
        for (n, planned) in left.into_iter().enumerate() {
            progress.next(before + n, before + count, &planned);
            let outcome = match self.args.gave_up.contains(&planned.run) {
                true => Err(Trouble::Failed(GAVE_UP.into())),
                false => self.attempt(&mut settings, &planned),
            };
            let run = match outcome {
                _ if (self.stop)() => return Err(self.interrupted()),
                Err(Trouble::Interrupted) => return Err(self.interrupted()),
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

    /// Says what is about to be done.
    fn announce(&self, left: &[Planned]) {
        let parameters = &self.plan.parameters;
        say(&format!(
            "{} runs, {} ranks on CPU {}, {} for the job; again with:\n  {}",
            left.len(),
            parameters.ranks,
            list::format(&parameters.rank_cpus),
            short(parameters.memory_bytes),
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

    /// Runs a cell in the directory of scratch files, and keeps what it printed.
    fn run_cell(
        &self,
        settings: &mut Settings,
        cell: &Cell,
        dir: &Path,
    ) -> std::result::Result<Figures, Trouble> {
        let parameters = &self.plan.parameters;
        settings
            .set(cell, parameters)
            .map_err(|error| Trouble::Failed(error.to_string()))?;
        let runner = Runner {
            root: self.root,
            parameters,
            command: env::current_exe().map_err(|error| error.to_string())?,
            cache: self.args.cache.as_deref(),
            stop: self.stop,
        };
        let start = cell
            .workload
            .start(&self.programs[&cell.workload], parameters);
        let Some(work) = &self.args.work else {
            return runner.run(cell, &start, dir);
        };
        let failed = |error: io::Error| Trouble::Failed(format!("{}: {error}", work.display()));
        fs::create_dir_all(work).map_err(failed)?;
        let scratch = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(work)
            .map_err(failed)?;
        let there = scratch.path().join("run");
        let result = runner.run(cell, &start, &there);
        copy_files(&there, dir).map_err(failed)?;
        result
    }

    /// Reads the program and what it uses from the disk.
    fn warm_up(&self, settings: &mut Settings, planned: &Planned) -> Result<()> {
        let cell = Cell {
            neighbour: Profile::None,
            ..planned.cell
        };
        let name = format!("runs/warm-up-{}", cell.workload.name());
        let dir = self.store.dir().join(name);
        match self.run_cell(settings, &cell, &dir) {
            _ if (self.stop)() => Err(self.interrupted()),
            Ok(_) => Ok(()),
            Err(Trouble::Interrupted) => Err(self.interrupted()),
            Err(Trouble::Failed(why)) => Err(Error::Failed(format!(
                "{cell} does not run: {why} (its output is in {})",
                dir.display()
            ))),
        }
    }

    fn attempt(
        &self,
        settings: &mut Settings,
        planned: &Planned,
    ) -> std::result::Result<Run, Trouble> {
        let cell = planned.cell;
        let begun = now();
        let figures = self.run_cell(settings, &cell, &self.store.run_dir(planned))?;
        let first = self.runs.iter().find_map(|run| {
            let same = run.planned.cell.workload == cell.workload;
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
        let dir = self.store.dir().display();
        let report = match self.runs.is_empty() {
            true => String::new(),
            false => format!(" (report of these: {dir}/report.html)"),
        };
        Error::Failed(format!(
            "interrupted after {} of {} runs; go on with: hpmmap bench colocation --resume {dir}{report}",
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
    for workload in summary.workloads() {
        let svg = chart::chart(summary, workload)?;
        store.write(&format!("{}.svg", workload.name()), svg.as_bytes())?;
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
    if args.json {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{BenchVerb, tests::parse};

    fn args(words: &[&str]) -> BenchColocationArgs {
        match parse(&[&["colocation"], words].concat()) {
            BenchVerb::Colocation(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn machine() -> Machine {
        Machine {
            nodes: vec![vec![0, 1, 2, 3, 4, 5], vec![6, 7, 8, 9, 10, 11]],
            memory_bytes: 16 << 30,
        }
    }

    fn of(words: &[&str]) -> Parameters {
        decided(&args(words), &machine(), None).unwrap()
    }

    #[test]
    fn by_default_a_study_is_the_papers() {
        let parameters = of(&[]);
        assert_eq!(parameters.ranks, 8);
        assert_eq!(parameters.memory_bytes, 12 << 30);
        assert_eq!(parameters.repetitions, 10);
        assert_eq!(parameters.rank_cpus, [0, 6, 1, 7, 2, 8, 3, 9]);
        assert_eq!(parameters.build_jobs(Profile::A), 4);
        assert_eq!(parameters.managers.len(), 4);
        let quick = of(&["--quick"]);
        assert_eq!((quick.memory_bytes, quick.repetitions), (256 << 20, 2));
    }

    #[test]
    fn alone_is_always_measured() {
        let neighbours = of(&["--neighbour", "b,a,b"]).neighbours;
        assert_eq!(neighbours, [Profile::None, Profile::A, Profile::B]);
        let again = of(&["--workload=lammps", "--neighbour=none"]);
        assert_eq!(again.neighbours, [Profile::None]);
        assert!(again.options().contains(&"--neighbour=none".to_string()));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let message = |words: &[&str]| {
            let error = decided(&args(words), &machine(), None).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        assert!(message(&["--ranks", "13"]).contains("has 12 CPUs"));
        assert!(message(&["--memory", "3000000"]).contains("a multiple of 2M"));
        assert!(message(&["--memory", "64M"]).contains("at least 256M for 8 ranks"));
        assert!(message(&["--icount"]).contains("one CPU"));
    }

    #[test]
    fn a_study_goes_on_with_its_own_options() {
        let then = of(&["--repeat", "3", "--quick", "--workload", "lammps"]);
        let again = |words: &[&str]| {
            let now = decided(&args(words), &machine(), Some(&then)).unwrap();
            changed(&then, &now)
        };
        assert_eq!(again(&[]), None);
        assert_eq!(again(&["--repeat", "3", "--quick"]), None);
        assert_eq!(
            again(&["--repeat", "5"]).unwrap(),
            "it was begun with --repeat=3, not with --repeat=5: leave the option out"
        );
        assert_eq!(
            again(&["--prepare"]).unwrap(),
            "it was begun without --prepare, not with --prepare: leave the option out"
        );
    }

    #[test]
    fn the_redo_command_plans_the_same() {
        let first = of(&[
            "--workload=lammps,minicg",
            "--manager=thp,hpmmap",
            "--neighbour=a,c",
            "--repeat=4",
            "--room=64M",
            "--iterations=7",
            "--seed=9",
            "--prepare",
            "--timeout=60",
        ]);
        let options = first.options();
        let words: Vec<&str> = options.iter().map(String::as_str).collect();
        assert_eq!(of(&words), first);
    }
}
