//! Memory blocks: `/sys/devices/system/memory`.

use std::fs::OpenOptions;
use std::io::{self, Write};

use crate::root::optional;
use crate::{Error, Result, Root, node};

const DIR: &str = "sys/devices/system/memory";

/// The state of a memory block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Linux uses it.
    Online,
    /// Linux does not use it; it may be in a pool.
    Offline,
    /// It is being set offline at this moment.
    GoingOffline,
}

/// The changes that the kernel can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Take it from Linux.
    Offline,
    /// Give it to Linux, in the zone that Linux chooses.
    Online,
    /// Give it to Linux, in the zone for movable memory.
    OnlineMovable,
}

impl Change {
    /// The word for the file `state`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::Online => "online",
            Self::OnlineMovable => "online_movable",
        }
    }

    fn reached(self) -> State {
        match self {
            Self::Offline => State::Offline,
            Self::Online | Self::OnlineMovable => State::Online,
        }
    }
}

/// The zone of an online block, or the one an offline block would get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Zone {
    /// Movable pages only: setting it offline nearly always works.
    Movable,
    /// May hold memory of the kernel.
    Normal,
    /// Low memory that some devices need.
    Low,
    /// It spans zones or nodes: it cannot be set offline.
    None,
}

impl Zone {
    fn parse(valid_zones: &str) -> Self {
        match valid_zones.split_whitespace().next() {
            Some("Movable") => Self::Movable,
            Some("DMA" | "DMA32") => Self::Low,
            None | Some("none") => Self::None,
            Some(_) => Self::Normal,
        }
    }
}

/// One directory `memoryN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The number N.
    pub index: u64,
    /// Physical address of its first byte.
    pub start: u64,
    /// Its state.
    pub state: State,
    /// The kernel is built so that memory can be removed.
    pub removable: bool,
    /// Its zone.
    pub zone: Zone,
}

impl Block {
    /// Is it online, and would Linux try to set it offline?
    pub fn can_go_offline(&self) -> bool {
        self.state == State::Online && self.removable && self.zone != Zone::None
    }
}

/// Does this kernel have memory blocks?
pub fn is_supported(root: &Root) -> bool {
    root.join(DIR).join("block_size_bytes").exists()
}

/// The size of each memory block.
pub fn block_bytes(root: &Root) -> Result<u64> {
    root.parse(
        format!("{DIR}/block_size_bytes"),
        "a hexadecimal size",
        |text| u64::from_str_radix(text, 16).ok().filter(|&n| n > 0),
    )
}

/// The memory blocks of a node, in order of address.
pub fn blocks_of_node(root: &Root, node: u32) -> Result<Vec<Block>> {
    let bytes = block_bytes(root)?;
    node::memory_block_indices(root, node)?
        .into_iter()
        .map(|index| read_block(root, index, bytes))
        .collect()
}

/// The numbers of all memory blocks of the machine.
pub fn indices(root: &Root) -> Result<Vec<u64>> {
    root.numbered(DIR, "memory")
}

/// The state of the memory block `index`.
pub fn state(root: &Root, index: u64) -> Result<State> {
    root.parse(
        format!("{DIR}/memory{index}/state"),
        "online, offline or going-offline",
        |text| match text {
            "online" => Some(State::Online),
            "offline" => Some(State::Offline),
            "going-offline" => Some(State::GoingOffline),
            _ => None,
        },
    )
}

fn read_block(root: &Root, index: u64, block_bytes: u64) -> Result<Block> {
    let dir = format!("{DIR}/memory{index}");
    let section = root.parse(
        format!("{dir}/phys_index"),
        "a hexadecimal number",
        |text| u64::from_str_radix(text, 16).ok(),
    )?;
    let state = state(root, index)?;
    let removable = optional(root.read_number::<u32>(format!("{dir}/removable")))? != Some(0);
    // Absent on kernels that cannot remove memory.
    let zone = match optional(root.read(format!("{dir}/valid_zones")))? {
        Some(text) => Zone::parse(&text),
        None => Zone::None,
    };
    Ok(Block {
        index,
        start: section * block_bytes,
        state,
        removable,
        zone,
    })
}

