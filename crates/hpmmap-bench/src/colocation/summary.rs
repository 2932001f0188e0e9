//! What a study has found, each figure with how certain it is.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::{Cell, Manager, Parameters, Profile, Workload};
use super::record::{Figures, LeftOut, OnHost, Plan, Run};
use super::statistics::{Estimate, Sample, difference, ratio};
use super::workload::Memory;

/// What the paper found: HPMMAP's runtime was less by so much, beside this
/// neighbour, than with this manager.
pub const PAPER: [(Profile, Manager, f64); 4] = [
    (Profile::A, Manager::Thp, 0.15),
    (Profile::A, Manager::Hugetlb, 0.09),
    (Profile::B, Manager::Thp, 0.16),
    (Profile::B, Manager::Hugetlb, 0.36),
];

/// What the paper says of a program on several machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Ours.
    pub workload: Workload,
    /// Its own.
    pub program: &'static str,
    /// What ran beside it.
    pub neighbour: Profile,
    /// With gigabit Ethernet (figure 9).
    pub ethernet: &'static str,
    /// With InfiniBand (figure 10).
    pub infiniband: &'static str,
}

/// All of them.
pub const CLAIMS: [Claim; 6] = [
    Claim {
        workload: Workload::Lammps,
        program: "LAMMPS",
        neighbour: Profile::None,
        ethernet: "no difference to speak of",
        infiniband: "HPMMAP scales better than both",
    },
    Claim {
        workload: Workload::Lammps,
        program: "LAMMPS",
        neighbour: Profile::C,
        ethernet: "all come to the same",
        infiniband: "HPMMAP best, by more the more nodes",
    },
    Claim {
        workload: Workload::Minicg,
        program: "HPCCG",
        neighbour: Profile::None,
        ethernet: "HPMMAP and HugeTLBfs faster than THP",
        infiniband: "as with Ethernet",
    },
    Claim {
        workload: Workload::Minicg,
        program: "HPCCG",
        neighbour: Profile::C,
        ethernet: "all come to the same",
        infiniband: "HPMMAP best, by most on 8 nodes",
    },
    Claim {
        workload: Workload::Minife,
        program: "miniFE",
        neighbour: Profile::None,
        ethernet: "HPMMAP and HugeTLBfs faster than THP",
        infiniband: "as with Ethernet",
    },
    Claim {
        workload: Workload::Minife,
        program: "miniFE",
        neighbour: Profile::C,
        ethernet: "HPMMAP best, the gap stays",
        infiniband: "as with Ethernet",
    },
];

/// What exactly these are.
pub const CLAIMS_NOTE: &str = "The paper (section 4.3, figures 9 and 10) has curves for 1, 2, 4 and 8 \
    nodes and gives no numbers for them, so what it says of them is here beside what was measured. \
    A node had 24 CPUs (two Xeon E5-2430) and 24 GB, of which 18 GB were the job's with HugeTLBfs and \
    HPMMAP; 16 ranks and, beside them, two builds on the other 8 CPUs; weak scaling, Linux 3.11, at \
    least 10 runs.";

/// What emulated machines cannot show of several.
pub const EMULATED_NODES_NOTE: &str = "A network of emulated machines is one of processes: each packet \
    is copied by the emulator, and costs the CPU time that ranks and neighbours of all machines share. \
    A job on two nodes takes longer for that reason alone, under every manager; so how one scales, with \
    a slow network or a fast one, cannot show. What can: right results on several machines, page faults, \
    what fell back to Linux, and what was used of the pools, on each.";

/// So much more of the memory in 4 KB pages is no accident.
const FELL_BACK: f64 = 0.05;

/// What exactly these figures are.
pub const PAPER_NOTE: &str = "The paper (Kocoloski and Lange, IPDPS 2014, section 4.2) has means over \
    four programs (HPCCG, CoMD, miniMD, miniFE) on 1, 2, 4 and 8 cores of a machine with 12 Opteron \
    cores in two nodes and 16 GB, of which 12 GB were the job's; Linux 3.3, 10 runs each; the \
    neighbours were parallel builds of the kernel.";

