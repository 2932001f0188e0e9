//! The plan of `bench node`: what is measured, and how much of it fits into the time.

use hpmmap_base::size::Size;
use serde::{Deserialize, Serialize};

use crate::colocation::plan::Workload;
use crate::noise::plan::{Mode, Variant};
use crate::plan::{self, Allocator, Case, GIGABYTE, LARGE_PAGE, Method, Pattern};

const MIB: u64 = 1 << 20;

/// The least memory to measure with.
pub const LEAST_BYTES: u64 = 64 * MIB;
/// Arrays in an hour: twice of what the second-level TLBs of today's CPUs reach with pages of 2 MB.
const HOUR_BYTES: u64 = 4 * GIGABYTE;
const HOUR: f64 = 60.0;
/// Random accesses, or elements, in a round of a process, from a quarter of an hour on.
const ACCESSES: f64 = 4.0 * MIB as f64;
/// Memory of a process besides its arrays.
const OWN_BYTES: u64 = 64 * MIB;
/// The part of the memory that a mini-application has, and the least.
const APP_PART: u64 = 16;
const APP_LEAST: u64 = 8 * MIB;

/// One measurement, by each method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum What {
    /// Accesses to an array of so many bytes for each of these tasks.
    Accesses {
        /// Dependent: latency. Independent: updates. Triad: bandwidth.
        mode: Mode,
        /// Of each task.
        size_bytes: u64,
        /// Tasks at the same time, each bound to a CPU.
        tasks: u32,
    },
    /// A case of `bench alloc`, the method aside.
    Alloc {
        /// The pattern.
        pattern: Pattern,
        /// Of each thread.
        size_bytes: u64,
        /// Threads.
        threads: u32,
    },
    /// A search of `bench noise` for detours.
    Detours {
        /// The loop.
        variant: Variant,
    },
    /// A mini-application.
    App {
        /// Which.
        workload: Workload,
        /// Of each rank.
        size_bytes: u64,
        /// Ranks; one is started without mpirun.
        ranks: u32,
    },
}

/// One figure of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// Its name.
    pub name: &'static str,
    /// Is more better?
    pub more_is_better: bool,
}

impl What {
    /// The CPUs that it uses, if it may use those of several NUMA nodes.
    pub fn tasks(&self) -> u32 {
        match *self {
            Self::Accesses { tasks, .. } => tasks,
            Self::Alloc { threads, .. } => threads,
            Self::Detours { .. } | Self::App { .. } => 1,
        }
    }

    /// The name in reports.
    pub fn title(&self) -> String {
        let several = |n: u32, what: &str| match n {
            1 => String::new(),
            n => format!(", {n} {what}"),
        };
        match *self {
            Self::Accesses {
                mode,
                size_bytes,
                tasks,
            } => {
                let name = match mode {
                    Mode::Dependent => "latency of random reads",
                    Mode::Independent => "random updates",
                    Mode::Triad => "triad",
                };
                format!("{name}, {}{}", Size(size_bytes), several(tasks, "tasks"))
            }
            Self::Alloc {
                pattern,
                size_bytes,
                threads,
            } => format!(
                "memory by pattern {}, {}{}",
                pattern.name(),
                Size(size_bytes),
                several(threads, "threads")
            ),
            Self::Detours { variant } => format!("noise, loop {}", variant.name()),
            Self::App {
                workload, ranks, ..
            } => format!("{}{}", workload.name(), several(ranks, "ranks")),
        }
    }

    /// The unit of its figure.
    pub fn unit(&self) -> Unit {
        let (name, more_is_better) = match self {
            Self::Accesses {
                mode: Mode::Triad, ..
            } => ("GB/s", true),
            Self::Accesses {
                mode: Mode::Independent,
                ..
            } => ("million/s", true),
            Self::Accesses { .. } => ("ns", false),
            Self::Alloc { .. } => ("ns for 4 KB", false),
            Self::Detours { .. } => ("% of time", false),
            Self::App { .. } => ("s", false),
        };
        Unit {
            name,
            more_is_better,
        }
    }

    /// The case of `bench alloc`.
    pub fn case(&self, method: Method) -> Option<Case> {
        let Self::Alloc {
            pattern,
            size_bytes,
            threads,
        } = *self
        else {
            return None;
        };
        Some(Case {
            pattern,
            method,
            allocator: pattern.uses_allocator().then_some(Allocator::Glibc),
            size_bytes,
            threads,
        })
    }

    /// The most memory that it may need.
    pub fn need_bytes(&self, method: Method, parameters: &Parameters) -> u64 {
        let each = |size: u64, n: u32| {
            // Whole gigabytes need not begin where a pool does.
            let unaligned = match method {
                Method::Hpmmap1g if size >= GIGABYTE => GIGABYTE,
                _ => 0,
            };
            (size.next_multiple_of(LARGE_PAGE) + unaligned + OWN_BYTES) * u64::from(n)
        };
        match *self {
            Self::Accesses {
                size_bytes, tasks, ..
            } => each(size_bytes, tasks),
            Self::Alloc { .. } => self.case(method).map_or(0, |case| case.need_bytes()),
            Self::Detours { .. } => each(parameters.detour_bytes(), parameters.cpus.len() as u32),
            // Blocks of 2 MB are not used in full.
            Self::App {
                size_bytes, ranks, ..
            } => each(2 * size_bytes, ranks),
        }
    }
}

