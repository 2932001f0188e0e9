//! What the programs tell: `bpf/events.h` in Rust.

/// Numbers of an enumeration of `bpf/events.h` with the names that files and
/// reports use.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The one with a number.
            pub fn from_number(number: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| *one as u8 == number)
            }

            /// How it is called.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The one of this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}

numbered! {
    /// What a fault did.
    Kind {
        /// None of the others.
        Other = 0, "other";
        /// A 4 KB page of anonymous memory.
        Small = 1, "4k";
        /// Memory mapped by one entry of 2 MB.
        Large = 2, "2m";
        /// A page of hugetlbfs.
        Hugetlb = 3, "hugetlb";
        /// A copy of a page: after fork, of the zero page, of a file.
        Cow = 4, "cow";
        /// A page that was there was made writable.
        Write = 5, "write";
        /// A page came back from swap.
        Swap = 6, "swap";
        /// A page of a file or of shared memory.
        File = 7, "file";
        /// NUMA balancing had taken the page away to see who uses it.
        Numa = 8, "numa";
        /// The page was being moved.
        Migration = 9, "migration";
        /// There was nothing left to do.
        Spurious = 10, "spurious";
        /// A signal; the kernel does not count it.
        Error = 11, "error";
        /// Recorded by a method that cannot tell.
        Unknown = 12, "fault";
    }
}

impl Kind {
    /// How many the programs know.
    const TOLD: usize = 12;
}

numbered! {
    /// What a fault waited for.
    Stall {
        /// Nothing.
        None = 0, "";
        /// A merge of small pages into a large one in its address space.
        Merge = 1, "merge";
        /// Compaction of memory, which it had to do itself.
        Compaction = 2, "compaction";
        /// Reclaim of memory, which it had to do itself.
        Reclaim = 3, "reclaim";
    }
}

numbered! {
    /// Who took a fault.
    Origin {
        /// The program.
        User = 0, "user";
        /// The kernel, in a system call, on memory of the program.
        Kernel = 1, "kernel";
        /// Nobody: a call filled pages, without an exception.
        Call = 2, "call";
    }
}

numbered! {
    /// What time was stolen by.
    Cause {
        /// Direct reclaim.
        Reclaim = 0, "reclaim";
        /// Direct compaction.
        Compaction = 1, "compaction";
        /// Moving pages, and waiting for pages that are moved.
        Migration = 2, "migration";
        /// Merges of small pages into large ones.
        Merge = 3, "merge";
    }
}

numbered! {
    /// What kind of mapping a fault was in.
    Class {
        /// Anonymous memory.
        Anon = 0, "anon";
        /// The heap of brk.
        Heap = 1, "heap";
        /// The stack of the first thread.
        Stack = 2, "stack";
        /// A file, shared memory, or memory of HPMMAP.
        File = 3, "file";
        /// Of the kernel, such as the vdso.
        Special = 4, "special";
    }
}

/// The fault wrote.
const F_WRITE: u8 = 1 << 0;
/// It fetched an instruction.
const F_EXEC: u8 = 1 << 1;
/// The kernel counts it as a major one.
const F_MAJOR: u8 = 1 << 2;

/// A page fault, or a page filled by a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// CPU it ended on.
    pub cpu: u16,
    /// What it did.
    pub kind: Kind,
    /// What it waited for.
    pub stall: Stall,
    /// Who took it.
    pub origin: Origin,
    /// It wrote.
    pub write: bool,
    /// It fetched an instruction.
    pub exec: bool,
    /// The kernel counts it as a major one.
    pub major: bool,
    /// Of the entry that maps the page now: 1 4 KB, 2 2 MB, 3 1 GB, 0 none.
    pub level: u8,
    /// How often it was begun anew.
    pub retries: u16,
    /// When it began, by CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// How long it took.
    pub cost_ns: u64,
    /// Of that, until its handler was entered.
    pub wait_ns: u64,
    /// Of that, for direct reclaim.
    pub reclaim_ns: u64,
    /// Of that, for direct compaction.
    pub compaction_ns: u64,
    /// Of that, for moving pages.
    pub migration_ns: u64,
    /// Address.
    pub address: u64,
    /// The mapping's first address.
    pub map_start: u64,
    /// Its end.
    pub map_end: u64,
    /// What it is.
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
    /// When.
    pub time_ns: u64,
    /// Its short name.
    pub comm: String,
}

/// Time that was stolen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Time {
    /// By what.
    pub cause: Cause,
    /// From which process.
    pub pid: u32,
    /// From which thread; for a merge, the one that merged.
    pub tid: u32,
    /// From when.
    pub start_ns: u64,
    /// How long.
    pub ns: u64,
}