/// What an emulated machine cannot show.
pub const EMULATED_NOTE: &str = "This machine is emulated. Its processor has no TLB that costs \
    anything to miss and no caches: that large pages need fewer TLB misses and shorter page walks, \
    and that neighbours take cache and memory bandwidth, cannot show in any figure here. Two CPUs \
    take turns in one thread of the host, so a neighbour lengthens the runtime under every manager. \
    Runtimes here cannot be compared with the paper's; page faults, stalls and what the kernel does \
    on behalf of the job can.";

/// What is compared where the clock counts instructions.
pub const COUNTED_NOTE: &str = "The clock counts instructions, and leaps to the next timer while \
    nothing runs. So it is not runtimes that are compared but the instructions that a rank executes, \
    in user mode and in the kernel; what a neighbour takes by running instead is not in them. Those of \
    the program are the same in all runs, so growth is the kernel's: the most that memory management can \
    have caused.";

/// How figures are called.
pub struct Words {
    /// What a run costs.
    pub costs: &'static str,
    /// Above bars of it.
    pub cost_axis: &'static str,
    /// Above a column of it.
    pub cost_column: &'static str,
    /// What grows beside neighbours.
    pub growth: &'static str,
    /// The same above a column.
    pub growth_column: &'static str,
    /// What nanoseconds are.
    pub stalls: &'static str,
    /// How HPMMAP differs.
    pub less: &'static str,
    /// The same above a column.
    pub less_column: &'static str,
}

const TIMED: Words = Words {
    costs: "runtimes",
    cost_axis: "Runtime, seconds",
    cost_column: "Seconds",
    growth: "slowdown beside neighbours",
    growth_column: "Slowdown %",
    stalls: "microseconds",
    less: "the runtime is less by",
    less_column: "Less time %",
};

const COUNTED: Words = Words {
    costs: "thousand million instructions of a rank",
    cost_axis: "Instructions of a rank, thousand million",
    cost_column: "Instr.",
    growth: "growth beside others",
    growth_column: "Growth %",
    stalls: "thousands of instructions",
    less: "instructions are fewer by",
    less_column: "Fewer %",
};

/// How the slowdown of a combination against the same alone is made up, each as
/// a part of the runtime alone; where the clock counts instructions of those that
/// the job takes alone. All ranks' mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Parts {
    /// Kernel and blocked together: the most that memory management can have
    /// caused through the kernel.
    pub memory: Estimate,
    /// CPU time in the kernel.
    pub kernel: Estimate,
    /// Blocked; `None` where the clock leaps meanwhile.
    pub blocked: Option<Estimate>,
    /// Asleep of its own accord, as when it waits for mpirun; `None` where blocked has
    /// this, too.
    pub asleep: Option<Estimate>,
    /// Ready, without a CPU.
    pub wait: Estimate,
    /// CPU time in user mode; `None` where the clock counts instructions, which
    /// are the same there.
    pub user: Option<Estimate>,
}

/// What programs say of their memory: means of the runs, but the worst of all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemorySummary {
    /// 99 of 100 first touches of a page take less, in nanoseconds.
    pub touch_p99_ns: f64,
    /// The longest.
    pub touch_worst_ns: f64,
    /// All of them.
    pub touch_total_ns: f64,
    /// The longest call of malloc or free.
    pub call_worst_ns: f64,
    /// All of them.
    pub call_total_ns: f64,
    /// In pages of 4 KB.
    pub small_bytes: f64,
    /// In transparent huge pages, or pages of hugetlbfs.
    pub large_bytes: f64,
    /// In blocks of HPMMAP, mapped large.
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

    /// Which part is in pages of 4 KB.
    pub fn small_part(&self) -> f64 {
        let all = self.small_bytes + self.large_bytes + self.pool_bytes;
        self.small_bytes / all.max(1.0)
    }
}

