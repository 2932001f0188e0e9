//! The summary of the runs of one combination.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::{Cell, Manager, Profile};
use super::record::{Figures, OnHost};
use super::statistics::{Estimate, Sample, difference, ratio};
use super::workload::Memory;

/// The parts of a combination's slowdown against the same job alone, each relative to the runtime
/// alone; if the clock counts instructions, relative to the job's instructions alone. Means of all
/// ranks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Parts {
    /// Kernel and blocked together: the most that memory management can have caused through the
    /// kernel.
    pub memory: Estimate,
    /// CPU time in the kernel.
    pub kernel: Estimate,
    /// Blocked; `None` if the clock leaps meanwhile.
    pub blocked: Option<Estimate>,
    /// Asleep by its own choice, for example waiting for mpirun; `None` if blocked includes this.
    pub asleep: Option<Estimate>,
    /// Ready, but without a CPU.
    pub wait: Estimate,
    /// CPU time in user mode; `None` if the clock counts instructions, which are the same there.
    pub user: Option<Estimate>,
}

/// The programs' own figures of their memory: means of the runs; "worst" is that of all runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemorySummary {
    /// 99 of 100 first touches of a page take less, in nanoseconds.
    pub touch_p99_ns: f64,
    /// The longest first touch.
    pub touch_worst_ns: f64,
    /// Total time of first touches.
    pub touch_total_ns: f64,
    /// The longest call of malloc or free.
    pub call_worst_ns: f64,
    /// Total time of such calls.
    pub call_total_ns: f64,
    /// Bytes in pages of 4 KB.
    pub small_bytes: f64,
    /// Bytes in transparent huge pages, or pages of hugetlbfs.
    pub large_bytes: f64,
    /// Bytes in blocks of HPMMAP, mapped by large entries.
    pub pool_bytes: f64,
}

impl MemorySummary {
    fn of(figures: &[&Figures]) -> Option<Self> {
        let all: Option<Vec<Memory>> = figures.iter().map(|one| one.memory).collect();
        let all = all.filter(|all| !all.is_empty())?;
        let mean = |of: fn(&Memory) -> u64| {
            let sum: f64 = all.iter().map(|one| of(one) as f64).sum();
            sum / all.len() as f64
        };
        let most = |of: fn(&Memory) -> u64| all.iter().map(of).max().unwrap_or(0) as f64;
        Some(Self {
            touch_p99_ns: mean(|one| one.touches.p99_ns),
            touch_worst_ns: most(|one| one.touches.worst_ns),
            touch_total_ns: mean(|one| one.touches.total_ns),
            call_worst_ns: most(|one| one.calls.worst_ns),
            call_total_ns: mean(|one| one.calls.total_ns),
            small_bytes: mean(|one| one.pages.small_bytes()),
            large_bytes: mean(|one| one.pages.thp_bytes + one.pages.hugetlb_bytes),
            pool_bytes: mean(|one| one.pages.file_bytes),
        })
    }

    /// The part in pages of 4 KB.
    pub fn small_part(&self) -> f64 {
        let all = self.small_bytes + self.large_bytes + self.pool_bytes;
        self.small_bytes / all.max(1.0)
    }
}

/// A machine's part in the runs of a combination: means; of the pools the highest use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostSummary {
    /// Its name.
    pub host: String,
    /// The longest runtime of its ranks.
    pub seconds: f64,
    /// Page faults of its ranks.
    pub faults: f64,
    /// Faults after the start-up.
    pub late_faults: Option<f64>,
    /// Calls that fell back to ordinary memory under HPMMAP.
    pub fallbacks: Option<f64>,
    /// The highest use of pools or reserved pages that was seen.
    pub reserved_peak_bytes: u64,
    /// Builds that its neighbours completed.
    pub builds: f64,
    /// Direct reclaims and compactions on it.
    pub stalls: f64,
}

