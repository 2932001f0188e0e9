//! `hpmmap bench alloc`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::print;
use hpmmap_base::size::Size;
use hpmmap_host::Root;
use hpmmap_sys::sigpipe;

use super::session::{self, Progress, Session, worker_program};
use crate::cli::BenchAllocArgs;
use crate::machine;
use crate::plan::{Allocator, Case, Parameters, Pattern};
use crate::prepared::Prepared;
use crate::program::beside;
use crate::result::{AGREE, LeftOut, Measured, Outcome, PoolAdd, Record, SCHEMA, set_ratios};
use crate::worker::{Sample, Worker};
use crate::{compare, plot, report};

const PAGE: u64 = 4096;
const SIZES: [u64; 7] = [
    4 << 10,
    64 << 10,
    2 << 20,
    16 << 20,
    128 << 20,
    1 << 30,
    4 << 30,
];
/// Paths of the worker relative to the command: in the build tree, installed.
const WORKERS: [&str; 2] = ["bench/bench-alloc", "../lib/hpmmap/bench-alloc"];
/// Path of the allocator's library, likewise.
const LIBRARIES: [&str; 1] = ["lib/libhpmmap_jemalloc.so"];

pub fn perform(args: &BenchAllocArgs) -> Result<ExitCode> {
    if let [first, second] = &args.compare[..] {
        return compared(first, second);
    }
    let root = Root::default();
    let parameters = checked(args)?;
    let worker = Worker {
        program: worker_program(args.session.worker.as_deref(), &WORKERS)?,
        rounds: parameters.rounds,
        cpus: Vec::new(),
    };
    let session = Session::new(&root, &args.session)?;
    let hpmmap_jemalloc = args.hpmmap_jemalloc.clone().or_else(|| beside(&LIBRARIES));
    let record = Run::new(session, parameters, worker, hpmmap_jemalloc.as_deref()).finish()?;
    // Nothing is left to be restored.
    sigpipe::restore();
    conclude(args, &record)
}

