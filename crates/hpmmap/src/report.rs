//! The report of `run`: whether a job ran undisturbed.

use std::collections::BTreeMap;
use std::time::Duration;

use hpmmap_base::VERSION;
use hpmmap_base::error::Result;
use hpmmap_base::size::{Size, short};
use hpmmap_base::user_name;
use hpmmap_host::job::{self, FaultReasons, Faults, Job, Latency, Limited, Stall};
use hpmmap_host::{Root, cgroup, pool, process};
use hpmmap_sys::uapi::LARGE_BYTES;
use serde::Serialize;

/// Grows when a member changes its meaning or goes; new ones may come.
const SCHEMA: u32 = 2;

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// By itself.
    Status(i32),
    /// By a signal.
    Signal(i32),
}

/// What the launcher knows by itself.
#[derive(Debug, Clone)]
pub struct Run {
    pub command: Vec<String>,
    pub host: String,
    /// Seconds since 1970.
    pub started: u64,
    pub elapsed: Duration,
    pub exit: Exit,
    /// Of the processes that were waited for.
    pub minor_faults: u64,
    pub major_faults: u64,
}

/// The report, as it is written.
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
    /// `None` where it is not known.
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
    /// Programs that were executed, by what became of them.
    executed: Option<job::ProgramKinds>,
}

/// A program of the job, and whether it counts for the verdict.
#[derive(Debug, Serialize)]
struct Program {
    #[serde(flatten)]
    counted: job::Program,
    helper: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Undisturbed,
    Disturbed,
    Unknown,
}

#[derive(Debug, Serialize)]
struct FaultReport {
    pool_memory: PoolFaults,
    all_memory: AllFaults,
}

/// In memory of the pools: every one, from execve on.
#[derive(Debug, Serialize)]
struct PoolFaults {
    total: u64,
    /// The part of them in programs that are no helpers.
    application: u64,
    user: u64,
    kernel: u64,
    by_reason: FaultReasons,
    #[serde(flatten)]
    places: Faults,
}

/// Of Linux's counters: start-up is in them, and memory of Linux.
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
    placed: Vec<Placed>,
    remote_bytes: u64,
    /// `None` where nothing was placed.
    remote_share: Option<f64>,
    entries: Entries,
    gigabytes: Gigabytes,
}

/// Of a job that asked for contiguous ones.
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
    /// Requests that a limit has refused, by whose.
    limited: Limited,
    /// Path of the last such cgroup.
    limited_cgroup: Option<String>,
}

/// In nanoseconds; `None` without calls, or where the clock is not known.
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
    /// `None`: no end.
    below_ns: Option<u64>,
    calls: u64,
}

#[derive(Debug, Serialize)]
struct Wait {
    count: u64,
    total_ns: Option<u64>,
    worst_ns: Option<u64>,
}

/// Nanoseconds of ticks; `None` where the clock is not known.
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

/// Whole ones.
fn gigabytes(bytes: u64) -> u64 {
    bytes / LARGE_BYTES
}

fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The names of those that are not 0.
fn counted(numbers: impl Iterator<Item = (&'static str, u64)>) -> String {
    numbers
        .filter(|(_, count)| *count != 0)
        .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The same of names that are not the report's own.
fn counted_owned<'a>(numbers: impl Iterator<Item = (&'a str, u64)>) -> String {
    numbers
        .filter(|(_, count)| *count != 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The limits that have refused something.
fn limits(job: &Job, cgroup: Option<&str>) -> Option<String> {
    let names: Vec<String> = job
        .limited
        .iter()
        .filter(|(_, count)| *count != 0)
        .map(|(whose, _)| match (whose, cgroup) {
            ("user", _) => format!("user {}", user_name(job.uid)),
            ("default", _) => "every user (the default)".to_string(),
            (_, Some(path)) => format!("cgroup {path}"),
            (_, None) => "a cgroup that is gone".to_string(),
        })
        .collect();
    (!names.is_empty()).then(|| format!("the limit of {} was reached", names.join(" and of ")))
}

/// Programs that start others and do none of the work, as their processes are called.
const HELPERS: [&str; 25] = [
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "mpiexec.openmpi",
    "mpiexec.mpich",
    "mpirun.openmpi",
    "mpirun.mpich",
    "orterun",
    "orted",
    "prterun",
    "prted",
    "prun",
    "srun",
    "hydra_pmi_proxy",
    "sh",
    "bash",
    "dash",
    "env",
    "ssh",
    "time",
    "timeout",
    "nice",
    "numactl",
    "taskset",
    "setarch",
];

/// The programs of a job. If all of them are helpers, none is.
fn programs(counted: Vec<job::Program>) -> Vec<Program> {
    let helps = |one: &job::Program| HELPERS.contains(&one.name.as_str());
    let some_work = counted.iter().any(|one| !helps(one));
    counted
        .into_iter()
        .map(|counted| Program {
            helper: some_work && helps(&counted),
            counted,
        })
        .collect()
}

/// What was found out about a job.
#[derive(Debug, Default)]
struct Judgement {
    /// What was not as it should be.
    findings: Vec<String>,
    /// What nobody has seen.
    unknown: Vec<String>,
    /// What does not count, and is said.
    notes: Vec<String>,
}

impl Judgement {
    fn verdict(&self) -> Verdict {
        if !self.findings.is_empty() {
            Verdict::Disturbed
        } else if !self.unknown.is_empty() {
            Verdict::Unknown
        } else {
            Verdict::Undisturbed
        }
    }

    fn of(job: &Job, programs: &[Program], cgroup: Option<&str>) -> Self {
        let mut judgement = Self::default();
        judgement.faults(job, programs);
        judgement.memory(job, cgroup);
        judgement.executed(job);
        judgement
    }

    fn faults(&mut self, job: &Job, programs: &[Program]) {
        // What was asked for disturbs nobody.
        let faults = FaultReasons {
            first_touch: 0,
            reserved: 0,
            ..job.faults_by_reason
        };
        let helpers = || programs.iter().filter(|one| one.helper);
        let unasked = |one: &Program| one.counted.faults - one.counted.faults_asked;
        let (mut total, mut forks) = (faults.iter().map(|(_, count)| count).sum(), faults.fork);
        for one in helpers() {
            total = u64::saturating_sub(total, unasked(one));
            forks = u64::saturating_sub(forks, one.counted.faults_fork);
        }
        if total != 0 {
            let part = match forks {
                0 => String::new(),
                forks if forks == total => ", because of forks".to_string(),
                forks => format!(", {forks} of them because of forks"),
            };
            self.findings.push(format!(
                "{} in pool memory{part}",
                plural(total, "page fault")
            ));
        }
        let theirs = counted_owned(helpers().map(|one| (&*one.counted.name, unasked(one))));
        if !theirs.is_empty() {
            self.notes
                .push(format!("page faults of helpers do not count: {theirs}"));
        }
    }

    fn memory(&mut self, job: &Job, cgroup: Option<&str>) {
        let fallbacks = job.fallbacks.total();
        if fallbacks != 0 {
            self.findings.push(format!(
                "{} to memory of Linux",
                plural(fallbacks, "fallback")
            ));
        }
        if job.refusals != 0 {
            self.findings.push(format!(
                "{} refused for want of pool memory",
                plural(job.refusals, "call")
            ));
        }
        if job.failures != 0 {
            self.findings.push(format!(
                "{} failed: neither the pools nor Linux had the memory",
                plural(job.failures, "call")
            ));
        }
        if job.refusals != 0 || job.fallback_reasons.limit != 0 {
            self.findings.extend(limits(job, cgroup));
        }
        if job.page_size == LARGE_BYTES {
            let (wanted, missed) = (
                gigabytes(job.large_wanted_bytes),
                gigabytes(job.large_missed_bytes),
            );
            if missed != 0 {
                self.findings.push(format!(
                    "{} of {} asked for came in pieces (--page-size 1G)",
                    missed,
                    plural(wanted, "gigabyte")
                ));
            } else if wanted == 0 && fallbacks + job.refusals + job.failures == 0 {
                self.findings.push(
                    "--page-size 1G had no effect: nothing as large was mapped at once".into(),
                );
            }
        }
    }

    fn executed(&mut self, job: &Job) {
        let Some(executed) = job.programs else {
            return;
        };
        for (count, why) in [
            (
                executed.secure,
                "without HPMMAP: set-user-ID or with capabilities",
            ),
            (executed.bits_32, "without HPMMAP: 32 bit"),
            (
                executed.failed,
                "or forked without HPMMAP: no memory of the kernel",
            ),
        ] {
            if count != 0 {
                self.unknown
                    .push(format!("{} ran {why}", plural(count, "program")));
            }
        }
        if executed.registered == 0 {
            let why = match executed.left_out {
                0 => "no program of the job was registered",
                _ => "no program of the job was registered: the launch left all of them out",
            };
            self.unknown.push(why.into());
        }
    }
}

impl Report {
    /// From what the module has counted for job `id`.
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
                placed: job
                    .placed_bytes
                    .iter()
                    .map(|(&node, &bytes)| Placed { node, bytes })
                    .collect(),
                remote_bytes: job.placed_remote_bytes,
                remote_share: (placed_bytes != 0)
                    .then(|| job.placed_remote_bytes as f64 / placed_bytes as f64),
                entries: Entries {
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
        })
    }

    /// For a person, in a few lines.
    pub fn text(&self) -> String {
        let mut lines = vec![self.headline()];
        let mut line = |name: &str, text: String| lines.push(format!("  {name:<12} {text}"));
        let pool_memory = &self.faults.pool_memory;
        line(
            "page faults",
            match pool_memory.total {
                0 => "0 in pool memory".to_string(),
                total => format!(
                    "{total} in pool memory ({})",
                    counted(pool_memory.by_reason.iter())
                ),
            },
        );
        for range in &pool_memory.places.ranges {
            line(
                "",
                format!(
                    "process {}: {:#x}-{:#x} {}: {}",
                    range.pid, range.start, range.end, range.reason, range.count
                ),
            );
        }
        if pool_memory.places.unlisted != 0 {
            line("", format!("{} elsewhere", pool_memory.places.unlisted));
        }
        for line_of in self.program_lines() {
            line("", line_of);
        }
        line(
            "",
            format!(
                "{} minor and {} major in all memory, start-up included",
                self.faults.all_memory.minor, self.faults.all_memory.major
            ),
        );
        let memory = &self.memory;
        line(
            "memory",
            format!(
                "peak {}; entries: {} of 2M, {} of 4K",
                short(memory.peak_bytes),
                memory.entries.large,
                memory.entries.small
            ),
        );
        if let Some(share) = memory.remote_share {
            let nodes: Vec<String> = memory
                .placed
                .iter()
                .map(|placed| format!("node {} {}", placed.node, short(placed.bytes)))
                .collect();
            line(
                "",
                format!(
                    "placed on {}; {:.0} % remote",
                    nodes.join(", "),
                    share * 100.0
                ),
            );
        }
        line(
            "fallbacks",
            match self.fallbacks.calls {
                0 => "none".to_string(),
                calls => format!(
                    "{calls} for {} (calls: {}; reasons: {})",
                    short(self.fallbacks.bytes),
                    counted(self.fallbacks.by_call.iter()),
                    counted(self.fallbacks.by_reason.iter())
                ),
            },
        );
        line(
            "pools",
            format!(
                "{}; {} refused, {} failed",
                match self.pools.lowest_free_bytes {
                    Some(bytes) => format!("{} free at the least", short(bytes)),
                    None => "nothing was taken".to_string(),
                },
                plural(self.pools.refusals, "call"),
                self.pools.failures
            ),
        );
        for call in job::TIMED_CALLS {
            let times = &self.latency[call];
            if times.calls != 0 {
                line(
                    call,
                    format!(
                        "{}, p50 {}, p99 {}, worst {}",
                        plural(times.calls, "call"),
                        duration(times.p50_ns),
                        duration(times.p99_ns),
                        duration(times.worst_ns)
                    ),
                );
            }
        }
        let stalls: Vec<String> = self
            .stalls
            .iter()
            .filter(|(_, wait)| wait.count != 0)
            .map(|(name, wait)| {
                let (total, worst) = (duration(wait.total_ns), duration(wait.worst_ns));
                format!("{name}: {} times, {total}, worst {worst}", wait.count)
            })
            .collect();
        line(
            "waits",
            match &stalls[..] {
                [] => "none".to_string(),
                some => some.join("; "),
            },
        );
        for note in &self.notes {
            line("note", note.clone());
        }
        line(
            "verdict",
            match self.verdict {
                Verdict::Undisturbed => "undisturbed".to_string(),
                Verdict::Disturbed => {
                    let all = [&self.findings[..], &self.unknown[..]].concat();
                    format!("disturbed: {}", all.join("; "))
                }
                Verdict::Unknown => format!("not known: {}", self.unknown.join("; ")),
            },
        );
        lines.join("\n")
    }

    /// Where there are several, or a fork has made some.
    fn program_lines(&self) -> Vec<String> {
        let plain = |one: &Program| one.counted.forks == 0;
        if self.programs.len() < 2 && self.programs.iter().all(plain) {
            return Vec::new();
        }
        self.programs
            .iter()
            .map(|one| {
                let counted = &one.counted;
                let name = match &*counted.name {
                    "" => "others",
                    name => name,
                };
                let helper = if one.helper { " (helper)" } else { "" };
                let forks = match counted.forks {
                    0 => String::new(),
                    forks => format!(" ({})", plural(forks, "fork")),
                };
                let of_forks = match counted.faults_fork {
                    0 => String::new(),
                    count => format!(" ({count} because of forks)"),
                };
                format!(
                    "{name}{helper}: {}{of_forks} in {}{forks}",
                    plural(counted.faults, "fault"),
                    plural(counted.address_spaces, "address space"),
                )
            })
            .collect()
    }

    fn headline(&self) -> String {
        let exit = match self.exit {
            Exit::Status(status) => format!("exit status {status}"),
            Exit::Signal(signal) => format!("killed by signal {signal}"),
        };
        let left = match self.processes.left {
            0 => String::new(),
            left => format!(" ({left} still running)"),
        };
        let policy = if self.job.strict {
            "strict"
        } else {
            "fallback"
        };
        format!(
            "hpmmap: job {} ({policy}, {}): {exit} after {:.1} s, {}{left}",
            self.job.id,
            Size(self.job.page_size),
            self.elapsed_seconds,
            match self.processes.total {
                1 => "1 process".to_string(),
                total => format!("{total} processes"),
            },
        )
    }
}

