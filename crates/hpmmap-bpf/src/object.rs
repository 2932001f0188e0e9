//! An object of BPF programs: loading it into kernels that may lack a hook, attaching it, and its runs.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use hpmmap_sys::bpf;
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{
    ErrorKind, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenMapMut, OpenObject,
    Program, ProgramMut, set_print,
};

/// Errors of loading and attaching the programs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller has no permission to load them.
    #[error("no permission to load BPF programs")]
    NotPermitted,
    /// The kernel has no description of its types (BTF).
    #[error(
        "this kernel was built without CONFIG_DEBUG_INFO_BTF (there is no /sys/kernel/btf/vmlinux)"
    )]
    NoBtf,
    /// The kernel lacks a function to hook.
    #[error("this kernel has no {0}")]
    Missing(String),
    /// The kernel refused a step.
    #[error("{0}: {1}")]
    Refused(&'static str, String),
}

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn refused(what: &'static str) -> impl Fn(libbpf_rs::Error) -> Error {
    move |error| match error.kind() {
        ErrorKind::PermissionDenied => Error::NotPermitted,
        _ => Error::Refused(what, format!("{error:#}")),
    }
}

/// The runs of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    /// Its name.
    pub program: String,
    /// Number of runs.
    pub count: u64,
    /// Total time.
    pub ns: u64,
    /// Runs that were skipped because the program was running on that CPU already.
    pub missed: u64,
}

/// Does the kernel have the function or tracepoint that a program hooks?
fn target_exists(kernel: &Btf, section: &str) -> bool {
    match section.split_once('/') {
        Some(("tp_btf", name)) => kernel
            .type_by_name::<types::Typedef>(&format!("btf_trace_{name}"))
            .is_some(),
        Some((_, name)) => kernel.type_by_name::<types::Func>(name).is_some(),
        None => false,
    }
}

/// The name of the hooked function: `handle_mm_fault` for `fentry/handle_mm_fault`.
fn target(section: &str) -> String {
    section.rsplit('/').next().unwrap_or_default().to_string()
}

fn open(programs: &[u8]) -> Result<OpenObject> {
    ObjectBuilder::default()
        .open_memory(programs)
        .map_err(refused("cannot open the BPF programs"))
}

/// The hooks that the running kernel lacks; an error if one is needed.
fn missing_targets(programs: &[u8], needed: &[&str]) -> Result<Vec<String>> {
    let kernel = Btf::from_vmlinux().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::NoBtf,
        _ => refused("cannot read the kernel's BTF")(error),
    })?;
    let mut missing = Vec::new();
    for program in open(programs)?.progs() {
        let section = program.section().to_string_lossy().into_owned();
        if target_exists(&kernel, &section) {
            continue;
        }
        if needed.iter().any(|name| program.name() == *name) {
            return Err(Error::Missing(target(&section)));
        }
        missing.push(target(&section));
    }
    Ok(missing)
}

type Configure<'a> = &'a dyn Fn(&mut OpenMapMut<'_>) -> libbpf_rs::Result<()>;

/// Loads the programs except those with missing hooks.
fn load_without(programs: &[u8], configure: Configure, missing: &[String]) -> Result<Object> {
    let mut open = open(programs)?;
    for mut program in open.progs_mut() {
        if missing.contains(&target(&program.section().to_string_lossy())) {
            program.set_autoload(false);
        }
    }
    for mut map in open.maps_mut() {
        configure(&mut map).map_err(refused("cannot set the size of a BPF map"))?;
    }
    open.load().map_err(refused("cannot load the BPF programs"))
}

/// Loads the programs; also returns the hooks that the kernel lacks. Without those of the programs
/// `needed` it fails.
fn load(programs: &[u8], needed: &[&str], configure: Configure) -> Result<(Object, Vec<String>)> {
    set_print(None);
    match load_without(programs, configure, &[]) {
        Err(Error::Refused(..)) => {
            // The kernel may lack a hook that is not needed.
            let missing = missing_targets(programs, needed)?;
            Ok((load_without(programs, configure, &missing)?, missing))
        }
        loaded => Ok((loaded?, Vec::new())),
    }
}

/// A loaded object. Its programs are detached when this is dropped or its process is killed.
pub(crate) struct Loaded {
    // Dropped before the object: a program must not run without its maps.
    links: Vec<Link>,
    object: Object,
    missing: Vec<String>,
    // Run times are counted while it is open.
    _statistics: Option<OwnedFd>,
}

impl Loaded {
    /// Loads the programs, except those with hooks that the kernel lacks. Without those of the
    /// programs `needed` it fails.
    pub fn new(programs: &[u8], needed: &[&str], configure: Configure) -> Result<Self> {
        let (object, missing) = load(programs, needed, configure)?;
        Ok(Self {
            links: Vec::new(),
            object,
            missing,
            _statistics: bpf::count_run_times().ok(),
        })
    }

    /// Attaches the programs: the lowest `turn` first, those of the same in the object's order.
    pub fn attach(&mut self, turn: impl Fn(&ProgramMut<'_>) -> u32) -> Result<()> {
        let programs = self.object.progs_mut();
        let mut programs: Vec<_> = programs.filter(|program| program.autoload()).collect();
        programs.sort_by_key(turn);
        for program in programs {
            self.links.push(
                program
                    .attach()
                    .map_err(refused("cannot attach the BPF programs"))?,
            );
        }
        Ok(())
    }

    /// Detaches the programs, the last one first.
    pub fn detach(&mut self) {
        while let Some(link) = self.links.pop() {
            drop(link);
        }
    }

    /// The hooks that the kernel lacks, about which nothing is known.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// A map of the object.
    pub fn map(&self, name: &str) -> Result<MapHandle> {
        let map = self
            .object
            .maps()
            .find(|map| map.name() == name)
            .ok_or_else(|| Error::Missing(format!("map {name}")))?;
        MapHandle::try_from(&map).map_err(refused("cannot use a BPF map"))
    }

    /// Sets the only element of the map `control`.
    pub fn set_control(&self, value: &[u8]) -> Result<()> {
        self.map("control")?
            .update(&[0; 4], value, MapFlags::ANY)
            .map_err(refused("cannot pass the settings to the BPF programs"))
    }

    /// The runs of each program; their times are 0 if the kernel does not count them.
    pub fn runs(&self) -> Vec<Runs> {
        let mut ours: BTreeMap<u32, String> = BTreeMap::new();
        for program in self.object.progs() {
            if let Ok(id) = Program::id_from_fd(program.as_fd()) {
                ours.insert(id, program.name().to_string_lossy().into_owned());
            }
        }
        ProgInfoIter::default()
            .filter_map(|info| {
                Some(Runs {
                    program: ours.remove(&info.id)?,
                    count: info.run_cnt,
                    ns: info.run_time_ns,
                    missed: info.recursion_misses,
                })
            })
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Fails unless the object has these programs and maps.
    pub fn assert_has(object: &[u8], programs: &[&str], maps: &[&str]) {
        let open = open(object).unwrap();
        for program in programs {
            assert!(open.progs().any(|one| one.name() == *program), "{program}");
        }
        for map in maps {
            assert!(open.maps().any(|one| one.name() == *map), "{map}");
        }
    }
}
