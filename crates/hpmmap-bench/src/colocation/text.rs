//! A study for a terminal of 80 columns.

use std::collections::BTreeMap;

use hpmmap_base::output::Column::{self, Number, Text};
use hpmmap_base::output::table;

use super::cell_summary::{CellSummary, HostSummary, Parts, is_stall};
use super::paper::{CLAIMS_NOTE, PAPER_NOTE};
use super::plan::{Profile, Workload};
use super::statistics::Estimate;
use super::summary::{
    COUNTED_NOTE, Comparison, EMULATED_NODES_NOTE, EMULATED_NOTE, JobKind, Summary,
};

/// A part as a percentage: `+1.25`.
pub fn percent(value: f64) -> String {
    let text = format!("{:+.2}", value * 100.0);
    match text.as_str() {
        "-0.00" => "+0.00".into(),
        _ => text,
    }
}

/// The same with its interval.
pub fn percent_of(estimate: Option<Estimate>) -> String {
    let Some(estimate) = estimate else {
        return String::new();
    };
    match estimate.interval {
        None => percent(estimate.value),
        Some((low, high)) => format!(
            "{} [{}, {}]",
            percent(estimate.value),
            percent(low),
            percent(high)
        ),
    }
}

/// A number, or nothing.
pub fn or_empty(value: Option<f64>, digits: usize) -> String {
    value
        .map(|value| format!("{value:.digits$}"))
        .unwrap_or_default()
}

fn times(one: &CellSummary) -> Vec<String> {
    vec![
        one.cell.manager.name().into(),
        one.cell.neighbour.name().into(),
        one.seconds.n.to_string(),
        format!("{:.3}", one.seconds.mean),
        or_empty(one.seconds.half_width, 3),
        or_empty(one.seconds.stddev, 3),
        percent_of(one.slowdown),
    ]
}

const PARTS: [Column; 8] = [
    Text("MANAGER"),
    Text("BESIDE"),
    Number("MEMORY %"),
    Number("KERNEL"),
    Number("BLOCKED"),
    Number("ASLEEP"),
    Number("WAIT"),
    Number("USER"),
];

/// The parts of a slowdown, for tables.
pub fn part_cells(parts: &Parts) -> [String; 6] {
    let or_none = |part: Option<Estimate>| part.map(|part| percent(part.value));
    [
        percent_of(Some(parts.memory)),
        percent(parts.kernel.value),
        or_none(parts.blocked).unwrap_or_default(),
        or_none(parts.asleep).unwrap_or_default(),
        percent(parts.wait.value),
        or_none(parts.user).unwrap_or_default(),
    ]
}

fn parts(one: &CellSummary) -> Option<Vec<String>> {
    let names = [
        one.cell.manager.name().into(),
        one.cell.neighbour.name().into(),
    ];
    let cells = part_cells(one.parts.as_ref()?);
    Some(names.into_iter().chain(cells).collect())
}

const COUNTS: [Column; 9] = [
    Text("MANAGER"),
    Text("BESIDE"),
    Number("FAULTS"),
    Number("LATE"),
    Number("POOL"),
    Number("MAJOR"),
    Number("STALLS"),
    Number("HUGE"),
    Number("MERGED"),
];

/// Direct reclaims and compactions on the machine.
pub fn stalls(one: &CellSummary) -> f64 {
    let counters = one.vmstat.iter();
    counters
        .filter(|(name, _)| is_stall(name))
        .map(|(_, value)| value)
        .sum()
}

fn counts(one: &CellSummary) -> Vec<String> {
    vec![
        one.cell.manager.name().into(),
        one.cell.neighbour.name().into(),
        format!("{:.0}", one.faults),
        or_empty(one.late_faults, 0),
        or_empty(one.pool_faults, 0),
        format!("{:.0}", one.major_faults),
        format!("{:.0}", stalls(one)),
        or_empty(one.vmstat.get("thp_fault_alloc").copied(), 0),
        or_empty(one.vmstat.get("thp_collapse_alloc").copied(), 0),
    ]
}

const MEMORY: [Column; 10] = [
    Text("MANAGER"),
    Text("BESIDE"),
    Number("FAULTS"),
    Number("P99"),
    Number("WORST"),
    Number("CALL"),
    Number("ALL"),
    Number("4K MB"),
    Number("2M MB"),
    Number("POOL MB"),
];

