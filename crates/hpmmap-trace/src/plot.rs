//! Draws faults as points: the cost of each over the time of the run, with a panel for each rank
//! or process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::{escape, safe_files};
use hpmmap_bpf::{Kind, Stall};
use hpmmap_picture::{self as picture, FONT};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::format::{Fault, Trace};
use super::report::{Process, processes};

const WIDTH: u32 = 820;
const HEIGHT: u32 = 340;
/// Width of the legend at the right.
const LEGEND: u32 = 170;
/// More could not be told apart.
const MAX_PANELS: usize = 16;
/// The range of costs if there is no fault.
const NO_FAULTS: (f64, f64) = (1e2, 1e7);

/// Points of one colour. The order is that of the legend and of drawing: later ones lie on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Colour {
    Small,
    File,
    Cow,
    Other,
    Large,
    Hugetlb,
    Swap,
    Waited,
    Merged,
}

impl Colour {
    fn of(fault: &Fault) -> Self {
        match (fault.stall, fault.kind) {
            (Stall::Merge, _) => Self::Merged,
            (Stall::Compaction | Stall::Reclaim, _) => Self::Waited,
            (_, Kind::Small) => Self::Small,
            (_, Kind::Large) => Self::Large,
            (_, Kind::Hugetlb) => Self::Hugetlb,
            (_, Kind::Cow | Kind::Write) => Self::Cow,
            (_, Kind::Swap | Kind::Migration) => Self::Swap,
            (_, Kind::File) => Self::File,
            _ => Self::Other,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Small => "4 KB",
            Self::File => "file",
            Self::Cow => "copy, made writable",
            Self::Other => "other",
            Self::Large => "2 MB",
            Self::Hugetlb => "hugetlb",
            Self::Swap => "swap-in, migration",
            Self::Waited => "reclaim, compaction",
            Self::Merged => "stalled by a merge",
        }
    }

    fn rgb(self) -> RGBColor {
        match self {
            Self::Small => RGBColor(214, 69, 65),
            Self::File => RGBColor(170, 170, 170),
            Self::Cow => RGBColor(230, 150, 40),
            Self::Other => RGBColor(90, 90, 90),
            Self::Large => RGBColor(40, 150, 70),
            Self::Hugetlb => RGBColor(0, 160, 160),
            Self::Swap => RGBColor(140, 80, 40),
            Self::Waited => RGBColor(150, 60, 170),
            Self::Merged => RGBColor(30, 80, 200),
        }
    }
}

/// The faults of one rank or process: seconds, and cycles.
struct Panel {
    title: String,
    points: BTreeMap<Colour, Vec<(f64, f64)>>,
    merges: Vec<f64>,
}

/// Common to all panels.
struct Picture {
    title: String,
    seconds: (f64, f64),
    cycles: (f64, f64),
    panels: Vec<Panel>,
    left_out: usize,
}

/// Ranks if there are any, otherwise the processes with the most faults.
fn chosen(trace: &Trace, all: &BTreeMap<u32, Process>) -> (Vec<u32>, usize) {
    let mut faults: BTreeMap<u32, usize> = BTreeMap::new();
    for fault in trace.faults.iter().filter(|fault| fault.is_exception()) {
        *faults.entry(fault.pid).or_default() += 1;
    }
    let rank = |pid: &u32| all.get(pid).and_then(|process| process.rank);
    // The launcher of a rank, such as a shell, has the rank in its environment, too.
    let mut busiest: BTreeMap<u32, u32> = BTreeMap::new();
    for pid in faults.keys() {
        if let Some(rank) = rank(pid) {
            let best = busiest.entry(rank).or_insert(*pid);
            if faults[pid] > faults[best] {
                *best = *pid;
            }
        }
    }
    let mut pids: Vec<u32> = if busiest.is_empty() {
        faults.keys().copied().collect()
    } else {
        busiest.values().copied().collect()
    };
    let left_out = pids.len().saturating_sub(MAX_PANELS);
    pids.sort_by_key(|pid| std::cmp::Reverse(faults[pid]));
    pids.truncate(MAX_PANELS);
    pids.sort_by_key(|pid| (rank(pid), *pid));
    (pids, left_out)
}

