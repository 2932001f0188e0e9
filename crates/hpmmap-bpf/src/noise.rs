//! Loads the programs that count what takes CPUs away from a job, and reads their counts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;

use libbpf_rs::{MapCore, MapFlags};
use zerocopy::{FromZeros, IntoBytes};

use crate::counts::{cpu_counts, hits, noise_control, other_counts, other_key};
use crate::event::{read, text};
use crate::object::{Error, Loaded, Result, Runs, refused};

static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/noise.bpf.o"));

/// The hooks without which neither switches nor the job's tasks are known.
const NEEDED: [&str; 3] = ["task_switch", "task_fork", "task_exit"];

/// The rows of /proc/interrupts that have tracepoints, in the order of `enum vector`.
pub const VECTORS: [&str; 9] = [
    "LOC", "RES", "CAL", "IWI", "TRM", "THR", "DFR", "SPU", "PLT",
];
/// The kernel's names of softirqs, in its order.
pub const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];
/// The reasons for which the kernel keeps the tick of a CPU of `nohz_full=`.
pub const TICK_REASONS: [&str; 6] = [
    "posix timer",
    "perf event",
    "several tasks to run",
    "unstable clock",
    "RCU",
    "RCU expedited",
];

/// Events of one kind on one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hits {
    /// All of them.
    pub count: u64,
    /// Those that came while a task of the job was running.
    pub in_job: u64,
}

impl From<&hits> for Hits {
    fn from(hits: &hits) -> Self {
        Self {
            count: hits.count,
            in_job: hits.in_job,
        }
    }
}

/// Tasks of one name that are not the job's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// The name.
    pub name: String,
    /// Switches to them.
    pub switches: u64,
    /// Those at which a task of the job could have gone on.
    pub preemptions: u64,
    /// Time on the CPU.
    pub ns: u64,
}

/// The counts of one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedCpu {
    /// Number of the CPU.
    pub cpu: u32,
    /// Time of the job's tasks on it.
    pub job_ns: u64,
    /// Switches to tasks of the job.
    pub arrivals: u64,
    /// Switches to tasks that are not the job's.
    pub others: u64,
    /// Those at which a task of the job could have gone on.
    pub preemptions: u64,
    /// Interrupts, by the names of [`VECTORS`].
    pub vectors: [Hits; VECTORS.len()],
    /// Device interrupts by number.
    pub devices: BTreeMap<u32, Hits>,
    /// Softirqs, by the names of [`SOFTIRQS`].
    pub softirqs: [Hits; SOFTIRQS.len()],
    /// Ticks that were not stopped, by the names of [`TICK_REASONS`].
    pub tick_reasons: [u64; TICK_REASONS.len()],
    /// The other tasks by name, the most frequent first.
    pub names: Vec<Other>,
}

/// All counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// The measured CPUs.
    pub cpus: Vec<CountedCpu>,
    /// Moves of the job's tasks to another CPU.
    pub migrations: u64,
    /// Facts for which a map had no room.
    pub lost: u64,
    /// Processes of the job that still exist.
    pub processes: u64,
}

/// The attached programs. They are detached when this is dropped or its process is killed.
pub struct NoiseProbes {
    loaded: Loaded,
    control: noise_control,
}

impl NoiseProbes {
    /// Attaches the programs. The job is every process that `launcher` starts from now on, with its
    /// descendants. With `cpus` these CPUs are counted from [`start`](Self::start) to
    /// [`stop`](Self::stop). Otherwise every CPU is, up to the end of the job's last process, and
    /// other tasks only where the job has run.
    pub fn attach(cpus: Option<&[u32]>, launcher: u32) -> Result<Self> {
        let loaded = Loaded::new(PROGRAMS, &NEEDED, &|_| Ok(()))?;
        let namespace = fs::metadata("/proc/self/ns/pid")
            .map_err(|error| Error::Refused("/proc/self/ns/pid", error.to_string()))?;
        let mut probes = Self {
            loaded,
            control: noise_control {
                namespace_dev: namespace.dev(),
                namespace_ino: namespace.ino(),
                launcher,
                recorder: std::process::id(),
                whole_time: cpus.is_some().into(),
                on: 0,
                processes: 0,
            },
        };
        probes.loaded.set_control(probes.control.as_bytes())?;
        probes.measure(cpus)?;
        probes.loaded.attach(|_| 0)?;
        // Its start shows the programs which process this is.
        let _ = thread::spawn(|| ()).join();
        Ok(probes)
    }

    /// Names the CPUs to measure.
    fn measure(&self, cpus: Option<&[u32]>) -> Result<()> {
        let possible = libbpf_rs::num_possible_cpus().map_err(refused("cannot count the CPUs"))?;
        let mut values = Vec::new();
        for cpu in 0..possible as u32 {
            let mut value = cpu_counts::new_zeroed();
            value.measured = cpus.is_none_or(|cpus| cpus.contains(&cpu)).into();
            values.push(value.as_bytes().to_vec());
        }
        self.loaded
            .map("cpus")?
            .update_percpu(&[0; 4], &values, MapFlags::ANY)
            .map_err(refused("cannot name the CPUs to the BPF programs"))
    }

