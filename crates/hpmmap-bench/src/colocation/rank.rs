//! One rank: MPI starts this in place of the program. It starts the program, and records its
//! figures.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use hpmmap_base::error::{Error, Result};
use hpmmap_base::safe_files;
use hpmmap_host::Root;
use hpmmap_sys::child::{Setup, Signal};
use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use perf_event::events::Software;
use perf_event::{Builder, Counter};
use serde::{Deserialize, Serialize};

/// The longest time, in seconds: a hundred years.
const MAX_SECONDS: f64 = 100.0 * 366.0 * 86400.0;

/// Interval at which the end of the start-up is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// Variables with a rank's number, of MPI implementations.
const NUMBERS: [&str; 2] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"];
/// Variables with its number on its machine.
const LOCAL_NUMBERS: [&str; 2] = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"];

/// Page faults. perf does not count pages that the kernel populates without an exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Faults {
    /// All faults.
    pub minor: u64,
    /// Faults that waited for a disk.
    pub major: u64,
}

/// The figures of a rank, from its start to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankRecord {
    /// Its number.
    pub rank: u32,
    /// Elapsed time.
    pub seconds: f64,
    /// CPU time in user mode, as the kernel splits it.
    pub user_seconds: f64,
    /// CPU time in the kernel.
    pub system_seconds: f64,
    /// CPU time of the main thread, as the scheduler counts it.
    pub run_seconds: f64,
    /// Time in which it was ready but had no CPU.
    pub wait_seconds: f64,
    /// Time in which it was blocked uninterruptibly, if the scheduler counts it
    /// (kernel.sched_schedstats).
    pub blocked_seconds: Option<f64>,
    /// Page faults.
    pub faults: Faults,
    /// Faults after the start-up, if its end was seen.
    pub late_faults: Option<Faults>,
    /// `"perf"` or `"getrusage"`.
    pub fault_counter: String,
    /// Time at which the start-up ended.
    pub started_seconds: Option<f64>,
    /// Peak of the resident size, without memory of hugetlbfs.
    pub rss_peak_bytes: u64,
    /// Involuntary context switches.
    pub preemptions: u64,
}

impl RankRecord {
    /// Fails if these cannot have been measured.
    pub fn check(&self) -> std::result::Result<(), String> {
        let times = [
            ("seconds", Some(self.seconds)),
            ("user_seconds", Some(self.user_seconds)),
            ("system_seconds", Some(self.system_seconds)),
            ("run_seconds", Some(self.run_seconds)),
            ("wait_seconds", Some(self.wait_seconds)),
            ("blocked_seconds", self.blocked_seconds),
            ("started_seconds", self.started_seconds),
        ];
        for (what, seconds) in times {
            let what = format!("{what} of rank {}", self.rank);
            seconds.map_or(Ok(()), |seconds| check_seconds(&what, seconds))?;
        }
        Ok(())
    }
}

/// The path of a rank's record.
pub fn path(dir: &Path, rank: u32) -> PathBuf {
    dir.join(format!("rank{rank}.json"))
}

/// The rank whose record has this file name.
pub fn number(name: &str) -> Option<u32> {
    name.strip_prefix("rank")?
        .strip_suffix(".json")?
        .parse()
        .ok()
}

/// Counters that begin with the program, not with the process that executes it.
struct Perf {
    minor: Counter,
    major: Counter,
}

impl Perf {
    fn open() -> io::Result<Self> {
        let counter = |event| {
            Builder::new(event)
                .observe_self()
                .any_cpu()
                .inherit(true)
                .enabled(false)
                .enable_on_exec(true)
                .include_kernel()
                .build()
        };
        Ok(Self {
            minor: counter(Software::PAGE_FAULTS_MIN)?,
            major: counter(Software::PAGE_FAULTS_MAJ)?,
        })
    }

    fn read(&mut self) -> io::Result<Faults> {
        Ok(Faults {
            minor: self.minor.read()?,
            major: self.major.read()?,
        })
    }
}

/// CPU time and waiting time of the main thread.
fn schedstat(root: &Root, pid: u32) -> Option<(f64, f64)> {
    let text = root.read(format!("proc/{pid}/schedstat")).ok()?;
    let mut words = text
        .split_whitespace()
        .map(|word| word.parse::<u64>().ok().map(|ns| ns as f64 / 1e9));
    Some((words.next()??, words.next()??))
}

/// Time that the main thread was blocked, if the scheduler counts it.
fn blocked(root: &Root, pid: u32) -> Option<f64> {
    let text = root.read(format!("proc/{pid}/sched")).ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("sum_block_runtime"))?;
    let milliseconds: f64 = line.rsplit_once(':')?.1.trim().parse().ok()?;
    Some(milliseconds / 1e3)
}

/// Faults so far by the process table, which includes pages that the kernel populates without an
/// exception.
fn table_faults(root: &Root, pid: u32) -> Option<Faults> {
    let text = root.read(format!("proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    Some(Faults {
        minor: words.get(7)?.parse().ok()?,
        major: words.get(9)?.parse().ok()?,
    })
}

fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}

fn failed(what: &str, why: impl std::fmt::Display) -> Error {
    Error::Failed(format!("{what}: {why}"))
}

