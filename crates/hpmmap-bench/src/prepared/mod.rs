//! Changes of the machine's settings for a benchmark, and the way back.
//!
//! A change is recorded, made, and recorded again with its result. At the end all changes are undone,
//! the last one first. This file has that order, and keeps what could not be undone.
//!
//! - `settings`: files of the kernel and the switch of a module, and when they are left as they are
//! - `hugepages`: which numbers of reserved pages a change concerns
//! - `pools`: memory that is added to pools and removed, and when a pool is left as it is
//! - `undo`: what is recorded of a change, and which changes concern the same
//! - `journal`: the records of this benchmark and of killed ones

mod hugepages;
mod journal;
mod pools;
mod settings;
mod undo;

use std::cell::OnceCell;
use std::rc::Rc;

use hpmmap_base::error::Result;
use hpmmap_host::{Root, pool, process};

use crate::machine::{hugetlb, hugetlb_free};
use crate::plan::{Case, GIGABYTE, LARGE_PAGE, Method, Provider};
use crate::result::PoolAdd;
use journal::{Journal, Journals};
use undo::{NotUndone, Undo};

/// Memory that Linux keeps when pools or reserved pages are made.
pub const RESERVE_BYTES: u64 = 512 << 20;

/// Changed settings of the machine, which are restored at the end, unless others have changed
/// them since.
pub struct Prepared {
    root: Root,
    /// Locked from the first change on.
    journals: Rc<OnceCell<Journals>>,
    /// From the first change on.
    journal: Option<Journal>,
    undo: Vec<Undo>,
    /// The first so many could not be undone, which was said.
    said: usize,
    /// A change could not be recorded, and so was not made.
    is_unrecorded: bool,
}

impl Prepared {
    /// Without any change yet.
    pub fn new(root: &Root) -> Self {
        Self {
            root: root.clone(),
            journals: Rc::default(),
            journal: None,
            undo: Vec::new(),
            said: 0,
            is_unrecorded: false,
        }
    }

    /// Other changes, which are restored apart from these.
    pub fn beside(&self) -> Self {
        let mut other = Self::new(&self.root);
        other.journals = self.journals.clone();
        other
    }

    /// Restores what a benchmark changed that was killed, before the first change. Fails while
    /// another process may make changes.
    pub fn begin(&mut self) -> Result<()> {
        if self.journal.is_some() {
            return Ok(());
        }
        if self.journals.get().is_none() {
            let journals = Rc::new(OnceCell::from(Journals::lock(&self.root)?));
            for (journal, undo) in journals.get().map_or(Ok(Vec::new()), Journals::left)? {
                hpmmap_base::output::say("restoring what a killed benchmark changed");
                let mut left = Self::new(&self.root);
                (left.journals, left.journal, left.undo) = (journals.clone(), Some(journal), undo);
                // Dropped here.
            }
            if let Some(journals) = Rc::into_inner(journals).and_then(OnceCell::into_inner) {
                let _ = self.journals.set(journals);
            }
        }
        self.journal = self.journals.get().map(Journals::begin).transpose()?;
        Ok(())
    }

    /// Did the last error come from the record of a change, not from the change?
    pub fn is_unrecorded(&self) -> bool {
        self.is_unrecorded
    }

    /// Records a change that is made next.
    fn remember(&mut self, undo: Undo) -> Result<()> {
        if let Some(journal) = &self.journal {
            let added = journal.add(&undo);
            self.is_unrecorded = added.is_err();
            added?;
        }
        undo.put(&mut self.undo);
        Ok(())
    }

    /// Records the result of a change. Without it the record of the change tells what was to be.
    fn complete(&mut self, undo: Undo) {
        if let Some(journal) = &self.journal {
            let _ = journal.add(&undo);
        }
        undo.put(&mut self.undo);
    }

