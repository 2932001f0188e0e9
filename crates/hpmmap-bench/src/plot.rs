//! Results as a picture: charts side by side, PNG and SVG.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hpmmap_base::error::Result;
use hpmmap_base::safe_files;
use hpmmap_base::size::short;
use hpmmap_picture::{self as picture, FONT};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::plan::{Case, Method, Pattern};
use super::result::{Measured, Record};

const WIDTH: u32 = 760;
const HEIGHT: u32 = 460;
/// Width of the legend.
const LEGEND: u32 = 190;

/// One chart: lines by name, points in order; both axes are logarithmic.
pub struct Chart {
    /// The title above it.
    pub title: String,
    /// The horizontal axis: `"size"` is in bytes.
    pub x: &'static str,
    /// The vertical axis.
    pub y: String,
    /// The lines.
    pub lines: BTreeMap<(Method, String), Vec<(u64, f64)>>,
}

/// A chart of dots over time; the vertical axis is logarithmic.
pub struct Dots {
    /// The title above it.
    pub title: String,
    /// The vertical axis.
    pub y: String,
    /// The end of the time, in seconds.
    pub end: f64,
    /// The range of the vertical axis, the same for all charts beside it.
    pub range: (f64, f64),
    /// The dots, with the number of their colour.
    pub dots: BTreeMap<Method, (usize, Vec<(f64, f64)>)>,
}

/// A part of a picture.
pub enum Part {
    /// Lines.
    Chart(Chart),
    /// Dots.
    Dots(Dots),
}

fn name(case: &Case) -> String {
    match case.allocator {
        None => case.method.name().to_string(),
        Some(allocator) => format!("{} {}", allocator.name(), case.method.name()),
    }
}

/// Cost of a touched 4 KB page by size, or throughput by threads.
fn chart(record: &Record, pattern: Pattern) -> Option<Chart> {
    let mut chart = Chart {
        title: pattern.name().to_string(),
        x: "size",
        y: format!("{} for a 4 KB page", record.provenance.unit),
        lines: BTreeMap::new(),
    };
    if pattern.is_shared() {
        (chart.x, chart.y) = (pattern.name(), "million pages a second".into());
    }
    for one in record
        .results
        .iter()
        .filter(|one| one.case.pattern == pattern)
    {
        let point = match &one.measured {
            Measured::Single { median, .. } => (
                one.case.size_bytes,
                median.total as f64 / median.touched_pages.max(1) as f64,
            ),
            Measured::Threads { median, .. } => (
                u64::from(one.case.threads),
                median.pages_per_second as f64 / 1e6,
            ),
        };
        let line = chart.lines.entry((one.case.method, name(&one.case)));
        line.or_default().push((point.0, point.1.max(1e-3)));
    }
    for line in chart.lines.values_mut() {
        line.sort_by_key(|point| point.0);
        // Threads of several sizes: the last is the largest.
        line.dedup_by_key(|point| point.0);
    }
    (!chart.lines.is_empty()).then_some(chart)
}

fn draw<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    chart: &Chart,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let (area, legend) = area.split_horizontally(WIDTH - LEGEND);
    let points = || chart.lines.values().flatten();
    let xs = points().map(|point| point.0);
    let (from, to) = (xs.clone().min().unwrap_or(1), xs.max().unwrap_or(1));
    let low = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let high = points().map(|point| point.1).fold(0.0, f64::max);
    let mut context = ChartBuilder::on(&area)
        .caption(&chart.title, (FONT, 20))
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(80)
        .build_cartesian_2d(
            ((from as f64 * 0.8)..(to as f64 * 1.25))
                .log_scale()
                .base(2.0),
            (low * 0.7..high * 1.4).log_scale(),
        )?;
    let by_size = chart.x == "size";
    context
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(chart.x)
        .y_desc(&chart.y)
        .x_label_formatter(&|x| {
            let x = x.round() as u64;
            if by_size { short(x) } else { x.to_string() }
        })
        .y_label_formatter(&|y| {
            if *y < 10.0 {
                format!("{y:.3}")
            } else {
                format!("{y:.0}")
            }
        })
        .draw()?;
    for (i, ((method, name), line)) in chart.lines.iter().enumerate() {
        let width = if method.is_peer() { 1 } else { 3 };
        let style = Palette99::pick(i).stroke_width(width);
        let points = line.iter().map(|&(x, y)| (x as f64, y));
        context.draw_series(
            points
                .clone()
                .map(|point| Circle::new(point, 3, style.filled())),
        )?;
        context.draw_series(LineSeries::new(points, style))?;
        let y = 40 + 20 * i as i32;
        legend.draw(&PathElement::new([(0, y), (16, y)], style))?;
        legend.draw(&Circle::new((8, y), 3, style.filled()))?;
        legend.draw(&Text::new(name.as_str(), (22, y - 7), (FONT, 14)))?;
    }
    Ok(())
}