/// The task of a rank.
pub struct Rank {
    /// Directory for the record.
    pub record: PathBuf,
    /// CPUs of the ranks of a machine, in order.
    pub cpus: Vec<u32>,
    /// Disable transparent huge pages.
    pub no_thp: bool,
    /// A file that the program makes when its start-up ends.
    pub started: Option<PathBuf>,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// Runs the program for the rank whose number MPI has put into the environment, and writes its
/// record; returns the program's exit status.
pub fn run(args: &Rank) -> Result<ExitCode> {
    let of = |names: [&str; 2]| -> Option<u32> {
        names
            .iter()
            .find_map(|name| env::var(name).ok()?.parse().ok())
    };
    let rank = of(NUMBERS).unwrap_or(0);
    let local = of(LOCAL_NUMBERS).unwrap_or(rank);
    let mut command = Command::new(&args.program);
    command.args(&args.arguments);
    Setup {
        cpus: args.cpus.get(local as usize).copied().into_iter().collect(),
        no_thp: args.no_thp,
        dies_with_parent: Some(Signal::SIGKILL),
        ..Setup::default()
    }
    .apply(&mut command)?;

    let root = Root::default();
    let mut perf = Perf::open().ok();
    let start = Instant::now();
    let mut child = command
        .spawn()
        .map_err(|error| failed(&args.program.to_string_lossy(), error))?;
    let pid = child.id();
    let faults = move |perf: &mut Option<Perf>| match perf {
        Some(perf) => perf.read().ok(),
        None => table_faults(&root, pid),
    };
    let mut started = None;
    let mut looking = args.started.is_some();
    loop {
        // It stays in the process table until all its counters have been read.
        let mut flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        flags.set(WaitPidFlag::WNOHANG, looking);
        match waitid(Id::Pid(Pid::from_raw(pid as i32)), flags) {
            Ok(WaitStatus::StillAlive) => (),
            Ok(_) => break,
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(failed("waitid", errno.desc())),
        }
        if args.started.as_ref().is_some_and(|file| file.exists()) {
            looking = false;
            let now = start.elapsed().as_secs_f64();
            started = faults(&mut perf).map(|faults| (now, faults));
        } else {
            thread::sleep(LOOK);
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    let all = faults(&mut perf).ok_or_else(|| failed("page faults", "cannot be read"))?;
    let (run_seconds, wait_seconds) = schedstat(&Root::default(), pid)
        .ok_or_else(|| failed("/proc/PID/schedstat", "cannot be read"))?;
    let blocked_seconds = blocked(&Root::default(), pid);
    let status = child.wait()?;
    let usage =
        getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|errno| failed("getrusage", errno.desc()))?;
    let record = RankRecord {
        rank,
        seconds: elapsed,
        user_seconds: seconds(usage.user_time()),
        system_seconds: seconds(usage.system_time()),
        run_seconds,
        wait_seconds,
        blocked_seconds,
        faults: all,
        late_faults: started.map(|(_, before)| Faults {
            minor: all.minor - before.minor,
            major: all.major - before.major,
        }),
        fault_counter: if perf.is_some() { "perf" } else { "getrusage" }.into(),
        started_seconds: started.map(|(when, _)| when),
        rss_peak_bytes: usage.max_rss() as u64 * 1024,
        preemptions: usage.involuntary_context_switches() as u64,
    };
    let json = serde_json::to_vec(&record).map_err(io::Error::from)?;
    let path = path(&args.record, rank);
    safe_files::write(&path, json)?;
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Checks a measured time.
pub fn check_seconds(what: &str, seconds: f64) -> std::result::Result<(), String> {
    match (0.0..=MAX_SECONDS).contains(&seconds) {
        true => Ok(()),
        false => Err(format!(
            "{what} is {seconds:e}, which is no time in seconds"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hpmmap_host::fixture::Fixture;

    use super::*;

    #[test]
    fn times_and_faults_are_taken_from_the_right_fields() {
        let fixture = Fixture::new();
        fixture.write("proc/7/schedstat", "1500000000 250000000 12\n");
        assert_eq!(schedstat(&fixture.root(), 7), Some((1.5, 0.25)));
        fixture.write("proc/7/sched", "a (7, #threads: 1)\nnr_switches : 12\n");
        assert_eq!(blocked(&fixture.root(), 7), None);
        fixture.write(
            "proc/7/sched",
            "sum_sleep_runtime   :   9.5\nsum_block_runtime   :   1250.000000\n",
        );
        assert_eq!(blocked(&fixture.root(), 7), Some(1.25));
        fixture.write(
            "proc/7/stat",
            "7 (a) b) S 1 7 7 0 -1 4194560 123 4 56 0 10 20 0 0 20 0 1\n",
        );
        let faults = Faults {
            minor: 123,
            major: 56,
        };
        assert_eq!(table_faults(&fixture.root(), 7), Some(faults));
        assert_eq!(table_faults(&fixture.root(), 8), None);
    }

    #[test]
    fn records_are_known_by_their_names() {
        let name = path(Path::new("/x"), 12);
        assert_eq!(
            number(name.file_name().unwrap().to_str().unwrap()),
            Some(12)
        );
        for other in ["rank.json", "rank1.jso", "xrank1.json", "rank-1.json"] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    #[test]
    fn a_rank_is_recorded_and_its_status_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let started = dir.path().join("started");
        let script = format!("sleep 0.1; touch {}; sleep 0.1; exit 3", started.display());
        let rank = Rank {
            record: dir.path().to_path_buf(),
            cpus: Vec::new(),
            no_thp: true,
            started: Some(started),
            program: "sh".into(),
            arguments: ["-c", &script].map(Into::into).into(),
        };
        assert_eq!(run(&rank).unwrap(), ExitCode::from(3));
        let text = fs::read(path(dir.path(), 0)).unwrap();
        let record: RankRecord = serde_json::from_slice(&text).unwrap();
        assert!(record.seconds >= 0.2, "{record:?}");
        assert!(record.faults.minor > 0, "{record:?}");
        let late = record.late_faults.unwrap();
        assert!(late.minor < record.faults.minor, "{record:?}");
    }
}
