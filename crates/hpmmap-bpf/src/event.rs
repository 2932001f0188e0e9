//! The events of the programs: the numbers and structs of `bpf/events.h`, checked.

use std::ffi::c_char;

use serde::{Deserialize, Serialize};
use zerocopy::FromBytes;

use crate::events::*;

/// Defines the numbers of an enumeration of `bpf/events.h`, with the names for files and reports.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:expr, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number as u8,)*
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The value with this number.
            pub fn from_number(number: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| *one as u8 == number)
            }

            /// The name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The value with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}

numbered! {
    /// What a fault did.
    Kind {
        /// Another kind.
        Other = KIND_OTHER, "other";
        /// A 4 KB page of anonymous memory.
        Small = KIND_4K, "4k";
        /// Memory mapped by one entry of 2 MB.
        Large = KIND_2M, "2m";
        /// A page of hugetlbfs.
        Hugetlb = KIND_HUGETLB, "hugetlb";
        /// A copy of a page: after fork, of the zero page, of a file.
        Cow = KIND_COW, "cow";
        /// A present page was made writable.
        Write = KIND_WRITE, "write";
        /// A page came back from swap.
        Swap = KIND_SWAP, "swap";
        /// A page of a file or of shared memory.
        File = KIND_FILE, "file";
        /// NUMA balancing had unmapped the page to see which CPU uses it.
        Numa = KIND_NUMA, "numa";
        /// The page was being moved.
        Migration = KIND_MIGRATION, "migration";
        /// Nothing was left to do.
        Spurious = KIND_SPURIOUS, "spurious";
        /// A signal; the kernel does not count it.
        Error = KIND_ERROR, "error";
    }
}

numbered! {
    /// What a fault waited for.
    Stall {
        /// Nothing.
        None = STALL_NONE, "";
        /// A merge of small pages into a large one in its address space.
        Merge = STALL_MERGE, "merge";
        /// Direct compaction.
        Compaction = STALL_COMPACTION, "compaction";
        /// Direct reclaim.
        Reclaim = STALL_RECLAIM, "reclaim";
    }
}

numbered! {
    /// Origin of a fault.
    Origin {
        /// The program.
        User = ORIGIN_USER, "user";
        /// The kernel, in a system call, on memory of the program.
        Kernel = ORIGIN_KERNEL, "kernel";
        /// No exception: a call filled pages.
        Call = ORIGIN_CALL, "call";
    }
}

numbered! {
    /// Cause of stolen time.
    Cause {
        /// Direct reclaim.
        Reclaim = CAUSE_RECLAIM, "reclaim";
        /// Direct compaction.
        Compaction = CAUSE_COMPACTION, "compaction";
        /// Moving pages, and waiting for pages that are moved.
        Migration = CAUSE_MIGRATION, "migration";
        /// Merges of small pages into large ones.
        Merge = CAUSE_MERGE, "merge";
    }
}

numbered! {
    /// Class of the mapping of a fault.
    Class {
        /// Anonymous memory.
        Anon = MAPPING_ANON, "anon";
        /// The heap of brk.
        Heap = MAPPING_HEAP, "heap";
        /// The stack of the first thread.
        Stack = MAPPING_STACK, "stack";
        /// A file, shared memory, or memory of HPMMAP.
        File = MAPPING_FILE, "file";
        /// A mapping of the kernel's, such as the vdso.
        Special = MAPPING_SPECIAL, "special";
    }
}

/// A page fault, or a page filled by a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// CPU on which it ended.
    pub cpu: u16,
    /// What it did.
    pub kind: Kind,
    /// What it waited for.
    pub stall: Stall,
    /// Its origin.
    pub origin: Origin,
    /// It wrote.
    pub write: bool,
    /// It fetched an instruction.
    pub exec: bool,
    /// The kernel counts it as a major one.
    pub major: bool,
    /// Level of the entry that maps the page now: 1 4 KB, 2 2 MB, 3 1 GB, 0 none.
    pub level: u8,
    /// Number of times it was begun anew.
    pub retries: u16,
    /// Start, by CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Cost.
    pub cost_ns: u64,
    /// Part of the cost: until its handler was entered.
    pub wait_ns: u64,
    /// Part of the cost: direct reclaim.
    pub reclaim_ns: u64,
    /// Part of the cost: direct compaction.
    pub compaction_ns: u64,
    /// Part of the cost: moving pages.
    pub migration_ns: u64,
    /// Address.
    pub address: u64,
    /// The mapping's first address.
    pub map_start: u64,
    /// Its end.
    pub map_end: u64,
    /// The mapping's class.
    pub map_class: Class,
    /// Its file: device and inode number.
    pub map_file: Option<(u32, u64)>,
}