/// A duration with three digits.
fn duration(ns: Option<u64>) -> String {
    let Some(ns) = ns else {
        return "unknown".to_string();
    };
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.decimals$} {unit}")
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

    /// A job of which nothing bad is known.
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
            ("/memory/placed/1", json!({"node": 1, "bytes": 8 << 20})),
            ("/memory/remote_share", json!(0.2)),
            ("/memory/entries/2m_bytes", json!(40 << 20)),
            ("/fallbacks/calls", json!(4)),
            ("/fallbacks/by_reason/exhausted", json!(4)),
            ("/pools/lowest_free_bytes", json!(512 << 20)),
            ("/pools/refusals", json!(3)),
            ("/pools/limited/default", json!(2)),
            ("/latency/mmap/calls", json!(1000)),
            ("/latency/mmap/p99_ns", json!(512)),
            ("/latency/mmap/worst_ns", json!(2_000_000_000u64)),
            // 512 and 1638 nanoseconds at most, and one of two seconds.
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
  memory       peak 40M; entries: 20 of 2M, 100 of 4K
               placed on node 0 32M, node 1 8M; 20 % remote
  fallbacks    4 for 20M (calls: mmap 2, brk 1, block 1; reasons: exhausted 4)
  pools        512M free at the least; 3 calls refused, 0 failed
  mmap         1000 calls, p50 512 ns, p99 512 ns, worst 2.00 s
  waits        calls: 7 times, 10.0 us, worst 4.00 us; zeroing: 1 times, 600 us, worst 600 us
  note         page faults of helpers do not count: mpirun 9
  verdict      disturbed: 3 page faults in pool memory, 2 of them because of forks; 4 fallbacks to memory of Linux; 3 calls refused for want of pool memory; the limit of every user (the default) was reached"
        );
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

    /// The same with some lines of what the module tells changed.
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
        calm.write(path, "1 0 1 1 0 0 0 lmp\n4 3 8 8 0 0 0 mpirun\n");
        let disturbed = with(&calm, &faults);
        assert_eq!(
            disturbed.findings,
            ["1 page fault in pool memory, because of forks"]
        );
        calm.write(path, "4 3 9 9 0 0 0 mpirun\n");
        assert_eq!(with(&calm, &faults).undisturbed, Some(false));
    }

    #[test]
    fn without_a_known_clock_there_are_no_times() {
        assert_eq!(nanoseconds(5, 0), None);
        assert_eq!(nanoseconds(u64::MAX / 2, 2_000_000), Some(u64::MAX / 4));
        assert_eq!(duration(None), "unknown");
    }
}
