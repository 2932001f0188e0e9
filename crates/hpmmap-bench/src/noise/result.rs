//! Results, as they are written to JSON.

use std::collections::BTreeMap;

use hpmmap_host::noise::Noise;
use serde::{Deserialize, Serialize};

use super::plan::{Case, Condition, Mode, Parameters, Tasks, Variant};
use crate::plan::Method;
use crate::result::{PoolAdd, Provenance};

/// Grows when a member changes its meaning.
pub const SCHEMA: u32 = 1;

/// The result of the loop on one CPU. Times are in nanoseconds, or in instructions if those are
/// counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Number of the CPU.
    pub cpu: u32,
    /// Did the neighbour run on it, too?
    pub shared: bool,
    /// Time that the loop ran.
    pub elapsed_ns: u64,
    /// Rounds of the loop.
    pub rounds: u64,
    /// The usual round, in thousandths.
    pub round_ps: u64,
    /// The limit above which a round is a detour.
    pub threshold_ns: u64,
    /// Their number.
    pub detours: u64,
    /// Their total time, without that of usual rounds.
    pub detour_ns: u64,
    /// The longest detour.
    pub longest_ns: u64,
    /// Calls of mmap and munmap, in the variant `fresh`.
    pub calls: u64,
    /// Their total time, which is in no detour.
    pub call_ns: u64,
    /// The longest call.
    pub longest_call_ns: u64,
    /// Page faults.
    pub faults: u64,
    /// `"perf"`, or `"getrusage"`, which also counts pages that a call populates.
    pub fault_counter: String,
    /// Number of times that the loop was preempted.
    pub preempted: u64,
    /// Number of detours of 2^i to 2^(i+1).
    pub histogram: Vec<u64>,
    /// The longest detour in each of equal parts of the time; 0: none.
    pub slices: Vec<u64>,
}

impl Cpu {
    /// The part of the time that detours took.
    pub fn noise(&self) -> f64 {
        self.detour_ns as f64 / self.elapsed_ns.max(1) as f64
    }

    /// `count` per second.
    pub fn rate(&self, count: u64) -> f64 {
        count as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Describes figures that contradict each other.
    pub fn contradiction(&self) -> Option<String> {
        if self.detour_ns + self.call_ns > self.elapsed_ns {
            return Some(format!(
                "detours and calls took {} of {} ns",
                self.detour_ns + self.call_ns,
                self.elapsed_ns
            ));
        }
        let counted: u64 = self.histogram.iter().sum();
        if counted != self.detours || self.detours > self.rounds {
            return Some(format!(
                "{} detours in {} rounds, {counted} in the histogram",
                self.detours, self.rounds
            ));
        }
        (self.longest_ns > self.detour_ns || self.longest_call_ns > self.call_ns)
            .then(|| "the longest is longer than all together".into())
    }
}

/// The detours of all CPUs, in one figure each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Mean of the CPUs: part of the time.
    pub noise: f64,
    /// The same of the CPU with the most.
    pub worst_noise: f64,
    /// That CPU.
    pub worst_cpu: u32,
    /// Detours per second, mean of the CPUs.
    pub detours_per_second: f64,
    /// The longest detour of all CPUs.
    pub longest_ns: u64,
    /// Page faults per second, mean of the CPUs.
    pub faults_per_second: f64,
    /// Rounds of the loop per second, mean of the CPUs: pages written to.
    pub rounds_per_second: f64,
    /// Part of the time in mmap and munmap, mean of the CPUs.
    pub calls: f64,
    /// The longest call of all CPUs.
    pub longest_call_ns: u64,
}

impl Summary {
    /// The summary of at least one CPU.
    pub fn of(cpus: &[Cpu]) -> Self {
        let mean = |figure: &dyn Fn(&Cpu) -> f64| {
            cpus.iter().map(figure).sum::<f64>() / cpus.len().max(1) as f64
        };
        let worst = cpus.iter().max_by(|a, b| a.noise().total_cmp(&b.noise()));
        Self {
            noise: mean(&Cpu::noise),
            worst_noise: worst.map_or(0.0, Cpu::noise),
            worst_cpu: worst.map_or(0, |cpu| cpu.cpu),
            detours_per_second: mean(&|cpu| cpu.rate(cpu.detours)),
            longest_ns: cpus.iter().map(|cpu| cpu.longest_ns).max().unwrap_or(0),
            faults_per_second: mean(&|cpu| cpu.rate(cpu.faults)),
            rounds_per_second: mean(&|cpu| cpu.rate(cpu.rounds)),
            calls: mean(&|cpu| cpu.call_ns as f64 / cpu.elapsed_ns.max(1) as f64),
            longest_call_ns: cpus
                .iter()
                .map(|cpu| cpu.longest_call_ns)
                .max()
                .unwrap_or(0),
        }
    }
}

/// Detours of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Detours {
    /// The loop.
    pub variant: Variant,
    /// The way to get memory.
    pub method: Method,
    /// The load besides it.
    pub condition: Condition,
    /// Memory that the built-in neighbour used.
    pub neighbour_bytes: Option<u64>,
    /// All CPUs in one figure each.
    pub summary: Summary,
    /// Each CPU.
    pub cpus: Vec<Cpu>,
    /// Interrupts and other tasks on these CPUs while the loops ran, if they were counted.
    pub counts: Option<Noise>,
}

