//! Changes of the machine's settings for a benchmark, and the way back.

use std::cell::OnceCell;
use std::fs;
use std::iter;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use hpmmap_base::error::{Error, Result};
use hpmmap_base::signals::{Means, Watched};
use hpmmap_base::size::{Size, short};
use hpmmap_host::{Root, chosen, node, pool, process};
use hpmmap_sys::child::{Setup, Signal};
use hpmmap_sys::clock::ticks;
use serde::Deserialize;

use super::journal::{Journal, Journals, Setting, Undo};
use super::machine::{HUGEPAGES, THP, hugetlb, hugetlb_at, hugetlb_free, nr_hugepages, thp};
use super::plan::{Case, GIGABYTE, LARGE_PAGE, Method, Provider};
use super::program::{content, hpmmap, memory_file};
use super::result::PoolAdd;
use super::switch::Switch;

const MEMORY_BLOCK: &str = "sys/devices/system/memory/block_size_bytes";

/// Memory that Linux keeps when pools or reserved pages are made.
pub const RESERVE_BYTES: u64 = 512 << 20;

/// What Linux keeps of each NUMA node when memory is taken for pools.
const LEAVE: &str = "256M";

/// Time that the last pages of an ended job may take to become free.
const REMOVE: Duration = Duration::from_secs(20);

/// Why a change is not undone.
#[derive(Debug, PartialEq, Eq)]
enum NotUndone {
    /// Others have made another change since, which stays.
    Changed(String),
    /// It failed, and is tried again.
    Failed(String),
}

impl From<Error> for NotUndone {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

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

    /// A file before a change.
    fn setting(&self, path: &str, asked: Option<&str>) -> Option<Setting> {
        Some(Setting {
            path: path.into(),
            old: value(&self.root, path)?,
            asked: asked.map(str::to_string),
            reached: None,
        })
    }

    /// Changes a setting and remembers the old value.
    pub fn write(&mut self, path: &str, text: &str) -> Result<()> {
        self.write_with(path, text, Vec::new())
    }

    /// The same; the values of `others` follow from it. They are set back after it.
    fn write_with(&mut self, path: &str, text: &str, others: Vec<String>) -> Result<()> {
        self.begin()?;
        let mut files: Vec<Setting> = self.setting(path, Some(text)).into_iter().collect();
        files.extend(others.iter().filter_map(|other| self.setting(other, None)));
        let known = self.undo.len();
        if !files.is_empty() {
            self.remember(Undo::Write(files.clone()))?;
        }
        let path_there = self.root.join(path);
        fs::write(&path_there, text).map_err(|error| {
            self.undo.truncate(known);
            Error::Failed(format!("cannot write to {}: {error}", path_there.display()))
        })?;
        if !files.is_empty() {
            self.complete_write(files);
        }
        Ok(())
    }

    /// Records what the files of a change have become.
    fn complete_write(&mut self, mut files: Vec<Setting>) {
        for file in &mut files {
            file.reached = value(&self.root, &file.path);
        }
        self.complete(Undo::Write(files));
    }

    /// Loads a module with a switch on or off, and remembers whether it was loaded, and how.
    pub fn switch(&mut self, switch: &Switch, asked: bool) -> Result<()> {
        self.begin()?;
        let undo = |old| Undo::Switch {
            switch: switch.clone(),
            old,
            asked,
        };
        let now = undo(switch.is_on(&self.root));
        let first = self.undo.iter().find(|earlier| earlier.meets(&now));
        let old = match first {
            Some(Undo::Switch { old, .. }) => *old,
            _ => switch.is_on(&self.root),
        };
        self.remember(undo(old))?;
        switch.set(&self.root, Some(asked))
    }

    /// Reserves so many pages of a size in all, as far as they can be had. Those of each
    /// node come back, however Linux divides the new ones.
    pub fn reserve_hugepages(&mut self, page: u64, pages: u64) -> Result<()> {
        let nodes = node::with_memory(&self.root).unwrap_or_default();
        let of_node = |node| nr_hugepages(page, Some(node));
        self.write_with(
            &nr_hugepages(page, None),
            &pages.to_string(),
            nodes.into_iter().map(of_node).collect(),
        )
    }

