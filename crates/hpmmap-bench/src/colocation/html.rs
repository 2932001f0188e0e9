//! A study as one file for a browser, and its charts.

use std::fmt::Write as _;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::escape;
use hpmmap_base::size::short;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use super::plan::{Manager, Profile, Workload};
use super::record::Run;
use super::statistics::Estimate;
use super::summary::{COUNTED_NOTE, CellSummary, EMULATED_NOTE, PAPER_NOTE, Summary};
use super::text::{or_empty, paper_cell, part_cells, percent_of, reduction, stalls};

const WIDTH: u32 = 1080;
const HEIGHT: u32 = 380;
const FONT: &str = "sans-serif";
/// What an added slowdown of memory-management origin is to stay below.
const GOAL: f64 = 0.02;
/// No bar is higher: an axis has few marks, however long it is, but of numbers
/// that can be told apart.
const MOST: f64 = 1e10;

/// Colours that people who do not see all of them can tell apart.
fn colour(manager: Manager) -> RGBColor {
    match manager {
        Manager::Small => RGBColor(0x88, 0x88, 0x88),
        Manager::Thp => RGBColor(0xe6, 0x9f, 0x00),
        Manager::Hugetlb => RGBColor(0x56, 0xb4, 0xe9),
        Manager::Hpmmap => RGBColor(0x00, 0x72, 0xb2),
    }
}

/// A bar, what it varies by, and single values.
struct Bar {
    manager: Manager,
    value: f64,
    interval: Option<(f64, f64)>,
    points: Vec<f64>,
}

/// Bars in groups with a name each.
struct Panel {
    title: &'static str,
    groups: Vec<(String, Vec<Bar>)>,
    goal: Option<f64>,
}

type Drawn<B> = std::result::Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

impl Bar {
    /// Only what can be drawn: quotients of tiny times may be of any size, or
    /// no numbers.
    fn bounded(mut self) -> Option<Self> {
        let fits = |value: &f64| (-MOST..=MOST).contains(value);
        self.interval = self.interval.filter(|(low, high)| fits(low) && fits(high));
        self.points.retain(fits);
        fits(&self.value).then_some(self)
    }
}

/// Ends of an axis that holds everything, zero too.
fn range(panel: &Panel) -> (f64, f64) {
    let bars = panel.groups.iter().flat_map(|(_, bars)| bars);
    let values = bars.flat_map(|bar| {
        let (low, high) = bar.interval.unwrap_or((bar.value, bar.value));
        bar.points.iter().copied().chain([low, high, bar.value])
    });
    let all = values.chain(panel.goal.map(|goal| goal * 1.2));
    let (low, high) = all.fold((0.0f64, 0.0f64), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    let margin = ((high - low) * 0.08).max(1e-6);
    (if low < 0.0 { low - margin } else { 0.0 }, high + margin)
}

/// A label of an axis.
fn tick(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.as_str() {
        "-0.0" => "0.0".into(),
        _ => text,
    }
}

fn draw<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panel: &Panel) -> Drawn<B> {
    let (low, high) = range(panel);
    let mut context = ChartBuilder::on(area)
        .caption(panel.title, (FONT, 17))
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..panel.groups.len() as f64, low..high)?;
    context
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .light_line_style(TRANSPARENT)
        .label_style((FONT, 13))
        .y_label_formatter(&|y| match panel.goal {
            Some(_) => tick(y * 100.0),
            None => tick(*y),
        })
        .draw()?;
    let centred = (FONT, 14)
        .into_text_style(area)
        .pos(Pos::new(HPos::Center, VPos::Top));
    for (n, (name, bars)) in panel.groups.iter().enumerate() {
        let width = 0.8 / bars.len().max(1) as f64;
        for (at, bar) in bars.iter().enumerate() {
            let left = n as f64 + 0.1 + width * at as f64;
            let right = left + width * 0.9;
            let middle = (left + right) / 2.0;
            let fill = colour(bar.manager).mix(0.75).filled();
            context.draw_series([Rectangle::new([(left, 0.0), (right, bar.value)], fill)])?;
            let points = bar.points.iter();
            context.draw_series(
                points.map(|&y| Circle::new((middle, y), 2, BLACK.mix(0.45).filled())),
            )?;
            if let Some((from, to)) = bar.interval {
                let cap = width * 0.2;
                let lines = [
                    [(middle, from), (middle, to)],
                    [(middle - cap, from), (middle + cap, from)],
                    [(middle - cap, to), (middle + cap, to)],
                ];
                context
                    .draw_series(lines.map(|line| PathElement::new(line, BLACK.stroke_width(1))))?;
            }
        }
        let (x, _) = context.backend_coord(&(n as f64 + 0.5, low));
        let (base_x, _) = area.get_base_pixel();
        let y = area.dim_in_pixel().1 as i32 - 34;
        area.draw(&Text::new(name.as_str(), (x - base_x, y), centred.clone()))?;
    }
    let ends = |y| [(0.0, y), (panel.groups.len() as f64, y)];
    context.draw_series([PathElement::new(ends(0.0), BLACK.stroke_width(1))])?;
    if let Some(goal) = panel.goal {
        context.draw_series([PathElement::new(ends(goal), RED.stroke_width(1))])?;
    }
    Ok(())
}

