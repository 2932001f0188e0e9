//! The parameters of a study, from the options and from its begin.

use std::path::Path;

use clap::ValueEnum;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::Size;

use crate::cli::BenchColocationArgs;
use crate::colocation::local_host::Facts;
use crate::colocation::plan::{
    DEFAULT_MANAGERS, Parameters, Profile, check_hosts, default_nodes, default_ranks, divide_cpus,
};

const MEBIBYTE: u64 = 1 << 20;

/// The error that the study in a directory cannot continue.
pub(super) fn cannot_go_on(dir: &Path, why: &str) -> Error {
    Error::Usage(format!("{} cannot go on: {why}", dir.display()))
}

/// The requested hosts.
pub(super) fn asked_hosts(
    args: &BenchColocationArgs,
    before: Option<&Parameters>,
) -> Result<Vec<String>> {
    let hosts = match (&args.hosts[..], before) {
        ([], Some(before)) => before.hosts.clone(),
        (asked, _) => asked.to_vec(),
    };
    let all: Vec<u32> = default_nodes(hosts.len());
    check_hosts(&hosts, &all).map_err(|why| Error::Usage(format!("--hosts: {why}")))?;
    Ok(hosts)
}

fn or_all<T: ValueEnum + Copy>(asked: &[T]) -> Vec<T> {
    match asked {
        [] => T::value_variants().to_vec(),
        asked => asked.to_vec(),
    }
}

/// The requested values, or those of the begin, or all.
pub(super) fn listed<T: ValueEnum + Copy + Ord>(asked: &[T], before: Option<&Vec<T>>) -> Vec<T> {
    let mut all = match (asked, before) {
        ([], Some(before)) => before.clone(),
        (asked, _) => or_all(asked),
    };
    all.sort();
    all.dedup();
    all
}

/// The parameters from the options, and from `before` for options that are not given.
pub(super) fn decided(
    args: &BenchColocationArgs,
    machine: &Facts,
    before: Option<&Parameters>,
) -> Result<Parameters> {
    let usage = |text: String| Err(Error::Usage(text));
    let quick = args.quick || before.is_some_and(|before| before.quick);
    let icount = args.icount || before.is_some_and(|before| before.icount);
    let hosts = asked_hosts(args, before)?;
    let nodes = asked_nodes(args, before, &hosts)?;
    let ranks = args
        .ranks
        .or(before.map(|before| before.ranks))
        .unwrap_or_else(|| default_ranks(machine.cpus()));
    let Some((rank_cpus, other_cpus)) = divide_cpus(&machine.nodes, ranks) else {
        return usage(format!(
            "--ranks {ranks}: this machine has {} CPUs, and each rank needs one",
            machine.cpus()
        ));
    };
    if icount && (machine.cpus(), ranks, hosts.len()) != (1, 1, 0) {
        return usage("--icount is for a machine with one CPU, and one rank".into());
    }
    let memory = match (args.memory, before) {
        (Some(asked), _) => asked.0,
        (None, Some(before)) => before.memory_bytes,
        (None, None) if quick => 256 * MEBIBYTE,
        (None, None) => machine.memory_bytes / 4 * 3 / (256 * MEBIBYTE) * (256 * MEBIBYTE),
    };
    let least = 32 * MEBIBYTE * u64::from(ranks);
    if memory < least || memory % (2 * MEBIBYTE) != 0 {
        return usage(format!(
            "--memory {}: must be a multiple of 2M and at least {} for {ranks} ranks",
            Size(memory),
            Size(least)
        ));
    }
    let workloads = listed(&args.workload, before.map(|before| &before.workloads));
    if args.iterations.is_some() && !workloads.iter().any(|one| one.goes_in_steps()) {
        return usage(
            "--iterations is for lammps, minimd and miniamr: the others solve to the end".into(),
        );
    }
    let mut neighbours = match (&args.neighbour[..], before) {
        ([], Some(before)) => before.neighbours.clone(),
        // The default on several machines is the paper's.
        ([], None) if !hosts.is_empty() => vec![Profile::C],
        ([], None) => vec![Profile::A, Profile::B, Profile::C],
        (asked, _) => asked.to_vec(),
    };
    neighbours.push(Profile::None);
    neighbours.sort();
    neighbours.dedup();
    Ok(Parameters {
        workloads,
        managers: match (&args.manager[..], before) {
            // The other one needs the right to lock memory.
            ([], None) => DEFAULT_MANAGERS.to_vec(),
            (asked, before) => listed(asked, before.map(|before| &before.managers)),
        },
        neighbours,
        repetitions: args
            .repeat
            .or(before.map(|before| before.repetitions))
            .unwrap_or(if quick { 2 } else { 10 }),
        ranks,
        rank_cpus,
        other_cpus,
        hosts,
        nodes,
        memory_bytes: memory,
        room_bytes: args
            .room
            .map(|room| room.0)
            .or(before.and_then(|before| before.room_bytes)),
        iterations: args
            .iterations
            .or(before.and_then(|before| before.iterations)),
        seed: args.seed.or(before.map(|before| before.seed)).unwrap_or(1),
        quick,
        icount,
        prepare: args.prepare || before.is_some_and(|before| before.prepare),
        timeout_seconds: args
            .timeout
            .or(before.map(|before| before.timeout_seconds))
            .unwrap_or(3600),
    })
}

