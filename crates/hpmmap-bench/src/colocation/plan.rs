//! The runs of a study, and their order.

use std::fmt;

use clap::ValueEnum;
use hpmmap_base::size::Size;
use serde::{Deserialize, Serialize};

/// Far more than a study could have.
const MAX_REPETITIONS: u32 = 100_000;
/// More than an address space has.
const MAX_MEMORY: u64 = 1 << 57;

/// An MPI program.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Lennard-Jones melt of LAMMPS
    Lammps,
    /// HPC Challenge, all tests
    Hpcc,
    /// Conjugate gradients on a sparse matrix
    Minicg,
    /// Implicit finite elements
    Minife,
    /// Molecular dynamics with neighbour lists
    Minimd,
    /// Adaptive mesh refinement: blocks come and go
    Miniamr,
    /// Arrays and a mesh that grow in phases, nearly all of the memory
    Phases,
}

/// The manager of the job's memory.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    /// Linux, pages of 4 KB
    #[value(name = "4k")]
    #[serde(rename = "4k")]
    Small,
    /// Linux, transparent huge pages
    Thp,
    /// Linux, reserved huge pages for the heap
    Hugetlb,
    /// The same, and all memory is filled in the call that maps it
    #[serde(rename = "hugetlb-populate")]
    HugetlbPopulate,
    /// HPMMAP
    Hpmmap,
}

/// The managers that are compared by default.
pub const DEFAULT_MANAGERS: [Manager; 4] = [
    Manager::Small,
    Manager::Thp,
    Manager::Hugetlb,
    Manager::Hpmmap,
];

/// The load beside the job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Nothing
    None,
    /// One parallel compile
    A,
    /// Two parallel compiles
    B,
    /// Two parallel compiles, on CPUs of their own
    C,
    /// A program that fills the page cache and takes memory in pieces
    D,
}

impl Workload {
    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lammps => "lammps",
            Self::Hpcc => "hpcc",
            Self::Minicg => "minicg",
            Self::Minife => "minife",
            Self::Minimd => "minimd",
            Self::Miniamr => "miniamr",
            Self::Phases => "phases",
        }
    }
}

impl Manager {
    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "4k",
            Self::Thp => "thp",
            Self::Hugetlb => "hugetlb",
            Self::HugetlbPopulate => "hugetlb-populate",
            Self::Hpmmap => "hpmmap",
        }
    }

    /// The name in headings.
    pub fn title(self) -> &'static str {
        match self {
            Self::Small => "4 KB pages",
            Self::Thp => "THP",
            Self::Hugetlb => "hugetlbfs",
            Self::HugetlbPopulate => "hugetlbfs, populated",
            Self::Hpmmap => "HPMMAP",
        }
    }
}

impl Profile {
    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
        }
    }

    /// The name in headings.
    pub fn title(self) -> &'static str {
        match self {
            Self::None => "alone",
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
        }
    }

    /// A description.
    pub fn about(self) -> &'static str {
        match self {
            Self::None => "nothing runs beside the job",
            Self::A => "a parallel build beside it",
            Self::B => "two parallel builds",
            Self::C => "two parallel builds, on CPUs of their own",
            Self::D => {
                "a program that keeps the page cache full, and its own pages scattered over memory"
            }
        }
    }

    /// Number of builds that run at a time.
    pub fn builds(self) -> u32 {
        match self {
            Self::None | Self::D => 0,
            Self::A => 1,
            Self::B | Self::C => 2,
        }
    }
}

/// The parameters that determine a study. It can continue only with the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// Programs.
    pub workloads: Vec<Workload>,
    /// Memory managers.
    pub managers: Vec<Manager>,
    /// Neighbours, with `Profile::None` among them.
    pub neighbours: Vec<Profile>,
    /// Rounds.
    pub repetitions: u32,
    /// Ranks of a job on each machine.
    pub ranks: u32,
    /// The CPU of each rank.
    pub rank_cpus: Vec<u32>,
    /// The other CPUs.
    pub other_cpus: Vec<u32>,
    /// The machines that take part; jobs use the first ones. Empty for a study of this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Numbers of machines that jobs run on.
    #[serde(default = "one_node")]
    pub nodes: Vec<u32>,
    /// Memory of a job on each machine.
    pub memory_bytes: u64,
    /// Memory that the program which fills memory leaves free; `None` without that program.
    pub room_bytes: Option<u64>,
    /// Time steps; `None` for the workload's default.
    pub iterations: Option<u32>,
    /// Seed of the order.
    pub seed: u64,
    /// Use small problems.
    pub quick: bool,
    /// The clock counts instructions.
    pub icount: bool,
    /// Make the machine's settings for each run.
    pub prepare: bool,
    /// Time after which a run has failed.
    pub timeout_seconds: u32,
}

