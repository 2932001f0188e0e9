//! Results for people: verdicts, tables, and what was left out.

use std::collections::BTreeMap;

use hpmmap_base::output::{Column, table};
use hpmmap_base::size::{Size, short};
use hpmmap_host::number_list;

use super::counters::{FAULTS, TLB_LOADS, TLB_STORES};
use super::plan::What;
use super::record::{LeftOut, Record};
use super::result::Outcome;
use super::verdict::{Answer, Verdict};

const COLUMNS: [Column; 9] = [
    Column::Text("METHOD"),
    Column::Number("MEDIAN"),
    Column::Text("UNIT"),
    Column::Number("QUARTILES"),
    Column::Number("95 % INTERVAL"),
    Column::Number("RUNS"),
    Column::Number("TLB LOADS"),
    Column::Number("TLB STORES"),
    Column::Number("FAULTS"),
];

/// A number with three or four digits that mean something.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v < 0.01 => format!("{value:.1e}"),
        v if v < 10.0 => format!("{value:.3}"),
        v if v < 1000.0 => format!("{value:.1}"),
        v if v < 1e6 => format!("{value:.0}"),
        v if v < 1e9 => format!("{:.1}M", value / 1e6),
        _ => format!("{:.0}M", value / 1e6),
    }
}

fn range((low, high): (f64, f64)) -> String {
    format!("{}..{}", number(low), number(high))
}

fn row(one: &Outcome) -> Vec<String> {
    let count = |name| {
        let counted = one.counts.get(name);
        counted.map_or("-".into(), |summary| number(summary.median))
    };
    let summary = &one.summary;
    vec![
        one.method.name().into(),
        number(summary.median),
        one.unit.clone(),
        range(summary.quartiles),
        summary.interval.map_or("-".into(), range),
        summary.n.to_string(),
        count(TLB_LOADS),
        count(TLB_STORES),
        count(FAULTS),
    ]
}

fn verdict_row(one: &Verdict) -> Vec<String> {
    let ratio = match (one.ratio, one.bounds) {
        (Some(ratio), Some((low, high))) => format!("{ratio:.3} ({low:.3} to {high:.3})"),
        (Some(ratio), None) => format!("{ratio:.3}"),
        (None, _) => "-".into(),
    };
    vec![
        one.answer.name().into(),
        ratio,
        one.claim.clone(),
        one.what.map_or(String::new(), |what| what.title()),
        one.reason.clone().unwrap_or_default(),
    ]
}

const VERDICTS: [Column; 5] = [
    Column::Text("VERDICT"),
    Column::Text("COST RATIO"),
    Column::Text("CLAIM"),
    Column::Text("MEASUREMENT"),
    Column::Text("REASON"),
];

/// Lines for measurements, those with the same reason together.
fn reasons(title: &str, left_out: &[LeftOut]) -> Option<String> {
    let mut by_reason: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for one in left_out {
        let key = (one.method.name(), one.reason.as_str());
        by_reason.entry(key).or_default().push(one.what.title());
    }
    let lines: Vec<String> = by_reason
        .iter()
        .map(|((method, reason), what)| format!("  {method}: {}: {reason}", what.join("; ")))
        .collect();
    (!lines.is_empty()).then(|| format!("{title}\n{}", lines.join("\n")))
}

fn head(record: &Record) -> String {
    let made = &record.provenance;
    let of = |name: &str| made.machine.get(name).map_or("unknown", String::as_str);
    let parameters = &record.parameters;
    format!(
        "Node: {}; Linux {}, module {}\n\
         CPUs {} of one NUMA node, {} in all (one of each core); arrays of {}; load {} before\n\
         {:.1} of {} minutes{}; {}",
        of("cpu"),
        made.version("kernel"),
        made.version("module"),
        number_list::format(&parameters.cpus),
        parameters.all_cpus.len(),
        Size(parameters.memory_bytes),
        of("load"),
        record.seconds / 60.0,
        parameters.minutes,
        if record.interrupted {
            ", interrupted"
        } else {
            ""
        },
        match record.prepared {
            true => "settings were changed for it, and set back",
            false => "nothing of the machine was changed",
        }
    )
}