fn picture_of(trace: &Trace, after_ns: u64) -> Picture {
    let all = processes(trace);
    let start = trace.header.start_ns;
    let (pids, left_out) = chosen(trace, &all);
    let seconds = |ns: u64| ns.saturating_sub(start) as f64 / 1e9;
    let ticks = trace.header.tsc_hz as f64 / 1e9;
    let mut panels = Vec::new();
    for pid in pids {
        let process = all.get(&pid).cloned().unwrap_or_default();
        let mut points: BTreeMap<Colour, Vec<(f64, f64)>> = BTreeMap::new();
        let mine = trace.faults.iter().filter(|fault| {
            fault.pid == pid && fault.is_exception() && fault.start_ns >= start + after_ns
        });
        for fault in mine {
            let point = (
                seconds(fault.start_ns),
                (fault.cost_ns as f64 * ticks).max(1.0),
            );
            points.entry(Colour::of(fault)).or_default().push(point);
        }
        let merges = trace
            .times
            .iter()
            .filter(|time| time.cause == "merge" && time.pid == pid)
            .filter(|time| time.start_ns >= start + after_ns)
            .map(|time| seconds(time.start_ns))
            .collect();
        let comm = escape::line(&process.comm);
        panels.push(Panel {
            title: match process.rank {
                Some(rank) => format!("rank {rank}: {comm} {pid}"),
                None => format!("{comm} {pid}"),
            },
            points,
            merges,
        });
    }
    let costs = || {
        panels
            .iter()
            .flat_map(|panel| panel.points.values().flatten())
            .map(|point| point.1)
    };
    let (low, high) = (
        costs().fold(f64::INFINITY, f64::min),
        costs().fold(0.0, f64::max),
    );
    Picture {
        title: shortened(&escape::line(&trace.header.what())),
        seconds: (
            after_ns as f64 / 1e9,
            seconds(trace.end_ns()).max(after_ns as f64 / 1e9 + 1e-3),
        ),
        cycles: if high > 0.0 {
            (low * 0.7, high * 1.5)
        } else {
            NO_FAULTS
        },
        panels,
        left_out,
    }
}

/// Shortens a command at its end, which tells less than its beginning.
fn shortened(text: &str) -> String {
    const MOST: usize = 90;
    if text.chars().count() <= MOST {
        return text.to_string();
    }
    text.chars().take(MOST - 1).chain(['…']).collect()
}

/// Keeps one of several points that would be drawn at the same place.
fn thinned(points: &[(f64, f64)], picture: &Picture) -> Vec<(f64, f64)> {
    let (x0, x1) = picture.seconds;
    let (y0, y1) = (picture.cycles.0.ln(), picture.cycles.1.ln());
    let mut taken = BTreeSet::new();
    points
        .iter()
        .copied()
        .filter(|(x, y)| {
            let column = ((x - x0) / (x1 - x0) * f64::from(WIDTH)) as i64;
            let row = ((y.ln() - y0) / (y1 - y0) * f64::from(HEIGHT)) as i64;
            taken.insert((column / 2, row / 2))
        })
        .collect()
}

fn draw_panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    picture: &Picture,
    panel: &Panel,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let count: usize = panel.points.values().map(Vec::len).sum();
    let title = match count {
        0 => format!("{}: no faults", panel.title),
        1 => format!("{}: 1 fault", panel.title),
        _ => format!("{}: {count} faults", panel.title),
    };
    let mut context = ChartBuilder::on(area)
        .caption(title, (FONT, 16))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(76)
        .build_cartesian_2d(
            picture.seconds.0..picture.seconds.1,
            (picture.cycles.0..picture.cycles.1).log_scale(),
        )?;
    context
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("seconds of the run")
        .y_desc("cycles")
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for (colour, points) in &panel.points {
        let style = colour.rgb().filled();
        context.draw_series(
            thinned(points, picture)
                .into_iter()
                .map(|point| Circle::new(point, 2, style)),
        )?;
    }
    context.draw_series(panel.merges.iter().map(|x| {
        TriangleMarker::new(
            (*x, picture.cycles.0 * 1.1),
            5,
            Colour::Merged.rgb().filled(),
        )
    }))?;
    Ok(())
}