fn compared(first: &Path, second: &Path) -> Result<ExitCode> {
    let comparison = compare::compare(&Record::read(first)?, &Record::read(second)?)?;
    print(&comparison.text())?;
    Ok(if comparison.is_same() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn or_all<T: ValueEnum + Copy>(asked: &[T]) -> Vec<T> {
    match asked {
        [] => T::value_variants().to_vec(),
        asked => asked.to_vec(),
    }
}

fn checked(args: &BenchAllocArgs) -> Result<Parameters> {
    let mut sizes: Vec<u64> = match &args.size[..] {
        [] if args.threads.is_some() => vec![64 << 20],
        [] => SIZES.to_vec(),
        asked => asked.iter().map(|size| size.0).collect(),
    };
    sizes.sort_unstable();
    sizes.dedup();
    if let Some(&wrong) = sizes.iter().find(|&&size| size == 0 || size % PAGE != 0) {
        return Err(Error::Usage(format!(
            "--size {} is not a multiple of 4K",
            Size(wrong)
        )));
    }
    let patterns = match (args.threads, &args.pattern[..]) {
        (Some(_), []) => vec![Pattern::Threads],
        (Some(_), asked) if asked.iter().all(|one| one.is_shared()) => asked.to_vec(),
        (Some(_), _) => {
            return Err(Error::Usage(
                "--threads is for the patterns 'threads' and 'processes' alone".into(),
            ));
        }
        (None, asked) if asked.iter().any(|one| one.is_shared()) => {
            return Err(Error::Usage(
                "the patterns 'threads' and 'processes' need --threads N".into(),
            ));
        }
        (None, asked) => or_all(asked)
            .into_iter()
            .filter(|pattern| !pattern.is_shared())
            .collect(),
    };
    Ok(Parameters {
        methods: or_all(&args.method),
        patterns,
        allocators: or_all(&args.allocator),
        sizes_bytes: sizes,
        limit_bytes: args.limit.0,
        repetitions: args.repeat,
        rounds: args.rounds,
        threads: (1..=args.threads.unwrap_or(0)).collect(),
    })
}

/// A benchmark in progress and its results so far.
struct Run<'a> {
    session: Session<'a>,
    parameters: Parameters,
    worker: Worker,
    libraries: BTreeMap<Allocator, std::result::Result<Vec<PathBuf>, String>>,
    pool_add: Option<PoolAdd>,
    left_out: Vec<LeftOut>,
    results: Vec<Outcome>,
}

impl<'a> Run<'a> {
    fn new(
        session: Session<'a>,
        parameters: Parameters,
        worker: Worker,
        hpmmap_jemalloc: Option<&Path>,
    ) -> Self {
        let libraries = parameters
            .allocators
            .iter()
            .map(|&allocator| {
                let found = machine::libraries(session.root, allocator, hpmmap_jemalloc);
                (allocator, found)
            })
            .collect();
        Self {
            session,
            parameters,
            worker,
            libraries,
            pool_add: None,
            left_out: Vec::new(),
            results: Vec::new(),
        }
    }

    fn finish(mut self) -> Result<Record> {
        let libraries: Vec<PathBuf> = self
            .libraries
            .values()
            .flatten()
            .flatten()
            .cloned()
            .collect();
        let provenance = self
            .session
            .provenance("alloc", SCHEMA, "tsc cycles", &libraries);
        let cases = self.parameters.cases();
        let mut progress = Progress::new(cases.len(), self.session.args.output.verbose);
        let mut prepared = Prepared::new(self.session.root);
        for group in cases.chunk_by(|a, b| a.method.provider() == b.method.provider()) {
            if self.session.args.prepare {
                let need = group.iter().map(Case::need_bytes).max().unwrap_or(0);
                let added = prepared.provide(group[0].method.provider(), need)?;
                self.pool_add = self.pool_add.take().or(added);
            }
            for case in group {
                progress.next(&case.title());
                if self.session.args.prepare {
                    prepared.set_for(case)?;
                }
                self.measure(case)?;
            }
        }
        drop(prepared);
        // In a guest that counts instructions each takes a nanosecond.
        let ticks_per_ns = provenance.tsc_hz.map_or(1.0, |hz| hz as f64 / 1e9);
        set_ratios(&mut self.results, ticks_per_ns);
        Ok(Record {
            provenance,
            parameters: self.parameters,
            pool_add: self.pool_add,
            left_out: self.left_out,
            results: self.results,
        })
    }

    fn leave_out(&mut self, case: &Case, reason: String) {
        self.left_out.push(LeftOut {
            case: *case,
            reason,
        });
    }

    fn measure(&mut self, case: &Case) -> Result<()> {
        if let Some(reason) = machine::obstacle(self.session.root, case) {
            self.leave_out(case, reason);
            return Ok(());
        }
        let libraries = match case.allocator.map(|allocator| &self.libraries[&allocator]) {
            None => Vec::new(),
            Some(Ok(paths)) => paths.clone(),
            Some(Err(reason)) => {
                let reason = reason.clone();
                self.leave_out(case, reason);
                return Ok(());
            }
        };
        let (mut singles, mut threads) = (Vec::new(), Vec::new());
        let (mut counter, mut clean) = (None, None);
        // The first process brings the kernel's allocators into the state that the others find.
        for repetition in 0..=self.parameters.repetitions {
            self.session.go_on()?;
            match self.worker.run(self.session.root, case, &libraries)? {
                Sample::LeftOut(reason) => {
                    self.leave_out(case, reason);
                    return Ok(());
                }
                _ if repetition == 0 => (),
                Sample::Threads(figures) => threads.push(figures),
                Sample::Single {
                    figures,
                    fault_counter,
                    clean_bytes,
                } => {
                    singles.push(figures);
                    counter.get_or_insert(fault_counter);
                    clean = clean.or(clean_bytes);
                }
            }
        }
        let (measured, spread) = if threads.is_empty() {
            Measured::of_single(singles)
        } else {
            Measured::of_threads(threads)
        };
        self.results.push(Outcome {
            case: *case,
            fault_counter: counter,
            clean_bytes: clean,
            measured,
            spread,
            agree: spread <= AGREE,
            ratio_to_best_peer: None,
            ratio_with_exit: None,
        });
        Ok(())
    }
}

fn conclude(args: &BenchAllocArgs, record: &Record) -> Result<ExitCode> {
    session::report(&args.session, "alloc", record, report::text)?;
    if let Some(dir) = &args.session.out {
        plot::write(record, &dir.join("alloc"))?;
    }
    let faulted = report::faulted(record);
    if !faulted.is_empty() {
        return Err(Error::Failed(format!(
            "HPMMAP took page faults, its memory was not filled: {}",
            faulted.join(", ")
        )));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{BenchVerb, tests::parse};
    use crate::plan::Method;

    fn args(words: &[&str]) -> BenchAllocArgs {
        match parse(&[&["alloc"], words].concat()) {
            BenchVerb::Alloc(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_but_threads_is_measured_by_default() {
        let parameters = checked(&args(&[])).unwrap();
        assert_eq!(parameters.methods.len(), Method::value_variants().len());
        assert!(!parameters.patterns.contains(&Pattern::Threads));
        assert_eq!(parameters.sizes_bytes, SIZES);
        let parameters = checked(&args(&["--threads", "3"])).unwrap();
        assert_eq!(parameters.patterns, [Pattern::Threads]);
        assert_eq!(parameters.threads, [1, 2, 3]);
        let both = ["--threads=2", "--pattern=threads,processes"];
        let patterns = [Pattern::Threads, Pattern::Processes];
        assert_eq!(checked(&args(&both)).unwrap().patterns, patterns);
    }

    #[test]
    fn lists_are_taken_as_they_are() {
        let parameters = checked(&args(&[
            "--size",
            "2M,4K,2M",
            "--method",
            "thp,hpmmap",
            "--pattern",
            "map",
        ]))
        .unwrap();
        assert_eq!(parameters.sizes_bytes, [4096, 2 << 20]);
        assert_eq!(parameters.methods, [Method::Thp, Method::Hpmmap]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let message = |words: &[&str]| {
            let error = checked(&args(words)).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        assert_eq!(
            message(&["--size", "5000"]),
            "--size 5000 is not a multiple of 4K"
        );
        assert_eq!(
            message(&["--pattern", "threads"]),
            "the patterns 'threads' and 'processes' need --threads N"
        );
        assert_eq!(
            message(&["--threads", "2", "--pattern", "map"]),
            "--threads is for the patterns 'threads' and 'processes' alone"
        );
    }
}
