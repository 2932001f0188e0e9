//! `hpmmap bench noise`

use std::process::{Command, ExitCode, Stdio};

use clap::ValueEnum;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::Size;
use hpmmap_host::{Root, number_list, process};
use hpmmap_sys::sigpipe;
use serde::Deserialize;

use super::session::{self, Progress, Session, worker_program};
use crate::cli::BenchNoiseArgs;
use crate::machine;
use crate::noise::neighbour::Neighbour;
use crate::noise::plan::{self, Case, Condition, METHODS, Parameters, What};
use crate::noise::result::{Accesses, Detours, LeftOut, Record, SCHEMA, Summary, disagreement};
use crate::noise::worker::{Place, Worker};
use crate::noise::{plot, report};
use crate::plan::{LARGE_PAGE, Provider, chosen_methods};
use crate::prepared::Prepared;
use crate::program::hpmmap;
use crate::result::PoolAdd;

const MIB: u64 = 1 << 20;
const ONLINE: &str = "sys/devices/system/cpu/online";
/// Paths of the worker relative to the command: in the build tree, installed.
const WORKERS: [&str; 2] = ["bench/bench-noise", "../lib/hpmmap/bench-noise"];
/// In a guest that counts instructions each takes a nanosecond.
const INSTRUCTIONS_HZ: u64 = 1_000_000_000;
const ACCESSES: u64 = 4 << 20;
/// The smallest array.
const LEAST_SIZE: u64 = 4096;

pub fn perform(args: &BenchNoiseArgs) -> Result<ExitCode> {
    let root = Root::default();
    let online = number_list::parse(&root.read(ONLINE)?)
        .map_err(|error| Error::Failed(format!("/{ONLINE}: {error}")))?;
    let place = args.partition.as_deref().map_or(Place::Own, place);
    let own = partition_cpus(&root, &place)?;
    let parameters = checked(args, &online, own, process::available_bytes(&root)?)?;
    let session = Session::new(&root, &args.session)?;
    let worker = Worker {
        program: worker_program(args.session.worker.as_deref(), &WORKERS)?,
        hz: session.tsc_hz.unwrap_or(INSTRUCTIONS_HZ),
        place,
    };
    let record = Run::new(session, parameters, worker).finish()?;
    // Nothing is left to be restored.
    sigpipe::restore();
    conclude(args, &record)
}

/// A partition by its name, or a cgroup by its directory.
fn place(text: &str) -> Place {
    match text.contains('/') {
        true => Place::Cgroup(text.trim_end_matches('/').into()),
        false => Place::Partition(text.into()),
    }
}

/// The part of 'hpmmap partition show --json' that is used.
#[derive(Deserialize)]
struct Shown {
    cpus: String,
}

/// The CPUs of the place, if it has some of its own.
fn partition_cpus(root: &Root, place: &Place) -> Result<Option<Vec<u32>>> {
    let (list, source) = match place {
        Place::Own => return Ok(None),
        Place::Cgroup(dir) => {
            let file = format!("{dir}/cpuset.cpus.effective");
            (root.read(file.trim_start_matches('/'))?, file)
        }
        Place::Partition(name) => {
            let shown = Command::new(hpmmap())
                .args(["partition", "show", name, "--json"])
                .stderr(Stdio::inherit())
                .output()?;
            let shown: Shown = serde_json::from_slice(&shown.stdout).map_err(|_| {
                Error::Failed(format!(
                    "--partition {name}: 'hpmmap partition show' has no CPUs"
                ))
            })?;
            (shown.cpus, format!("partition {name}"))
        }
    };
    let cpus =
        number_list::parse(&list).map_err(|error| Error::Failed(format!("{source}: {error}")))?;
    Ok(Some(cpus))
}

/// The requested CPUs, which must be online; `None` if none were requested.
fn cpus(option: &str, asked: Option<&str>, online: &[u32]) -> Result<Option<Vec<u32>>> {
    let Some(text) = asked else {
        return Ok(None);
    };
    let cpus =
        number_list::parse(text).map_err(|error| Error::Usage(format!("{option}: {error}")))?;
    match cpus.iter().find(|cpu| !online.contains(cpu)) {
        None => Ok(Some(cpus)),
        Some(cpu) => Err(Error::Usage(format!(
            "{option}: there is no CPU {cpu}: use {}",
            number_list::format(online)
        ))),
    }
}

