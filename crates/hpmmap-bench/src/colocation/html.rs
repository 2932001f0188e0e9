//! A study as one file for a browser: `templates/colocation.html`.

use std::fmt;

use askama::Template;
use askama::filters::Escaper;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::escape;
use hpmmap_base::size::short;
use hpmmap_host::number_list;

use super::cell_summary::{CellSummary, HostSummary};
use super::chart;
use super::paper::{CLAIMS_NOTE, PAPER_NOTE};
use super::plan::{Parameters, Workload};
use super::record::Run;
use super::summary::{COUNTED_NOTE, EMULATED_NODES_NOTE, EMULATED_NOTE, JobKind, Summary, Words};
use super::text::{
    host_cells, memory_cells, or_empty, paper_cell, part_cells, percent_of, reduction, stalls,
};

/// The filter for values in the templates, see askama.toml: text that is not plain is shown, not
/// executed.
#[derive(Clone, Copy)]
pub struct Visible;

impl Escaper for Visible {
    fn write_escaped_str<W: fmt::Write>(&self, mut to: W, text: &str) -> fmt::Result {
        to.write_str(&escape::xml(text))
    }
}

#[derive(Template)]
#[template(path = "colocation.html")]
struct Page<'a> {
    summary: &'a Summary,
    parameters: &'a Parameters,
    words: &'a Words,
    verdicts: Vec<String>,
    workloads: Vec<Part>,
    scaling: Vec<Scaling>,
    comparisons: Option<Table>,
    claims: Option<Table>,
    facts: Table,
    runs: Option<Table>,
}

/// A workload on several numbers of machines.
struct Scaling {
    name: &'static str,
    /// SVG.
    chart: String,
    times: Table,
}

/// A workload.
struct Part {
    name: String,
    /// SVG.
    chart: String,
    /// Does the chart have the line of the goal?
    has_goal: bool,
    memory: Option<Table>,
    costs: Table,
    parts: Option<Table>,
    counts: Table,
    hosts: Option<Table>,
}

/// A heading, and whether the column has numbers, aligned to the right.
type Column = (String, bool);

fn texts(head: &[&str]) -> Vec<Column> {
    head.iter().map(|&title| (title.into(), false)).collect()
}

fn numbers(head: &[&str]) -> Vec<Column> {
    head.iter().map(|&title| (title.into(), true)).collect()
}

struct Table {
    head: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Page<'_> {
    fn version(&self, name: &str) -> &str {
        self.summary
            .versions
            .get(name)
            .map_or("none", String::as_str)
    }

    /// Its whole memory, in units for people.
    fn machine_memory(&self) -> Option<String> {
        let text = self.summary.machine.get("memory")?;
        let kilobytes: u64 = text.strip_suffix(" kB")?.trim().parse().ok()?;
        Some(short(kilobytes.checked_mul(1024)?))
    }

    /// The places where it ran.
    fn places(&self) -> String {
        let ranks = match self.parameters.ranks {
            1 => "1 rank".to_string(),
            ranks => format!("{ranks} ranks"),
        };
        let cpus = |cpus: &[u32]| match cpus {
            [one] => format!("CPU {one}"),
            all => format!("the CPUs {}", number_list::format(all)),
        };
        let others = match &self.parameters.other_cpus[..] {
            [] => "no other CPU".to_string(),
            others => format!("beside it {}", cpus(others)),
        };
        let places = format!("{ranks} on {}, {others}", cpus(&self.parameters.rank_cpus));
        match &self.parameters.hosts[..] {
            [] => places,
            hosts => format!("on each of {}: {places}", hosts.join(", ")),
        }
    }
}

impl Table {
    /// `None` without rows.
    fn or_none(self) -> Option<Self> {
        (!self.rows.is_empty()).then_some(self)
    }

    /// Each row begins with the names of its combination.
    fn of_cells<'a>(
        head: &[&str],
        cells: impl IntoIterator<Item = (&'a CellSummary, Vec<String>)>,
    ) -> Self {
        let rows = cells.into_iter().map(|(one, values)| {
            let names = [one.cell.manager.title(), one.cell.neighbour.title()];
            names.map(String::from).into_iter().chain(values).collect()
        });
        Self {
            head: [texts(&["Manager", "Beside"]), numbers(head)].concat(),
            rows: rows.collect(),
        }
    }
}