/// Asks the kernel to change a memory block. `Change::Offline` may take long, since the kernel
/// moves the contents elsewhere; a signal with a handler ends it with EINTR. If the block has the
/// requested state already, the online changes succeed, and `Change::Offline` fails with EEXIST:
/// another process did it.
pub fn set_state(root: &Root, index: u64, change: Change) -> Result<()> {
    let path = root.join(DIR).join(format!("memory{index}/state"));
    let wrap = |source| Error::Io {
        path: path.clone(),
        source,
    };
    if state(root, index)? == change.reached() {
        return match change {
            Change::Offline => Err(wrap(io::ErrorKind::AlreadyExists.into())),
            _ => Ok(()),
        };
    }
    let mut file = OpenOptions::new().write(true).open(&path).map_err(wrap)?;
    let word = change.word().as_bytes();
    // One write(2): write_all() would repeat it after EINTR.
    match file.write(word) {
        Ok(written) if written == word.len() => Ok(()),
        Ok(_) => Err(wrap(io::ErrorKind::WriteZero.into())),
        Err(source) => Err(wrap(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn addresses_come_from_phys_index_in_hexadecimal() {
        let fixture = Fixture::new();
        fixture.block_size(0x800_0000);
        fixture.block(0, 40, "online", "Normal");
        let blocks = blocks_of_node(&fixture.root(), 0).unwrap();
        assert_eq!(
            blocks,
            [Block {
                index: 40,
                start: 40 * 0x800_0000,
                state: State::Online,
                removable: true,
                zone: Zone::Normal,
            }]
        );
    }

    #[test]
    fn zones_decide_what_can_go_offline() {
        let fixture = Fixture::new();
        fixture.block_size(0x800_0000);
        fixture.block(0, 0, "online", "none");
        fixture.block(0, 1, "online", "DMA32");
        fixture.block(0, 9, "online", "Movable");
        fixture.block(0, 10, "offline", "Movable Normal");
        fixture.block(0, 11, "going-offline", "Normal");
        let blocks = blocks_of_node(&fixture.root(), 0).unwrap();
        let zones: Vec<Zone> = blocks.iter().map(|b| b.zone).collect();
        assert_eq!(
            zones,
            [
                Zone::None,
                Zone::Low,
                Zone::Movable,
                Zone::Movable,
                Zone::Normal
            ]
        );
        let able: Vec<bool> = blocks.iter().map(Block::can_go_offline).collect();
        assert_eq!(able, [false, true, true, false, false]);
    }

    #[test]
    fn a_kernel_without_memory_hotremove_has_no_candidate() {
        let fixture = Fixture::new();
        fixture.block_size(0x800_0000);
        fixture.block(0, 3, "online", "Normal");
        fixture.write("sys/devices/system/memory/memory3/removable", "0\n");
        assert!(!blocks_of_node(&fixture.root(), 0).unwrap()[0].can_go_offline());
        fixture.write("sys/devices/system/memory/memory3/removable", "1\n");
        fixture.remove("sys/devices/system/memory/memory3/valid_zones");
        assert!(!blocks_of_node(&fixture.root(), 0).unwrap()[0].can_go_offline());
    }

    #[test]
    fn set_state_writes_the_kernels_word() {
        let fixture = Fixture::new();
        fixture.block_size(0x800_0000);
        fixture.block(0, 5, "online", "Normal");
        let root = fixture.root();
        set_state(&root, 5, Change::Offline).unwrap();
        assert_eq!(state(&root, 5).unwrap(), State::Offline);
    }

    #[test]
    fn offline_twice_is_eexist_but_online_twice_is_fine() {
        let fixture = Fixture::new();
        fixture.block_size(0x800_0000);
        fixture.block(0, 5, "offline", "Normal");
        fixture.block(0, 6, "online", "Normal");
        let root = fixture.root();
        match set_state(&root, 5, Change::Offline) {
            Err(Error::Io { source, .. }) => {
                assert_eq!(source.kind(), io::ErrorKind::AlreadyExists)
            }
            other => panic!("{other:?}"),
        }
        set_state(&root, 6, Change::OnlineMovable).unwrap();
    }

    #[test]
    fn a_state_nobody_knows_is_an_error_that_names_the_file() {
        let fixture = Fixture::new();
        fixture.block_size(0x800_0000);
        fixture.block(0, 5, "sideways", "Normal");
        let error = blocks_of_node(&fixture.root(), 0).unwrap_err().to_string();
        assert!(error.contains("memory5/state"), "{error}");
        assert!(error.contains("'sideways'"), "{error}");
    }
}