fn legend<B: DrawingBackend>(area: &DrawingArea<B, Shift>, managers: &[Manager]) -> Drawn<B> {
    for (n, &manager) in managers.iter().enumerate() {
        let x = 60 + 150 * n as i32;
        let fill = colour(manager).mix(0.75).filled();
        area.draw(&Rectangle::new([(x, 6), (x + 14, 20)], fill))?;
        area.draw(&Text::new(manager.title(), (x + 20, 7), (FONT, 14)))?;
    }
    Ok(())
}

fn panel(
    summary: &Summary,
    workload: Workload,
    title: &'static str,
    goal: Option<f64>,
    bar: impl Fn(&CellSummary) -> Option<Bar>,
) -> Panel {
    let group = |&neighbour: &Profile| {
        let cells = summary.cells.iter();
        let bars: Vec<Bar> = cells
            .filter(|one| (one.cell.workload, one.cell.neighbour) == (workload, neighbour))
            .filter_map(&bar)
            .filter_map(Bar::bounded)
            .collect();
        let name = match neighbour {
            Profile::None => "alone".to_string(),
            _ => format!("beside {}", neighbour.title()),
        };
        (!bars.is_empty()).then_some((name, bars))
    };
    Panel {
        title,
        groups: summary
            .parameters
            .neighbours
            .iter()
            .filter_map(group)
            .collect(),
        goal,
    }
}

/// The chart of a workload, as SVG.
pub fn chart(summary: &Summary, workload: Workload) -> Result<String> {
    let runtimes = panel(summary, workload, summary.words().cost_axis, None, |one| {
        Some(Bar {
            manager: one.cell.manager,
            value: one.seconds.mean,
            interval: one
                .seconds
                .half_width
                .map(|half| (one.seconds.mean - half, one.seconds.mean + half)),
            points: one.values.clone(),
        })
    });
    let memory = panel(
        summary,
        workload,
        "By memory management at most, % of the job alone",
        Some(GOAL),
        |one| {
            let memory: Estimate = one.parts?.memory;
            Some(Bar {
                manager: one.cell.manager,
                value: memory.value,
                interval: memory.interval,
                points: Vec::new(),
            })
        },
    );
    register_font(FONT, FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| Error::Failed("the font is broken".into()))?;
    let mut svg = String::new();
    let draw_all = |svg: &mut String| {
        let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
        area.fill(&WHITE)?;
        let (top, below) = area.split_vertically(26);
        legend(&top, &summary.parameters.managers)?;
        if memory.groups.is_empty() {
            draw(&below, &runtimes)?;
        } else {
            let (left, right) = below.split_horizontally(WIDTH / 2);
            draw(&left, &runtimes)?;
            draw(&right, &memory)?;
        }
        area.present()
    };
    draw_all(&mut svg).map_err(|error| Error::Failed(format!("cannot draw: {error}")))?;
    Ok(svg)
}

/// A table; cells that look like numbers stand right.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = String::from("<table><thead><tr>");
    for title in head {
        text += &format!("<th>{}</th>", escape::xml(title));
    }
    text += "</tr></thead><tbody>\n";
    for row in rows {
        text += "<tr>";
        for cell in row {
            let number = cell.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-');
            let class = if number { " class=n" } else { "" };
            text += &format!("<td{class}>{}</td>", escape::xml(&cell));
        }
        text += "</tr>\n";
    }
    text + "</tbody></table>\n"
}