fn draw<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    picture: &Picture,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    area.fill(&WHITE)?;
    let (title, area) = area.split_vertically(TITLE);
    title.draw(&Text::new(picture.title.as_str(), (10, 8), (FONT, 16)))?;
    let (area, legend) = area.split_horizontally(WIDTH);
    for (part, panel) in area
        .split_evenly((picture.panels.len().max(1), 1))
        .iter()
        .zip(&picture.panels)
    {
        draw_panel(part, picture, panel)?;
    }
    if picture.panels.is_empty() {
        area.draw(&Text::new("no faults", (WIDTH as i32 / 2, 100), (FONT, 18)))?;
    }
    let colours: BTreeSet<Colour> = picture
        .panels
        .iter()
        .flat_map(|panel| panel.points.keys().copied())
        .collect();
    let mut y = 40;
    for colour in colours {
        legend.draw(&Circle::new((8, y), 4, colour.rgb().filled()))?;
        legend.draw(&Text::new(colour.name(), (20, y - 7), (FONT, 13)))?;
        y += 20;
    }
    if picture.panels.iter().any(|panel| !panel.merges.is_empty()) {
        legend.draw(&TriangleMarker::new(
            (8, y),
            5,
            Colour::Merged.rgb().filled(),
        ))?;
        legend.draw(&Text::new("a merge", (20, y - 7), (FONT, 13)))?;
        y += 20;
    }
    if picture.left_out > 0 {
        let more = format!("{} more not shown", picture.left_out);
        legend.draw(&Text::new(more, (4, y), (FONT, 13)))?;
    }
    area.present()
}

/// Height of the line above the panels.
const TITLE: u32 = 30;

/// The format of a picture, from the ending of its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Png,
    Svg,
}

fn format(path: &Path) -> Result<Format> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("png") => Ok(Format::Png),
        Some("svg") => Ok(Format::Svg),
        _ => Err(Error::Usage(format!(
            "the name of the picture, '{}', has to end in .png or .svg",
            path.display()
        ))),
    }
}

/// Refuses names without an ending for pictures.
pub fn check(path: &Path) -> Result<()> {
    format(path).map(|_| ())
}

/// Writes a picture of the faults that began at least `after_ns` after the
/// start.
pub fn write(trace: &Trace, after_ns: u64, path: &Path) -> Result<()> {
    let format = format(path)?;
    picture::use_font()?;
    let picture = picture_of(trace, after_ns);
    let size = (
        WIDTH + LEGEND,
        TITLE + picture.panels.len().max(1) as u32 * HEIGHT,
    );
    let drawn = match format {
        Format::Png => picture::png(size, |area| draw(area, &picture)),
        Format::Svg => picture::svg(size, |area| draw(area, &picture)),
    };
    safe_files::write(path, drawn?)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::trace;
    use super::*;

    #[test]
    fn both_kinds_of_picture_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let (png, svg) = (dir.path().join("a.png"), dir.path().join("a.svg"));
        write(&trace(), 0, &png).unwrap();
        assert_eq!(std::fs::read(&png).unwrap()[..4], *b"\x89PNG");
        write(&trace(), 0, &svg).unwrap();
        let text = std::fs::read_to_string(&svg).unwrap();
        for part in [
            "mpirun prog",
            "rank 3: prog 10: 2 faults",
            "stalled by a merge",
            "cycles",
        ] {
            assert!(text.contains(part), "{part}");
        }
        // One of two processes is a rank, the other its launcher.
        assert!(!text.contains("sh 20"));
    }

    #[test]
    fn processes_are_shown_where_there_are_no_ranks() {
        let mut trace = trace();
        for task in &mut trace.tasks {
            task.rank = None;
        }
        let picture = picture_of(&trace, 0);
        let titles: Vec<&str> = picture.panels.iter().map(|p| p.title.as_str()).collect();
        assert_eq!(titles, ["prog 10", "sh 20"]);
        let colours: Vec<Colour> = picture.panels[0].points.keys().copied().collect();
        assert_eq!(colours, [Colour::Small, Colour::Merged]);
        assert_eq!(
            picture.panels[0].points[&Colour::Merged],
            [(0.9, 4_000_000.0)]
        );
    }

    #[test]
    fn nothing_after_start_up_is_an_empty_panel() {
        let dir = tempfile::tempdir().unwrap();
        let svg = dir.path().join("a.svg");
        write(&trace(), 950_000_000, &svg).unwrap();
        let text = std::fs::read_to_string(&svg).unwrap();
        assert!(text.contains("rank 3: prog 10: no faults"));
    }

    #[test]
    fn points_at_one_place_are_drawn_once() {
        let picture = picture_of(&trace(), 0);
        let points = [(0.5, 1000.0), (0.500_001, 1000.1), (0.9, 1000.0)];
        assert_eq!(thinned(&points, &picture).len(), 2);
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["x", "x.jpg", "png"] {
            let error = check(Path::new(name)).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(".png or .svg"));
        }
    }

    #[test]
    fn long_commands_are_cut() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"x".repeat(200)).chars().count(), 90);
    }
}