impl HostSummary {
    fn of(host: &str, figures: &[&Figures]) -> Option<Self> {
        let all: Vec<&OnHost> = figures
            .iter()
            .filter_map(|one| one.hosts.iter().find(|on| on.host == host))
            .collect();
        let mean = |of: &dyn Fn(&OnHost) -> f64| {
            let values: Vec<f64> = all.iter().map(|&one| of(one)).collect();
            Some(Sample::of(&values)?.mean)
        };
        let some = |of: fn(&OnHost) -> Option<u64>| {
            let all: Option<Vec<u64>> = all.iter().map(|&one| of(one)).collect();
            let values: Vec<f64> = all?.iter().map(|&value| value as f64).collect();
            Some(Sample::of(&values)?.mean)
        };
        Some(Self {
            host: host.to_string(),
            seconds: mean(&|one| one.seconds)?,
            faults: mean(&|one| one.faults as f64)?,
            late_faults: some(|one| one.late_faults),
            fallbacks: some(|one| one.fallbacks),
            reserved_peak_bytes: all.iter().map(|one| one.reserved_peak_bytes).max()?,
            builds: mean(&|one| f64::from(one.builds))?,
            stalls: mean(&|one| {
                let counters = one.vmstat.iter().filter(|(name, _)| is_stall(name));
                counters.map(|(_, &value)| value as f64).sum()
            })?,
        })
    }
}

/// Does the counter count direct reclaim or compaction?
pub fn is_stall(name: &str) -> bool {
    name.starts_with("allocstall") || name == "compact_stall"
}

/// All runs of a combination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellSummary {
    /// The combination.
    #[serde(flatten)]
    pub cell: Cell,
    /// Runtimes; if the clock counts instructions, CPU time of a rank in which a second is a
    /// thousand million of them.
    pub seconds: Sample,
    /// Each value, in the order of the rounds.
    pub values: Vec<f64>,
    /// `seconds` over those of the same job alone, minus one; if instructions are counted,
    /// `parts.memory`.
    pub slowdown: Option<Estimate>,
    /// The parts of the slowdown.
    pub parts: Option<Parts>,
    /// Mean page faults of a run.
    pub faults: f64,
    /// Faults after the start-up.
    pub late_faults: Option<f64>,
    /// Faults that waited for a disk.
    pub major_faults: f64,
    /// Calls that fell back to ordinary memory under HPMMAP.
    pub fallbacks: Option<f64>,
    /// Page faults in pool memory under HPMMAP.
    pub pool_faults: Option<f64>,
    /// The program's own figures of its memory.
    pub memory: Option<MemorySummary>,
    /// Builds that the neighbours completed in a run.
    pub builds: f64,
    /// Mean growth of counters of the whole machine in a run; of all machines if there are
    /// several.
    pub vmstat: BTreeMap<String, f64>,
    /// Each machine, in a study of several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostSummary>,
}

fn sample(figures: &[&Figures], of: impl Fn(&Figures) -> f64) -> Option<Sample> {
    let values: Vec<f64> = figures.iter().map(|&one| of(one)).collect();
    Sample::of(&values)
}

fn mean(figures: &[&Figures], of: impl Fn(&Figures) -> f64) -> f64 {
    sample(figures, of).map_or(0.0, |sample| sample.mean)
}

/// The parts of a slowdown.
fn parts(beside: &[&Figures], alone: &[&Figures], icount: bool) -> Option<Parts> {
    // If the clock counts instructions, the program's own are the same in all runs. So what it
    // runs longer it runs in the kernel, counted and not sampled.
    let kernel = |one: &Figures| match icount {
        true => one.run_seconds,
        false => one.system_seconds,
    };
    // With that clock, times without a CPU mean nothing: it leaps while nothing runs.
    let whole = |one: &Figures| match icount {
        true => one.run_seconds,
        false => one.rank_seconds,
    };
    let blocked = |one: &Figures| match icount {
        true => 0.0,
        false => one.blocked_seconds,
    };
    let unit = sample(alone, whole)?.mean;
    let part = |of: &dyn Fn(&Figures) -> f64| {
        Some(difference(&sample(beside, of)?, &sample(alone, of)?, unit))
    };
    let mut all = beside.iter().chain(alone);
    let is_counted = all.all(|one| one.asleep_seconds.is_some());
    Some(Parts {
        memory: part(&|one| kernel(one) + blocked(one))?,
        kernel: part(&kernel)?,
        blocked: (!icount).then(|| part(&blocked)).flatten(),
        asleep: (is_counted && !icount)
            .then(|| part(&|one| one.asleep_seconds.unwrap_or(0.0)))
            .flatten(),
        wait: part(&|one| one.wait_seconds)?,
        user: match icount {
            true => None,
            false => part(&|one| one.user_seconds),
        },
    })
}

