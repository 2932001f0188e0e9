//! Parses `/etc/hpmmap/pools`: a line for each node, `NODE SIZE`, and `leave SIZE`.

use hpmmap_base::error::Result;
use hpmmap_base::size::{Size, multiple_of};

/// A line with the size of a node's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Its number in the file, from 1.
    pub number: usize,
    /// NUMA node.
    pub node: u32,
    /// Total size of the pool.
    pub size: Size,
}

/// A line that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Its number in the file, from 1.
    pub number: usize,
    /// The reason.
    pub reason: String,
}

/// The contents of a file.
#[derive(Debug, Default)]
pub struct Pools {
    /// At most one line for each node.
    pub lines: Vec<Line>,
    /// Memory that Linux keeps of each node, if a line gives it.
    pub leave: Option<Size>,
    /// A wrong line may have said that: it is of no node.
    pub leave_unknown: bool,
    /// The wrong lines.
    pub wrong: Vec<Wrong>,
}

impl Pools {
    /// Parses any text.
    pub fn parse(text: &str) -> Self {
        let mut pools = Self::default();
        for (line, number) in text.lines().zip(1..) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let read = match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["leave", size] => pools.read_leave(size),
                _ => pools.read(line, number).map(|line| pools.lines.push(line)),
            };
            if let Err(reason) = read {
                let node = line.split_whitespace().next().unwrap_or_default();
                pools.leave_unknown |= !is_number(node);
                pools.wrong.push(Wrong { number, reason });
            }
        }
        pools
    }

    fn read_leave(&mut self, size: &str) -> std::result::Result<(), String> {
        if self.leave.is_some() {
            return Err("'leave' has a line already".into());
        }
        self.leave = Some(size.parse().map_err(|why| format!("'{size}': {why}"))?);
        Ok(())
    }

    fn read(&self, line: &str, number: usize) -> std::result::Result<Line, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [node, size] = words[..] else {
            return Err(format!("'{line}' is not 'NODE SIZE' or 'leave SIZE'"));
        };
        let node = match is_number(node) {
            true => node.parse().ok(),
            false => None,
        }
        .ok_or_else(|| format!("'{node}' is not the number of a NUMA node"))?;
        let size = size.parse().map_err(|why| format!("'{size}': {why}"))?;
        match self.lines.iter().find(|known| known.node == node) {
            None => Ok(Line { number, node, size }),
            Some(known) => Err(format!(
                "node {node} has a line already, line {}",
                known.number
            )),
        }
    }
}

fn is_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Checks a size of a pool: 0 or a multiple of the memory block size.
pub fn checked(size: Size, block_bytes: u64) -> Result<()> {
    match size {
        Size(0) => Ok(()),
        size => multiple_of(size, block_bytes, "the memory block size").map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<(usize, u32, u64)> {
        let pools = Pools::parse(text);
        assert_eq!(pools.wrong, [], "{text}");
        pools
            .lines
            .iter()
            .map(|line| (line.number, line.node, line.size.0))
            .collect()
    }

    #[test]
    fn a_line_for_each_node() {
        assert_eq!(lines(""), []);
        assert_eq!(
            lines("# two\n\n0 1G # of four\n 1\t2g"),
            [(3, 0, 1 << 30), (4, 1, 2 << 30)]
        );
        assert_eq!(lines("12 0\r\n"), [(1, 12, 0)]);
        assert_eq!(lines("0 1G\nleave 1G # for Linux\n"), [(1, 0, 1 << 30)]);
        let leave = |text: &str| Pools::parse(text).leave;
        assert_eq!(leave("0 1G\nleave 1G\n"), Some(Size(1 << 30)));
        assert_eq!(leave("0 1G\n"), None);
    }

    #[test]
    fn a_line_that_is_wrong_is_named_and_keeps_no_other_from_being_read() {
        for (text, number, reason) in [
            ("0", 1, "'0' is not 'NODE SIZE' or 'leave SIZE'"),
            ("leave", 1, "'leave' is not 'NODE SIZE' or 'leave SIZE'"),
            ("leave 1G\nleave 1G", 2, "'leave' has a line already"),
            ("leave 5%", 1, "'5%': expected bytes"),
            ("\n0 1G more", 2, "'0 1G more' is not 'NODE SIZE'"),
            ("--all 1G", 1, "'--all' is not the number of a NUMA node"),
            ("-1 1G", 1, "'-1' is not the number of a NUMA node"),
            ("+1 1G", 1, "'+1' is not the number of a NUMA node"),
            (
                "4294967296 1G",
                1,
                "'4294967296' is not the number of a NUMA node",
            ),
            ("$(id) 1G", 1, "'$(id)' is not the number of a NUMA node"),
            ("0 much", 1, "'much': expected bytes"),
            ("0 -1G", 1, "'-1G': expected bytes"),
            ("0 99999999T", 1, "'99999999T': larger than any memory"),
        ] {
            let pools = Pools::parse(&format!("{text}\n7 1G\n"));
            assert_eq!(pools.wrong.len(), 1, "{text}");
            assert_eq!(pools.wrong[0].number, number, "{text}");
            assert!(pools.wrong[0].reason.starts_with(reason), "{pools:?}");
            assert_eq!(pools.lines.len(), 1, "{text}");
        }
    }

    #[test]
    fn a_wrong_line_that_is_of_no_node_may_be_that_of_leave() {
        for (text, unknown) in [
            ("leave 5%", true),
            ("leave", true),
            ("leave 1G\nleave 2G", true),
            ("Leave 1G", true),
            ("leev 1G", true),
            ("0 much", false),
            ("0 1G more", false),
            ("leave 1G", false),
        ] {
            let pools = Pools::parse(&format!("{text}\n7 1G\n"));
            assert_eq!(pools.leave_unknown, unknown, "{text}");
        }
    }

    #[test]
    fn the_first_line_of_a_node_counts() {
        let pools = Pools::parse("0 1G\n0 2G\n");
        assert_eq!(pools.lines.len(), 1);
        assert_eq!(pools.lines[0].size, Size(1 << 30));
        assert_eq!(
            pools.wrong,
            [Wrong {
                number: 2,
                reason: "node 0 has a line already, line 1".into()
            }]
        );
    }

    #[test]
    fn any_text_is_read_or_refused() {
        let random: Vec<u8> = (0..4096u32).map(|i| (i * 167 + 13) as u8).collect();
        let pools = Pools::parse(&format!("{}\n0 1G", String::from_utf8_lossy(&random)));
        assert!(!pools.wrong.is_empty());
        assert_eq!(pools.lines.last().map(|line| line.node), Some(0));
    }

    #[test]
    fn sizes_are_whole_memory_blocks_or_nothing() {
        let block = 128 << 20;
        assert!(checked(Size(0), block).is_ok());
        assert!(checked(Size(3 * block), block).is_ok());
        let error = checked(Size(1 << 20), block).unwrap_err().to_string();
        assert_eq!(
            error,
            "1M is not a multiple of the memory block size 128M: use 128M"
        );
    }
}
