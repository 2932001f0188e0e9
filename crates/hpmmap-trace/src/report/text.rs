//! Tables and notes for people.

use hpmmap_base::output::{Column, table};

use super::super::format::Counts;
use super::figures::{By, Report, Unit, What};

/// The lines that compare the counts.
pub fn agreement_lines(report: &Report) -> Vec<String> {
    let faults = &report.faults;
    let mut lines = vec![format!(
        "Faults: {} ({} minor, {} major); {} of them are pages filled by calls.",
        faults.recorded, faults.minor, faults.major, faults.calls
    )];
    if faults.in_file != faults.recorded {
        lines.push(format!("{} of them are in the file.", faults.in_file));
    }
    let counts = |counts: Counts| {
        if faults.agree {
            counts.all().to_string()
        } else {
            format!(
                "{} ({} minor, {} major)",
                counts.all(),
                counts.minor,
                counts.major
            )
        }
    };
    let mut says = Vec::new();
    if let Some(kernel) = faults.kernel {
        says.push(format!("in the threads' counters {}", counts(kernel)));
    }
    if let Some(getrusage) = faults.getrusage {
        says.push(format!("by getrusage {}", counts(getrusage)));
    }
    if !says.is_empty() {
        let verdict = if faults.agree { "agree" } else { "DIFFER" };
        lines.push(format!(
            "The kernel's count, {}: they {verdict}.",
            says.join(", ")
        ));
    }
    let recorded = Counts {
        minor: faults.minor,
        major: faults.major,
    };
    if !faults.agree && faults.kernel == Some(recorded) {
        lines.push("getrusage lacks processes that were not waited for.".into());
    }
    lines
}

/// A number with at most six characters.
fn brief(n: f64) -> String {
    match n {
        n if n < 100.0 => format!("{n:.1}"),
        n if n < 1e6 => format!("{n:.0}"),
        n if n < 1e9 => format!("{:.1}M", n / 1e6),
        n => format!("{:.1}G", n / 1e9),
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p >= 10.0 => format!("{p:.0}%"),
        p if p >= 0.01 || p == 0.0 => format!("{p:.2}%"),
        _ => "<0.01%".into(),
    }
}

fn milliseconds(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// The title of a row.
pub(super) fn title(what: &What) -> String {
    match what {
        What::Kind { call, kind, stall } => {
            let call = if *call { "call " } else { "" };
            let plus = if stall.is_empty() { "" } else { "+" };
            format!("{call}{kind}{plus}{stall}")
        }
        What::Mapping {
            pid,
            process,
            mapping,
            ..
        } => format!("{mapping} of {process} {pid}"),
        What::Thread { pid, tid, process } if pid == tid => format!("{process} {pid}"),
        What::Thread { pid, tid, process } => format!("{process} {pid}/{tid}"),
        What::Rank { rank, pid, process } => match rank {
            Some(rank) => format!("rank {rank}: {process} {pid}"),
            None => format!("{process} {pid}"),
        },
    }
}

fn rows_table(report: &Report, by: By, unit: Unit) -> String {
    let ticks = match unit {
        Unit::Us => 1e-3,
        Unit::Cycles => report.header.tsc_hz as f64 / 1e9,
    };
    let cost = |ns: f64| brief(ns * ticks);
    let name = match by {
        By::Kind => "KIND",
        By::Mapping => "MAPPING",
        By::Thread => "THREAD",
        By::Rank => "RANK",
    };
    let calls = by != By::Kind;
    let mut columns = vec![Column::Text(name), Column::Number("COUNT")];
    columns.extend(["MEAN", "STDDEV", "P50", "P99", "MAX", "TOTAL", "RUN"].map(Column::Number));
    if calls {
        columns.push(Column::Number("CALLS"));
    }
    let rows = report.rows(by).iter().map(|row| {
        let f = &row.figures;
        let mut cells = vec![title(&row.what), f.count.to_string()];
        for ns in [f.mean_ns, f.stddev_ns] {
            cells.push(cost(ns));
        }
        for ns in [f.p50_ns, f.p99_ns, f.max_ns, f.sum_ns] {
            cells.push(cost(ns as f64));
        }
        cells.push(percent(row.run_share));
        if calls {
            cells.push(row.calls.to_string());
        }
        cells
    });
    table(&columns, rows)
}

/// The whole report for people.
pub fn text(report: &Report, by: By, unit: Unit) -> String {
    let header = &report.header;
    let mut parts = vec![format!(
        "{}\nLinux {}, {} CPUs, {:.3} s",
        header.what(),
        header.kernel,
        header.cpus,
        (report.run_ns + report.after_ns) as f64 / 1e9
    )];
    if report.after_ns > 0 {
        parts[0] += &format!(
            "\nFaults that began more than {:.3} s after the start; the lines below the table\n\
             are of the whole run.",
            report.after_ns as f64 / 1e9
        );
    }
    if report.rows(by).is_empty() {
        parts.push("No faults.".into());
    } else {
        let unit_name = match unit {
            Unit::Us => "microseconds",
            Unit::Cycles => "cycles of the time stamp counter",
        };
        parts.push(format!(
            "Costs in {unit_name}.\n{}",
            rows_table(report, by, unit)
        ));
    }
    parts.push(notes(report));
    parts.join("\n\n")
}

/// The lines after the table.
pub(super) fn notes(report: &Report) -> String {
    let mut lines = Vec::new();
    for one in report.stolen.iter().filter(|one| one.count > 0) {
        let what = match one.cause.as_str() {
            "merge" => "Merges into large pages".to_string(),
            cause => format!("Stolen by {cause}"),
        };
        lines.push(format!(
            "{what}: {} times, {} (longest {}).",
            one.count,
            milliseconds(one.sum_ns),
            milliseconds(one.max_ns)
        ));
    }
    if lines.is_empty() && report.complete {
        lines.push("Stolen: no time by reclaim, compaction or migration; no merges.".into());
    }
    lines.extend(agreement_lines(report));
    if !report.complete {
        lines.push("The recorder was killed: the end is missing.".into());
    }
    for (n, what) in [
        (
            report.dropped,
            "events had no room in the buffer (see --buffer): only totals by kind are whole",
        ),
        (report.untracked, "processes or threads could not be traced"),
        (
            report.overhead.missed,
            "runs of the BPF programs were missed",
        ),
        (
            u64::from(report.running),
            "processes were still running at the end",
        ),
    ] {
        if n > 0 {
            lines.push(format!("{n} {what}."));
        }
    }
    if !report.header.missing.is_empty() {
        lines.push(format!(
            "This kernel has no {}: nothing is known about that.",
            report.header.missing.join(", ")
        ));
    }
    if report.complete {
        lines.extend(overhead_lines(report));
    }
    lines.join("\n")
}

fn overhead_lines(report: &Report) -> Vec<String> {
    let overhead = &report.overhead;
    let run_ns = (report.run_ns + report.after_ns).max(1);
    let share = |ns: u64| percent(ns as f64 / run_ns as f64);
    let mut lines = Vec::new();
    if overhead.runs > 0 {
        lines.push(format!(
            "BPF programs: {} runs, {} ({} of the run, {:.2} us each).",
            overhead.runs,
            milliseconds(overhead.run_ns),
            share(overhead.run_ns),
            overhead.run_ns as f64 / 1e3 / overhead.runs as f64,
        ));
    } else {
        lines.push("What recording cost in the kernel is not known.".into());
    }
    lines.push(format!(
        "Recorder: {} of CPU time ({} of the run).",
        milliseconds(overhead.recorder_ns),
        share(overhead.recorder_ns)
    ));
    lines
}