const STYLE: &str = "body{font:15px/1.45 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}\
    h1{font-size:1.6em}h2{font-size:1.25em;margin-top:2em}table{border-collapse:collapse;margin:1em 0}\
    th,td{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:left}td.n{text-align:right;\
    font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}.note{background:#f4f1e6;\
    padding:.7em 1em;border-left:4px solid #e69f00}.bad{background:#fbeaea;border-left-color:#c00}\
    code{background:#f3f3f3;padding:.1em .3em;overflow-wrap:anywhere}";

fn parts_table(html: &mut String, cells: &[&CellSummary]) {
    let beside = cells.iter().filter_map(|one| Some((one, one.parts?)));
    *html += "<p>What the slowdown is made of, in % of the runtime alone; memory management: the \
        kernel and blocked parts together, the most that it can have caused through the kernel.</p>\n";
    *html += &table(
        &[
            "Manager",
            "Beside",
            "Memory management",
            "Kernel",
            "Blocked",
            "Asleep",
            "Waiting for a CPU",
            "User mode",
        ],
        beside.map(|(one, parts)| {
            let names = [
                one.cell.manager.title().into(),
                one.cell.neighbour.title().into(),
            ];
            let cells = part_cells(&parts);
            names.into_iter().chain(cells).collect()
        }),
    );
}

