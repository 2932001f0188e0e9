//! The plan of `bench alloc`: methods, patterns, allocators, sizes.

use clap::ValueEnum;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::Size;
use serde::{Deserialize, Serialize};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A large page, and a block of the pools.
pub const LARGE_PAGE: u64 = 2 * MIB;

/// A page of the largest size.
pub const GIGABYTE: u64 = 1024 * MIB;

/// A method for each kind of page, and of entries of the pools.
pub const PAGE_METHODS: [Method; 5] = [
    Method::Small,
    Method::Thp,
    Method::Hugetlb,
    Method::Hpmmap,
    Method::Hpmmap1g,
];

/// Fails if one of the `asked` methods is not `known` to the benchmark.
pub fn check_methods(asked: &[Method], known: &[Method]) -> Result<()> {
    let Some(wrong) = asked.iter().find(|method| !known.contains(method)) else {
        return Ok(());
    };
    let names: Vec<_> = known.iter().map(|method| method.name()).collect();
    Err(Error::Usage(format!(
        "--method {} is not for this benchmark: use {}",
        wrong.name(),
        names.join(", ")
    )))
}

/// The `asked` methods in the order of the `known` ones; all of them if none was asked for.
pub fn chosen_methods(asked: &[Method], known: &[Method]) -> Result<Vec<Method>> {
    check_methods(asked, known)?;
    let mut methods = known.to_vec();
    methods.retain(|method| asked.is_empty() || asked.contains(method));
    Ok(methods)
}

/// How memory is asked for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Pages of 4 KB
    #[value(name = "4k")]
    #[serde(rename = "4k")]
    Small,
    /// The same, populated before the first touch
    #[value(name = "4k-populate")]
    #[serde(rename = "4k-populate")]
    SmallPopulate,
    /// Transparent huge pages
    Thp,
    /// The same, populated before the first touch
    ThpPopulate,
    /// Reserved huge pages
    Hugetlb,
    /// The same, populated before the first touch
    HugetlbPopulate,
    /// Reserved pages of 1 GB
    #[value(name = "hugetlb-1g")]
    #[serde(rename = "hugetlb-1g")]
    Hugetlb1g,
    /// A plain call under 'hpmmap run'
    Hpmmap,
    /// The same after every block of the pools has been used
    HpmmapDirty,
    /// With the flag for memory that need not be zero
    HpmmapReuse,
    /// A plain call under 'hpmmap run --page-size 1G'
    #[value(name = "hpmmap-1g")]
    #[serde(rename = "hpmmap-1g")]
    Hpmmap1g,
    /// A plain call under 'hpmmap run --static', in the region
    HpmmapStatic,
}

/// The source of a method's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provider {
    /// Linux, which always has some.
    Linux,
    /// Reserved huge pages.
    Hugetlb,
    /// Reserved pages of 1 GB.
    Hugetlb1g,
    /// The pools.
    Pools,
}

impl Provider {
    /// Sizes of memory are multiples of this.
    pub fn page_bytes(self) -> u64 {
        match self {
            Self::Linux | Self::Pools => 4 * KIB,
            Self::Hugetlb => LARGE_PAGE,
            Self::Hugetlb1g => GIGABYTE,
        }
    }
}

impl Method {
    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "4k",
            Self::SmallPopulate => "4k-populate",
            Self::Thp => "thp",
            Self::ThpPopulate => "thp-populate",
            Self::Hugetlb => "hugetlb",
            Self::HugetlbPopulate => "hugetlb-populate",
            Self::Hugetlb1g => "hugetlb-1g",
            Self::Hpmmap => "hpmmap",
            Self::HpmmapDirty => "hpmmap-dirty",
            Self::HpmmapReuse => "hpmmap-reuse",
            Self::Hpmmap1g => "hpmmap-1g",
            Self::HpmmapStatic => "hpmmap-static",
        }
    }

    /// The source of the memory.
    pub fn provider(self) -> Provider {
        match self {
            Self::Small | Self::SmallPopulate | Self::Thp | Self::ThpPopulate => Provider::Linux,
            Self::Hugetlb | Self::HugetlbPopulate => Provider::Hugetlb,
            Self::Hugetlb1g => Provider::Hugetlb1g,
            Self::Hpmmap
            | Self::HpmmapDirty
            | Self::HpmmapReuse
            | Self::Hpmmap1g
            | Self::HpmmapStatic => Provider::Pools,
        }
    }

    /// Is HPMMAP compared with it?
    pub fn is_peer(self) -> bool {
        self.provider() != Provider::Pools
    }

    fn populates(self) -> bool {
        matches!(
            self,
            Self::SmallPopulate | Self::ThpPopulate | Self::HugetlbPopulate
        )
    }

    /// Does it need transparent huge pages?
    pub fn is_thp(self) -> bool {
        matches!(self, Self::Thp | Self::ThpPopulate)
    }
}

