//! The plan of `bench vm`: workloads, and the machines that they run in.

use clap::ValueEnum;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::Size;
use serde::{Deserialize, Serialize};

use crate::plan::{GIGABYTE, Method, PAGE_METHODS, check_methods};

const MIB: u64 = 1 << 20;

/// The work in the virtual machine.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Updates at random places: HPCC's RandomAccess
    Random,
    /// Three arrays from begin to end: HPCC's STREAM triad
    Stream,
    /// A matrix is factorised, as HPL does
    Lu,
    /// Two processes take turns, with updates at random places in between
    Switches,
    /// Memory is filled and given back, over and over
    Mappings,
}

impl Workload {
    /// The name in options, results and for the worker.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Stream => "stream",
            Self::Lu => "lu",
            Self::Switches => "switches",
            Self::Mappings => "mappings",
        }
    }

    /// Its memory, and its rounds, if the largest array has so many bytes.
    fn extent(self, size: u64) -> (u64, u64) {
        match self {
            // HPCC: four updates for each word.
            Self::Random => (size, size / 2),
            Self::Stream => (size, 10),
            Self::Lu => (size / 64, 1),
            Self::Switches => (size / 8, size >> 14),
            Self::Mappings => (size / 8, 10),
        }
    }
}

/// Where the guest's addresses are translated.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Paging {
    /// By the CPU, through the guest's tables and the host's
    Nested,
    /// By tables that KVM makes from both
    Shadow,
}

impl Paging {
    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nested => "nested",
            Self::Shadow => "shadow",
        }
    }
}

/// The pages of the workload in its machine.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
pub enum Pages {
    /// Pages of 4 KB
    #[value(name = "4k")]
    #[serde(rename = "4k")]
    Small,
    /// Transparent huge pages
    #[value(name = "2m")]
    #[serde(rename = "2m")]
    Large,
}

impl Pages {
    /// The name in options, results and for the worker.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "4k",
            Self::Large => "2m",
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The kind of work.
    pub workload: Workload,
    /// The pages of its memory.
    pub pages: Pages,
    /// Size of its memory.
    pub bytes: u64,
    /// How often it is done.
    pub rounds: u64,
}

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// Kinds of paging.
    pub pagings: Vec<Paging>,
    /// Kinds of memory of the host.
    pub methods: Vec<Method>,
    /// Kinds of pages in the machine.
    pub pages: Vec<Pages>,
    /// The largest array.
    pub size_bytes: u64,
    /// Memory of a machine.
    pub memory_bytes: u64,
}

impl Parameters {
    /// Fails if they do not fit each other.
    pub fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::Usage(text));
        check_methods(&self.methods, &PAGE_METHODS)?;
        if !self.size_bytes.is_power_of_two() || self.size_bytes < MIB {
            return wrong(format!(
                "--size {}: must be a power of two of at least 1M",
                Size(self.size_bytes)
            ));
        }
        if self.memory_bytes % (2 * MIB) != 0 || self.memory_bytes < 160 * MIB + self.size_bytes {
            return wrong(format!(
                "--memory {}: must be a multiple of 2M, and 160M more than --size ({})",
                Size(self.memory_bytes),
                Size(self.size_bytes)
            ));
        }
        Ok(())
    }

    /// All that is done in one machine.
    pub fn works(&self) -> Vec<Work> {
        let of = |&workload: &Workload| {
            let (bytes, rounds) = workload.extent(self.size_bytes);
            self.pages.iter().map(move |&pages| Work {
                workload,
                pages,
                bytes,
                rounds,
            })
        };
        self.workloads.iter().flat_map(of).collect()
    }

    /// RAM of a machine by this method, which the host needs for it. By entries of 1 GB at least
    /// 2 GB: the first one has a PC's holes, and Linux takes memory from the end.
    pub fn ram_bytes(&self, method: Method) -> u64 {
        match method {
            Method::Hpmmap1g => self
                .memory_bytes
                .next_multiple_of(GIGABYTE)
                .max(2 * GIGABYTE),
            _ => self.memory_bytes,
        }
    }
}

/// References to page tables that one TLB miss makes at most, with entries of so many levels: each
/// of the guest's entries, and the page itself, are found through the host's tables.
pub fn walk(guest_levels: u32, host_levels: u32) -> u32 {
    (guest_levels + 1) * (host_levels + 1) - 1
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// All of everything, as small as it can be.
    pub fn parameters() -> Parameters {
        Parameters {
            workloads: Workload::value_variants().to_vec(),
            pagings: Paging::value_variants().to_vec(),
            methods: PAGE_METHODS.to_vec(),
            pages: Pages::value_variants().to_vec(),
            size_bytes: MIB,
            memory_bytes: 256 * MIB,
        }
    }

    #[test]
    fn work_is_what_the_worker_takes() {
        let works = parameters().works();
        assert_eq!(works.len(), 10);
        for work in works {
            assert!(
                work.bytes.is_power_of_two() && work.bytes >= 4096,
                "{work:?}"
            );
            assert!(work.rounds > 0, "{work:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let said = |change: fn(&mut Parameters)| {
            let mut all = parameters();
            change(&mut all);
            all.check().unwrap_err().to_string()
        };
        parameters().check().unwrap();
        assert_eq!(
            said(|all| all.methods = vec![Method::HpmmapDirty]),
            "--method hpmmap-dirty is not for this benchmark: use 4k, thp, hugetlb, hpmmap, hpmmap-1g"
        );
        assert_eq!(
            said(|all| all.size_bytes = 3 * MIB),
            "--size 3M: must be a power of two of at least 1M"
        );
        assert_eq!(
            said(|all| all.size_bytes = 128 * MIB),
            "--memory 256M: must be a multiple of 2M, and 160M more than --size (128M)"
        );
    }

    #[test]
    fn entries_of_a_gigabyte_need_a_second_one() {
        let mut all = parameters();
        assert_eq!(all.ram_bytes(Method::Hpmmap), 256 * MIB);
        assert_eq!(all.ram_bytes(Method::Hpmmap1g), 2 * GIGABYTE);
        all.memory_bytes = 2 * GIGABYTE + 2 * MIB;
        assert_eq!(all.ram_bytes(Method::Hpmmap1g), 3 * GIGABYTE);
    }

    #[test]
    fn walks_are_as_long_as_in_the_manuals() {
        assert_eq!((walk(4, 4), walk(4, 3), walk(3, 3)), (24, 19, 15));
        assert_eq!((walk(4, 2), walk(3, 2), walk(4, 0)), (14, 11, 4));
    }
}
