//! The memory of a process that may be RAM of a virtual machine: its mappings, and the page-table
//! entries that map them.

use std::collections::HashMap;

use crate::mapped::{Mapping, field};
use crate::{Result, Root, pool};

const BY_2M: u64 = 2 << 20;
const BY_4K: u64 = 4096;

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backing {
    /// First address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// The file that is mapped: device, as /proc/PID/maps has it, and inode.
    pub file: (String, u64),
    /// Resident bytes; `None` if that is not known.
    pub resident: Option<u64>,
    /// The part of these that entries of 2 MB or more map.
    pub large: Option<u64>,
    /// Size of the entries that map most of it; 0: unknown.
    pub entry: u64,
}

/// The mappings of a process.
#[derive(Debug)]
pub struct Backings {
    /// In order of address.
    pub all: Vec<Backing>,
    /// The process has no mapping that may have entries of 1 GB of the pools, which a walk of its
    /// page tables would split. So its smaps was read, and its pagemap may be.
    pub walked: bool,
}

/// The page size in the options of mounts of hugetlbfs and hpmmapfs, by device.
fn page_sizes(mounts: &str) -> HashMap<String, (bool, u64)> {
    let one = |line: &str| {
        let (mount, fs) = line.split_once(" - ")?;
        let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
        let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
        let mut fs = fs.splitn(3, ' ');
        let is_pools = match fs.next()? {
            "hpmmap" => true,
            "hugetlbfs" => false,
            _ => return None,
        };
        let options = fs.nth(1)?.split(',');
        let size = options.rev().find_map(|one| one.strip_prefix("pagesize="));
        let size = match size {
            Some("1G" | "1024M" | "1048576K") => 1 << 30,
            _ => BY_2M,
        };
        Some((format!("{major:02x}:{minor:02x}"), (is_pools, size)))
    };
    mounts.lines().filter_map(one).collect()
}

/// The mappings of a process. Its page tables are walked only if that splits no entry of 1 GB.
pub fn of(root: &Root, pid: u32) -> Result<Backings> {
    let sizes = page_sizes(&root.read(format!("proc/{pid}/mountinfo"))?);
    let maps = root.read(format!("proc/{pid}/maps"))?;
    let contexts = pool::contexts_unmapped(root).unwrap_or_default().visible;
    // A process that asks for it has such entries in files of hpmmapfs, too.
    let asked = contexts.iter().find(|context| context.pid == pid);
    let asked = asked.map(|context| context.page_size);
    let mut walked = true;
    let mut all: Vec<Backing> = Vec::new();
    for mapping in maps.lines().filter_map(Mapping::parse) {
        let fs = sizes.get(mapping.device).copied();
        let may_be_1g = match fs {
            Some((true, size)) => size == 1 << 30 || asked == Some(1 << 30),
            Some((false, _)) => false,
            None => mapping.is_pools() && asked != Some(BY_2M),
        };
        walked &= !may_be_1g;
        all.push(Backing {
            start: mapping.start,
            end: mapping.end,
            file: (mapping.device.to_string(), mapping.inode),
            resident: None,
            large: None,
            entry: fs.map_or(0, |(_, size)| size),
        });
    }
    if walked {
        read_entries(&root.read(format!("proc/{pid}/smaps"))?, &mut all);
    }
    Ok(Backings { all, walked })
}

/// Adds what smaps says to the mappings that are still there.
fn read_entries(smaps: &str, all: &mut [Backing]) {
    let mut current: Option<&mut Backing> = None;
    let mut page = 0;
    for line in smaps.lines() {
        if let Some((name, value)) = field(line) {
            let Some(one) = current.as_deref_mut() else {
                continue;
            };
            let (resident, large) = (one.resident.unwrap_or(0), one.large.unwrap_or(0));
            let (more, more_large) = match name {
                "KernelPageSize" => {
                    page = value;
                    continue;
                }
                "Rss" => (value, 0),
                "Shared_Hugetlb" | "Private_Hugetlb" => (value, value),
                "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => (0, value),
                _ => continue,
            };
            let (resident, large) = (resident + more, large + more_large);
            (one.resident, one.large) = (Some(resident), Some(large));
            one.entry = match large {
                _ if resident == 0 => 0,
                large if large * 2 < resident => BY_4K,
                _ => page.max(BY_2M),
            };
        } else if let Some(mapping) = Mapping::parse(line) {
            let found = all.binary_search_by_key(&mapping.start, |one| one.start);
            current = found.ok().map(|at| &mut all[at]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const MOUNTS: &str = "\
22 1 0:21 / /proc rw - proc proc rw
31 1 0:58 / /mnt rw,relatime shared:1 - hpmmap none rw,mode=700
32 1 0:59 / /mnt1g rw - hpmmap none rw,pagesize=1024M
33 1 0:60 / /dev/hugepages rw - hugetlbfs hugetlbfs rw,pagesize=2M
";
    const RAM: &str = "7f0000000000-7f0040000000 rw-s 00000000 00:3a 5 /mnt/ram\n";

    fn fixture(maps: &str, smaps: &str) -> Fixture {
        let fixture = Fixture::new();
        fixture.write("proc/7/mountinfo", MOUNTS);
        fixture.write("proc/7/maps", maps);
        fixture.write("proc/7/smaps", smaps);
        fixture
    }

    #[test]
    fn entries_are_those_of_smaps() {
        let other = "7f0050000000-7f0060000000 rw-p 00000000 00:00 0\n";
        let huge = "7f0060000000-7f00a0000000 rw-s 00000000 00:3c 6 /dev/hugepages/x\n";
        let smaps = format!(
            "{RAM}KernelPageSize: 4 kB\nRss: 1048576 kB\nFilePmdMapped: 1046528 kB\n\
             {other}KernelPageSize: 4 kB\nRss: 40 kB\nAnonHugePages: 0 kB\nVmFlags: rd\n\
             {huge}KernelPageSize: 2048 kB\nRss: 0 kB\nShared_Hugetlb: 4096 kB\n"
        );
        let fixture = fixture(&format!("{RAM}{other}{huge}"), &smaps);
        let found = of(&fixture.root(), 7).unwrap();
        assert!(found.walked);
        let entries: Vec<_> = found.all.iter().map(|one| (one.large, one.entry)).collect();
        let all_but_two = (1 << 30) - (2 << 20);
        assert_eq!(
            entries,
            [
                (Some(all_but_two), 2 << 20),
                (Some(0), 4096),
                (Some(4 << 20), 2 << 20)
            ]
        );
        assert_eq!(found.all[0].file, ("00:3a".to_string(), 5));
    }

    #[test]
    fn page_tables_with_entries_of_1g_are_left_alone() {
        let pools = "7f0000000000-7f0040000000 rw-s 7f0000000000 00:07 5\n";
        for (maps, entry) in [(RAM.replace("3a", "3b").as_str(), 1 << 30), (pools, 0)] {
            let fixture = fixture(maps, "");
            fixture.remove("proc/7/smaps");
            let found = of(&fixture.root(), 7).unwrap();
            assert!(!found.walked);
            assert_eq!((found.all[0].large, found.all[0].entry), (None, entry));
        }
        // One that is known to have asked for entries of 2 MB has none of 1 GB.
        let fixture = fixture(pools, "");
        fixture.module();
        fixture.context(1, 7, 0);
        fixture.write("proc/7/smaps", &format!("{pools}Rss: 4 kB\n"));
        assert!(of(&fixture.root(), 7).unwrap().walked);
        fixture.edit("proc/hpmmap", |text| text.replace("2097152", "1073741824"));
        assert!(!of(&fixture.root(), 7).unwrap().walked);
    }
}