/// Page faults, stalls and pages, for tables.
pub fn memory_cells(one: &CellSummary) -> Option<[String; 8]> {
    let memory = one.memory?;
    let thousands = |ns: f64| format!("{:.1}", ns / 1e3);
    let megabytes = |bytes: f64| format!("{:.0}", bytes / f64::from(1 << 20));
    Some([
        or_empty(one.late_faults, 0),
        thousands(memory.touch_p99_ns),
        thousands(memory.touch_worst_ns),
        thousands(memory.call_worst_ns),
        format!(
            "{:.0}",
            (memory.touch_total_ns + memory.call_total_ns) / 1e6
        ),
        megabytes(memory.small_bytes),
        megabytes(memory.large_bytes),
        megabytes(memory.pool_bytes),
    ])
}

fn memory(one: &CellSummary) -> Option<Vec<String>> {
    let names = [
        one.cell.manager.name().into(),
        one.cell.neighbour.name().into(),
    ];
    Some(names.into_iter().chain(memory_cells(one)?).collect())
}

/// How much less HPMMAP takes.
pub fn reduction(one: &Comparison) -> Estimate {
    Estimate {
        value: 1.0 - one.ratio.value,
        interval: one
            .ratio
            .interval
            .map(|(low, high)| (1.0 - high, 1.0 - low)),
    }
}

/// The paper's value, if it has one.
pub fn paper_cell(one: &Comparison) -> String {
    one.paper_reduction.map(percent).unwrap_or_default()
}

const HOSTS: [Column; 9] = [
    Text("MANAGER"),
    Text("BESIDE"),
    Text("HOST"),
    Number("SECONDS"),
    Number("FAULTS"),
    Number("LATE"),
    Number("FALLB."),
    Number("PEAK MB"),
    Number("BUILDS"),
];

/// A machine's part, for tables.
pub fn host_cells(one: &HostSummary) -> [String; 6] {
    [
        format!("{:.3}", one.seconds),
        format!("{:.0}", one.faults),
        or_empty(one.late_faults, 0),
        or_empty(one.fallbacks, 0),
        (one.reserved_peak_bytes >> 20).to_string(),
        format!("{:.1}", one.builds),
    ]
}

fn hosts(cell: &CellSummary) -> Vec<Vec<String>> {
    let names = [cell.cell.manager.name(), cell.cell.neighbour.name()];
    let row = |one: &HostSummary| {
        let names = names.map(String::from).into_iter();
        names
            .chain([one.host.clone()])
            .chain(host_cells(one))
            .collect()
    };
    cell.hosts.iter().map(row).collect()
}

/// Runtimes of a program by the number of machines, and their growth up to the last.
fn scaling(summary: &Summary, workload: Workload) -> String {
    let nodes = &summary.parameters.nodes;
    let heads: Vec<String> = nodes.iter().map(|n| format!("ON {n}")).collect();
    let mut columns = vec![Text("MANAGER"), Text("BESIDE")];
    columns.extend(heads.iter().map(|head| Number(head)));
    columns.push(Number("GROWTH %"));
    let rows = summary.scales(workload).into_iter().map(|scale| {
        let names = [scale.manager.name(), scale.neighbour.name()].map(String::from);
        let times = nodes.iter().map(|&n| or_empty(scale.seconds(n), 3));
        let growth = percent_of(scale.growth());
        names.into_iter().chain(times).chain([growth]).collect()
    });
    format!(
        "{}: seconds on so many nodes, each with a problem of the same size\n{}",
        workload.name(),
        table(&columns, rows)
    )
}

/// The paper's results for several machines, and the study's.
fn claims(summary: &Summary) -> Vec<String> {
    let found = summary.claims();
    if found.is_empty() {
        return Vec::new();
    }
    let mut all = vec![
        "What the paper says of several nodes, and by how much less time HPMMAP took here".into(),
    ];
    all.extend(found.iter().map(|(claim, found)| {
        let beside = match claim.neighbour {
            Profile::None => "alone",
            _ => "beside C",
        };
        wrapped(&format!(
            "{} ({}) {beside}. Ethernet: {}. InfiniBand: {}. Here, than with {found}.",
            claim.program,
            claim.workload.name(),
            claim.ethernet,
            claim.infiniband
        ))
    }));
    all.push(wrapped(CLAIMS_NOTE));
    all
}

fn compared(one: &Comparison, has_paper: bool, has_hosts: bool) -> Vec<String> {
    let mut row: Vec<String> = has_hosts
        .then(|| one.nodes.to_string())
        .into_iter()
        .collect();
    row.extend([
        one.neighbour.name().into(),
        one.peer.name().into(),
        one.workload.map_or("mean of all", Workload::name).into(),
        percent_of(Some(reduction(one))),
    ]);
    row.extend(has_paper.then(|| paper_cell(one)));
    row
}

