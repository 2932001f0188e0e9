//! The machine's settings for each memory manager.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::short;
use hpmmap_host::{Root, pool};

use super::plan::{Cell, Manager, Parameters};
use crate::machine::{HUGETLB, THP, hugetlb_free, pools_free, thp};
use crate::plan::LARGE_PAGE;
use crate::prepared::{Prepared, say_not_set_back};
use crate::program::beside;

/// Number of further attempts to complete a pool.
const ADD_TRIES: u32 = 5;

/// Paths of the library that makes mappings populated relative to this command: in the build tree,
/// installed.
const POPULATE: [&str; 2] = ["bench/populate.so", "../lib/hpmmap/populate.so"];

/// Does the scheduler count the time that tasks are blocked?
const SCHEDSTATS: &str = "proc/sys/kernel/sched_schedstats";

/// The settings for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    /// Huge pages to reserve: for the job, or so that Linux has as much left as with a pool.
    reserved_bytes: u64,
    pool_bytes: u64,
}

impl Setting {
    fn of(cell: &Cell, parameters: &Parameters) -> Self {
        let all = parameters.memory_bytes;
        let (reserved_bytes, pool_bytes) = match cell.manager {
            Manager::Hpmmap => (0, all),
            Manager::Hugetlb | Manager::HugetlbPopulate => (all, 0),
            Manager::Small | Manager::Thp => {
                let spare = all - cell.workload.memory_bytes(parameters);
                (spare.next_multiple_of(LARGE_PAGE), 0)
            }
        };
        Self {
            reserved_bytes,
            pool_bytes,
        }
    }
}

/// The library for LD_PRELOAD that has all memory filled in the call that maps it.
pub fn populate_library() -> Option<PathBuf> {
    beside(&POPULATE)
}

/// The reason why a manager cannot be measured on the machine as it is; `None` if it can, or if
/// the settings are made for it.
pub fn obstacle(root: &Root, manager: Manager, parameters: &Parameters) -> Option<String> {
    let need = parameters.memory_bytes;
    let short_of = |what: &str, there: u64| {
        (need > there).then(|| {
            let (need, there) = (short(need), short(there));
            format!("needs {need} of {what}, there is {there}: use --prepare, or another --memory")
        })
    };
    match manager {
        Manager::Hpmmap if !pool::is_loaded(root) => Some("the module is not loaded".into()),
        Manager::Thp if thp(root).is_none() => Some(format!("there is no /{THP}")),
        Manager::HugetlbPopulate if populate_library().is_none() => {
            Some("there is no populate.so of bench/populate.c".into())
        }
        _ if parameters.prepare => None,
        Manager::Small => None,
        Manager::Thp => (thp(root).as_deref() != Some("always"))
            .then(|| format!("/{THP} is not 'always': use --prepare")),
        Manager::Hugetlb | Manager::HugetlbPopulate => {
            short_of("reserved huge pages", hugetlb_free(root, LARGE_PAGE, None))
        }
        Manager::Hpmmap => short_of("free pool memory", pools_free(root, None)),
    }
}

/// Makes the settings for each run, and restores everything at the end.
pub struct Settings {
    root: Root,
    base: Prepared,
    memory: Prepared,
    now: Option<Setting>,
    /// Settings that could not be restored before a run.
    failed: Vec<String>,
}

impl Settings {
    /// Without any change yet.
    pub fn new(root: &Root) -> Self {
        let base = Prepared::new(root);
        Self {
            root: root.clone(),
            memory: base.beside(),
            base,
            now: None,
            failed: Vec::new(),
        }
    }

    /// Settings that could not be restored since the last call.
    pub fn failed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.failed)
    }

    /// Restores everything; returns what could not be restored, and why.
    pub fn set_back(&mut self) -> Vec<String> {
        self.now = None;
        let mut failed = self.failed();
        failed.extend(self.memory.set_back());
        failed.extend(self.base.set_back());
        failed
    }

    /// Makes the settings for a run of `cell`.
    pub fn set(&mut self, cell: &Cell, parameters: &Parameters) -> Result<()> {
        if !parameters.prepare {
            return Ok(());
        }
        // The same for the neighbours of all managers; 4 KB pages are a setting of the job itself.
        if thp(&self.root).is_some_and(|now| now != "always") {
            self.base.write(THP, "always")?;
        }
        if self.root.read(SCHEDSTATS).is_ok_and(|now| now == "0") {
            self.base.write(SCHEDSTATS, "1")?;
        }
        let want = Setting::of(cell, parameters);
        if self.now == Some(want) {
            return Ok(());
        }
        self.now = None;
        let failed = self.memory.set_back();
        self.failed.extend(failed);
        if want.reserved_bytes > 0 {
            let file = format!("{HUGETLB}/nr_hugepages");
            let there: u64 = self.root.read_number(&file)?;
            let pages = want.reserved_bytes / LARGE_PAGE;
            self.memory.reserve_hugepages(LARGE_PAGE, there + pages)?;
            enough(
                "reserved huge pages",
                want.reserved_bytes,
                hugetlb_free(&self.root, LARGE_PAGE, None),
            )?;
        }
        if want.pool_bytes > 0 {
            self.memory.add_pool(want.pool_bytes, u64::MAX)?;
            // A pinned page can hold its memory block for a moment.
            for _ in 0..ADD_TRIES {
                let missing = want.pool_bytes.saturating_sub(pools_free(&self.root, None));
                if missing == 0 {
                    break;
                }
                thread::sleep(Duration::from_secs(1));
                self.memory.add_pool(missing, u64::MAX)?;
            }
            enough("pool memory", want.pool_bytes, pools_free(&self.root, None))?;
        }
        self.now = Some(want);
        Ok(())
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        say_not_set_back(&self.set_back());
    }
}

