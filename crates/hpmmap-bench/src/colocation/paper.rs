//! The paper's results for the same study.

use super::plan::{Manager, Profile, Workload};

/// How much less runtime HPMMAP took in the paper than this manager beside this neighbour.
const PAPER: [(Profile, Manager, f64); 4] = [
    (Profile::A, Manager::Thp, 0.15),
    (Profile::A, Manager::Hugetlb, 0.09),
    (Profile::B, Manager::Thp, 0.16),
    (Profile::B, Manager::Hugetlb, 0.36),
];

/// The exact meaning of these figures.
pub const PAPER_NOTE: &str = "The paper (Kocoloski and Lange, IPDPS 2014, section 4.2) has means over \
    four programs (HPCCG, CoMD, miniMD, miniFE) on 1, 2, 4 and 8 cores of a machine with 12 Opteron \
    cores in two nodes and 16 GB, of which 12 GB were the job's; Linux 3.3, 10 runs each; the \
    neighbours were parallel builds of the kernel.";

pub(super) fn paper(neighbour: Profile, peer: Manager) -> Option<f64> {
    PAPER
        .iter()
        .find(|(profile, manager, _)| (*profile, *manager) == (neighbour, peer))
        .map(|&(_, _, reduction)| reduction)
}

/// The paper's results for a program on several machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The corresponding workload here.
    pub workload: Workload,
    /// The paper's program.
    pub program: &'static str,
    /// The neighbour.
    pub neighbour: Profile,
    /// With gigabit Ethernet (figure 9).
    pub ethernet: &'static str,
    /// With InfiniBand (figure 10).
    pub infiniband: &'static str,
}

/// All of the paper's results.
pub const CLAIMS: [Claim; 6] = [
    Claim {
        workload: Workload::Lammps,
        program: "LAMMPS",
        neighbour: Profile::None,
        ethernet: "no difference to speak of",
        infiniband: "HPMMAP scales better than both",
    },
    Claim {
        workload: Workload::Lammps,
        program: "LAMMPS",
        neighbour: Profile::C,
        ethernet: "all come to the same",
        infiniband: "HPMMAP best, by more the more nodes",
    },
    Claim {
        workload: Workload::Minicg,
        program: "HPCCG",
        neighbour: Profile::None,
        ethernet: "HPMMAP and HugeTLBfs faster than THP",
        infiniband: "as with Ethernet",
    },
    Claim {
        workload: Workload::Minicg,
        program: "HPCCG",
        neighbour: Profile::C,
        ethernet: "all come to the same",
        infiniband: "HPMMAP best, by most on 8 nodes",
    },
    Claim {
        workload: Workload::Minife,
        program: "miniFE",
        neighbour: Profile::None,
        ethernet: "HPMMAP and HugeTLBfs faster than THP",
        infiniband: "as with Ethernet",
    },
    Claim {
        workload: Workload::Minife,
        program: "miniFE",
        neighbour: Profile::C,
        ethernet: "HPMMAP best, the gap stays",
        infiniband: "as with Ethernet",
    },
];

/// The exact meaning of these results.
pub const CLAIMS_NOTE: &str = "The paper (section 4.3, figures 9 and 10) has curves for 1, 2, 4 and 8 \
    nodes and gives no numbers for them, so what it says of them is here beside what was measured. \
    A node had 24 CPUs (two Xeon E5-2430) and 24 GB, of which 18 GB were the job's with HugeTLBfs and \
    HPMMAP; 16 ranks and, beside them, two builds on the other 8 CPUs; weak scaling, Linux 3.11, at \
    least 10 runs.";