/// A machine's part in the runs of a combination: means, but the most of all that
/// was used of its pools.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostSummary {
    /// Its name.
    pub host: String,
    /// The longest runtime of its ranks.
    pub seconds: f64,
    /// Page faults of its ranks.
    pub faults: f64,
    /// Those after the start-up.
    pub late_faults: Option<f64>,
    /// Calls that got memory of Linux under HPMMAP.
    pub fallbacks: Option<f64>,
    /// The largest part of pools or reserved pages that was seen in use.
    pub reserved_peak_bytes: u64,
    /// Builds that its neighbours completed.
    pub builds: f64,
    /// Times that somebody on it had to reclaim or compact memory.
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

/// Whether a counter is of those who had to reclaim or compact memory.
pub fn is_stall(name: &str) -> bool {
    name.starts_with("allocstall") || name == "compact_stall"
}

/// A program on so many machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobKind {
    /// The program.
    pub workload: Workload,
    /// How many.
    pub nodes: u32,
}

/// All runs of a combination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellSummary {
    /// Which.
    #[serde(flatten)]
    pub cell: Cell,
    /// Runtimes; where the clock counts instructions the CPU time of a rank, a
    /// second of which is a thousand million of them.
    pub seconds: Sample,
    /// Each, in the order of the rounds.
    pub values: Vec<f64>,
    /// This over the same alone, less one; where instructions are counted that is
    /// `parts.memory`.
    pub slowdown: Option<Estimate>,
    /// What it is made of.
    pub parts: Option<Parts>,
    /// Mean page faults of a run.
    pub faults: f64,
    /// Those after the start-up.
    pub late_faults: Option<f64>,
    /// Those that waited for a disk.
    pub major_faults: f64,
    /// Calls that got memory of Linux under HPMMAP.
    pub fallbacks: Option<f64>,
    /// Page faults in memory of the pools under HPMMAP.
    pub pool_faults: Option<f64>,
    /// What the program says of its memory.
    pub memory: Option<MemorySummary>,
    /// Builds that the neighbours completed in a run.
    pub builds: f64,
    /// Mean growth of counters of the whole machine in a run, of all where there are
    /// several.
    pub vmstat: BTreeMap<String, f64>,
    /// Each machine, in a study of several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostSummary>,
}

/// HPMMAP beside another manager, with the same program and neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// The program; `None` for the mean of all.
    pub workload: Option<Workload>,
    /// What ran beside it.
    pub neighbour: Profile,
    /// The other manager.
    pub peer: Manager,
    /// On how many machines.
    pub nodes: u32,
    /// Runtime, or instructions, with HPMMAP over that with the other.
    pub ratio: Estimate,
    /// What the paper has for one less this, where it has something.
    pub paper_reduction: Option<f64>,
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Its number.
    pub run: u32,
    /// What was run.
    #[serde(flatten)]
    pub cell: Cell,
    /// Why.
    pub error: String,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// `"colocation"`.
    pub benchmark: String,
    /// Of the record.
    pub schema: u32,
    /// Command that plans the same study anew.
    pub redo: String,
    /// Kernel, module, command, programs.
    pub versions: BTreeMap<String, String>,
    /// CPU, memory, command line of the kernel.
    pub machine: BTreeMap<String, String>,
    /// The options.
    pub parameters: Parameters,
    /// Runs that have ended, of so many.
    pub ended: usize,
    /// All planned.
    pub planned: usize,
    /// By workload, neighbour and manager.
    pub cells: Vec<CellSummary>,
    /// Of HPMMAP with the others.
    pub comparisons: Vec<Comparison>,
    /// Runs without figures.
    pub failures: Vec<Failure>,
    /// What could not be run here.
    pub left_out: Vec<LeftOut>,
    /// True in an emulated machine.
    pub emulated: bool,
}