/// What the programs tell.
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

/// Takes little-endian numbers from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|b| b[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// Text that ends at a zero or after `n` bytes.
    fn text(&mut self, n: usize) -> Option<String> {
        let bytes = self.bytes(n)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(n);
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// Of a file's name, in `struct file_event`.
const NAME_BYTES: usize = 64;
/// Of a task's short name.
const COMM_BYTES: usize = 16;

impl Event {
    /// From the bytes in the ring buffer; `None` if they are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        match r.u16()? {
            1 => fault(&mut r).map(Self::Fault),
            2 => {
                r.u16()?;
                let (dev, ino) = (r.u32()?, r.u64()?);
                Some(Self::File {
                    id: (dev, ino),
                    name: r.text(NAME_BYTES)?,
                })
            }
            3 => task(&mut r).map(Self::Fork),
            4 => task(&mut r).map(Self::Exec),
            5 => task(&mut r).map(Self::Exit),
            6 | 7 => time(&mut r).map(Self::Time),
            _ => None,
        }
    }
}

fn fault(r: &mut Reader) -> Option<Fault> {
    let cpu = r.u16()?;
    let (pid, tid) = (r.u32()?, r.u32()?);
    let kind = Kind::from_number(r.u8()?)?;
    let stall = Stall::from_number(r.u8()?)?;
    let origin = Origin::from_number(r.u8()?)?;
    let flags = r.u8()?;
    let (start_ns, cost_ns, wait_ns) = (r.u64()?, r.u64()?, r.u64()?);
    let (reclaim_ns, compaction_ns, migration_ns) = (r.u64()?, r.u64()?, r.u64()?);
    let address = r.u64()?;
    let (map_start, map_end) = (r.u64()?, r.u64()?);
    let (ino, dev) = (r.u64()?, r.u32()?);
    let map_class = Class::from_number(r.u8()?)?;
    Some(Fault {
        pid,
        tid,
        cpu,
        kind,
        stall,
        origin,
        write: flags & F_WRITE != 0,
        exec: flags & F_EXEC != 0,
        major: flags & F_MAJOR != 0,
        level: r.u8()?,
        retries: r.u16()?,
        start_ns,
        cost_ns,
        wait_ns,
        reclaim_ns,
        compaction_ns,
        migration_ns,
        address,
        map_start,
        map_end,
        map_class,
        map_file: (map_class == Class::File).then_some((dev, ino)),
    })
}

fn task(r: &mut Reader) -> Option<TaskEvent> {
    r.u16()?;
    Some(TaskEvent {
        pid: r.u32()?,
        tid: r.u32()?,
        parent: r.u32()?,
        time_ns: r.u64()?,
        comm: r.text(COMM_BYTES)?,
    })
}

fn time(r: &mut Reader) -> Option<Time> {
    let cause = Cause::from_number(u8::try_from(r.u16()?).ok()?)?;
    let (pid, tid) = (r.u32()?, r.u32()?);
    r.u32()?;
    Some(Time {
        cause,
        pid,
        tid,
        start_ns: r.u64()?,
        ns: r.u64()?,
    })
}

/// Where the total of a kind is in the map `totals`.
pub(crate) fn totals() -> impl Iterator<Item = (u32, Kind, Stall, Origin)> {
    let cases = Kind::ALL[..Kind::TOLD].iter().flat_map(|kind| {
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

    const HEADER: &str = include_str!("../bpf/events.h");

    fn constant(name: &str) -> u8 {
        let line = HEADER
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with(&format!("{name} = ")))
            .unwrap_or_else(|| panic!("{name} is not in events.h"));
        let number = line.rsplit(' ').next().unwrap().trim_end_matches(',');
        number.parse().unwrap()
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        for (name, number) in [
            ("KIND_4K", Kind::Small as u8),
            ("KIND_HUGETLB", Kind::Hugetlb as u8),
            ("KIND_ERROR", Kind::Error as u8),
            ("KIND_COUNT", Kind::TOLD as u8),
            ("STALL_RECLAIM", Stall::Reclaim as u8),
            ("STALL_COUNT", Stall::ALL.len() as u8),
            ("ORIGIN_CALL", Origin::Call as u8),
            ("ORIGIN_COUNT", Origin::ALL.len() as u8),
            ("CAUSE_MERGE", Cause::Merge as u8),
            ("CAUSE_COUNT", Cause::ALL.len() as u8),
            ("MAPPING_SPECIAL", Class::Special as u8),
        ] {
            assert_eq!(constant(name), number, "{name}");
        }
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