/// How many verdicts there are of each kind.
fn counted(verdicts: &[Verdict]) -> String {
    let all = [
        Answer::Yes,
        Answer::No,
        Answer::NotDecided,
        Answer::NotMeasured,
    ];
    let count = |answer| verdicts.iter().filter(|one| one.answer == answer).count();
    let words = all.map(|answer| format!("{} {}", count(answer), answer.name()));
    words.join(", ")
}

/// All of it.
pub fn text(record: &Record) -> String {
    let verdicts = table(&VERDICTS, record.verdicts.iter().map(verdict_row));
    let mut parts = vec![
        head(record),
        format!("Verdicts: {}\n{verdicts}", counted(&record.verdicts)),
    ];
    let mut made: Vec<What> = record.results.iter().map(|one| one.what).collect();
    made.dedup();
    for what in made {
        let mine = record.results.iter().filter(|one| one.what == what);
        parts.push(format!(
            "{}\n{}",
            what.title(),
            table(&COLUMNS, mine.map(row))
        ));
    }
    if let Some(add) = &record.pool_add {
        parts.push(format!("pool add of {} before", short(add.bytes)));
    }
    if !record.missing_counters.is_empty() {
        let missing = record.missing_counters.iter();
        let lines: Vec<String> = missing
            .map(|(name, reason)| format!("  {name}: {reason}"))
            .collect();
        parts.push(format!("Counters that are missing\n{}", lines.join("\n")));
    }
    parts.extend(reasons("Left out", &record.left_out));
    parts.extend(reasons("FAILED", &record.failed));
    parts.join("\n\n")
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::node::plan::tests::parameters;
    use crate::node::result::tests::outcome;
    use crate::node::verdict::verdicts;
    use crate::noise::plan::Mode;
    use crate::plan::Method;
    use crate::result::tests::provenance;

    pub fn record() -> Record {
        let what = |tasks| What::Accesses {
            mode: Mode::Triad,
            size_bytes: 1 << 30,
            tasks,
        };
        let results = vec![
            outcome(what(1), Method::Thp, &[10.0; 6], Some(1000)),
            outcome(what(1), Method::Hpmmap, &[11.0; 6], None),
            outcome(what(2), Method::Thp, &[20.0; 6], None),
        ];
        let missing = BTreeMap::from([("cycles".to_string(), "forbidden".to_string())]);
        let left_out = |tasks| LeftOut {
            what: what(tasks),
            method: Method::Hugetlb,
            reason: "there are none".into(),
        };
        Record {
            provenance: provenance("node", Some(1_000_000_000)),
            parameters: parameters(60.0, 2, 4),
            seconds: 90.0,
            interrupted: false,
            prepared: false,
            pool_add: None,
            verdicts: verdicts(&results, &[], &missing),
            missing_counters: missing,
            left_out: vec![left_out(1), left_out(2)],
            failed: Vec::new(),
            results,
        }
    }

    #[test]
    fn the_report_has_verdicts_figures_and_reasons() {
        let text = text(&record());
        for line in [
            "1.5 of 60 minutes; nothing of the machine was changed",
            "Verdicts: 1 yes, 0 no, 0 not decided, 14 not measured",
            "triad, 1G\n",
            "triad, 1G, 2 tasks\n",
            "Counters that are missing\n  cycles: forbidden",
            "Left out\n  hugetlb: triad, 1G; triad, 1G, 2 tasks: there are none",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("FAILED"), "{text}");
        let yes = text.lines().find(|line| line.starts_with("yes")).unwrap();
        assert!(yes.contains("0.909 (0.909 to 0.909)"), "{yes}");
        let row = text
            .lines()
            .find(|line| line.starts_with("hpmmap "))
            .unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            words[1..6],
            ["11.0", "GB/s", "11.0..11.0", "11.0..11.0", "6"]
        );
    }

    #[test]
    fn numbers_stay_short() {
        let numbers = [0.0, 0.001234, 1.23456, 123.456, 99_999.4, 1_234_567.0, 5e9];
        assert_eq!(
            numbers.map(number),
            ["0", "1.2e-3", "1.235", "123.5", "99999", "1.2M", "5000M"]
        );
    }
}
