//! The counters of each launch: `/sys/kernel/hpmmap/jobs`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::root::optional;
use crate::{Error, Result, Root};

const DIR: &str = "sys/kernel/hpmmap/jobs";

/// One launch, with all processes it has had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// User who launched it.
    pub uid: u32,
    /// Policy on exhaustion: true for ENOMEM, false for fallback to ordinary memory.
    pub strict: bool,
    /// Requested page size in bytes.
    pub page_size: u64,
    /// Ticks of the time stamp counter in a millisecond; 0 if not known.
    pub tick_khz: u64,
    /// Processes that belong to it now.
    pub processes: u64,
    /// Processes that have ever belonged to it.
    pub processes_total: u64,
    /// Programs executed and forks.
    pub address_spaces_total: u64,
    /// Programs that its processes have executed, by outcome; `None` if the module does not count
    /// them.
    pub programs: Option<ProgramKinds>,
    /// Pool memory held now, each block once.
    pub held_bytes: u64,
    /// The most that was held at one moment.
    pub peak_bytes: u64,
    /// The most that one process held.
    pub peak_one_bytes: u64,
    /// Part of what is held that is kept for reuse.
    pub reuse_bytes: u64,
    /// Ordinary pages that stand in for pool memory in blocks.
    pub linux_bytes: u64,
    /// Ordinary pages in slots that need only a few.
    pub few_bytes: u64,
    /// Blocks given up but still pinned.
    pub pins_waiting: u64,
    /// Size of its static regions.
    pub static_bytes: u64,
    /// The part of them that is in use.
    pub static_used_bytes: u64,
    /// The least free memory that its pools had after it took some; `None` if it never did.
    pub lowest_free_bytes: Option<u64>,
    /// Requests that a limit has refused, by kind of limit; 0 if the module does not count them.
    pub limited: Limited,
    /// The cgroup whose limit refused a request last.
    pub limited_cgroup_id: Option<u64>,
    /// Calls that failed because the pools had too little.
    pub refusals: u64,
    /// Calls that failed because Linux had no memory either.
    pub failures: u64,
    /// Bytes requested in whole gigabytes that should be contiguous.
    pub large_wanted_bytes: u64,
    /// The part of these that is not contiguous.
    pub large_missed_bytes: u64,
    /// 1 GB entries made in page tables.
    pub entries_1g: u64,
    /// Those of them that were split into 2 MB entries.
    pub splits_1g: u64,
    /// Those that were made of 2 MB entries again.
    pub joins_1g: u64,
    /// 2 MB entries made in page tables.
    pub entries_2m: u64,
    /// 4 KB entries made in page tables.
    pub entries_4k: u64,
    /// Page faults in its pool memory, in user mode.
    pub faults: u64,
    /// The same, in the kernel.
    pub faults_kernel: u64,
    /// All faults by reason.
    pub faults_by_reason: FaultReasons,
    /// Bytes requested by calls that fell back to ordinary memory.
    pub fallback_bytes: u64,
    /// Such calls, by call.
    pub fallbacks: Fallbacks,
    /// The same calls by reason.
    pub fallback_reasons: FallbackReasons,
    /// How often and how long its processes waited.
    pub stalls: Stalls,
    /// Copied because a fork had left it shared.
    pub fork_copied_bytes: u64,
    /// Zeroed while a process waited.
    pub cleared_bytes: u64,
    /// Placed on another node than that of the requesting CPU.
    pub placed_remote_bytes: u64,
    /// Contiguous runs that were placed.
    pub placed_runs: u64,
    /// Placed, by node.
    pub placed_bytes: BTreeMap<u32, u64>,
}

/// Defines a struct of named numbers.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident: $value:ty { $($field:ident),* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        #[allow(missing_docs)]
        pub struct $name {
            $(pub $field: $value,)*
        }

        impl $name {
            /// All members with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, $value)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
        }
    };
}

named! {
    /// Reasons for faults; see docs/sysfs.md.
    FaultReasons: u64 { fork, reserved, first_touch, linux, changing, unmapped }
}
named! {
    /// Fallbacks to ordinary memory, by call.
    Fallbacks: u64 { mmap, brk, exec, block, asked }
}
named! {
    /// Reasons for fallbacks to ordinary memory.
    FallbackReasons: u64 { exhausted, limit, other }
}
named! {
    /// Kinds of limits that refused a request.
    Limited: u64 { user, default, cgroup }
}
named! {
    /// Outcomes for programs that were executed.
    ProgramKinds: u64 { registered, left_out, secure, bits_32, failed }
}
named! {
    /// Causes of waits.
    Stalls: Stall { calls, zeroing, reclaim, pins }
}

