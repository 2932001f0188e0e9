//! Results for people: one table for each pattern.

use std::collections::BTreeMap;

use hpmmap_base::output::{Column, table};
use hpmmap_base::size::{Size, short};

use super::plan::{Case, Pattern};
use super::result::{Figures, Measured, Outcome, Record, ThreadFigures};

/// A number with at most five characters.
fn brief(n: u64) -> String {
    match n {
        0..100_000 => n.to_string(),
        100_000..10_000_000 => format!("{:.2}M", n as f64 / 1e6),
        10_000_000..10_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.0}M", n as f64 / 1e6),
    }
}

fn ratio(value: Option<f64>) -> String {
    match value {
        None => "n/a".into(),
        Some(value) if value < 0.1 => format!("{value:.3}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn spread(one: &Outcome) -> String {
    format!(
        "{:.2}%{}",
        one.spread * 100.0,
        if one.agree { "" } else { "!" }
    )
}

fn who(case: &Case) -> String {
    match case.allocator {
        None => case.method.name().to_string(),
        Some(allocator) => format!("{} {}", allocator.name(), case.method.name()),
    }
}

fn single_row(one: &Outcome, f: &Figures) -> Vec<String> {
    vec![
        who(&one.case),
        Size(one.case.size_bytes).to_string(),
        brief(f.map),
        brief(f.touch),
        brief(f.unmap),
        brief(f.total),
        ratio(one.ratio_to_best_peer),
        brief(f.faults),
        brief(f.worst_touch),
        brief(f.worst_call),
        short(f.page_table_bytes),
        short(f.resident_bytes.max(f.held_bytes)),
        brief(f.exit_ns),
        brief(f.others_ns),
        ratio(one.ratio_with_exit),
        spread(one),
    ]
}

const SINGLE: [Column; 16] = [
    Column::Text("METHOD"),
    Column::Number("SIZE"),
    Column::Number("MAP"),
    Column::Number("TOUCH"),
    Column::Number("UNMAP"),
    Column::Number("TOTAL"),
    Column::Number("RATIO"),
    Column::Number("FAULTS"),
    Column::Number("WORST TOUCH"),
    Column::Number("WORST CALL"),
    Column::Number("TABLES"),
    Column::Number("MEMORY"),
    Column::Number("EXIT NS"),
    Column::Number("OTHERS NS"),
    Column::Number("RATIO+EXIT"),
    Column::Number("SPREAD"),
];

fn threads_row(one: &Outcome, f: &ThreadFigures) -> Vec<String> {
    let each = |ns: u64| format!("{:.1}", ns as f64 / 1e6 / f64::from(one.case.threads));
    vec![
        who(&one.case),
        Size(one.case.size_bytes).to_string(),
        one.case.threads.to_string(),
        brief(f.pages_per_second),
        brief(f.touch_p50),
        brief(f.touch_p90),
        ratio(one.ratio_to_best_peer),
        each(f.cpu_ns),
        each(f.run_delay_ns),
        each(f.blocked_ns),
        brief(f.voluntary_switches),
        brief(f.involuntary_switches),
        spread(one),
    ]
}

const THREADS: [Column; 13] = [
    Column::Text("METHOD"),
    Column::Number("SIZE"),
    Column::Number("THREADS"),
    Column::Number("PAGES/S"),
    Column::Number("TOUCH P50"),
    Column::Number("TOUCH P90"),
    Column::Number("RATIO"),
    Column::Number("CPU MS"),
    Column::Number("NO CPU MS"),
    Column::Number("BLOCKED MS"),
    Column::Number("SLEEPS"),
    Column::Number("PREEMPTED"),
    Column::Number("SPREAD"),
];

fn what(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Map => "map, touch, unmap",
        Pattern::Crowded => "map, touch, unmap beside 10,000 mappings",
        Pattern::Cycle => "cycles of map, touch, unmap in one process",
        Pattern::Brk => "a heap that grows by brk",
        Pattern::Mremap => "an array that grows by mremap",
        Pattern::Stacks => "stacks of threads",
        Pattern::Amr => "blocks of varied sizes",
        Pattern::AmrMalloc => "blocks of varied sizes from an allocator",
        Pattern::Malloc => "small objects from an allocator",
        Pattern::Threads => "threads that map, touch and unmap",
        Pattern::Processes => "processes that map, touch and unmap",
    }
}

/// All tables, the cases that were left out, and whether the repetitions agree.
pub fn text(record: &Record) -> String {
    let mut parts = Vec::new();
    let version = |name| record.provenance.version(name);
    for &pattern in &record.parameters.patterns {
        let mut rows: Vec<&Outcome> = record
            .results
            .iter()
            .filter(|one| one.case.pattern == pattern)
            .collect();
        if rows.is_empty() {
            continue;
        }
        rows.sort_by_key(|one| {
            let case = one.case;
            (case.size_bytes, case.threads, case.allocator, case.method)
        });
        let unit = match pattern {
            shared if shared.is_shared() => "time",
            _ => record.provenance.unit.as_str(),
        };
        let rows = rows.iter().map(|one| match &one.measured {
            Measured::Single { median, .. } => single_row(one, median),
            Measured::Threads { median, .. } => threads_row(one, median),
        });
        let columns: &[Column] = match pattern {
            shared if shared.is_shared() => &THREADS,
            _ => &SINGLE,
        };
        parts.push(format!(
            "{}: {}; Linux {}, module {}; {unit}\n{}",
            pattern.name(),
            what(pattern),
            version("kernel"),
            version("module"),
            table(columns, rows)
        ));
    }
    parts.extend(notes(record));
    parts.join("\n\n")
}

fn notes(record: &Record) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(add) = &record.pool_add {
        notes.push(format!(
            "pool add of {} before: {} {}",
            short(add.bytes),
            brief(add.cost),
            record.provenance.unit
        ));
    }
    if !record.left_out.is_empty() {
        notes.push(left_out(record));
    }
    let loose = record.results.iter().filter(|one| !one.agree).count();
    notes.push(match (loose, record.parameters.repetitions) {
        (_, 1) => "One repetition: whether the figures can be repeated is not known.".into(),
        (0, _) => "All repetitions agree within 1 %.".into(),
        (loose, _) => format!(
            "{loose} of {} results differ by more than 1 % between repetitions (!).",
            record.results.len()
        ),
    });
    notes
}

