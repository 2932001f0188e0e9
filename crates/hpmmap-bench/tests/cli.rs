//! Tests the built program from outside: signals.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A benchmark whose worker hangs and ignores signals.
fn hanging_benchmark(dir: &Path) -> Child {
    let worker = dir.join("worker");
    let script = "#!/bin/sh\ntrap '' TERM HUP QUIT INT PIPE\necho $$ >\"$0.pid\"\nwhile :; do sleep 1; done\n";
    fs::write(&worker, script).unwrap();
    fs::set_permissions(&worker, fs::Permissions::from_mode(0o755)).unwrap();
    // Starts it as a shell starts background commands; SIGQUIT may be ignored already, as the
    // tests were started.
    let child = Command::new("env")
        .args([
            "--default-signal",
            "sh",
            "-c",
            "trap '' INT; exec \"$@\"",
            "sh",
        ])
        .arg(env!("CARGO_BIN_EXE_hpmmap-bench"))
        .args(["alloc", "--method=4k", "--pattern=map"])
        .args(["--size=4K", "--verbose", "--worker"])
        .arg(&worker)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = dir.join("worker.pid");
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(&pid)
        .unwrap_or_default()
        .trim()
        .is_empty()
    {
        assert!(Instant::now() < deadline, "it did not start");
        sleep(Duration::from_millis(20));
    }
    child
}

/// Every signal that ends a process ends a benchmark in an orderly way, with its worker, even if
/// that ignores it.
#[test]
fn a_signal_ends_a_benchmark_and_its_worker() {
    let signal = |name: &str, pid: u32| {
        // The shell's own kill: the program may not be installed.
        let sent = Command::new("sh")
            .args(["-c", "kill -s $0 $1", name, &pid.to_string()])
            .status();
        assert!(sent.unwrap().success());
    };
    // They run at the same time: each takes as long as the worker may take.
    let running: Vec<_> = ["HUP", "QUIT", "TERM", "PIPE", "INT"]
        .map(|name| {
            let dir = tempfile::tempdir().unwrap();
            let child = hanging_benchmark(dir.path());
            signal(name, child.id());
            (name, dir, child)
        })
        .into();
    for (name, dir, child) in running {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains("hpmmap: "), "{name}: {said}");
        let pid = fs::read_to_string(dir.path().join("worker.pid")).unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{name}: {stat}");
    }
}

/// If the benchmark itself is killed the kernel ends its children.
#[test]
fn a_worker_does_not_outlive_a_benchmark() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = hanging_benchmark(dir.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let pid = fs::read_to_string(dir.path().join("worker.pid")).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    let lives = || fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z "));
    let deadline = Instant::now() + Duration::from_secs(60);
    while lives() && Instant::now() < deadline {
        sleep(Duration::from_millis(20));
    }
    assert!(!lives());
}
