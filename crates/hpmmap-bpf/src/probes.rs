//! Loads the programs and reads their counts.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use hpmmap_sys::bpf;
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{
    ErrorKind, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, Program,
    RingBuffer, RingBufferBuilder, set_print,
};
use zerocopy::IntoBytes;

use crate::event::{Cause, Event, Kind, Origin, Stall, read, totals};
use crate::events::{
    COUNTER_DROPPED, COUNTER_EXCEPTIONS, COUNTER_KERNEL_MAJOR, COUNTER_KERNEL_MINOR, COUNTER_MAJOR,
    COUNTER_MINOR, COUNTER_RETRIES, COUNTER_UNTRACKED, control, total,
};

static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));

/// The hooks without which nothing can be recorded.
const NEEDED: [&str; 6] = [
    "fault_enter",
    "fault_exit",
    "page_fault_user",
    "page_fault_kernel",
    "task_fork",
    "task_exit",
];

/// Errors of loading and attaching the programs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller has no permission to load them.
    #[error("no permission to load BPF programs")]
    NotPermitted,
    /// The kernel has no description of its types (BTF).
    #[error(
        "this kernel was built without CONFIG_DEBUG_INFO_BTF (there is no /sys/kernel/btf/vmlinux)"
    )]
    NoBtf,
    /// The kernel lacks a function to hook.
    #[error("this kernel has no {0}")]
    Missing(String),
    /// The kernel refused a step.
    #[error("{0}: {1}")]
    Refused(&'static str, String),
}

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

fn refused(what: &'static str) -> impl Fn(libbpf_rs::Error) -> Error {
    move |error| match error.kind() {
        ErrorKind::PermissionDenied => Error::NotPermitted,
        _ => Error::Refused(what, format!("{error:#}")),
    }
}

/// Number and time of events of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of events.
    pub count: u64,
    /// Total time.
    pub sum_ns: u64,
    /// The longest time.
    pub max_ns: u64,
}

/// The faults of a kind; exact even if events were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// What they did.
    pub kind: Kind,
    /// What they waited for.
    pub stall: Stall,
    /// Their origin.
    pub origin: Origin,
    /// Their number and time.
    pub figures: Figures,
}

/// The time stolen by one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StolenTotal {
    /// The cause.
    pub cause: Cause,
    /// Number and time.
    pub figures: Figures,
}

/// Other counters of the programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events for which the buffer had no room.
    pub dropped: u64,
    /// Processes and threads for which there was no room.
    pub untracked: u64,
    /// Growth of the kernel's counters of minor faults of the threads.
    pub kernel_minor: u64,
    /// Growth of the kernel's counters of major faults of the threads.
    pub kernel_major: u64,
    /// Minor faults as the programs counted them.
    pub minor: u64,
    /// Major faults as the programs counted them.
    pub major: u64,
    /// Attempts that the kernel began anew.
    pub retries: u64,
    /// Exceptions on addresses of user space.
    pub exceptions: u64,
}

/// The runs of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    /// Its name.
    pub program: String,
    /// Number of runs.
    pub count: u64,
    /// Total time.
    pub ns: u64,
    /// Runs that were skipped because the program was running on that CPU already.
    pub missed: u64,
}

/// The attached programs. They are detached when this is dropped or its process is killed.
pub struct Probes {
    links: Vec<Link>,
    object: Object,
    missing: Vec<String>,
    // Run times are counted while it is open.
    _statistics: Option<OwnedFd>,
}

/// Does the kernel have the function or tracepoint that a program hooks?
fn target_exists(kernel: &Btf, section: &str) -> bool {
    match section.split_once('/') {
        Some(("tp_btf", name)) => kernel
            .type_by_name::<types::Typedef>(&format!("btf_trace_{name}"))
            .is_some(),
        Some((_, name)) => kernel.type_by_name::<types::Func>(name).is_some(),
        None => false,
    }
}

/// The name of the hooked function: `handle_mm_fault` for `fentry/handle_mm_fault`.
fn target(section: &str) -> String {
    section.rsplit('/').next().unwrap_or_default().to_string()
}

fn open() -> Result<OpenObject> {
    ObjectBuilder::default()
        .open_memory(PROGRAMS)
        .map_err(refused("cannot open the BPF programs"))
}

