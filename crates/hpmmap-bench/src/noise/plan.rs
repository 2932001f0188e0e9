//! What is to be measured.

use clap::ValueEnum;
use hpmmap_base::size::Size;
use serde::{Deserialize, Serialize};

use crate::plan::{LARGE_PAGE, Method, Provider};

const MIB: u64 = 1 << 20;

/// Those that can be compared here; the first is the default peer.
pub const METHODS: [Method; 4] = [Method::Small, Method::Thp, Method::Hugetlb, Method::Hpmmap];

/// What the loop does that looks for detours.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Reads the clock, no memory
    Plain,
    /// Writes to pages that are there
    Touch,
    /// Writes to pages that it has just asked for
    Fresh,
}

/// What is random.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each read says where the next one is
    Dependent,
    /// Updates that need not wait for each other
    Independent,
}

/// What else runs.
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
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Touch => "touch",
            Self::Fresh => "fresh",
        }
    }
}

impl Mode {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dependent => "dependent",
            Self::Independent => "independent",
        }
    }
}

impl Condition {
    /// As it is written.
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
        /// Of the loop.
        variant: Variant,
        /// What else runs.
        condition: Condition,
    },
    /// Random accesses on one CPU.
    Accesses {
        /// What is random.
        mode: Mode,
        /// Of the array.
        size_bytes: u64,
    },
}

/// One thing to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    /// How memory is asked for.
    pub method: Method,
    /// What is done.
    #[serde(flatten)]
    pub what: What,
}

impl Case {
    /// For messages.
    pub fn title(&self) -> String {
        let method = self.method.name();
        match self.what {
            What::Detours { variant, condition } => {
                format!("detours {} {method} {}", variant.name(), condition.name())
            }
            What::Accesses { mode, size_bytes } => {
                format!("accesses {} {method} {}", mode.name(), Size(size_bytes))
            }
        }
    }
}

/// The neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// A command; otherwise the one that is built in.
    pub command: Option<String>,
    /// Where it runs.
    pub cpus: Vec<u32>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// How memory is asked for.
    pub methods: Vec<Method>,
    /// Of the loop that looks for detours; none: no detours.
    pub variants: Vec<Variant>,
    /// Of random accesses; none: no accesses.
    pub modes: Vec<Mode>,
    /// The CPUs that are measured.
    pub cpus: Vec<u32>,
    /// What runs beside, if anything does.
    pub neighbour: Option<Neighbour>,
    /// For each search for detours.
    pub milliseconds: u64,
    /// A detour takes longer than a usual round so many times.
    pub factor: u32,
    /// What a loop writes to, on each CPU.
    pub memory_bytes: u64,
    /// Sizes of arrays, ascending.
    pub sizes_bytes: Vec<u64>,
    /// In a round.
    pub accesses: u64,
    /// In a process.
    pub rounds: u32,
}

impl Parameters {
    /// Everything to measure: what belongs to one provider together.
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
            for &mode in &self.modes {
                let sizes = self.sizes_bytes.iter();
                cases.extend(
                    sizes
                        // A huge page cannot be had in part.
                        .filter(|&&size| {
                            method.provider() != Provider::Hugetlb || size % LARGE_PAGE == 0
                        })
                        .map(|&size_bytes| Case {
                            method,
                            what: What::Accesses { mode, size_bytes },
                        }),
                );
            }
        }
        cases.sort_by_key(|case| case.method.provider());
        cases
    }

    /// The plain loop has no memory: it differs only by who launched it.
    fn differs(&self, variant: Variant, method: Method) -> bool {
        let peer = self.methods.iter().find(|method| method.is_peer());
        variant != Variant::Plain || !method.is_peer() || peer == Some(&method)
    }

    /// Memory that a case may need at most.
    pub fn need_bytes(&self, case: &Case) -> u64 {
        // The program, its stack and its heap.
        let own = 64 * MIB;
        match case.what {
            What::Detours { .. } => {
                let each = self.memory_bytes.next_multiple_of(LARGE_PAGE) + own;
                each * self.cpus.len() as u64
            }
            What::Accesses { size_bytes, .. } => size_bytes.next_multiple_of(LARGE_PAGE) + own,
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
                size_bytes: 16 * MIB,
            },
        };
        assert_eq!(parameters.need_bytes(&accesses), 80 * MIB);
        assert_eq!(accesses.title(), "accesses dependent thp 16M");
        assert_eq!(detours.title(), "detours plain 4k alone");
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
