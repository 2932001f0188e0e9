//! Checks of memory: what can be set offline, and the pools.

use hpmmap_base::size::short;
use hpmmap_host::memory::{self, Zone};
use hpmmap_host::pool::{self, NodePool};
use hpmmap_host::{Root, node, process};

use super::Check;
use crate::pool::config::Pools;
use crate::promise;

/// Memory blocks of a node that could be taken.
struct Removable {
    node: u32,
    movable: usize,
    other: usize,
}

fn removable(root: &Root) -> hpmmap_host::Result<Vec<Removable>> {
    node::with_memory(root)?
        .into_iter()
        .map(|node| {
            let blocks = memory::blocks_of_node(root, node)?;
            let able = blocks.iter().filter(|block| block.can_go_offline());
            let (movable, other): (Vec<_>, Vec<_>) =
                able.partition(|block| block.zone == Zone::Movable);
            Ok(Removable {
                node,
                movable: movable.len(),
                other: other.len(),
            })
        })
        .collect()
}

pub fn memory_blocks(root: &Root) -> Check {
    let id = "memory-blocks";
    if !memory::is_supported(root) {
        return Check::fail(
            id,
            "/sys/devices/system/memory is missing",
            "use a kernel with CONFIG_MEMORY_HOTPLUG and CONFIG_MEMORY_HOTREMOVE",
        );
    }
    let found = memory::block_bytes(root).and_then(|bytes| Ok((bytes, removable(root)?)));
    let (block_bytes, nodes) = match found {
        Ok(found) => found,
        Err(error) => return Check::unknown(id, &error),
    };
    let per_node: Vec<String> = nodes
        .iter()
        .map(|n| {
            let total = n.movable + n.other;
            format!(
                "node {}: {total} that may be taken ({}), {} of them movable",
                n.node,
                short(total as u64 * block_bytes),
                n.movable
            )
        })
        .collect();
    let detail = format!("{} each; {}", short(block_bytes), per_node.join("; "));
    let total: usize = nodes.iter().map(|n| n.movable + n.other).sum();
    // If a pool has taken all of them, none left is fine.
    if total > 0 || has_pools(root) {
        Check::ok(id, detail)
    } else {
        Check::fail(
            id,
            detail,
            "boot with movablecore=SIZE, so that Linux leaves memory blocks free to take",
        )
    }
}

fn has_pools(root: &Root) -> bool {
    pool::nodes(root).is_ok_and(|nodes| nodes.iter().any(|node| node.total_bytes > 0))
}

/// Will taking memory blocks succeed? `None` without memory blocks.
pub fn movable(root: &Root) -> Option<Check> {
    let id = "movablecore";
    let nodes = removable(root).ok()?;
    let movable: usize = nodes.iter().map(|n| n.movable).sum();
    let command_line = process::kernel_command_line(root).unwrap_or_default();
    let option = command_line
        .split_whitespace()
        .find(|word| word.starts_with("movablecore=") || word.starts_with("kernelcore="));
    Some(match option {
        Some(option) => Check::ok(id, format!("booted with {option}")),
        None if movable > 0 => Check::ok(id, format!("{movable} movable memory blocks")),
        None => Check::warn(
            id,
            "no memory is reserved for movable content",
            "for big pools boot with movablecore=SIZE; without it taking blocks may \
             fail once the kernel has put its own memory into them",
        ),
    })
}

pub fn pools(root: &Root) -> Check {
    let id = "pools";
    let nodes = match pool::nodes(root) {
        Ok(nodes) => nodes,
        Err(error) => return Check::unknown(id, &error),
    };
    let filled: Vec<String> = nodes
        .iter()
        .filter(|node| node.total_bytes > 0)
        .map(|node| {
            format!(
                "node {}: {} of {} free",
                node.node,
                short(node.free_bytes),
                short(node.total_bytes)
            )
        })
        .collect();
    let broken = promise::broken(root);
    let small = smaller_than_asked(root, &nodes);
    if !broken.is_empty() {
        Check::warn(
            id,
            broken.join("; "),
            "add memory (hpmmap pool add), or promise less (hpmmap pool limit --list)",
        )
    } else if !small.is_empty() {
        Check::warn(
            id,
            small.join("; "),
            "see why: journalctl -b -u hpmmap-pools; then: systemctl reload hpmmap-pools",
        )
    } else if filled.is_empty() {
        Check::warn(id, "empty", "add memory: hpmmap pool add --size SIZE")
    } else {
        Check::ok(id, filled.join("; "))
    }
}

/// The pools that have less than the file of pools asks for.
fn smaller_than_asked(root: &Root, nodes: &[NodePool]) -> Vec<String> {
    // Without the file nothing is asked for.
    let text = root.read("etc/hpmmap/pools").unwrap_or_default();
    let lines = Pools::parse(&text).lines.into_iter();
    lines
        .filter_map(|line| {
            let own = nodes.iter().find(|pool| pool.node == line.node);
            let has = own.map_or(0, |pool| pool.total_bytes);
            (has < line.size.0).then(|| {
                format!(
                    "node {} has {} of the {} of /etc/hpmmap/pools:{}",
                    line.node,
                    short(has),
                    line.size,
                    line.number
                )
            })
        })
        .collect()
}

/// The default limit of a user; `None` without pools.
pub fn user_limit(root: &Root) -> Option<Check> {
    let id = "user-limit";
    let nodes = pool::nodes(root).ok()?;
    let total: u64 = nodes.iter().map(|node| node.total_bytes).sum();
    if total == 0 {
        return None;
    }
    Some(match pool::user_limit_bytes(root) {
        Ok(Some(limit)) if limit < total => Check::ok(
            id,
            format!(
                "a user may hold {} of the {} in the pools, more comes from ordinary memory; on \
                 a host of one user write 'default 100%' into /etc/hpmmap/limits and run: \
                 hpmmap pool limit --load",
                short(limit),
                short(total)
            ),
        ),
        Ok(_) => Check::ok(id, "a user may hold all of the pools"),
        Err(error) => Check::unknown(id, &error),
    })
}

/// A check for these lines of the file of limits that do not hold.
pub fn limits(unmet: &[String]) -> Check {
    let id = "limits";
    if unmet.is_empty() {
        return Check::ok(id, "all of /etc/hpmmap/limits hold");
    }
    Check::warn(
        id,
        format!(
            "lines of /etc/hpmmap/limits do not hold: {}",
            unmet.join(", ")
        ),
        "run: hpmmap pool limit --load; again when a cgroup is made, and for users whose names were unknown at boot",
    )
}