impl Parameters {
    /// Fails if the command line cannot produce these.
    pub fn check(&self) -> Result<(), String> {
        let ranks = self.ranks as usize;
        if ranks == 0 || self.rank_cpus.len() != ranks {
            return Err(format!(
                "{} CPUs are given for {ranks} ranks",
                self.rank_cpus.len()
            ));
        }
        if self.repetitions > MAX_REPETITIONS {
            return Err(format!(
                "{} repetitions are more than {MAX_REPETITIONS}",
                self.repetitions
            ));
        }
        check_hosts(&self.hosts, &self.nodes)?;
        match self.memory_bytes.max(self.room_bytes.unwrap_or(0)) {
            most if most > MAX_MEMORY => Err(format!("{most} bytes are no size of memory")),
            _ => Ok(()),
        }
    }
}

fn one_node() -> Vec<u32> {
    vec![1]
}

/// Fails if jobs cannot run on these numbers of these machines.
pub fn check_hosts(hosts: &[String], nodes: &[u32]) -> Result<(), String> {
    // Names become words of command lines.
    let is_name = |host: &String| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !host.is_empty() && !host.starts_with(['-', '.']) && host.chars().all(fits)
    };
    if let Some(host) = hosts.iter().find(|host| !is_name(host)) {
        return Err(format!("'{host}' is no name of a host"));
    }
    let again = |(n, host): &(usize, &String)| hosts[..*n].contains(host);
    if let Some((_, host)) = hosts.iter().enumerate().find(again) {
        return Err(format!("host {host} is named twice"));
    }
    let most = hosts.len().max(1) as u32;
    match nodes.iter().find(|&n| !(1..=most).contains(n)) {
        Some(n) if hosts.is_empty() => Err(format!("{n} nodes need --hosts")),
        Some(n) => Err(format!("{n} nodes cannot be had of {most} hosts")),
        None if nodes.is_empty() => Err("a job runs on one node at least".into()),
        None => Ok(()),
    }
}

/// The default: 1, 2, 4, ... machines, and all of them.
pub fn default_nodes(hosts: usize) -> Vec<u32> {
    let most = hosts.max(1) as u32;
    let powers = (0..32).map(|n| 1u32 << n).take_while(|&n| n < most);
    powers.chain([most]).collect()
}

/// A combination to be compared with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The program.
    pub workload: Workload,
    /// The manager of its memory.
    pub manager: Manager,
    /// The load beside it.
    pub neighbour: Profile,
    /// Number of machines.
    #[serde(default = "one")]
    pub nodes: u32,
}

fn one() -> u32 {
    1
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            self.workload.name(),
            self.manager.name(),
            self.neighbour.name(),
        ];
        f.write_str(&names.join(" "))?;
        match self.nodes {
            1 => Ok(()),
            nodes => write!(f, " {nodes} nodes"),
        }
    }
}

/// One run of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Its place in the order, from 0.
    pub run: u32,
    /// Its round, from 0.
    pub repetition: u32,
    /// The combination.
    #[serde(flatten)]
    pub cell: Cell,
}

/// The default number of ranks, as in the paper: 8 of 12 CPUs had one.
pub fn default_ranks(cpus: u32) -> u32 {
    let most = (cpus * 2 / 3).max(1);
    1 << most.ilog2()
}

/// CPUs for ranks, in equal parts from each node, and the others. `None` if there are too few.
pub fn divide_cpus(nodes: &[Vec<u32>], ranks: u32) -> Option<(Vec<u32>, Vec<u32>)> {
    let mut left: Vec<Vec<u32>> = nodes.to_vec();
    let mut chosen = Vec::new();
    while chosen.len() < ranks as usize {
        let before = chosen.len();
        for cpus in &mut left {
            if chosen.len() < ranks as usize && !cpus.is_empty() {
                chosen.push(cpus.remove(0));
            }
        }
        if chosen.len() == before {
            return None;
        }
    }
    let mut others: Vec<u32> = left.into_iter().flatten().collect();
    others.sort_unstable();
    Some((chosen, others))
}

impl Parameters {
    /// Jobs of one build (make -j).
    pub fn build_jobs(&self, profile: Profile) -> u32 {
        let others = self.other_cpus.len() as u32;
        match profile {
            Profile::C => (others / 2).max(1),
            _ => others.max(1),
        }
    }

    /// CPUs of build `n`; empty: any.
    pub fn build_cpus(&self, profile: Profile, n: u32) -> &[u32] {
        let half = self.other_cpus.len() / 2;
        match (profile, n) {
            (Profile::C, _) if half == 0 => &self.other_cpus,
            (Profile::C, 0) => &self.other_cpus[..half],
            (Profile::C, _) => &self.other_cpus[half..],
            _ => &[],
        }
    }

