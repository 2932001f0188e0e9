//! `hpmmap bench colocation`

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::hash::{BuildHasher, RandomState};
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
use hpmmap_host::{Root, list};
use hpmmap_sys::child::adopt_orphans;
use hpmmap_sys::sigpipe;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::cli::BenchColocationArgs;
use crate::colocation::cluster::{self, Cluster, Launcher};
use crate::colocation::job::{Machines, Runner, Trouble};
use crate::colocation::plan::{
    Cell, Parameters, Planned, Profile, Workload, check_hosts, default_nodes, default_ranks,
    divide_cpus,
};
use crate::colocation::record::{Figures, LeftOut, Plan, Purpose, Run, SCHEMA, Store};
use crate::colocation::site::{self, Facts, Obstacle, Site};
use crate::colocation::summary::Summary;
use crate::colocation::{chart, html, text};

/// Of a run that who started this has ended, and not for the first time.
const GAVE_UP: &str = "it did not end within its limit, nor did it when it was repeated";

const MEBIBYTE: u64 = 1 << 20;
/// For the files of runs on other hosts: on a disk of each.
const WORK: &str = "/var/tmp";

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
    // What was changed is set back when the study is interrupted.
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
        // Of what there is; why it is not all is said once.
        let _ = write_report(&store, &Summary::new(&plan, &runs), &runs);
    }
    ended?;
    // Nothing is left to be set back.
    sigpipe::restore();
    let status = conclude(args, &store, &plan, &runs)?;
    Ok(match is_set_back {
        true => status,
        false => ExitCode::FAILURE,
    })
}

/// The machines of a study, this one or others, and what they are like.
struct Here<'a> {
    root: &'a Root,
    cluster: Option<Cluster<'a>>,
    hosts: Vec<String>,
    /// Of each; of this one where no others are named.
    facts: Vec<Facts>,
    stop: &'a dyn Fn() -> bool,
}

/// What ends a study that has not begun.
fn before_it(trouble: Trouble) -> Error {
    Error::Failed(match trouble {
        Trouble::Interrupted => "interrupted before anything was run".into(),
        Trouble::Failed(why) | Trouble::Lost(why) => why,
    })
}

impl<'a> Here<'a> {
    fn new(
        root: &'a Root,
        args: &BenchColocationArgs,
        before: Option<&Parameters>,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Self> {
        let hosts = asked_hosts(args, before)?;
        let workloads = listed(&args.workload, before.map(|before| &before.workloads));
        let apps = args.apps.as_deref();
        let (cluster, facts) = match hosts.is_empty() {
            true => (None, vec![Facts::look(root, &workloads, apps)?]),
            false => {
                let mut cluster = connect(args, &hosts, stop)?;
                let facts = cluster.look(&workloads, apps).map_err(before_it)?;
                (Some(cluster), facts)
            }
        };
        Ok(Self {
            root,
            cluster,
            hosts,
            facts,
            stop,
        })
    }

    /// Why a program cannot be run on them.
    fn lack(&self, workload: Workload) -> Option<String> {
        self.facts.iter().enumerate().find_map(|(n, facts)| {
            let why = facts.programs.get(&workload)?.as_ref().err()?;
            Some(match self.hosts.get(n) {
                Some(host) => format!("{host}: {why}"),
                None => why.clone(),
            })
        })
    }

    fn programs(&self, parameters: &Parameters) -> Result<BTreeMap<Workload, PathBuf>> {
        let mut programs = BTreeMap::new();
        for &one in &parameters.workloads {
            if let Some(why) = self.lack(one) {
                return Err(Error::Failed(format!("{}: {why}", one.name())));
            }
            if let Some(Ok(program)) = self.facts[0].programs.get(&one) {
                programs.insert(one, program.path.clone());
            }
        }
        Ok(programs)
    }

    /// What cannot be run, on each.
    fn obstacles(
        &mut self,
        parameters: &Parameters,
        cache: Option<&Path>,
    ) -> Result<Vec<Vec<Obstacle>>> {
        match &mut self.cluster {
            None => Ok(vec![site::obstacles(self.root, parameters)]),
            Some(cluster) => cluster.study(parameters, cache).map_err(before_it),
        }
    }

    /// What is to be run, which is what was before.
    fn parameters(
        &self,
        args: &BenchColocationArgs,
        before: Option<&Parameters>,
    ) -> Result<Parameters> {
        let least = self.facts.iter().min_by_key(|facts| facts.memory_bytes);
        let parameters = decided(args, least.expect("there is a machine"), before)?;
        match before.and_then(|then| changed(then, &parameters)) {
            None => Ok(parameters),
            Some(why) => {
                let dir = args.resume.as_deref().unwrap_or(Path::new("."));
                Err(cannot_go_on(dir, &why))
            }
        }
    }

    /// The plan for these machines as they are.
    fn plan(
        &mut self,
        args: &BenchColocationArgs,
        mut parameters: Parameters,
        resumed: bool,
    ) -> Result<Plan> {
        if args.workload.is_empty() && !resumed {
            let all = std::mem::take(&mut parameters.workloads);
            for one in all {
                match self.lack(one) {
                    None => parameters.workloads.push(one),
                    Some(why) => say(&format!("{} is left out: {why}", one.name())),
                }
            }
        }
        self.programs(&parameters)?;
        cluster::check_alike(&self.hosts, &self.facts, &parameters.workloads)
            .map_err(Error::Failed)?;
        let obstacles = self.obstacles(&parameters, args.cache.as_deref())?;
        let left_out = left_out(&parameters, &obstacles)?;
        let runs = parameters.order(|cell| left_out.iter().any(|one| one.cell == *cell));
        let command: Vec<String> = ["hpmmap", "bench", "colocation"]
            .map(String::from)
            .into_iter()
            .chain(parameters.options())
            .collect();
        let first = &self.facts[0];
        let mut machine = first.machine.clone();
        if !self.hosts.is_empty() {
            machine.insert("mpi_settings".into(), mpi_settings());
        }
        Ok(Plan {
            benchmark: "colocation".into(),
            schema: SCHEMA,
            redo: command.join(" "),
            versions: first.versions_with(&parameters.workloads),
            machine,
            parameters,
            left_out,
            runs,
        })
    }

    /// To run jobs on.
    fn machines(
        &mut self,
        parameters: &Parameters,
        cache: Option<PathBuf>,
    ) -> Box<dyn Machines + 'a> {
        match self.cluster.take() {
            Some(cluster) => Box::new(cluster),
            None => Box::new(Site::new(self.root, parameters, cache, self.stop)),
        }
    }
}