fn enough(what: &str, want: u64, there: u64) -> Result<()> {
    if there >= want {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "{} of {what} are needed, {} could be had",
        short(want),
        short(there)
    )))
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;
    use crate::colocation::plan::tests::parameters;
    use crate::colocation::plan::{Profile, Workload};

    fn cell(manager: Manager, workload: Workload) -> Cell {
        Cell {
            workload,
            manager,
            neighbour: Profile::None,
            nodes: 1,
        }
    }

    #[test]
    fn linux_has_the_same_left_under_all_managers() {
        let parameters = parameters();
        let setting = |manager, workload| Setting::of(&cell(manager, workload), &parameters);
        let thp = setting(Manager::Thp, Workload::Lammps);
        assert_eq!((thp.reserved_bytes, thp.pool_bytes), (192 << 20, 0));
        assert_eq!(setting(Manager::Thp, Workload::Minicg).reserved_bytes, 0);
        assert_eq!(
            setting(Manager::Hugetlb, Workload::Lammps).reserved_bytes,
            256 << 20
        );
        assert_eq!(
            setting(Manager::Hpmmap, Workload::Lammps).pool_bytes,
            256 << 20
        );
    }

    #[test]
    fn what_is_missing_is_said() {
        let fixture = Fixture::new();
        fixture.write(THP, "always [madvise] never\n");
        fixture.write(&format!("{HUGETLB}/free_hugepages"), "8\n");
        let mut parameters = parameters();
        let why = |manager, parameters: &Parameters| {
            obstacle(&fixture.root(), manager, parameters).unwrap_or_default()
        };
        assert_eq!(why(Manager::Small, &parameters), "");
        assert!(why(Manager::Thp, &parameters).contains("is not 'always'"));
        assert!(why(Manager::Hugetlb, &parameters).contains("needs 256M of reserved huge pages"));
        parameters.prepare = true;
        assert_eq!(why(Manager::Thp, &parameters), "");
        assert_eq!(why(Manager::Hugetlb, &parameters), "");
        assert_eq!(
            why(Manager::Hpmmap, &parameters),
            "the module is not loaded"
        );
    }

    #[test]
    fn settings_are_made_and_set_back() {
        let fixture = Fixture::new();
        let pages = format!("{HUGETLB}/nr_hugepages");
        fixture.write(THP, "always [madvise] never\n");
        fixture.write(&pages, "3\n");
        fixture.write(SCHEDSTATS, "0\n");
        fixture.write(&format!("{HUGETLB}/free_hugepages"), "131\n");
        let read = |path: &str| fixture.root().read(path).unwrap();
        let mut parameters = parameters();
        parameters.prepare = true;
        {
            let mut settings = Settings::new(&fixture.root());
            settings
                .set(&cell(Manager::Hugetlb, Workload::Lammps), &parameters)
                .unwrap();
            assert_eq!(
                (read(THP).as_str(), read(&pages).as_str()),
                ("always", "131")
            );
            settings
                .set(&cell(Manager::Thp, Workload::Minicg), &parameters)
                .unwrap();
            assert_eq!(read(&pages), "3");
            assert_eq!(read(SCHEDSTATS), "1");
        }
        assert_eq!(read(SCHEDSTATS), "0");
        assert_eq!(read(&pages), "3");
        assert_eq!(read(THP), "madvise");
    }

    #[test]
    fn what_could_not_be_set_back_is_told_once() {
        let fixture = Fixture::new();
        fixture.write(THP, "always [madvise] never\n");
        let mut parameters = parameters();
        parameters.prepare = true;
        let mut settings = Settings::new(&fixture.root());
        settings
            .set(&cell(Manager::Thp, Workload::Minicg), &parameters)
            .unwrap();
        let file = fixture.path().join(THP);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        let failed = settings.set_back();
        assert_eq!(failed.len(), 1);
        assert!(failed[0].contains(THP), "{failed:?}");
        assert!(settings.set_back().is_empty());
    }

    #[test]
    fn too_little_is_an_error() {
        let fixture = Fixture::new();
        fixture.write(THP, "[always] madvise never\n");
        fixture.write(&format!("{HUGETLB}/nr_hugepages"), "0\n");
        fixture.write(&format!("{HUGETLB}/free_hugepages"), "5\n");
        let mut parameters = parameters();
        parameters.prepare = true;
        let error = Settings::new(&fixture.root())
            .set(&cell(Manager::Hugetlb, Workload::Lammps), &parameters)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "256M of reserved huge pages are needed, 10M could be had"
        );
    }
}