/// A process or thread began, executed a program, or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEvent {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The process that made it; 0 except for fork.
    pub parent: u32,
    /// The time.
    pub time_ns: u64,
    /// Its short name.
    pub comm: String,
}

/// Time that was stolen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Time {
    /// The cause.
    pub cause: Cause,
    /// The process that lost it.
    pub pid: u32,
    /// The thread that lost it; for a merge, the thread that merged.
    pub tid: u32,
    /// Start.
    pub start_ns: u64,
    /// Length.
    pub ns: u64,
}

/// An event of the programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A page fault.
    Fault(Fault),
    /// The name of a file.
    File {
        /// Device and inode number.
        id: (u32, u64),
        /// Its name, without directories.
        name: String,
    },
    /// A process or thread began.
    Fork(TaskEvent),
    /// A process executes another program.
    Exec(TaskEvent),
    /// A thread ended.
    Exit(TaskEvent),
    /// Time was stolen, or a merge happened.
    Time(Time),
}

/// Reads a struct from the front of `bytes`; `None` if they are too few.
pub(crate) fn read<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    T::read_from_prefix(bytes).ok().map(|(value, _)| value)
}

/// Text up to a zero or the end of the array.
pub(crate) fn text(chars: &[c_char]) -> String {
    let bytes = chars.iter().map(|&c| c as u8);
    let text: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&text).into_owned()
}

impl Event {
    /// Decodes an event of the ring buffer; `None` if it is not valid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match read::<u16>(bytes)?.into() {
            EVENT_FAULT => fault(&read(bytes)?).map(Self::Fault),
            EVENT_FILE => {
                let file: file_event = read(bytes)?;
                Some(Self::File {
                    id: (file.dev, file.ino),
                    name: text(&file.name),
                })
            }
            EVENT_FORK => Some(Self::Fork(task(&read(bytes)?))),
            EVENT_EXEC => Some(Self::Exec(task(&read(bytes)?))),
            EVENT_EXIT => Some(Self::Exit(task(&read(bytes)?))),
            EVENT_MERGE | EVENT_STOLEN => time(&read(bytes)?).map(Self::Time),
            _ => None,
        }
    }
}

fn fault(told: &fault_event) -> Option<Fault> {
    let map_class = Class::from_number(told.map_class)?;
    Some(Fault {
        pid: told.pid,
        tid: told.tid,
        cpu: told.cpu,
        kind: Kind::from_number(told.kind)?,
        stall: Stall::from_number(told.stall)?,
        origin: Origin::from_number(told.origin)?,
        write: told.flags & FAULT_F_WRITE != 0,
        exec: told.flags & FAULT_F_EXEC != 0,
        major: told.flags & FAULT_F_MAJOR != 0,
        level: told.level,
        retries: told.retries,
        start_ns: told.start_ns,
        cost_ns: told.cost_ns,
        wait_ns: told.wait_ns,
        reclaim_ns: told.reclaim_ns,
        compaction_ns: told.compaction_ns,
        migration_ns: told.migration_ns,
        address: told.address,
        map_start: told.map_start,
        map_end: told.map_end,
        map_class,
        map_file: (map_class == Class::File).then_some((told.map_dev, told.map_ino)),
    })
}

fn task(told: &task_event) -> TaskEvent {
    TaskEvent {
        pid: told.pid,
        tid: told.tid,
        parent: told.parent,
        time_ns: told.time_ns,
        comm: text(&told.comm),
    }
}

fn time(told: &time_event) -> Option<Time> {
    Some(Time {
        cause: Cause::from_number(u8::try_from(told.cause).ok()?)?,
        pid: told.pid,
        tid: told.tid,
        start_ns: told.start_ns,
        ns: told.ns,
    })
}