/// The hosts that are to take part.
fn asked_hosts(args: &BenchColocationArgs, before: Option<&Parameters>) -> Result<Vec<String>> {
    let hosts = match (&args.hosts[..], before) {
        ([], Some(before)) => before.hosts.clone(),
        (asked, _) => asked.to_vec(),
    };
    let all: Vec<u32> = default_nodes(hosts.len());
    check_hosts(&hosts, &all).map_err(|why| Error::Usage(format!("--hosts: {why}")))?;
    Ok(hosts)
}

fn connect<'a>(
    args: &BenchColocationArgs,
    hosts: &[String],
    stop: &'a dyn Fn() -> bool,
) -> Result<Cluster<'a>> {
    let base = args.work.as_deref().unwrap_or(Path::new(WORK));
    let named = [
        ("work", Some(base)),
        ("apps", args.apps.as_deref()),
        ("cache", args.cache.as_deref()),
    ];
    for (option, path) in named {
        if let Some(path) = path.filter(|path| !path.is_absolute()) {
            return Err(Error::Usage(format!(
                "--{option} {}: with --hosts it must be an absolute path, it is one of each host",
                path.display()
            )));
        }
    }
    let command = env::current_exe()?;
    let paths = named.into_iter().filter_map(|(_, path)| path);
    for path in paths.chain([command.as_path()]) {
        if path.to_str().is_none() {
            let path = path.display();
            return Err(Error::Usage(format!(
                "{path}: hosts are told paths in UTF-8, which this is not"
            )));
        }
    }
    // Nobody can have made it before, where all may.
    let name = format!("hpmmap-colocation-{:016x}", RandomState::new().hash_one(0));
    let launcher = Launcher::choose(hosts)?;
    Cluster::connect(hosts, launcher, &command, base.join(name), stop).map_err(before_it)
}

/// What mpirun is told of the network by the environment.
fn mpi_settings() -> String {
    settings_of(env::vars_os())
}

fn settings_of(variables: impl Iterator<Item = (OsString, OsString)>) -> String {
    let text = |part: OsString| part.to_string_lossy().into_owned();
    let mut all: Vec<String> = variables
        .map(|(name, value)| (text(name), text(value)))
        .filter(|(name, _)| name.starts_with("OMPI_MCA_"))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    all.sort();
    all.join(" ")
}