/// The cases that were left out: a line for each reason, with all sizes.
fn left_out(record: &Record) -> String {
    let mut sizes: BTreeMap<(Pattern, String, &str), Vec<String>> = BTreeMap::new();
    for one in &record.left_out {
        let case = &one.case;
        let size = match case.pattern {
            shared if shared.is_shared() => {
                format!("{} x {}", case.threads, Size(case.size_bytes))
            }
            _ => Size(case.size_bytes).to_string(),
        };
        let key = (case.pattern, who(case), one.reason.as_str());
        sizes.entry(key).or_default().push(size);
    }
    let mut lines = vec!["Left out:".to_string()];
    for ((pattern, who, reason), sizes) in sizes {
        lines.push(format!(
            "  {} {who} {}: {reason}",
            pattern.name(),
            sizes.join(" ")
        ));
    }
    lines.join("\n")
}

/// Results of HPMMAP with page faults: their memory was not populated. Allocators reserve memory
/// (MAP_NORESERVE) and may take some.
pub fn faulted(record: &Record) -> Vec<String> {
    record
        .results
        .iter()
        .filter(|one| !one.case.method.is_peer() && !one.case.pattern.uses_allocator())
        .filter(|one| matches!(&one.measured, Measured::Single { median, .. } if median.faults > 0))
        .map(|one| one.case.title())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Method;
    use crate::result::LeftOut;
    use crate::result::set_ratios;
    use crate::result::tests::{outcome, record};

    #[test]
    fn numbers_stay_short() {
        assert_eq!(brief(99_999), "99999");
        assert_eq!(brief(357_000), "0.36M");
        assert_eq!(brief(17_951_552), "18.0M");
        assert_eq!(brief(5_215_000_000), "5215.0M");
        assert_eq!(ratio(Some(0.0201)), "0.020");
        assert_eq!(ratio(None), "n/a");
    }

    #[test]
    fn a_table_has_ratios_and_marks_what_does_not_agree() {
        let mut results = vec![
            outcome(Method::Hugetlb, 2 << 20, &[400, 400]),
            outcome(Method::Hpmmap, 2 << 20, &[100, 150]),
        ];
        set_ratios(&mut results, 1.0);
        let mut record = record(results);
        for size_bytes in [4096, 8192] {
            record.left_out.push(LeftOut {
                case: outcome(Method::Thp, size_bytes, &[1]).case,
                reason: "off".into(),
            });
        }
        let text = text(&record);
        assert!(
            text.starts_with("map: map, touch, unmap; Linux 6.12, module none; instructions\n")
        );
        let line = text
            .lines()
            .find(|line| line.starts_with("hpmmap"))
            .unwrap();
        assert!(
            line.contains(" 0.31 ") && line.ends_with("20.00%!"),
            "{line}"
        );
        assert!(text.contains("Left out:\n  map thp 4K 8K: off"), "{text}");
        assert!(text.ends_with("1 of 2 results differ by more than 1 % between repetitions (!)."));
    }

    #[test]
    fn faults_of_ours_are_found() {
        let mut ours = outcome(Method::Hpmmap, 4096, &[1]);
        let peer = outcome(Method::Small, 4096, &[1]);
        assert!(faulted(&record(vec![ours.clone(), peer])).is_empty());
        if let Measured::Single { median, .. } = &mut ours.measured {
            median.faults = 1;
        }
        assert_eq!(faulted(&record(vec![ours])), ["map hpmmap 4K"]);
    }
}