fn costs(words: &Words, cells: &[&CellSummary]) -> Table {
    Table::of_cells(
        &[
            "Runs",
            words.cost_column,
            "± (95 %)",
            "Stddev",
            words.growth_column,
        ],
        cells.iter().map(|&one| {
            let values = vec![
                one.seconds.n.to_string(),
                format!("{:.3}", one.seconds.mean),
                or_empty(one.seconds.half_width, 3),
                or_empty(one.seconds.stddev, 3),
                percent_of(one.slowdown),
            ];
            (one, values)
        }),
    )
}

fn memory(cells: &[&CellSummary]) -> Table {
    Table::of_cells(
        &[
            "Page faults",
            "First touch: 99 % below",
            "worst",
            "Call: worst",
            "All touches and calls",
            "MB in 4 KB pages",
            "in huge pages",
            "in HPMMAP's blocks",
        ],
        cells
            .iter()
            .filter_map(|&one| Some((one, memory_cells(one)?.into()))),
    )
}

fn parts(cells: &[&CellSummary]) -> Table {
    let beside = cells.iter().filter_map(|&one| Some((one, one.parts?)));
    Table::of_cells(
        &[
            "Memory management",
            "Kernel",
            "Blocked",
            "Asleep",
            "Waiting for a CPU",
            "User mode",
        ],
        beside.map(|(one, parts)| (one, part_cells(&parts).into())),
    )
}

fn counts(cells: &[&CellSummary]) -> Table {
    let counter = |one: &CellSummary, name: &str| or_empty(one.vmstat.get(name).copied(), 0);
    Table::of_cells(
        &[
            "Faults",
            "After start-up",
            "In the pools",
            "Major",
            "Fallbacks",
            "Builds",
            "Stalls",
            "Huge pages",
            "not had",
            "Merged",
            "Major (all)",
        ],
        cells.iter().map(|&one| {
            let values = vec![
                format!("{:.0}", one.faults),
                or_empty(one.late_faults, 0),
                or_empty(one.pool_faults, 0),
                format!("{:.0}", one.major_faults),
                or_empty(one.fallbacks, 0),
                format!("{:.1}", one.builds),
                format!("{:.0}", stalls(one)),
                counter(one, "thp_fault_alloc"),
                counter(one, "thp_fault_fallback"),
                counter(one, "thp_collapse_alloc"),
                counter(one, "pgmajfault"),
            ];
            (one, values)
        }),
    )
}

fn hosts(cells: &[&CellSummary]) -> Table {
    let rows = cells.iter().flat_map(|&cell| {
        let names = [cell.cell.manager.title(), cell.cell.neighbour.title()];
        let row = move |one: &HostSummary| {
            let names = names.map(String::from).into_iter();
            let figures = host_cells(one).into_iter();
            names
                .chain([one.host.clone()])
                .chain(figures)
                .chain([format!("{:.0}", one.stalls)])
                .collect()
        };
        cell.hosts.iter().map(row)
    });
    let figures = [
        "Seconds",
        "Faults",
        "After start-up",
        "Fallbacks",
        "Peak of pools, MB",
        "Builds",
        "Stalls",
    ];
    Table {
        head: [texts(&["Manager", "Beside", "Host"]), numbers(&figures)].concat(),
        rows: rows.collect(),
    }
}

fn workload_part(summary: &Summary, job: JobKind) -> Result<Part> {
    let cells = summary.cells_of(job);
    Ok(Part {
        name: summary.title(job),
        chart: chart::chart(summary, job)?,
        has_goal: cells.iter().any(|one| one.parts.is_some()),
        memory: memory(&cells).or_none(),
        costs: costs(summary.words(), &cells),
        parts: (!summary.parameters.icount)
            .then(|| parts(&cells).or_none())
            .flatten(),
        counts: counts(&cells),
        hosts: hosts(&cells).or_none(),
    })
}

fn scaling(summary: &Summary, workload: Workload) -> Result<Scaling> {
    let nodes = &summary.parameters.nodes;
    let on: Vec<String> = nodes.iter().map(|n| format!("On {n}")).collect();
    let on: Vec<&str> = on.iter().map(String::as_str).collect();
    let rows = summary.scales(workload).into_iter().map(|scale| {
        let names = [scale.manager.title(), scale.neighbour.title()].map(String::from);
        let times = nodes.iter().map(|&n| or_empty(scale.seconds(n), 3));
        let growth = percent_of(scale.growth());
        names.into_iter().chain(times).chain([growth]).collect()
    });
    Ok(Scaling {
        name: workload.name(),
        chart: chart::scaling(summary, workload)?,
        times: Table {
            head: [
                texts(&["Manager", "Beside"]),
                numbers(&on),
                numbers(&["Growth %"]),
            ]
            .concat(),
            rows: rows.collect(),
        },
    })
}

