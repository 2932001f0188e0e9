//! The module's reports: `/sys/kernel/hpmmap` and `/proc/hpmmap`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::mapped;
use crate::root::optional;
use crate::{Result, Root};

const DIR: &str = "sys/kernel/hpmmap";
const CONTEXTS: &str = "proc/hpmmap";

/// The pool of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NodePool {
    /// Number of the node.
    pub node: u32,
    /// Size of the pool.
    pub total_bytes: u64,
    /// Memory that is not held.
    pub free_bytes: u64,
    /// Free and zero already.
    pub clean_bytes: u64,
    /// Largest free block, at most 1 GB.
    pub largest_free_bytes: u64,
    /// Given up but still pinned by a device or another process.
    pub pinned_bytes: u64,
    /// Blocks with memory errors, which are never handed out.
    pub bad_bytes: u64,
    /// Free memory that goes only to those to whom it is promised.
    pub promised_bytes: u64,
    /// Part of it that is not there, because of memory errors.
    pub broken_bytes: u64,
}

impl NodePool {
    /// Memory that launches hold.
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes
            .saturating_sub(self.free_bytes)
            .saturating_sub(self.pinned_bytes)
            .saturating_sub(self.bad_bytes)
    }
}

/// One registered address space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Context {
    /// Its number.
    pub id: u64,
    /// Process, in the initial PID namespace.
    pub pid: u32,
    /// Its launch.
    pub job: u64,
    /// Owner.
    pub uid: u32,
    /// Policy on exhaustion: true for ENOMEM, false for fallback to ordinary memory.
    pub strict: bool,
    /// Requested page size in bytes.
    pub page_size: u64,
    /// Pool memory held.
    pub held_bytes: u64,
    /// Part of it that is kept for reuse by the process without zeroing.
    pub reuse_bytes: u64,
    /// Zeroed while the process waited, in total.
    pub cleared_bytes: u64,
    /// Mapped by 2 MB entries, now. `None` where the process may not be looked into, does
    /// not let anybody look for long, or has had 1 GB entries, which a look would split.
    pub mapped_2m_bytes: Option<u64>,
    /// Mapped by 4 KB entries, now.
    pub mapped_4k_bytes: Option<u64>,
    /// Anonymous ordinary memory that calls fell back to, now.
    pub mapped_linux_bytes: Option<u64>,
    /// Ordinary pages that stand in for pool memory in blocks.
    pub linux_bytes: u64,
    /// Ordinary pages in slots that need only a few.
    pub few_bytes: u64,
    /// Calls that fell back to ordinary memory.
    pub fallbacks: u64,
    /// Page faults taken in user mode, in total.
    pub faults: u64,
    /// Page faults taken by the kernel on its behalf.
    pub faults_kernel: u64,
    /// Blocks given up but still pinned.
    pub pins_waiting: u64,
    /// Contiguous runs in which it got memory, in total.
    pub placed_runs: u64,
    /// 1 GB entries made in its page table, in total.
    pub entries_1g: u64,
}

/// True while the module is loaded.
pub fn is_loaded(root: &Root) -> bool {
    root.join(DIR).is_dir()
}

/// Version of the loaded module.
pub fn version(root: &Root) -> Result<String> {
    root.read(format!("{DIR}/version"))
}

/// True while system calls are hooked.
pub fn hooks_active(root: &Root) -> Result<bool> {
    Ok(root.read_number::<u32>(format!("{DIR}/hooks_active"))? != 0)
}

/// Why `--page-size 1G` makes entries of 2 MB; `None` if it makes entries of 1 GB.
pub fn why_no_gigabytes(root: &Root) -> Result<Option<&'static str>> {
    let word = optional(root.read(format!("{DIR}/gigabytes")))?;
    Ok(match word.as_deref() {
        Some("yes") => None,
        Some("off") => {
            Some("they are off (turned on by: echo 1 >/sys/module/hpmmap/parameters/gigabytes)")
        }
        Some("cpu") => {
            Some("the CPU has no pages of 1 GB (pdpe1gb in /proc/cpuinfo), or AMD's erratum 383")
        }
        Some("kernel") => {
            Some("this kernel cannot map 1 GB (Linux 6.12 and newer can, without PREEMPT_RT)")
        }
        Some(_) => Some("another module or a live patch holds a function they need (see: dmesg)"),
        None => Some("this version of the module makes none"),
    })
}