/// The hooks that the running kernel lacks; an error if one is needed.
fn missing_targets() -> Result<Vec<String>> {
    let kernel = Btf::from_vmlinux().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::NoBtf,
        _ => refused("cannot read the kernel's BTF")(error),
    })?;
    let mut missing = Vec::new();
    for program in open()?.progs() {
        let section = program.section().to_string_lossy().into_owned();
        if target_exists(&kernel, &section) {
            continue;
        }
        if NEEDED.iter().any(|name| program.name() == *name) {
            return Err(Error::Missing(target(&section)));
        }
        missing.push(target(&section));
    }
    Ok(missing)
}

/// Loads the programs except those with missing hooks.
fn load(buffer_bytes: u32, missing: &[String]) -> Result<Object> {
    let mut open = open()?;
    for mut program in open.progs_mut() {
        if missing.contains(&target(&program.section().to_string_lossy())) {
            program.set_autoload(false);
        }
    }
    for mut map in open.maps_mut() {
        if map.name() == "events" {
            map.set_max_entries(buffer_bytes)
                .map_err(refused("cannot set the size of the buffer"))?;
        }
    }
    open.load().map_err(refused("cannot load the BPF programs"))
}

impl Probes {
    /// Loads and attaches them. They trace nothing yet, except the first child of the process
    /// `recorder`, if given. Events wait in a buffer of `buffer_bytes`, a power of two.
    pub fn attach(buffer_bytes: u32, recorder: Option<u32>) -> Result<Self> {
        set_print(None);
        let (object, missing) = match load(buffer_bytes, &[]) {
            Err(Error::Refused(..)) => {
                // The kernel may lack a hook that is not needed.
                let missing = missing_targets()?;
                (load(buffer_bytes, &missing)?, missing)
            }
            loaded => (loaded?, Vec::new()),
        };
        let mut probes = Self {
            links: Vec::new(),
            object,
            missing,
            _statistics: bpf::count_run_times().ok(),
        };
        if let Some(recorder) = recorder {
            let value = control { recorder, root: 0 };
            probes
                .map("control")?
                .update(&[0; 4], value.as_bytes(), MapFlags::ANY)
                .map_err(refused("cannot pass the process to trace to the programs"))?;
        }
        // First the programs at ends: a begin whose program is attached before would have no end.
        let mut programs: Vec<_> = probes
            .object
            .progs_mut()
            .filter(|program| program.autoload())
            .collect();
        programs.sort_by_key(|program| match program.name() {
            name if name == "task_exit" => 2,
            _ if program.section().to_string_lossy().contains("fexit") => 0,
            _ => 1,
        });
        let mut links = Vec::new();
        for program in programs {
            links.push(
                program
                    .attach()
                    .map_err(refused("cannot attach the BPF programs"))?,
            );
        }
        probes.links = links;
        Ok(probes)
    }

    /// Ends recording; the counts stay. First the program that ends a thread's count is detached,
    /// since it must not count faults that the others have missed.
    pub fn detach(&mut self) {
        while let Some(link) = self.links.pop() {
            drop(link);
        }
        // A program may still be running on another CPU.
        thread::sleep(Duration::from_millis(20));
    }

