//! Tests with recorded files that any user may have written.

use std::fs;
use std::path::Path;

use fastrand::Rng;
use hpmmap_base::escape;
use hpmmap_base::fuzz::{NASTY, ROUNDS, broken, in_time, is_quiet};

use crate::format::{Trace, tests::written};
use crate::report::{By, Unit};
use crate::{plot, report};

fn show_trace(trace: &Trace, dir: &Path) {
    let whole = report::Report::new(trace, 0);
    for by in [By::Kind, By::Mapping, By::Thread, By::Rank] {
        let text = report::text(&whole, by, Unit::Cycles);
        assert!(is_quiet(&escape::lines(&text)));
    }
    serde_json::to_string(&whole).unwrap();
    let mut csv = Vec::new();
    report::csv(trace, 0, &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert!(is_quiet(&csv));
    let fields = csv.lines().next().unwrap().split(',').count();
    for line in csv.lines() {
        assert!(line.split(',').count() >= fields, "{line}");
        assert!(!line.split(',').any(|field| field.starts_with('=')));
    }
    let svg = dir.join("a.svg");
    plot::write(trace, 0, &svg).unwrap();
    assert!(is_quiet(&fs::read_to_string(svg).unwrap()));
}

#[test]
fn any_trace_is_read_or_refused() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        written(&path);
        let good = fs::read(&path).unwrap();
        let items = zstd::decode_all(&good[..]).unwrap();
        let mut rng = Rng::with_seed(1);
        let mut read = 0;
        for round in 0..ROUNDS {
            let bytes = match round % 2 {
                0 => broken(&good, &mut rng),
                _ => zstd::encode_all(&broken(&items, &mut rng)[..], 1).unwrap(),
            };
            fs::write(&path, bytes).unwrap();
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