    /// The settings as the programs have changed them.
    fn control_now(&self) -> Result<noise_control> {
        let bytes = self
            .loaded
            .map("control")?
            .lookup(&[0; 4], MapFlags::ANY)
            .map_err(refused("cannot read the settings of the BPF programs"))?;
        Ok(bytes.as_deref().and_then(read).unwrap_or(self.control))
    }

    fn set_on(&mut self, on: bool) -> Result<()> {
        self.control = noise_control {
            on: on.into(),
            ..self.control_now()?
        };
        self.loaded.set_control(self.control.as_bytes())
    }

    /// Begins to count.
    pub fn start(&mut self) -> Result<()> {
        self.set_on(true)
    }

    /// Ends counting; the programs stay attached.
    pub fn stop(&mut self) -> Result<()> {
        self.set_on(false)
    }

    /// The tracepoints that the kernel lacks, about which nothing is known.
    pub fn missing(&self) -> &[String] {
        self.loaded.missing()
    }

    /// The counts.
    pub fn counts(&self) -> Result<Counted> {
        let values = self
            .loaded
            .map("cpus")?
            .lookup_percpu(&[0; 4], MapFlags::ANY)
            .map_err(refused("cannot read the counts"))?
            .unwrap_or_default();
        let mut counted = Counted {
            processes: self.control_now()?.processes,
            ..Counted::default()
        };
        for (cpu, value) in values.iter().enumerate() {
            let Some(counts) = read::<cpu_counts>(value) else {
                continue;
            };
            counted.migrations += counts.migrations;
            counted.lost += counts.lost;
            if counts.measured != 0 {
                counted.cpus.push(CountedCpu {
                    cpu: cpu as u32,
                    job_ns: counts.job_ns,
                    arrivals: counts.arrivals,
                    others: counts.others,
                    preemptions: counts.preemptions,
                    vectors: counts.vectors.each_ref().map(Hits::from),
                    devices: BTreeMap::new(),
                    softirqs: counts.softirqs.each_ref().map(Hits::from),
                    tick_reasons: counts.tick_reasons,
                    names: Vec::new(),
                });
            }
        }
        self.add_devices(&mut counted)?;
        self.add_names(&mut counted)?;
        Ok(counted)
    }

    fn add_devices(&self, counted: &mut Counted) -> Result<()> {
        let map = self.loaded.map("irqs")?;
        for key in map.keys() {
            let values = map
                .lookup_percpu(&key, MapFlags::ANY)
                .map_err(refused("cannot read the counts of device interrupts"))?
                .unwrap_or_default();
            let Some(number) = read::<u32>(&key) else {
                continue;
            };
            for one in &mut counted.cpus {
                let value = values.get(one.cpu as usize).and_then(|value| read(value));
                let found = value.as_ref().map(|value: &hits| Hits::from(value));
                if let Some(hits) = found.filter(|hits| hits.count != 0) {
                    one.devices.insert(number, hits);
                }
            }
        }
        Ok(())
    }

    fn add_names(&self, counted: &mut Counted) -> Result<()> {
        let map = self.loaded.map("others")?;
        for key in map.keys() {
            let value = map
                .lookup(&key, MapFlags::ANY)
                .map_err(refused("cannot read the counts of other tasks"))?;
            let (Some(key), Some(counts)) = (
                read::<other_key>(&key),
                value.as_deref().and_then(read::<other_counts>),
            ) else {
                continue;
            };
            if let Some(one) = counted.cpus.iter_mut().find(|one| one.cpu == key.cpu) {
                one.names.push(Other {
                    name: text(&key.comm),
                    switches: counts.switches,
                    preemptions: counts.preemptions,
                    ns: counts.ns,
                });
            }
        }
        for one in &mut counted.cpus {
            one.names
                .sort_by(|a, b| (b.switches, &a.name).cmp(&(a.switches, &b.name)));
        }
        Ok(())
    }

    /// The runs of each program; their times are 0 if the kernel does not count them.
    pub fn runs(&self) -> Vec<Runs> {
        self.loaded.runs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::{SOFTIRQS as SOFTIRQS_C, TICK_REASONS as TICK_REASONS_C, VECTOR_COUNT};
    use crate::object::tests::assert_has;

    #[test]
    fn the_programs_are_an_object_that_has_all_that_is_needed() {
        let maps = ["control", "cpus", "irqs", "others", "processes"];
        assert_has(PROGRAMS, &NEEDED, &maps);
    }

    #[test]
    fn every_count_has_a_name() {
        assert_eq!(VECTORS.len(), VECTOR_COUNT as usize);
        assert_eq!(SOFTIRQS.len(), SOFTIRQS_C as usize);
        assert_eq!(TICK_REASONS.len(), TICK_REASONS_C as usize);
    }
}
