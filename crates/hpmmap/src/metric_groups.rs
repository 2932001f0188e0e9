//! Launches added up by batch job or cgroup, so that the number of series does not grow with
//! the number of ranks.

use std::collections::BTreeMap;

use hpmmap_base::user_name;
use hpmmap_host::job::{FallbackReasons, Job};
use hpmmap_host::pool::Context;
use hpmmap_host::{Root, cgroup};
use hpmmap_sys::uapi::BLOCK_BYTES;

/// The most groups; the rest becomes one.
const MAX_GROUPS: usize = 64;

/// The sums over the current launches of a batch job or cgroup.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// Its number in Slurm; empty: not a batch job.
    pub batch_job: String,
    /// The cgroup of the batch job, or of the service, container or user; empty: not known.
    pub cgroup: String,
    pub user: String,
    pub launches: u64,
    pub processes: u64,
    pub held_bytes: u64,
    pub reuse_bytes: u64,
    pub pinned_bytes: u64,
    pub linux_bytes: u64,
    pub fallback_bytes: u64,
    pub fallback_reasons: FallbackReasons,
    pub refusals: u64,
    pub failures: u64,
    pub faults: u64,
    pub cleared_bytes: u64,
    pub wait_seconds: f64,
}

impl Group {
    fn add(&mut self, other: &Self) {
        self.launches += other.launches;
        self.processes += other.processes;
        self.held_bytes += other.held_bytes;
        self.reuse_bytes += other.reuse_bytes;
        self.pinned_bytes += other.pinned_bytes;
        self.linux_bytes += other.linux_bytes;
        self.fallback_bytes += other.fallback_bytes;
        self.fallback_reasons.exhausted += other.fallback_reasons.exhausted;
        self.fallback_reasons.limit += other.fallback_reasons.limit;
        self.fallback_reasons.other += other.fallback_reasons.other;
        self.refusals += other.refusals;
        self.failures += other.failures;
        self.faults += other.faults;
        self.cleared_bytes += other.cleared_bytes;
        self.wait_seconds += other.wait_seconds;
    }

    fn of_job(job: &Job) -> Self {
        let waited: u64 = job.stalls.iter().map(|(_, stall)| stall.ticks).sum();
        Self {
            launches: 1,
            processes: job.processes,
            held_bytes: job.held_bytes,
            reuse_bytes: job.reuse_bytes,
            pinned_bytes: job.pins_waiting * BLOCK_BYTES,
            linux_bytes: job.linux_bytes,
            fallback_bytes: job.fallback_bytes,
            fallback_reasons: job.fallback_reasons,
            refusals: job.refusals,
            failures: job.failures,
            faults: job.faults + job.faults_kernel,
            cleared_bytes: job.cleared_bytes,
            wait_seconds: match job.tick_khz {
                0 => 0.0,
                khz => waited as f64 / (khz as f64 * 1e3),
            },
            ..Self::default()
        }
    }
}

/// From a path of `/proc/PID/cgroup`: the number of the batch job, and the path that all its
/// processes share.
fn whose(path: &str) -> (&str, &str) {
    let mut end = 0;
    let mut service = None;
    for part in path.split('/') {
        end += part.len() + 1;
        let upto = &path[..(end - 1).min(path.len())];
        let is_slurms = service.is_some_and(|path: &str| path.ends_with("slurmstepd.scope"));
        if let Some(number) = part.strip_prefix("job_").filter(|_| is_slurms) {
            return (number, upto);
        }
        let is_user = part.starts_with("user-") && part.ends_with(".slice");
        if is_user || part.ends_with(".scope") || part.ends_with(".service") {
            service.get_or_insert(upto);
        }
    }
    ("", service.unwrap_or(path))
}

/// The sums over these launches, by batch job or cgroup and by user.
pub fn of(root: &Root, jobs: &[Job], contexts: &[Context]) -> Vec<Group> {
    let process: BTreeMap<u64, u32> = contexts.iter().map(|one| (one.job, one.pid)).collect();
    let mut groups: BTreeMap<(String, u32), Group> = BTreeMap::new();
    for job in jobs {
        let path = process
            .get(&job.id)
            .and_then(|pid| cgroup::of(root, &pid.to_string()))
            .unwrap_or_default();
        let (batch_job, cgroup) = whose(&path);
        let group = groups
            .entry((cgroup.to_string(), job.uid))
            .or_insert_with(|| Group {
                batch_job: batch_job.to_string(),
                cgroup: cgroup.to_string(),
                user: user_name(job.uid),
                ..Group::default()
            });
        group.add(&Group::of_job(job));
    }
    bounded(groups.into_values().collect())
}

/// The groups with the most memory, and the sum of the others.
fn bounded(mut groups: Vec<Group>) -> Vec<Group> {
    if groups.len() <= MAX_GROUPS {
        return groups;
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.held_bytes));
    let mut other = Group {
        cgroup: "other".into(),
        ..Group::default()
    };
    for group in groups.drain(MAX_GROUPS - 1..) {
        other.add(&group);
    }
    groups.push(other);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_job_is_told_by_its_cgroup() {
        for (path, batch_job, cgroup) in [
            (
                "/system.slice/slurmstepd.scope/job_12/step_0/user/task_0",
                "12",
                "/system.slice/slurmstepd.scope/job_12",
            ),
            (
                "/system.slice/n1_slurmstepd.scope/job_7/step_batch",
                "7",
                "/system.slice/n1_slurmstepd.scope/job_7",
            ),
            (
                "/user.slice/user-1000.slice/session-3.scope",
                "",
                "/user.slice/user-1000.slice",
            ),
            (
                "/system.slice/cron.service",
                "",
                "/system.slice/cron.service",
            ),
            (
                "/machine.slice/libpod-1234.scope/container",
                "",
                "/machine.slice/libpod-1234.scope",
            ),
            ("/job_5/x", "", "/job_5/x"),
            (
                "/user.slice/user-1000.slice/job_5",
                "",
                "/user.slice/user-1000.slice",
            ),
            ("/", "", "/"),
            ("", "", ""),
        ] {
            assert_eq!(whose(path), (batch_job, cgroup), "{path}");
        }
    }

    #[test]
    fn the_number_of_groups_is_bounded() {
        let groups: Vec<Group> = (0..1000)
            .map(|n| Group {
                cgroup: n.to_string(),
                launches: 1,
                held_bytes: n,
                ..Group::default()
            })
            .collect();
        let bounded = bounded(groups);
        assert_eq!(bounded.len(), MAX_GROUPS);
        assert_eq!(bounded[0].held_bytes, 999);
        let other = bounded.last().unwrap();
        assert_eq!((other.cgroup.as_str(), other.launches), ("other", 937));
        assert_eq!(bounded.iter().map(|one| one.launches).sum::<u64>(), 1000);
    }
}
