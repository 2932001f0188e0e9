//! Loads the programs and reads their counts.

use std::thread;
use std::time::Duration;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use zerocopy::IntoBytes;

use crate::event::{Cause, Event, Kind, Origin, Stall, read, totals};
use crate::events::{
    COUNTER_DROPPED, COUNTER_EXCEPTIONS, COUNTER_KERNEL_MAJOR, COUNTER_KERNEL_MINOR, COUNTER_MAJOR,
    COUNTER_MINOR, COUNTER_RETRIES, COUNTER_UNTRACKED, control, total,
};
use crate::object::{Loaded, Result, Runs, refused};

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

/// The attached programs. They are detached when this is dropped or its process is killed.
pub struct Probes(Loaded);

impl Probes {
    /// Loads and attaches them. They trace nothing yet, except the first child of the process
    /// `recorder`, if given. Events wait in a buffer of `buffer_bytes`, a power of two.
    pub fn attach(buffer_bytes: u32, recorder: Option<u32>) -> Result<Self> {
        let mut loaded = Loaded::new(PROGRAMS, &NEEDED, &|map| match map.name() == "events" {
            true => map.set_max_entries(buffer_bytes),
            false => Ok(()),
        })?;
        if let Some(recorder) = recorder {
            loaded.set_control(control { recorder, root: 0 }.as_bytes())?;
        }
        // First the programs at ends: a begin whose program is attached before would have no end.
        loaded.attach(|program| match program.name() {
            name if name == "task_exit" => 2,
            _ if program.section().to_string_lossy().contains("fexit") => 0,
            _ => 1,
        })?;
        Ok(Self(loaded))
    }

    /// Ends recording; the counts stay. First the program that ends a thread's count is detached,
    /// since it must not count faults that the others have missed.
    pub fn detach(&mut self) {
        self.0.detach();
        // A program may still be running on another CPU.
        thread::sleep(Duration::from_millis(20));
    }

    /// The hooks that the kernel lacks, about which nothing is known.
    pub fn missing(&self) -> &[String] {
        self.0.missing()
    }

    /// Traces a process and its descendants from now on.
    pub fn trace(&self, pid: u32) -> Result<()> {
        self.0
            .map("processes")?
            .update(&pid.to_le_bytes(), &[1], MapFlags::ANY)
            .map_err(refused("cannot trace the process"))
    }

    /// Number of processes that are traced now.
    pub fn running(&self) -> Result<u32> {
        Ok(self.0.map("processes")?.keys().count() as u32)
    }

    /// The buffer of events. `None` stands for an event that cannot be decoded.
    pub fn ring<'a>(&self, mut take: impl FnMut(Option<Event>) + 'a) -> Result<Ring<'a>> {
        let map = self.0.map("events")?;
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
        let map = self.0.map("totals")?;
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
        let map = self.0.map("stolen")?;
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
        let map = self.0.map("counters")?;
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
        self.0.runs()
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
    use crate::object::tests::assert_has;

    #[test]
    fn the_programs_are_an_object_that_has_all_that_is_needed() {
        let maps = [
            "events",
            "totals",
            "stolen",
            "counters",
            "control",
            "processes",
        ];
        assert_has(PROGRAMS, &NEEDED, &maps);
    }
}
