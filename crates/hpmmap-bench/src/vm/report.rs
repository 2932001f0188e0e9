//! Results for people.

use hpmmap_base::output::{Column, table};
use hpmmap_base::size::{Size, short};

use super::kvm::Exits;
use super::plan::Workload;
use super::result::{Measured, Record};

const COLUMNS: [Column; 11] = [
    Column::Text("PAGING"),
    Column::Text("MEMORY"),
    Column::Text("PAGES"),
    Column::Number("SET-UP"),
    Column::Number("EXITS"),
    Column::Number("WORK"),
    Column::Number("RATIO"),
    Column::Number("EXITS"),
    Column::Number("TABLES"),
    Column::Number("WALK"),
    Column::Text("MOST EXITS"),
];

/// A number of at most five characters.
fn count(n: u64) -> String {
    match n {
        0..=99_999 => n.to_string(),
        100_000..=9_999_999 => format!("{}k", n / 1000),
        _ => format!("{}M", n / 1_000_000),
    }
}

/// The two most frequent reasons.
fn most(exits: &Exits) -> String {
    let mut reasons: Vec<_> = exits.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let told = reasons.iter().take(2);
    told.map(|(name, n)| format!("{name} {}", count(**n)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn row(one: &Measured) -> Vec<String> {
    vec![
        one.paging.name().into(),
        one.method.name().into(),
        one.work.pages.name().into(),
        count(one.figures.set_up),
        count(one.exits_of_set_up.values().sum()),
        count(one.figures.run),
        one.ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
        count(one.exits.values().sum()),
        one.kvm_table_bytes.map_or("-".into(), short),
        one.walk().to_string(),
        most(&one.exits),
    ]
}

fn section(record: &Record, workload: Workload) -> String {
    let native = record
        .native
        .iter()
        .filter(|one| one.work.workload == workload);
    let mut head = String::new();
    let mut rows = Vec::new();
    for one in native {
        let work = &one.work;
        head = format!(
            "{}: {}, rounds: {}",
            workload.name(),
            Size(work.bytes),
            work.rounds
        );
        let (set_up, run) = (count(one.figures.set_up), count(one.figures.run));
        let mut cells = vec!["native".into(), "-".into(), work.pages.name().into()];
        cells.extend([set_up, "-".into(), run, "1.00".into(), "-".into()]);
        cells.extend(["-".into(), "-".into(), String::new()]);
        rows.push(cells);
    }
    let of_it = record
        .results
        .iter()
        .filter(|one| one.work.workload == workload);
    rows.extend(of_it.map(row));
    format!("{head}\n{}", table(&COLUMNS, rows))
}

/// All of it.
pub fn text(record: &Record) -> String {
    let made = &record.provenance;
    let mut parts = vec![format!(
        "Linux {}, module {}, QEMU {}; {}\nMachines of {} with {}\n",
        made.version("kernel"),
        made.version("module"),
        record.qemu,
        made.unit,
        Size(record.parameters.memory_bytes),
        record.kernel
    )];
    let workloads = record.parameters.workloads.iter();
    parts.extend(workloads.map(|&workload| section(record, workload)));
    if !record.recommendations.is_empty() {
        let lines = record.recommendations.join("\n");
        parts.push(format!("Recommended\n{lines}\n"));
    }
    if !record.left_out.is_empty() {
        let line = |one: &super::result::LeftOut| {
            let names = [
                one.paging.map(|one| one.name()),
                one.method.map(|one| one.name()),
            ];
            let names: Vec<&str> = names.into_iter().flatten().collect();
            format!("{}: {}", names.join(" "), one.reason)
        };
        let lines: Vec<String> = record.left_out.iter().map(line).collect();
        parts.push(format!("Left out\n{}\n", lines.join("\n")));
    }
    parts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Method;
    use crate::vm::plan::Paging;
    use crate::vm::result::tests::measured;

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let row = row(&measured(Paging::Shadow, Method::Hpmmap, 123_456, 7));
        assert_eq!(row.len(), COLUMNS.len());
        assert_eq!(
            row.join(" "),
            "shadow hpmmap 4k 10 0 123k - 12 8K 4 cr3 7, io 5"
        );
    }
}