/// The use of the memory.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Map, touch, unmap
    Map,
    /// The same in a process that has 10,000 mappings
    Crowded,
    /// Map, touch, unmap several times in one process
    Cycle,
    /// A heap that grows by brk
    Brk,
    /// An array that grows by mremap
    Mremap,
    /// Stacks of threads
    Stacks,
    /// Blocks of varied sizes, as in a mesh that is refined
    Amr,
    /// The same from an allocator
    AmrMalloc,
    /// Small objects from an allocator
    Malloc,
    /// Several threads that map, touch and unmap
    Threads,
    /// The same by processes of one thread
    Processes,
}

impl Pattern {
    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Crowded => "crowded",
            Self::Cycle => "cycle",
            Self::Brk => "brk",
            Self::Mremap => "mremap",
            Self::Stacks => "stacks",
            Self::Amr => "amr",
            Self::AmrMalloc => "amr-malloc",
            Self::Malloc => "malloc",
            Self::Threads => "threads",
            Self::Processes => "processes",
        }
    }

    /// Is it done by several threads or processes at once?
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Threads | Self::Processes)
    }

    /// Does memory come from an allocator?
    pub fn uses_allocator(self) -> bool {
        matches!(self, Self::AmrMalloc | Self::Malloc)
    }

    /// The smallest size that makes sense.
    fn least(self) -> u64 {
        match self {
            Self::Map | Self::Crowded | Self::Cycle | Self::Threads | Self::Processes => 4 * KIB,
            Self::Brk => 256 * KIB,
            Self::Mremap => 128 * KIB,
            Self::Stacks => 8 * MIB,
            Self::Amr | Self::AmrMalloc | Self::Malloc => MIB,
        }
    }

    /// Can a method do this? For some the allocator matters.
    fn allows(self, method: Method, allocator: Option<Allocator>) -> bool {
        // Only this allocator requests memory that need not be zero.
        let reuses = allocator == Some(Allocator::HpmmapJemalloc);
        match (self, method) {
            (Self::AmrMalloc | Self::Malloc, method) => match method {
                Method::HpmmapReuse => reuses,
                Method::Hugetlb => allocator == Some(Allocator::Glibc),
                Method::Small | Method::Thp | Method::Hpmmap => !reuses,
                _ => false,
            },
            (
                Self::Map | Self::Crowded | Self::Cycle | Self::Threads | Self::Processes,
                Method::Hugetlb | Method::HugetlbPopulate | Method::Hugetlb1g,
            ) => true,
            (_, Method::Hugetlb | Method::HugetlbPopulate | Method::Hugetlb1g) => false,
            (Self::Map | Self::Threads | Self::Processes, Method::HpmmapDirty) => true,
            (_, Method::HpmmapDirty) => false,
            (Self::Brk, Method::HpmmapReuse) => false,
            (Self::Amr | Self::Brk | Self::Mremap | Self::Stacks, method) => !method.populates(),
            _ => true,
        }
    }
}

/// The source of malloc.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Allocator {
    /// The C library's
    Glibc,
    /// libjemalloc.so.2
    Jemalloc,
    /// libmimalloc.so.2
    Mimalloc,
    /// libhpmmap_jemalloc.so: jemalloc on memory that need not be zero
    HpmmapJemalloc,
}

impl Allocator {
    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Glibc => "glibc",
            Self::Jemalloc => "jemalloc",
            Self::Mimalloc => "mimalloc",
            Self::HpmmapJemalloc => "hpmmap-jemalloc",
        }
    }
}

/// One case to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Case {
    /// The pattern.
    pub pattern: Pattern,
    /// The method.
    pub method: Method,
    /// The allocator, if the pattern uses one.
    pub allocator: Option<Allocator>,
    /// Bytes for each thread.
    pub size_bytes: u64,
    /// Number of threads.
    pub threads: u32,
}