fn draw_dots<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    chart: &Dots,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let (area, legend) = area.split_horizontally(WIDTH - LEGEND);
    let mut context = ChartBuilder::on(&area)
        .caption(&chart.title, (FONT, 20))
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(80)
        .build_cartesian_2d(
            0.0..chart.end,
            (chart.range.0 * 0.7..chart.range.1 * 1.4).log_scale(),
        )?;
    context
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("seconds")
        .y_desc(&chart.y)
        .y_label_formatter(&|y| format!("{y}"))
        .draw()?;
    for (i, (method, (colour, dots))) in chart.dots.iter().enumerate() {
        let style = Palette99::pick(*colour).filled();
        context.draw_series(dots.iter().map(|&dot| Circle::new(dot, 2, style)))?;
        let y = 40 + 20 * i as i32;
        legend.draw(&Circle::new((8, y), 3, style))?;
        legend.draw(&Text::new(method.name(), (22, y - 7), (FONT, 14)))?;
    }
    Ok(())
}

fn draw_all<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    parts: &[Part],
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    area.fill(&WHITE)?;
    for (area, part) in area.split_evenly((rows(parts), 2)).iter().zip(parts) {
        match part {
            Part::Chart(chart) => draw(area, chart)?,
            Part::Dots(dots) => draw_dots(area, dots)?,
        }
    }
    area.present()
}

fn rows(parts: &[Part]) -> usize {
    parts.len().div_ceil(2)
}

/// Writes `stem`.png and `stem`.svg; no file without a result.
pub fn write(record: &Record, stem: &Path) -> Result<Vec<PathBuf>> {
    let charts: Vec<Part> = record
        .parameters
        .patterns
        .iter()
        .filter_map(|&pattern| chart(record, pattern))
        .map(Part::Chart)
        .collect();
    write_parts(&charts, stem)
}

/// Writes `stem`.png and `stem`.svg; no file without a part.
pub fn write_parts(charts: &[Part], stem: &Path) -> Result<Vec<PathBuf>> {
    if charts.is_empty() {
        return Ok(Vec::new());
    }
    picture::use_font()?;
    let size = (2 * WIDTH, rows(charts) as u32 * HEIGHT);
    let (png, svg) = (stem.with_extension("png"), stem.with_extension("svg"));
    safe_files::write(&png, picture::png(size, |area| draw_all(area, charts))?)?;
    safe_files::write(&svg, picture::svg(size, |area| draw_all(area, charts))?)?;
    Ok(vec![png, svg])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::{outcome, record};

    #[test]
    fn both_files_are_pictures() {
        let dir = tempfile::tempdir().unwrap();
        let record = record(vec![
            outcome(Method::Small, 4096, &[1000]),
            outcome(Method::Small, 1 << 21, &[100_000]),
            outcome(Method::Hpmmap, 1 << 21, &[0]),
        ]);
        let files = write(&record, &dir.path().join("alloc")).unwrap();
        let png = std::fs::read(&files[0]).unwrap();
        assert_eq!(png[..4], *b"\x89PNG");
        let svg = std::fs::read_to_string(&files[1]).unwrap();
        for text in ["4k", "hpmmap", "instructions for a 4 KB page", "2M"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn nothing_measured_is_no_picture() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            write(&record(Vec::new()), &dir.path().join("a"))
                .unwrap()
                .is_empty()
        );
    }
}
