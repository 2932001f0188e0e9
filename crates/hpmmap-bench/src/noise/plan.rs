//! The plan of `bench noise`.

use clap::ValueEnum;
use hpmmap_base::size::Size;
use serde::{Deserialize, Serialize};

use crate::plan::{LARGE_PAGE, Method, Provider};

const MIB: u64 = 1 << 20;

/// The methods that can be compared here; the first is the default peer.
pub const METHODS: [Method; 4] = [Method::Small, Method::Thp, Method::Hugetlb, Method::Hpmmap];

/// The work of the loop that looks for detours.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Reads the clock, no memory
    Plain,
    /// Writes to resident pages
    Touch,
    /// Writes to pages that it has just mapped
    Fresh,
}

/// The kind of random accesses.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each read gives the index of the next one
    Dependent,
    /// Updates that do not wait for each other
    Independent,
    /// Not random: the triad of STREAM, for `bench node`; an access is an element
    #[value(skip)]
    Triad,
}

/// The tasks that make random accesses at the same time, and their CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tasks {
    /// One, on the first CPU.
    One,
    /// Several, each bound to a CPU of its own.
    Bound,
    /// Several that the scheduler may move between all these CPUs.
    Unbound,
}

/// The load besides the benchmark.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// Nothing of this benchmark
    Alone,
    /// A neighbour that uses memory
    Neighbour,
}

impl Variant {
    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Touch => "touch",
            Self::Fresh => "fresh",
        }
    }
}

impl Mode {
    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dependent => "dependent",
            Self::Independent => "independent",
            Self::Triad => "triad",
        }
    }
}

impl Tasks {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Bound => "bound",
            Self::Unbound => "unbound",
        }
    }
}

impl Condition {
    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Neighbour => "neighbour",
        }
    }
}

/// One half of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum What {
    /// Detours on all CPUs at once.
    Detours {
        /// The loop.
        variant: Variant,
        /// The load besides it.
        condition: Condition,
    },
    /// Random accesses.
    Accesses {
        /// The kind of accesses.
        mode: Mode,
        /// The tasks.
        tasks: Tasks,
        /// Size of the array.
        size_bytes: u64,
    },
}

/// One case to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    /// The way to get memory.
    pub method: Method,
    /// The measurement.
    #[serde(flatten)]
    pub what: What,
}

impl Case {
    /// The case in messages.
    pub fn title(&self) -> String {
        let method = self.method.name();
        match self.what {
            What::Detours { variant, condition } => {
                format!("detours {} {method} {}", variant.name(), condition.name())
            }
            What::Accesses {
                mode,
                tasks,
                size_bytes,
            } => {
                let tasks = match tasks {
                    Tasks::One => String::new(),
                    several => format!(" {}", several.name()),
                };
                format!(
                    "accesses {} {method} {}{tasks}",
                    mode.name(),
                    Size(size_bytes)
                )
            }
        }
    }
}

/// The neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// A command; without one the built-in neighbour.
    pub command: Option<String>,
    /// CPUs that it runs on.
    pub cpus: Vec<u32>,
}

/// The requested measurements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// The ways to get memory.
    pub methods: Vec<Method>,
    /// The loops; empty: no detours.
    pub variants: Vec<Variant>,
    /// The kinds of random accesses; empty: no accesses.
    pub modes: Vec<Mode>,
    /// The CPUs to measure.
    pub cpus: Vec<u32>,
    /// The neighbour, if there is one.
    pub neighbour: Option<Neighbour>,
    /// Length of each search for detours.
    pub milliseconds: u64,
    /// A round is a detour if it takes this many times as long as a usual one.
    pub factor: u32,
    /// Memory that a loop writes to, on each CPU.
    pub memory_bytes: u64,
    /// Sizes of arrays, ascending.
    pub sizes_bytes: Vec<u64>,
    /// Accesses in a round.
    pub accesses: u64,
    /// Tasks that make them at the same time; with several each case is measured bound and unbound.
    pub tasks: u32,
    /// The partition that everything is measured in.
    pub partition: Option<String>,
    /// Are interrupts and other tasks counted beside detours?
    pub count: bool,
    /// Rounds in a process.
    pub rounds: u32,
}

