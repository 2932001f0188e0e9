//! `hpmmap bench node`

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{print, print_json, save_json};
use hpmmap_base::safe_files;
use hpmmap_host::{Root, node};
use hpmmap_sys::{child, sigpipe};
use nix::unistd::geteuid;

use super::session::{Progress, Session, worker_program};
use crate::cli::{BenchNodeArgs, SessionArgs};
use crate::colocation::job::Trouble;
use crate::colocation::plan::Workload;
use crate::machine::{self, hugetlb_free, pools_free, thp};
use crate::node::app::{self, App};
use crate::node::counters::Counters;
use crate::node::cpus::{cpus, free_bytes, memory};
use crate::node::names::Names;
use crate::node::plan::{LEAST_BYTES, Parameters, What, memory_bytes};
use crate::node::record::{LeftOut, Record, SCHEMA};
use crate::node::result::{Outcome, Sample};
use crate::node::verdict::verdicts;
use crate::node::{plot, report};
use crate::noise::plan::{self as noise, Condition, Mode, Tasks};
use crate::noise::result::Summary;
use crate::noise::worker::{Place, Worker as NoiseWorker};
use crate::plan::{LARGE_PAGE, Method, PAGE_METHODS, Provider, chosen_methods};
use crate::prepared::{Prepared, RESERVE_BYTES, say_not_set_back};
use crate::program::in_path;
use crate::result::{PoolAdd, Provenance};
use crate::worker::{Sample as AllocSample, Worker as AllocWorker};

/// Paths of the workers relative to the command: in the build tree, installed.
const ALLOC: [&str; 2] = ["bench/bench-alloc", "../lib/hpmmap/bench-alloc"];
const NOISE: [&str; 2] = ["bench/bench-noise", "../lib/hpmmap/bench-noise"];
/// Rounds in a process.
const ROUNDS: u32 = 3;
/// A round takes so many times a usual one where it is a detour.
const FACTOR: u32 = 9;
/// STREAM counts two numbers that are read and one that is written.
const TRIAD_BYTES: f64 = 24.0;
/// The worker gives each of the three arrays a quarter of the memory.
const TRIAD_ELEMENT: u64 = 4 * 8;

pub fn perform(args: &BenchNodeArgs) -> Result<ExitCode> {
    let root = Root::default();
    let dir = args.out.clone().unwrap_or_else(default_dir);
    let session_args = SessionArgs {
        icount: false,
        prepare: args.prepare,
        out: Some(dir.clone()),
        output: args.output.clone(),
        worker: None,
    };
    let methods = chosen_methods(&args.methods.method, &PAGE_METHODS)?;
    let found = cpus(&root, args.cpus.as_deref())?;
    if args.prepare && !geteuid().is_root() {
        return Err(Error::NoPermission {
            what: "to change settings of this machine".into(),
            hint: "run it as root, or without --prepare".into(),
        });
    }
    let mut prepared = Prepared::new(&root);
    if args.prepare {
        prepared.begin()?;
    }
    let memory_bytes = checked_memory(args, &root)?;
    let session = Session::new(&root, &session_args)?;
    child::adopt_orphans()?;
    let mut provenance = session.provenance("node", SCHEMA, "see results", &[]);
    circumstances(&root, &mut provenance.machine);
    let with_memory = node::with_memory(&root)?;
    let mut run = Run {
        provenance,
        node: Some(found.number).filter(|node| with_memory.contains(node)),
        workers: Workers::find(&session, args.programs.apps.clone())?,
        begun: Instant::now(),
        rng: Rng::with_seed(args.seed),
        parameters: Parameters {
            methods,
            minutes: args.minutes,
            memory_bytes,
            cpus: found.node,
            all_cpus: found.all,
            repetitions: args.repeat,
            seed: args.seed,
        },
        session,
        gone: BTreeSet::new(),
        took: BTreeMap::new(),
        answers: BTreeMap::new(),
        samples: BTreeMap::new(),
        left_out: Vec::new(),
        failed: Vec::new(),
        not_provided: Vec::new(),
    };
    let pool_add = match args.prepare {
        true => run.prepare(&mut prepared)?,
        false => None,
    };
    run.rounds();
    let not_set_back = prepared.set_back();
    say_not_set_back(&not_set_back);
    let record = run.record(pool_add);
    // Nothing is left to be restored.
    sigpipe::restore();
    let text = report::text(&record);
    // The other place has the results if one of the two fails.
    let saved = save(&dir, &record, &text);
    match args.output.json {
        true => print_json(&record)?,
        false => print(&with_file(text, &dir, &saved))?,
    }
    saved?;
    let is_good = record.failed.is_empty() && not_set_back.is_empty() && !record.interrupted;
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn save(dir: &Path, record: &Record, text: &str) -> Result<()> {
    save_json(dir, "node.json", record)?;
    safe_files::write(&dir.join("node.txt"), format!("{text}\n"))?;
    plot::write(record, &dir.join("node")).map(drop)
}

/// The report, and the file to send if there is one.
fn with_file(text: String, dir: &Path, saved: &Result<()>) -> String {
    match saved {
        Ok(()) => format!(
            "{text}\n\nThe file to send: {}",
            dir.join("node.json").display()
        ),
        Err(_) => text,
    }
}

fn default_dir() -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format!("node-{}", now.map_or(0, |now| now.as_secs())).into()
}

