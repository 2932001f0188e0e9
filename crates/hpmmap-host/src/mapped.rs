//! Mapped memory of a process, by size of page-table entries: `/proc/PID/smaps`.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, thread};

use crate::Root;
use crate::process::has_other_numbers;

/// Reading waits while the process changes its mappings, which may last as long as a file server
/// is away.
const PATIENCE: Duration = Duration::from_millis(500);

/// Mapped bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mapped {
    /// Pool memory, by entries of 2 MB.
    pub by_2m: u64,
    /// Pool memory, by entries of 4 KB.
    pub by_4k: u64,
    /// Ordinary anonymous memory, without the stack and the bss of the program.
    pub linux: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Pools,
    Linux,
    Other,
}

/// The mapped memory of a process; `None` if the caller may not read it, the process has ended, or
/// reading takes too long.
pub fn of(root: &Root, pid: u32) -> Option<Mapped> {
    if has_other_numbers(root) {
        return None;
    }
    let exe = fs::read_link(root.join(format!("proc/{pid}/exe"))).unwrap_or_default();
    let smaps = root.join(format!("proc/{pid}/smaps"));
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(fs::read_to_string(smaps)));
    let text = receiver.recv_timeout(PATIENCE).ok()?.ok()?;
    parse(&text, &exe)
}

fn parse(text: &str, exe: &Path) -> Option<Mapped> {
    let mut mapped = Mapped::default();
    let mut whose = Whose::Other;
    let mut end_of_program = None;
    let mut rss = 0;
    for line in text.lines() {
        if let Some((field, value)) = field(line) {
            match (field, whose) {
                ("Rss", Whose::Pools) => (rss, mapped.by_4k) = (value, mapped.by_4k + value),
                ("Rss", Whose::Linux) => mapped.linux += value,
                ("FilePmdMapped", Whose::Pools) => {
                    mapped.by_2m += value;
                    mapped.by_4k -= value.min(rss);
                }
                _ => (),
            }
        } else if let Some(mapping) = Mapping::parse(line) {
            whose = mapping.whose(end_of_program);
            if !mapping.name.is_empty() && Path::new(mapping.name) == exe {
                end_of_program = Some(mapping.end);
            }
        } else if !line.starts_with("VmFlags:") {
            return None;
        }
    }
    Some(mapped)
}

/// Parses a line such as "Rss:   4 kB", or a number without a unit.
pub(crate) fn field(line: &str) -> Option<(&str, u64)> {
    let (name, value) = line.split_once(':')?;
    let mut words = value.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    (!name.contains(' ') && words.all(|word| word == "kB")).then_some((name, number * 1024))
}

/// A line of maps.
pub(crate) struct Mapping<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    shared: bool,
    offset: u64,
    pub(crate) device: &'a str,
    pub(crate) inode: u64,
    name: &'a str,
}

impl<'a> Mapping<'a> {
    pub(crate) fn parse(line: &'a str) -> Option<Self> {
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let shared = words.next()?.ends_with('s');
        let offset = words.next()?;
        let device = words.next()?;
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            shared,
            offset: hex(offset)?,
            device,
            inode: words.next()?.parse().ok()?,
            name: words.next().unwrap_or_default().trim_start(),
        })
    }

    fn is_unnamed(&self) -> bool {
        self.name.is_empty() || self.name == "[heap]"
    }

    /// Is it a program's own memory of the pools? It has its address as its offset in the file.
    pub(crate) fn is_pools(&self) -> bool {
        self.shared && self.is_unnamed() && self.inode != 0 && self.offset == self.start
    }

    fn whose(&self, end_of_program: Option<u64>) -> Whose {
        if self.is_pools() {
            Whose::Pools
        } else if !self.shared
            && self.inode == 0
            && (self.is_unnamed() || self.name.starts_with("[anon:"))
            && end_of_program != Some(self.start)
        {
            Whose::Linux
        } else {
            Whose::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const SMAPS: &str = "\
00400000-00401000 r-xp 00000000 fe:00 42                         /usr/bin/a program
Rss:                   4 kB
FilePmdMapped:         0 kB
VmFlags: rd ex mr mw me sd
00401000-00500000 rw-p 00000000 00:00 0
Rss:                  64 kB
FilePmdMapped:         0 kB
00680000-00a00000 rw-s 00680000 00:3a 1419                       [heap]
Rss:                3584 kB
FilePmdMapped:      2048 kB
7f0000000000-7f0000400000 rw-s 7f0000000000 00:3a 1419
Rss:                4096 kB
FilePmdMapped:      4096 kB
7f0000400000-7f0000800000 rw-s 00000000 00:01 77                 /memfd:x (deleted)
Rss:                4096 kB
FilePmdMapped:      4096 kB
7f0000800000-7f0000c00000 rw-p 00000000 00:00 0                  [anon:its name]
Rss:                 128 kB
THPeligible:           1
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                  [stack]
Rss:                 132 kB
";

    #[test]
    fn mappings_are_told_apart_by_whose_they_are() {
        let mapped = parse(SMAPS, Path::new("/usr/bin/a program")).unwrap();
        assert_eq!(
            mapped,
            Mapped {
                by_2m: 6 << 20,
                by_4k: (3584 - 2048) << 10,
                linux: 128 << 10,
            }
        );
        let without = parse(SMAPS, Path::new("")).unwrap();
        assert_eq!(without.linux, (128 + 64) << 10);
        assert_eq!(parse("something else", Path::new("")), None);
    }

    #[test]
    fn of_a_process_that_has_ended_nothing_is_told() {
        let fixture = Fixture::new();
        assert_eq!(of(&fixture.root(), 1), None);
        fixture.write("proc/1/smaps", SMAPS);
        assert_eq!(of(&fixture.root(), 1).unwrap().by_2m, 6 << 20);
    }
}