/// Default limit per user; `None` if there is none.
pub fn user_limit_bytes(root: &Root) -> Result<Option<u64>> {
    let bytes: u64 = root.read_number(format!("{DIR}/user_limit_bytes"))?;
    Ok((bytes != 0).then_some(bytes))
}

/// The pools of all nodes that the module knows, by node.
pub fn nodes(root: &Root) -> Result<Vec<NodePool>> {
    let numbers = optional(root.numbered(format!("{DIR}/nodes"), "node"))?.unwrap_or_default();
    let mut pools = Vec::new();
    for node in numbers {
        pools.extend(optional(read_node(root, node))?);
    }
    Ok(pools)
}

/// The registered address spaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contexts {
    /// Those that this user may see, by number.
    pub visible: Vec<Context>,
    /// Number of those of other users.
    pub hidden: usize,
}

impl Context {
    /// All ordinary memory in place of pool memory, now.
    pub fn stands_in_bytes(&self) -> Option<u64> {
        Some(self.linux_bytes + self.mapped_linux_bytes?)
    }
}

/// All registered address spaces; none without the module.
pub fn contexts(root: &Root) -> Result<Contexts> {
    let mut contexts = contexts_unmapped(root)?;
    for context in contexts
        .visible
        .iter_mut()
        .filter(|one| one.entries_1g == 0)
    {
        let mapped = mapped::of(root, context.pid);
        context.mapped_2m_bytes = mapped.map(|m| m.by_2m);
        context.mapped_4k_bytes = mapped.map(|m| m.by_4k);
        context.mapped_linux_bytes = mapped.map(|m| m.linux);
    }
    Ok(contexts)
}

/// The same without the mapped memory, which would have to be read for each process.
pub fn contexts_unmapped(root: &Root) -> Result<Contexts> {
    let expected = "lines of a name and a number, those of a process from its id on";
    let read = root.parse(CONTEXTS, expected, |text| {
        let mut contexts = Contexts::default();
        for values in records(text)? {
            match values.get("pid") {
                Some(&pid) => contexts.visible.push(context_of(&values, pid)?),
                None => contexts.hidden += 1,
            }
        }
        Some(contexts)
    });
    Ok(optional(read)?.unwrap_or_default())
}

fn read_node(root: &Root, node: u32) -> Result<NodePool> {
    let value = |name: &str| root.read_number(format!("{DIR}/nodes/node{node}/{name}"));
    Ok(NodePool {
        node,
        total_bytes: value("total_bytes")?,
        free_bytes: value("free_bytes")?,
        clean_bytes: value("clean_bytes")?,
        largest_free_bytes: value("largest_free_bytes")?,
        pinned_bytes: value("pinned_bytes")?,
        bad_bytes: value("bad_bytes")?,
        promised_bytes: optional(value("promised_bytes"))?.unwrap_or(0),
        broken_bytes: optional(value("broken_bytes"))?.unwrap_or(0),
    })
}

/// The values of each process. Each record begins with the ID.
fn records(text: &str) -> Option<Vec<BTreeMap<&str, u64>>> {
    let mut records = Vec::new();
    for line in text.lines() {
        let (name, value) = line.split_once(' ')?;
        if name == "id" {
            records.push(BTreeMap::new());
        }
        records.last_mut()?.insert(name, value.parse().ok()?);
    }
    Some(records)
}

