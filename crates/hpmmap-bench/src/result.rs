//! Results, written to JSON and read back.

use std::collections::BTreeMap;
use std::path::Path;

use hpmmap_base::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::plan::{Case, Parameters, Pattern};

/// Grows when a member changes its meaning.
pub const SCHEMA: u32 = 1;

/// Results agree if their totals differ by at most this part.
pub const AGREE: f64 = 0.01;

/// Defines a struct of numbers that can be combined member by member. Those of earlier results have
/// fewer members.
macro_rules! figures {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $member:ident,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$doc])* pub $member: u64,)*
        }

        impl $name {
            /// Combines each member of several structs.
            pub fn combined(all: &[Self], combine: impl Fn(Vec<u64>) -> u64) -> Self {
                Self {
                    $($member: combine(all.iter().map(|one| one.$member).collect()),)*
                }
            }
        }
    };
}

figures! {
    /// The figures of one process, or medians. Times are in the unit of the results.
    Figures {
        /// Calls that get memory.
        map,
        /// First touches, without the cost of a touch that finds its page.
        touch,
        /// Calls that give memory back.
        unmap,
        /// Sum of the three.
        total,
        /// The cost that was subtracted from `touch`.
        loop_cost,
        /// The costliest touch.
        worst_touch,
        /// The costliest call.
        worst_call,
        /// Number of calls.
        calls,
        /// Number of 4 KB pages touched.
        touched_pages,
        /// Page faults.
        faults,
        /// Page tables at the peak.
        page_table_bytes,
        /// Resident memory at the peak.
        resident_bytes,
        /// Memory of the pools at the peak, mapped or not.
        held_bytes,
        /// Memory of the process before.
        base_bytes,
        /// Bytes that the module zeroed within the calls, if it tells.
        cleared_bytes,
        /// CPU time of the process after the pattern, in nanoseconds.
        exit_ns,
        /// CPU time of all other tasks from then until 100 ms after its end.
        others_ns,
    }
}

figures! {
    /// The figures of threads or processes. Times are in nanoseconds, and except for the first sums over the
    /// threads.
    ThreadFigures {
        /// From the first thread's start to the last one's end.
        wall_ns,
        /// On a CPU.
        cpu_ns,
        /// Ready to run but without a CPU.
        run_delay_ns,
        /// Asleep, mostly on locks of the kernel.
        blocked_ns,
        /// Number of times that a thread went to sleep.
        voluntary_switches,
        /// Number of times that a thread was preempted.
        involuntary_switches,
        /// Number of 4 KB pages touched.
        pages,
        /// Pages a second, all threads together.
        pages_per_second,
        /// The cost of a touch that 10 % of the touches do not exceed, to a sixteenth of it, in the
        /// unit of the results.
        touch_p10,
        /// 25 %.
        touch_p25,
        /// 50 %.
        touch_p50,
        /// 75 %.
        touch_p75,
        /// 90 %.
        touch_p90,
    }
}

/// The measurements of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Measured {
    /// One thread.
    Single {
        /// Of each figure.
        median: Figures,
        /// Each process.
        repetitions: Vec<Figures>,
    },
    /// Several threads, or one for comparison.
    Threads {
        /// Of each figure.
        median: ThreadFigures,
        /// Each process.
        repetitions: Vec<ThreadFigures>,
    },
}

/// The result of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// The counter of faults; absent for threads.
    pub fault_counter: Option<String>,
    /// Clean bytes of the pools before the first repetition, if the module tells.
    pub clean_bytes: Option<u64>,
    /// The figures.
    pub measured: Measured,
    /// Largest distance of a total from the median, as a part of it.
    pub spread: f64,
    /// Is that at most 1 %?
    pub agree: bool,
    /// The median over that of the best peer at the same pattern, size and number of threads.
    pub ratio_to_best_peer: Option<f64>,
    /// The same with the cost of the end of the process.
    pub ratio_with_exit: Option<f64>,
}

/// A case that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// The reason.
    pub reason: String,
}