/// Lines of at most 79 characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() > 79 {
            lines.push(word.to_string());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// The tables of a program on a number of machines.
fn job(summary: &Summary, job: JobKind) -> Vec<String> {
    let words = summary.words();
    let cost_column = words.cost_column.to_uppercase();
    let growth_column = words.growth_column.to_uppercase();
    let times_columns = [
        Text("MANAGER"),
        Text("BESIDE"),
        Number("RUNS"),
        Number(&cost_column),
        Number("+-"),
        Number("STDDEV"),
        Number(&growth_column),
    ];
    let mut all = Vec::new();
    let found = summary.cells_of(job);
    let cells = || found.iter().copied();
    let title = summary.title(job);
    let memory: Vec<Vec<String>> = cells().filter_map(memory).collect();
    if !memory.is_empty() {
        let head = format!(
            "{title}: page faults after the start-up; how long the first touch of a page takes \
             (P99, WORST), and a CALL of malloc or free at most, in {}; ALL of them in thousands of \
             that; memory at the peak by page size",
            words.stalls
        );
        all.push(format!("{}\n{}", wrapped(&head), table(&MEMORY, memory)));
    }
    all.push(format!(
        "{title}: {}, and the {}\n{}",
        words.costs,
        words.growth,
        table(&times_columns, cells().map(times))
    ));
    let parts: Vec<Vec<String>> = cells().filter_map(parts).collect();
    if !parts.is_empty() && !summary.parameters.icount {
        let head =
            format!("{title}: its parts, % of the runtime alone (MEMORY is KERNEL and BLOCKED)");
        all.push(format!("{}\n{}", wrapped(&head), table(&PARTS, parts)));
    }
    all.push(format!(
        "{title}: in a run\n{}",
        table(&COUNTS, cells().map(counts))
    ));
    let hosts: Vec<Vec<String>> = cells().flat_map(hosts).collect();
    if !hosts.is_empty() {
        let head = format!(
            "{title}: in a run on each host; FALLB. calls that fell back to ordinary memory, PEAK most of \
             the pools or reserved pages in use"
        );
        all.push(format!("{}\n{}", wrapped(&head), table(&HOSTS, hosts)));
    }
    all
}