impl Case {
    /// The most memory that it may need.
    pub fn need_bytes(&self) -> u64 {
        // Nothing else is in these pages.
        if self.method == Method::Hugetlb1g {
            return self.size_bytes * u64::from(self.threads);
        }
        // Allocators and blocks of 2 MB do not use all they hold.
        let held = match self.pattern {
            Pattern::Amr | Pattern::AmrMalloc | Pattern::Malloc => self.size_bytes * 2,
            // The array is copied if it cannot grow.
            Pattern::Mremap => self.size_bytes * 3 / 2,
            // The mappings that exist before.
            Pattern::Crowded => self.size_bytes.next_multiple_of(LARGE_PAGE) + 80 * MIB,
            _ => self.size_bytes.next_multiple_of(LARGE_PAGE),
        };
        // Whole gigabytes need not begin where a pool does.
        let unaligned = if self.method == Method::Hpmmap1g && self.size_bytes >= GIGABYTE {
            GIGABYTE
        } else {
            0
        };
        // The program, its stacks and the allocator's lists.
        unaligned
            + held * u64::from(self.threads)
            + 64 * MIB
            + u64::from(self.threads - 1) * 8 * MIB
    }

    /// The case in messages.
    pub fn title(&self) -> String {
        let mut title = format!(
            "{} {} {}",
            self.pattern.name(),
            self.method.name(),
            Size(self.size_bytes)
        );
        if let Some(allocator) = self.allocator {
            title += &format!(" {}", allocator.name());
        }
        if self.pattern.is_shared() {
            title += &format!(" {} {}", self.threads, self.pattern.name());
        }
        title
    }
}

/// The requested measurements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// Methods, in the order of the tables.
    pub methods: Vec<Method>,
    /// Patterns.
    pub patterns: Vec<Pattern>,
    /// Allocators, for the patterns that use one.
    pub allocators: Vec<Allocator>,
    /// Sizes, ascending.
    pub sizes_bytes: Vec<u64>,
    /// Largest size of patterns other than `map`.
    pub limit_bytes: u64,
    /// Processes for each case.
    pub repetitions: u32,
    /// Rounds in one process of `cycle`, `threads` and `processes`.
    pub rounds: u32,
    /// Numbers of threads, for `threads` and `processes`.
    pub threads: Vec<u32>,
}

