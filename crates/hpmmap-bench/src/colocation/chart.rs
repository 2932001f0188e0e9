//! The charts of a study.

use hpmmap_base::error::{Error, Result};
use hpmmap_picture::FONT;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::cell_summary::CellSummary;
use super::plan::{Manager, Profile, Workload};
use super::statistics::Estimate;
use super::summary::{JobKind, Summary};

const WIDTH: u32 = 1080;
const HEIGHT: u32 = 380;
/// The goal: an added slowdown caused by memory management stays below this.
const GOAL: f64 = 0.02;
/// The highest bar: an axis has few marks, however long it is, but their numbers must differ.
const MOST: f64 = 1e10;

/// Colours that colour-blind people can tell apart.
fn colour(manager: Manager) -> RGBColor {
    match manager {
        Manager::Small => RGBColor(0x88, 0x88, 0x88),
        Manager::Thp => RGBColor(0xe6, 0x9f, 0x00),
        Manager::Hugetlb => RGBColor(0x56, 0xb4, 0xe9),
        Manager::HugetlbPopulate => RGBColor(0x00, 0x9e, 0x73),
        Manager::Hpmmap => RGBColor(0x00, 0x72, 0xb2),
    }
}

/// A bar, its interval, and single values.
struct Bar {
    manager: Manager,
    value: f64,
    interval: Option<(f64, f64)>,
    points: Vec<f64>,
}

/// Bars in named groups.
struct Panel {
    title: String,
    groups: Vec<(String, Vec<Bar>)>,
    goal: Option<f64>,
}

type Drawn<B> = std::result::Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

impl Bar {
    /// Removes what cannot be drawn: quotients of tiny times may be huge or not numbers.
    fn bounded(mut self) -> Option<Self> {
        let fits = |value: &f64| (-MOST..=MOST).contains(value);
        self.interval = self.interval.filter(|(low, high)| fits(low) && fits(high));
        self.points.retain(fits);
        fits(&self.value).then_some(self)
    }
}

/// Ends of an axis that includes all values and zero.
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
        .caption(&panel.title, (FONT, 17))
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
    job: JobKind,
    title: &str,
    goal: Option<f64>,
    bar: impl Fn(&CellSummary) -> Option<Bar>,
) -> Panel {
    let group = |&neighbour: &Profile| {
        let cells = summary.cells_of(job).into_iter();
        let bars: Vec<Bar> = cells
            .filter(|one| one.cell.neighbour == neighbour)
            .filter_map(&bar)
            .filter_map(Bar::bounded)
            .collect();
        (!bars.is_empty()).then_some((beside(neighbour), bars))
    };
    Panel {
        title: title.into(),
        groups: summary
            .parameters
            .neighbours
            .iter()
            .filter_map(group)
            .collect(),
        goal,
    }
}

fn beside(neighbour: Profile) -> String {
    match neighbour {
        Profile::None => "alone".to_string(),
        _ => format!("beside {}", neighbour.title()),
    }
}

/// A bar for the runtime.
fn cost_bar(one: &CellSummary) -> Bar {
    let seconds = &one.seconds;
    let interval = |half| (seconds.mean - half, seconds.mean + half);
    Bar {
        manager: one.cell.manager,
        value: seconds.mean,
        interval: seconds.half_width.map(interval),
        points: one.values.clone(),
    }
}

/// One or two panels, as SVG.
fn svg(summary: &Summary, panels: &[Panel]) -> Result<String> {
    hpmmap_picture::use_font()?;
    let mut svg = String::new();
    let draw_all = |svg: &mut String| {
        let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
        area.fill(&WHITE)?;
        let (top, below) = area.split_vertically(26);
        legend(&top, &summary.parameters.managers)?;
        match panels {
            [] => (),
            [one] => draw(&below, one)?,
            [one, other, ..] => {
                let (left, right) = below.split_horizontally(WIDTH / 2);
                draw(&left, one)?;
                draw(&right, other)?;
            }
        }
        area.present()
    };
    draw_all(&mut svg).map_err(|error| Error::Failed(format!("cannot draw: {error}")))?;
    Ok(svg)
}

/// The chart of a workload on this many machines, as SVG.
pub fn chart(summary: &Summary, job: JobKind) -> Result<String> {
    let runtimes = panel(summary, job, summary.words().cost_axis, None, |one| {
        Some(cost_bar(one))
    });
    let memory = panel(
        summary,
        job,
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
    let mut panels = vec![runtimes, memory];
    panels.retain(|panel| !panel.groups.is_empty());
    svg(summary, &panels)
}

/// Runtimes of a workload by the number of machines, as SVG: alone, and beside the last neighbour.
pub fn scaling(summary: &Summary, workload: Workload) -> Result<String> {
    let scales = summary.scales(workload);
    let mut neighbours: Vec<Profile> = scales.iter().map(|one| one.neighbour).collect();
    neighbours.dedup();
    let panel = |&neighbour: &Profile| {
        let group = |&nodes: &u32| {
            let of_neighbour = scales.iter().filter(|one| one.neighbour == neighbour);
            let cells = of_neighbour.flat_map(|one| &one.cells);
            let cells = cells.filter(|one| one.cell.nodes == nodes);
            let bars: Vec<Bar> = cells.filter_map(|one| cost_bar(one).bounded()).collect();
            let name = match nodes {
                1 => "1 node".to_string(),
                nodes => format!("{nodes} nodes"),
            };
            (!bars.is_empty()).then_some((name, bars))
        };
        let nodes = summary.parameters.nodes.iter();
        Panel {
            title: format!("{}, {}", summary.words().cost_axis, beside(neighbour)),
            groups: nodes.filter_map(group).collect(),
            goal: None,
        }
    };
    let ends = [neighbours.first(), neighbours.last()];
    let mut shown: Vec<&Profile> = ends.into_iter().flatten().collect();
    shown.dedup();
    let panels: Vec<Panel> = shown.into_iter().map(panel).collect();
    svg(summary, &panels)
}

/// All charts, with the names of their files.
pub fn charts(summary: &Summary) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for job in summary.jobs() {
        let name = job.workload.name();
        let name = match summary.has_hosts() {
            true => format!("{name}-{}", job.nodes),
            false => name.to_string(),
        };
        all.push((name, chart(summary, job)?));
    }
    for workload in summary.scaling() {
        let name = format!("{}-nodes", workload.name());
        all.push((name, scaling(summary, workload)?));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(tick(-1e-12), "0.0");
        assert_eq!(tick(-0.06), "-0.1");
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
            title: "x".into(),
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

    #[test]
    fn several_machines_have_a_chart_each_and_one_of_how_it_scales() {
        let summary = crate::colocation::summary::tests::of_two_hosts();
        let charts = charts(&summary).unwrap();
        let names: Vec<&str> = charts.iter().map(|(name, _)| name.as_str()).collect();
        let want = "lammps-1 lammps-2 minicg-1 minicg-2 lammps-nodes minicg-nodes";
        assert_eq!(names.join(" "), want);
        let scaling = &charts[4].1;
        for part in ["Runtime, seconds, alone", "beside C", "1 node", "2 nodes"] {
            assert!(scaling.contains(part), "{part}");
        }
    }
}