/// The requested measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The methods, in the order of the tables.
    pub methods: Vec<Method>,
    /// The time for all of it.
    pub minutes: f64,
    /// Memory of the arrays of a measurement, of all tasks together.
    pub memory_bytes: u64,
    /// CPUs of one NUMA node, one of each core.
    pub cpus: Vec<u32>,
    /// The same of all NUMA nodes, those of the first node first.
    pub all_cpus: Vec<u32>,
    /// Most repetitions of a measurement.
    pub repetitions: u32,
    /// Seed of the order of the methods.
    pub seed: u64,
}

fn power_of_two_below(n: u64) -> u64 {
    1 << n.max(1).ilog2()
}

/// The memory of the arrays: what fits into the time, and is free.
pub fn memory_bytes(minutes: f64, free: u64) -> u64 {
    let of_time = (HOUR_BYTES as f64 * minutes / HOUR) as u64;
    power_of_two_below(of_time.clamp(LEAST_BYTES, HOUR_BYTES).min(free))
}

impl Parameters {
    /// Random accesses, or elements, in a round.
    pub fn accesses(&self) -> u64 {
        (ACCESSES * (self.minutes / 15.0).clamp(1.0 / 64.0, 1.0)) as u64
    }

    /// Length of a search for detours.
    pub fn milliseconds(&self) -> u64 {
        ((self.minutes * 50.0) as u64).clamp(100, 2000)
    }

    /// Memory that the loop of detours writes to, on each CPU.
    pub fn detour_bytes(&self) -> u64 {
        let each = self.memory_bytes / self.cpus.len().max(1) as u64;
        power_of_two_below(each).clamp(LARGE_PAGE, 64 * MIB)
    }

    /// 1, 2, 4, ... CPUs of a NUMA node, all of these, and those of all nodes.
    fn scales(&self) -> Vec<u32> {
        let (node, all) = (self.cpus.len() as u32, self.all_cpus.len() as u32);
        let powers = (0..31).map(|shift| 1 << shift);
        let mut scales: Vec<u32> = powers.take_while(|&n| n < node).collect();
        scales.extend([node, all]);
        scales.dedup();
        scales
    }

    /// The size of an array, if each of so many tasks has one.
    fn array_bytes(&self, tasks: u32) -> u64 {
        power_of_two_below(self.memory_bytes / u64::from(tasks)).max(LARGE_PAGE)
    }

    /// All measurements, the most important first: so they are made if time is short.
    pub fn all(&self) -> Vec<What> {
        let accesses = |mode, tasks| What::Accesses {
            mode,
            size_bytes: self.array_bytes(tasks),
            tasks,
        };
        let app_bytes = (self.memory_bytes / APP_PART).max(APP_LEAST);
        let app = |workload, ranks: u32| What::App {
            workload,
            size_bytes: (app_bytes / u64::from(ranks)).max(APP_LEAST),
            ranks,
        };
        let apps = [
            Workload::Minicg,
            Workload::Minife,
            Workload::Minimd,
            Workload::Miniamr,
        ];
        let scales = self.scales();
        let mut all: Vec<What> = [Mode::Dependent, Mode::Independent, Mode::Triad]
            .map(|mode| accesses(mode, 1))
            .into();
        all.push(app(apps[0], 1));
        all.extend(self.alloc_cases());
        all.extend(
            [Variant::Plain, Variant::Touch, Variant::Fresh]
                .map(|variant| What::Detours { variant }),
        );
        for &tasks in &scales[1..] {
            all.push(accesses(Mode::Triad, tasks));
            all.push(accesses(Mode::Independent, tasks));
        }
        all.extend(apps[1..].iter().map(|&workload| app(workload, 1)));
        let most = power_of_two_below(self.cpus.len() as u64) as u32;
        if most > 1 {
            all.extend(apps.map(|workload| app(workload, most)));
        }
        // A smaller array, which the caches and TLBs hold better.
        all.push(What::Accesses {
            mode: Mode::Dependent,
            size_bytes: self.array_bytes(1) / 16,
            tasks: 1,
        });
        all
    }

    /// The cases of `bench alloc`: fault cost, and patterns.
    fn alloc_cases(&self) -> Vec<What> {
        let large = (self.array_bytes(1) / 4).min(128 * MIB);
        let one = |pattern, size_bytes, threads| What::Alloc {
            pattern,
            size_bytes,
            threads,
        };
        let mut all = vec![
            one(Pattern::Map, large, 1),
            one(Pattern::Map, LARGE_PAGE, 1),
            one(Pattern::Amr, large / 4, 1),
            one(Pattern::Malloc, large / 4, 1),
        ];
        let threads = |&threads: &u32| one(Pattern::Threads, large / 8, threads);
        all.extend(self.scales().iter().map(threads));
        all
    }

