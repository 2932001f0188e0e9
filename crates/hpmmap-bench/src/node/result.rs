//! Results of single measurements, and their distribution.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, DiscreteCDF};

use super::counters::Counts;
use super::plan::What;
use crate::plan::Method;

/// The confidence of the intervals.
const CONFIDENCE: f64 = 0.95;

/// One repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The figure, in the unit of the result.
    pub value: f64,
    /// Counts of the whole process, in user mode.
    pub counts: Counts,
}

/// The distribution of one figure over the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values.
    pub n: usize,
    /// The median.
    pub median: f64,
    /// The first and third quartile.
    pub quartiles: (f64, f64),
    /// The 95 % confidence interval of the median; `None` with fewer than 6 values.
    pub interval: Option<(f64, f64)>,
}

/// A quantile by linear interpolation: definition 7 of R. J. Hyndman and Y. Fan, Sample quantiles
/// in statistical packages, The American Statistician 50 (1996).
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let below = sorted[at.floor() as usize];
    below + (sorted[at.ceil() as usize] - below) * at.fract()
}

/// How far from each end of n sorted values the confidence interval of the median begins: the
/// largest k with 2 P(B <= k) <= 1 - confidence, B binomial with n and 1/2. It needs no assumption
/// about the distribution: J.-Y. Le Boudec, Performance Evaluation of Computer and Communication
/// Systems (2010), theorem 2.1; for benchmarks T. Hoefler and R. Belli, SC'15, rule 6.
fn interval_begin(n: usize) -> Option<usize> {
    let binomial = Binomial::new(0.5, n as u64).ok()?;
    (0..n / 2)
        .take_while(|&k| 2.0 * binomial.cdf(k as u64) <= 1.0 - CONFIDENCE)
        .last()
}

impl Summary {
    /// `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        (n > 0).then(|| Self {
            n,
            median: quantile(&sorted, 0.5),
            quartiles: (quantile(&sorted, 0.25), quantile(&sorted, 0.75)),
            interval: interval_begin(n).map(|k| (sorted[k], sorted[n - 1 - k])),
        })
    }
}

/// The result of one measurement by one method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The measurement.
    pub what: What,
    /// The method.
    pub method: Method,
    /// The unit of the figure.
    pub unit: String,
    /// Of the figure.
    pub summary: Summary,
    /// Of each counter.
    pub counts: BTreeMap<String, Summary>,
    /// Each repetition.
    pub samples: Vec<Sample>,
}

impl Outcome {
    /// `None` without samples.
    pub fn of(what: What, method: Method, samples: Vec<Sample>) -> Option<Self> {
        let summary = Summary::of(samples.iter().map(|sample| sample.value))?;
        let names = samples.iter().flat_map(|sample| sample.counts.keys());
        let counts = names
            .filter_map(|name| {
                let counted = samples.iter().filter_map(|sample| sample.counts.get(name));
                Some((name.clone(), Summary::of(counted.map(|&n| n as f64))?))
            })
            .collect();
        Some(Self {
            what,
            method,
            unit: what.unit().name.into(),
            summary,
            counts,
            samples,
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// With so many TLB misses each.
    pub fn outcome(what: What, method: Method, values: &[f64], misses: Option<u64>) -> Outcome {
        let counts = misses.map(|n| (crate::node::counters::TLB_LOADS.to_string(), n));
        let sample = |&value: &f64| Sample {
            value,
            counts: counts.clone().into_iter().collect(),
        };
        Outcome::of(what, method, values.iter().map(sample).collect()).unwrap()
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        // Le Boudec, table A.1, counts from 1.
        let begins = [
            (5, None),
            (6, Some(0)),
            (8, Some(0)),
            (9, Some(1)),
            (10, Some(1)),
        ];
        for (n, begin) in begins {
            assert_eq!(interval_begin(n), begin, "{n}");
        }
        assert_eq!(interval_begin(20), Some(5));
        assert_eq!(interval_begin(0), None);
    }

    #[test]
    fn a_summary_has_quartiles_and_an_interval() {
        let summary = Summary::of([6.0, 1.0, 2.0, 5.0, 3.0, 4.0]).unwrap();
        assert_eq!((summary.n, summary.median), (6, 3.5));
        assert_eq!(summary.quartiles, (2.25, 4.75));
        assert_eq!(summary.interval, Some((1.0, 6.0)));
        let one = Summary::of([7.0]).unwrap();
        assert_eq!(
            (one.median, one.quartiles, one.interval),
            (7.0, (7.0, 7.0), None)
        );
        assert_eq!(Summary::of([]), None);
    }
}