impl Fallbacks {
    /// Their sum.
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }
}

/// Number and time of the waits for one cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// Number of waits.
    pub count: u64,
    /// Their total time in ticks.
    pub ticks: u64,
    /// The longest one in ticks.
    pub worst_ticks: u64,
}

/// The calls that the module times.
pub const TIMED_CALLS: [&str; 4] = ["mmap", "munmap", "mremap", "brk"];

/// Ends of buckets in nanoseconds, the same on every host.
pub const BUCKET_ENDS_NS: [u64; 18] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
];

/// The times of one call, in ticks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latency {
    /// Total ticks.
    pub ticks: u64,
    /// The longest.
    pub worst_ticks: u64,
    /// End (`None`: none) and number of each bucket that is not empty.
    pub buckets: Vec<(Option<u64>, u64)>,
}

impl Latency {
    /// The number of calls.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// The calls in buckets that end at [`BUCKET_ENDS_NS`], and a last one without an end. A
    /// bucket of ticks counts in the first of these that contains all of it.
    pub fn buckets_ns(&self, tick_khz: u64) -> Vec<(Option<u64>, u64)> {
        let ends = BUCKET_ENDS_NS.map(Some).into_iter().chain([None]);
        let mut found: Vec<_> = ends.map(|end| (end, 0)).collect();
        for &(ticks, calls) in &self.buckets {
            let place = ticks.map_or(BUCKET_ENDS_NS.len(), |ticks| {
                let fits = |&end: &u64| {
                    u128::from(ticks) * 1_000_000 > u128::from(end) * u128::from(tick_khz)
                };
                BUCKET_ENDS_NS.partition_point(fits)
            });
            found[place].1 += calls;
        }
        found
    }

    /// A time that at least this part of the calls did not exceed: the end of a bucket, or the
    /// longest call if that is less. `None` without calls.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let wanted = (part * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (end, count) in &self.buckets {
            seen += count;
            if seen >= wanted {
                return Some(end.map_or(self.worst_ticks, |end| end.min(self.worst_ticks)));
            }
        }
        None
    }
}

/// The places of a launch's faults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// The ranges that the module noted.
    pub ranges: Vec<FaultRange>,
    /// Faults outside of these ranges.
    pub unlisted: u64,
}

/// Faults near each other, with one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FaultRange {
    /// Process ID.
    pub pid: i32,
    /// First address.
    pub start: u64,
    /// End.
    pub end: u64,
    /// A name of [`FaultReasons`].
    pub reason: String,
    /// Number of faults.
    pub count: u64,
}

/// The counters of one program of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Name of its processes, 15 characters at most; empty: all programs beyond the module's
    /// table.
    pub name: String,
    /// Address spaces of this name, forks included.
    pub address_spaces: u64,
    /// Address spaces that a fork has made.
    pub forks: u64,
    /// Page faults in pool memory.
    pub faults: u64,
    /// Faults with the reason fork.
    pub faults_fork: u64,
    /// Faults with the reasons reserved and first touch.
    pub faults_asked: u64,
    /// Calls that fell back to ordinary memory.
    pub fallbacks: u64,
    /// Calls that failed for want of memory.
    pub refusals: u64,
}

/// All launches that this user may see, by number. One that ends while it is read is left out.
/// `None` if the module does not show launches.
pub fn all(root: &Root) -> Result<Option<Vec<Job>>> {
    let Some(ids) = optional(root.numbered(DIR, ""))? else {
        return Ok(None);
    };
    let mut jobs = Vec::new();
    for id in ids {
        match read(root, id) {
            Err(error) if error.is_denied() => (),
            read => jobs.extend(optional(read)?),
        }
    }
    Ok(Some(jobs))
}