/// The memory to measure with. Each NUMA node gets as much of pools and huge pages.
fn checked_memory(args: &BenchNodeArgs, root: &Root) -> Result<u64> {
    let nodes = node::with_memory(root)?;
    let free = free_bytes(root)?;
    let mut of_node = free / nodes.len().max(1) as u64;
    for node in nodes {
        of_node = of_node.min(machine::linux_free(root, node)?);
    }
    let fitting = |free| memory_bytes(args.minutes, free);
    memory(args.memory, free, of_node, LEAST_BYTES, fitting)
}

/// The programs that measure.
struct Workers {
    alloc: AllocWorker,
    noise: NoiseWorker,
    apps: Option<PathBuf>,
    own: PathBuf,
}

impl Workers {
    fn find(session: &Session, apps: Option<PathBuf>) -> Result<Self> {
        Ok(Self {
            alloc: AllocWorker {
                program: worker_program(None, &ALLOC)?,
                rounds: ROUNDS,
                cpus: Vec::new(),
            },
            noise: NoiseWorker {
                program: worker_program(None, &NOISE)?,
                hz: session.tsc_hz.unwrap_or_default(),
                place: Place::Own,
            },
            apps,
            own: env::current_exe()?,
        })
    }
}

/// Why there is no figure.
enum Lack {
    /// Something is missing.
    Missing(String),
    /// It failed, or its result was wrong.
    Failed(String),
}

impl From<Error> for Lack {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A benchmark in progress and its results so far.
struct Run<'a> {
    session: Session<'a>,
    /// As it was before.
    provenance: Provenance,
    /// The NUMA node of the first CPUs, if it has memory.
    node: Option<u32>,
    parameters: Parameters,
    workers: Workers,
    begun: Instant,
    rng: Rng,
    /// What is not tried again.
    gone: BTreeSet<(What, Method)>,
    /// The time of the last repetition.
    took: BTreeMap<(What, Method), Duration>,
    /// The result that all methods must have.
    answers: BTreeMap<What, String>,
    samples: BTreeMap<(What, Method), Vec<Sample>>,
    left_out: Vec<LeftOut>,
    failed: Vec<LeftOut>,
    /// Why a provider has less than wanted.
    not_provided: Vec<(Provider, String)>,
}

