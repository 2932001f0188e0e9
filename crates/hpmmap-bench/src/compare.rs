//! Compares two results.

use std::collections::BTreeMap;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{Column, table};

use super::plan::Case;
use super::result::{AGREE, Record};

/// The differences of two results.
#[derive(Debug, PartialEq)]
pub struct Comparison {
    /// Number of cases that both have.
    pub compared: usize,
    /// Cases whose costs differ by more than 1 %, with the costs in both.
    pub different: Vec<(Case, u64, u64)>,
    /// Cases that only one has; true: the first.
    pub only_in_one: Vec<(Case, bool)>,
}

impl Comparison {
    /// Is there no difference?
    pub fn is_same(&self) -> bool {
        self.different.is_empty() && self.only_in_one.is_empty()
    }

    /// The comparison for people.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.different.is_empty() {
            let rows = self.different.iter().map(|(case, a, b)| {
                let change = (*b as f64 / (*a).max(1) as f64 - 1.0) * 100.0;
                vec![
                    case.title(),
                    a.to_string(),
                    b.to_string(),
                    format!("{change:+.2}%"),
                ]
            });
            parts.push(table(
                &[
                    Column::Text("CASE"),
                    Column::Number("FIRST"),
                    Column::Number("SECOND"),
                    Column::Number("CHANGE"),
                ],
                rows,
            ));
        }
        for (case, first) in &self.only_in_one {
            let which = if *first { "first" } else { "second" };
            parts.push(format!("only in the {which}: {}", case.title()));
        }
        parts.push(format!(
            "{} of {} results differ by more than 1 %.",
            self.different.len(),
            self.compared
        ));
        parts.join("\n")
    }
}

/// Compares the costs of all cases.
pub fn compare(a: &Record, b: &Record) -> Result<Comparison> {
    let differ = |what: &str, a: &str, b: &str| {
        Error::Failed(format!(
            "the results cannot be compared: {what} is {a} in the first and {b} in the second"
        ))
    };
    let units = [&a.provenance.unit, &b.provenance.unit];
    if units[0] != units[1] {
        return Err(differ("the unit", units[0], units[1]));
    }
    let (rounds_a, rounds_b) = (a.parameters.rounds, b.parameters.rounds);
    if rounds_a != rounds_b {
        return Err(differ(
            "the number of rounds",
            &rounds_a.to_string(),
            &rounds_b.to_string(),
        ));
    }
    let costs = |record: &Record| -> BTreeMap<Case, u64> {
        let results = record.results.iter();
        results.map(|one| (one.case, one.measured.cost())).collect()
    };
    let (costs_a, costs_b) = (costs(a), costs(b));
    let mut comparison = Comparison {
        compared: 0,
        different: Vec::new(),
        only_in_one: Vec::new(),
    };
    for (&case, &cost_a) in &costs_a {
        let Some(&cost_b) = costs_b.get(&case) else {
            comparison.only_in_one.push((case, true));
            continue;
        };
        comparison.compared += 1;
        let larger = cost_a.max(cost_b);
        if cost_a.abs_diff(cost_b) as f64 > AGREE * larger as f64 {
            comparison.different.push((case, cost_a, cost_b));
        }
    }
    let only_b = costs_b.keys().filter(|case| !costs_a.contains_key(case));
    comparison
        .only_in_one
        .extend(only_b.map(|&case| (case, false)));
    Ok(comparison)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Method;
    use crate::result::tests::{outcome, record};

    #[test]
    fn one_per_cent_is_the_limit() {
        let of = |total| record(vec![outcome(Method::Hpmmap, 4096, &[total])]);
        assert!(compare(&of(1000), &of(1010)).unwrap().is_same());
        assert!(compare(&of(0), &of(0)).unwrap().is_same());
        let comparison = compare(&of(1000), &of(1011)).unwrap();
        assert_eq!(comparison.different.len(), 1);
        let text = comparison.text();
        assert!(
            text.contains("map hpmmap 4K   1000    1011  +1.10%"),
            "{text}"
        );
        assert!(
            text.ends_with("1 of 1 results differ by more than 1 %."),
            "{text}"
        );
    }

    #[test]
    fn what_one_lacks_is_a_difference() {
        let both = record(vec![
            outcome(Method::Hpmmap, 4096, &[1]),
            outcome(Method::Thp, 4096, &[1]),
        ]);
        let one = record(vec![outcome(Method::Thp, 4096, &[1])]);
        let comparison = compare(&one, &both).unwrap();
        assert!(!comparison.is_same());
        assert!(
            comparison
                .text()
                .starts_with("only in the second: map hpmmap 4K\n")
        );
        let comparison = compare(&both, &one).unwrap();
        assert!(
            comparison
                .text()
                .starts_with("only in the first: map hpmmap 4K\n")
        );
    }

    #[test]
    fn different_units_and_rounds_are_refused() {
        let a = record(Vec::new());
        let mut b = a.clone();
        b.provenance.unit = "tsc cycles".into();
        let message = compare(&a, &b).unwrap_err().to_string();
        assert!(
            message.ends_with("the unit is instructions in the first and tsc cycles in the second")
        );
        let mut b = a.clone();
        b.parameters.rounds += 1;
        assert!(compare(&a, &b).is_err());
    }
}
