//! What comes out of files that anybody may have written: an error or a report,
//! soon, and nothing in it that acts on who reads it.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::bench::colocation::record::tests as study;
use crate::bench::colocation::record::{Purpose, Store};
use crate::bench::colocation::summary::Summary;
use crate::bench::colocation::{html, text};
use crate::bench::plan::Method;
use crate::bench::result::Record;
use crate::bench::result::tests::{outcome, record};
use crate::bench::{compare, plot, report};
use crate::cli::{TraceBy, TraceUnit};
use crate::error::Result;
use crate::escape;
use crate::trace::format::{Trace, tests::written};
use crate::trace::{plot as trace_plot, report as trace_report};

const ROUNDS: usize = 400;
/// Far longer than all rounds together take.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs it, and fails where it would hang.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        done.send(())
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(LIMIT) {
        panic!("it does not end");
    }
    thread.join().expect("no panic").expect("somebody waits");
}

/// Some bytes changed, taken away, doubled or put in.
fn broken(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(0..=bytes.len());
        match rng.u8(0..6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.u8(..)),
            2 => bytes.extend_from_within(at..),
            3 => {
                bytes.drain(at..(at + rng.usize(0..9)).min(bytes.len()));
            }
            4 if at + 8 <= bytes.len() => {
                let value = [0, 1, u64::MAX, 1 << 63, 1 << 59][rng.usize(0..5)];
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.u8(0..8);
                }
            }
        }
    }
    bytes
}

const NASTY: &str = "=\u{1b}]0;<script>&\"'\u{7}\n\u{202e}\u{9b}2J";

/// Values that are right for JSON, one in so many exchanged.
fn odd(value: &mut Value, rng: &mut Rng, one_in: u32) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| odd(one, rng, one_in)),
        Value::Object(all) => all.values_mut().for_each(|one| odd(one, rng, one_in)),
        _ if rng.u32(0..one_in) != 0 => (),
        Value::String(_) => *value = json!(NASTY),
        Value::Number(_) => {
            let numbers = [
                json!(1.7e308),
                json!(-1.0),
                json!(0),
                json!(1e-308),
                json!(3.1e9),
                json!(u64::MAX),
                json!(1_u64 << 47),
                json!(7),
                Value::Null,
            ];
            *value = rng.choice(numbers).expect("there are some");
        }
        _ => *value = json!(rng.bool()),
    }
}

fn odd_json(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut value: Value = serde_json::from_slice(bytes).unwrap();
    let one_in = rng.u32(1..60);
    odd(&mut value, rng, one_in);
    serde_json::to_vec(&value).unwrap()
}

/// Whether a file for a browser holds no control characters.
fn is_quiet(text: &str) -> bool {
    text.chars()
        .all(|c| c == '\n' || c == '\r' || c == '\t' || !c.is_control())
}

fn show_trace(trace: &Trace, dir: &Path) {
    let whole = trace_report::Report::new(trace, 0);
    for by in [
        TraceBy::Kind,
        TraceBy::Mapping,
        TraceBy::Thread,
        TraceBy::Rank,
    ] {
        let text = trace_report::text(&whole, by, TraceUnit::Cycles);
        assert!(is_quiet(&escape::lines(&text)));
    }
    serde_json::to_string(&whole).unwrap();
    let mut csv = Vec::new();
    trace_report::csv(trace, 0, &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert!(is_quiet(&csv));
    let fields = csv.lines().next().unwrap().split(',').count();
    for line in csv.lines() {
        assert!(line.split(',').count() >= fields, "{line}");
        assert!(!line.split(',').any(|field| field.starts_with('=')));
    }
    let svg = dir.join("a.svg");
    trace_plot::write(trace, 0, &svg).unwrap();
    assert!(is_quiet(&fs::read_to_string(svg).unwrap()));
}

#[test]
fn any_trace_is_read_or_refused() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        written(&path);
        let good = fs::read(&path).unwrap();
        let mut rng = Rng::with_seed(1);
        let mut read = 0;
        for _ in 0..ROUNDS {
            fs::write(&path, broken(&good, &mut rng)).unwrap();
            if let Ok(trace) = Trace::read(&path) {
                read += 1;
                show_trace(&trace, dir.path());
            }
        }
        assert!(read > 10, "{read}");
    });
}