/// The cost of making the pools before the first process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolAdd {
    /// Memory taken from Linux.
    pub bytes: u64,
    /// The cost.
    pub cost: u64,
}

impl PoolAdd {
    /// Both together.
    pub fn plus(self, other: &Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            cost: self.cost + other.cost,
        }
    }
}

/// The circumstances of a run, for its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Name of the benchmark: `"alloc"` or `"noise"`.
    pub benchmark: String,
    /// Grows when a member of the record changes its meaning.
    pub schema: u32,
    /// `"instructions"` if those are counted, otherwise `"tsc cycles"` (alloc) or `"nanoseconds"`
    /// (noise).
    pub unit: String,
    /// Rate of the time stamp counter, if it measures time.
    pub tsc_hz: Option<u64>,
    /// Kernel, module, command, C library, allocators.
    pub versions: BTreeMap<String, String>,
    /// Properties of the machine.
    pub machine: BTreeMap<String, String>,
}

impl Provenance {
    /// The version of a component, or `"none"`.
    pub fn version(&self, name: &str) -> &str {
        self.versions.get(name).map_or("none", String::as_str)
    }
}

/// The record of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The circumstances.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The requested measurements.
    pub parameters: Parameters,
    /// The cost, if the command made the pools itself.
    pub pool_add: Option<PoolAdd>,
    /// Cases that were not measured, with the reasons.
    pub left_out: Vec<LeftOut>,
    /// The results.
    pub results: Vec<Outcome>,
}

impl Record {
    /// Reads a record from a file.
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |why: String| Error::Failed(format!("{}: {why}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        let record: Self = serde_json::from_slice(&bytes)
            .map_err(|error| failed(format!("no result of 'hpmmap bench alloc': {error}")))?;
        if record.provenance.schema != SCHEMA {
            return Err(failed(format!(
                "it has schema {}, this command reads {SCHEMA}",
                record.provenance.schema
            )));
        }
        Ok(record)
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        values[middle - 1].midpoint(values[middle])
    }
}

fn spread(values: &[u64], middle: u64) -> f64 {
    let largest = values.iter().map(|v| v.abs_diff(middle)).max().unwrap_or(0);
    largest as f64 / middle.max(1) as f64
}

impl Measured {
    /// Medians of the processes' figures, and the spread of their totals.
    pub fn of_single(repetitions: Vec<Figures>) -> (Self, f64) {
        let median = Figures::combined(&repetitions, median);
        let totals: Vec<u64> = repetitions.iter().map(|one| one.total).collect();
        let spread = spread(&totals, median.total);
        (
            Self::Single {
                median,
                repetitions,
            },
            spread,
        )
    }

    /// As `of_single`.
    pub fn of_threads(repetitions: Vec<ThreadFigures>) -> (Self, f64) {
        let median = ThreadFigures::combined(&repetitions, median);
        let walls: Vec<u64> = repetitions.iter().map(|one| one.wall_ns).collect();
        let spread = spread(&walls, median.wall_ns);
        (
            Self::Threads {
                median,
                repetitions,
            },
            spread,
        )
    }

    /// The number by which results are compared: less is better.
    pub fn cost(&self) -> u64 {
        match self {
            Self::Single { median, .. } => median.total,
            Self::Threads { median, .. } => median.wall_ns,
        }
    }

