//! Failures of moving memory blocks, and their reasons.

use hpmmap_base::size::short;
use hpmmap_host::number_list;
use hpmmap_sys::{Errno, RemoveError};
use serde::Serialize;

/// The step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Setting it offline.
    Offline,
    /// Handing it to the pool.
    PoolAdd,
    /// Taking it out of the pool.
    PoolRemove,
    /// Setting it online again.
    Online,
}

/// A failed step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The number N of memoryN.
    pub block: u64,
    /// The step.
    pub step: Step,
    /// The kernel's answer.
    pub errno: Errno,
    /// With a busy pool: bytes that jobs hold.
    pub busy_bytes: u64,
    /// With a busy pool: bytes that are still pinned.
    pub pinned_bytes: u64,
}

/// A failure in JSON.
#[derive(Debug, Serialize)]
pub struct FailureReport {
    memory_block: u64,
    step: Step,
    errno: String,
    reason: String,
    busy_bytes: u64,
    pinned_bytes: u64,
}

impl Failure {
    /// A failure without numbers.
    pub fn new(block: u64, step: Step, errno: Errno) -> Self {
        Self {
            block,
            step,
            errno,
            busy_bytes: 0,
            pinned_bytes: 0,
        }
    }

    /// A refused removal.
    pub fn remove(block: u64, error: RemoveError) -> Self {
        Self {
            block,
            step: Step::PoolRemove,
            errno: error.errno,
            busy_bytes: error.busy_bytes,
            pinned_bytes: error.pinned_bytes,
        }
    }

    /// Would other memory blocks fail for the same reason?
    pub fn is_hopeless(&self) -> bool {
        use Errno::{E2BIG, EFAULT, ENOMEM, ENOTTY, EOPNOTSUPP, EROFS};
        let pool = matches!(self.step, Step::PoolAdd | Step::PoolRemove);
        let mismatch = matches!(self.errno, E2BIG | EFAULT | ENOMEM | ENOTTY | EOPNOTSUPP);
        self.is_denied() || self.errno == EROFS || (pool && mismatch)
    }

    /// Is the memory needed for a promise?
    pub fn is_promised(&self) -> bool {
        self.step == Step::PoolRemove && self.errno == Errno::ENOSPC
    }

    /// Does the caller lack the permission?
    pub fn is_denied(&self) -> bool {
        matches!(self.errno, Errno::EACCES | Errno::EPERM)
    }

    /// May the same step succeed later?
    pub fn is_passing(&self) -> bool {
        self.step == Step::Offline && matches!(self.errno, Errno::EBUSY | Errno::EAGAIN)
    }

    /// The reason in words.
    pub fn reason(&self) -> String {
        let text = match (self.step, self.errno) {
            (_, Errno::EACCES | Errno::EPERM) => "only root may",
            (Step::Offline, Errno::EBUSY | Errno::EAGAIN) => "holds memory that Linux cannot move",
            (Step::Offline, Errno::ETIMEDOUT) => "Linux could not empty it in time",
            (Step::Offline, Errno::EINVAL) => "has holes or spans zones",
            (Step::Offline, Errno::ENOMEM) => "no memory to move its content to",
            (Step::Offline, Errno::EEXIST) => "another program set it offline",
            (Step::PoolAdd, Errno::EBUSY) => "part of it is still online",
            (Step::PoolAdd, Errno::EEXIST) => "part of it is in a pool already",
            (Step::PoolAdd, Errno::ENXIO) => {
                "has memory errors, or no memory for a part of its range"
            }
            (Step::PoolAdd, Errno::EXDEV) => "is on another node",
            (Step::PoolRemove, Errno::EBUSY) => {
                return format!(
                    "in use: {} held by jobs, {} pinned",
                    short(self.busy_bytes),
                    short(self.pinned_bytes)
                );
            }
            (Step::PoolRemove, Errno::ENOSPC) => {
                "its NUMA node would have less free than is promised (see: hpmmap pool limit --list)"
            }
            (Step::Online | Step::Offline, Errno::EHWPOISON) => "stays offline: memory errors",
            (Step::PoolAdd, Errno::EHWPOISON) => "has memory errors",
            (Step::PoolRemove, Errno::ENOENT) => "is not in a pool any more",
            (_, other) => other.desc(),
        };
        text.to_string()
    }

    /// The failure for JSON.
    pub fn report(&self) -> FailureReport {
        FailureReport {
            memory_block: self.block,
            step: self.step,
            errno: format!("{:?}", self.errno),
            reason: self.reason(),
            busy_bytes: self.busy_bytes,
            pinned_bytes: self.pinned_bytes,
        }
    }

    fn text(&self) -> String {
        let step = match self.step {
            Step::Offline => "offline",
            Step::PoolAdd => "into the pool",
            Step::PoolRemove => "out of the pool",
            Step::Online => "online",
        };
        format!("{step}: {:?}, {}", self.errno, self.reason())
    }
}

/// All failures in one line, those of one kind together:
/// `memory3-5,9 (offline: EBUSY, ...); memory12 (...)`.
pub fn summary(failures: &[Failure]) -> String {
    let mut groups: Vec<(String, Vec<u64>)> = Vec::new();
    for failure in failures {
        let text = failure.text();
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, blocks)) => blocks.push(failure.block),
            None => groups.push((text, vec![failure.block])),
        }
    }
    let texts: Vec<String> = groups
        .iter()
        .map(|(text, blocks)| format!("memory{} ({text})", number_list::format(blocks)))
        .collect();
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_one_kind_are_told_together() {
        let failures = [
            Failure::new(5, Step::Offline, Errno::EBUSY),
            Failure::new(4, Step::Offline, Errno::EBUSY),
            Failure::new(9, Step::PoolAdd, Errno::EXDEV),
        ];
        assert_eq!(
            summary(&failures),
            "memory4-5 (offline: EBUSY, holds memory that Linux cannot move); \
             memory9 (into the pool: EXDEV, is on another node)"
        );
    }

    #[test]
    fn a_busy_pool_names_the_bytes() {
        let failure = Failure::remove(
            7,
            RemoveError {
                errno: Errno::EBUSY,
                busy_bytes: 6 << 20,
                pinned_bytes: 2 << 20,
            },
        );
        assert_eq!(
            summary(&[failure]),
            "memory7 (out of the pool: EBUSY, in use: 6M held by jobs, 2M pinned)"
        );
        let json = serde_json::to_value(failure.report()).unwrap();
        assert_eq!(json["memory_block"], 7);
        assert_eq!(json["step"], "pool_remove");
        assert_eq!(json["errno"], "EBUSY");
        assert_eq!(json["busy_bytes"], 6 << 20);
    }
}