fn claims(summary: &Summary) -> Table {
    let rows = summary.claims().into_iter().map(|(claim, found)| {
        vec![
            format!("{} ({})", claim.program, claim.workload.name()),
            claim.neighbour.title().into(),
            claim.ethernet.into(),
            claim.infiniband.into(),
            found,
        ]
    });
    Table {
        head: texts(&[
            "Program",
            "Beside",
            "Paper, Ethernet (fig. 9)",
            "Paper, InfiniBand (fig. 10)",
            "Here: less time with HPMMAP than with",
        ]),
        rows: rows.collect(),
    }
}

fn comparisons(summary: &Summary) -> Table {
    let has_paper = summary.has_paper();
    let has_hosts = summary.has_hosts();
    let mut head = texts(&["Beside", "With", "Workload"]);
    head.splice(0..0, has_hosts.then(|| ("Nodes".into(), true)));
    head.extend(numbers(&[summary.words().less_column]));
    head.extend(has_paper.then(|| ("Paper, %".into(), true)));
    let rows = summary.comparisons.iter().map(|one| {
        let mut row = vec![
            one.neighbour.title().into(),
            one.peer.title().into(),
            one.workload.map_or("mean of all", Workload::name).into(),
            percent_of(Some(reduction(one))),
        ];
        row.splice(0..0, has_hosts.then(|| one.nodes.to_string()));
        row.extend(has_paper.then(|| paper_cell(one)));
        row
    });
    Table {
        head,
        rows: rows.collect(),
    }
}

fn facts(summary: &Summary) -> Table {
    let facts = summary.versions.iter().chain(&summary.machine);
    Table {
        head: texts(&["What", "Value"]),
        rows: facts
            .map(|(name, value)| vec![name.clone(), value.clone()])
            .collect(),
    }
}

fn all_runs(summary: &Summary, runs: &[Run]) -> Table {
    let icount = summary.parameters.icount;
    let mut head = numbers(&["Run", "Round"]);
    head.extend(texts(&["Workload", "Manager", "Beside"]));
    head.extend(summary.has_hosts().then(|| ("Nodes".into(), true)));
    head.extend(numbers(&[summary.words().cost_column]));
    // If the clock counts instructions, other columns are times of a clock that leaps.
    if !icount {
        head.extend(numbers(&["Loop", "User", "Kernel", "Waiting", "Blocked"]));
    }
    let rows = runs.iter().map(|run| {
        let cell = run.planned.cell;
        let mut row = vec![
            run.planned.run.to_string(),
            (run.planned.repetition + 1).to_string(),
            cell.workload.name().into(),
            cell.manager.title().into(),
            cell.neighbour.title().into(),
        ];
        row.extend(summary.has_hosts().then(|| cell.nodes.to_string()));
        match &run.figures {
            None => row.push("failed".into()),
            Some(one) => {
                row.push(format!("{:.3}", one.cost(icount)));
                if !icount {
                    row.push(or_empty(one.loop_seconds, 3));
                    let times = [
                        one.user_seconds,
                        one.system_seconds,
                        one.wait_seconds,
                        one.blocked_seconds,
                    ];
                    row.extend(times.map(|time| format!("{time:.3}")));
                }
            }
        }
        row
    });
    Table {
        head,
        rows: rows.collect(),
    }
}