fn or_all<T: ValueEnum + Copy + Ord>(asked: &[T], none: bool) -> Vec<T> {
    let mut wanted = match asked {
        _ if none => Vec::new(),
        [] => T::value_variants().to_vec(),
        asked => asked.to_vec(),
    };
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

fn sizes(args: &BenchNoiseArgs, available: u64) -> Result<Vec<u64>> {
    let mut sizes: Vec<u64> = args.size.iter().map(|size| size.0).collect();
    if let Some(&wrong) = sizes
        .iter()
        .find(|&&size| !size.is_power_of_two() || size < LEAST_SIZE)
    {
        return Err(Error::Usage(format!(
            "--size {}: must be a power of two of at least {}",
            Size(wrong),
            Size(LEAST_SIZE)
        )));
    }
    if sizes.is_empty() {
        let most = if args.quick { 16 * MIB } else { 1 << 30 };
        let within = |&size: &u64| size <= most.min(available / 4);
        sizes = (16..=30)
            .step_by(2)
            .map(|shift| 1 << shift)
            .filter(within)
            .collect();
    }
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

fn memory(args: &BenchNoiseArgs, available: u64, cpus: usize) -> Result<u64> {
    match args.memory {
        Some(size) if size.0 == 0 || size.0 % LARGE_PAGE != 0 => Err(Error::Usage(format!(
            "--memory {size} is not a multiple of {}",
            Size(LARGE_PAGE)
        ))),
        Some(size) => Ok(size.0),
        None => {
            let wanted = if args.quick { 8 * MIB } else { 64 * MIB };
            let share = available / 8 / cpus as u64;
            Ok(wanted.min(share - share % LARGE_PAGE).max(LARGE_PAGE))
        }
    }
}

/// `own`: the CPUs of the partition.
fn checked(
    args: &BenchNoiseArgs,
    online: &[u32],
    own: Option<Vec<u32>>,
    available: u64,
) -> Result<Parameters> {
    let is_inside = own.is_some();
    let own = own.unwrap_or_else(|| online.to_vec());
    let cpus_measured = cpus("--cpu", args.cpu.as_deref(), &own)?.unwrap_or_else(|| own.clone());
    let beside: Vec<u32> = match is_inside {
        true => online
            .iter()
            .copied()
            .filter(|cpu| !own.contains(cpu))
            .collect(),
        false => online[online.len() / 2..].to_vec(),
    };
    if args.tasks as usize > cpus_measured.len() {
        return Err(Error::Usage(format!(
            "--tasks {}: each needs a CPU, and there are {}: {}",
            args.tasks,
            cpus_measured.len(),
            number_list::format(&cpus_measured)
        )));
    }
    let neighbour = match &args.neighbour {
        None => None,
        Some(command) => Some(plan::Neighbour {
            command: (!command.is_empty()).then(|| command.clone()),
            cpus: cpus("--neighbour-cpu", args.neighbour_cpu.as_deref(), online)?.unwrap_or(beside),
        }),
    };
    if args.neighbour.is_some() && args.no_detours {
        return Err(Error::Usage(
            "--neighbour is for detours: it cannot be used with --no-detours".into(),
        ));
    }
    let seconds = args.seconds.unwrap_or(if args.quick { 1 } else { 10 });
    Ok(Parameters {
        methods: chosen_methods(&args.method, &METHODS)?,
        variants: or_all(&args.variant, args.no_detours),
        modes: or_all(&args.mode, args.no_accesses),
        memory_bytes: memory(args, available, cpus_measured.len())?,
        cpus: cpus_measured,
        neighbour,
        milliseconds: u64::from(seconds) * 1000,
        factor: args.factor,
        sizes_bytes: sizes(args, available)?,
        accesses: args
            .accesses
            .unwrap_or(if args.quick { 65536 } else { ACCESSES }),
        tasks: args.tasks,
        partition: args.partition.clone(),
        count: args.count || is_inside,
        rounds: args.rounds,
    })
}

/// A benchmark in progress and its results so far.
struct Run<'a> {
    session: Session<'a>,
    parameters: Parameters,
    worker: Worker,
    pool_add: Option<PoolAdd>,
    left_out: Vec<LeftOut>,
    detours: Vec<Detours>,
    accesses: Vec<Accesses>,
}

impl<'a> Run<'a> {
    fn new(session: Session<'a>, parameters: Parameters, worker: Worker) -> Self {
        Self {
            session,
            parameters,
            worker,
            pool_add: None,
            left_out: Vec::new(),
            detours: Vec::new(),
            accesses: Vec::new(),
        }
    }

    fn finish(mut self) -> Result<Record> {
        let provenance = self.session.provenance("noise", SCHEMA, "nanoseconds", &[]);
        let cases = self.parameters.cases();
        let mut progress = Progress::new(cases.len(), self.session.args.output.verbose);
        let mut prepared = Prepared::new(self.session.root);
        for group in cases.chunk_by(|a, b| a.method.provider() == b.method.provider()) {
            if self.session.args.prepare {
                let needs = group.iter().map(|case| self.parameters.need_bytes(case));
                let need = needs.max().unwrap_or(0);
                let added = prepared.provide(group[0].method.provider(), need)?;
                self.pool_add = self.pool_add.take().or(added);
                prepared.set_thp("madvise")?;
            }
            for case in group {
                progress.next(&case.title());
                self.measure(case)?;
            }
        }
        drop(prepared);
        if let Some(why) = disagreement(&self.accesses) {
            return Err(Error::Failed(why));
        }
        Ok(Record {
            provenance,
            parameters: self.parameters,
            pool_add: self.pool_add,
            left_out: self.left_out,
            detours: self.detours,
            accesses: self.accesses,
        })
    }

    fn measure(&mut self, case: &Case) -> Result<()> {
        let need = self.parameters.need_bytes(case);
        if let Some(reason) = machine::lacking(self.session.root, case.method, need, false, None) {
            self.left_out.push(LeftOut {
                case: *case,
                reason,
            });
            return Ok(());
        }
        let found = match case.what {
            What::Detours { variant, condition } => self
                .look(case, variant, condition)
                .map(|detours| self.detours.push(detours)),
            What::Accesses {
                mode,
                tasks,
                size_bytes,
            } => self
                .worker
                .accesses(&self.parameters, case, mode, tasks, size_bytes)
                .map(|accesses| self.accesses.push(accesses)),
        };
        // The terminal's signals also end the workers.
        self.session.go_on()?;
        found
    }

    /// Memory of the built-in neighbour: most of what the workers leave.
    fn neighbour_bytes(&self, case: &Case) -> Result<u64> {
        let own = match case.method.provider() {
            Provider::Linux => self.parameters.need_bytes(case),
            Provider::Hugetlb | Provider::Hugetlb1g | Provider::Pools => 0,
        };
        let left = process::available_bytes(self.session.root)?.saturating_sub(own);
        Ok((left / 4 * 3).max(MIB))
    }

    fn look(&self, case: &Case, variant: plan::Variant, condition: Condition) -> Result<Detours> {
        let mut neighbour = None;
        let (mut bytes, mut shared) = (None, &[][..]);
        if let (Condition::Neighbour, Some(plan)) = (condition, &self.parameters.neighbour) {
            let most = self.neighbour_bytes(case)?;
            neighbour = Some(Neighbour::start(&self.worker.program, plan, most)?);
            bytes = plan.command.is_none().then_some(most);
            shared = &plan.cpus;
        }
        let (cpus, counts) = self
            .worker
            .detours(&self.parameters, case, variant, shared)?;
        if let Some(neighbour) = &mut neighbour {
            neighbour.check()?;
        }
        Ok(Detours {
            variant,
            method: case.method,
            condition,
            neighbour_bytes: bytes,
            summary: Summary::of(&cpus),
            cpus,
            counts,
        })
    }
}

fn conclude(args: &BenchNoiseArgs, record: &Record) -> Result<ExitCode> {
    let text = |record: &Record| report::text(record, args.per_cpu);
    session::report(&args.session, "noise", record, text)?;
    if let Some(dir) = &args.session.out {
        plot::write(record, &dir.join("noise"))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hpmmap_host::fixture::Fixture;

    use crate::cli::{BenchVerb, tests::parse};
    use crate::noise::plan::{Mode, Variant};
    use crate::plan::Method;

    fn args(words: &[&str]) -> BenchNoiseArgs {
        match parse(&[&["noise"], words].concat()) {
            BenchVerb::Noise(args) => args,
            other => panic!("{other:?}"),
        }
    }

    const GIB: u64 = 1 << 30;

    fn parameters(words: &[&str]) -> Parameters {
        checked(&args(words), &[0, 1, 2, 3], None, 8 * GIB).unwrap()
    }

    #[test]
    fn everything_is_measured_by_default() {
        let all = parameters(&[]);
        assert_eq!(all.methods, METHODS);
        assert_eq!((all.variants.len(), all.modes.len()), (3, 2));
        assert_eq!((&all.cpus[..], all.neighbour), (&[0, 1, 2, 3][..], None));
        assert_eq!((all.milliseconds, all.memory_bytes), (10_000, 64 * MIB));
        let sizes = [
            64 << 10,
            256 << 10,
            MIB,
            4 * MIB,
            16 * MIB,
            64 * MIB,
            256 * MIB,
            GIB,
        ];
        assert_eq!(all.sizes_bytes, sizes);
    }

    #[test]
    fn sizes_follow_the_machine() {
        let small = checked(&args(&[]), &[0, 1], None, 300 * MIB).unwrap();
        assert_eq!(small.sizes_bytes.last(), Some(&(64 * MIB)));
        assert_eq!(small.memory_bytes, 18 * MIB);
        let tiny = checked(&args(&[]), &[0, 1], None, 8 * MIB).unwrap();
        assert_eq!(tiny.memory_bytes, LARGE_PAGE);
    }

    #[test]
    fn quick_is_less_but_not_of_what_was_said() {
        let quick = parameters(&["--quick", "--seconds", "3"]);
        assert_eq!((quick.milliseconds, quick.memory_bytes), (3000, 8 * MIB));
        assert_eq!(quick.sizes_bytes.last(), Some(&(16 * MIB)));
    }

    #[test]
    fn a_neighbour_has_half_of_the_cpus() {
        let neighbour = |words: &[&str]| parameters(words).neighbour.unwrap();
        let built_in = neighbour(&["--neighbour"]);
        assert_eq!((built_in.command, built_in.cpus), (None, vec![2, 3]));
        let own = neighbour(&["--neighbour=make -j", "--neighbour-cpu", "0-1"]);
        assert_eq!(own.command.as_deref(), Some("make -j"));
        assert_eq!(own.cpus, [0, 1]);
    }

    #[test]
    fn a_partition_is_measured_on_its_cpus_beside_a_neighbour_on_the_others() {
        let words = ["--partition", "quiet", "--neighbour", "--tasks", "2"];
        let own = Some(vec![1, 2]);
        let inside = checked(&args(&words), &[0, 1, 2, 3], own.clone(), GIB).unwrap();
        assert_eq!((&inside.cpus[..], inside.count), (&[1, 2][..], true));
        assert_eq!(inside.neighbour.unwrap().cpus, [0, 3]);
        let error = checked(&args(&["--cpu", "3"]), &[0, 1, 2, 3], own, GIB);
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "--cpu: there is no CPU 3: use 1-2");

        assert_eq!(place("quiet"), Place::Partition("quiet".into()));
        assert_eq!(place("/c/q/"), Place::Cgroup("/c/q".into()));
        let fixture = Fixture::new();
        fixture.write("c/q/cpuset.cpus.effective", "2-3\n");
        let cpus = partition_cpus(&fixture.root(), &place("/c/q")).unwrap();
        assert_eq!(cpus, Some(vec![2, 3]));
    }

    #[test]
    fn a_choice_keeps_its_order() {
        let some = parameters(&[
            "--method",
            "hpmmap,4k",
            "--loop",
            "fresh,plain",
            "--no-accesses",
            "--cpu",
            "3,1",
        ]);
        assert_eq!(some.methods, [Method::Small, Method::Hpmmap]);
        assert_eq!(some.variants, [Variant::Plain, Variant::Fresh]);
        assert_eq!((some.modes, some.cpus), (Vec::<Mode>::new(), vec![1, 3]));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let message = |words: &[&str]| {
            let error = checked(&args(words), &[0, 1], None, GIB).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        assert_eq!(
            message(&["--method", "hpmmap-dirty"]),
            "--method hpmmap-dirty is not for this benchmark: use 4k, thp, hugetlb, hpmmap"
        );
        assert_eq!(
            message(&["--cpu", "0,5"]),
            "--cpu: there is no CPU 5: use 0-1"
        );
        assert_eq!(
            message(&["--neighbour", "--neighbour-cpu", "x"]),
            "--neighbour-cpu: 'x' is not a list of numbers such as 0,2-3"
        );
        assert_eq!(
            message(&["--size", "3M"]),
            "--size 3M: must be a power of two of at least 4K"
        );
        assert_eq!(
            message(&["--memory", "3M"]),
            "--memory 3M is not a multiple of 2M"
        );
        assert!(
            message(&["--neighbour", "--no-detours"]).starts_with("--neighbour is for detours")
        );
        assert_eq!(
            message(&["--tasks", "3"]),
            "--tasks 3: each needs a CPU, and there are 2: 0-1"
        );
    }
}
