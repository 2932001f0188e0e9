//! Counters of the CPU for a process and all that it starts.

use std::collections::BTreeMap;
use std::io;

use hpmmap_host::Root;
use nix::errno::Errno;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software};
use perf_event::{Builder, Counter};

/// Counts by name.
pub type Counts = BTreeMap<String, u64>;

/// TLB misses of reads: the generic event dTLB-load-misses, misses of all levels of the TLB, which
/// need a walk of the page tables.
pub const TLB_LOADS: &str = "tlb_load_misses";
/// The same of writes; AMD's CPUs have no such event.
pub const TLB_STORES: &str = "tlb_store_misses";
/// Page faults, which the kernel counts.
pub const FAULTS: &str = "faults";

const PARANOID: &str = "proc/sys/kernel/perf_event_paranoid";

/// Counters for the programs that this thread starts from now on, from their first instruction,
/// in user mode only: so they are allowed to everybody unless the administrator forbids it.
#[derive(Default)]
pub struct Counters {
    open: Vec<(&'static str, Counter)>,
    /// Those that there are not, with the reason.
    pub missing: BTreeMap<String, String>,
}

fn builder(name: &str) -> Builder<'static> {
    let tlb = |operation| {
        Builder::new(Cache {
            which: CacheId::DTLB,
            operation,
            result: CacheResult::MISS,
        })
    };
    match name {
        TLB_LOADS => tlb(CacheOp::READ),
        TLB_STORES => tlb(CacheOp::WRITE),
        "cycles" => Builder::new(Hardware::CPU_CYCLES),
        "instructions" => Builder::new(Hardware::INSTRUCTIONS),
        _ => Builder::new(Software::PAGE_FAULTS),
    }
}

/// The reason why a counter cannot be opened.
fn reason(root: &Root, error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EACCES | Errno::EPERM) => {
            let level = root.read(PARANOID).unwrap_or_else(|_| "missing".into());
            format!("counters are forbidden: /{PARANOID} is {level}, 2 would do")
        }
        Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::ENODEV) => {
            "this CPU, or this virtual machine, has no such counter".into()
        }
        _ => error.to_string(),
    }
}

impl Counters {
    /// All that there are.
    pub fn open(root: &Root) -> Self {
        let mut counters = Self::default();
        for name in [TLB_LOADS, TLB_STORES, "cycles", "instructions", FAULTS] {
            let built = builder(name)
                .observe_self()
                .any_cpu()
                .inherit(true)
                .enabled(false)
                .enable_on_exec(true)
                .exclude_kernel(true)
                .exclude_hv(true)
                .build();
            match built {
                Ok(counter) => counters.open.push((name, counter)),
                Err(error) => {
                    let why = reason(root, &error);
                    counters.missing.insert(name.into(), why);
                }
            }
        }
        counters
    }

    /// The counts so far, of programs that have ended. A counter that had to share the CPU's with
    /// another is extrapolated; one that never ran is left out.
    pub fn read(&mut self) -> Counts {
        let mut counts = Counts::new();
        for (name, counter) in &mut self.open {
            if let Ok(read) = counter.read_count_and_time()
                && let Some(count) = extrapolated(read.count, read.time_enabled, read.time_running)
            {
                counts.insert((*name).into(), count);
            }
        }
        counts
    }
}

/// `count` of a counter that ran for `running` of the `enabled` nanoseconds.
fn extrapolated(count: u64, enabled: u64, running: u64) -> Option<u64> {
    match running {
        0 => None,
        running => Some((u128::from(count) * u128::from(enabled) / u128::from(running)) as u64),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use hpmmap_host::fixture::Fixture;

    use super::*;

    #[test]
    fn reasons_say_what_is_missing() {
        let fixture = Fixture::new();
        fixture.write(PARANOID, "3\n");
        let why = |errno: Errno| reason(&fixture.root(), &errno.into());
        assert_eq!(
            why(Errno::EACCES),
            "counters are forbidden: /proc/sys/kernel/perf_event_paranoid is 3, 2 would do"
        );
        assert!(why(Errno::ENOENT).contains("has no such counter"));
        assert!(why(Errno::EMFILE).contains("Too many open files"));
    }

    #[test]
    fn shared_counters_are_extrapolated() {
        assert_eq!(extrapolated(100, 40, 10), Some(400));
        assert_eq!(extrapolated(u64::MAX, 10, 10), Some(u64::MAX));
        assert_eq!(extrapolated(0, 10, 0), None);
    }

    #[test]
    fn programs_are_counted_with_what_they_start_and_this_process_is_not() {
        let mut counters = Counters::open(&Root::default());
        // Not where the administrator forbids it; otherwise every kernel counts page faults.
        let has_faults = !counters.missing.contains_key(FAULTS);
        assert_eq!(counters.open.len() + counters.missing.len(), 5);
        assert_eq!(counters.read().get(FAULTS), None);
        let memory = vec![1u8; 64 << 20];
        assert_eq!(counters.read().get(FAULTS), None, "{}", memory.len());
        Command::new("sh")
            .args(["-c", "sh -c :; :"])
            .status()
            .unwrap();
        assert_eq!(counters.read().contains_key(FAULTS), has_faults);
        assert!(!has_faults || counters.read()[FAULTS] > 50);
    }
}