    /// Reserves so many more huge pages on a node, as far as they can be had.
    pub fn reserve_more(&mut self, node: u32, pages: u64) -> Result<()> {
        let dir = hugetlb_at(&self.root, LARGE_PAGE, Some(node));
        let path = format!("{dir}/nr_hugepages");
        let there: u64 = self.root.read_number(&path)?;
        self.write(&path, &(there + pages).to_string())
    }

    /// The counts of reserved pages of all sizes. A pool that grows can only lower them: Linux frees
    /// those in memory that it gives up, if nobody uses them.
    fn hugepages(&self) -> Vec<Setting> {
        let nodes = node::with_memory(&self.root).unwrap_or_default();
        let dirs = self.root.entries(HUGEPAGES).unwrap_or_default();
        let sizes = dirs.iter().filter_map(|dir| {
            let kib = dir.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            Some(kib.parse::<u64>().ok()? << 10)
        });
        let places = || iter::once(None).chain(nodes.iter().copied().map(Some));
        sizes
            .flat_map(|page| places().map(move |node| nr_hugepages(page, node)))
            .filter_map(|path| self.setting(&path, Some("0")))
            .collect()
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

    /// Sets transparent huge pages, if the kernel has them.
    pub fn set_thp(&mut self, want: &str) -> Result<()> {
        if thp(&self.root).is_some_and(|now| now != want) {
            self.write(THP, want)?;
        }
        Ok(())
    }

    /// Adds pools of this size in all, in equal parts on all nodes, as far as possible.
    pub fn add_pool(&mut self, bytes: u64, most: u64) -> Result<PoolAdd> {
        let nodes = node::with_memory(&self.root)?;
        let count = nodes.len().max(1) as u64;
        let each = self.memory_blocks(bytes / count, most / count)?;
        let mut all = PoolAdd::default();
        for node in nodes {
            all = all.plus(&self.grow_pool(node, each)?);
        }
        Ok(all)
    }

    /// So many bytes in whole memory blocks: rounded up while that is at most `most`, otherwise
    /// down.
    pub fn memory_blocks(&self, bytes: u64, most: u64) -> Result<u64> {
        let text = self.root.read(MEMORY_BLOCK)?;
        let block = u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .map_err(|_| Error::Failed(format!("/{MEMORY_BLOCK}: '{text}' is no size")))?;
        match bytes.next_multiple_of(block) {
            up if up <= most => Ok(up),
            _ => Ok(bytes.min(most) / block * block),
        }
    }

    /// Adds this much to the pool of a node, as far as possible. Linux keeps less of the node than it
    /// does otherwise: small nodes could not be measured.
    pub fn grow_pool(&mut self, node: u32, wanted: u64) -> Result<PoolAdd> {
        if wanted == 0 {
            return Ok(PoolAdd::default());
        }
        self.begin()?;
        let hugepages = self.hugepages();
        if !hugepages.is_empty() {
            self.remember(Undo::Write(hugepages.clone()))?;
        }
        let start = ticks();
        let name = node.to_string();
        let size = Size(wanted).to_string();
        let args = [
            "add",
            "--json",
            "--partial",
            "--node",
            &name,
            "--size",
            &size,
            "--leave",
            LEAVE,
        ];
        let before = pool_bytes(&self.root, node)?;
        let undo = |added| Undo::PoolRemove {
            node,
            before,
            bytes: wanted,
            added,
        };
        self.remember(undo(None))?;
        let added = self.pool(&args, false);
        if !hugepages.is_empty() {
            self.complete_write(hugepages);
        }
        let bytes = added_bytes(&added?)?;
        self.complete(undo(Some(bytes)));
        Ok(PoolAdd {
            bytes,
            cost: ticks() - start,
        })
    }

    /// Writes the old values, if all files that the change has altered are as it has left them.
    fn write_back(&self, files: &[Setting]) -> std::result::Result<(), NotUndone> {
        let is_changed = |file: &&Setting| file.reached.as_ref() != Some(&file.old);
        let files: Vec<&Setting> = files.iter().filter(is_changed).collect();
        let differing = || {
            files.iter().filter_map(|file| {
                let now = value(&self.root, &file.path);
                (now.as_ref() != Some(&file.old)).then_some((file, now))
            })
        };
        if differing().next().is_none() {
            return Ok(());
        }
        for (file, now) in differing() {
            // One that cannot be read fails below.
            if let Some(now) = now
                && !file.explains(&now)
            {
                return Err(NotUndone::Changed(format!(
                    "/{}: it was changed meanwhile and stays '{now}'; before the benchmark it was \
                     '{}'",
                    file.path, file.old
                )));
            }
        }
        for Setting { path, old, .. } in files.iter().rev() {
            fs::write(self.root.join(path), old)
                .map_err(|error| NotUndone::Failed(format!("cannot write to /{path}: {error}")))?;
        }
        // Linux reports success where it has got fewer huge pages.
        match differing().next() {
            None => Ok(()),
            Some((Setting { path, old, .. }, now)) => Err(NotUndone::Failed(format!(
                "/{path}: it is '{}' after '{old}' was written",
                now.unwrap_or_default()
            ))),
        }
    }

    /// A module that is not loaded was unloaded by the change.
    fn switch_back(
        &self,
        switch: &Switch,
        old: Option<bool>,
        asked: bool,
    ) -> std::result::Result<(), NotUndone> {
        match switch.is_on(&self.root) {
            Some(now) if old != Some(now) && now != asked => Err(NotUndone::Changed(format!(
                "{}: it was loaded meanwhile and stays",
                switch.module
            ))),
            _ => Ok(switch.set(&self.root, old)?),
        }
    }

    /// Removes what was added, at most `bytes` if that is not known. `added` becomes what is left.
    /// It goes block by block: how much was removed is not known if this process is killed.
    fn remove_pool(
        &self,
        node: u32,
        before: u64,
        bytes: u64,
        added: &mut Option<u64>,
    ) -> std::result::Result<(), NotUndone> {
        let node_name = node.to_string();
        if let (Some(journal), Some(bytes)) = (&self.journal, *added) {
            let open = Undo::PoolRemove {
                node,
                before,
                bytes,
                added: None,
            };
            // Without the record the next benchmark leaves the rest to the administrator.
            let _ = journal.add(&open);
        }
        shrink(
            || Ok(pool_bytes(&self.root, node)?.saturating_sub(before)),
            bytes,
            added,
            |more| {
                let size = Size(more).to_string();
                let args = ["remove", "--node", &node_name, "--size", &size];
                self.pool(&args, true).map(drop)
            },
        )
        .map_err(|why| match why {
            NotUndone::Changed(why) => {
                NotUndone::Changed(format!("pool of NUMA node {node}: {why}"))
            }
            failed => failed,
        })
    }

    /// Runs a verb of pools and returns its output. Signals that end this process end it, too;
    /// with `restores` it is out of reach of the terminal's keys, and outlives this process.
    fn pool(&self, args: &[&str], restores: bool) -> Result<String> {
        let (output, errors) = (memory_file("output")?, memory_file("errors")?);
        let mut command = Command::new(hpmmap());
        // It reads nothing; a later benchmark must wait for it.
        let input = match self.journals.get() {
            Some(journals) => journals.share()?.into(),
            None => Stdio::null(),
        };
        command.arg("pool").args(args).stdin(input);
        Setup {
            own_group: restores,
            dies_with_parent: (!restores).then_some(Signal::SIGTERM),
            ..Setup::default()
        }
        .apply(&mut command)?;
        let mut child = command
            .stdout(output.try_clone()?)
            .stderr(errors.try_clone()?)
            .spawn()?;
        if !restores {
            Watched::new(child.id(), Means::Ask).wait();
        }
        if child.wait()?.success() {
            return content(output);
        }
        let said = content(errors)?;
        Err(Error::Failed(format!(
            "'hpmmap pool {}' failed: {}",
            args.join(" "),
            said.trim()
        )))
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
                Undo::PoolRemove {
                    node,
                    before,
                    bytes,
                    added,
                } => self.remove_pool(*node, *before, *bytes, added),
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

/// Size of the pool of a node. Without the module there is none.
fn pool_bytes(root: &Root, node: u32) -> Result<u64> {
    let pools = pool::nodes(root)?;
    let own = pools.iter().find(|pool| pool.node == node);
    Ok(own.map_or(0, |pool| pool.total_bytes))
}

/// The value of a file; of a choice between words that in brackets.
fn value(root: &Root, path: &str) -> Option<String> {
    let text = root.read(path).ok()?;
    Some(chosen(&text).unwrap_or(&text).to_string())
}

/// Removes what was added to a pool, which has `more` than before. If that is not known it is what
/// the pool has more, `bytes` at most. Memory of a pool that others have changed stays: it cannot be
/// told whose it is. `remove` may fail after a part; `added` becomes what is left.
fn shrink(
    more: impl Fn() -> Result<u64>,
    bytes: u64,
    added: &mut Option<u64>,
    remove: impl Fn(u64) -> Result<()>,
) -> std::result::Result<(), NotUndone> {
    let deadline = Instant::now() + REMOVE;
    let mut least = added.unwrap_or(0);
    loop {
        let now = more()?;
        let most = added.unwrap_or(bytes);
        if now == 0 || most == 0 {
            return Ok(());
        }
        if now < least || now > most {
            return Err(NotUndone::Changed(format!(
                "it was changed meanwhile and keeps {} more than before the benchmark, which added \
                 up to {}",
                short(now),
                short(most)
            )));
        }
        *added = Some(now);
        // An attempt that fails may have removed a part.
        least = 0;
        match remove(now) {
            Ok(()) => return Ok(()),
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(500)),
            Err(error) => {
                *added = more().ok().filter(|rest| *rest <= now).or(*added);
                return Err(error.into());
            }
        }
    }
}

/// The bytes that `pool add --json` has added.
fn added_bytes(json: &str) -> Result<u64> {
    #[derive(Deserialize)]
    struct Added {
        added_bytes: u64,
    }
    let added: Added = serde_json::from_str(json)
        .map_err(|error| Error::Failed(format!("'hpmmap pool add' printed: {error}")))?;
    Ok(added.added_bytes)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::os::unix::fs::symlink;

    use super::*;
    use hpmmap_host::fixture::Fixture;

    use crate::machine::HUGETLB;
    use crate::machine::tests::{case, fixture};
    use crate::plan::Pattern;

    /// A setting that is as a benchmark has left it.
    fn setting(path: &str, old: &str, reached: &str) -> Setting {
        Setting {
            path: path.into(),
            old: old.into(),
            asked: Some(reached.into()),
            reached: Some(reached.into()),
        }
    }

    /// A journal.
    fn lines(list: &[Undo]) -> String {
        let line = |undo| serde_json::to_string(undo).unwrap() + "\n";
        list.iter().map(line).collect()
    }

    fn assert_no_journal(fixture: &Fixture) {
        let left = fixture.root().entries("run/hpmmap/bench").unwrap();
        assert!(left.is_empty(), "{left:?}");
    }

    /// Undoes changes that a benchmark has made.
    fn undone(fixture: &Fixture, list: Vec<Undo>) -> Vec<String> {
        let mut prepared = Prepared::new(&fixture.root());
        prepared.undo = list;
        prepared.set_back()
    }

    #[test]
    fn what_others_have_changed_since_stays_and_is_said() {
        let fixture = fixture();
        let pages = format!("{HUGETLB}/nr_hugepages");
        fixture.write(THP, "[always] madvise never\n");
        fixture.write(&pages, "4\n");
        let read = |path: &str| value(&fixture.root(), path).unwrap();
        let mut prepared = Prepared::new(&fixture.root());
        prepared.set_thp("madvise").unwrap();
        // Written by the benchmark twice: the older change goes with the newer one, without a word.
        prepared.write(THP, "never").unwrap();
        prepared.write(&pages, "9").unwrap();
        fixture.write(THP, "always [defer] madvise never\n");
        let said = prepared.set_back();
        assert_eq!(
            said,
            [format!(
                "/{THP}: it was changed meanwhile and stays 'defer'; before the benchmark it was \
                 'madvise'"
            )]
        );
        assert_eq!((read(THP), read(&pages)), ("defer".into(), "4".into()));
        assert!(prepared.set_back().is_empty());
        assert_no_journal(&fixture);
    }

    #[test]
    fn a_benchmark_that_was_killed_in_a_change_has_made_a_part_of_it() {
        let fixture = fixture();
        let pages = format!("{HUGETLB}/nr_hugepages");
        let open = || {
            let mut open = setting(&pages, "4", "9");
            open.reached = None;
            vec![Undo::Write(vec![open])]
        };
        fixture.write(&pages, "7\n");
        assert!(undone(&fixture, open()).is_empty());
        assert_eq!(fixture.root().read(&pages).unwrap(), "4");
        fixture.write(&pages, "20\n");
        assert_eq!(undone(&fixture, open()).len(), 1);
        assert_eq!(fixture.root().read(&pages).unwrap(), "20");
    }

    #[test]
    fn paging_that_a_killed_benchmark_changed_comes_back_when_no_machine_uses_it() {
        let fixture = fixture();
        let left = "run/hpmmap/bench/1-0";
        let changed = |old, asked| Undo::Switch {
            switch: Switch::npt(),
            old,
            asked,
        };
        let parameter = "sys/module/kvm_amd/parameters/npt";
        fixture.write(parameter, "N\n");
        fixture.write("sys/module/kvm_amd/refcnt", "1\n");
        // Two changes of one benchmark are one.
        fixture.write(
            left,
            &lines(&[changed(Some(true), true), changed(Some(true), false)]),
        );
        Prepared::new(&fixture.root()).begin().unwrap();
        let kept = fixture.root().read(left).unwrap();
        assert_eq!(kept, lines(&[changed(Some(true), false)]).trim());
        let said = undone(&fixture, vec![changed(Some(true), false)]);
        assert!(
            said[0].starts_with("kvm_amd is in use (refcnt 1): paging"),
            "{said:?}"
        );
        // It is as it was.
        fixture.write(parameter, "Y\n");
        assert!(undone(&fixture, vec![changed(Some(true), false)]).is_empty());
        // It was not loaded before, and others have loaded it.
        let said = undone(&fixture, vec![changed(None, false)]);
        assert_eq!(said, ["kvm_amd: it was loaded meanwhile and stays"]);
    }

    #[test]
    fn settings_come_back() {
        let fixture = fixture();
        let pages = format!("{HUGETLB}/nr_hugepages");
        fixture.write(&pages, "3\n");
        let read = || fixture.root().read(&pages).unwrap();
        {
            let mut prepared = Prepared::new(&fixture.root());
            prepared
                .provide(
                    Provider::Hugetlb,
                    case(Pattern::Map, Method::Hugetlb).need_bytes(),
                )
                .unwrap();
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
        let pool = Undo::PoolRemove {
            node: 0,
            before: 5 << 30,
            bytes: 1 << 30,
            added: None,
        };
        fixture.write(left, &lines(&[undo, pool]));
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
        let pages = format!("{HUGETLB}/nr_hugepages");
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

    #[test]
    fn a_pool_gets_no_smaller_than_it_was() {
        // The second attempt removes the rest of 7 that were added.
        let more = Cell::new(7);
        let asked = RefCell::new(Vec::new());
        let remove = |bytes| {
            asked.borrow_mut().push(bytes);
            match more.get() {
                7 => {
                    more.set(3);
                    Err(Error::Failed("a part is in use".into()))
                }
                _ => {
                    more.set(more.get() - bytes);
                    Ok(())
                }
            }
        };
        let of = |added: Option<u64>, remove: &dyn Fn(u64) -> Result<()>| {
            let mut added = added;
            shrink(|| Ok(more.get()), 9, &mut added, remove)
        };
        of(Some(7), &remove).unwrap();
        assert_eq!((asked.take(), more.get()), (vec![7, 3], 0));
        // All was removed, and the attempt failed nevertheless.
        more.set(7);
        let killed = |_| {
            more.set(0);
            Err(Error::Failed("it was killed".into()))
        };
        of(Some(7), &killed).unwrap();
        // It is not known how much of 9 was added.
        more.set(7);
        of(None, &remove).unwrap();
        assert_eq!((asked.take(), more.get()), (vec![7, 3], 0));
        of(Some(0), &remove).unwrap();
    }

    #[test]
    fn a_pool_that_others_have_changed_keeps_what_it_has() {
        let more = Cell::new(0);
        let changed = |has, added: Option<u64>| {
            let mut added = added;
            more.set(has);
            let never = |_| panic!("it was removed");
            let why = shrink(|| Ok(more.get()), 9, &mut added, never).unwrap_err();
            assert!(matches!(why, NotUndone::Changed(_)), "{why:?}");
        };
        // They have added to it, or removed a part.
        changed(8, Some(7));
        changed(6, Some(7));
        changed(10, None);
        // While the benchmark removes its own.
        more.set(7);
        let remove = |bytes| {
            assert_eq!(bytes, 7);
            more.set(12);
            Err(Error::Failed("a part is in use".into()))
        };
        let why = shrink(|| Ok(more.get()), 9, &mut Some(7), remove).unwrap_err();
        let NotUndone::Changed(why) = why else {
            panic!("{why:?}");
        };
        assert_eq!(
            why,
            "it was changed meanwhile and keeps 12 more than before the benchmark, which added up \
             to 7"
        );
    }

    #[test]
    fn an_earlier_addition_to_a_pool_waits_for_a_later_one() {
        let fixture = fixture();
        fixture.module();
        fixture.node_pool(0, 9, 0, 0, 0);
        let pool = |before, added| Undo::PoolRemove {
            node: 0,
            before,
            bytes: added,
            added: Some(added),
        };
        // 11 are to be in the pool: others have removed some, and neither addition is tried.
        let said = undone(&fixture, vec![pool(2, 3), pool(5, 6)]);
        assert!(
            said.len() == 1 && said[0].starts_with("pool of NUMA node 0: it was"),
            "{said:?}"
        );
    }

    #[test]
    fn a_benchmark_that_was_killed_while_it_removed_memory_has_removed_a_part() {
        let fixture = fixture();
        fixture.module();
        fixture.node_pool(0, 5, 0, 0, 0);
        let mut prepared = Prepared::new(&fixture.root());
        prepared.begin().unwrap();
        let change = Undo::PoolRemove {
            node: 0,
            before: 5,
            bytes: 9,
            added: Some(7),
        };
        prepared.complete(change.clone());
        prepared.remove_pool(0, 5, 9, &mut Some(7)).unwrap();
        let name = &fixture.root().entries("run/hpmmap/bench").unwrap()[0];
        let text = fixture
            .root()
            .read(format!("run/hpmmap/bench/{name}"))
            .unwrap();
        let open = Undo::PoolRemove {
            node: 0,
            before: 5,
            bytes: 7,
            added: None,
        };
        // Up to 7 are the benchmark's.
        assert_eq!(text, lines(&[change, open]).trim());
    }

    #[test]
    fn pools_are_of_whole_memory_blocks_within_the_limit() {
        let fixture = fixture();
        fixture.block_size(4 << 20);
        let prepared = Prepared::new(&fixture.root());
        let of =
            |bytes: u64, most: u64| prepared.memory_blocks(bytes << 20, most << 20).unwrap() >> 20;
        assert_eq!([of(5, 8), of(5, 7), of(8, 8), of(9, 6)], [8, 4, 8, 4]);
        assert_eq!([of(0, 8), of(3, 3)], [0, 0]);
    }

    #[test]
    fn a_pool_that_cannot_be_read_is_an_error() {
        let fixture = fixture();
        assert_eq!(pool_bytes(&fixture.root(), 0).unwrap(), 0);
        fixture.module();
        fixture.node_pool(0, 5 << 30, 1 << 30, 0, 0);
        assert_eq!(pool_bytes(&fixture.root(), 0).unwrap(), 5 << 30);
        fixture.write("sys/kernel/hpmmap/nodes/node0/total_bytes", "?\n");
        assert!(pool_bytes(&fixture.root(), 0).is_err());
    }

    #[test]
    fn each_node_gets_its_huge_pages_back() {
        let fixture = fixture();
        fixture.nodes("0-1");
        fixture.write("sys/devices/system/node/has_memory", "0-1\n");
        let of_node = |node: u32| {
            format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages")
        };
        let all = format!("{HUGETLB}/nr_hugepages");
        let read = |path: &str| fixture.root().read(path).unwrap();
        let now = || [read(&all), read(&of_node(0)), read(&of_node(1))];
        let set = |values: [&str; 3]| {
            fixture.write(&all, values[0]);
            fixture.write(&of_node(0), values[1]);
            fixture.write(&of_node(1), values[2]);
        };
        set(["5\n", "5\n", "0\n"]);
        let mut prepared = Prepared::new(&fixture.root());
        prepared.reserve_hugepages(LARGE_PAGE, 64).unwrap();
        assert_eq!(read(&all), "64");
        assert!(prepared.set_back().is_empty());
        assert_eq!(now(), ["5", "5", "0"]);
        // As Linux divides them.
        let file = |path: &str, old, reached| Setting {
            asked: None,
            ..setting(path, old, reached)
        };
        let change = || {
            vec![Undo::Write(vec![
                setting(&all, "5", "64"),
                file(&of_node(0), "5", "32"),
                file(&of_node(1), "0", "32"),
            ])]
        };
        set(["64\n", "32\n", "32\n"]);
        assert!(undone(&fixture, change()).is_empty());
        assert_eq!(now(), ["5", "5", "0"]);
        // Others have changed those of one node.
        set(["64\n", "20\n", "44\n"]);
        assert_eq!(undone(&fixture, change()).len(), 1);
        assert_eq!(now(), ["64", "20", "44"]);
    }

    #[test]
    fn huge_pages_that_a_growing_pool_has_freed_come_back() {
        let fixture = fixture();
        fixture.nodes("0");
        let of_node = nr_hugepages(LARGE_PAGE, Some(0));
        let all = nr_hugepages(LARGE_PAGE, None);
        let gigabytes = nr_hugepages(GIGABYTE, None);
        assert_eq!(
            of_node,
            "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
        );
        let set = |pages: &str| {
            fixture.write(&all, pages);
            fixture.write(&of_node, pages);
        };
        let read = |path: &str| fixture.root().read(path).unwrap();
        set("9");
        fixture.write(&gigabytes, "1");
        let mut prepared = Prepared::new(&fixture.root());
        let before = prepared.hugepages();
        assert_eq!(before.len(), 3);
        prepared.remember(Undo::Write(before.clone())).unwrap();
        set("6");
        prepared.complete_write(before);
        let file = |path: &str| setting(path, "6", "20");
        let reserved = Undo::Write(vec![file(&all), file(&of_node)]);
        prepared.undo.push(reserved);
        // Another pool has freed some of the new ones. Gigabytes are as they were: others may
        // change them.
        set("17");
        fixture.write(&gigabytes, "2");
        assert!(prepared.set_back().is_empty());
        assert_eq!((read(&all), read(&of_node)), ("9".into(), "9".into()));
        assert_eq!(read(&gigabytes), "2");
    }

    #[test]
    fn huge_pages_of_one_node_are_reserved_and_come_back() {
        let fixture = fixture();
        let all = nr_hugepages(LARGE_PAGE, None);
        let of_node = nr_hugepages(LARGE_PAGE, Some(1));
        fixture.write(&all, "5");
        fixture.write(&of_node, "3");
        let read = || [&all, &of_node].map(|path| fixture.root().read(path).unwrap());
        let mut prepared = Prepared::new(&fixture.root());
        prepared.reserve_more(1, 4).unwrap();
        assert_eq!(read(), ["5", "7"]);
        // There is no such node: the kernel is without NUMA.
        prepared.reserve_more(0, 4).unwrap();
        assert_eq!(read(), ["9", "7"]);
        assert!(prepared.set_back().is_empty());
        assert_eq!(read(), ["5", "3"]);
    }

    #[test]
    fn huge_pages_that_linux_has_not_got_are_said() {
        let fixture = fixture();
        // It takes any value, and keeps its own.
        let nothing = "sys/nr_hugepages";
        symlink("/dev/null", fixture.path().join(nothing)).unwrap();
        let said = undone(&fixture, vec![Undo::Write(vec![setting(nothing, "9", "")])]);
        assert_eq!(
            said,
            [format!("/{nothing}: it is '' after '9' was written")]
        );
    }

    #[test]
    fn what_was_added_is_what_was_said() {
        let json = r#"{"node": 0, "requested_bytes": 7, "added_bytes": 5, "blocks": []}"#;
        assert_eq!(added_bytes(json).unwrap(), 5);
        assert!(added_bytes("added 5").is_err());
    }
}
