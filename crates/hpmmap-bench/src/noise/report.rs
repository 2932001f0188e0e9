//! Results for people.

use std::collections::BTreeMap;

use hpmmap_base::output::{Column, table};
use hpmmap_base::size::Size;

use super::plan::{Case, Condition, Mode, Tasks};
use super::result::{Accesses, Cpu, Detours, Record};
use crate::plan::Method;

/// A part of the time as a percentage.
fn percent(part: f64) -> String {
    match part * 100.0 {
        0.0 => "0%".into(),
        p if p < 0.1 => format!("{p:.3}%"),
        p if p < 10.0 => format!("{p:.2}%"),
        p => format!("{p:.1}%"),
    }
}

/// A duration with three digits, or a number of instructions.
fn duration(ns: u64, is_time: bool) -> String {
    if !is_time {
        return count(ns as f64);
    }
    let of = |unit: f64, name: &str| {
        let value = ns as f64 / unit;
        match value {
            v if v < 10.0 => format!("{v:.2}{name}"),
            v if v < 100.0 => format!("{v:.1}{name}"),
            v => format!("{v:.0}{name}"),
        }
    };
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => of(1e3, "us"),
        1_000_000..1_000_000_000 => of(1e6, "ms"),
        _ => of(1e9, "s"),
    }
}

/// A number with at most five characters.
fn count(n: f64) -> String {
    match n {
        n if n < 9.95 && n > 0.0 => format!("{n:.1}"),
        n if n < 99_999.5 => format!("{n:.0}"),
        n if n < 9_999_500.0 => format!("{:.0}k", n / 1e3),
        n => format!("{:.0}M", n / 1e6),
    }
}

const DETOURS: [Column; 10] = [
    Column::Text("LOOP"),
    Column::Text("METHOD"),
    Column::Number("NOISE"),
    Column::Number("WORST"),
    Column::Number("DETOURS"),
    Column::Number("LONGEST"),
    Column::Number("CALLS"),
    Column::Number("SLOWEST"),
    Column::Number("FAULTS"),
    Column::Number("ROUNDS"),
];

fn row(one: &Detours, is_time: bool) -> Vec<String> {
    let sum = &one.summary;
    vec![
        one.variant.name().into(),
        one.method.name().into(),
        percent(sum.noise),
        percent(sum.worst_noise),
        count(sum.detours_per_second),
        duration(sum.longest_ns, is_time),
        percent(sum.calls),
        duration(sum.longest_call_ns, is_time),
        count(sum.faults_per_second),
        count(sum.rounds_per_second),
    ]
}

const CPUS: [Column; 9] = [
    Column::Text("LOOP"),
    Column::Text("METHOD"),
    Column::Number("CPU"),
    Column::Text("SHARED"),
    Column::Number("NOISE"),
    Column::Number("DETOURS"),
    Column::Number("LONGEST"),
    Column::Number("CALLS"),
    Column::Number("PREEMPTED"),
];

fn cpu_row(one: &Detours, cpu: &Cpu, is_time: bool) -> Vec<String> {
    vec![
        one.variant.name().into(),
        one.method.name().into(),
        cpu.cpu.to_string(),
        if cpu.shared { "yes" } else { "no" }.into(),
        percent(cpu.noise()),
        count(cpu.rate(cpu.detours)),
        duration(cpu.longest_ns, is_time),
        percent(cpu.call_ns as f64 / cpu.elapsed_ns.max(1) as f64),
        cpu.preempted.to_string(),
    ]
}

/// The disturbances of each loop and each CPU.
fn counts(of_it: &[&Detours], beside: &str) -> Option<String> {
    let lines: Vec<String> = of_it
        .iter()
        .filter_map(|one| Some((one, one.counts.as_ref()?)))
        .flat_map(|(one, noise)| {
            let head = format!("{} {}", one.variant.name(), one.method.name());
            let lines = noise.lines().into_iter();
            lines.map(move |(name, text)| format!("  {head:<13} {name:<6} {text}"))
        })
        .collect();
    (!lines.is_empty()).then(|| format!("Counted, {beside}\n{}", lines.join("\n")))
}

/// A table with sizes as rows and methods as columns.
fn access_table(record: &Record, mode: Mode, tasks: Tasks) -> Option<String> {
    let mut sizes: BTreeMap<u64, BTreeMap<Method, f64>> = BTreeMap::new();
    let of_it = |one: &&Accesses| (one.mode, one.tasks) == (mode, tasks);
    for one in record.accesses.iter().filter(of_it) {
        let row = sizes.entry(one.size_bytes).or_default();
        row.insert(one.method, one.median);
    }
    if sizes.is_empty() {
        return None;
    }
    let methods = &record.parameters.methods;
    let columns: Vec<Column> = std::iter::once(Column::Number("SIZE"))
        .chain(methods.iter().map(|method| Column::Number(method.name())))
        .collect();
    let rows = sizes.iter().map(|(&size, row)| {
        let cells = methods.iter().map(|method| match row.get(method) {
            Some(median) => format!("{median:.1}"),
            None => "-".into(),
        });
        std::iter::once(Size(size).to_string())
            .chain(cells)
            .collect()
    });
    let of_tasks = match tasks {
        Tasks::One => String::new(),
        several => format!(" of {} tasks, {}", record.parameters.tasks, several.name()),
    };
    Some(format!(
        "{} random accesses{of_tasks}: {} each\n{}",
        mode.name(),
        record.provenance.unit,
        table(&columns, rows)
    ))
}