/// The whole report.
pub fn report(summary: &Summary, runs: &[Run]) -> Result<String> {
    let jobs = summary.jobs().into_iter();
    let scaled = summary.scaling().into_iter();
    let page = Page {
        summary,
        parameters: &summary.parameters,
        words: summary.words(),
        verdicts: summary.verdicts(),
        workloads: jobs
            .map(|one| workload_part(summary, one))
            .collect::<Result<_>>()?,
        scaling: scaled
            .map(|one| scaling(summary, one))
            .collect::<Result<_>>()?,
        comparisons: comparisons(summary).or_none(),
        claims: claims(summary).or_none(),
        facts: facts(summary),
        runs: all_runs(summary, runs).or_none(),
    };
    page.render()
        .map_err(|error| Error::Failed(format!("cannot write the report: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colocation::plan::Profile;
    use crate::colocation::record::tests::{plan, run};
    use crate::colocation::summary::tests::{of_two_hosts, summary, with_memory};

    #[test]
    fn the_report_needs_nothing_but_itself() {
        let summary = summary();
        let runs = [run(plan().runs[0], 10.0, 1.0)];
        let html = report(&summary, &runs).unwrap();
        assert_eq!(html.matches("<svg").count(), 2);
        for part in [
            "<h2>minicg: runtimes</h2>",
            "HPMMAP",
            "beside A",
            "+20.00",
            "hpmmap bench colocation",
        ] {
            assert!(html.contains(part), "{part}");
        }
        for outside in ["<script", "src=", "<link", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn only_columns_of_numbers_stand_right() {
        let mut summary = with_memory();
        summary.versions.insert("x".into(), "6.12".into());
        summary.machine.insert("memory".into(), "2097152 kB".into());
        let html = report(&summary, &[run(plan().runs[0], 10.0, 1.0)]).unwrap();
        for part in [
            "<td>THP</td>",
            "<td>6.12</td>",
            "<th class=n>Page faults</th>",
            "<td class=n>20.0</td>",
            "Red line: 2 %, which is",
            "faults, stalls and pages</h2>",
            "THP fell back",
            "1 rank on CPU 0, beside it CPU 1;",
            "256M of memory for the job of the machine's 2G;",
            "<li>A: a parallel build beside it</li>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<tbody>\n</tbody>"), "{html}");
    }

    #[test]
    fn what_there_is_not_has_no_table_and_no_line() {
        let mut summary = summary();
        summary
            .cells
            .retain(|one| one.cell.neighbour == Profile::None);
        summary.comparisons.clear();
        summary.parameters.other_cpus.clear();
        summary.parameters.ranks = 2;
        summary.parameters.rank_cpus = vec![0, 1];
        summary.ended = 1;
        let html = report(&summary, &[]).unwrap();
        for absent in [
            "<tbody>\n</tbody>",
            "Red line",
            "beside the others",
            "All runs",
            "[]",
        ] {
            assert!(!html.contains(absent), "{absent} is in {html}");
        }
        assert!(
            html.contains("2 ranks on the CPUs 0-1, no other CPU;"),
            "{html}"
        );
        assert!(html.contains("was not run to its end"), "{html}");
    }

    #[test]
    fn what_came_from_outside_is_shown_and_does_nothing() {
        let mut summary = summary();
        summary
            .versions
            .insert("kernel".into(), "<b>&\x1b[2J\u{202e}".into());
        summary.redo = "'x' \"<i>\"\n".into();
        let html = report(&summary, &[]).unwrap();
        for (shown, times) in [
            (r"&lt;b&gt;&amp;\x1b[2J\u{202e}", 2),
            (r"&#39;x&#39; &quot;&lt;i&gt;&quot;\n", 1),
        ] {
            assert_eq!(html.matches(shown).count(), times, "{html}");
        }
        let acts = |c: char| c.is_control() && c != '\n';
        assert!(!html.contains(acts) && !html.contains("<b>") && !html.contains("<i>"));
    }

    #[test]
    fn several_machines_are_shown_each_and_together() {
        let mut summary = of_two_hosts();
        summary.emulated = true;
        let html = report(&summary, &[run(plan().runs[0], 10.0, 1.0)]).unwrap();
        // Two programs, on one and on two hosts, and their scaling.
        assert_eq!(html.matches("<svg").count(), 2 * 3);
        for part in [
            "on each of n1, n2: 1 rank on CPU 0",
            "256M of memory for the job on each",
            "<h2>minicg on 2 nodes: runtimes</h2>",
            "<td>n2</td><td class=n>12.000</td><td class=n>100</td>",
            "<th class=n>Peak of pools, MB</th>",
            "<h2>lammps: how it scales</h2>",
            "<th class=n>On 2</th><th class=n>Growth %</th>",
            "<td>LAMMPS (lammps)</td><td>C</td>",
            "<td>THP: +16.7 % on 1, +15.4 % on 2</td>",
            "A network of emulated machines",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }
}
