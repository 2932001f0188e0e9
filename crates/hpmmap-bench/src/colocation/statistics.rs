//! Means and their confidence intervals.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The confidence of the intervals.
const CONFIDENCE: f64 = 0.95;

/// The quantile of Student's t that bounds a two-sided interval.
fn t(freedom: f64) -> f64 {
    // With tiny variances rounding may give an impossible number of degrees of freedom.
    if !(0.5..=1e12).contains(&freedom) {
        return f64::INFINITY;
    }
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |distribution| {
        distribution.inverse_cdf(0.5 + CONFIDENCE / 2.0)
    })
}

/// A sample of one figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// Number of values.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Standard deviation (with n - 1); `None` for a single value.
    pub stddev: Option<f64>,
    /// Half width of the 95 % confidence interval of the mean.
    pub half_width: Option<f64>,
}

/// An estimate with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// The ends of the interval; `None` if there are too few values.
    pub interval: Option<(f64, f64)>,
}

impl Sample {
    /// `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let stddev = (n > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            (squares / (n - 1) as f64).sqrt()
        });
        let half_width = stddev.map(|stddev| t((n - 1) as f64) * stddev / (n as f64).sqrt());
        Some(Self {
            n,
            mean,
            stddev,
            half_width,
        })
    }

    /// Variance of the mean.
    fn error(&self) -> Option<f64> {
        self.stddev.map(|stddev| stddev.powi(2) / self.n as f64)
    }
}

/// Half width of the interval of a sum of two independent estimates with these variances, by Welch
/// and Satterthwaite.
fn welch(first: (f64, usize), second: (f64, usize)) -> f64 {
    let sum = first.0 + second.0;
    if sum == 0.0 {
        return 0.0;
    }
    let part = |(variance, n): (f64, usize)| variance.powi(2) / (n - 1) as f64;
    t(sum.powi(2) / (part(first) + part(second))) * sum.sqrt()
}

/// `a` over `b`. The interval is that of the difference of the logarithms; their variances are
/// those of the means over the squares of the means.
pub fn ratio(a: &Sample, b: &Sample) -> Estimate {
    let value = a.mean / b.mean;
    let interval = a.error().zip(b.error()).map(|(of_a, of_b)| {
        let half = welch((of_a / a.mean.powi(2), a.n), (of_b / b.mean.powi(2), b.n));
        (value * (-half).exp(), value * half.exp())
    });
    Estimate { value, interval }
}

/// `a` minus `b`, over `unit`, which is taken as exact.
pub fn difference(a: &Sample, b: &Sample, unit: f64) -> Estimate {
    let value = (a.mean - b.mean) / unit;
    let interval = a.error().zip(b.error()).map(|(of_a, of_b)| {
        let half = welch((of_a, a.n), (of_b, b.n)) / unit;
        (value - half, value + half)
    });
    Estimate { value, interval }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-4 * b.abs().max(1e-9), "{a} is not {b}");
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, value) in [
            (1.0, 12.7062),
            (2.0, 4.30265),
            (4.0, 2.77645),
            (9.0, 2.26216),
            (29.0, 2.04523),
        ] {
            near(t(freedom), value);
        }
    }

    #[test]
    fn a_sample_has_mean_deviation_and_interval() {
        let sample = Sample::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        near(sample.mean, 5.0);
        near(sample.stddev.unwrap(), (32.0f64 / 7.0).sqrt());
        // 2.36462 (7 degrees of freedom) * 2.13809 / sqrt(8)
        near(sample.half_width.unwrap(), 1.78748);
    }

    #[test]
    fn one_value_has_no_interval_and_none_no_sample() {
        let one = Sample::of(&[3.0]).unwrap();
        assert_eq!((one.mean, one.stddev, one.half_width), (3.0, None, None));
        assert_eq!(ratio(&one, &one).interval, None);
        assert_eq!(Sample::of(&[]), None);
    }

    /// Standard error 0.985353, 27.8201 degrees of freedom, for which tables have
    /// t(0.975) = 2.0490.
    #[test]
    fn differences_are_those_of_welch() {
        let a = Sample::of(&[
            27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7,
            21.4,
        ])
        .unwrap();
        let b = Sample::of(&[
            27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.3,
            23.9,
        ])
        .unwrap();
        let found = difference(&a, &b, 1.0);
        near(found.value, -2.78667);
        let (low, high) = found.interval.unwrap();
        let half = 0.985_353 * 2.0490;
        assert!((high - low - 2.0 * half).abs() < 1e-3, "{low} {high}");
        let halved = difference(&a, &b, 2.0);
        near(halved.value, found.value / 2.0);
    }

    #[test]
    fn a_ratio_of_what_does_not_vary_is_certain() {
        let a = Sample::of(&[3.0, 3.0]).unwrap();
        let b = Sample::of(&[2.0, 2.0]).unwrap();
        assert_eq!(
            ratio(&a, &b),
            Estimate {
                value: 1.5,
                interval: Some((1.5, 1.5))
            }
        );
    }

    #[test]
    fn the_interval_of_a_ratio_holds_it() {
        let a = Sample::of(&[10.0, 11.0, 12.0]).unwrap();
        let b = Sample::of(&[10.0, 10.5, 10.1]).unwrap();
        let found = ratio(&a, &b);
        let (low, high) = found.interval.unwrap();
        assert!(low < found.value && found.value < high);
        near(low * high, found.value.powi(2));
    }
}
