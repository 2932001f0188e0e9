//! The results of a study, each figure with its confidence interval.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cell_summary::{CellSummary, cell_summary, less_one};
use super::paper::{CLAIMS, Claim, paper};
use super::plan::{Cell, Manager, Parameters, Profile, Workload};
use super::record::{Figures, LeftOut, Plan, Run};
use super::statistics::{Estimate, ratio};

/// The limits of several emulated machines.
pub const EMULATED_NODES_NOTE: &str = "A network of emulated machines is one of processes: each packet \
    is copied by the emulator, and costs the CPU time that ranks and neighbours of all machines share. \
    A job on two nodes takes longer for that reason alone, under every manager; so how one scales, with \
    a slow network or a fast one, cannot show. What can: right results on several machines, page faults, \
    what fell back to Linux, and what was used of the pools, on each.";

/// A larger growth of memory in 4 KB pages is not chance.
const FELL_BACK: f64 = 0.05;

/// What an emulated machine cannot show.
pub const EMULATED_NOTE: &str = "This machine is emulated. Its processor has no TLB that costs \
    anything to miss and no caches: that large pages need fewer TLB misses and shorter page walks, \
    and that neighbours take cache and memory bandwidth, cannot show in any figure here. Two CPUs \
    take turns in one thread of the host, so a neighbour lengthens the runtime under every manager. \
    Runtimes here cannot be compared with the paper's; page faults, stalls and what the kernel does \
    on behalf of the job can.";

/// The compared figure if the clock counts instructions.
pub const COUNTED_NOTE: &str = "The clock counts instructions, and leaps to the next timer while \
    nothing runs. So it is not runtimes that are compared but the instructions that a rank executes, \
    in user mode and in the kernel; what a neighbour takes by running instead is not in them. Those of \
    the program are the same in all runs, so growth is the kernel's: the most that memory management can \
    have caused.";

/// The names of figures.
pub struct Words {
    /// The cost of a run.
    pub costs: &'static str,
    /// The axis of costs.
    pub cost_axis: &'static str,
    /// The column of costs.
    pub cost_column: &'static str,
    /// The growth beside neighbours.
    pub growth: &'static str,
    /// The column of growth.
    pub growth_column: &'static str,
    /// The unit of nanoseconds.
    pub stalls: &'static str,
    /// The difference to HPMMAP.
    pub less: &'static str,
    /// The column of differences.
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

/// A program on a number of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobKind {
    /// The program.
    pub workload: Workload,
    /// The number of machines.
    pub nodes: u32,
}

/// HPMMAP beside another manager, with the same program and neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// The program; `None` for the mean of all.
    pub workload: Option<Workload>,
    /// The load beside it.
    pub neighbour: Profile,
    /// The other manager.
    pub peer: Manager,
    /// Number of machines.
    pub nodes: u32,
    /// Runtime, or instructions, with HPMMAP over that with the other.
    pub ratio: Estimate,
    /// The paper's value for one minus `ratio`, if it has one.
    pub paper_reduction: Option<f64>,
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Number of the run.
    pub run: u32,
    /// The combination.
    #[serde(flatten)]
    pub cell: Cell,
    /// The reason.
    pub error: String,
}

/// The summary of a study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// `"colocation"`.
    pub benchmark: String,
    /// Version of the record.
    pub schema: u32,
    /// The command that plans the same study anew.
    pub redo: String,
    /// Kernel, module, command, programs.
    pub versions: BTreeMap<String, String>,
    /// CPU, memory, command line of the kernel.
    pub machine: BTreeMap<String, String>,
    /// The options.
    pub parameters: Parameters,
    /// Number of runs that have ended.
    pub ended: usize,
    /// Number of planned runs.
    pub planned: usize,
    /// Summaries by workload, neighbour and manager.
    pub cells: Vec<CellSummary>,
    /// Comparisons of HPMMAP with the others.
    pub comparisons: Vec<Comparison>,
    /// Runs without figures.
    pub failures: Vec<Failure>,
    /// Combinations that could not be run here.
    pub left_out: Vec<LeftOut>,
    /// Was it measured in an emulated machine?
    pub emulated: bool,
}

/// A program on several numbers of machines.
pub struct Scale<'a> {
    /// The load beside it.
    pub neighbour: Profile,
    /// The manager of its memory.
    pub manager: Manager,
    /// The summaries, by number of machines.
    pub cells: Vec<&'a CellSummary>,
    /// All numbers of machines in the study.
    pub nodes: &'a [u32],
}

impl Scale<'_> {
    fn on(&self, nodes: u32) -> Option<&CellSummary> {
        let mut cells = self.cells.iter();
        cells.find(|one| one.cell.nodes == nodes).copied()
    }

    /// The runtime on this number of machines.
    pub fn seconds(&self, nodes: u32) -> Option<f64> {
        Some(self.on(nodes)?.seconds.mean)
    }

    /// Runtime on the largest over that on the smallest number of machines, minus one.
    pub fn growth(&self) -> Option<Estimate> {
        let (first, last) = (*self.nodes.first()?, *self.nodes.last()?);
        let (few, most) = (self.on(first)?, self.on(last)?);
        (first != last).then(|| less_one(ratio(&most.seconds, &few.seconds)))
    }
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

/// Comparisons with one other manager: each program, and the mean of all.
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
        // The paper has runtimes, on one machine.
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
    /// Summarizes the runs that have ended.
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

    /// A sentence for each program that reports its page sizes: what happened to THP beside
    /// neighbours.
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

    /// The names of its figures.
    pub fn words(&self) -> &'static Words {
        match self.parameters.icount {
            true => &COUNTED,
            false => &TIMED,
        }
    }

    /// Does the paper have figures for any of the comparisons?
    pub fn has_paper(&self) -> bool {
        let mut all = self.comparisons.iter();
        all.any(|one| one.paper_reduction.is_some())
    }

    /// Is it a study of several machines?
    pub fn has_hosts(&self) -> bool {
        !self.parameters.hosts.is_empty()
    }

    /// Programs with figures, on each number of machines, in order.
    pub fn jobs(&self) -> Vec<JobKind> {
        let of = |one: &CellSummary| JobKind {
            workload: one.cell.workload,
            nodes: one.cell.nodes,
        };
        let mut all: Vec<JobKind> = self.cells.iter().map(of).collect();
        all.dedup();
        all
    }

    /// The heading of a job.
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

    /// Programs with figures on several numbers of machines.
    pub fn scaling(&self) -> Vec<Workload> {
        let jobs = self.jobs();
        let pairs = jobs
            .windows(2)
            .filter(|two| two[0].workload == two[1].workload);
        let mut all: Vec<Workload> = pairs.map(|two| two[0].workload).collect();
        all.dedup();
        all
    }

    /// Runtimes of a program on each number of machines, for each manager and neighbour.
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

    /// The paper's results for programs on several machines, and the study's: how much less time
    /// HPMMAP took than each other manager, on each number of machines.
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
    use crate::colocation::record::OnHost;
    use crate::colocation::record::tests::{plan, run};
    use crate::colocation::workload::Memory;
    use crate::colocation::workload::{Pages, Stalls};

    /// A study in which the neighbour costs THP 10 % in the kernel and HPMMAP 1 %.
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

    /// The same, with the programs' figures of their memory: beside A all of THP's is in small
    /// pages.
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

    /// A study of two machines, on which HPMMAP takes 10 s and THP 12, both a second longer on
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
            // Beside no neighbour, on the same number.
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
