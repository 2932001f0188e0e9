//! The built command from outside: exit statuses, streams, signals.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use hpmmap_host::fixture::Fixture;

const HPMMAP: &str = env!("CARGO_BIN_EXE_hpmmap");
const SIGPIPE: i32 = 13;

fn hpmmap(args: &[&str]) -> Output {
    Command::new(HPMMAP).args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Tests for a machine without the module are skipped on one with it.
fn module_is_loaded() -> bool {
    Path::new("/sys/kernel/hpmmap").exists()
}

#[test]
fn the_version_is_the_one_of_the_file() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../VERSION");
    let version = fs::read_to_string(file).unwrap();
    let output = hpmmap(&["--version"]);
    assert!(output.status.success());
    assert_eq!(stdout(&output), format!("hpmmap {}\n", version.trim()));
}

#[test]
fn wrong_usage_is_two_and_125_for_run() {
    for (args, code) in [
        (&[][..], 2),
        (&["pool"], 2),
        (&["pool", "add"], 2),
        (&["pool", "add", "--size", "much"], 2),
        (&["status", "--watch", "-1"], 2),
        (&["partition", "create", "a"], 2),
        (&["partition", "show", "none"], 2),
        (&["partition", "reserve"], 2),
        (&["partition", "reserve", "--cpus", "1", "--undo"], 2),
        (&["run", "--per-core", "true"], 125),
        (&["run", "--partition", "none", "true"], 125),
        (&["status", "--watch", "--prometheus"], 2),
        (&["status", "--output", "x"], 2),
        (&["doctor", "--root", "/nonexistent"], 2),
        (&["mark"], 2),
        (&["mark", "--show", "--strict", "x"], 2),
        (&["unmark", "--strict", "x"], 2),
        (&["run"], 125),
        (&["run", "--page-size", "3M", "true"], 125),
        (&["run", "--node", "x", "true"], 125),
        (&["run", "--help"], 0),
        (&["help", "run"], 0),
    ] {
        let output = hpmmap(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert_eq!(output.stderr.is_empty(), code == 0, "{args:?}: {output:?}");
    }
}

#[test]
fn wrong_usage_is_json_where_the_report_would_be() {
    for args in [
        &["pool", "add", "--size", "1X", "--json"][..],
        &["status", "--json", "--wacth"],
    ] {
        let output = hpmmap(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!((&error["schema"], &error["status"]), (&1.into(), &2.into()));
        assert!(!error["error"].as_str().unwrap().starts_with("error:"));
    }
}

#[test]
fn without_the_module_every_verb_says_what_to_do() {
    if module_is_loaded() {
        eprintln!("skipped: the module is loaded");
        return;
    }
    for (args, code) in [
        (&["pool", "list"][..], 1),
        (&["pool", "list", "--json", "--verbose"], 1),
        (&["pool", "limit", "--default", "--size", "none"], 1),
        (&["status"], 1),
        (&["status", "--json"], 1),
        (&["run", "true"], 125),
    ] {
        let output = hpmmap(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let what = "the module is not loaded (load it with: modprobe hpmmap)";
        if args.contains(&"--json") {
            let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
            let expected = serde_json::json!({ "schema": 1, "error": what, "status": code });
            assert_eq!(error, expected, "{args:?}");
        } else {
            assert_eq!(stderr(&output), format!("hpmmap: {what}\n"), "{args:?}");
        }
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn without_the_module_prometheus_is_told_so() {
    if module_is_loaded() {
        eprintln!("skipped: the module is loaded");
        return;
    }
    let output = hpmmap(&["status", "--prometheus"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stdout(&output).lines().last(), Some("hpmmap_up 0"));
}

/// A machine that hpmmap cannot run on.
fn unable() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("proc/sys/kernel/osrelease", "5.10.0\n");
    fixture
}

#[test]
fn doctor_fails_with_a_report() {
    let fixture = unable();
    let root = fixture.path().to_str().unwrap();
    let output = hpmmap(&["doctor", "--json", "--root", root]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.is_empty(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["able"], false);
    let kernel = json["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["id"] == "kernel")
        .unwrap();
    assert_eq!(kernel["result"], "fail");
    assert_eq!(kernel["detail"], "5.10.0");

    let text = stdout(&hpmmap(&["doctor", "--root", root]));
    assert!(
        text.contains("-> hpmmap needs Linux 6.1 or newer"),
        "{text}"
    );
}

fn pipe_without_reader() -> Stdio {
    let (reader, writer) = nix::unistd::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_reader_that_goes_away_ends_it_by_sigpipe() {
    let fixture = unable();
    let writer = pipe_without_reader();
    let status = Command::new(HPMMAP)
        .args(["doctor", "--root", fixture.path().to_str().unwrap()])
        .stdout(writer)
        .stderr(Stdio::piped())
        .status()
        .unwrap();
    assert_eq!(status.signal(), Some(SIGPIPE));
}

#[test]
fn a_caller_that_ignores_sigpipe_gets_an_error_instead() {
    let fixture = unable();
    let writer = pipe_without_reader();
    let output = Command::new("sh")
        .args([
            "-c",
            "trap '' PIPE; exec \"$0\" doctor --root \"$1\"",
            HPMMAP,
        ])
        .arg(fixture.path())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).starts_with("hpmmap: cannot write the output: "),
        "{output:?}"
    );
}

#[test]
fn files_that_cannot_be_marked_do_not_keep_others_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    fs::copy("/bin/true", &path).unwrap();
    let program = path.to_str().unwrap();

    let output = hpmmap(&["mark", "/nonexistent", program, "/"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(
        stderr(&output),
        "hpmmap: /nonexistent: No such file or directory\nhpmmap: /: is a directory\n"
    );
    assert!(stdout(&output).starts_with(&format!("{program}: marked (page size 2M, image)\n")));

    let output = hpmmap(&["mark", "--show", "--json", program]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["files"][0]["marked"], true);
    assert_eq!(json["files"][0]["options"]["page_size"], 2 << 20);

    let output = hpmmap(&["unmark", program]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(&path).unwrap(), fs::read("/bin/true").unwrap());
    let output = hpmmap(&["mark", "--show", program]);
    assert_eq!(stdout(&output), format!("{program}: not marked\n"));
}

/// A directory with the command and a program for its verb `bench` that prints its arguments.
fn with_bench() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(HPMMAP, dir.path().join("hpmmap")).unwrap();
    let bench = dir.path().join("hpmmap-bench");
    fs::write(&bench, "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 3\n").unwrap();
    fs::set_permissions(&bench, fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

#[test]
fn a_verb_of_another_program_is_left_to_it() {
    let dir = with_bench();
    let run = |words: &[&str]| {
        let output = Command::new(dir.path().join("hpmmap")).args(words).output();
        let output = output.unwrap();
        (output.status.code(), stdout(&output), stderr(&output))
    };
    let words = &["bench", "alloc", "--json", "--help", "--", "-x"];
    let told = "<alloc><--json><--help><--><-x>";
    assert_eq!(run(words), (Some(3), told.into(), String::new()));
    assert_eq!(run(&["help", "bench", "alloc"]).1, "<help><alloc>");
    for (words, code) in [
        (&["trace", "report", "x"], 1),
        (&["trace", "record", "x"], 125),
    ] {
        let (status, _, said) = run(words);
        assert_eq!(status, Some(code), "{words:?}");
        assert!(said.contains("install the package hpmmap-trace"), "{said}");
    }
}