/// A program on several numbers of machines.
pub struct Scale<'a> {
    /// What ran beside it.
    pub neighbour: Profile,
    /// Who managed its memory.
    pub manager: Manager,
    /// By the number.
    pub cells: Vec<&'a CellSummary>,
    /// All that the study is of.
    pub nodes: &'a [u32],
}

impl Scale<'_> {
    fn on(&self, nodes: u32) -> Option<&CellSummary> {
        let mut cells = self.cells.iter();
        cells.find(|one| one.cell.nodes == nodes).copied()
    }

    /// The runtime on so many.
    pub fn seconds(&self, nodes: u32) -> Option<f64> {
        Some(self.on(nodes)?.seconds.mean)
    }

    /// That on the most over that on the fewest of the study, less one.
    pub fn growth(&self) -> Option<Estimate> {
        let (first, last) = (*self.nodes.first()?, *self.nodes.last()?);
        let (few, most) = (self.on(first)?, self.on(last)?);
        (first != last).then(|| less_one(ratio(&most.seconds, &few.seconds)))
    }
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
    // Where the clock counts instructions those of the program itself are the same in
    // all runs, so what it runs longer it runs in the kernel, counted and not sampled.
    let kernel = |one: &Figures| match icount {
        true => one.run_seconds,
        false => one.system_seconds,
    };
    // There the clock leaps while nothing runs: times without a CPU mean nothing.
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

fn less_one(ratio: Estimate) -> Estimate {
    Estimate {
        value: ratio.value - 1.0,
        interval: ratio.interval.map(|(low, high)| (low - 1.0, high - 1.0)),
    }
}