/// One launch.
pub fn read(root: &Root, id: u64) -> Result<Job> {
    let path = format!("{DIR}/{id}/stat");
    let values = root.read_values(&path)?;
    let value = |name: &str| -> Result<u64> {
        values.get(name).copied().ok_or_else(|| Error::Format {
            path: root.join(&path),
            found: format!("no {name}"),
            expected: "one",
        })
    };
    let stall = |what: &str| -> Result<Stall> {
        Ok(Stall {
            count: value(&format!("stalls_{what}"))?,
            ticks: value(&format!("stalls_{what}_ticks"))?,
            worst_ticks: value(&format!("stalls_{what}_worst_ticks"))?,
        })
    };
    Ok(Job {
        id,
        uid: value("uid")? as u32,
        strict: value("strict")? != 0,
        page_size: value("page_size")?,
        tick_khz: value("tick_khz")?,
        processes: value("processes")?,
        processes_total: value("processes_total")?,
        address_spaces_total: value("address_spaces_total")?,
        programs: values
            .get("programs_registered")
            .map(|&registered| -> Result<ProgramKinds> {
                Ok(ProgramKinds {
                    registered,
                    left_out: value("programs_left_out")?,
                    secure: value("programs_secure")?,
                    bits_32: value("programs_32bit")?,
                    failed: value("programs_failed")?,
                })
            })
            .transpose()?,
        held_bytes: value("held_bytes")?,
        peak_bytes: value("peak_bytes")?,
        peak_one_bytes: value("peak_one_bytes")?,
        reuse_bytes: value("reuse_bytes")?,
        linux_bytes: value("linux_bytes")?,
        few_bytes: value("few_bytes")?,
        pins_waiting: value("pins_waiting")?,
        static_bytes: values.get("static_bytes").copied().unwrap_or(0),
        static_used_bytes: values.get("static_used_bytes").copied().unwrap_or(0),
        lowest_free_bytes: values.get("lowest_free_bytes").copied(),
        limited: Limited {
            user: values.get("limited_user").copied().unwrap_or(0),
            default: values.get("limited_default").copied().unwrap_or(0),
            cgroup: values.get("limited_cgroup").copied().unwrap_or(0),
        },
        limited_cgroup_id: values.get("limited_cgroup_id").copied(),
        refusals: value("refusals")?,
        failures: values.get("failures").copied().unwrap_or(0),
        large_wanted_bytes: values.get("large_wanted_bytes").copied().unwrap_or(0),
        large_missed_bytes: values.get("large_missed_bytes").copied().unwrap_or(0),
        entries_1g: values.get("entries_1g").copied().unwrap_or(0),
        splits_1g: values.get("splits_1g").copied().unwrap_or(0),
        joins_1g: values.get("joins_1g").copied().unwrap_or(0),
        entries_2m: value("entries_2m")?,
        entries_4k: value("entries_4k")?,
        faults: value("faults")?,
        faults_kernel: value("faults_kernel")?,
        faults_by_reason: FaultReasons {
            fork: value("faults_fork")?,
            reserved: value("faults_reserved")?,
            first_touch: value("faults_first_touch")?,
            linux: value("faults_linux")?,
            changing: values.get("faults_changing").copied().unwrap_or(0),
            unmapped: value("faults_unmapped")?,
        },
        fallback_bytes: value("fallback_bytes")?,
        fallbacks: Fallbacks {
            mmap: value("fallbacks_mmap")?,
            brk: value("fallbacks_brk")?,
            exec: value("fallbacks_exec")?,
            block: value("fallbacks_block")?,
            asked: value("fallbacks_asked")?,
        },
        fallback_reasons: FallbackReasons {
            exhausted: value("fallbacks_exhausted")?,
            limit: value("fallbacks_limit")?,
            other: value("fallbacks_other")?,
        },
        stalls: Stalls {
            calls: stall("calls")?,
            zeroing: stall("zeroing")?,
            reclaim: stall("reclaim")?,
            pins: stall("pins")?,
        },
        fork_copied_bytes: value("fork_copied_bytes")?,
        cleared_bytes: value("cleared_bytes")?,
        placed_remote_bytes: value("placed_remote_bytes")?,
        placed_runs: values.get("placed_runs").copied().unwrap_or(0),
        placed_bytes: values
            .iter()
            .filter_map(|(name, &bytes)| {
                let node = name.strip_prefix("placed_bytes_node")?;
                Some((node.parse().ok()?, bytes))
            })
            .collect(),
    })
}

/// The times of one of [`TIMED_CALLS`].
pub fn latency(root: &Root, id: u64, call: &str) -> Result<Latency> {
    root.parse(
        format!("{DIR}/{id}/latency_{call}"),
        "sum, longest and buckets",
        |text| {
            let mut latency = Latency::default();
            for line in text.lines() {
                let (name, value) = line.split_once(' ')?;
                let value = value.parse().ok()?;
                match name {
                    "ticks" => latency.ticks = value,
                    "worst_ticks" => latency.worst_ticks = value,
                    "inf" => latency.buckets.push((None, value)),
                    end => latency.buckets.push((Some(end.parse().ok()?), value)),
                }
            }
            Some(latency)
        },
    )
}

/// The places of a launch's faults.
pub fn faults(root: &Root, id: u64) -> Result<Faults> {
    root.parse(
        format!("{DIR}/{id}/fault_ranges"),
        "ranges with a reason and a number",
        |text| {
            let mut faults = Faults::default();
            for line in text.lines() {
                let words: Vec<&str> = line.split(' ').collect();
                let address = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
                match words[..] {
                    ["unlisted", count] => faults.unlisted = count.parse().ok()?,
                    [pid, start, end, reason, count] => faults.ranges.push(FaultRange {
                        pid: pid.parse().ok()?,
                        start: address(start)?,
                        end: address(end)?,
                        reason: reason.to_string(),
                        count: count.parse().ok()?,
                    }),
                    _ => return None,
                }
            }
            Some(faults)
        },
    )
}

