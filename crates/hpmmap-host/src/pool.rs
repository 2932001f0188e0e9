//! What the module reports: `/sys/kernel/hpmmap`.

use serde::Serialize;

use crate::root::optional;
use crate::{Result, Root};

const DIR: &str = "sys/kernel/hpmmap";

/// The pool of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NodePool {
    /// Number of the node.
    pub node: u32,
    /// Size of the pool.
    pub total_bytes: u64,
    /// What nobody holds.
    pub free_bytes: u64,
    /// Free and zero already.
    pub clean_bytes: u64,
    /// Largest free block, at most 1 GB.
    pub largest_free_bytes: u64,
    /// Given up but still pinned by a device or another process.
    pub pinned_bytes: u64,
    /// Blocks with memory errors, which nobody has or gets.
    pub bad_bytes: u64,
}

impl NodePool {
    /// What jobs hold.
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
    /// Its number in sysfs.
    pub id: u64,
    /// Process, in the initial PID namespace.
    pub pid: u32,
    /// The job it belongs to.
    pub job: u64,
    /// Owner.
    pub uid: u32,
    /// Policy on exhaustion: true for ENOMEM, false for memory of Linux.
    pub strict: bool,
    /// Requested page size in bytes.
    pub page_size: u64,
    /// Pool memory held.
    pub held_bytes: u64,
    /// Part of it that is kept for the process to use again without zeroing.
    pub reuse_bytes: u64,
    /// Zeroed while the process waited, in total.
    pub cleared_bytes: u64,
    /// Mapped by 2 MB entries, now. `None` where the module does not tell: the
    /// process may not be looked into, or has been changing its mappings for long.
    pub mapped_2m_bytes: Option<u64>,
    /// Mapped by 4 KB entries, now.
    pub mapped_4k_bytes: Option<u64>,
    /// Anonymous memory of Linux that calls got instead, now.
    pub mapped_linux_bytes: Option<u64>,
    /// Pages of Linux that stand in for the pools' in its blocks.
    pub linux_bytes: u64,
    /// Pages of Linux where a slot needs no more than a few.
    pub few_bytes: u64,
    /// Calls that got memory of Linux instead.
    pub fallbacks: u64,
    /// Page faults taken in user mode, in total.
    pub faults: u64,
    /// Page faults taken by the kernel on its behalf.
    pub faults_kernel: u64,
    /// Blocks given up but still pinned.
    pub pins_waiting: u64,
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
    /// How many there are of other users.
    pub hidden: usize,
}

impl Context {
    /// All memory of Linux that stands in for the pools', now.
    pub fn stands_in_bytes(&self) -> Option<u64> {
        Some(self.linux_bytes + self.mapped_linux_bytes?)
    }
}

/// All registered address spaces. One that ends while it is read is left out.
pub fn contexts(root: &Root) -> Result<Contexts> {
    let ids = optional(root.numbered(format!("{DIR}/contexts"), ""))?.unwrap_or_default();
    let mut contexts = Contexts::default();
    for id in ids {
        match read_context(root, id) {
            Err(error) if error.is_denied() => contexts.hidden += 1,
            read => contexts.visible.extend(optional(read)?),
        }
    }
    Ok(contexts)
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
    })
}

fn read_context(root: &Root, id: u64) -> Result<Context> {
    let path = |name: &str| format!("{DIR}/contexts/{id}/{name}");
    let value = |name: &str| root.read_number::<u64>(path(name));
    // One read, for it is a walk of the process's page tables.
    let mapped = match root.read_values(path("mapped")) {
        Err(error) if error.is_denied() || error.is_busy() => None,
        read => Some(read?),
    };
    let mapped = |name: &str| mapped.as_ref().and_then(|values| values.get(name).copied());
    Ok(Context {
        id,
        pid: root.read_number(path("pid"))?,
        job: value("job")?,
        uid: root.read_number(path("uid"))?,
        strict: value("strict")? != 0,
        page_size: value("page_size")?,
        held_bytes: value("held_bytes")?,
        reuse_bytes: value("reuse_bytes")?,
        cleared_bytes: value("cleared_bytes")?,
        mapped_2m_bytes: mapped("mapped_2m_bytes"),
        mapped_4k_bytes: mapped("mapped_4k_bytes"),
        mapped_linux_bytes: mapped("mapped_linux_bytes"),
        linux_bytes: value("linux_bytes")?,
        few_bytes: value("few_bytes")?,
        fallbacks: value("fallbacks")?,
        faults: value("faults")?,
        faults_kernel: value("faults_kernel")?,
        pins_waiting: value("pins_waiting")?,
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
    fn a_context_that_ends_while_it_is_read_is_left_out() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.context(7, 1234, 1000);
        fixture.context(8, 1235, 1000);
        fixture.remove("sys/kernel/hpmmap/contexts/8/faults");
        let contexts = contexts(&fixture.root()).unwrap().visible;
        assert_eq!(contexts.len(), 1);
        assert_eq!((contexts[0].id, contexts[0].pid), (7, 1234));
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
