//! Tests with studies and records that any user may have written.

use std::fs;
use std::path::Path;

use fastrand::Rng;
use hpmmap_base::error::Result;
use hpmmap_base::escape;
use hpmmap_base::fuzz::{ROUNDS, broken, in_time, is_quiet, odd_json};

use crate::colocation::record::tests as study;
use crate::colocation::record::{Purpose, Store};
use crate::colocation::summary::Summary;
use crate::colocation::{chart, html, text};
use crate::plan::Method;
use crate::result::Record;
use crate::result::tests::{outcome, record};
use crate::{compare, plot, report};

fn show_study(dir: &Path) -> Result<()> {
    let (store, plan, runs) = Store::resume(dir, Purpose::Report)?;
    let summary = Summary::new(&plan, &runs);
    serde_json::to_vec_pretty(&summary).unwrap();
    assert!(is_quiet(&escape::lines(&text::text(&summary))));
    let html = html::report(&summary, &runs)?;
    assert!(is_quiet(&html) && !html.contains("<script"));
    chart::charts(&summary)?;
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
        let mut rng = Rng::with_seed(5);
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
        // A record that is read is only compared; only measured ones are shown and drawn.
        report::text(&good);
        plot::write(&good, &dir.path().join("alloc")).unwrap();
    });
}