#[test]
fn names_in_a_trace_act_on_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut trace = written(&path);
    trace.header.command = vec![NASTY.into()];
    trace.tasks[0].comm = NASTY.into();
    for mapping in trace.mappings.values_mut() {
        (mapping.name, mapping.class) = (NASTY.into(), NASTY.into());
    }
    show_trace(&trace, dir.path());
}

fn show_study(dir: &Path) -> Result<()> {
    let (store, plan, runs) = Store::resume(dir, Purpose::Report)?;
    let summary = Summary::new(&plan, &runs);
    serde_json::to_vec_pretty(&summary).unwrap();
    assert!(is_quiet(&escape::lines(&text::text(&summary))));
    let html = html::report(&summary, &runs)?;
    assert!(is_quiet(&html) && !html.contains("<script"));
    for workload in summary.workloads() {
        html::chart(&summary, workload)?;
    }
    store.write("report.html", html.as_bytes())
}

#[test]
fn any_study_is_read_or_refused() {
    in_time(|| {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("study");
        let plan = study::plan();
        {
            let mut store = Store::create(&dir, &plan).unwrap();
            for (n, planned) in plan.runs.iter().enumerate() {
                let run = study::run(*planned, 1.0 + n as f64 / 10.0, 0.1);
                store.append(&run).unwrap();
            }
        }
        let (study, runs) = (dir.join("study.json"), dir.join("runs.jsonl"));
        let good = (fs::read(&study).unwrap(), fs::read(&runs).unwrap());
        let mut rng = Rng::with_seed(2);
        let mut read = 0;
        for round in 0..ROUNDS {
            let lines = good.1.split(|&byte| byte == b'\n');
            let odd_lines = |rng: &mut Rng| -> Vec<u8> {
                let lines = lines.filter(|line| !line.is_empty());
                lines
                    .flat_map(|line| [odd_json(line, rng), b"\n".to_vec()].concat())
                    .collect()
            };
            let (plan, lines) = match round % 4 {
                0 => (broken(&good.0, &mut rng), good.1.clone()),
                1 => (good.0.clone(), broken(&good.1, &mut rng)),
                2 => (odd_json(&good.0, &mut rng), good.1.clone()),
                _ => (good.0.clone(), odd_lines(&mut rng)),
            };
            fs::write(&study, plan).unwrap();
            fs::write(&runs, lines).unwrap();
            read += usize::from(show_study(&dir).is_ok());
        }
        assert!(read > 10, "{read}");
    });
}

#[test]
fn a_time_that_cannot_be_is_named() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("study");
    let plan = study::plan();
    let mut store = Store::create(&dir, &plan).unwrap();
    for (seconds, shown) in [(1.7e308, "1.7e308"), (-1.0, "-1e0")] {
        let runs = dir.join("runs.jsonl");
        fs::write(&runs, "").unwrap();
        store
            .append(&study::run(plan.runs[0], seconds, 0.0))
            .unwrap();
        let error = show_study(&dir).unwrap_err().to_string();
        let want = format!("line 1: seconds is {shown}, which is no time in seconds");
        assert!(error.ends_with(&want), "{error}");
    }
}

#[test]
fn any_record_is_read_or_refused() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("alloc.json");
        let good = record(vec![
            outcome(Method::Small, 4096, &[1000, 1001, 999]),
            outcome(Method::Hpmmap, 1 << 21, &[7, 8, 9]),
        ]);
        let bytes = serde_json::to_vec(&good).unwrap();
        let mut rng = Rng::with_seed(3);
        let mut read = 0;
        for round in 0..ROUNDS {
            let text = match round % 2 {
                0 => broken(&bytes, &mut rng),
                _ => odd_json(&bytes, &mut rng),
            };
            fs::write(&path, text).unwrap();
            let Ok(found) = Record::read(&path) else {
                continue;
            };
            read += 1;
            for (a, b) in [(&good, &found), (&found, &good)] {
                if let Ok(comparison) = compare::compare(a, b) {
                    assert!(is_quiet(&escape::lines(&comparison.text())));
                }
            }
        }
        assert!(read > 3, "{read}");
        // What is read is only compared; shown and drawn is what was measured.
        report::text(&good);
        plot::write(&good, &dir.path().join("alloc")).unwrap();
    });
}