/// The cases that were left out: a line for each reason.
fn left_out(record: &Record) -> Option<String> {
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in &record.left_out {
        let case: &Case = &one.case;
        reasons.entry(&one.reason).or_default().push(case.title());
    }
    if reasons.is_empty() {
        return None;
    }
    let lines = reasons
        .iter()
        .map(|(reason, titles)| format!("  {}: {reason}", titles.join(", ")));
    Some(format!(
        "Left out:\n{}",
        lines.collect::<Vec<_>>().join("\n")
    ))
}

/// All tables; with `per_cpu` also one for each CPU.
pub fn text(record: &Record, per_cpu: bool) -> String {
    let is_time = record.provenance.tsc_hz.is_some();
    let version = |name| record.provenance.version(name);
    let place = match &record.parameters.partition {
        None => String::new(),
        Some(name) => format!("; in partition {name}"),
    };
    let mut parts = vec![format!(
        "Linux {}, module {}; {}{place}",
        version("kernel"),
        version("module"),
        record.provenance.unit
    )];
    for condition in [Condition::Alone, Condition::Neighbour] {
        let of_it: Vec<&Detours> = record
            .detours
            .iter()
            .filter(|one| one.condition == condition)
            .collect();
        if of_it.is_empty() {
            continue;
        }
        let beside = match condition {
            Condition::Alone => "alone",
            Condition::Neighbour => "beside a neighbour",
        };
        let rows = of_it.iter().map(|one| row(one, is_time));
        parts.push(format!("Detours, {beside}\n{}", table(&DETOURS, rows)));
        if per_cpu {
            let rows = of_it
                .iter()
                .flat_map(|one| one.cpus.iter().map(|cpu| cpu_row(one, cpu, is_time)));
            parts.push(format!("CPU by CPU, {beside}\n{}", table(&CPUS, rows)));
        }
        parts.extend(counts(&of_it, beside));
    }
    let modes = record.parameters.modes.iter();
    for &mode in modes {
        let tasks = [Tasks::One, Tasks::Bound, Tasks::Unbound].into_iter();
        parts.extend(tasks.filter_map(|tasks| access_table(record, mode, tasks)));
    }
    parts.extend(left_out(record));
    parts.join("\n\n")
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::noise::plan::{Variant, What, tests::parameters};
    use crate::noise::result::tests::{accesses, cpu};
    use crate::noise::result::{LeftOut, Summary};
    use crate::result::tests::provenance;

    pub fn record() -> Record {
        let cpus = vec![cpu(0, &[10_000]), cpu(1, &[20_000, 40_000])];
        Record {
            provenance: provenance("noise", Some(1_000_000_000)),
            parameters: parameters(),
            pool_add: None,
            left_out: vec![LeftOut {
                case: Case {
                    method: Method::Hugetlb,
                    what: What::Accesses {
                        mode: Mode::Dependent,
                        tasks: Tasks::One,
                        size_bytes: 16 << 20,
                    },
                },
                reason: "none reserved".into(),
            }],
            detours: vec![Detours {
                variant: Variant::Touch,
                method: Method::Hpmmap,
                condition: Condition::Neighbour,
                neighbour_bytes: Some(1 << 30),
                summary: Summary::of(&cpus),
                cpus,
                counts: None,
            }],
            accesses: vec![
                accesses(Method::Small, 64 << 10, 1),
                accesses(Method::Hpmmap, 16 << 20, 2),
            ],
        }
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.000_51), "0.051%");
        assert_eq!(percent(0.0053), "0.53%");
        assert_eq!(percent(0.25), "25.0%");
        assert_eq!(duration(999, true), "999ns");
        assert_eq!(duration(1_500, true), "1.50us");
        assert_eq!(duration(24_514_788, true), "24.5ms");
        assert_eq!(duration(3_000_000_000, true), "3.00s");
        assert_eq!(duration(24_514_788, false), "25M");
        assert_eq!(count(0.25), "0.2");
        assert_eq!(count(0.0), "0");
        assert_eq!(count(145_032.0), "145k");
    }

    #[test]
    fn tables_fit_and_have_everything() {
        let text = text(&record(), true);
        assert!(
            text.starts_with(
                "Linux 6.12, module none; nanoseconds\n\nDetours, beside a neighbour\n"
            )
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[4].split_whitespace().collect::<Vec<_>>(),
            [
                "touch", "hpmmap", "3.50%", "6.00%", "1500", "40.0us", "0%", "0ns", "5000", "1000k"
            ]
        );
        assert!(text.contains("CPU by CPU, beside a neighbour\n"));
        assert!(text.contains("dependent random accesses: nanoseconds each\n"));
        let line = lines.iter().find(|line| line.contains("64K")).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["64K", "12.5", "-", "-", "-"]
        );
        assert!(text.ends_with("Left out:\n  accesses dependent hugetlb 16M: none reserved"));
        assert!(lines.iter().all(|line| line.len() <= 80), "{text}");
    }
}