    /// The hooks that the kernel lacks, about which nothing is known.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    fn map(&self, name: &str) -> Result<MapHandle> {
        let map = self
            .object
            .maps()
            .find(|map| map.name() == name)
            .ok_or_else(|| Error::Missing(format!("map {name}")))?;
        MapHandle::try_from(&map).map_err(refused("cannot use a BPF map"))
    }

    /// Traces a process and its descendants from now on.
    pub fn trace(&self, pid: u32) -> Result<()> {
        self.map("processes")?
            .update(&pid.to_le_bytes(), &[1], MapFlags::ANY)
            .map_err(refused("cannot trace the process"))
    }

    /// Number of processes that are traced now.
    pub fn running(&self) -> Result<u32> {
        Ok(self.map("processes")?.keys().count() as u32)
    }

    /// The buffer of events. `None` stands for an event that cannot be decoded.
    pub fn ring<'a>(&self, mut take: impl FnMut(Option<Event>) + 'a) -> Result<Ring<'a>> {
        let map = self.map("events")?;
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, move |bytes| {
                take(Event::decode(bytes));
                0
            })
            .map_err(refused("cannot read the buffer"))?;
        builder
            .build()
            .map(Ring)
            .map_err(refused("cannot read the buffer"))
    }

    fn figures(map: &MapHandle, index: u32) -> Result<Figures> {
        let values = map
            .lookup_percpu(&index.to_le_bytes(), MapFlags::ANY)
            .map_err(refused("cannot read the totals"))?
            .unwrap_or_default();
        let mut figures = Figures::default();
        for one in values.iter().filter_map(|value| read::<total>(value)) {
            figures.count += one.count;
            figures.sum_ns += one.sum_ns;
            figures.max_ns = figures.max_ns.max(one.max_ns);
        }
        Ok(figures)
    }

    /// The totals of the faults.
    pub fn totals(&self) -> Result<Vec<Total>> {
        let map = self.map("totals")?;
        let mut all = Vec::new();
        for (index, kind, stall, origin) in totals() {
            let figures = Self::figures(&map, index)?;
            if figures.count > 0 {
                all.push(Total {
                    kind,
                    stall,
                    origin,
                    figures,
                });
            }
        }
        Ok(all)
    }

    /// The time stolen, by cause.
    pub fn stolen(&self) -> Result<Vec<StolenTotal>> {
        let map = self.map("stolen")?;
        let mut all = Vec::new();
        for cause in Cause::ALL {
            all.push(StolenTotal {
                cause: *cause,
                figures: Self::figures(&map, *cause as u32)?,
            });
        }
        Ok(all)
    }

    /// The other counters.
    pub fn counters(&self) -> Result<Counters> {
        let map = self.map("counters")?;
        let count = |index: u32| -> Result<u64> {
            let values = map
                .lookup_percpu(&index.to_le_bytes(), MapFlags::ANY)
                .map_err(refused("cannot read the counters"))?;
            let values = values.iter().flatten();
            Ok(values.filter_map(|value| read::<u64>(value)).sum())
        };
        Ok(Counters {
            dropped: count(COUNTER_DROPPED)?,
            untracked: count(COUNTER_UNTRACKED)?,
            kernel_minor: count(COUNTER_KERNEL_MINOR)?,
            kernel_major: count(COUNTER_KERNEL_MAJOR)?,
            minor: count(COUNTER_MINOR)?,
            major: count(COUNTER_MAJOR)?,
            retries: count(COUNTER_RETRIES)?,
            exceptions: count(COUNTER_EXCEPTIONS)?,
        })
    }

    /// The runs of each program; their times are 0 if the kernel does not count them.
    pub fn runs(&self) -> Vec<Runs> {
        let mut ours: BTreeMap<u32, String> = BTreeMap::new();
        for program in self.object.progs() {
            if let Ok(id) = Program::id_from_fd(program.as_fd()) {
                ours.insert(id, program.name().to_string_lossy().into_owned());
            }
        }
        ProgInfoIter::default()
            .filter_map(|info| {
                Some(Runs {
                    program: ours.remove(&info.id)?,
                    count: info.run_cnt,
                    ns: info.run_time_ns,
                    missed: info.recursion_misses,
                })
            })
            .collect()
    }
}

/// The buffer of events.
pub struct Ring<'a>(RingBuffer<'a>);

impl Ring<'_> {
    /// Waits until the buffer is half full, a signal comes or the time is over; then takes all
    /// events.
    pub fn take(&self, timeout: Duration) -> Result<()> {
        let waited = self.0.poll(timeout);
        match waited {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                Err(refused("cannot read the buffer")(error))
            }
            _ => match self.0.consume() {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    Err(refused("cannot read the buffer")(error))
                }
                _ => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_an_object_that_has_all_that_is_needed() {
        let open = ObjectBuilder::default().open_memory(PROGRAMS).unwrap();
        let names: Vec<String> = open
            .progs()
            .map(|program| program.name().to_string_lossy().into_owned())
            .collect();
        for needed in NEEDED {
            assert!(names.iter().any(|name| name == needed), "{needed}");
        }
        let maps: Vec<String> = open
            .maps()
            .map(|map| map.name().to_string_lossy().into_owned())
            .collect();
        for map in [
            "events",
            "totals",
            "stolen",
            "counters",
            "control",
            "processes",
        ] {
            assert!(maps.iter().any(|name| name == map), "{map}: {maps:?}");
        }
    }
}