    /// The reason why a neighbour cannot be run here.
    pub fn obstacle(&self, profile: Profile) -> Option<String> {
        (profile == Profile::C && self.other_cpus.is_empty()).then(|| {
            format!(
                "needs a CPU without a rank: there are {} ranks and no other CPU",
                self.ranks
            )
        })
    }

    /// All combinations.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &workload in &self.workloads {
            for &manager in &self.managers {
                for &neighbour in &self.neighbours {
                    cells.extend(self.nodes.iter().map(|&nodes| Cell {
                        workload,
                        manager,
                        neighbour,
                        nodes,
                    }));
                }
            }
        }
        cells
    }

    /// All runs in order: each round has every combination once, shuffled.
    pub fn order(&self, left_out: impl Fn(&Cell) -> bool) -> Vec<Planned> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut cells = self.cells();
        cells.retain(|cell| !left_out(cell));
        let mut runs = Vec::new();
        for repetition in 0..self.repetitions {
            random.shuffle(&mut cells);
            for &cell in &cells {
                let run = runs.len() as u32;
                runs.push(Planned {
                    run,
                    repetition,
                    cell,
                });
            }
        }
        runs
    }

    /// The options that plan this study anew.
    pub fn options(&self) -> Vec<String> {
        fn joined<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> String {
            all.iter()
                .map(|&one| name(one))
                .collect::<Vec<_>>()
                .join(",")
        }
        let neighbours: Vec<Profile> = self
            .neighbours
            .iter()
            .copied()
            .filter(|&one| one != Profile::None || self.neighbours.len() == 1)
            .collect();
        let mut words = vec![
            format!("--workload={}", joined(&self.workloads, Workload::name)),
            format!("--manager={}", joined(&self.managers, Manager::name)),
            format!("--neighbour={}", joined(&neighbours, Profile::name)),
            format!("--repeat={}", self.repetitions),
            format!("--ranks={}", self.ranks),
            format!("--memory={}", Size(self.memory_bytes)),
            format!("--seed={}", self.seed),
            format!("--timeout={}", self.timeout_seconds),
        ];
        if !self.hosts.is_empty() {
            let nodes: Vec<String> = self.nodes.iter().map(u32::to_string).collect();
            words.push(format!("--hosts={}", self.hosts.join(",")));
            words.push(format!("--nodes={}", nodes.join(",")));
        }
        words.extend(self.room_bytes.map(|room| format!("--room={}", Size(room))));
        words.extend(self.iterations.map(|n| format!("--iterations={n}")));
        for (on, option) in [
            (self.quick, "--quick"),
            (self.icount, "--icount"),
            (self.prepare, "--prepare"),
        ] {
            words.extend(on.then(|| option.to_string()));
        }
        words
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A small study on a machine with two CPUs.
    pub fn parameters() -> Parameters {
        Parameters {
            workloads: vec![Workload::Lammps, Workload::Minicg],
            managers: vec![Manager::Thp, Manager::Hpmmap],
            neighbours: vec![Profile::None, Profile::A],
            repetitions: 3,
            ranks: 1,
            rank_cpus: vec![0],
            other_cpus: vec![1],
            hosts: Vec::new(),
            nodes: vec![1],
            memory_bytes: 256 << 20,
            room_bytes: None,
            iterations: None,
            seed: 1,
            quick: true,
            icount: false,
            prepare: false,
            timeout_seconds: 600,
        }
    }

    #[test]
    fn each_round_has_every_combination_once_in_an_order_of_its_own() {
        let parameters = parameters();
        let runs = parameters.order(|_| false);
        assert_eq!(runs.len(), 3 * 8);
        assert!(runs.iter().enumerate().all(|(n, run)| run.run == n as u32));
        let mut orders = Vec::new();
        for round in runs.chunks(8) {
            assert!(
                round
                    .iter()
                    .all(|run| run.repetition == round[0].repetition)
            );
            let order: Vec<Cell> = round.iter().map(|run| run.cell).collect();
            let mut cells = order.clone();
            cells.sort();
            cells.dedup();
            assert_eq!(cells.len(), 8);
            orders.push(order);
        }
        assert!(orders[0] != orders[1] || orders[1] != orders[2]);
    }

    #[test]
    fn the_seed_decides_the_order() {
        let first = parameters();
        let mut other = first.clone();
        assert_eq!(first.order(|_| false), other.order(|_| false));
        other.seed = 2;
        assert_ne!(first.order(|_| false), other.order(|_| false));
    }

    #[test]
    fn what_is_left_out_is_not_planned() {
        let runs = parameters().order(|cell| cell.manager == Manager::Thp);
        assert_eq!(runs.len(), 12);
        assert!(runs.iter().all(|run| run.cell.manager == Manager::Hpmmap));
    }

    #[test]
    fn ranks_leave_cpus_to_the_neighbours() {
        for (cpus, ranks) in [(1, 1), (2, 1), (4, 2), (12, 8), (24, 16), (48, 32)] {
            assert_eq!(default_ranks(cpus), ranks, "{cpus}");
        }
        let nodes = [vec![0, 2, 4], vec![1, 3, 5]];
        assert_eq!(divide_cpus(&nodes, 4), Some((vec![0, 1, 2, 3], vec![4, 5])));
        assert_eq!(divide_cpus(&nodes, 7), None);
    }

    #[test]
    fn builds_have_as_many_jobs_as_there_are_other_cpus() {
        let mut parameters = parameters();
        parameters.other_cpus = vec![8, 9, 10, 11];
        assert_eq!(parameters.build_jobs(Profile::A), 4);
        assert_eq!(parameters.build_jobs(Profile::B), 4);
        assert_eq!(parameters.build_jobs(Profile::C), 2);
        assert_eq!(parameters.build_cpus(Profile::B, 1), [0u32; 0]);
        assert_eq!(parameters.build_cpus(Profile::C, 0), [8, 9]);
        assert_eq!(parameters.build_cpus(Profile::C, 1), [10, 11]);
        parameters.other_cpus = vec![1];
        assert_eq!(parameters.build_cpus(Profile::C, 0), [1]);
        assert_eq!(parameters.obstacle(Profile::C), None);
        parameters.other_cpus.clear();
        assert_eq!(parameters.build_jobs(Profile::A), 1);
        assert!(parameters.obstacle(Profile::C).is_some());
        assert_eq!(parameters.obstacle(Profile::B), None);
    }

    #[test]
    fn options_say_everything_that_was_decided() {
        let mut parameters = parameters();
        parameters.room_bytes = Some(1 << 20);
        let options = parameters.options().join(" ");
        assert_eq!(
            options,
            "--workload=lammps,minicg --manager=thp,hpmmap --neighbour=a --repeat=3 --ranks=1 \
             --memory=256M --seed=1 --timeout=600 --room=1M --quick"
        );
    }

    #[test]
    fn several_nodes_are_the_first_of_the_hosts() {
        assert_eq!(default_nodes(0), [1]);
        assert_eq!(default_nodes(1), [1]);
        assert_eq!(default_nodes(4), [1, 2, 4]);
        assert_eq!(default_nodes(6), [1, 2, 4, 6]);
        let check = |hosts: &[&str], nodes: &[u32]| {
            let hosts: Vec<String> = hosts.iter().map(|host| host.to_string()).collect();
            check_hosts(&hosts, nodes).err().unwrap_or_default()
        };
        assert_eq!(check(&["n1", "n2.a-b_c"], &[1, 2]), "");
        assert_eq!(
            check(&["n1", "-oProxyCommand=x"], &[1]),
            "'-oProxyCommand=x' is no name of a host"
        );
        assert_eq!(check(&["n1", "n1"], &[1]), "host n1 is named twice");
        assert_eq!(
            check(&["n1", "n2"], &[3]),
            "3 nodes cannot be had of 2 hosts"
        );
        assert_eq!(check(&[], &[2]), "2 nodes need --hosts");

        let mut parameters = parameters();
        parameters.hosts = vec!["n1".into(), "n2".into()];
        parameters.nodes = vec![1, 2];
        let runs = parameters.order(|_| false);
        assert_eq!(runs.len(), 2 * 3 * 8);
        let names: Vec<String> = runs.iter().map(|run| run.cell.to_string()).collect();
        assert!(names.contains(&"lammps thp none 2 nodes".to_string()));
        assert!(names.contains(&"lammps thp none".to_string()));
        let options = parameters.options().join(" ");
        assert!(options.contains(" --hosts=n1,n2 --nodes=1,2"), "{options}");
    }

    #[test]
    fn studies_from_before_there_were_hosts_are_of_one_node() {
        let mut json = serde_json::to_value(parameters()).unwrap();
        assert!(json.as_object_mut().unwrap().remove("nodes").is_some());
        assert_eq!(
            serde_json::from_value::<Parameters>(json).unwrap(),
            parameters()
        );
        let cell = r#"{"workload": "lammps", "manager": "4k", "neighbour": "c"}"#;
        assert_eq!(serde_json::from_str::<Cell>(cell).unwrap().nodes, 1);
    }
}