fn cell_summary(
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
    // Where instructions are counted all growth is the kernel's.
    let slowdown = match icount {
        true => parts.map(|parts| parts.memory),
        false => base.map(|base| less_one(ratio(&seconds, &base))),
    };
    // What the kernel fills within a call of HPMMAP is a fault for the process table,
    // by which programs count.
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

fn paper(neighbour: Profile, peer: Manager) -> Option<f64> {
    PAPER
        .iter()
        .find(|(profile, manager, _)| (*profile, *manager) == (neighbour, peer))
        .map(|&(_, _, reduction)| reduction)
}

fn comparisons(cells: &[CellSummary], parameters: &Parameters) -> Vec<Comparison> {
    let mut all = Vec::new();
    for &nodes in &parameters.nodes {
        for &neighbour in &parameters.neighbours {
            for &peer in &parameters.managers {
                all.extend(compared(cells, parameters, (nodes, neighbour, peer)));
            }
        }
    }
    all
}

/// With one other manager: each program, and the mean of all.
fn compared(
    cells: &[CellSummary],
    parameters: &Parameters,
    (nodes, neighbour, peer): (u32, Profile, Manager),
) -> Vec<Comparison> {
    let find = |workload, manager| {
        let cell = Cell {
            workload,
            manager,
            neighbour,
            nodes,
        };
        cells.iter().find(|one| one.cell == cell)
    };
    let with = |workload, ratio| Comparison {
        workload,
        neighbour,
        peer,
        nodes,
        ratio,
        // The paper has runtimes, and figures of one machine.
        paper_reduction: match parameters.icount || !parameters.hosts.is_empty() {
            true => None,
            false => paper(neighbour, peer),
        },
    };
    let mut found: Vec<Comparison> = Vec::new();
    for &workload in &parameters.workloads {
        let ours = find(workload, Manager::Hpmmap);
        let theirs = find(workload, peer);
        if let (Some(ours), Some(theirs), true) = (ours, theirs, peer != Manager::Hpmmap) {
            found.push(with(Some(workload), ratio(&ours.seconds, &theirs.seconds)));
        }
    }
    if found.len() > 1 {
        let sum: f64 = found.iter().map(|one| one.ratio.value).sum();
        let mean = Estimate {
            value: sum / found.len() as f64,
            interval: None,
        };
        found.push(with(None, mean));
    }
    found
}

impl Summary {
    /// Of the runs that have ended.
    pub fn new(plan: &Plan, runs: &[Run]) -> Self {
        let parameters = &plan.parameters;
        let mut found: BTreeMap<Cell, Vec<&Figures>> = BTreeMap::new();
        for run in runs {
            let cell = found.entry(run.planned.cell).or_default();
            cell.extend(run.figures.as_ref());
        }
        let mut cells: Vec<CellSummary> = found
            .iter()
            .filter_map(|(&cell, figures)| {
                let alone = Cell {
                    neighbour: Profile::None,
                    ..cell
                };
                let alone = found.get(&alone).map_or(&[][..], Vec::as_slice);
                cell_summary(cell, figures, alone, parameters.icount)
            })
            .collect();
        cells.sort_by_key(|one| {
            let cell = one.cell;
            (cell.workload, cell.nodes, cell.neighbour, cell.manager)
        });
        let failures = runs.iter().filter_map(|run| {
            Some(Failure {
                run: run.planned.run,
                cell: run.planned.cell,
                error: run.error.clone()?,
            })
        });
        let cpu = plan.machine.get("cpu").map_or("", String::as_str);
        Self {
            benchmark: plan.benchmark.clone(),
            schema: plan.schema,
            redo: plan.redo.clone(),
            versions: plan.versions.clone(),
            machine: plan.machine.clone(),
            parameters: parameters.clone(),
            ended: runs.len(),
            planned: plan.runs.len(),
            comparisons: comparisons(&cells, parameters),
            cells,
            failures: failures.collect(),
            left_out: plan.left_out.clone(),
            emulated: parameters.icount || cpu.contains("QEMU"),
        }
    }

    /// What became of THP beside neighbours, of programs that say what their pages
    /// are: a sentence each.
    pub fn verdicts(&self) -> Vec<String> {
        let find = |cell: Cell| self.cells.iter().find(|one| one.cell == cell);
        let thp = |one: &&CellSummary| {
            one.cell.manager == Manager::Thp && one.cell.neighbour != Profile::None
        };
        let mut all = Vec::new();
        for one in self.cells.iter().filter(thp) {
            let alone = find(Cell {
                neighbour: Profile::None,
                ..one.cell
            });
            let Some((beside, alone)) = one.memory.zip(alone.and_then(|alone| alone.memory)) else {
                continue;
            };
            let (small, before) = (beside.small_part(), alone.small_part());
            let what = match small > before + FELL_BACK {
                true => "THP fell back to 4 KB pages",
                false => "THP did not fall back to 4 KB pages more than alone",
            };
            all.push(format!(
                "{} beside {}: {what}: {:.0} % of the memory is in them, alone {:.0} %; the longest \
                 first touch of a page is {:.1} times that alone.",
                self.title(JobKind {
                    workload: one.cell.workload,
                    nodes: one.cell.nodes,
                }),
                one.cell.neighbour.title(),
                small * 100.0,
                before * 100.0,
                beside.touch_worst_ns / alone.touch_worst_ns.max(1.0),
            ));
        }
        all
    }

    /// How its figures are called.
    pub fn words(&self) -> &'static Words {
        match self.parameters.icount {
            true => &COUNTED,
            false => &TIMED,
        }
    }

    /// Whether the paper has figures for any of the comparisons.
    pub fn has_paper(&self) -> bool {
        let mut all = self.comparisons.iter();
        all.any(|one| one.paper_reduction.is_some())
    }

    /// Whether it is of several machines.
    pub fn has_hosts(&self) -> bool {
        !self.parameters.hosts.is_empty()
    }

    /// Programs that have figures, on each number of machines, in order.
    pub fn jobs(&self) -> Vec<JobKind> {
        let of = |one: &CellSummary| JobKind {
            workload: one.cell.workload,
            nodes: one.cell.nodes,
        };
        let mut all: Vec<JobKind> = self.cells.iter().map(of).collect();
        all.dedup();
        all
    }

    /// For headings.
    pub fn title(&self, job: JobKind) -> String {
        let name = job.workload.name();
        match (self.has_hosts(), job.nodes) {
            (false, _) => name.into(),
            (true, 1) => format!("{name} on 1 node"),
            (true, nodes) => format!("{name} on {nodes} nodes"),
        }
    }

    /// All combinations of a job.
    pub fn cells_of(&self, job: JobKind) -> Vec<&CellSummary> {
        let of =
            |one: &&CellSummary| (one.cell.workload, one.cell.nodes) == (job.workload, job.nodes);
        self.cells.iter().filter(of).collect()
    }

    /// Programs that have figures on several numbers of machines.
    pub fn scaling(&self) -> Vec<Workload> {
        let jobs = self.jobs();
        let pairs = jobs
            .windows(2)
            .filter(|two| two[0].workload == two[1].workload);
        let mut all: Vec<Workload> = pairs.map(|two| two[0].workload).collect();
        all.dedup();
        all
    }

    /// Runtimes of a program on each number of machines, one manager beside one
    /// neighbour at a time.
    pub fn scales(&self, workload: Workload) -> Vec<Scale<'_>> {
        let mut all: BTreeMap<(Profile, Manager), Vec<&CellSummary>> = BTreeMap::new();
        for one in self
            .cells
            .iter()
            .filter(|one| one.cell.workload == workload)
        {
            let cells = all.entry((one.cell.neighbour, one.cell.manager));
            cells.or_default().push(one);
        }
        all.into_iter()
            .map(|((neighbour, manager), cells)| Scale {
                neighbour,
                manager,
                cells,
                nodes: &self.parameters.nodes,
            })
            .collect()
    }

    /// What the paper says of programs on several machines, and what was found: by how
    /// much less time HPMMAP took than each other, on each number of them.
    pub fn claims(&self) -> Vec<(Claim, String)> {
        let found = |claim: &Claim| {
            let mut all: BTreeMap<Manager, Vec<String>> = BTreeMap::new();
            let fits = |one: &&Comparison| {
                (one.workload, one.neighbour) == (Some(claim.workload), claim.neighbour)
            };
            for one in self.comparisons.iter().filter(fits) {
                let less = (1.0 - one.ratio.value) * 100.0;
                let text = format!("{less:+.1} % on {}", one.nodes);
                all.entry(one.peer).or_default().push(text);
            }
            let all = all
                .iter()
                .map(|(peer, texts)| format!("{}: {}", peer.title(), texts.join(", ")));
            all.collect::<Vec<_>>().join("; ")
        };
        let claims = CLAIMS.iter().filter(|_| self.has_hosts());
        claims
            .map(|claim| (*claim, found(claim)))
            .filter(|(_, found)| !found.is_empty())
            .collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::colocation::plan::Planned;
    use crate::colocation::record::tests::{plan, run};
    use crate::colocation::workload::{Pages, Stalls};

    /// A study whose neighbour costs THP 10 % in the kernel and HPMMAP 1 %.
    pub fn summary() -> Summary {
        let plan = plan();
        let runs: Vec<Run> = plan
            .runs
            .iter()
            .map(|&planned| {
                let (seconds, system) = match (planned.cell.manager, planned.cell.neighbour) {
                    (Manager::Thp, Profile::A) => (15.0, 2.0),
                    (Manager::Hpmmap, Profile::A) => (12.0, 1.1),
                    _ => (10.0, 1.0),
                };
                run(planned, seconds, system)
            })
            .collect();
        Summary::new(&plan, &runs)
    }

    /// The same, with what its programs say of their memory: beside A all of THP's is
    /// in small pages.
    pub fn with_memory() -> Summary {
        let plan = plan();
        let memory = |cell: &Cell| {
            let falls = (cell.manager, cell.neighbour) == (Manager::Thp, Profile::A);
            let stalls = |ns: u64| Stalls {
                count: 1000,
                p99_ns: ns,
                worst_ns: 10 * ns,
                total_ns: 1000 * ns,
            };
            Memory {
                touches: stalls(if falls { 20_000 } else { 2000 }),
                calls: stalls(500),
                pages: Pages {
                    rss_bytes: 256 << 20,
                    thp_bytes: if falls { 0 } else { 256 << 20 },
                    file_bytes: 0,
                    hugetlb_bytes: 0,
                },
            }
        };
        let of = |&planned: &Planned| {
            let mut run = run(planned, 10.0, 1.0);
            run.figures.as_mut().unwrap().memory = Some(memory(&planned.cell));
            run
        };
        let runs: Vec<Run> = plan.runs.iter().map(of).collect();
        Summary::new(&plan, &runs)
    }

    #[test]
    fn it_is_said_whether_huge_pages_were_had_beside_neighbours() {
        let mut summary = with_memory();
        let memory = summary.cells[0].memory.unwrap();
        assert_eq!(memory.touch_worst_ns, 20_000.0);
        assert_eq!(
            memory.small_bytes + memory.large_bytes,
            f64::from(256 << 20)
        );
        let fell = summary.verdicts();
        assert_eq!(fell.len(), 2);
        assert_eq!(
            fell[0],
            "lammps beside A: THP fell back to 4 KB pages: 100 % of the memory is in them, \
             alone 0 %; the longest first touch of a page is 10.0 times that alone."
        );
        for one in &mut summary.cells {
            one.memory.as_mut().unwrap().small_bytes = 0.0;
        }
        assert!(summary.verdicts()[0].contains("did not fall back to 4 KB pages more than alone"));
        for one in &mut summary.cells {
            one.memory = None;
        }
        assert!(summary.verdicts().is_empty());
    }

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

    #[test]
    fn counted_instructions_need_no_division_by_mode() {
        let mut plan = plan();
        plan.parameters.icount = true;
        let runs: Vec<Run> = plan
            .runs
            .iter()
            .map(|&planned| {
                let mut run = run(planned, 10.0, 1.0);
                let figures = run.figures.as_mut().unwrap();
                if planned.cell.neighbour == Profile::A {
                    (figures.run_seconds, figures.blocked_seconds) = (10.2, 0.1);
                }
                run
            })
            .collect();
        let summary = Summary::new(&plan, &runs);
        let parts = summary.cells.iter().find_map(|one| one.parts).unwrap();
        assert!((parts.kernel.value - 0.02).abs() < 1e-9, "{parts:?}");
        assert!((parts.memory.value - 0.02).abs() < 1e-9, "{parts:?}");
        assert_eq!((parts.blocked, parts.user), (None, None));
        assert!(summary.emulated);
        let beside = summary.cells.iter().find(|one| one.parts.is_some());
        let beside = beside.unwrap();
        assert_eq!(beside.seconds.mean, 10.2);
        assert!((beside.slowdown.unwrap().value - 0.02).abs() < 1e-9);
        let papers = summary.comparisons.iter().map(|one| one.paper_reduction);
        assert_eq!(papers.flatten().count(), 0);
    }

    #[test]
    fn hpmmap_is_compared_with_each_beside_each() {
        let summary = summary();
        let find = |workload, neighbour| {
            summary
                .comparisons
                .iter()
                .find(|one| (one.workload, one.neighbour) == (workload, neighbour))
                .unwrap()
        };
        let one = find(Some(Workload::Minicg), Profile::A);
        assert!((one.ratio.value - 0.8).abs() < 1e-9);
        assert_eq!((one.peer, one.paper_reduction), (Manager::Thp, Some(0.15)));
        assert!((find(None, Profile::A).ratio.value - 0.8).abs() < 1e-9);
        assert_eq!(find(None, Profile::None).paper_reduction, None);
        assert_eq!(summary.comparisons.len(), 2 * 3);
    }

    #[test]
    fn failed_runs_are_told_and_not_counted() {
        let plan = plan();
        let mut runs: Vec<Run> = plan.runs.iter().map(|&p| run(p, 10.0, 1.0)).collect();
        runs[3].figures = None;
        runs[3].error = Some("killed".into());
        let summary = Summary::new(&plan, &runs);
        assert_eq!(summary.failures.len(), 1);
        assert_eq!(summary.failures[0].error, "killed");
        let counted: usize = summary.cells.iter().map(|one| one.seconds.n).sum();
        assert_eq!(counted, runs.len() - 1);
    }

    /// A study of two machines, where HPMMAP takes 10 s, THP 12, both a second longer on
    /// two.
    pub fn of_two_hosts() -> Summary {
        let mut plan = plan();
        plan.parameters.hosts = vec!["n1".into(), "n2".into()];
        plan.parameters.nodes = vec![1, 2];
        plan.parameters.neighbours = vec![Profile::None, Profile::C];
        plan.runs = plan.parameters.order(|_| false);
        let of = |&planned: &Planned| {
            let cell = planned.cell;
            let base = if cell.manager == Manager::Thp {
                12.0
            } else {
                10.0
            };
            let mut run = run(planned, base + f64::from(cell.nodes - 1), 1.0);
            let hosts = &plan.parameters.hosts[..cell.nodes as usize];
            let on_host = |host: &String| OnHost {
                host: host.clone(),
                seconds: base,
                faults: 100,
                reserved_peak_bytes: u64::from(planned.repetition) << 20,
                builds: 3,
                vmstat: BTreeMap::from([("compact_stall".into(), 2), ("x".into(), 9)]),
                ..OnHost::default()
            };
            run.figures.as_mut().unwrap().hosts = hosts.iter().map(on_host).collect();
            run
        };
        let runs: Vec<Run> = plan.runs.iter().map(of).collect();
        Summary::new(&plan, &runs)
    }

    #[test]
    fn each_number_of_machines_is_a_job_of_its_own() {
        let summary = of_two_hosts();
        let titles = summary.jobs().into_iter().map(|job| summary.title(job));
        let titles: Vec<String> = titles.collect();
        assert_eq!(titles[..2], ["lammps on 1 node", "lammps on 2 nodes"]);
        let beside = |one: &&CellSummary| one.cell.neighbour == Profile::C;
        for one in summary.cells.iter().filter(beside) {
            // Beside nothing, on as many.
            assert_eq!(one.slowdown.unwrap().value, 0.0, "{:?}", one.cell);
            assert_eq!(one.hosts.len(), one.cell.nodes as usize);
            let last = one.hosts.last().unwrap();
            assert_eq!((last.faults, last.stalls, last.builds), (100.0, 2.0, 3.0));
            assert_eq!(last.reserved_peak_bytes, 2 << 20);
            assert_eq!(last.fallbacks, None);
        }
        assert_eq!(summary.scaling(), [Workload::Lammps, Workload::Minicg]);
        let scales = summary.scales(Workload::Lammps);
        assert_eq!(scales.len(), 4);
        let hpmmap = scales
            .iter()
            .find(|one| one.manager == Manager::Hpmmap)
            .unwrap();
        assert_eq!(
            (hpmmap.seconds(1), hpmmap.seconds(2)),
            (Some(10.0), Some(11.0))
        );
        assert!((hpmmap.growth().unwrap().value - 0.1).abs() < 1e-9);
        // It is not that of another pair.
        let mut longer = of_two_hosts();
        longer.parameters.nodes = vec![1, 2, 4];
        assert!(longer.scales(Workload::Lammps)[0].growth().is_none());
    }

    #[test]
    fn what_the_paper_says_of_several_machines_is_beside_what_was_found() {
        let claims = of_two_hosts().claims();
        assert_eq!(claims.len(), 4);
        let (claim, found) = &claims[1];
        assert_eq!((claim.program, claim.neighbour), ("LAMMPS", Profile::C));
        assert_eq!(found, "THP: +16.7 % on 1, +15.4 % on 2");
        assert!(summary().claims().is_empty());
        let alone = of_two_hosts().comparisons;
        assert!(alone.iter().all(|one| one.paper_reduction.is_none()));
    }
}