fn workload_part(html: &mut String, summary: &Summary, workload: Workload) -> Result<()> {
    let cells: Vec<&CellSummary> = summary
        .cells
        .iter()
        .filter(|one| one.cell.workload == workload)
        .collect();
    let words = summary.words();
    *html += &format!("<h2>{}: {}</h2>\n", workload.name(), words.costs);
    *html += &chart(summary, workload)?;
    *html += "<p>Bars: means; whiskers: their 95 % confidence intervals; dots: single runs; red \
        line: 2 %.</p>\n";
    *html += &table(
        &[
            "Manager",
            "Beside",
            "Runs",
            words.cost_column,
            "± (95 %)",
            "Stddev",
            words.growth_column,
        ],
        cells.iter().map(|one| {
            vec![
                one.cell.manager.title().into(),
                one.cell.neighbour.title().into(),
                one.seconds.n.to_string(),
                format!("{:.3}", one.seconds.mean),
                or_empty(one.seconds.half_width, 3),
                or_empty(one.seconds.stddev, 3),
                percent_of(one.slowdown),
            ]
        }),
    );
    if !summary.parameters.icount {
        parts_table(html, &cells);
    }
    *html += "<p>Means of a run. Faults are the job's; stalls, huge pages and reclaim are the whole \
        machine's.</p>\n";
    let counter = |one: &CellSummary, name: &str| or_empty(one.vmstat.get(name).copied(), 0);
    *html += &table(
        &[
            "Manager",
            "Beside",
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
        cells.iter().map(|one| {
            vec![
                one.cell.manager.title().into(),
                one.cell.neighbour.title().into(),
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
            ]
        }),
    );
    Ok(())
}

fn note(class: &str, text: &str) -> String {
    format!("<p class=\"{class}\">{}</p>\n", escape::xml(text))
}

/// The whole report.
pub fn report(summary: &Summary, runs: &[Run]) -> Result<String> {
    let version = |name: &str| summary.versions.get(name).map_or("none", String::as_str);
    let parameters = &summary.parameters;
    let mut html = String::from("<!DOCTYPE html>\n<html lang=en><meta charset=utf-8>\n");
    html += "<title>Co-location study</title>\n";
    html += &format!("<style>{STYLE}</style>\n<h1>Co-location study</h1>\n");
    html += &format!(
        "<p>Linux {}, HPMMAP {}; {} ranks on the CPUs {:?}, other CPUs {:?}; {} of memory for the \
         job; {} of {} runs in {} rounds.</p>\n",
        escape::xml(version("kernel")),
        escape::xml(version("module")),
        parameters.ranks,
        parameters.rank_cpus,
        parameters.other_cpus,
        short(parameters.memory_bytes),
        summary.ended,
        summary.planned,
        parameters.repetitions,
    );
    if summary.emulated {
        html += &note("note", EMULATED_NOTE);
    }
    if parameters.icount {
        html += &note("note", COUNTED_NOTE);
    }
    for one in &summary.failures {
        let text = format!("Run {} ({}) failed: {}", one.run, one.cell, one.error);
        html += &note("note bad", &text);
    }
    for one in &summary.left_out {
        html += &note("note", &format!("Left out: {}: {}", one.cell, one.reason));
    }
    for workload in summary.workloads() {
        workload_part(&mut html, summary, workload)?;
    }
    if !summary.comparisons.is_empty() {
        let words = summary.words();
        let has_paper = summary.has_paper();
        let mut head = vec!["Beside", "With", "Workload", words.less_column];
        head.extend(has_paper.then_some("Paper, %"));
        html += &format!("<h2>HPMMAP beside the others: {}</h2>\n", words.less);
        html += &table(
            &head,
            summary.comparisons.iter().map(|one| {
                let mut row = vec![
                    one.neighbour.title().into(),
                    one.peer.title().into(),
                    one.workload.map_or("mean of all", Workload::name).into(),
                    percent_of(Some(reduction(one))),
                ];
                row.extend(has_paper.then(|| paper_cell(one)));
                row
            }),
        );
        if has_paper {
            html += &format!("<p>{}</p>\n", escape::xml(PAPER_NOTE));
        }
    }
    html += "<h2>How to do it again</h2>\n";
    html += &format!("<p><code>{}</code></p>\n", escape::xml(&summary.redo));
    let facts = summary.versions.iter().chain(&summary.machine);
    html += &table(
        &["What", "Value"],
        facts.map(|(name, value)| vec![name.clone(), value.clone()]),
    );
    html += "<h2>All runs, in order</h2>\n";
    let mut head = vec!["Run", "Round", "Workload", "Manager", "Beside"];
    head.push(summary.words().cost_column);
    // Where the clock counts instructions the others are times of one that leaps.
    if !parameters.icount {
        head.extend(["Loop", "User", "Kernel", "Waiting", "Blocked"]);
    }
    html += &table(
        &head,
        runs.iter().map(|run| {
            let cell = run.planned.cell;
            let mut row = vec![
                run.planned.run.to_string(),
                (run.planned.repetition + 1).to_string(),
                cell.workload.name().into(),
                cell.manager.title().into(),
                cell.neighbour.title().into(),
            ];
            match &run.figures {
                None => row.push("failed".into()),
                Some(one) => {
                    row.push(format!("{:.3}", one.cost(parameters.icount)));
                    if !parameters.icount {
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
        }),
    );
    writeln!(html, "</html>").expect("writing to a String cannot fail");
    Ok(html)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colocation::record::tests::{plan, run};
    use crate::colocation::summary::tests::summary;

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(tick(-1e-12), "0.0");
        assert_eq!(tick(-0.06), "-0.1");
    }

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
    fn what_came_from_outside_is_escaped() {
        let mut summary = summary();
        summary.versions.insert("kernel".into(), "<b>&".into());
        let html = report(&summary, &[]).unwrap();
        assert!(
            html.contains("&lt;b&gt;&amp;") && !html.contains("<b>"),
            "{html}"
        );
    }

    #[test]
    fn an_axis_holds_zero_and_everything() {
        let bar = |value, interval| Bar {
            manager: Manager::Thp,
            value,
            interval,
            points: vec![3.0],
        };
        let mut panel = Panel {
            title: "x",
            groups: vec![("a".into(), vec![bar(1.0, Some((-1.0, 2.0)))])],
            goal: None,
        };
        let (low, high) = range(&panel);
        assert!(low < -1.0 && high > 3.0, "{low} {high}");
        panel.groups[0].1 = vec![bar(1.0, None)];
        assert_eq!(range(&panel).0, 0.0);
        for value in [f64::NAN, f64::INFINITY, 1e300, -1e11] {
            assert!(bar(value, None).bounded().is_none());
            let bounded = bar(1.0, Some((0.0, value))).bounded().unwrap();
            assert!(bounded.interval.is_none());
        }
    }
}