/// The whole text for the terminal.
pub fn text(summary: &Summary) -> String {
    let words = summary.words();
    let less_column = words.less_column.to_uppercase();
    let mut all: Vec<String> = summary
        .jobs()
        .into_iter()
        .flat_map(|one| job(summary, one))
        .collect();
    let scaled = summary.scaling().into_iter();
    all.extend(scaled.map(|workload| scaling(summary, workload)));
    if !summary.comparisons.is_empty() {
        let has_paper = summary.has_paper();
        let has_hosts = summary.has_hosts();
        let mut columns: Vec<Column> = has_hosts.then_some(Number("NODES")).into_iter().collect();
        columns.extend([
            Text("BESIDE"),
            Text("WITH"),
            Text("WORKLOAD"),
            Number(&less_column),
        ]);
        columns.extend(has_paper.then_some(Number("PAPER %")));
        let rows = summary.comparisons.iter();
        let rows = rows.map(|one| compared(one, has_paper, has_hosts));
        all.push(format!(
            "HPMMAP beside the others: {}\n{}",
            words.less,
            table(&columns, rows)
        ));
        if has_paper {
            all.push(wrapped(PAPER_NOTE));
        }
    }
    all.extend(claims(summary));
    if summary.emulated && summary.has_hosts() {
        all.push(wrapped(EMULATED_NODES_NOTE));
    }
    all.extend(summary.verdicts().iter().map(|verdict| wrapped(verdict)));
    if summary.emulated && !summary.parameters.icount {
        all.push(wrapped(EMULATED_NOTE));
    }
    if summary.parameters.icount {
        all.push(wrapped(COUNTED_NOTE));
    }
    if summary.parameters.repetitions == 1 {
        all.push("One round: there are no intervals.".into());
    } else if summary
        .cells
        .iter()
        .any(|one| one.cell.neighbour != Profile::None)
    {
        all.push("In brackets: 95 % confidence intervals.".into());
    }
    let mut left_out: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in &summary.left_out {
        let cells = left_out.entry(&one.reason).or_default();
        cells.push(one.cell.to_string());
    }
    for (reason, cells) in left_out {
        all.push(wrapped(&format!(
            "Left out: {}: {reason}",
            cells.join(", ")
        )));
    }
    for one in &summary.failures {
        all.push(format!(
            "FAILED: run {} ({}): {}",
            one.run, one.cell, one.error
        ));
    }
    if summary.ended < summary.planned {
        all.push(format!(
            "{} of {} runs have ended.",
            summary.ended, summary.planned
        ));
    }
    all.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colocation::record::LeftOut;
    use crate::colocation::record::tests::plan;
    use crate::colocation::summary::tests::{of_two_hosts, summary, with_memory};

    #[test]
    fn parts_are_per_cent_with_a_sign() {
        assert_eq!(percent(0.0125), "+1.25");
        assert_eq!(percent(-0.000_001), "+0.00");
        let estimate = Estimate {
            value: 0.1,
            interval: Some((0.05, 0.15)),
        };
        assert_eq!(percent_of(Some(estimate)), "+10.00 [+5.00, +15.00]");
        assert_eq!(percent_of(None), "");
    }

    #[test]
    fn a_study_fits_on_a_terminal() {
        let text = text(&summary());
        let widest = text.lines().max_by_key(|line| line.len()).unwrap();
        assert!(widest.len() <= 80, "{widest}");
        for part in [
            "lammps: runtimes",
            "thp      a          3   15.000  0.000   0.000  +50.00 [+50.00, +50.00]",
            "hpmmap   a          +1.00 [+1.00, +1.00]   +1.00    +0.00   +0.00  +0.00  +19.00",
            "a       thp   mean of all                   +20.00   +15.00",
            "+15.00",
            "In brackets",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("emulated"), "{text}");
    }

    #[test]
    fn pages_and_stalls_come_first_and_fit() {
        let text = text(&with_memory());
        let widest = text.lines().max_by_key(|line| line.len()).unwrap();
        assert!(widest.len() <= 80, "{widest}");
        let row = "thp      a            3  20.0  200.0   5.0   20    256      0        0";
        assert!(text.contains(row), "{row} is not in\n{text}");
        assert!(text.find("P99") < text.find("SECONDS"), "{text}");
        assert!(text.contains("THP fell back"), "{text}");
    }

    #[test]
    fn counted_instructions_have_no_parts_and_no_paper() {
        let mut summary = summary();
        summary.parameters.icount = true;
        for one in &mut summary.comparisons {
            one.paper_reduction = None;
        }
        let text = text(&summary);
        let widest = text.lines().max_by_key(|line| line.len()).unwrap();
        assert!(widest.len() <= 80, "{widest}");
        assert!(text.contains("GROWTH %") && text.contains("FEWER %"));
        for part in ["KERNEL", "PAPER", "SECONDS"] {
            assert!(!text.contains(part), "{part} is in\n{text}");
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut summary = summary();
        summary.ended -= 1;
        for run in &plan().runs[..2] {
            summary.left_out.push(LeftOut {
                cell: run.cell,
                reason: "no".into(),
            });
        }
        summary.emulated = true;
        let text = text(&summary);
        assert!(text.contains("23 of 24 runs have ended."), "{text}");
        assert!(text.contains("no TLB"), "{text}");
        assert_eq!(text.matches("Left out: ").count(), 1, "{text}");
    }

    #[test]
    fn several_machines_have_tables_each_and_the_papers_claims() {
        let mut summary = of_two_hosts();
        summary.emulated = true;
        let text = text(&summary);
        let widest = text.lines().max_by_key(|line| line.len()).unwrap();
        assert!(widest.len() <= 80, "{widest}");
        for part in [
            "lammps on 2 nodes: runtimes",
            "hpmmap   c       n2     10.000     100                      2     3.0",
            "lammps: seconds on so many nodes",
            "hpmmap   none    10.000  11.000  +10.00 [+10.00, +10.00]",
            "    2  c       thp   lammps ",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "InfiniBand: HPMMAP best, by more the more nodes. Here,",
            "THP: +16.7 % on 1, +15.4 % on 2.",
            "gives no numbers",
            "A network of emulated machines",
        ] {
            assert!(words(&text).contains(part), "{part} is not in\n{text}");
        }
        // Also of programs that the paper does not have.
        summary.comparisons.clear();
        let text = super::text(&summary);
        assert!(!words(&text).contains("gives no numbers"), "{text}");
        assert!(
            words(&text).contains("A network of emulated machines"),
            "{text}"
        );
    }
}