impl Run<'_> {
    fn is_stopped(&self) -> bool {
        self.session.go_on().is_err()
    }

    fn left(&self) -> Duration {
        let all = Duration::from_secs_f64(self.parameters.minutes * 60.0);
        all.saturating_sub(self.begun.elapsed())
    }

    /// Gets what the methods lack of huge pages and pool memory, and leaves Linux what it needs.
    /// Where that fails the measurements are left out; only a change that cannot be recorded is an
    /// error.
    fn prepare(&mut self, prepared: &mut Prepared) -> Result<Option<PoolAdd>> {
        let root = self.session.root;
        let wants = |provider| {
            let methods = self.parameters.methods.iter();
            let needs = methods
                .filter(|method| method.provider() == provider)
                .map(|&method| self.parameters.need_bytes(method));
            needs.max().unwrap_or(0)
        };
        let nodes = node::with_memory(root)?;
        let free = free_bytes(root)?;
        let room = free.saturating_sub(RESERVE_BYTES + wants(Provider::Linux));
        let room = room.min(free / 2) / nodes.len().max(1) as u64;
        // A measurement may use one node only.
        let huge = |node| {
            wants(Provider::Hugetlb).saturating_sub(hugetlb_free(root, LARGE_PAGE, Some(node)))
        };
        let is_loaded = hpmmap_host::pool::is_loaded(root);
        let none = &mut self.not_provided;
        if thp(root).as_deref() == Some("never") {
            provide(none, Provider::Linux, prepared, |to| to.set_thp("madvise"))?;
        }
        let mut added: Option<PoolAdd> = None;
        // Pools first: Linux frees reserved pages in memory that it gives up.
        let mut rooms = Vec::new();
        for node in nodes {
            let room = room.min(machine::linux_free(root, node)? / 2);
            let most = room - huge(node).min(room / 2);
            let pool = wants(Provider::Pools).saturating_sub(pools_free(root, Some(node)));
            let pool = pool.min(most);
            // Without the module its measurements are left out.
            if pool == 0 || !is_loaded || self.session.go_on().is_err() {
                rooms.push((node, room));
                continue;
            }
            let pool = prepared.memory_blocks(pool, most)?;
            let grown = provide(none, Provider::Pools, prepared, |to| {
                to.grow_pool(node, pool)
            })?;
            if let Some(grown) = grown {
                added = Some(added.unwrap_or_default().plus(&grown));
            }
            rooms.push((node, room - pool));
        }
        for (node, room) in rooms {
            let more = huge(node).div_ceil(LARGE_PAGE).min(room / LARGE_PAGE);
            if more > 0 {
                provide(none, Provider::Hugetlb, prepared, |to| {
                    to.reserve_more(node, more)
                })?;
            }
        }
        Ok(added)
    }

    /// Measures until the time is over, all rounds are made, or a signal comes.
    fn rounds(&mut self) {
        let all = self.parameters.all();
        let made = |what, method| self.parameters.makes(what, method);
        let cells: Vec<(What, Vec<Method>)> = all
            .iter()
            .map(|what| {
                let methods = self.parameters.methods.iter().copied();
                (
                    *what,
                    methods.filter(|&method| made(what, method)).collect(),
                )
            })
            .collect();
        let count: usize = cells.iter().map(|(_, methods)| methods.len()).sum();
        let all = count * self.parameters.repetitions as usize;
        let mut progress = Progress::new(all, self.session.args.output.verbose);
        for round in 1..=self.parameters.repetitions {
            for (what, methods) in &cells {
                let mut methods = methods.clone();
                self.rng.shuffle(&mut methods);
                for method in methods {
                    if self.is_stopped() {
                        return;
                    }
                    if self.gone.contains(&(*what, method)) {
                        continue;
                    }
                    let took = self.took.get(&(*what, method));
                    if self.left() <= took.copied().unwrap_or_default() {
                        if round == 1 {
                            self.lacks(*what, method, Lack::Missing("no time was left".into()));
                        }
                        continue;
                    }
                    progress.next(&format!(
                        "{}, {}, round {round}",
                        what.title(),
                        method.name()
                    ));
                    self.measure(*what, method);
                }
            }
        }
    }

    /// It is not tried again.
    fn lacks(&mut self, what: What, method: Method, lack: Lack) {
        self.gone.insert((what, method));
        let (list, reason) = match lack {
            Lack::Missing(reason) => (&mut self.left_out, reason),
            Lack::Failed(reason) => (&mut self.failed, reason),
        };
        list.push(LeftOut {
            what,
            method,
            reason: Names::own().without(&reason),
        });
    }

    fn measure(&mut self, what: What, method: Method) {
        let begun = Instant::now();
        let mut counters = Counters::open(self.session.root);
        let found = self.figure(what, method);
        // A signal ended it.
        if self.is_stopped() {
            return;
        }
        self.took.insert((what, method), begun.elapsed());
        match found {
            Ok((value, answer)) => {
                let first = self.answers.entry(what).or_insert_with(|| answer.clone());
                if *first != answer {
                    let why = format!("its result is {answer}, another method's is {first}");
                    return self.lacks(what, method, Lack::Failed(why));
                }
                let samples = self.samples.entry((what, method)).or_default();
                samples.push(Sample {
                    value,
                    counts: counters.read(),
                });
            }
            // Only in the last round, with results of others.
            Err(_) if self.left().is_zero() && self.samples.contains_key(&(what, method)) => (),
            Err(lack) => self.lacks(what, method, lack),
        }
    }

    /// The figure, and the result that must be the same by all methods.
    fn figure(&self, what: What, method: Method) -> std::result::Result<(f64, String), Lack> {
        let need = what.need_bytes(method, &self.parameters);
        let by_allocator = matches!(what, What::Alloc { pattern, .. } if pattern.uses_allocator());
        // More tasks use the CPUs of all nodes, and their memory.
        let is_of_one = what.tasks() as usize <= self.parameters.cpus.len();
        let node = self.node.filter(|_| is_of_one);
        if let Some(why) = machine::lacking(self.session.root, method, need, by_allocator, node) {
            let failed = self.not_provided.iter();
            let failed = failed.filter(|(provider, _)| *provider == method.provider());
            let whys = failed.map(|(_, failure)| format!("; {failure}"));
            return Err(Lack::Missing(why + &whys.collect::<String>()));
        }
        if method == Method::Thp && matches!(what, What::App { .. }) {
            let setting = thp(self.session.root);
            let glibc = self.provenance.version("glibc");
            if let Some(why) = app::no_thp(setting.as_deref(), glibc) {
                return Err(Lack::Missing(why));
            }
        }
        match what {
            What::Accesses {
                mode,
                size_bytes,
                tasks,
            } => self.accesses(method, mode, size_bytes, tasks),
            What::Alloc { .. } => self.alloc(what, method),
            What::Detours { variant } => {
                let parameters = self.noise_parameters(1);
                let case = noise::Case {
                    method,
                    what: noise::What::Detours {
                        variant,
                        condition: Condition::Alone,
                    },
                };
                let worker = &self.workers.noise;
                let (cpus, _) = worker.detours(&parameters, &case, variant, &[])?;
                let summary = Summary::of(&cpus);
                Ok(((summary.noise + summary.calls) * 100.0, String::new()))
            }
            What::App {
                workload,
                size_bytes,
                ranks,
            } => self.app(method, workload, size_bytes, ranks),
        }
    }

    fn noise_parameters(&self, tasks: u32) -> noise::Parameters {
        let of_one_node = tasks as usize <= self.parameters.cpus.len();
        noise::Parameters {
            methods: Vec::new(),
            variants: Vec::new(),
            modes: Vec::new(),
            cpus: match of_one_node {
                true => self.parameters.cpus.clone(),
                false => self.parameters.all_cpus.clone(),
            },
            neighbour: None,
            milliseconds: self.parameters.milliseconds(),
            factor: FACTOR,
            memory_bytes: self.parameters.detour_bytes(),
            sizes_bytes: Vec::new(),
            accesses: self.parameters.accesses(),
            tasks,
            partition: None,
            count: false,
            rounds: ROUNDS,
        }
    }

    fn accesses(
        &self,
        method: Method,
        mode: Mode,
        size_bytes: u64,
        tasks: u32,
    ) -> std::result::Result<(f64, String), Lack> {
        let case = noise::Case {
            method,
            what: noise::What::Accesses {
                mode,
                tasks: Tasks::Bound,
                size_bytes,
            },
        };
        let mut parameters = self.noise_parameters(tasks);
        if mode == Mode::Triad {
            // From begin to end: a part of the arrays would stay in the caches.
            parameters.accesses = size_bytes / TRIAD_ELEMENT;
        }
        let worker = &self.workers.noise;
        let found = worker.accesses(&parameters, &case, mode, Tasks::Bound, size_bytes)?;
        // Of a task; a nanosecond at least, so that there is a rate.
        let ns = found.median.max(1e-3);
        let value = match mode {
            Mode::Dependent => ns,
            Mode::Independent => f64::from(tasks) * 1e3 / ns,
            Mode::Triad => f64::from(tasks) * TRIAD_BYTES / ns,
        };
        Ok((value, found.last.to_string()))
    }

    fn alloc(&self, what: What, method: Method) -> std::result::Result<(f64, String), Lack> {
        let case = what.case(method).expect("it is one of bench alloc");
        let worker = AllocWorker {
            program: self.workers.alloc.program.clone(),
            rounds: self.workers.alloc.rounds,
            cpus: self.noise_parameters(case.threads).cpus,
        };
        let ns = match worker.run(self.session.root, &case, &[])? {
            AllocSample::LeftOut(reason) => return Err(Lack::Missing(reason)),
            AllocSample::Threads(figures) => figures.wall_ns as f64 / figures.pages.max(1) as f64,
            AllocSample::Single { figures, .. } => {
                let ticks = figures.total as f64 / figures.touched_pages.max(1) as f64;
                ticks * 1e9 / self.session.tsc_hz.unwrap_or(1) as f64
            }
        };
        Ok((ns, String::new()))
    }

    fn app(
        &self,
        method: Method,
        workload: Workload,
        size_bytes: u64,
        ranks: u32,
    ) -> std::result::Result<(f64, String), Lack> {
        let program = workload.find(self.workers.apps.as_deref());
        let program = program.map_err(Lack::Missing)?;
        if ranks > 1 && in_path("mpirun").is_none() {
            let why = "'mpirun' is not installed (package openmpi-bin)";
            return Err(Lack::Missing(why.into()));
        }
        let dir = tempfile::tempdir().map_err(Error::from)?;
        let app = App {
            workload,
            program,
            own: &self.workers.own,
            method,
            size_bytes,
            cpus: &self.parameters.cpus[..ranks as usize],
        };
        let answer = app.run(dir.path(), self.left(), || self.is_stopped());
        let answer = answer.map_err(|trouble| self.lack_of(trouble))?;
        let seconds = answer.loop_seconds;
        let seconds = seconds.ok_or_else(|| Lack::Failed("it told no time".into()))?;
        Ok((seconds, answer.digest))
    }

    fn lack_of(&self, trouble: Trouble) -> Lack {
        match trouble {
            Trouble::Failed(_) if self.left().is_zero() => {
                Lack::Missing("no time was left for its end".into())
            }
            Trouble::Failed(why) if why.contains("error while loading shared libraries") => {
                Lack::Missing(why)
            }
            Trouble::Failed(why) | Trouble::Lost(why) => Lack::Failed(why),
            Trouble::Interrupted => Lack::Missing("interrupted".into()),
        }
    }

    fn record(mut self, pool_add: Option<PoolAdd>) -> Record {
        let interrupted = self.is_stopped();
        let mut results = Vec::new();
        for what in self.parameters.all() {
            for &method in &self.parameters.methods {
                let samples = self.samples.remove(&(what, method)).unwrap_or_default();
                results.extend(Outcome::of(what, method, samples));
            }
        }
        let missing_counters = Counters::open(self.session.root).missing;
        Record {
            provenance: self.provenance,
            parameters: self.parameters,
            seconds: self.begun.elapsed().as_secs_f64(),
            interrupted,
            prepared: self.session.args.prepare,
            pool_add,
            verdicts: verdicts(&results, &self.failed, &missing_counters),
            missing_counters,
            left_out: self.left_out,
            failed: self.failed,
            results,
        }
    }
}