pub(super) fn less_one(ratio: Estimate) -> Estimate {
    Estimate {
        value: ratio.value - 1.0,
        interval: ratio.interval.map(|(low, high)| (low - 1.0, high - 1.0)),
    }
}

pub(super) fn cell_summary(
    cell: Cell,
    figures: &[&Figures],
    alone: &[&Figures],
    icount: bool,
) -> Option<CellSummary> {
    let cost = |one: &Figures| one.cost(icount);
    let seconds = sample(figures, cost)?;
    let base = match cell.neighbour {
        Profile::None => None,
        _ => sample(alone, cost),
    };
    let parts = base.and_then(|_| parts(figures, alone, icount));
    // If instructions are counted, all growth is the kernel's.
    let slowdown = match icount {
        true => parts.map(|parts| parts.memory),
        false => base.map(|base| less_one(ratio(&seconds, &base))),
    };
    // Programs count faults by the process table, which includes pages that the kernel populates
    // within a call of HPMMAP.
    let said = |one: &Figures| match cell.manager {
        Manager::Hpmmap => None,
        _ => one.late_faults_said,
    };
    let late: Option<Vec<f64>> = figures
        .iter()
        .map(|one| Some(one.late_faults.or(said(one))? as f64))
        .collect();
    let of_hpmmap = |of: fn(&Figures) -> Option<u64>| {
        let all: Option<Vec<f64>> = figures.iter().map(|one| Some(of(one)? as f64)).collect();
        Some(Sample::of(&all?)?.mean)
    };
    let names = figures.iter().flat_map(|one| one.vmstat.keys().cloned());
    Some(CellSummary {
        cell,
        values: figures.iter().map(|&one| cost(one)).collect(),
        slowdown,
        parts,
        seconds,
        faults: mean(figures, |one| one.faults as f64),
        late_faults: late.and_then(|late| Some(Sample::of(&late)?.mean)),
        major_faults: mean(figures, |one| one.major_faults as f64),
        fallbacks: of_hpmmap(|one| one.fallbacks),
        pool_faults: of_hpmmap(|one| one.pool_faults),
        memory: MemorySummary::of(figures),
        builds: mean(figures, |one| f64::from(one.builds)),
        vmstat: names
            .map(|name| {
                let of = |one: &Figures| one.vmstat.get(&name).copied().unwrap_or(0) as f64;
                let value = mean(figures, of);
                (name, value)
            })
            .collect(),
        hosts: figures.first().map_or(Vec::new(), |first| {
            let hosts = first.hosts.iter();
            hosts
                .filter_map(|one| HostSummary::of(&one.host, figures))
                .collect()
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::summary;
    use super::*;
    use crate::colocation::plan::Workload;

    fn cell(manager: Manager, neighbour: Profile) -> CellSummary {
        let mut cells = summary().cells.into_iter();
        let want = (Workload::Lammps, manager, neighbour);
        cells
            .find(|one| (one.cell.workload, one.cell.manager, one.cell.neighbour) == want)
            .unwrap()
    }

    #[test]
    fn a_slowdown_has_its_parts() {
        let thp = cell(Manager::Thp, Profile::A);
        assert_eq!(thp.seconds.mean, 15.0);
        let slowdown = thp.slowdown.unwrap();
        assert!((slowdown.value - 0.5).abs() < 1e-9);
        let parts = thp.parts.unwrap();
        assert!((parts.kernel.value - 0.1).abs() < 1e-9, "{parts:?}");
        assert!((parts.memory.value - 0.1).abs() < 1e-9, "{parts:?}");
        assert!((parts.user.unwrap().value - 0.4).abs() < 1e-9, "{parts:?}");
        assert_eq!(parts.wait.value, 0.0);
        assert_eq!(thp.late_faults, Some(3.0));
        assert_eq!(thp.vmstat["compact_stall"], 4.0);

        let alone = cell(Manager::Thp, Profile::None);
        assert_eq!((alone.slowdown, alone.parts), (None, None));
    }
}
