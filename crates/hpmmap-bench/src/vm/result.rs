//! The results of `bench vm`.

use serde::{Deserialize, Serialize};

use super::kvm::{Entries, Exits, is_of_paging};
use super::machine::Figures;
use super::plan::{Pages, Paging, Parameters, Work, Workload, walk};
use crate::plan::Method;
use crate::result::Provenance;

/// Grows when a member changes its meaning.
pub const SCHEMA: u32 = 1;

/// Figures whose difference is less are the same.
const SAME: f64 = 0.05;

/// A kind of machine that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its paging; null: with any.
    pub paging: Option<Paging>,
    /// Its memory; null: with any.
    pub method: Option<Method>,
    /// The reason.
    pub reason: String,
}

/// Work of a process of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Native {
    /// The work.
    pub work: Work,
    /// The measurement.
    pub figures: Figures,
}

/// Work in a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The machine's paging.
    pub paging: Paging,
    /// The machine's memory.
    pub method: Method,
    /// The work.
    pub work: Work,
    /// The measurement in the machine.
    pub figures: Figures,
    /// Exits while the memory was filled.
    pub exits_of_set_up: Exits,
    /// Exits while the work was done.
    pub exits: Exits,
    /// KVM's page tables at the end of the work.
    pub kvm_table_bytes: Option<u64>,
    /// Their entries, by size.
    pub entries: Option<Entries>,
    /// The cost of the work to that natively.
    pub ratio: Option<f64>,
}

impl Measured {
    /// Exits of the work that paging caused.
    pub fn paging_exits(&self) -> u64 {
        let of_paging = self.exits.iter().filter(|(name, _)| is_of_paging(name));
        of_paging.map(|(_, count)| count).sum()
    }

    /// References to page tables for a TLB miss, at most.
    pub fn walk(&self) -> u32 {
        let host = match self.method {
            Method::Small => 4,
            Method::Hpmmap1g => 2,
            _ => 3,
        };
        let guest = match self.work.pages {
            Pages::Small => 4,
            Pages::Large => 3,
        };
        match self.paging {
            Paging::Nested => walk(guest, host),
            // The smaller of the two pages.
            Paging::Shadow => guest.max(host),
        }
    }
}

/// The record of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The circumstances.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The caller's choice.
    pub parameters: Parameters,
    /// Kernel of the machines.
    pub kernel: String,
    /// Version of QEMU.
    pub qemu: String,
    /// Parts of it that were not measured.
    pub left_out: Vec<LeftOut>,
    /// Work of processes of the host.
    pub native: Vec<Native>,
    /// Work in machines.
    pub results: Vec<Measured>,
    /// One sentence for each workload.
    pub recommendations: Vec<String>,
}

/// The work whose result differs from the host's, if there is one.
pub fn disagreement(native: &[Native], results: &[Measured]) -> Option<String> {
    results.iter().find_map(|one| {
        let host = native.iter().find(|host| host.work == one.work)?;
        (host.figures.result != one.figures.result).then(|| {
            format!(
                "{} ({} pages) under {} paging on {} memory has the result {}, on the host {}: \
                 memory has been corrupted",
                one.work.workload.name(),
                one.work.pages.name(),
                one.paging.name(),
                one.method.name(),
                one.figures.result,
                host.figures.result
            )
        })
    })
}

/// The paging to take for a workload.
pub fn recommendation(workload: Workload, results: &[Measured]) -> Option<String> {
    let best = |paging: Paging| {
        results
            .iter()
            .filter(|one| one.work.workload == workload && one.paging == paging)
            .min_by_key(|one| (one.figures.run, one.walk()))
    };
    let name = workload.name();
    let means = |one: &Measured| {
        let pages = one.work.pages.name();
        format!("{} memory and pages of {pages}", one.method.name())
    };
    let (nested, shadow) = match (best(Paging::Nested), best(Paging::Shadow)) {
        (Some(nested), Some(shadow)) => (nested, shadow),
        (Some(one), None) | (None, Some(one)) => {
            let (paging, means) = (one.paging.name(), means(one));
            return Some(format!("{name}: {means} (only {paging} paging measured)"));
        }
        (None, None) => return None,
    };
    let (a, b) = (nested.figures.run as f64, shadow.figures.run as f64);
    let (choice, other, what) = match () {
        () if b > a * (1.0 + SAME) => (nested, shadow, "nested paging"),
        () if a > b * (1.0 + SAME) => (shadow, nested, "shadow paging"),
        () => (nested, shadow, "either; nested paging is the default"),
    };
    let exits = |one: &Measured| one.paging_exits();
    Some(format!(
        "{name}: {what}, with {}; {} paging costs {:.2} times as much at best ({} exits of paging, {})",
        means(choice),
        other.paging.name(),
        other.figures.run as f64 / choice.figures.run.max(1) as f64,
        exits(other),
        exits(choice)
    ))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::vm::plan::tests::parameters;

    /// The first work, under this paging.
    pub fn measured(paging: Paging, method: Method, run: u64, exits: u64) -> Measured {
        Measured {
            paging,
            method,
            work: parameters().works()[0],
            figures: Figures {
                set_up: 10,
                run,
                table_bytes: 4096,
                huge_bytes: 0,
                result: "a".into(),
            },
            exits_of_set_up: Exits::new(),
            exits: Exits::from([("cr3".into(), exits), ("io".into(), 5)]),
            kvm_table_bytes: Some(8192),
            entries: None,
            ratio: None,
        }
    }

    #[test]
    fn the_cheaper_paging_is_recommended() {
        let nested = measured(Paging::Nested, Method::Hpmmap, 100, 0);
        let said = |results: &[Measured]| recommendation(Workload::Random, results).unwrap();
        assert_eq!(
            said(&[
                nested.clone(),
                measured(Paging::Shadow, Method::Thp, 150, 70)
            ]),
            "random: nested paging, with hpmmap memory and pages of 4k; shadow paging costs 1.50 times as much at best (70 exits of paging, 0)"
        );
        let shadow = measured(Paging::Shadow, Method::Thp, 50, 70);
        assert!(said(&[nested.clone(), shadow]).starts_with("random: shadow paging, with thp"));
        let same = measured(Paging::Shadow, Method::Thp, 99, 1);
        assert!(said(&[nested.clone(), same]).starts_with("random: either; nested"));
        let only = said(&[nested, measured(Paging::Nested, Method::Small, 90, 0)]);
        assert_eq!(
            only,
            "random: 4k memory and pages of 4k (only nested paging measured)"
        );
        assert_eq!(recommendation(Workload::Lu, &[]), None);
    }

    #[test]
    fn another_result_is_found() {
        let one = measured(Paging::Shadow, Method::Thp, 1, 1);
        let mut host = Native {
            work: one.work,
            figures: one.figures.clone(),
        };
        assert_eq!(
            disagreement(&[host.clone()], std::slice::from_ref(&one)),
            None
        );
        host.figures.result = "b".into();
        assert_eq!(
            disagreement(&[host], &[one]).unwrap(),
            "random (4k pages) under shadow paging on thp memory has the result a, on the host b: memory has been corrupted"
        );
    }

    #[test]
    fn walks_follow_both_pages() {
        let walks = |paging| {
            let of = |method| measured(paging, method, 1, 1).walk();
            [Method::Small, Method::Hpmmap, Method::Hpmmap1g].map(of)
        };
        assert_eq!(walks(Paging::Nested), [24, 19, 14]);
        assert_eq!(walks(Paging::Shadow), [4, 4, 4]);
    }
}