impl Parameters {
    /// All cases. Those of one provider are together, because providing takes memory from the
    /// others.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &pattern in &self.patterns {
            let one = [1];
            let threads: &[u32] = match pattern {
                shared if shared.is_shared() => &self.threads,
                _ => &one,
            };
            let allocators: Vec<Option<Allocator>> = if pattern.uses_allocator() {
                self.allocators.iter().copied().map(Some).collect()
            } else {
                vec![None]
            };
            for &size_bytes in &self.sizes_bytes {
                if size_bytes < pattern.least()
                    || (pattern != Pattern::Map && size_bytes > self.limit_bytes)
                {
                    continue;
                }
                for &threads in threads {
                    for &allocator in &allocators {
                        for &method in &self.methods {
                            // A huge page cannot be had in part.
                            let whole = size_bytes % method.provider().page_bytes() == 0;
                            if whole && pattern.allows(method, allocator) {
                                cases.push(Case {
                                    pattern,
                                    method,
                                    allocator,
                                    size_bytes,
                                    threads,
                                });
                            }
                        }
                    }
                }
            }
        }
        cases.sort_by_key(|case| case.method.provider());
        cases
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn parameters() -> Parameters {
        Parameters {
            methods: Method::value_variants().to_vec(),
            patterns: Pattern::value_variants().to_vec(),
            allocators: Allocator::value_variants().to_vec(),
            sizes_bytes: vec![4 * KIB, 2 * MIB, 64 * MIB],
            limit_bytes: 16 * MIB,
            repetitions: 2,
            rounds: 4,
            threads: vec![1, 2],
        }
    }

    #[test]
    fn methods_keep_their_order_and_others_are_refused() {
        let chosen = |asked: &[Method]| chosen_methods(asked, &PAGE_METHODS);
        assert_eq!(chosen(&[]).unwrap(), PAGE_METHODS);
        let two = chosen(&[Method::Hpmmap, Method::Small]).unwrap();
        assert_eq!(two, [Method::Small, Method::Hpmmap]);
        let error = chosen(&[Method::Hugetlb1g]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--method hugetlb-1g is not for this benchmark: use 4k, thp, hugetlb, hpmmap, hpmmap-1g"
        );
    }

    fn has(cases: &[Case], pattern: Pattern, method: Method, size_bytes: u64) -> bool {
        cases.iter().any(|case| {
            case.pattern == pattern && case.method == method && case.size_bytes == size_bytes
        })
    }

    #[test]
    fn names_are_those_of_the_command_line_and_of_json() {
        for method in Method::value_variants() {
            let json = serde_json::to_string(method).unwrap();
            assert_eq!(json, format!("\"{}\"", method.name()));
            assert_eq!(
                method.to_possible_value().unwrap().get_name(),
                method.name()
            );
        }
        for pattern in Pattern::value_variants() {
            let json = serde_json::to_string(pattern).unwrap();
            assert_eq!(json, format!("\"{}\"", pattern.name()));
        }
        for allocator in Allocator::value_variants() {
            let json = serde_json::to_string(allocator).unwrap();
            assert_eq!(json, format!("\"{}\"", allocator.name()));
        }
    }

    #[test]
    fn only_what_means_something_is_measured() {
        let cases = parameters().cases();
        assert!(has(&cases, Pattern::Map, Method::Small, 4 * KIB));
        assert!(has(&cases, Pattern::Map, Method::HpmmapDirty, 64 * MIB));
        assert!(!has(&cases, Pattern::Cycle, Method::HpmmapDirty, 2 * MIB));
        assert!(
            !has(&cases, Pattern::Cycle, Method::Small, 64 * MIB),
            "beyond the limit"
        );
        assert!(
            !has(&cases, Pattern::Map, Method::Hugetlb, 4 * KIB),
            "no whole page"
        );
        assert!(
            !has(&cases, Pattern::Map, Method::Hugetlb1g, 64 * MIB),
            "no whole page"
        );
        assert!(has(&cases, Pattern::Map, Method::Hpmmap1g, 64 * MIB));
        assert!(!has(&cases, Pattern::Brk, Method::Hugetlb, 2 * MIB));
        assert!(
            !has(&cases, Pattern::Stacks, Method::Small, 2 * MIB),
            "no whole stack"
        );
    }

    #[test]
    fn allocators_have_their_methods() {
        let cases = parameters().cases();
        let of = |allocator| -> Vec<Method> {
            let mut methods: Vec<Method> = cases
                .iter()
                .filter(|case| case.allocator == Some(allocator) && case.pattern == Pattern::Malloc)
                .map(|case| case.method)
                .collect();
            methods.sort();
            methods
        };
        assert_eq!(
            of(Allocator::Glibc),
            [Method::Small, Method::Thp, Method::Hugetlb, Method::Hpmmap]
        );
        assert_eq!(
            of(Allocator::Jemalloc),
            [Method::Small, Method::Thp, Method::Hpmmap]
        );
        assert_eq!(of(Allocator::HpmmapJemalloc), [Method::HpmmapReuse]);
    }

    #[test]
    fn providers_come_one_after_the_other() {
        let providers: Vec<Provider> = parameters()
            .cases()
            .iter()
            .map(|case| case.method.provider())
            .collect();
        assert!(providers.is_sorted());
    }

    #[test]
    fn threads_multiply_what_is_needed() {
        let mut case = Case {
            pattern: Pattern::Threads,
            method: Method::Hpmmap,
            allocator: None,
            size_bytes: 3 * MIB,
            threads: 1,
        };
        assert_eq!(case.need_bytes(), 68 * MIB);
        case.threads = 4;
        assert_eq!(case.need_bytes(), (16 + 64 + 24) * MIB);
        case.method = Method::Hpmmap1g;
        assert_eq!(case.need_bytes(), (16 + 64 + 24) * MIB);
        (case.size_bytes, case.threads) = (GIGABYTE, 1);
        assert_eq!(case.need_bytes(), 2 * GIGABYTE + 64 * MIB);
        case.method = Method::Hugetlb1g;
        assert_eq!(case.need_bytes(), GIGABYTE);
        (case.method, case.size_bytes, case.threads) = (Method::Hpmmap, 3 * MIB, 4);
        assert_eq!(case.title(), "threads hpmmap 3M 4 threads");
    }
}