impl Parameters {
    /// All cases; those of one provider are together.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        let conditions = match self.neighbour {
            None => &[Condition::Alone][..],
            Some(_) => &[Condition::Alone, Condition::Neighbour],
        };
        for &method in &self.methods {
            for &variant in &self.variants {
                if !self.differs(variant, method) {
                    continue;
                }
                cases.extend(conditions.iter().map(|&condition| Case {
                    method,
                    what: What::Detours { variant, condition },
                }));
            }
            let tasks = match self.tasks {
                1 => &[Tasks::One][..],
                _ => &[Tasks::Bound, Tasks::Unbound],
            };
            for &mode in &self.modes {
                for &tasks in tasks {
                    let sizes = self.sizes_bytes.iter();
                    cases.extend(
                        sizes
                            // A huge page cannot be used in part.
                            .filter(|&&size| {
                                method.provider() != Provider::Hugetlb || size % LARGE_PAGE == 0
                            })
                            .map(|&size_bytes| Case {
                                method,
                                what: What::Accesses {
                                    mode,
                                    tasks,
                                    size_bytes,
                                },
                            }),
                    );
                }
            }
        }
        cases.sort_by_key(|case| case.method.provider());
        cases
    }

    /// The plain loop uses no memory: methods differ only in the launch.
    fn differs(&self, variant: Variant, method: Method) -> bool {
        let peer = self.methods.iter().find(|method| method.is_peer());
        variant != Variant::Plain || !method.is_peer() || peer == Some(&method)
    }

    /// The most memory that a case may need.
    pub fn need_bytes(&self, case: &Case) -> u64 {
        // For the program, its stack and its heap.
        let own = 64 * MIB;
        match case.what {
            What::Detours { .. } => {
                let each = self.memory_bytes.next_multiple_of(LARGE_PAGE) + own;
                each * self.cpus.len() as u64
            }
            What::Accesses { size_bytes, .. } => {
                (size_bytes.next_multiple_of(LARGE_PAGE) + own) * u64::from(self.tasks)
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn parameters() -> Parameters {
        Parameters {
            methods: METHODS.to_vec(),
            variants: Variant::value_variants().to_vec(),
            modes: Mode::value_variants().to_vec(),
            cpus: vec![0, 1],
            neighbour: Some(Neighbour {
                command: None,
                cpus: vec![1],
            }),
            milliseconds: 1000,
            factor: 9,
            memory_bytes: 3 * MIB,
            sizes_bytes: vec![64 << 10, 16 * MIB],
            accesses: 1000,
            tasks: 1,
            partition: None,
            count: false,
            rounds: 3,
        }
    }

    #[test]
    fn only_what_differs_is_measured() {
        let cases = parameters().cases();
        let plain: Vec<Method> = cases
            .iter()
            .filter(|case| {
                matches!(
                    case.what,
                    What::Detours {
                        variant: Variant::Plain,
                        condition: Condition::Alone
                    }
                )
            })
            .map(|case| case.method)
            .collect();
        assert_eq!(plain, [Method::Small, Method::Hpmmap]);
        let fresh = cases.iter().filter(|case| {
            matches!(
                case.what,
                What::Detours {
                    variant: Variant::Fresh,
                    ..
                }
            )
        });
        assert_eq!(fresh.count(), 8, "four methods, alone and not");
        let hugetlb = cases.iter().filter(|case| case.method == Method::Hugetlb);
        assert_eq!(hugetlb.count(), 4 + 2, "no array below a page");
    }

    #[test]
    fn without_a_neighbour_all_are_alone() {
        let mut parameters = parameters();
        parameters.neighbour = None;
        assert!(parameters.cases().iter().all(|case| !matches!(
            case.what,
            What::Detours {
                condition: Condition::Neighbour,
                ..
            }
        )));
    }

    #[test]
    fn providers_come_one_after_the_other() {
        let cases = parameters().cases();
        assert!(cases.is_sorted_by_key(|case| case.method.provider()));
    }

    #[test]
    fn every_cpu_needs_memory() {
        let parameters = parameters();
        let detours = parameters.cases()[0];
        assert_eq!(parameters.need_bytes(&detours), 2 * 68 * MIB);
        let accesses = Case {
            method: Method::Thp,
            what: What::Accesses {
                mode: Mode::Dependent,
                tasks: Tasks::One,
                size_bytes: 16 * MIB,
            },
        };
        assert_eq!(parameters.need_bytes(&accesses), 80 * MIB);
        assert_eq!(accesses.title(), "accesses dependent thp 16M");
        assert_eq!(detours.title(), "detours plain 4k alone");
    }

    #[test]
    fn several_tasks_are_bound_and_unbound() {
        let mut parameters = parameters();
        let single = parameters.cases().len();
        parameters.tasks = 4;
        let cases = parameters.cases();
        let accesses = cases
            .iter()
            .filter(|case| matches!(case.what, What::Accesses { .. }));
        assert_eq!(cases.len() - single, accesses.count() / 2);
        let last = cases.last().unwrap();
        assert!(last.title().ends_with(" unbound"), "{}", last.title());
        assert_eq!(parameters.need_bytes(last), 4 * 80 * MIB);
    }

    #[test]
    fn names_are_those_of_the_command_line_and_of_json() {
        fn check<T: ValueEnum + Serialize + Copy>(name: impl Fn(T) -> &'static str) {
            for &value in T::value_variants() {
                let json = serde_json::to_string(&value).unwrap();
                assert_eq!(json, format!("\"{}\"", name(value)));
                assert_eq!(value.to_possible_value().unwrap().get_name(), name(value));
            }
        }
        check(Variant::name);
        check(Mode::name);
        check(Condition::name);
    }
}
