//! Statistics of durations: mean, deviation, percentiles.

use serde::Serialize;

/// Figures of a set of durations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Statistics {
    /// Number of durations.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// Their mean.
    pub mean_ns: f64,
    /// Standard deviation of the sample.
    pub stddev_ns: f64,
    /// Half take no longer.
    pub p50_ns: u64,
    /// 99 of 100 take no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Statistics {
    /// Computes the figures of these durations.
    pub fn of(mut ns: Vec<u64>) -> Self {
        ns.sort_unstable();
        let Some(max_ns) = ns.last().copied() else {
            return Self::default();
        };
        let count = ns.len() as u64;
        let sum_ns: u64 = ns.iter().sum();
        let mean_ns = sum_ns as f64 / count as f64;
        let squares: f64 = ns.iter().map(|n| (*n as f64 - mean_ns).powi(2)).sum();
        let stddev_ns = match count {
            1 => 0.0,
            _ => (squares / (count - 1) as f64).sqrt(),
        };
        // The smallest duration that at least this percentage does not exceed.
        let percentile = |percent: u64| ns[((count * percent).div_ceil(100).max(1) - 1) as usize];
        Self {
            count,
            sum_ns,
            mean_ns,
            stddev_ns,
            p50_ns: percentile(50),
            p99_ns: percentile(99),
            max_ns,
        }
    }

    /// Replaces count, sum and maximum by exact ones, if some of the durations are missing.
    pub fn with_totals(mut self, count: u64, sum_ns: u64, max_ns: u64) -> Self {
        (self.count, self.sum_ns) = (count, sum_ns);
        self.max_ns = max_ns;
        self.mean_ns = sum_ns as f64 / count.max(1) as f64;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_zeros() {
        assert_eq!(Statistics::of(Vec::new()), Statistics::default());
    }

    #[test]
    fn one_is_its_own_everything() {
        let one = Statistics::of(vec![7]);
        assert_eq!(
            (one.count, one.p50_ns, one.p99_ns, one.max_ns),
            (1, 7, 7, 7)
        );
        assert_eq!((one.mean_ns, one.stddev_ns), (7.0, 0.0));
    }

    #[test]
    fn percentiles_are_values_that_occur() {
        let hundred = Statistics::of((1..=100).rev().collect());
        assert_eq!(
            (hundred.p50_ns, hundred.p99_ns, hundred.max_ns),
            (50, 99, 100)
        );
        assert_eq!(hundred.sum_ns, 5050);
        let two = Statistics::of(vec![10, 20]);
        assert_eq!((two.p50_ns, two.p99_ns), (10, 20));
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let values = Statistics::of(vec![2, 4, 4, 4, 5, 5, 7, 9]);
        assert_eq!(values.mean_ns, 5.0);
        assert!((values.stddev_ns - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn exact_totals_take_the_place_of_what_was_seen() {
        let seen = Statistics::of(vec![10, 20]).with_totals(4, 100, 50);
        assert_eq!((seen.count, seen.sum_ns, seen.max_ns), (4, 100, 50));
        assert_eq!((seen.mean_ns, seen.p50_ns), (25.0, 10));
    }
}
