//! Pools: memory is added by `hpmmap pool add`, and removed at the end.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hpmmap_base::error::{Error, Result};
use hpmmap_base::signals::{Means, Watched};
use hpmmap_base::size::{Size, short};
use hpmmap_host::{Root, memory, node, pool};
use hpmmap_sys::child::{Setup, Signal};
use hpmmap_sys::clock::ticks;
use serde::Deserialize;

use super::Prepared;
use super::undo::{Growth, NotUndone, Undo, Undone};
use crate::program::{content, hpmmap, memory_file};
use crate::result::PoolAdd;

/// What Linux keeps of each NUMA node when memory is taken for pools.
const LEAVE: &str = "256M";

/// Time that the last pages of an ended job may take to become free.
const REMOVE: Duration = Duration::from_secs(20);

impl Prepared {
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
        let block = memory::block_bytes(&self.root)?;
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
        self.remember_files(&hugepages)?;
        let start = ticks();
        let size = Size(wanted);
        let verb = format!("add --json --partial --node {node} --size {size} --leave {LEAVE}");
        let mut growth = Growth {
            node,
            before: pool_bytes(&self.root, node)?,
            bytes: wanted,
            added: None,
        };
        self.remember(Undo::PoolRemove(growth))?;
        let added = self.pool(&verb, false);
        self.complete_files(hugepages);
        let bytes = added_bytes(&added?)?;
        growth.added = Some(bytes);
        self.complete(Undo::PoolRemove(growth));
        Ok(PoolAdd {
            bytes,
            cost: ticks() - start,
        })
    }

    /// Removes what was added, at most `bytes` if that is not known. `added` becomes what is left.
    /// It goes block by block: how much was removed is not known if this process is killed.
    pub(super) fn remove_pool(&self, growth: &mut Growth) -> Undone {
        let Growth { node, before, .. } = *growth;
        if let (Some(journal), Some(bytes)) = (&self.journal, growth.added) {
            let mut open = *growth;
            (open.bytes, open.added) = (bytes, None);
            // Without the record the next benchmark leaves the rest to the administrator.
            let _ = journal.add(&Undo::PoolRemove(open));
        }
        let more = || Ok(pool_bytes(&self.root, node)?.saturating_sub(before));
        shrink(growth, more, |more| {
            let verb = format!("remove --node {node} --size {}", Size(more));
            self.pool(&verb, true).map(drop)
        })
    }

    /// Runs a verb of pools, without blanks in its arguments, and returns its output. Signals that end this process end it, too;
    /// with `restores` it is out of reach of the terminal's keys, and outlives this process.
    fn pool(&self, verb: &str, restores: bool) -> Result<String> {
        let (output, errors) = (memory_file("output")?, memory_file("errors")?);
        let mut command = Command::new(hpmmap());
        // It reads nothing; a later benchmark must wait for it.
        let input = match self.journals.get() {
            Some(journals) => journals.share()?.into(),
            None => Stdio::null(),
        };
        command.arg("pool").args(verb.split(' ')).stdin(input);
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
            "'hpmmap pool {verb}' failed: {}",
            said.trim()
        )))
    }
}

/// Size of the pool of a node. Without the module there is none.
fn pool_bytes(root: &Root, node: u32) -> Result<u64> {
    let pools = pool::nodes(root)?;
    let own = pools.iter().find(|pool| pool.node == node);
    Ok(own.map_or(0, |pool| pool.total_bytes))
}

/// Removes what was added to a pool, which has `more` than before. If that is not known it is what
/// the pool has more, `bytes` at most. Memory of a pool that others have changed stays: it cannot be
/// told whose it is. `remove` may fail after a part; `added` becomes what is left.
fn shrink(
    growth: &mut Growth,
    more: impl Fn() -> Result<u64>,
    remove: impl Fn(u64) -> Result<()>,
) -> Undone {
    let node = growth.node;
    let deadline = Instant::now() + REMOVE;
    let mut least = growth.added.unwrap_or(0);
    loop {
        let now = more()?;
        let most = growth.added.unwrap_or(growth.bytes);
        if now == 0 || most == 0 {
            return Ok(());
        }
        if now < least || now > most {
            return Err(NotUndone::Changed(format!(
                "pool of NUMA node {node}: it was changed meanwhile and keeps {} more than before \
                 the benchmark, which added up to {}",
                short(now),
                short(most)
            )));
        }
        growth.added = Some(now);
        // An attempt that fails may have removed a part.
        least = 0;
        match remove(now) {
            Ok(()) => return Ok(()),
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(500)),
            Err(error) => {
                let rest = more().ok().filter(|rest| *rest <= now);
                growth.added = rest.or(growth.added);
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

    use super::super::journal;
    use super::super::undo::tests::growth;
    use super::*;
    use crate::machine::tests::fixture;

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
        let of = |added, remove: &dyn Fn(u64) -> Result<()>| {
            shrink(&mut growth(0, 9, added), || Ok(more.get()), remove)
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
        let shrink = |added, remove: &dyn Fn(u64) -> Result<()>| {
            shrink(&mut growth(0, 9, added), || Ok(more.get()), remove).unwrap_err()
        };
        let changed = |has, added| {
            more.set(has);
            let why = shrink(added, &|_| panic!("it was removed"));
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
        let why = "pool of NUMA node 0: it was changed meanwhile and keeps 12 more than before \
                   the benchmark, which added up to 7";
        assert_eq!(shrink(Some(7), &remove), NotUndone::Changed(why.into()));
    }

    #[test]
    fn a_benchmark_that_was_killed_while_it_removed_memory_has_removed_a_part() {
        let fixture = fixture();
        fixture.module();
        fixture.node_pool(0, 5, 0, 0, 0);
        let mut prepared = Prepared::new(&fixture.root());
        prepared.begin().unwrap();
        let mut added = growth(5, 9, Some(7));
        let changes = [added, growth(5, 7, None)].map(Undo::PoolRemove);
        prepared.complete(changes[0].clone());
        prepared.remove_pool(&mut added).unwrap();
        let root = fixture.root();
        let name = &root.entries("run/hpmmap/bench").unwrap()[0];
        let text = root.read(format!("run/hpmmap/bench/{name}")).unwrap();
        // Up to 7 are the benchmark's.
        assert_eq!(text, journal::text(&changes).unwrap().trim());
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
    fn what_was_added_is_what_was_said() {
        let json = r#"{"node": 0, "requested_bytes": 7, "added_bytes": 5, "blocks": []}"#;
        assert_eq!(added_bytes(json).unwrap(), 5);
        assert!(added_bytes("added 5").is_err());
    }
}
