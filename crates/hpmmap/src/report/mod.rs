//! The report of `run`: decides whether a launch ran undisturbed.

use std::collections::BTreeMap;
use std::time::Duration;

use hpmmap_base::VERSION;
use hpmmap_base::error::Result;
use hpmmap_base::user_name;
use hpmmap_host::job::{self, FaultReasons, Faults, Latency, Limited, Stall};
use hpmmap_host::noise::{self, Noise};
use hpmmap_host::{Root, cgroup, pool, process};
use serde::Serialize;

mod text;
mod verdict;
mod words;

use verdict::{Judgement, Program, Verdict, programs};
use words::gigabytes;

/// It grows when a member changes its meaning or is removed; new members may come without that.
const SCHEMA: u32 = 2;

/// The end of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// Its exit status.
    Status(i32),
    /// The signal that ended it.
    Signal(i32),
}

/// Facts that the launcher itself knows.
#[derive(Debug, Clone)]
pub struct Run {
    pub command: Vec<String>,
    pub host: String,
    /// Start, in seconds since 1970.
    pub started: u64,
    pub elapsed: Duration,
    pub exit: Exit,
    /// Minor faults of the processes that were waited for.
    pub minor_faults: u64,
    pub major_faults: u64,
    /// The disturbances of its CPUs, if they were asked for.
    pub noise: Option<Noise>,
}

/// The report as it is written.
#[derive(Debug, Serialize)]
pub struct Report {
    report: &'static str,
    schema: u32,
    versions: Versions,
    host: String,
    command: Vec<String>,
    started: u64,
    elapsed_seconds: f64,
    exit: Exit,
    job: Owner,
    processes: Processes,
    programs: Vec<Program>,
    verdict: Verdict,
    /// `None` if that is not known.
    undisturbed: Option<bool>,
    findings: Vec<String>,
    unknown: Vec<String>,
    notes: Vec<String>,
    faults: FaultReport,
    memory: Memory,
    fallbacks: FallbackReport,
    pools: Pools,
    latency: BTreeMap<&'static str, Times>,
    stalls: BTreeMap<&'static str, Wait>,
    fork_copied_bytes: u64,
    cleared_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    noise: Option<NoiseReport>,
}

/// The disturbances of the launch's CPUs.
#[derive(Debug, Serialize)]
struct NoiseReport {
    verdict: noise::Verdict,
    /// `None` if that is not known.
    quiet: Option<bool>,
    findings: Vec<String>,
    #[serde(flatten)]
    counts: Noise,
}

impl From<Noise> for NoiseReport {
    fn from(counts: Noise) -> Self {
        let verdict = counts.verdict();
        Self {
            verdict,
            quiet: match verdict {
                noise::Verdict::Quiet => Some(true),
                noise::Verdict::Noisy => Some(false),
                noise::Verdict::Unknown => None,
            },
            findings: counts.findings(),
            counts,
        }
    }
}

#[derive(Debug, Serialize)]
struct Versions {
    hpmmap: &'static str,
    module: String,
    kernel: String,
}

#[derive(Debug, Serialize)]
struct Owner {
    id: u64,
    uid: u32,
    user: String,
    strict: bool,
    page_size: u64,
}

#[derive(Debug, Serialize)]
struct Processes {
    total: u64,
    address_spaces: u64,
    left: u64,
    /// Programs that were executed, by outcome.
    executed: Option<job::ProgramKinds>,
}

#[derive(Debug, Serialize)]
struct FaultReport {
    pool_memory: PoolFaults,
    all_memory: AllFaults,
}

/// Page faults in pool memory: all of them, from execve on.
#[derive(Debug, Serialize)]
struct PoolFaults {
    total: u64,
    /// The part of them in programs that are not helpers.
    application: u64,
    user: u64,
    kernel: u64,
    by_reason: FaultReasons,
    #[serde(flatten)]
    places: Faults,
}

/// Linux's counters: they include the start-up and ordinary memory.
#[derive(Debug, Serialize)]
struct AllFaults {
    minor: u64,
    major: u64,
}