/// The counters of a launch's programs; empty if the module does not show them.
pub fn programs(root: &Root, id: u64) -> Result<Vec<Program>> {
    let parsed = root.parse(
        format!("{DIR}/{id}/programs"),
        "seven numbers and a name",
        |text| {
            text.lines()
                .map(|line| {
                    let mut words = line.splitn(8, ' ');
                    let mut number = || words.next()?.parse().ok();
                    Some(Program {
                        address_spaces: number()?,
                        forks: number()?,
                        faults: number()?,
                        faults_fork: number()?,
                        faults_asked: number()?,
                        fallbacks: number()?,
                        refusals: number()?,
                        name: words.next().unwrap_or_default().to_string(),
                    })
                })
                .collect()
        },
    );
    Ok(optional(parsed)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn an_older_module_shows_no_jobs() {
        let fixture = Fixture::new();
        fixture.module();
        assert_eq!(all(&fixture.root()).unwrap(), Some(vec![]));
        fixture.remove("sys/kernel/hpmmap/jobs");
        assert_eq!(all(&fixture.root()).unwrap(), None);
    }

    #[test]
    fn every_line_of_a_job_is_read_and_unknown_ones_are_skipped() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.job(3, 1000);
        let job = read(&fixture.root(), 3).unwrap();
        assert_eq!((job.id, job.uid, job.strict), (3, 1000, true));
        assert_eq!((job.processes, job.processes_total), (2, 5));
        assert_eq!(job.lowest_free_bytes, Some(512 << 20));
        assert_eq!(
            job.placed_bytes,
            BTreeMap::from([(0, 32 << 20), (1, 8 << 20)])
        );
        assert_eq!(job.fallbacks.total(), 4);
        assert_eq!(job.fallback_reasons.exhausted, 4);
        assert_eq!(job.stalls.zeroing.worst_ticks, 1_500_000);
        assert_eq!(job.faults_by_reason.iter().map(|(_, n)| n).sum::<u64>(), 12);
    }

    #[test]
    fn a_job_without_a_line_that_must_be_there_is_an_error() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.write("sys/kernel/hpmmap/jobs/3/stat", "uid 0\n");
        let error = read(&fixture.root(), 3).unwrap_err().to_string();
        assert!(
            error.contains("jobs/3/stat") && error.contains("no strict"),
            "{error}"
        );
    }

    #[test]
    fn quantiles_are_ends_of_buckets_and_never_above_the_longest() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.job(3, 0);
        let latency = latency(&fixture.root(), 3, "mmap").unwrap();
        assert_eq!(latency.count(), 1000);
        assert_eq!(latency.quantile(0.5), Some(1280));
        assert_eq!(latency.quantile(0.99), Some(1280));
        assert_eq!(latency.quantile(0.995), Some(4096));
        assert_eq!(latency.quantile(1.0), Some(5_000_000_000));
        assert_eq!(
            super::latency(&fixture.root(), 3, "brk")
                .unwrap()
                .quantile(0.99),
            None
        );
        let one = Latency {
            ticks: 600,
            worst_ticks: 600,
            buckets: vec![(Some(640), 1)],
        };
        assert_eq!(one.quantile(0.99), Some(600));
    }

    #[test]
    fn programs_have_names_with_blanks_or_none() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.job(3, 0);
        let all = programs(&fixture.root(), 3).unwrap();
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["lmp", "mpirun", "my tool", ""]);
        assert_eq!((all[1].forks, all[1].faults, all[1].faults_fork), (1, 9, 8));
        fixture.write("sys/kernel/hpmmap/jobs/3/programs", "1 2 3\n");
        assert!(programs(&fixture.root(), 3).is_err());
        fixture.remove("sys/kernel/hpmmap/jobs/3/programs");
        assert_eq!(programs(&fixture.root(), 3).unwrap(), []);
    }

    #[test]
    fn fault_ranges_have_addresses() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.job(3, 0);
        let faults = faults(&fixture.root(), 3).unwrap();
        assert_eq!(faults.unlisted, 2);
        assert_eq!(
            faults.ranges,
            [FaultRange {
                pid: 1234,
                start: 0x7f00_0020_0000,
                end: 0x7f00_0040_0000,
                reason: "fork".into(),
                count: 10,
            }]
        );
    }
}