    fn cost_with_exit(&self, ticks_per_ns: f64) -> Option<u64> {
        match self {
            Self::Single { median, .. } => {
                Some(median.total + (median.exit_ns as f64 * ticks_per_ns) as u64)
            }
            Self::Threads { .. } => None,
        }
    }
}

/// Sets each result's ratios to the best peer. `ticks_per_ns`: rate of the clock of the costs.
pub fn set_ratios(results: &mut [Outcome], ticks_per_ns: f64) {
    type Key = (Pattern, u64, u32);
    let key = |case: &Case| -> Key { (case.pattern, case.size_bytes, case.threads) };
    let mut best: BTreeMap<Key, (u64, Option<u64>)> = BTreeMap::new();
    for one in results.iter().filter(|one| one.case.method.is_peer()) {
        let costs = (
            one.measured.cost(),
            one.measured.cost_with_exit(ticks_per_ns),
        );
        let entry = best.entry(key(&one.case)).or_insert(costs);
        entry.0 = entry.0.min(costs.0);
        entry.1 = entry.1.min(costs.1);
    }
    let ratio = |mine: u64, best: u64| mine as f64 / best.max(1) as f64;
    for one in results {
        let best = best.get(&key(&one.case));
        one.ratio_to_best_peer = best.map(|best| ratio(one.measured.cost(), best.0));
        one.ratio_with_exit = best
            .and_then(|best| best.1)
            .zip(one.measured.cost_with_exit(ticks_per_ns))
            .map(|(best, mine)| ratio(mine, best));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::plan::{Method, tests::parameters};

    pub fn outcome(method: Method, size_bytes: u64, totals: &[u64]) -> Outcome {
        let repetitions = totals
            .iter()
            .map(|&total| Figures {
                total,
                exit_ns: 100,
                touched_pages: size_bytes / 4096,
                ..Figures::default()
            })
            .collect();
        let (measured, spread) = Measured::of_single(repetitions);
        Outcome {
            case: Case {
                pattern: Pattern::Map,
                method,
                allocator: None,
                size_bytes,
                threads: 1,
            },
            fault_counter: Some("perf".into()),
            clean_bytes: None,
            measured,
            spread,
            agree: spread <= AGREE,
            ratio_to_best_peer: None,
            ratio_with_exit: None,
        }
    }

    /// In instructions, or in time with this many ticks per second.
    pub fn provenance(benchmark: &str, tsc_hz: Option<u64>) -> Provenance {
        let unit = tsc_hz.map_or("instructions", |_| "nanoseconds");
        Provenance {
            benchmark: benchmark.into(),
            schema: 1,
            unit: unit.into(),
            tsc_hz,
            versions: BTreeMap::from([("kernel".into(), "6.12".into())]),
            machine: BTreeMap::new(),
        }
    }

    pub fn record(results: Vec<Outcome>) -> Record {
        Record {
            provenance: provenance("alloc", None),
            parameters: parameters(),
            pool_add: None,
            left_out: Vec::new(),
            results,
        }
    }

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(vec![3, 1, 2]), 2);
        assert_eq!(median(vec![4, 1, 2, 3]), 2);
        assert_eq!(spread(&[100, 103, 98], 100), 0.03);
        assert!(!outcome(Method::Small, 4096, &[100, 103, 98]).agree);
        assert!(outcome(Method::Small, 4096, &[1000, 1009, 991]).agree);
    }

    #[test]
    fn ratios_are_to_the_best_peer_of_the_same_size() {
        let mut results = vec![
            outcome(Method::Small, 4096, &[300]),
            outcome(Method::Thp, 4096, &[200]),
            outcome(Method::Hpmmap, 4096, &[50]),
            outcome(Method::Hpmmap, 8192, &[50]),
        ];
        set_ratios(&mut results, 1.0);
        let ratios: Vec<_> = results.iter().map(|one| one.ratio_to_best_peer).collect();
        assert_eq!(ratios, [Some(1.5), Some(1.0), Some(0.25), None]);
        assert_eq!(results[2].ratio_with_exit, Some(0.5));
    }

    #[test]
    fn records_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let mut record = record(vec![outcome(Method::Hpmmap, 4096, &[1, 2, 3])]);
        std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
        assert_eq!(Record::read(&path).unwrap(), record);

        record.provenance.schema += 1;
        std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
        let message = Record::read(&path).unwrap_err().to_string();
        assert!(
            message.ends_with("it has schema 2, this command reads 1"),
            "{message}"
        );
        std::fs::write(&path, "{}").unwrap();
        assert!(Record::read(&path).is_err());
    }
}
