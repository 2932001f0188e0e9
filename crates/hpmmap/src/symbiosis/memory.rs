//! How the host maps the guest's RAM.

use std::fs::File;
use std::os::unix::fs::FileExt;

use hpmmap_base::error::Result;
use hpmmap_host::backing::{self, Backing};
use hpmmap_host::{Root, node};

use super::page::{Range, UNKNOWN};
use super::qmp::Ram;

const BLOCK: u64 = 2 << 20;
/// Fields of an entry of /proc/PID/pagemap.
const PRESENT: u64 = 1 << 63;
/// No processor has more than 52 bits of physical address.
const FRAME: u64 = (1 << 40) - 1;

/// The ranges of the guest's RAM. `page` is the file that is shared with it; `physical`: read
/// host-physical addresses, too.
pub fn ranges(
    root: &Root,
    pid: u32,
    ram: &[Ram],
    page: &(String, u64),
    physical: bool,
) -> Result<Vec<Range>> {
    let found = backing::of(root, pid)?;
    let nodes = node::with_memory(root)?;
    let only_node = (nodes.len() == 1).then(|| i32::try_from(nodes[0]).unwrap_or(-1));
    let pagemap = (physical && found.walked)
        .then(|| File::open(root.join(format!("proc/{pid}/pagemap"))).ok())
        .flatten();
    let mut all = Vec::new();
    for one in ram {
        let has = |backing: &&Backing| (backing.start..backing.end).contains(&one.at);
        let Some(backing) = found.all.iter().find(has) else {
            continue;
        };
        if backing.file == *page {
            continue;
        }
        let runs = pagemap.as_ref().and_then(|file| runs(file, one));
        all.push(Range {
            start: one.start,
            bytes: one.bytes,
            large_bytes: large(one.bytes, backing),
            entry_bytes: backing.entry,
            align_bytes: align(one.start ^ one.at),
            physical: runs.map_or(UNKNOWN, |(physical, _)| physical),
            runs: runs.map_or(0, |(_, runs)| runs),
            node: one.node.or(only_node).unwrap_or(-1),
        });
    }
    Ok(all)
}

/// The part of a range that large entries map, if it is like the rest of its mapping.
fn large(bytes: u64, backing: &Backing) -> u64 {
    match (backing.large, backing.resident) {
        (Some(large), Some(resident)) => {
            let share = u128::from(large.min(resident)) * u128::from(bytes);
            share.checked_div(resident.into()).unwrap_or(0) as u64
        }
        _ => UNKNOWN,
    }
}

/// The largest entry for which two addresses that differ in these bits are alike.
fn align(difference: u64) -> u64 {
    [1 << 30, BLOCK]
        .into_iter()
        .find(|size| difference % size == 0)
        .unwrap_or(4096)
}

/// The host-physical address of a range and its number of contiguous runs, by one look each 2 MB.
/// `None` if a block is absent, or the caller may not see addresses (CAP_SYS_ADMIN).
fn runs(pagemap: &File, ram: &Ram) -> Option<(u64, u32)> {
    let mut first = None;
    let (mut runs, mut expected) = (0, None);
    for at in (ram.at..ram.at.checked_add(ram.bytes)?).step_by(BLOCK as usize) {
        let mut entry = [0; 8];
        pagemap.read_exact_at(&mut entry, at / 4096 * 8).ok()?;
        let entry = u64::from_le_bytes(entry);
        let physical = (entry & FRAME) * 4096;
        if entry & PRESENT == 0 || physical == 0 {
            return None;
        }
        first = first.or(Some(physical));
        runs += u32::from(expected != Some(physical));
        expected = Some(physical + BLOCK);
    }
    Some((first?, runs))
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    const AT: u64 = 0x7f00_0000_0000;

    fn ram(start: u64, at: u64, bytes: u64) -> Ram {
        Ram {
            start,
            bytes,
            at,
            node: None,
        }
    }

    #[test]
    fn ranges_say_how_they_are_mapped() {
        let fixture = Fixture::new();
        fixture.nodes("0");
        fixture.write("proc/7/mountinfo", "");
        let maps = "7f0000000000-7f0040000000 rw-s 00000000 00:3a 5 /mnt/ram\n\
                    7f0050000000-7f0050001000 rw-s 00000000 00:15 6 /dev/shm/page\n";
        fixture.write("proc/7/maps", maps);
        let smaps = maps.replace(
            "/mnt/ram\n",
            "/mnt/ram\nKernelPageSize: 4 kB\nRss: 4096 kB\nFilePmdMapped: 2048 kB\n",
        );
        fixture.write("proc/7/smaps", &smaps);
        let page = ("00:15".to_string(), 6);
        let all = [
            ram(1 << 30, AT, 1 << 29),
            ram(0xfe00_0000, 0x7f00_5000_0000, 4096),
            ram(4 << 30, AT + (1 << 29), 1 << 29),
        ];
        let found = ranges(&fixture.root(), 7, &all, &page, true).unwrap();
        assert_eq!(found.len(), 2);
        let first = Range {
            start: 1 << 30,
            bytes: 1 << 29,
            large_bytes: 1 << 28,
            entry_bytes: 2 << 20,
            align_bytes: 1 << 30,
            physical: UNKNOWN,
            runs: 0,
            node: 0,
        };
        assert_eq!(found[0], first);
        assert_eq!(found[1].align_bytes, BLOCK);
        assert_eq!(align(0x1000), 4096);
    }

    #[test]
    fn runs_are_counted() {
        let file = tempfile::tempfile().unwrap();
        let entry = |block: u64, value: u64| {
            let at = (AT + block * BLOCK) / 4096 * 8;
            file.write_all_at(&value.to_le_bytes(), at).unwrap();
        };
        for (block, frame) in [(0, 512), (1, 1024), (2, 8192)] {
            entry(block, PRESENT | frame);
        }
        assert_eq!(runs(&file, &ram(0, AT, 3 * BLOCK)), Some((512 * 4096, 2)));
        // The kernel hides addresses as 0.
        entry(1, PRESENT);
        assert_eq!(runs(&file, &ram(0, AT, 3 * BLOCK)), None);
        assert_eq!(runs(&file, &ram(0, u64::MAX - 5, BLOCK)), None);
    }
}