/// What cannot be run on the hosts, or on this machine alone.
fn left_out(parameters: &Parameters, obstacles: &[Vec<Obstacle>]) -> Result<Vec<LeftOut>> {
    let reason = |cell: &Cell| {
        let of = |(n, all): (usize, &Vec<Obstacle>)| {
            let is_here =
                |one: &&Obstacle| (one.manager, one.neighbour) == (cell.manager, cell.neighbour);
            let why = &all.iter().find(is_here)?.reason;
            Some(match parameters.hosts.get(n) {
                Some(host) => format!("{host}: {why}"),
                None => why.clone(),
            })
        };
        let used = obstacles.iter().take(cell.nodes as usize);
        used.enumerate().find_map(of)
    };
    let mut all = Vec::new();
    for &workload in &parameters.workloads {
        let mut cells = parameters.cells();
        cells.retain(|cell| cell.workload == workload);
        let found = cells.iter().filter_map(|&cell| {
            let reason = reason(&cell)?;
            Some(LeftOut { cell, reason })
        });
        let found: Vec<LeftOut> = found.collect();
        if found.len() == cells.len() {
            return Err(Error::Failed(format!(
                "nothing can be run here: {}",
                found[0].reason
            )));
        }
        all.extend(found);
    }
    Ok(all)
}

fn cannot_go_on(dir: &Path, why: &str) -> Error {
    Error::Usage(format!("{} cannot go on: {why}", dir.display()))
}

/// Why a study cannot go on as it was planned.
fn refusal(then: &Plan, now: &Plan) -> Option<String> {
    then.difference(now).or_else(|| {
        let of = |plan: &Plan| (plan.parameters.rank_cpus.clone(), plan.left_out.clone());
        (of(then) != of(now))
            .then(|| "other CPUs or managers can be used than when it was begun".into())
    })
}

fn or_all<T: ValueEnum + Copy>(asked: &[T]) -> Vec<T> {
    match asked {
        [] => T::value_variants().to_vec(),
        asked => asked.to_vec(),
    }
}

/// What was asked for, or before, or all there are.
fn listed<T: ValueEnum + Copy + Ord>(asked: &[T], before: Option<&Vec<T>>) -> Vec<T> {
    let mut all = match (asked, before) {
        ([], Some(before)) => before.clone(),
        (asked, _) => or_all(asked),
    };
    all.sort();
    all.dedup();
    all
}

