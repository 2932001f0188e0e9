//! The machines of a study, this one or others: their properties and obstacles.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::say;
use hpmmap_host::Root;

use super::options::{asked_hosts, cannot_go_on, changed, decided, listed};
use crate::cli::BenchColocationArgs;
use crate::colocation::cluster::{self, Cluster};
use crate::colocation::job::{Machines, Trouble};
use crate::colocation::launcher::Launcher;
use crate::colocation::local_host::{self, Facts, LocalHost, Obstacle};
use crate::colocation::plan::{Cell, Parameters, Workload};
use crate::colocation::record::{LeftOut, Plan, SCHEMA};

/// Directory for the files of runs on other hosts, on a disk of each.
const WORK: &str = "/var/tmp";

/// The machines of a study, this one or others, and their properties.
pub(super) struct Here<'a> {
    root: &'a Root,
    cluster: Option<Cluster<'a>>,
    hosts: Vec<String>,
    /// Properties of each host, or of this machine alone.
    facts: Vec<Facts>,
    stop: &'a dyn Fn() -> bool,
}

/// The error that ends a study before it begins.
fn before_it(trouble: Trouble) -> Error {
    Error::Failed(match trouble {
        Trouble::Interrupted => "interrupted before anything was run".into(),
        Trouble::Failed(why) | Trouble::Lost(why) => why,
    })
}

impl<'a> Here<'a> {
    pub(super) fn new(
        root: &'a Root,
        args: &BenchColocationArgs,
        before: Option<&Parameters>,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Self> {
        let hosts = asked_hosts(args, before)?;
        let workloads = listed(&args.workload, before.map(|before| &before.workloads));
        let apps = args.programs.apps.as_deref();
        let (cluster, facts) = match hosts.is_empty() {
            true => (None, vec![Facts::look(root, &workloads, apps)?]),
            false => {
                let mut cluster = connect(args, &hosts, stop)?;
                let facts = cluster.look(&workloads, apps).map_err(before_it)?;
                (Some(cluster), facts)
            }
        };
        Ok(Self {
            root,
            cluster,
            hosts,
            facts,
            stop,
        })
    }

    /// The reason why a program cannot be run on them.
    fn lack(&self, workload: Workload) -> Option<String> {
        self.facts.iter().enumerate().find_map(|(n, facts)| {
            let why = facts.programs.get(&workload)?.as_ref().err()?;
            Some(match self.hosts.get(n) {
                Some(host) => format!("{host}: {why}"),
                None => why.clone(),
            })
        })
    }

    pub(super) fn programs(&self, parameters: &Parameters) -> Result<BTreeMap<Workload, PathBuf>> {
        let mut programs = BTreeMap::new();
        for &one in &parameters.workloads {
            if let Some(why) = self.lack(one) {
                return Err(Error::Failed(format!("{}: {why}", one.name())));
            }
            if let Some(Ok(program)) = self.facts[0].programs.get(&one) {
                programs.insert(one, program.path.clone());
            }
        }
        Ok(programs)
    }

    /// The parts that cannot be run, for each machine.
    fn obstacles(
        &mut self,
        parameters: &Parameters,
        cache: Option<&Path>,
    ) -> Result<Vec<Vec<Obstacle>>> {
        match &mut self.cluster {
            None => Ok(vec![local_host::obstacles(self.root, parameters)]),
            Some(cluster) => cluster.study(parameters, cache).map_err(before_it),
        }
    }

    /// The parameters of the study; `before`, if given, are those it was begun with.
    pub(super) fn parameters(
        &self,
        args: &BenchColocationArgs,
        before: Option<&Parameters>,
    ) -> Result<Parameters> {
        let least = self.facts.iter().min_by_key(|facts| facts.memory_bytes);
        let parameters = decided(args, least.expect("there is a machine"), before)?;
        match before.and_then(|then| changed(then, &parameters)) {
            None => Ok(parameters),
            Some(why) => {
                let dir = args.resume.as_deref().unwrap_or(Path::new("."));
                Err(cannot_go_on(dir, &why))
            }
        }
    }

    /// The plan for these machines in their present state.
    pub(super) fn plan(
        &mut self,
        args: &BenchColocationArgs,
        mut parameters: Parameters,
        resumed: bool,
    ) -> Result<Plan> {
        if args.workload.is_empty() && !resumed {
            let all = std::mem::take(&mut parameters.workloads);
            for one in all {
                match self.lack(one) {
                    None => parameters.workloads.push(one),
                    Some(why) => say(&format!("{} is left out: {why}", one.name())),
                }
            }
        }
        self.programs(&parameters)?;
        cluster::check_alike(&self.hosts, &self.facts, &parameters.workloads)
            .map_err(Error::Failed)?;
        let obstacles = self.obstacles(&parameters, args.cache.as_deref())?;
        let left_out = left_out(&parameters, &obstacles)?;
        let runs = parameters.order(|cell| left_out.iter().any(|one| one.cell == *cell));
        let command: Vec<String> = ["hpmmap", "bench", "colocation"]
            .map(String::from)
            .into_iter()
            .chain(parameters.options())
            .collect();
        let first = &self.facts[0];
        let mut machine = first.machine.clone();
        if !self.hosts.is_empty() {
            machine.insert("mpi_settings".into(), mpi_settings());
        }
        Ok(Plan {
            benchmark: "colocation".into(),
            schema: SCHEMA,
            redo: command.join(" "),
            versions: first.versions_with(&parameters.workloads),
            machine,
            parameters,
            left_out,
            runs,
        })
    }

    /// The machines for running jobs.
    pub(super) fn machines(
        &mut self,
        parameters: &Parameters,
        cache: Option<PathBuf>,
    ) -> Box<dyn Machines + 'a> {
        match self.cluster.take() {
            Some(cluster) => Box::new(cluster),
            None => Box::new(LocalHost::new(self.root, parameters, cache, self.stop)),
        }
    }
}