/// Makes a change. If that fails the reason is kept in `not_provided`, but a change that cannot be
/// recorded is an error.
fn provide<T>(
    not_provided: &mut Vec<(Provider, String)>,
    provider: Provider,
    prepared: &mut Prepared,
    change: impl FnOnce(&mut Prepared) -> Result<T>,
) -> Result<Option<T>> {
    match change(prepared) {
        Ok(made) => Ok(Some(made)),
        Err(error) if prepared.is_unrecorded() => Err(error),
        Err(error) => {
            not_provided.push((provider, error.to_string()));
            Ok(None)
        }
    }
}

/// Completes the properties of the machine, and takes out what is nobody's business: a kernel
/// command line may have names and keys.
fn circumstances(root: &Root, machine: &mut BTreeMap<String, String>) {
    machine.remove("kernel_command_line");
    let load = root.read("proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split_whitespace().take(3).collect();
    machine.insert("load".into(), load.join(" "));
    let nodes = node::with_memory(root).map_or(1, |nodes| nodes.len());
    machine.insert("numa_nodes".into(), nodes.to_string());
    let cpuinfo = root.read("proc/cpuinfo").unwrap_or_default();
    let is_virtual = cpuinfo.split_whitespace().any(|word| word == "hypervisor");
    let is_virtual = if is_virtual { "yes" } else { "no" };
    machine.insert("virtual_machine".into(), is_virtual.into());
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;
    use crate::cli::{BenchVerb, Cli, tests::parse};
    use clap::Parser;

    fn args(words: &[&str]) -> BenchNodeArgs {
        match parse(&[&["node"], words].concat()) {
            BenchVerb::Node(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn minutes_are_a_number_of_a_day_at_most() {
        assert!((args(&["--minutes", "0.4"]).minutes - 0.4).abs() < 1e-9);
        for wrong in ["0", "1441", "nan", "inf", "x"] {
            let words = ["bench", "node", "--minutes", wrong];
            assert!(Cli::try_parse_from(words).is_err(), "{wrong}");
        }
    }

    #[test]
    fn memory_is_shared_among_nodes() {
        let fixture = Fixture::new();
        fixture.write("proc/meminfo", "MemAvailable: 8388608 kB\nSwapFree: 0 kB\n");
        fixture.nodes("0-1");
        let memory = |words: &[&str]| checked_memory(&args(words), &fixture.root()).unwrap();
        assert_eq!(memory(&[]), 1 << 30);
        assert_eq!(memory(&["--minutes", "1"]), 64 << 20);
        assert_eq!(memory(&["--memory", "3G"]), 3 << 30);
        // One of them has less free.
        let meminfo = "Node 1 MemFree: 1048576 kB\nNode 1 Inactive(file): 1048576 kB\n";
        fixture.write("sys/devices/system/node/node1/meminfo", meminfo);
        assert_eq!(memory(&[]), 512 << 20);
    }

    #[test]
    fn a_provider_that_fails_is_a_reason_and_a_missing_record_an_error() {
        let fixture = Fixture::new();
        let mut prepared = Prepared::new(&fixture.root());
        prepared.begin().unwrap();
        let mut none = Vec::new();
        // There is no such file: Linux has no huge pages.
        let made = provide(&mut none, Provider::Hugetlb, &mut prepared, |to| {
            to.reserve_hugepages(LARGE_PAGE, 5)
        });
        assert_eq!(made.unwrap(), None);
        assert_eq!(none[0].0, Provider::Hugetlb);
        assert!(none[0].1.contains("nr_hugepages"), "{none:?}");
        let made = provide(&mut none, Provider::Linux, &mut prepared, |_| Ok(7));
        assert_eq!((made.unwrap(), none.len()), (Some(7), 1));
        fixture.write(machine::THP, "[never]\n");
        prepared.record_nothing();
        let made = provide(&mut none, Provider::Linux, &mut prepared, |to| {
            to.set_thp("madvise")
        });
        assert!(made.unwrap_err().to_string().contains("No space left"));
        assert_eq!(fixture.root().read(machine::THP).unwrap(), "[never]");
    }

    #[test]
    fn a_report_that_could_not_be_saved_is_printed_without_a_file_to_send() {
        let dir = Path::new("/out");
        let text = |saved| with_file("it is fast".into(), dir, &saved);
        assert_eq!(
            text(Ok(())),
            "it is fast\n\nThe file to send: /out/node.json"
        );
        let full = Error::Failed("No space left on device".into());
        assert_eq!(text(Err(full)), "it is fast");
    }

    #[test]
    fn the_file_to_send_tells_no_command_line() {
        let fixture = Fixture::new();
        fixture.write("proc/loadavg", "0.10 0.20 0.30 1/2 3\n");
        fixture.write("proc/cpuinfo", "flags : fpu hypervisor sse\n");
        let mut machine = BTreeMap::from([("kernel_command_line".into(), "key=1".into())]);
        circumstances(&fixture.root(), &mut machine);
        let entry = |name: &str| machine.get(name).map(String::as_str);
        assert_eq!(entry("kernel_command_line"), None);
        assert_eq!(entry("load"), Some("0.10 0.20 0.30"));
        assert_eq!(entry("virtual_machine"), Some("yes"));
    }
}