/// What is decided from the options, and from `before` where they say nothing.
fn decided(
    args: &BenchColocationArgs,
    machine: &Facts,
    before: Option<&Parameters>,
) -> Result<Parameters> {
    let usage = |text: String| Err(Error::Usage(text));
    let quick = args.quick || before.is_some_and(|before| before.quick);
    let icount = args.icount || before.is_some_and(|before| before.icount);
    let hosts = asked_hosts(args, before)?;
    let nodes = asked_nodes(args, before, &hosts)?;
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
    if icount && (machine.cpus(), ranks, hosts.len()) != (1, 1, 0) {
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
        // As the paper has it on several machines.
        ([], None) if !hosts.is_empty() => vec![Profile::C],
        ([], None) => vec![Profile::A, Profile::B, Profile::C],
        (asked, _) => asked.to_vec(),
    };
    neighbours.push(Profile::None);
    neighbours.sort();
    neighbours.dedup();
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
        hosts,
        nodes,
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

/// On how many of the hosts jobs are to run.
fn asked_nodes(
    args: &BenchColocationArgs,
    before: Option<&Parameters>,
    hosts: &[String],
) -> Result<Vec<u32>> {
    let mut nodes = match (&args.nodes[..], before) {
        ([], Some(before)) => before.nodes.clone(),
        ([], None) => default_nodes(hosts.len()),
        (asked, _) => asked.to_vec(),
    };
    nodes.sort_unstable();
    nodes.dedup();
    check_hosts(hosts, &nodes).map_err(|why| Error::Usage(format!("--nodes: {why}")))?;
    Ok(nodes)
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

/// The same, of a study whose machines are not needed any more.
fn changed_since(args: &BenchColocationArgs, then: &Parameters) -> Result<Option<String>> {
    let machine = Facts {
        nodes: vec![[&then.rank_cpus[..], &then.other_cpus].concat()],
        ..Facts::default()
    };
    Ok(changed(then, &decided(args, &machine, Some(then))?))
}

type Opened = (Store, Plan, Vec<Run>);

/// A new study.
fn create(args: &BenchColocationArgs, plan: &Plan) -> Result<Store> {
    let dir = match &args.out {
        Some(dir) => dir.clone(),
        None => PathBuf::from(format!("colocation-{}", now())),
    };
    // Programs are started elsewhere.
    Store::create(&std::path::absolute(&dir)?, plan)
}

/// One that was begun.
fn read(dir: &Path, only_shown: bool) -> Result<Opened> {
    let purpose = match only_shown {
        true => Purpose::Report,
        false => Purpose::GoOn,
    };
    Store::resume(&std::path::absolute(dir)?, purpose)
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
            self.args.verbose,
            self.plan.parameters.icount,
        );
        for &workload in &self.plan.parameters.workloads {
            let same = left.iter().filter(|one| one.cell.workload == workload);
            // The first of those on all the machines.
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

    /// Says what is about to be done.
    fn announce(&self, left: &[Planned]) {
        let parameters = &self.plan.parameters;
        say(&format!(
            "{} runs, {} ranks on CPU {}, {} for the job{}; again with:\n  {}",
            left.len(),
            parameters.ranks,
            list::format(&parameters.rank_cpus),
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

    /// Runs a cell in the directory of scratch files, and keeps what it printed.
    fn run_cell(
        &self,
        machines: &mut dyn Machines,
        cell: &Cell,
        dir: &Path,
    ) -> std::result::Result<Figures, Trouble> {
        let parameters = &self.plan.parameters;
        let runner = Runner {
            parameters,
            command: env::current_exe().map_err(|error| error.to_string())?,
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

    /// Reads the program and what it uses from the disk.
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
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use crate::cli::{BenchVerb, tests::parse};

    fn args(words: &[&str]) -> BenchColocationArgs {
        match parse(&[&["colocation"], words].concat()) {
            BenchVerb::Colocation(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn machine() -> Facts {
        Facts {
            hostname: "n".into(),
            boot: "b".into(),
            nodes: vec![vec![0, 1, 2, 3, 4, 5], vec![6, 7, 8, 9, 10, 11]],
            allowed_cpus: Some(12),
            memory_bytes: 16 << 30,
            versions: BTreeMap::new(),
            machine: BTreeMap::new(),
            programs: BTreeMap::new(),
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
    fn on_several_hosts_a_study_is_the_papers_of_several_nodes() {
        let parameters = of(&["--hosts", "n1,n2,n3,n4"]);
        assert_eq!(parameters.nodes, [1, 2, 4]);
        assert_eq!(parameters.neighbours, [Profile::None, Profile::C]);
        assert_eq!((parameters.ranks, parameters.memory_bytes), (8, 12 << 30));
        let some = of(&["--hosts=n1,n2", "--nodes=2", "--neighbour=a"]);
        assert_eq!((some.nodes, some.neighbours.len()), (vec![2], 2));
    }

    #[test]
    fn what_a_host_cannot_run_is_left_out_where_it_takes_part() {
        let parameters = of(&["--hosts=n1,n2", "--workload=minicg", "--manager=thp,hpmmap"]);
        let no_module = Obstacle {
            manager: crate::colocation::plan::Manager::Hpmmap,
            neighbour: Profile::C,
            reason: "no module".into(),
        };
        let found = left_out(&parameters, &[Vec::new(), vec![no_module]]).unwrap();
        let shown: Vec<String> = found
            .iter()
            .map(|one| format!("{}: {}", one.cell, one.reason))
            .collect();
        assert_eq!(shown, ["minicg hpmmap c 2 nodes: n2: no module"]);
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
        assert!(message(&["--nodes=2"]).contains("2 nodes need --hosts"));
        assert!(message(&["--hosts=n1,n2", "--nodes=4"]).contains("of 2 hosts"));
        assert!(message(&["--hosts=n1,n1"]).contains("named twice"));
        assert!(message(&["--hosts=-x"]).contains("no name of a host"));
    }

    #[test]
    fn paths_on_hosts_are_absolute() {
        for option in ["--work=x", "--apps=x", "--cache=x"] {
            let args = args(&["--hosts=n1,n2", option]);
            let error = connect(&args, &args.hosts, &|| false).err().unwrap();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("an absolute path"), "{error}");
        }
    }

    #[test]
    fn paths_on_hosts_are_text() {
        let mut args = args(&["--hosts=n1,n2"]);
        args.work = Some(OsString::from_vec(b"/x\xff".to_vec()).into());
        let error = connect(&args, &args.hosts, &|| false).err().unwrap();
        assert!(error.to_string().ends_with("which this is not"), "{error}");
    }

    #[test]
    fn settings_of_mpi_are_told_whatever_the_environment_has() {
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let variables = [
            (text(b"X\xff"), text(b"1")),
            (text(b"OMPI_MCA_btl"), text(b"tcp\xff")),
            (text(b"OMPI_MCA_a"), text(b"2")),
        ];
        let found = settings_of(variables.into_iter());
        assert_eq!(found, "OMPI_MCA_a=2 OMPI_MCA_btl=tcp\u{fffd}");
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
        let then = of(&["--hosts=n1,n2", "--repeat=3"]);
        let since = |words: &[&str]| changed_since(&args(words), &then).unwrap();
        assert_eq!(since(&[]), None);
        assert_eq!(since(&["--hosts=n1,n2", "--ranks=8"]), None);
        for other in ["--repeat=5", "--ranks=4", "--hosts=n1,n3"] {
            assert!(since(&[other]).unwrap().contains(other), "{other}");
        }
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
            "--hosts=n1,n2,n3",
            "--nodes=1,3",
        ]);
        let options = first.options();
        let words: Vec<&str> = options.iter().map(String::as_str).collect();
        assert_eq!(of(&words), first);
    }
}