fn context_of(values: &BTreeMap<&str, u64>, pid: u64) -> Option<Context> {
    let value = |name: &str| values.get(name).copied();
    Some(Context {
        id: value("id")?,
        pid: pid.try_into().ok()?,
        job: value("job")?,
        uid: value("uid")?.try_into().ok()?,
        strict: value("strict")? != 0,
        page_size: value("page_size")?,
        held_bytes: value("held_bytes")?,
        reuse_bytes: value("reuse_bytes")?,
        cleared_bytes: value("cleared_bytes")?,
        mapped_2m_bytes: None,
        mapped_4k_bytes: None,
        mapped_linux_bytes: None,
        linux_bytes: value("linux_bytes")?,
        few_bytes: value("few_bytes")?,
        fallbacks: value("fallbacks")?,
        faults: value("faults")?,
        faults_kernel: value("faults_kernel")?,
        pins_waiting: value("pins_waiting")?,
        placed_runs: value("placed_runs").unwrap_or(0),
        entries_1g: value("entries_1g").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn a_loaded_module_without_pools_has_none() {
        let fixture = Fixture::new();
        assert!(!is_loaded(&fixture.root()));
        fixture.module();
        assert!(is_loaded(&fixture.root()));
        assert_eq!(nodes(&fixture.root()).unwrap(), []);
        assert_eq!(contexts(&fixture.root()).unwrap(), Contexts::default());
        assert_eq!(user_limit_bytes(&fixture.root()).unwrap(), None);
    }

    #[test]
    fn pools_come_in_order_of_node_number() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.node_pool(10, 4, 3, 2, 1);
        fixture.node_pool(2, 8, 8, 8, 0);
        let pools = nodes(&fixture.root()).unwrap();
        assert_eq!(pools.iter().map(|p| p.node).collect::<Vec<_>>(), [2, 10]);
        assert_eq!(pools[1].used_bytes(), 0);
        assert_eq!(pools[1].pinned_bytes, 1);
    }

    #[test]
    fn of_processes_of_others_there_is_only_the_number() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.hidden_context(6);
        fixture.context(7, 1234, 1000);
        fixture.hidden_context(8);
        let contexts = contexts(&fixture.root()).unwrap();
        assert_eq!((contexts.visible.len(), contexts.hidden), (1, 2));
        let one = &contexts.visible[0];
        assert_eq!((one.id, one.pid, one.uid), (7, 1234, 1000));
        assert_eq!(one.mapped_2m_bytes, Some(6 << 20));
    }

    #[test]
    fn what_is_mapped_may_not_be_told() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.context(7, 1234, 1000);
        fixture.edit("proc/1234/smaps", |_| "not smaps".into());
        let one = &contexts(&fixture.root()).unwrap().visible[0];
        assert_eq!((one.mapped_4k_bytes, one.held_bytes), (None, 8 << 20));
        fixture.edit("proc/hpmmap", |text| text + "entries_1g 3\n");
        let one = &contexts(&fixture.root()).unwrap().visible[0];
        assert_eq!((one.mapped_2m_bytes, one.entries_1g), (None, 3));
        fixture.edit("proc/hpmmap", |text| text.replace("faults 11\n", ""));
        let error = contexts(&fixture.root()).unwrap_err().to_string();
        assert!(error.contains("proc/hpmmap"), "{error}");
    }

    #[test]
    fn it_is_told_why_entries_are_of_2m() {
        let fixture = Fixture::new();
        fixture.module();
        for (word, why) in [
            ("yes", None),
            ("off", Some("parameters/gigabytes")),
            ("cpu", Some("pdpe1gb")),
            ("kernel", Some("6.12")),
            ("busy", Some("live patch")),
        ] {
            fixture.write("sys/kernel/hpmmap/gigabytes", &format!("{word}\n"));
            let found = why_no_gigabytes(&fixture.root()).unwrap();
            assert_eq!(found.is_some(), why.is_some(), "{word}");
            assert!(found.unwrap_or_default().contains(why.unwrap_or_default()));
        }
    }

    #[test]
    fn a_value_that_is_no_number_is_an_error() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.node_pool(0, 4, 3, 2, 1);
        fixture.write("sys/kernel/hpmmap/nodes/node0/free_bytes", "many\n");
        let error = nodes(&fixture.root()).unwrap_err().to_string();
        assert!(error.contains("node0/free_bytes"), "{error}");
    }
}
