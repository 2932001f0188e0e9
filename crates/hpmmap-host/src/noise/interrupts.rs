//! /proc/interrupts.

use std::collections::BTreeMap;

use crate::{Result, Root};

/// Rows that are no interrupts of their own: parts of others (TLB flushes of CAL, PMI of NMI), polls,
/// retries.
const NO_INTERRUPTS: [&str; 4] = ["TLB", "PMI", "MCP", "RTR"];

/// A row: the interrupts of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its number or short name: `24`, `LOC`.
    pub name: String,
    /// The text at its end.
    pub label: String,
    /// Counts by CPU.
    pub counts: BTreeMap<u32, u64>,
}

/// The rows that count interrupts of each CPU.
pub fn read(root: &Root) -> Result<Vec<Row>> {
    root.parse("proc/interrupts", "a table of interrupts", parse)
}

fn parse(text: &str) -> Option<Vec<Row>> {
    let mut lines = text.lines();
    let cpus: Vec<u32> = lines
        .next()?
        .split_whitespace()
        .map(|word| word.strip_prefix("CPU")?.parse().ok())
        .collect::<Option<_>>()?;
    let mut rows = Vec::new();
    for line in lines {
        let (name, rest) = line.split_once(':')?;
        let mut words = rest.split_whitespace();
        let counts: Vec<u64> = words
            .by_ref()
            .take(cpus.len())
            .map_while(|word| word.parse().ok())
            .collect();
        let name = name.trim();
        // Some rows have one number for the whole host.
        if counts.len() < cpus.len() || NO_INTERRUPTS.contains(&name) {
            continue;
        }
        rows.push(Row {
            name: name.to_string(),
            label: words.collect::<Vec<_>>().join(" "),
            counts: cpus.iter().copied().zip(counts).collect(),
        });
    }
    Some(rows)
}

/// By how much each row of `after` has grown on a CPU, with its label; rows that have not are left
/// out.
pub fn growth<'a>(
    before: &'a [Row],
    after: &'a [Row],
    cpu: u32,
) -> impl Iterator<Item = (&'a Row, u64)> + 'a {
    after.iter().filter_map(move |row| {
        let count = |row: &Row| row.counts.get(&cpu).copied().unwrap_or(0);
        let old = before.iter().find(|old| old.name == row.name);
        let grown = count(row).saturating_sub(old.map_or(0, count));
        (grown != 0).then_some((row, grown))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const TABLE: &str = "           CPU0       CPU2       \n\
  0:         37          5  IR-IO-APIC   2-edge      timer\n\
 24:          0         90  PCI-MSI 512000-edge      virtio0-req.0\n\
LOC:       1000        200   Local timer interrupts\n\
TLB:          3          4   TLB shootdowns\n\
ERR:          7\n";

    #[test]
    fn rows_are_those_of_cpus() {
        let fixture = Fixture::new();
        fixture.write("proc/interrupts", TABLE);
        let rows = read(&fixture.root()).unwrap();
        let names: Vec<_> = rows.iter().map(|row| &*row.name).collect();
        assert_eq!(names, ["0", "24", "LOC"]);
        assert_eq!(rows[1].label, "PCI-MSI 512000-edge virtio0-req.0");
        assert_eq!(rows[2].counts, BTreeMap::from([(0, 1000), (2, 200)]));

        let later = parse(&TABLE.replace("200 ", "260 ").replace("90 ", "91 ")).unwrap();
        let grown: Vec<_> = growth(&rows, &later, 2)
            .map(|(row, count)| (&*row.name, count))
            .collect();
        assert_eq!(grown, [("24", 1), ("LOC", 60)]);
        assert_eq!(growth(&rows, &later, 0).count(), 0);
        assert_eq!(growth(&[], &later, 2).count(), 3);
    }

    #[test]
    fn what_is_no_table_is_an_error() {
        let fixture = Fixture::new();
        for text in ["", "x\n", "CPU0\nnothing\n"] {
            fixture.write("proc/interrupts", text);
            assert!(read(&fixture.root()).is_err(), "{text:?}");
        }
    }
}
