//! Results as a picture: detours over the time, costs of accesses by size.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hpmmap_base::error::Result;

use super::plan::{Condition, Mode, Tasks, Variant};
use super::result::{Accesses, Cpu, Record};
use crate::plan::Method;
use crate::plot::{Chart, Dots, Part, write_parts};

/// The longest detours of one CPU, in seconds and microseconds; instructions
/// stand for nanoseconds.
fn dots_of(cpu: &Cpu) -> impl Iterator<Item = (f64, f64)> {
    let each = cpu.elapsed_ns as f64 / 1e9 / cpu.slices.len().max(1) as f64;
    let slices = cpu.slices.iter().enumerate();
    slices
        .filter(|&(_, &longest)| longest > 0)
        .map(move |(i, &longest)| ((i as f64 + 0.5) * each, longest as f64 / 1e3))
}

/// The methods with a result, in the order of their colours.
fn methods(record: &Record) -> BTreeSet<Method> {
    let detours = record.detours.iter().map(|one| one.method);
    detours
        .chain(record.accesses.iter().map(|one| one.method))
        .collect()
}

fn dots(record: &Record, variant: Variant, condition: Condition) -> Option<Dots> {
    let methods = methods(record);
    let mut dots = BTreeMap::new();
    let mut end: f64 = 0.0;
    for one in record
        .detours
        .iter()
        .filter(|one| (one.variant, one.condition) == (variant, condition))
    {
        let colour = methods.iter().position(|method| *method == one.method);
        let (_, of_method) = dots
            .entry(one.method)
            .or_insert_with(|| (colour.unwrap_or(0), Vec::new()));
        for cpu in &one.cpus {
            of_method.extend(dots_of(cpu));
            end = end.max(cpu.elapsed_ns as f64 / 1e9);
        }
    }
    let beside = match condition {
        Condition::Alone => "alone",
        Condition::Neighbour => "beside a neighbour",
    };
    (!dots.is_empty()).then(|| Dots {
        title: format!("detours, loop '{}', {beside}", variant.name()),
        y: if record.provenance.tsc_hz.is_some() {
            "microseconds".into()
        } else {
            "thousand instructions".into()
        },
        end,
        range: range(record),
        dots,
    })
}

/// The range of the vertical axis, the same for all charts so that they can be compared.
fn range(record: &Record) -> (f64, f64) {
    let all = || {
        let cpus = record.detours.iter().flat_map(|one| &one.cpus);
        cpus.flat_map(dots_of).map(|dot| dot.1)
    };
    let most = all().fold(f64::NEG_INFINITY, f64::max);
    if most > 0.0 {
        (all().fold(f64::INFINITY, f64::min), most)
    } else {
        (1.0, 10.0)
    }
}

fn chart(record: &Record, mode: Mode, tasks: Tasks) -> Option<Chart> {
    let of_tasks = match tasks {
        Tasks::One => String::new(),
        several => format!(" of {} tasks, {}", record.parameters.tasks, several.name()),
    };
    let mut chart = Chart {
        title: format!("{} random accesses{of_tasks}", mode.name()),
        x: "size",
        y: format!("{} for an access", record.provenance.unit),
        lines: BTreeMap::new(),
    };
    let of_it = |one: &&Accesses| (one.mode, one.tasks) == (mode, tasks);
    for one in record.accesses.iter().filter(of_it) {
        let line = chart
            .lines
            .entry((one.method, one.method.name().to_string()));
        line.or_default()
            .push((one.size_bytes, one.median.max(1e-3)));
    }
    for line in chart.lines.values_mut() {
        line.sort_by_key(|point| point.0);
    }
    (!chart.lines.is_empty()).then_some(chart)
}

/// Writes `stem`.png and `stem`.svg; no file without a result.
pub fn write(record: &Record, stem: &Path) -> Result<Vec<PathBuf>> {
    let mut parts = Vec::new();
    for &variant in &record.parameters.variants {
        for condition in [Condition::Alone, Condition::Neighbour] {
            parts.extend(dots(record, variant, condition).map(Part::Dots));
        }
    }
    let modes = record.parameters.modes.iter();
    for &mode in modes {
        let tasks = [Tasks::One, Tasks::Bound, Tasks::Unbound].into_iter();
        let charts = tasks.filter_map(|tasks| chart(record, mode, tasks));
        parts.extend(charts.map(Part::Chart));
    }
    write_parts(&parts, stem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::report::tests::record;

    #[test]
    fn both_files_are_pictures() {
        let dir = tempfile::tempdir().unwrap();
        let files = write(&record(), &dir.path().join("noise")).unwrap();
        let png = std::fs::read(&files[0]).unwrap();
        assert_eq!(png[..4], *b"\x89PNG");
        let svg = std::fs::read_to_string(&files[1]).unwrap();
        for text in [
            "beside a neighbour",
            "microseconds",
            "dependent random accesses",
            "nanoseconds for an access",
            "hpmmap",
        ] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn a_method_has_one_colour() {
        let mut record = record();
        record.accesses[0].method = Method::Thp;
        // thp and hpmmap have results.
        let dots = dots(&record, Variant::Touch, Condition::Neighbour).unwrap();
        assert_eq!(dots.dots[&Method::Hpmmap].0, 1);
    }

    #[test]
    fn dots_are_where_the_slices_are() {
        let mut cpu = record().detours[0].cpus[0].clone();
        cpu.slices = vec![0, 3_000];
        assert_eq!(dots_of(&cpu).collect::<Vec<_>>(), [(0.000_75, 3.0)]);
    }

    #[test]
    fn without_detours_there_is_a_range_all_the_same() {
        let mut record = record();
        for cpu in &mut record.detours[0].cpus {
            cpu.slices = vec![0; 200];
        }
        assert_eq!(range(&record), (1.0, 10.0));
    }
}
