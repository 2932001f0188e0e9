//! Decides whether a launch ran undisturbed, and names the disturbances.

use hpmmap_base::user_name;
use hpmmap_host::job::{self, FaultReasons, Job};
use hpmmap_sys::uapi::LARGE_BYTES;
use serde::Serialize;

use super::words::{gigabytes, plural};

/// A program of the launch, and whether it counts for the verdict.
#[derive(Debug, Serialize)]
pub(super) struct Program {
    #[serde(flatten)]
    pub(super) counted: job::Program,
    pub(super) helper: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Undisturbed,
    Disturbed,
    Unknown,
}

/// The names and values of the numbers that are not 0.
fn counted_owned<'a>(numbers: impl Iterator<Item = (&'a str, u64)>) -> String {
    numbers
        .filter(|(_, count)| *count != 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The limits that have refused a request.
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

/// Names of programs that start others and do none of the work.
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

/// The programs of a launch. If all of them are helpers, all count.
pub(super) fn programs(counted: Vec<job::Program>) -> Vec<Program> {
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

/// The findings about a launch.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    /// Disturbances.
    pub(super) findings: Vec<String>,
    /// Facts that the module did not record.
    pub(super) unknown: Vec<String>,
    /// Facts that do not count but are printed.
    pub(super) notes: Vec<String>,
}

impl Judgement {
    pub(super) fn verdict(&self) -> Verdict {
        if !self.findings.is_empty() {
            Verdict::Disturbed
        } else if !self.unknown.is_empty() {
            Verdict::Unknown
        } else {
            Verdict::Undisturbed
        }
    }

    pub(super) fn of(job: &Job, programs: &[Program], cgroup: Option<&str>) -> Self {
        let mut judgement = Self::default();
        judgement.faults(job, programs);
        judgement.memory(job, cgroup);
        judgement.executed(job);
        judgement
    }

    fn faults(&mut self, job: &Job, programs: &[Program]) {
        // Faults that the program asked for, or that its own calls cause, are not disturbances.
        let faults = FaultReasons {
            first_touch: 0,
            reserved: 0,
            changing: 0,
            ..job.faults_by_reason
        };
        let helpers = || programs.iter().filter(|one| one.helper);
        let unasked = |one: &Program| one.counted.faults - one.counted.faults_asked;
        let (mut total, mut forks) = (faults.iter().map(|(_, count)| count).sum(), faults.fork);
        for one in helpers() {
            total = u64::saturating_sub(total, unasked(one));
            forks = u64::saturating_sub(forks, one.counted.faults_fork);
        }
        // The program asked for these, too: without HPMMAP a fork causes as many.
        let suffered = u64::saturating_sub(total, forks);
        if suffered != 0 {
            self.findings
                .push(format!("{} in pool memory", plural(suffered, "page fault")));
        }
        if forks != 0 {
            self.notes.push(format!(
                "page faults because of forks do not count: {forks}"
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
                "{} to ordinary memory",
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
