//! `hpmmap pool reserve`

use std::process::ExitCode;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{print, warn};
use hpmmap_base::size::{Size, multiple_of, short};
use hpmmap_host::{Root, memory, node, process};

use super::require_nodes;
use crate::cli::PoolReserveArgs;
use crate::grub::{self, DropIn};

const DROP_IN: DropIn = DropIn("etc/default/grub.d/hpmmap.cfg");

/// If there is memory above this address, Linux reserves none below.
const LOW_END: u64 = 4 << 30;

/// Linux must keep this much to boot and run.
const LINUX_BYTES: u64 = 512 << 20;

pub fn perform(args: &PoolReserveArgs) -> Result<ExitCode> {
    let root = Root::default();
    let Some(size) = args.size else {
        let text = match remove(&root, grub::update)? {
            true => format!("{DROP_IN} is gone: the next boot reserves nothing"),
            false => format!("there is no {DROP_IN}: the next boot reserves nothing by it"),
        };
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let reserved = Reserved::new(&Machine::read(&root)?, size, args.node)?;
    if let Some(other) = other_option(&process::kernel_command_line(&root)?, &root) {
        warn(&format!(
            "this boot has {other} already: take it from /etc/default/grub, the last one counts"
        ));
    }
    write(&root, &reserved, grub::update)?;
    print(&format!(
        "the next boot has {} (in {DROP_IN}): reboot, then pools of {size} can be had in full",
        reserved.option()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Memory of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    number: u32,
    bytes: u64,
    /// The part of it that can be reserved.
    able: u64,
}

#[derive(Debug)]
struct Machine {
    block_bytes: u64,
    nodes: Vec<Node>,
}

impl Machine {
    fn read(root: &Root) -> Result<Self> {
        let block_bytes = memory::block_bytes(root)?;
        let mut nodes = Vec::new();
        let mut all = Vec::new();
        for number in node::all(root)? {
            let blocks = memory::blocks_of_node(root, number)?;
            if !blocks.is_empty() {
                all.push((number, blocks));
            }
        }
        let starts = all.iter().flat_map(|(_, blocks)| blocks);
        let low_end = match starts.map(|block| block.start).max() {
            Some(last) if last >= LOW_END => LOW_END,
            _ => 0,
        };
        for (number, blocks) in &all {
            let able = blocks.iter().filter(|block| block.start >= low_end).count();
            nodes.push(Node {
                number: *number,
                bytes: blocks.len() as u64 * block_bytes,
                able: able as u64 * block_bytes,
            });
        }
        Ok(Self { block_bytes, nodes })
    }

    /// Memory in the reserved part of a node that Linux takes at boot and cannot move: its struct
    /// pages, other tables sized by it, and a memory block that begins below the part.
    fn lost(&self, node: &Node) -> u64 {
        let fixed = node.bytes / 64 + node.bytes / 512 + (64 << 20);
        fixed.next_multiple_of(self.block_bytes) + self.block_bytes
    }
}

/// The reservation to write.
#[derive(Debug, PartialEq, Eq)]
struct Reserved {
    size: Size,
    node: Option<u32>,
    bytes: u64,
}

impl Reserved {
    fn new(machine: &Machine, size: Size, asked: Option<u32>) -> Result<Self> {
        multiple_of(size, machine.block_bytes, "the memory block size")?;
        let bytes = match asked {
            None => {
                let lost = machine
                    .nodes
                    .iter()
                    .map(|node| machine.lost(node))
                    .sum::<u64>();
                let able = machine.nodes.iter().map(|node| node.able).sum::<u64>();
                fits("this machine", size, lost, able)?;
                size.0 + lost
            }
            Some(number) => {
                let numbers: Vec<u32> = machine.nodes.iter().map(|node| node.number).collect();
                require_nodes(&numbers, &[number])?;
                let node = machine.nodes.iter().find(|node| node.number == number);
                let node = node.ok_or_else(|| Error::Failed(format!("node {number} is gone")))?;
                let lost = machine.lost(node);
                fits(&format!("node {number}"), size, lost, node.able)?;
                // Linux keeps the same amount on each node, if the node has it.
                let kept = node.bytes.saturating_sub(size.0 + lost);
                let over = |node: &Node| node.bytes.saturating_sub(kept).min(node.able);
                machine.nodes.iter().map(over).sum()
            }
        };
        let total: u64 = machine.nodes.iter().map(|node| node.bytes).sum();
        if total.saturating_sub(bytes) < LINUX_BYTES {
            return Err(Error::Failed(format!(
                "of {} that would leave Linux {}, which needs {}",
                short(total),
                short(total.saturating_sub(bytes)),
                short(LINUX_BYTES)
            )));
        }
        Ok(Self {
            size,
            node: asked,
            bytes,
        })
    }

    fn option(&self) -> String {
        format!("movablecore={}M", self.bytes.div_ceil(1 << 20))
    }

    fn text(&self) -> String {
        let node = self
            .node
            .map_or(String::new(), |node| format!(" --node {node}"));
        format!(
            "# Written by 'hpmmap pool reserve --size {}{node}'; undone by 'hpmmap pool reserve --remove'.\n\
             GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {}\"\n",
            self.size,
            self.option()
        )
    }
}

fn fits(who: &str, size: Size, lost: u64, able: u64) -> Result<()> {
    if size.0.saturating_add(lost) <= able {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "{who} can have at most {} reserved, not {size}: {} lie where Linux reserves memory \
         (with more than 4G, none below), and Linux takes {} of that at boot",
        short(able.saturating_sub(lost)),
        short(able),
        short(lost)
    )))
}

/// A reservation that was not made by this command.
fn other_option(command_line: &str, root: &Root) -> Option<String> {
    let own = root.read(DROP_IN.0).unwrap_or_default();
    let mut words = command_line.split_whitespace();
    words
        .find(|word| {
            (word.starts_with("movablecore=") || word.starts_with("kernelcore="))
                && !own.contains(&format!(" {word}\""))
        })
        .map(str::to_string)
}

fn write(root: &Root, reserved: &Reserved, update: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let hint = format!(
        "put {} on the kernel's command line yourself",
        reserved.option()
    );
    DROP_IN.write(root, &reserved.text(), &hint, update)
}

/// Removes the reservation; returns whether there was one.
fn remove(root: &Root, update: impl FnOnce(&str) -> Result<()>) -> Result<bool> {
    let hint = "take movablecore= off the kernel's command line yourself";
    DROP_IN.remove(root, hint, update)
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    const BLOCK: u64 = 128 << 20;
    const GIB: u64 = 1 << 30;

    /// Gigabytes of each node; those of the first node begin at 0, without a hole.
    fn machine(gigabytes: &[u64]) -> (Fixture, Machine) {
        let fixture = Fixture::new();
        fixture.block_size(BLOCK);
        let mut index = 0;
        for (node, gib) in (0u32..).zip(gigabytes) {
            for _ in 0..gib * GIB / BLOCK {
                fixture.block(node, index, "online", "Normal");
                index += 1;
            }
        }
        let machine = Machine::read(&fixture.root()).unwrap();
        (fixture, machine)
    }

    #[test]
    fn the_size_and_what_linux_puts_there() {
        let (_fixture, machine) = machine(&[32]);
        let reserved = Reserved::new(&machine, Size(16 * GIB), None).unwrap();
        // Tables of 512M and 64M, 64M more, in memory blocks of 128M, and one memory block.
        assert_eq!(reserved.bytes, 16 * GIB + 5 * BLOCK + BLOCK);
        assert_eq!(reserved.option(), "movablecore=17152M");
        assert_eq!(
            Reserved::new(&machine, Size(16 * GIB), Some(0))
                .unwrap()
                .bytes,
            reserved.bytes
        );
        assert_eq!(
            Reserved::new(&machine, Size(1), None)
                .unwrap_err()
                .exit_code(),
            2
        );
        assert_eq!(
            Reserved::new(&machine, Size(GIB), Some(1))
                .unwrap_err()
                .exit_code(),
            2
        );
    }

    #[test]
    fn memory_below_four_gigabytes_stays_with_linux() {
        let (_fixture, machine) = machine(&[8]);
        assert_eq!(machine.nodes[0].able, 4 * GIB);
        assert!(Reserved::new(&machine, Size(3 * GIB), None).is_ok());
        let error = Reserved::new(&machine, Size(4 * GIB), None)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("this machine can have at most 3.6G reserved, not 4G"),
            "{error}"
        );
    }

    #[test]
    fn a_small_machine_has_no_such_border() {
        let (_fixture, machine) = machine(&[2]);
        assert!(Reserved::new(&machine, Size(GIB), None).is_ok());
        let error = Reserved::new(&machine, Size(GIB + 4 * BLOCK), None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("would leave Linux 256M"), "{error}");
    }

    #[test]
    fn one_node_takes_others_along() {
        let (_fixture, machine) = machine(&[32, 32]);
        let reserved = Reserved::new(&machine, Size(16 * GIB), Some(1)).unwrap();
        let each = 16 * GIB + 6 * BLOCK;
        assert_eq!(reserved.bytes, 2 * each);
        assert!(reserved.text().contains("--size 16G --node 1'"));
    }

    #[test]
    fn a_smaller_node_keeps_what_it_has() {
        let (_fixture, machine) = machine(&[8, 32]);
        let reserved = Reserved::new(&machine, Size(16 * GIB), Some(1)).unwrap();
        // Linux keeps 15.25G on node 1, which is more than node 0 has.
        assert_eq!(reserved.bytes, 16 * GIB + 6 * BLOCK);
    }

    #[test]
    fn the_drop_in_is_written_again_and_removed() {
        let (fixture, machine) = machine(&[32]);
        let root = fixture.root();
        for gib in [8, 16] {
            let reserved = Reserved::new(&machine, Size(gib * GIB), None).unwrap();
            write(&root, &reserved, |_| Ok(())).unwrap();
            let text = root.read(DROP_IN.0).unwrap();
            assert!(
                text.ends_with(&format!(" {}\"", reserved.option())),
                "{text}"
            );
        }
        assert!(remove(&root, |_| Ok(())).unwrap());
        assert!(!root.join(DROP_IN.0).exists());
        // A call that was killed may have removed the file only.
        let mut updated = 0;
        let update = |_: &str| {
            updated += 1;
            Ok(())
        };
        assert!(!remove(&root, update).unwrap());
        assert_eq!(updated, 1);
    }

    #[test]
    fn what_update_grub_did_not_undo_is_no_success_the_second_time() {
        let (fixture, _) = machine(&[32]);
        let root = fixture.root();
        fixture.write(DROP_IN.0, "old\n");
        let fail = |hint: &str| Err(Error::Failed(hint.to_string()));
        for _ in 0..2 {
            let error = remove(&root, fail).unwrap_err().to_string();
            assert!(error.starts_with("take movablecore= off"), "{error}");
        }
        assert!(!remove(&root, |_| Ok(())).unwrap());
    }

    #[test]
    fn without_grub_everything_stays_as_it_was() {
        let (fixture, machine) = machine(&[32]);
        let root = fixture.root();
        let fail = |hint: &str| Err(Error::Failed(hint.to_string()));
        let reserved = Reserved::new(&machine, Size(8 * GIB), None).unwrap();
        let error = write(&root, &reserved, fail).unwrap_err().to_string();
        assert!(error.contains("movablecore=8960M"), "{error}");
        assert!(!root.join(DROP_IN.0).exists());
        fixture.write(DROP_IN.0, "old\n");
        assert!(write(&root, &reserved, fail).is_err());
        assert_eq!(root.read(DROP_IN.0).unwrap(), "old");
    }

    #[test]
    fn another_reservation_is_noticed() {
        let (fixture, _) = machine(&[4]);
        let root = fixture.root();
        assert_eq!(other_option("quiet ro", &root), None);
        let other = other_option("quiet movablecore=1G", &root);
        assert_eq!(other.as_deref(), Some("movablecore=1G"));
        fixture.write(
            DROP_IN.0,
            "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX movablecore=1G\"\n",
        );
        assert_eq!(other_option("quiet movablecore=1G", &root), None);
    }
}