    /// Gets memory from one provider, as much as possible.
    pub fn provide(&mut self, provider: Provider, need: u64) -> Result<Option<PoolAdd>> {
        self.restore();
        let available = process::unswapped_bytes(&self.root)?.saturating_sub(RESERVE_BYTES);
        let bytes = need.min(available);
        match provider {
            Provider::Linux => Ok(None),
            Provider::Hugetlb => {
                self.reserve_hugepages(LARGE_PAGE, bytes.div_ceil(LARGE_PAGE))?;
                Ok(None)
            }
            // Those of the kernel's command line would not come back.
            Provider::Hugetlb1g if hugetlb_free(&self.root, GIGABYTE, None) >= need => Ok(None),
            // A kernel whose CPU has none has no directory for them.
            Provider::Hugetlb1g if !self.root.join(hugetlb(GIGABYTE)).is_dir() => Ok(None),
            Provider::Hugetlb1g => {
                self.reserve_hugepages(GIGABYTE, bytes.div_ceil(GIGABYTE))?;
                Ok(None)
            }
            Provider::Pools if !pool::is_loaded(&self.root) => Ok(None),
            Provider::Pools => self.add_pool(bytes, available).map(Some),
        }
    }

    /// Makes the settings that a case needs besides memory.
    pub fn set_for(&mut self, case: &Case) -> Result<()> {
        self.set_thp(match (case.method, case.pattern.uses_allocator()) {
            (Method::Thp, true) => "always",
            _ => "madvise",
        })
    }

    /// Restores all changes, and prints what could not be restored.
    pub fn restore(&mut self) {
        say_not_set_back(&self.set_back());
    }

    /// The same, from last to first; returns what could not be restored, and why. That is tried
    /// again the next time, and not said again.
    pub fn set_back(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        let mut left: Vec<Undo> = Vec::new();
        let mut changed: Vec<Undo> = Vec::new();
        while let Some(mut undo) = self.undo.pop() {
            // An earlier change of the same waits for the later one, or goes with it.
            if left.iter().any(|later| later.meets(&undo)) {
                left.push(undo);
                continue;
            }
            if changed.iter().any(|later| later.meets(&undo)) {
                continue;
            }
            let result = match &mut undo {
                Undo::Write(files) => self.write_back(files),
                Undo::PoolRemove(growth) => self.remove_pool(growth),
                Undo::Switch { switch, old, asked } => self.switch_back(switch, *old, *asked),
            };
            match result {
                Ok(()) => (),
                Err(NotUndone::Changed(why)) => {
                    failed.push(why);
                    changed.push(undo);
                }
                Err(NotUndone::Failed(why)) => {
                    if self.undo.len() >= self.said {
                        failed.push(why);
                    }
                    left.push(undo);
                }
            }
        }
        left.reverse();
        (self.said, self.undo) = (left.len(), left);
        if self.undo.is_empty() {
            if let Some(journal) = self.journal.take() {
                journal.remove();
            }
        } else if let (Some(journals), Some(journal)) = (self.journals.get(), &mut self.journal)
            && let Err(error) = journals.keep(journal, &self.undo)
        {
            // The next benchmark tries again, also what has been undone.
            failed.push(error.to_string());
        }
        failed
    }
}

#[cfg(test)]
impl Prepared {
    /// Records go to a full disk.
    pub fn record_nothing(&mut self) {
        self.journal = Some(Journal::full());
    }
}

