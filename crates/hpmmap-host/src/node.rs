//! NUMA nodes: `/sys/devices/system/node`. A kernel without NUMA counts as one node 0 with all
//! memory.

use crate::root::optional;
use crate::{Result, Root, number_list, process};

const DIR: &str = "sys/devices/system/node";

/// Nodes that have memory, ascending.
pub fn with_memory(root: &Root) -> Result<Vec<u32>> {
    let listed = root.parse(format!("{DIR}/has_memory"), "a list of nodes", |text| {
        number_list::parse(text).ok()
    });
    Ok(optional(listed)?.unwrap_or_else(|| vec![0]))
}

/// All nodes, also those without ordinary memory, ascending.
pub fn all(root: &Root) -> Result<Vec<u32>> {
    Ok(optional(root.numbered(DIR, "node"))?.unwrap_or_else(|| vec![0]))
}

/// Ordinary memory of a node: its MemTotal.
pub fn linux_bytes(root: &Root, node: u32) -> Result<u64> {
    let path = match root.join(DIR).exists() {
        true => format!("{DIR}/node{node}/meminfo"),
        false => "proc/meminfo".to_string(),
    };
    root.parse(path, "MemTotal in kB", |text| {
        let (_, rest) = text.split_once("MemTotal:")?;
        process::kib(rest.lines().next()?)
    })
}

/// Numbers of the memory blocks of a node, ascending.
pub(crate) fn memory_block_indices(root: &Root, node: u32) -> Result<Vec<u64>> {
    if !root.join(DIR).exists() && node == 0 {
        return root.numbered("sys/devices/system/memory", "memory");
    }
    root.numbered(format!("{DIR}/node{node}"), "memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn without_numa_there_is_node_zero() {
        let fixture = Fixture::new();
        fixture.block_size(0x800_0000);
        fixture.block(0, 2, "online", "Normal");
        fixture.remove(DIR);
        assert_eq!(with_memory(&fixture.root()).unwrap(), [0]);
        assert_eq!(all(&fixture.root()).unwrap(), [0]);
        assert_eq!(memory_block_indices(&fixture.root(), 0).unwrap(), [2]);
        assert!(memory_block_indices(&fixture.root(), 1).is_err());
        fixture.write("proc/meminfo", "MemTotal:  9 kB\nMemFree: 1 kB\n");
        assert_eq!(linux_bytes(&fixture.root(), 0).unwrap(), 9 << 10);
    }

    #[test]
    fn each_node_has_a_total() {
        let fixture = Fixture::new();
        let meminfo = "Node 1 MemTotal:        2048 kB\nNode 1 MemFree: 7 kB\n";
        fixture.write("sys/devices/system/node/node1/meminfo", meminfo);
        assert_eq!(linux_bytes(&fixture.root(), 1).unwrap(), 2 << 20);
        assert!(linux_bytes(&fixture.root(), 0).is_err());
    }

    #[test]
    fn blocks_belong_to_the_node_that_links_them() {
        let fixture = Fixture::new();
        fixture.block_size(0x800_0000);
        fixture.nodes("0-1");
        fixture.write("sys/devices/system/node/node2/cpulist", "0\n");
        fixture.block(0, 2, "online", "Normal");
        fixture.block(1, 10, "online", "Normal");
        fixture.block(1, 9, "online", "Normal");
        assert_eq!(with_memory(&fixture.root()).unwrap(), [0, 1]);
        assert_eq!(all(&fixture.root()).unwrap(), [0, 1, 2]);
        assert_eq!(memory_block_indices(&fixture.root(), 1).unwrap(), [9, 10]);
    }
}