fn connect<'a>(
    args: &BenchColocationArgs,
    hosts: &[String],
    stop: &'a dyn Fn() -> bool,
) -> Result<Cluster<'a>> {
    let base = args.work.as_deref().unwrap_or(Path::new(WORK));
    let named = [
        ("work", Some(base)),
        ("apps", args.programs.apps.as_deref()),
        ("cache", args.cache.as_deref()),
    ];
    for (option, path) in named {
        if let Some(path) = path.filter(|path| !path.is_absolute()) {
            return Err(Error::Usage(format!(
                "--{option} {}: with --hosts it must be an absolute path, it is one of each host",
                path.display()
            )));
        }
    }
    let command = env::current_exe()?;
    let paths = named.into_iter().filter_map(|(_, path)| path);
    for path in paths.chain([command.as_path()]) {
        if path.to_str().is_none() {
            let path = path.display();
            return Err(Error::Usage(format!(
                "{path}: hosts are told paths in UTF-8, which this is not"
            )));
        }
    }
    // No other user can have made it before, although all may write to the directory.
    let name = format!("hpmmap-colocation-{:016x}", RandomState::new().hash_one(0));
    let launcher = Launcher::choose(hosts)?;
    Cluster::connect(hosts, launcher, &command, base.join(name), stop).map_err(before_it)
}

/// Settings for mpirun's network in the environment.
fn mpi_settings() -> String {
    settings_of(env::vars_os())
}

fn settings_of(variables: impl Iterator<Item = (OsString, OsString)>) -> String {
    let text = |part: OsString| part.to_string_lossy().into_owned();
    let mut all: Vec<String> = variables
        .map(|(name, value)| (text(name), text(value)))
        .filter(|(name, _)| name.starts_with("OMPI_MCA_"))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    all.sort();
    all.join(" ")
}

/// What cannot be run on the hosts, or on this machine alone.
fn left_out(parameters: &Parameters, obstacles: &[Vec<Obstacle>]) -> Result<Vec<LeftOut>> {
    let reason = |cell: &Cell| {
        let of = |(n, all): (usize, &Vec<Obstacle>)| {
            let is_here =
                |one: &&Obstacle| (one.manager, one.neighbour) == (cell.manager, cell.neighbour);
            let why = &all.iter().find(is_here)?.reason;
            Some(match parameters.hosts.get(n) {
                Some(host) => format!("{host}: {why}"),
                None => why.clone(),
            })
        };
        let used = obstacles.iter().take(cell.nodes as usize);
        used.enumerate().find_map(of)
    };
    let mut all = Vec::new();
    for &workload in &parameters.workloads {
        let mut cells = parameters.cells();
        cells.retain(|cell| cell.workload == workload);
        let found = cells.iter().filter_map(|&cell| {
            let reason = reason(&cell)?;
            Some(LeftOut { cell, reason })
        });
        let found: Vec<LeftOut> = found.collect();
        if found.len() == cells.len() {
            return Err(Error::Failed(format!(
                "nothing can be run here: {}",
                found[0].reason
            )));
        }
        all.extend(found);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::super::options::tests::{args, of};
    use super::*;
    use crate::colocation::plan::Profile;

    #[test]
    fn what_a_host_cannot_run_is_left_out_where_it_takes_part() {
        let parameters = of(&["--hosts=n1,n2", "--workload=minicg", "--manager=thp,hpmmap"]);
        let no_module = Obstacle {
            manager: crate::colocation::plan::Manager::Hpmmap,
            neighbour: Profile::C,
            reason: "no module".into(),
        };
        let found = left_out(&parameters, &[Vec::new(), vec![no_module]]).unwrap();
        let shown: Vec<String> = found
            .iter()
            .map(|one| format!("{}: {}", one.cell, one.reason))
            .collect();
        assert_eq!(shown, ["minicg hpmmap c 2 nodes: n2: no module"]);
    }

    #[test]
    fn paths_on_hosts_are_absolute() {
        for option in ["--work=x", "--apps=x", "--cache=x"] {
            let args = args(&["--hosts=n1,n2", option]);
            let error = connect(&args, &args.hosts, &|| false).err().unwrap();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("an absolute path"), "{error}");
        }
    }

    #[test]
    fn paths_on_hosts_are_text() {
        let mut args = args(&["--hosts=n1,n2"]);
        args.work = Some(OsString::from_vec(b"/x\xff".to_vec()).into());
        let error = connect(&args, &args.hosts, &|| false).err().unwrap();
        assert!(error.to_string().ends_with("which this is not"), "{error}");
    }

    #[test]
    fn settings_of_mpi_are_told_whatever_the_environment_has() {
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let variables = [
            (text(b"X\xff"), text(b"1")),
            (text(b"OMPI_MCA_btl"), text(b"tcp\xff")),
            (text(b"OMPI_MCA_a"), text(b"2")),
        ];
        let found = settings_of(variables.into_iter());
        assert_eq!(found, "OMPI_MCA_a=2 OMPI_MCA_btl=tcp\u{fffd}");
    }
}