#[derive(Debug, Serialize)]
struct Memory {
    peak_bytes: u64,
    peak_one_bytes: u64,
    held_bytes: u64,
    linux_bytes: u64,
    few_bytes: u64,
    placed_bytes: u64,
    placed_runs: u64,
    placed: Vec<Placed>,
    remote_bytes: u64,
    /// `None` if no memory was placed.
    remote_share: Option<f64>,
    entries: Entries,
    gigabytes: Gigabytes,
}

/// For a launch that asked for contiguous gigabytes.
#[derive(Debug, Serialize)]
struct Gigabytes {
    wanted: u64,
    had: u64,
}

#[derive(Debug, Serialize)]
struct Placed {
    node: u32,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Entries {
    #[serde(rename = "1g")]
    huge: u64,
    #[serde(rename = "1g_bytes")]
    huge_bytes: u64,
    #[serde(rename = "1g_splits")]
    splits: u64,
    #[serde(rename = "1g_joins")]
    joins: u64,
    #[serde(rename = "2m")]
    large: u64,
    #[serde(rename = "4k")]
    small: u64,
    #[serde(rename = "2m_bytes")]
    large_bytes: u64,
    #[serde(rename = "4k_bytes")]
    small_bytes: u64,
}

#[derive(Debug, Serialize)]
struct FallbackReport {
    calls: u64,
    bytes: u64,
    by_call: job::Fallbacks,
    by_reason: job::FallbackReasons,
}

#[derive(Debug, Serialize)]
struct Pools {
    lowest_free_bytes: Option<u64>,
    refusals: u64,
    failures: u64,
    /// Requests that a limit has refused, by kind of limit.
    limited: Limited,
    /// Path of the cgroup whose limit refused last.
    limited_cgroup: Option<String>,
}

/// Times in nanoseconds; `None` without calls, or if the clock's rate is not known.
#[derive(Debug, Serialize)]
struct Times {
    calls: u64,
    mean_ns: Option<u64>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    worst_ns: Option<u64>,
    histogram: Vec<Bucket>,
}

#[derive(Debug, Serialize)]
struct Bucket {
    /// `None`: no upper end.
    below_ns: Option<u64>,
    calls: u64,
}

#[derive(Debug, Serialize)]
struct Wait {
    count: u64,
    total_ns: Option<u64>,
    worst_ns: Option<u64>,
}

/// Ticks in nanoseconds; `None` if the clock's rate is not known.
fn nanoseconds(ticks: u64, khz: u64) -> Option<u64> {
    (khz != 0).then(|| (u128::from(ticks) * 1_000_000 / u128::from(khz)) as u64)
}

fn times(latency: &Latency, khz: u64) -> Times {
    let calls = latency.count();
    let ns = |ticks: Option<u64>| ticks.and_then(|ticks| nanoseconds(ticks, khz));
    Times {
        calls,
        mean_ns: ns(latency.ticks.checked_div(calls)),
        p50_ns: ns(latency.quantile(0.5)),
        p99_ns: ns(latency.quantile(0.99)),
        worst_ns: ns((calls > 0).then_some(latency.worst_ticks)),
        histogram: latency
            .buckets_ns(khz)
            .into_iter()
            .map(|(below_ns, calls)| Bucket { below_ns, calls })
            .collect(),
    }
}

fn wait(stall: &Stall, khz: u64) -> Wait {
    Wait {
        count: stall.count,
        total_ns: nanoseconds(stall.ticks, khz),
        worst_ns: nanoseconds(stall.worst_ticks, khz),
    }
}

impl Report {
    /// Reads the module's counters of launch `id` and makes the report.
    pub fn read(root: &Root, id: u64, run: Run) -> Result<Self> {
        let job = job::read(root, id)?;
        let places = job::faults(root, id)?;
        let mut latency = BTreeMap::new();
        for call in job::TIMED_CALLS {
            latency.insert(call, times(&job::latency(root, id, call)?, job.tick_khz));
        }
        let cgroup = job.limited_cgroup_id.and_then(|id| cgroup::path(root, id));
        let programs = programs(job::programs(root, id)?);
        let judgement = Judgement::of(&job, &programs, cgroup.as_deref());
        let total = job.faults + job.faults_kernel;
        let helpers = programs.iter().filter(|one| one.helper);
        let application = total.saturating_sub(helpers.map(|one| one.counted.faults).sum());
        let verdict = judgement.verdict();
        let placed_bytes = job.placed_bytes.values().sum();
        Ok(Self {
            report: "hpmmap run",
            schema: SCHEMA,
            versions: Versions {
                hpmmap: VERSION,
                module: pool::version(root)?,
                kernel: process::kernel_release(root)?,
            },
            host: run.host,
            command: run.command,
            started: run.started,
            elapsed_seconds: run.elapsed.as_secs_f64(),
            exit: run.exit,
            job: Owner {
                id,
                uid: job.uid,
                user: user_name(job.uid),
                strict: job.strict,
                page_size: job.page_size,
            },
            processes: Processes {
                total: job.processes_total,
                address_spaces: job.address_spaces_total,
                left: job.processes,
                executed: job.programs,
            },
            programs,
            verdict,
            undisturbed: match verdict {
                Verdict::Undisturbed => Some(true),
                Verdict::Disturbed => Some(false),
                Verdict::Unknown => None,
            },
            findings: judgement.findings,
            unknown: judgement.unknown,
            notes: judgement.notes,
            faults: FaultReport {
                pool_memory: PoolFaults {
                    total,
                    application,
                    user: job.faults,
                    kernel: job.faults_kernel,
                    by_reason: job.faults_by_reason,
                    places,
                },
                all_memory: AllFaults {
                    minor: run.minor_faults,
                    major: run.major_faults,
                },
            },
            memory: Memory {
                peak_bytes: job.peak_bytes,
                peak_one_bytes: job.peak_one_bytes,
                held_bytes: job.held_bytes,
                linux_bytes: job.linux_bytes,
                few_bytes: job.few_bytes,
                placed_bytes,
                placed_runs: job.placed_runs,
                placed: job
                    .placed_bytes
                    .iter()
                    .map(|(&node, &bytes)| Placed { node, bytes })
                    .collect(),
                remote_bytes: job.placed_remote_bytes,
                remote_share: (placed_bytes != 0)
                    .then(|| job.placed_remote_bytes as f64 / placed_bytes as f64),
                entries: Entries {
                    huge: job.entries_1g,
                    huge_bytes: job.entries_1g << 30,
                    splits: job.splits_1g,
                    joins: job.joins_1g,
                    large: job.entries_2m,
                    small: job.entries_4k,
                    large_bytes: job.entries_2m << 21,
                    small_bytes: job.entries_4k << 12,
                },
                gigabytes: Gigabytes {
                    wanted: gigabytes(job.large_wanted_bytes),
                    had: gigabytes(job.large_wanted_bytes - job.large_missed_bytes),
                },
            },
            fallbacks: FallbackReport {
                calls: job.fallbacks.total(),
                bytes: job.fallback_bytes,
                by_call: job.fallbacks,
                by_reason: job.fallback_reasons,
            },
            pools: Pools {
                lowest_free_bytes: job.lowest_free_bytes,
                refusals: job.refusals,
                failures: job.failures,
                limited: job.limited,
                limited_cgroup: cgroup,
            },
            latency,
            stalls: job
                .stalls
                .iter()
                .map(|(name, stall)| (name, wait(&stall, job.tick_khz)))
                .collect(),
            fork_copied_bytes: job.fork_copied_bytes,
            cleared_bytes: job.cleared_bytes,
            noise: run.noise.map(NoiseReport::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;
    use serde_json::{Value, json};

    use super::*;

    fn run() -> Run {
        Run {
            command: vec!["lmp".into(), "-in".into(), "in.lj".into()],
            host: "n17".into(),
            started: 1_750_000_000,
            elapsed: Duration::from_millis(12_340),
            exit: Exit::Signal(9),
            minor_faults: 812,
            major_faults: 3,
            noise: None,
        }
    }

    fn fixture() -> Fixture {
        let fixture = Fixture::new();
        fixture.module();
        fixture.write("proc/sys/kernel/osrelease", "6.12.1\n");
        fixture.job(3, 0);
        fixture
    }

    fn report(fixture: &Fixture) -> Report {
        Report::read(&fixture.root(), 3, run()).unwrap()
    }

    /// A launch without any disturbance.
    fn calm() -> Fixture {
        let fixture = fixture();
        let path = "sys/kernel/hpmmap/jobs/3/stat";
        let stat: String = fixture
            .root()
            .read(path)
            .unwrap()
            .lines()
            .map(|line| {
                let (name, value) = line.split_once(' ').unwrap();
                let bad = ["faults", "fallback", "refusals", "stalls"];
                let value = if bad.iter().any(|bad| name.starts_with(bad)) {
                    "0"
                } else {
                    value
                };
                format!("{name} {value}\n")
            })
            .collect();
        fixture.write(path, &stat);
        fixture.write("sys/kernel/hpmmap/jobs/3/fault_ranges", "");
        fixture.write("sys/kernel/hpmmap/jobs/3/programs", "1 0 0 0 0 0 0 lmp\n");
        fixture
    }

    #[test]
    fn json_has_all_that_was_counted() {
        let json = serde_json::to_value(report(&fixture())).unwrap();
        let at = |path: &str| json.pointer(path).cloned().unwrap_or(Value::Null);
        for (path, value) in [
            ("/report", json!("hpmmap run")),
            ("/schema", json!(2)),
            ("/versions/module", json!("1.2.3")),
            ("/command/0", json!("lmp")),
            ("/exit/signal", json!(9)),
            ("/job/user", json!("root")),
            ("/processes/total", json!(5)),
            ("/processes/left", json!(2)),
            ("/processes/executed/left_out", json!(1)),
            ("/programs/1/helper", json!(true)),
            ("/programs/1/faults_fork", json!(8)),
            ("/verdict", json!("disturbed")),
            ("/undisturbed", json!(false)),
            ("/faults/pool_memory/application", json!(3)),
            ("/faults/pool_memory/total", json!(12)),
            ("/faults/pool_memory/by_reason/fork", json!(10)),
            ("/faults/pool_memory/ranges/0/count", json!(10)),
            ("/faults/pool_memory/unlisted", json!(2)),
            ("/faults/all_memory/major", json!(3)),
            ("/memory/peak_bytes", json!(40 << 20)),
            ("/memory/placed_runs", json!(3)),
            ("/memory/placed/1", json!({"node": 1, "bytes": 8 << 20})),
            ("/memory/remote_share", json!(0.2)),
            ("/memory/entries/1g_bytes", json!(3u64 << 30)),
            ("/memory/entries/1g_splits", json!(2)),
            ("/memory/entries/1g_joins", json!(1)),
            ("/memory/entries/2m_bytes", json!(40 << 20)),
            ("/fallbacks/calls", json!(4)),
            ("/fallbacks/by_reason/exhausted", json!(4)),
            ("/pools/lowest_free_bytes", json!(512 << 20)),
            ("/pools/refusals", json!(3)),
            ("/pools/limited/default", json!(2)),
            ("/latency/mmap/calls", json!(1000)),
            ("/latency/mmap/p99_ns", json!(512)),
            ("/latency/mmap/worst_ns", json!(2_000_000_000u64)),
            // At most 512 and 1638 nanoseconds, and one of two seconds.
            (
                "/latency/mmap/histogram/0",
                json!({"below_ns": 1000, "calls": 990}),
            ),
            ("/latency/mmap/histogram/1/calls", json!(9)),
            ("/latency/mmap/histogram/2/calls", json!(0)),
            (
                "/latency/mmap/histogram/18",
                json!({"below_ns": null, "calls": 1}),
            ),
            ("/latency/brk/histogram/18/calls", json!(0)),
            ("/latency/brk/p99_ns", Value::Null),
            ("/stalls/zeroing/worst_ns", json!(600_000)),
            ("/fork_copied_bytes", json!(4 << 20)),
        ] {
            assert_eq!(at(path), value, "{path}");
        }
        assert_eq!(json["findings"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn the_text_says_what_disturbed_the_job() {
        let text = report(&fixture()).text();
        assert_eq!(
            text,
            "\
hpmmap: job 3 (strict, 2M): killed by signal 9 after 12.3 s, 5 processes (2 still running)
  page faults  12 in pool memory (fork 10, linux 1, unmapped 1)
               process 1234: 0x7f0000200000-0x7f0000400000 fork: 10
               2 elsewhere
               lmp: 3 faults (2 because of forks) in 2 address spaces
               mpirun (helper): 9 faults (8 because of forks) in 2 address spaces (1 fork)
               my tool: 0 faults in 1 address space
               others: 0 faults in 1 address space
               812 minor and 3 major in all memory, start-up included
  memory       peak 40M; entries: 3 of 1G (2 split, 1 rejoined), 20 of 2M, 100 of 4K
               placed on node 0 32M, node 1 8M; 20 % remote
  fallbacks    4 for 20M (calls: mmap 2, brk 1, block 1; reasons: exhausted 4)
  pools        512M free at the least; 3 calls refused, 0 failed
  mmap         1000 calls, p50 512 ns, p99 512 ns, worst 2.00 s
  waits        calls: 7 times, 10.0 us, worst 4.00 us; zeroing: 1 times, 600 us, worst 600 us
  note         page faults because of forks do not count: 2
  note         page faults of helpers do not count: mpirun 9
  verdict      disturbed: 1 page fault in pool memory; 4 fallbacks to ordinary memory; 3 calls refused for want of pool memory; the limit of every user (the default) was reached"
        );
    }

    #[test]
    fn noise_has_a_verdict_of_its_own() {
        let fixture = calm();
        let mut noisy = run();
        noisy.noise = Some(Noise {
            unknown: vec!["no permission".into()],
            ..Noise::default()
        });
        let report = Report::read(&fixture.root(), 3, noisy).unwrap();
        let text = report.text();
        assert!(
            text.ends_with(
                "  waits        none\n  noise        not known: no permission\n  verdict      undisturbed"
            ),
            "{text}"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["noise"]["verdict"], json!("unknown"));
        assert_eq!(json["noise"]["quiet"], Value::Null);
        assert_eq!(json["noise"]["cpus"], json!([]));
    }

    #[test]
    fn a_job_that_nothing_happened_to_is_undisturbed() {
        let report = report(&calm());
        assert_eq!(report.undisturbed, Some(true));
        let text = report.text();
        assert!(
            text.ends_with("  waits        none\n  verdict      undisturbed"),
            "{text}"
        );
        assert!(text.contains("page faults  0 in pool memory"), "{text}");
    }

    /// The same with some lines of the module's counters changed.
    fn with(fixture: &Fixture, changed: &[(&str, u64)]) -> Report {
        let path = "sys/kernel/hpmmap/jobs/3/stat";
        let stat = fixture.root().read(path).unwrap();
        let kept = stat.lines().filter(|line| {
            !changed
                .iter()
                .any(|(name, _)| line.split(' ').next() == Some(name))
        });
        let text: String = kept
            .map(str::to_string)
            .chain(
                changed
                    .iter()
                    .map(|(name, value)| format!("{name} {value}")),
            )
            .map(|line| line + "\n")
            .collect();
        fixture.write(path, &text);
        let changed = report(fixture);
        fixture.write(path, &stat);
        changed
    }

    #[test]
    fn undisturbed_is_said_only_where_it_is_known() {
        let calm = calm();
        let verdict = |changed: &[(&str, u64)]| {
            let report = with(&calm, changed);
            let text = report.text();
            let line = text.lines().last().unwrap().trim_start();
            let said = line
                .strip_prefix("verdict")
                .unwrap()
                .trim_start()
                .to_string();
            (report.undisturbed, said)
        };
        let (known, said) = verdict(&[
            ("programs_registered", 0),
            ("programs_left_out", 0),
            ("programs_secure", 1),
        ]);
        assert_eq!(known, None);
        assert_eq!(
            said,
            "not known: 1 program ran without HPMMAP: set-user-ID or with capabilities; \
             no program of the job was registered"
        );
        let (known, said) = verdict(&[("programs_32bit", 2)]);
        assert_eq!(known, None);
        assert!(
            said.ends_with("2 programs ran without HPMMAP: 32 bit"),
            "{said}"
        );
        assert_eq!(verdict(&[("programs_failed", 1)]).0, None);
        assert_eq!(verdict(&[("programs_left_out", 9)]).0, Some(true));
        let (known, said) = verdict(&[("programs_left_out", 9), ("programs_registered", 0)]);
        assert_eq!(known, None);
        assert!(said.ends_with("the launch left all of them out"), "{said}");
        let (known, said) = verdict(&[("failures", 1)]);
        assert_eq!(known, Some(false));
        assert!(said.contains("1 call failed: neither"), "{said}");
        let large = ("page_size", 1 << 30);
        let (known, said) = verdict(&[large]);
        assert_eq!(known, Some(false));
        assert!(said.contains("--page-size 1G had no effect"), "{said}");
        let (known, said) = verdict(&[
            large,
            ("large_wanted_bytes", 3 << 30),
            ("large_missed_bytes", 2 << 30),
        ]);
        assert_eq!(known, Some(false));
        assert!(
            said.contains("2 of 3 gigabytes asked for came in pieces"),
            "{said}"
        );
        let had = [large, ("large_wanted_bytes", 3 << 30)];
        assert_eq!(verdict(&had), (Some(true), "undisturbed".into()));
        let text = with(&calm, &had).text();
        assert!(text.contains("20 % remote; in 3 runs"), "{text}");
    }

    #[test]
    fn faults_of_helpers_do_not_count_unless_there_are_only_helpers() {
        let calm = calm();
        let path = "sys/kernel/hpmmap/jobs/3/programs";
        let faults = [("faults", 9), ("faults_fork", 9)];
        calm.write(path, "1 0 0 0 0 0 0 lmp\n4 3 9 9 0 0 0 mpirun\n");
        let helped = with(&calm, &faults);
        assert_eq!(helped.undisturbed, Some(true), "{}", helped.text());
        assert!(helped.text().contains("do not count: mpirun 9"));
        let faults = [("faults", 9), ("faults_fork", 8), ("faults_unmapped", 1)];
        calm.write(path, "1 0 1 0 0 0 0 lmp\n4 3 8 8 0 0 0 mpirun\n");
        assert_eq!(
            with(&calm, &faults).findings,
            ["1 page fault in pool memory"]
        );
        calm.write(path, "4 3 9 8 0 0 0 mpirun\n");
        assert_eq!(with(&calm, &faults).undisturbed, Some(false));
    }

    #[test]
    fn what_a_program_forks_is_noted_and_does_not_count() {
        let calm = calm();
        let path = "sys/kernel/hpmmap/jobs/3/programs";
        calm.write(path, "2 1 3 3 0 0 0 HPCCG\n3 2 6 6 0 0 0 orted\n");
        let report = with(&calm, &[("faults", 9), ("faults_fork", 9)]);
        assert_eq!(report.undisturbed, Some(true), "{}", report.text());
        assert_eq!(
            report.notes,
            [
                "page faults because of forks do not count: 3",
                "page faults of helpers do not count: orted 6"
            ]
        );
        calm.write(path, "2 1 5 3 1 0 0 HPCCG\n3 2 6 6 0 0 0 orted\n");
        let faults = [("faults", 11), ("faults_fork", 9), ("faults_reserved", 1)];
        let other = [("faults_unmapped", 1)];
        assert_eq!(
            with(&calm, &[&faults[..], &other[..]].concat()).findings,
            ["1 page fault in pool memory"]
        );
    }

    #[test]
    fn what_a_thread_touches_while_another_unmaps_it_does_not_count() {
        let calm = calm();
        let path = "sys/kernel/hpmmap/jobs/3/programs";
        calm.write(path, "1 0 2 0 2 0 0 java\n");
        let report = with(&calm, &[("faults", 2), ("faults_changing", 2)]);
        assert_eq!(report.undisturbed, Some(true), "{}", report.text());
        assert!(report.text().contains("2 in pool memory (changing 2)"));
        calm.write(path, "1 0 3 0 2 0 0 java\n");
        let faults = [
            ("faults", 3),
            ("faults_changing", 2),
            ("faults_unmapped", 1),
        ];
        assert_eq!(
            with(&calm, &faults).findings,
            ["1 page fault in pool memory"]
        );
    }

    #[test]
    fn without_a_known_clock_there_are_no_times() {
        assert_eq!(nanoseconds(5, 0), None);
        assert_eq!(nanoseconds(u64::MAX / 2, 2_000_000), Some(u64::MAX / 4));
    }
}