/// Tells the administrator.
pub fn say_not_set_back(failed: &[String]) {
    for why in failed {
        hpmmap_base::output::warn(&format!("not set back: {why}"));
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.restore();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hpmmap_host::fixture::Fixture;

    use super::undo::tests::{growth, setting};
    use super::*;
    use crate::machine::tests::{case, fixture};
    use crate::machine::{THP, nr_hugepages};
    use crate::plan::Pattern;

    pub fn assert_no_journal(fixture: &Fixture) {
        let left = fixture.root().entries("run/hpmmap/bench").unwrap();
        assert!(left.is_empty(), "{left:?}");
    }

    /// Undoes changes that a benchmark has made.
    pub fn undone(fixture: &Fixture, list: Vec<Undo>) -> Vec<String> {
        let mut prepared = Prepared::new(&fixture.root());
        prepared.undo = list;
        prepared.set_back()
    }

    #[test]
    fn settings_come_back() {
        let fixture = fixture();
        let pages = nr_hugepages(LARGE_PAGE, None);
        fixture.write(&pages, "3\n");
        let read = || fixture.root().read(&pages).unwrap();
        {
            let mut prepared = Prepared::new(&fixture.root());
            let need = case(Pattern::Map, Method::Hugetlb).need_bytes();
            prepared.provide(Provider::Hugetlb, need).unwrap();
            assert_eq!(read(), "96");
        }
        assert_eq!(read(), "3");
    }

    #[test]
    fn what_a_killed_benchmark_changed_comes_back_before_the_first_change() {
        let fixture = fixture();
        let left = "run/hpmmap/bench/1-0";
        fixture.write(THP, "[never]\n");
        fixture.module();
        fixture.node_pool(0, 5 << 30, 1 << 30, 0, 0);
        let undo = Undo::Write(vec![setting(THP, "madvise", "never")]);
        // The pool is not larger than it was: nothing is removed.
        let pool = Undo::PoolRemove(growth(5 << 30, 1 << 30, None));
        fixture.write(left, &journal::text(&[undo, pool]).unwrap());
        let mut prepared = Prepared::new(&fixture.root());
        prepared.set_thp("always").unwrap();
        assert!(!fixture.root().join(left).exists());
        drop(prepared);
        assert_eq!(fixture.root().read(THP).unwrap(), "madvise");
        assert_no_journal(&fixture);
    }

    #[test]
    fn what_could_not_be_set_back_is_kept_and_said_once() {
        let fixture = fixture();
        let pages = nr_hugepages(LARGE_PAGE, None);
        const SHMEM: &str = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
        fixture.write(&pages, "3\n");
        fixture.write(SHMEM, "never");
        let root = fixture.root();
        let journals = || root.entries("run/hpmmap/bench").unwrap().len();
        let mut prepared = Prepared::new(&root);
        prepared.set_thp("always").unwrap();
        prepared.write(&pages, "7").unwrap();
        prepared.write(SHMEM, "always").unwrap();
        fixture.remove(THP);
        fixture.write(&format!("{THP}/x"), "");
        let failed = prepared.set_back();
        assert!(failed.len() == 1 && failed[0].contains(THP), "{failed:?}");
        assert_eq!(root.read(&pages).unwrap(), "3");
        // A second failure is news, the first one is not.
        prepared.write(&pages, "8").unwrap();
        fixture.remove(&pages);
        fixture.write(&format!("{pages}/x"), "");
        let failed = prepared.set_back();
        assert!(
            failed.len() == 1 && failed[0].contains(&pages),
            "{failed:?}"
        );
        assert!(prepared.set_back().is_empty());
        drop(prepared);
        assert_eq!(journals(), 1);
        // What was undone is none of its business: others may have changed it since.
        fixture.write(SHMEM, "advise");
        // The next benchmark can do it.
        for (path, reached) in [(THP, "always\n"), (&pages, "8\n")] {
            fs::remove_dir_all(root.join(path)).unwrap();
            fixture.write(path, reached);
        }
        let mut next = Prepared::new(&root);
        next.begin().unwrap();
        assert_eq!(root.read(THP).unwrap(), "madvise");
        assert_eq!(root.read(&pages).unwrap(), "3");
        assert_eq!(root.read(SHMEM).unwrap(), "advise");
        drop(next);
        assert_eq!(journals(), 0);
    }

    #[test]
    fn an_earlier_addition_to_a_pool_waits_for_a_later_one() {
        let fixture = fixture();
        fixture.module();
        fixture.node_pool(0, 9, 0, 0, 0);
        let pool = |before, added| Undo::PoolRemove(growth(before, added, Some(added)));
        // 11 are to be in the pool: others have removed some, and neither addition is tried.
        let said = undone(&fixture, vec![pool(2, 3), pool(5, 6)]);
        assert!(
            said.len() == 1 && said[0].starts_with("pool of NUMA node 0: it was"),
            "{said:?}"
        );
    }

    #[test]
    fn two_parts_of_a_benchmark_change_settings_and_no_other_does() {
        let fixture = fixture();
        let mut base = Prepared::new(&fixture.root());
        let mut memory = base.beside();
        memory.set_thp("always").unwrap();
        base.begin().unwrap();
        drop(memory);
        assert_eq!(fixture.root().read(THP).unwrap(), "madvise");
        let error = Prepared::new(&fixture.root()).begin().unwrap_err();
        assert!(error.to_string().contains("runs a benchmark"), "{error}");
        drop(base);
        Prepared::new(&fixture.root()).begin().unwrap();
    }
}