/// The indices of the totals in the map `totals`.
pub(crate) fn totals() -> impl Iterator<Item = (u32, Kind, Stall, Origin)> {
    let cases = Kind::ALL.iter().flat_map(|kind| {
        Stall::ALL.iter().flat_map(move |stall| {
            Origin::ALL
                .iter()
                .map(move |origin| (*kind, *stall, *origin))
        })
    });
    (0..).zip(cases).map(|(i, (k, s, o))| (i, k, s, o))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded files contain these numbers, too.
    #[test]
    fn numbers_stay_what_they_are() {
        let kinds = [
            "other",
            "4k",
            "2m",
            "hugetlb",
            "cow",
            "write",
            "swap",
            "file",
            "numa",
            "migration",
            "spurious",
            "error",
        ];
        let names = |all: &[(u8, &'static str)]| -> Vec<&str> {
            for (at, (number, name)) in all.iter().enumerate() {
                assert_eq!(usize::from(*number), at, "{name}");
            }
            all.iter().map(|one| one.1).collect()
        };
        let all: Vec<_> = Kind::ALL
            .iter()
            .map(|one| (*one as u8, one.name()))
            .collect();
        assert_eq!(names(&all), kinds);
        let all: Vec<_> = Stall::ALL
            .iter()
            .map(|one| (*one as u8, one.name()))
            .collect();
        assert_eq!(names(&all), ["", "merge", "compaction", "reclaim"]);
        let all: Vec<_> = Origin::ALL
            .iter()
            .map(|one| (*one as u8, one.name()))
            .collect();
        assert_eq!(names(&all), ["user", "kernel", "call"]);
        let told = [KIND_COUNT, STALL_COUNT, ORIGIN_COUNT, CAUSE_COUNT];
        let known = [
            Kind::ALL.len(),
            Stall::ALL.len(),
            Origin::ALL.len(),
            Cause::ALL.len(),
        ];
        assert_eq!(told.map(|count| count as usize), known);
    }

    #[test]
    fn a_total_is_where_the_header_has_it() {
        let all: Vec<_> = totals().collect();
        assert_eq!(all.len(), 12 * 4 * 3);
        let index = |kind: Kind, stall: Stall, origin: Origin| {
            ((kind as u32) * 4 + stall as u32) * 3 + origin as u32
        };
        for (i, kind, stall, origin) in all {
            assert_eq!(i, index(kind, stall, origin));
        }
    }

    pub(crate) fn fault_bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(1u16.to_le_bytes());
        bytes.extend(3u16.to_le_bytes());
        bytes.extend(100u32.to_le_bytes());
        bytes.extend(101u32.to_le_bytes());
        bytes.extend([2, 1, 0, 5]);
        for n in [10u64, 20, 5, 1, 2, 3, 0x7000, 0x6000, 0x8000, 77] {
            bytes.extend(n.to_le_bytes());
        }
        bytes.extend(9u32.to_le_bytes());
        bytes.extend([3, 2]);
        bytes.extend(1u16.to_le_bytes());
        bytes
    }

    #[test]
    fn a_fault_is_read_as_it_is_laid_out() {
        let bytes = fault_bytes();
        assert_eq!(bytes.len(), 104);
        let Some(Event::Fault(fault)) = Event::decode(&bytes) else {
            panic!();
        };
        assert_eq!((fault.pid, fault.tid, fault.cpu), (100, 101, 3));
        assert_eq!((fault.kind, fault.stall), (Kind::Large, Stall::Merge));
        assert!(fault.write && fault.major && !fault.exec);
        assert_eq!((fault.start_ns, fault.cost_ns, fault.wait_ns), (10, 20, 5));
        assert_eq!((fault.address, fault.map_end), (0x7000, 0x8000));
        assert_eq!(fault.map_file, Some((9, 77)));
        assert_eq!((fault.level, fault.retries), (2, 1));
    }

    #[test]
    fn what_is_not_an_event_is_none() {
        let bytes = fault_bytes();
        assert_eq!(Event::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Event::decode(&[]), None);
        assert_eq!(Event::decode(&[99, 0, 0, 0]), None);
        let mut wrong = bytes;
        wrong[12] = 200;
        assert_eq!(Event::decode(&wrong), None);
    }

    #[test]
    fn names_end_at_a_zero() {
        let mut bytes = vec![4, 0, 0, 0];
        bytes.extend(7u32.to_le_bytes());
        bytes.extend(8u32.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(5u64.to_le_bytes());
        bytes.extend(b"lmp\0garbage\0\0\0\0\0");
        let Some(Event::Exec(task)) = Event::decode(&bytes) else {
            panic!();
        };
        assert_eq!((task.pid, task.tid, task.time_ns), (7, 8, 5));
        assert_eq!(task.comm, "lmp");
    }

    #[test]
    fn every_name_is_found_again() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.name()), Some(*kind));
        }
        assert_eq!(Cause::from_name("weather"), None);
    }
}
