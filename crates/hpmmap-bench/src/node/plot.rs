//! Results as a picture: how bandwidth, updates and new memory scale over CPUs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hpmmap_base::error::Result;

use super::plan::What;
use super::record::Record;
use crate::noise::plan::Mode;
use crate::plan::Pattern;
use crate::plot::{Chart, Part, write_parts};

/// The chart of a measurement, and its place on the horizontal axis.
fn place(what: &What) -> Option<(&'static str, u32)> {
    match *what {
        What::Accesses { mode, tasks, .. } => match mode {
            Mode::Triad => Some(("triad", tasks)),
            Mode::Independent => Some(("random updates", tasks)),
            Mode::Dependent => None,
        },
        What::Alloc {
            pattern: Pattern::Threads,
            threads,
            ..
        } => Some(("new memory", threads)),
        _ => None,
    }
}

fn charts(record: &Record) -> Vec<Part> {
    let mut charts: BTreeMap<&str, Chart> = BTreeMap::new();
    for one in &record.results {
        let Some((title, at)) = place(&one.what) else {
            continue;
        };
        let chart = charts.entry(title).or_insert_with(|| Chart {
            title: title.into(),
            x: "CPUs",
            y: one.unit.clone(),
            lines: BTreeMap::new(),
        });
        let line = chart.lines.entry((one.method, one.method.name().into()));
        let point = (u64::from(at), one.summary.median.max(1e-3));
        line.or_default().push(point);
    }
    charts.into_values().map(Part::Chart).collect()
}

/// Writes `stem`.png and `stem`.svg; no file without a result.
pub fn write(record: &Record, stem: &Path) -> Result<Vec<PathBuf>> {
    write_parts(&charts(record), stem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::report::tests::record;

    #[test]
    fn scaling_is_a_line_for_each_method() {
        let charts = charts(&record());
        let [Part::Chart(chart)] = &charts[..] else {
            panic!("{} charts", charts.len());
        };
        let lines: Vec<_> = chart.lines.iter().collect();
        assert_eq!(lines[0].0.1, "thp");
        assert_eq!(lines[0].1[..], [(1, 10.0), (2, 20.0)]);
        let dir = tempfile::tempdir().unwrap();
        let files = write(&record(), &dir.path().join("node")).unwrap();
        assert!(std::fs::read_to_string(&files[1]).unwrap().contains("GB/s"));
    }
}