/// Accesses of one case: costs of one access, in the unit of the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accesses {
    /// The kind of accesses.
    pub mode: Mode,
    /// The tasks.
    pub tasks: Tasks,
    /// The way to get memory.
    pub method: Method,
    /// Size of the array, of each task.
    pub size_bytes: u64,
    /// The median of the rounds; with several tasks the mean of theirs.
    pub median: f64,
    /// The cheapest round.
    pub least: f64,
    /// The costliest round.
    pub most: f64,
    /// Page faults of all rounds.
    pub faults: u64,
    /// Time to map and fill the array; of the slowest task.
    pub set_up_ns: u64,
    /// The index of the last access, which is the same for all methods.
    pub last: u64,
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

/// The record of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The circumstances.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The requested measurements.
    pub parameters: Parameters,
    /// The cost in ticks, if the command made the pools itself.
    pub pool_add: Option<PoolAdd>,
    /// Cases that were not measured, with the reasons.
    pub left_out: Vec<LeftOut>,
    /// Detours.
    pub detours: Vec<Detours>,
    /// Random accesses.
    pub accesses: Vec<Accesses>,
}

/// Finds an array for which two methods ended at different places.
pub fn disagreement(accesses: &[Accesses]) -> Option<String> {
    let mut last = BTreeMap::new();
    accesses.iter().find_map(|one| {
        let first = *last.entry((one.mode, one.size_bytes)).or_insert(one.last);
        (first != one.last).then(|| {
            format!(
                "the {} accesses to {} bytes end elsewhere with {} than with another method",
                one.mode.name(),
                one.size_bytes,
                one.method.name()
            )
        })
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn cpu(cpu: u32, detours: &[u64]) -> Cpu {
        let mut histogram = vec![0; 48];
        for detour in detours {
            histogram[detour.ilog2() as usize] += 1;
        }
        let mut slices = vec![0; 200];
        slices[..detours.len()].copy_from_slice(detours);
        Cpu {
            cpu,
            shared: false,
            elapsed_ns: 1_000_000,
            rounds: 1000,
            round_ps: 20_000,
            threshold_ns: 180,
            detours: detours.len() as u64,
            detour_ns: detours.iter().sum(),
            longest_ns: detours.iter().copied().max().unwrap_or(0),
            calls: 0,
            call_ns: 0,
            longest_call_ns: 0,
            faults: 5,
            fault_counter: "perf".into(),
            preempted: 0,
            histogram,
            slices,
        }
    }

    pub fn accesses(method: Method, size_bytes: u64, last: u64) -> Accesses {
        Accesses {
            mode: Mode::Dependent,
            tasks: Tasks::One,
            method,
            size_bytes,
            median: 12.5,
            least: 12.0,
            most: 14.0,
            faults: 0,
            set_up_ns: 1000,
            last,
        }
    }

    #[test]
    fn noise_is_the_part_of_the_time_lost() {
        let one = cpu(0, &[10_000, 40_000]);
        assert_eq!(one.noise(), 0.05);
        assert_eq!(one.rate(one.detours), 2000.0);
        assert_eq!(one.contradiction(), None);
    }

    #[test]
    fn a_summary_has_means_and_the_worst() {
        let summary = Summary::of(&[cpu(2, &[10_000]), cpu(7, &[20_000, 10_000])]);
        assert_eq!((summary.noise, summary.worst_noise), (0.02, 0.03));
        assert_eq!((summary.worst_cpu, summary.longest_ns), (7, 20_000));
        assert_eq!(summary.detours_per_second, 1500.0);
        assert_eq!(summary.faults_per_second, 5000.0);
        assert_eq!(summary.rounds_per_second, 1e6);
    }

    #[test]
    fn figures_that_cannot_be_are_found() {
        let wrong = |change: fn(&mut Cpu)| {
            let mut one = cpu(0, &[10_000, 40_000]);
            change(&mut one);
            one.contradiction().expect("it is one")
        };
        let why = wrong(|one| one.detour_ns = 1_000_001);
        assert_eq!(why, "detours and calls took 1000001 of 1000000 ns");
        assert_eq!(
            wrong(|one| one.histogram[20] += 1),
            "2 detours in 1000 rounds, 3 in the histogram"
        );
        assert!(wrong(|one| one.longest_ns = 50_001).starts_with("the longest"));
        assert!(wrong(|one| one.rounds = 1).starts_with("2 detours in 1 rounds"));
    }

    #[test]
    fn methods_must_end_at_the_same_place() {
        let mut all = vec![
            accesses(Method::Small, 4096, 7),
            accesses(Method::Small, 8192, 9),
            accesses(Method::Thp, 4096, 7),
        ];
        assert_eq!(disagreement(&all), None);
        all.push(accesses(Method::Hpmmap, 8192, 8));
        assert_eq!(
            disagreement(&all).unwrap(),
            "the dependent accesses to 8192 bytes end elsewhere with hpmmap than with another method"
        );
    }
}