/// The requested numbers of hosts.
fn asked_nodes(
    args: &BenchColocationArgs,
    before: Option<&Parameters>,
    hosts: &[String],
) -> Result<Vec<u32>> {
    let mut nodes = match (&args.nodes[..], before) {
        ([], Some(before)) => before.nodes.clone(),
        ([], None) => default_nodes(hosts.len()),
        (asked, _) => asked.to_vec(),
    };
    nodes.sort_unstable();
    nodes.dedup();
    check_hosts(hosts, &nodes).map_err(|why| Error::Usage(format!("--nodes: {why}")))?;
    Ok(nodes)
}

/// The first option that differs from the study's begin.
pub(super) fn changed(then: &Parameters, now: &Parameters) -> Option<String> {
    let (then, now) = (then.options(), now.options());
    let asked = now.iter().find(|option| !then.contains(option))?;
    let name = asked.split('=').next().unwrap_or(asked);
    let old = then
        .iter()
        .find(|option| option.split('=').next() == Some(name));
    let old = old.map_or_else(|| format!("without {name}"), |old| format!("with {old}"));
    Some(format!(
        "it was begun {old}, not with {asked}: leave the option out"
    ))
}

/// The same, for a study whose machines are not needed any more.
pub(super) fn changed_since(
    args: &BenchColocationArgs,
    then: &Parameters,
) -> Result<Option<String>> {
    let machine = Facts {
        nodes: vec![[&then.rank_cpus[..], &then.other_cpus].concat()],
        ..Facts::default()
    };
    Ok(changed(then, &decided(args, &machine, Some(then))?))
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cli::{BenchVerb, tests::parse};
    use crate::colocation::plan::Manager;

    pub(in super::super) fn args(words: &[&str]) -> BenchColocationArgs {
        match parse(&[&["colocation"], words].concat()) {
            BenchVerb::Colocation(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn machine() -> Facts {
        Facts {
            hostname: "n".into(),
            boot: "b".into(),
            nodes: vec![vec![0, 1, 2, 3, 4, 5], vec![6, 7, 8, 9, 10, 11]],
            allowed_cpus: Some(12),
            memory_bytes: 16 << 30,
            versions: BTreeMap::new(),
            machine: BTreeMap::new(),
            programs: BTreeMap::new(),
        }
    }

    pub(in super::super) fn of(words: &[&str]) -> Parameters {
        decided(&args(words), &machine(), None).unwrap()
    }

    #[test]
    fn by_default_a_study_is_the_papers() {
        let parameters = of(&[]);
        assert_eq!(parameters.ranks, 8);
        assert_eq!(parameters.memory_bytes, 12 << 30);
        assert_eq!(parameters.repetitions, 10);
        assert_eq!(parameters.rank_cpus, [0, 6, 1, 7, 2, 8, 3, 9]);
        assert_eq!(parameters.build_jobs(Profile::A), 4);
        assert_eq!(parameters.managers.len(), 4);
        let populated = of(&["--manager=hugetlb-populate"]).managers;
        assert_eq!(populated, [Manager::HugetlbPopulate]);
        let quick = of(&["--quick"]);
        assert_eq!((quick.memory_bytes, quick.repetitions), (256 << 20, 2));
    }

    #[test]
    fn alone_is_always_measured() {
        let neighbours = of(&["--neighbour", "b,a,b"]).neighbours;
        assert_eq!(neighbours, [Profile::None, Profile::A, Profile::B]);
        let again = of(&["--workload=lammps", "--neighbour=none"]);
        assert_eq!(again.neighbours, [Profile::None]);
        assert!(again.options().contains(&"--neighbour=none".to_string()));
    }

    #[test]
    fn on_several_hosts_a_study_is_the_papers_of_several_nodes() {
        let parameters = of(&["--hosts", "n1,n2,n3,n4"]);
        assert_eq!(parameters.nodes, [1, 2, 4]);
        assert_eq!(parameters.neighbours, [Profile::None, Profile::C]);
        assert_eq!((parameters.ranks, parameters.memory_bytes), (8, 12 << 30));
        let some = of(&["--hosts=n1,n2", "--nodes=2", "--neighbour=a"]);
        assert_eq!((some.nodes, some.neighbours.len()), (vec![2], 2));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let message = |words: &[&str]| {
            let error = decided(&args(words), &machine(), None).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        assert!(message(&["--ranks", "13"]).contains("has 12 CPUs"));
        assert!(message(&["--memory", "3000000"]).contains("a multiple of 2M"));
        assert!(message(&["--memory", "64M"]).contains("at least 256M for 8 ranks"));
        assert!(message(&["--icount"]).contains("one CPU"));
        assert!(message(&["--nodes=2"]).contains("2 nodes need --hosts"));
        assert!(message(&["--hosts=n1,n2", "--nodes=4"]).contains("of 2 hosts"));
        assert!(message(&["--hosts=n1,n1"]).contains("named twice"));
        assert!(message(&["--hosts=-x"]).contains("no name of a host"));
    }

    #[test]
    fn a_study_goes_on_with_its_own_options() {
        let then = of(&["--repeat", "3", "--quick", "--workload", "lammps"]);
        let again = |words: &[&str]| {
            let now = decided(&args(words), &machine(), Some(&then)).unwrap();
            changed(&then, &now)
        };
        assert_eq!(again(&[]), None);
        assert_eq!(again(&["--repeat", "3", "--quick"]), None);
        assert_eq!(
            again(&["--repeat", "5"]).unwrap(),
            "it was begun with --repeat=3, not with --repeat=5: leave the option out"
        );
        assert_eq!(
            again(&["--prepare"]).unwrap(),
            "it was begun without --prepare, not with --prepare: leave the option out"
        );
        let then = of(&["--hosts=n1,n2", "--repeat=3"]);
        let since = |words: &[&str]| changed_since(&args(words), &then).unwrap();
        assert_eq!(since(&[]), None);
        assert_eq!(since(&["--hosts=n1,n2", "--ranks=8"]), None);
        for other in ["--repeat=5", "--ranks=4", "--hosts=n1,n3"] {
            assert!(since(&[other]).unwrap().contains(other), "{other}");
        }
    }

    #[test]
    fn the_redo_command_plans_the_same() {
        let first = of(&[
            "--workload=lammps,minicg",
            "--manager=thp,hpmmap",
            "--neighbour=a,c",
            "--repeat=4",
            "--room=64M",
            "--iterations=7",
            "--seed=9",
            "--prepare",
            "--timeout=60",
            "--hosts=n1,n2,n3",
            "--nodes=1,3",
        ]);
        let options = first.options();
        let words: Vec<&str> = options.iter().map(String::as_str).collect();
        assert_eq!(of(&words), first);
    }
}