    /// Does this method differ in it from the others?
    pub fn makes(&self, what: &What, method: Method) -> bool {
        match what {
            What::Accesses { size_bytes, .. } => {
                method != Method::Hpmmap1g || *size_bytes >= GIGABYTE
            }
            What::Alloc {
                pattern,
                size_bytes,
                threads,
            } => {
                // The rules of that benchmark.
                let alloc = plan::Parameters {
                    methods: vec![method],
                    patterns: vec![*pattern],
                    allocators: vec![Allocator::Glibc],
                    sizes_bytes: vec![*size_bytes],
                    limit_bytes: *size_bytes,
                    repetitions: 1,
                    rounds: 1,
                    threads: vec![*threads],
                };
                let is_large = method != Method::Hpmmap1g || *size_bytes >= GIGABYTE;
                is_large && !alloc.cases().is_empty()
            }
            // The plain loop uses no memory.
            What::Detours { variant } => match variant {
                Variant::Plain => matches!(method, Method::Small | Method::Hpmmap),
                _ => method != Method::Hpmmap1g,
            },
            What::App { size_bytes, .. } => {
                method != Method::Hpmmap1g || *size_bytes >= GIGABYTE / 4
            }
        }
    }

    /// The most memory that a method may need.
    pub fn need_bytes(&self, method: Method) -> u64 {
        let made = self.all().into_iter();
        let needs = made
            .filter(|what| self.makes(what, method))
            .map(|what| what.need_bytes(method, self));
        needs.max().unwrap_or(0)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn parameters(minutes: f64, cpus: u32, all: u32) -> Parameters {
        Parameters {
            methods: plan::PAGE_METHODS.to_vec(),
            minutes,
            memory_bytes: memory_bytes(minutes, 64 * GIGABYTE),
            cpus: (0..cpus).collect(),
            all_cpus: (0..all).collect(),
            repetitions: 10,
            seed: 1,
        }
    }

    #[test]
    fn the_plan_follows_the_time() {
        let hour = parameters(60.0, 16, 32);
        assert_eq!(hour.memory_bytes, 4 * GIGABYTE);
        assert_eq!((hour.accesses(), hour.milliseconds()), (4 << 20, 2000));
        let minute = parameters(1.0, 16, 32);
        assert_eq!(minute.memory_bytes, 64 * MIB);
        assert_eq!((minute.accesses(), minute.milliseconds()), (279_620, 100));
        // More time does not make one repetition longer.
        let day = parameters(1440.0, 16, 32);
        assert_eq!((day.memory_bytes, day.accesses()), (4 * GIGABYTE, 4 << 20));
        assert_eq!(memory_bytes(60.0, 3 * GIGABYTE), 2 * GIGABYTE);
        assert_eq!(memory_bytes(0.1, GIGABYTE), LEAST_BYTES);
    }

    #[test]
    fn it_scales_over_the_cpus_of_a_node_and_over_all_nodes() {
        assert_eq!(parameters(60.0, 12, 24).scales(), [1, 2, 4, 8, 12, 24]);
        assert_eq!(parameters(60.0, 4, 4).scales(), [1, 2, 4]);
        assert_eq!(parameters(60.0, 1, 1).scales(), [1]);
        assert_eq!(parameters(60.0, 1, 2).scales(), [1, 2]);
    }

    #[test]
    fn no_measurement_is_there_twice_and_arrays_fit_into_the_memory() {
        for (cpus, all) in [(1, 1), (2, 2), (6, 12), (64, 128)] {
            let parameters = parameters(60.0, cpus, all);
            let mut made = parameters.all();
            for what in &made {
                if let What::Accesses {
                    size_bytes, tasks, ..
                } = *what
                {
                    assert!(size_bytes.is_power_of_two());
                    assert!(size_bytes * u64::from(tasks) <= parameters.memory_bytes);
                }
            }
            let count = made.len();
            made.sort();
            made.dedup();
            assert_eq!(made.len(), count);
        }
    }

    #[test]
    fn methods_measure_what_they_differ_in() {
        let hour = parameters(60.0, 2, 2);
        let makes = |what: &What, method| hour.makes(what, method);
        let all = hour.all();
        let latency = &all[0];
        assert!(
            plan::PAGE_METHODS
                .iter()
                .all(|&method| makes(latency, method))
        );
        let plain = What::Detours {
            variant: Variant::Plain,
        };
        assert!(!makes(&plain, Method::Thp) && makes(&plain, Method::Hpmmap));
        let minute = parameters(1.0, 2, 2);
        assert!(!minute.makes(&minute.all()[0], Method::Hpmmap1g));
        // In gigabytes: the array, and what does not begin where the pool does.
        assert_eq!(
            hour.need_bytes(Method::Hpmmap1g),
            6 * GIGABYTE + 2 * OWN_BYTES
        );
        assert_eq!(
            hour.need_bytes(Method::Hpmmap),
            4 * GIGABYTE + 2 * OWN_BYTES
        );
    }
}
