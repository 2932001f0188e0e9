//! `hpmmap pool list`

use std::process::ExitCode;

use hpmmap_base::error::Result;
use hpmmap_base::output::Column::{Number, Text};
use hpmmap_base::output::{print, print_versioned, table};
use hpmmap_base::size::short;
use hpmmap_host::pool::{self, NodePool};
use hpmmap_host::{Root, memory};
use serde::Serialize;

use crate::cli::PoolListArgs;
use crate::device;
use crate::pool::{PooledBlock, join_ranges};

pub fn perform(args: &PoolListArgs) -> Result<ExitCode> {
    let root = Root::default();
    device::require_module(&root)?;
    let nodes = pool::nodes(&root)?;
    if args.gres {
        print(&gres(&nodes))?;
        return Ok(ExitCode::SUCCESS);
    }
    let blocks = if args.verbose {
        let ranges = device::pool_ranges(&device::open()?)?;
        Some(join_ranges(&ranges, memory::block_bytes(&root)?))
    } else {
        None
    };
    if args.json {
        print_versioned(1, &Report::new(nodes, blocks.as_deref()))?;
    } else {
        print(&nodes_table(&nodes))?;
        if let Some(blocks) = blocks {
            print(&format!("\n{}", blocks_table(&blocks)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for Slurm's generic resource, counted in bytes; its suffixes are binary.
fn gres(nodes: &[NodePool]) -> String {
    let total: u64 = nodes.iter().map(|node| node.total_bytes).sum();
    format!("Name=hpmmap Count={}M Flags=CountOnly", total >> 20)
}

#[derive(Debug, Serialize)]
struct BlockReport {
    memory_block: u64,
    node: i32,
    start: u64,
    length: u64,
    free_bytes: u64,
    busy_bytes: u64,
    pinned_bytes: u64,
    bad_bytes: u64,
    movable: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    nodes: Vec<NodePool>,
    /// Only with --verbose, since reading them needs the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<Vec<BlockReport>>,
}

impl Report {
    fn new(nodes: Vec<NodePool>, blocks: Option<&[PooledBlock]>) -> Self {
        let block_report = |block: &PooledBlock| BlockReport {
            memory_block: block.index,
            node: block.node,
            start: block.start,
            length: block.pooled_bytes,
            free_bytes: block.free_bytes,
            busy_bytes: block.busy_bytes(),
            pinned_bytes: block.pinned_bytes,
            bad_bytes: block.bad_bytes,
            movable: block.movable,
        };
        Self {
            nodes,
            blocks: blocks.map(|blocks| blocks.iter().map(block_report).collect()),
        }
    }
}

/// The pools by node.
pub fn nodes_table(nodes: &[NodePool]) -> String {
    if nodes.iter().all(|node| node.total_bytes == 0) {
        return "The pools are empty (add memory with: hpmmap pool add --size SIZE).".into();
    }
    table(
        &[
            Number("NODE"),
            Number("TOTAL"),
            Number("USED"),
            Number("FREE"),
            Number("CLEAN"),
            Number("LARGEST"),
            Number("PINNED"),
            Number("BAD"),
        ],
        nodes.iter().map(|node| {
            vec![
                node.node.to_string(),
                short(node.total_bytes),
                short(node.used_bytes()),
                short(node.free_bytes),
                short(node.clean_bytes),
                short(node.largest_free_bytes),
                short(node.pinned_bytes),
                short(node.bad_bytes),
            ]
        }),
    )
}

fn blocks_table(blocks: &[PooledBlock]) -> String {
    table(
        &[
            Text("BLOCK"),
            Number("NODE"),
            Number("ADDRESS"),
            Number("SIZE"),
            Number("USED"),
            Number("FREE"),
            Number("PINNED"),
            Number("BAD"),
            Text("MOVABLE"),
        ],
        blocks.iter().map(|block| {
            vec![
                format!("memory{}", block.index),
                block.node.to_string(),
                format!("{:#x}", block.start),
                short(block.pooled_bytes),
                short(block.busy_bytes()),
                short(block.free_bytes),
                short(block.pinned_bytes),
                short(block.bad_bytes),
                if block.movable { "yes" } else { "no" }.to_string(),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    const BLOCK: PooledBlock = PooledBlock {
        index: 40,
        start: 40 * (128 << 20),
        pooled_bytes: 128 << 20,
        free_bytes: 120 << 20,
        pinned_bytes: 2 << 20,
        bad_bytes: 4 << 20,
        node: 1,
        movable: true,
    };

    fn nodes() -> Vec<NodePool> {
        let fixture = Fixture::new();
        fixture.module();
        fixture.node_pool(0, 4 << 30, 3 << 30, 1 << 30, 2 << 20);
        pool::nodes(&fixture.root()).unwrap()
    }

    #[test]
    fn nodes_as_a_table() {
        assert_eq!(
            nodes_table(&nodes()),
            "NODE  TOTAL   USED  FREE  CLEAN  LARGEST  PINNED  BAD\n   \
             0     4G  1022M    3G     1G       1G      2M    0"
        );
        assert!(nodes_table(&[]).contains("hpmmap pool add"));
    }

    #[test]
    fn all_pools_are_one_resource() {
        assert_eq!(gres(&nodes()), "Name=hpmmap Count=4096M Flags=CountOnly");
        assert_eq!(gres(&[]), "Name=hpmmap Count=0M Flags=CountOnly");
    }

    #[test]
    fn blocks_as_a_table() {
        let text = blocks_table(&[BLOCK]);
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            row,
            [
                "memory40",
                "1",
                "0x140000000",
                "128M",
                "2M",
                "120M",
                "2M",
                "4M",
                "yes"
            ]
        );
    }

    #[test]
    fn json_has_blocks_only_when_they_were_asked_for() {
        let json = serde_json::to_value(Report::new(nodes(), None)).unwrap();
        assert_eq!(json["nodes"][0]["total_bytes"], 4u64 << 30);
        assert_eq!(json["nodes"][0]["largest_free_bytes"], 1 << 30);
        assert!(json.get("blocks").is_none());

        let json = serde_json::to_value(Report::new(nodes(), Some(&[BLOCK]))).unwrap();
        assert_eq!(json["blocks"][0]["start"], 40 * (128u64 << 20));
        assert_eq!(json["blocks"][0]["busy_bytes"], 2 << 20);
        assert_eq!(json["blocks"][0]["bad_bytes"], 4 << 20);
        assert_eq!(json["blocks"][0]["movable"], true);
    }
}
