//! Tests the built program from outside: exit statuses, a recorded file.

use std::fs;
use std::process::{Command, Output};

/// A file made by other implementations of postcard and zstd.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/trace-v2.zst");

fn trace(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_hpmmap-trace");
    Command::new(program).args(args).output().unwrap()
}

#[test]
fn wrong_usage_is_two_and_125_for_record() {
    for (args, code) in [
        (&[][..], 2),
        (&["report"], 2),
        (&["report", "x", "--json", "--csv"], 2),
        (&["report", "x", "--by", "weather"], 2),
        (&["plot", "x", "-o", "x.jpg"], 2),
        (&["record"], 125),
        (&["record", "-p", "1", "true"], 125),
        (&["record", "--buffer", "3M", "true"], 125),
        (&["record", "--help"], 0),
        (&["help", "record"], 0),
    ] {
        let output = trace(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert_eq!(output.stderr.is_empty(), code == 0, "{args:?}: {output:?}");
    }
    let help = trace(&["report", "--help"]).stdout;
    let help = String::from_utf8(help).unwrap();
    assert!(help.contains("Usage: hpmmap trace report "), "{help}");
}

#[test]
fn a_recorded_file_is_reported_and_drawn() {
    let output = trace(&["report", RECORDED, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["complete"], true);
    assert_eq!(report["faults"]["agree"], true);
    let recorded = report["faults"]["recorded"].as_u64().unwrap();
    assert!(recorded > 100, "{recorded}");
    let csv = trace(&["report", RECORDED, "--csv"]).stdout;
    let lines = csv.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines as u64, recorded + 1);

    let dir = tempfile::tempdir().unwrap();
    let picture = dir.path().join("x.svg");
    let output = trace(&["plot", RECORDED, "-o", picture.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read_to_string(&picture).unwrap().contains("faults"));
}
