//! What the results say of each claim. `docs/node.md` has the rule.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::counters::{TLB_LOADS, TLB_STORES};
use super::plan::What;
use super::record::LeftOut;
use super::result::{Outcome, Sample, Summary};
use crate::noise::plan::{Mode, Variant};
use crate::plan::{Method, Pattern};

/// More than this is a difference, where the same is claimed.
const SAME: f64 = 1.02;

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The claim holds for the whole of the interval.
    Yes,
    /// It holds for no part of the interval.
    No,
    /// It depends on the spread, or there are too few repetitions.
    NotDecided,
    /// Something is missing.
    NotMeasured,
}

impl Answer {
    /// In reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::NotDecided => "not decided",
            Self::NotMeasured => "not measured",
        }
    }
}

/// The figure that a claim is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    /// Of the measurement.
    Value,
    /// TLB misses of reads, or of reads and writes.
    Misses,
}

/// A claim: the cost of the first method is below `limit` times that of the second.
struct Claim {
    text: &'static str,
    of: fn(&What) -> bool,
    figure: Figure,
    first: Method,
    second: Method,
    limit: f64,
}

fn is_random(what: &What) -> bool {
    matches!(what, What::Accesses { mode, tasks: 1, .. } if *mode != Mode::Triad)
}

fn is_mode(what: &What, wanted: Mode) -> bool {
    matches!(what, What::Accesses { mode, .. } if *mode == wanted)
}

fn is_mapping(what: &What) -> bool {
    matches!(what, What::Alloc { pattern, .. } if *pattern == Pattern::Map)
}

const CLAIMS: [Claim; 15] = [
    Claim {
        text: "pool memory has fewer TLB misses than 4 KB pages",
        of: is_random,
        figure: Figure::Misses,
        first: Method::Hpmmap,
        second: Method::Small,
        limit: 1.0,
    },
    Claim {
        text: "pool memory has fewer TLB misses than THP",
        of: is_random,
        figure: Figure::Misses,
        first: Method::Hpmmap,
        second: Method::Thp,
        limit: 1.0,
    },
    Claim {
        text: "entries of 1 GB have fewer TLB misses than those of 2 MB",
        of: is_random,
        figure: Figure::Misses,
        first: Method::Hpmmap1g,
        second: Method::Hpmmap,
        limit: 1.0,
    },
    Claim {
        text: "latency of pool memory is at most 2 % above that of THP",
        of: |what| is_mode(what, Mode::Dependent),
        figure: Figure::Value,
        first: Method::Hpmmap,
        second: Method::Thp,
        limit: SAME,
    },
    Claim {
        text: "latency is lower with entries of 1 GB than with those of 2 MB",
        of: |what| is_mode(what, Mode::Dependent),
        figure: Figure::Value,
        first: Method::Hpmmap1g,
        second: Method::Hpmmap,
        limit: 1.0,
    },
    Claim {
        text: "random updates in pool memory are at most 2 % slower than with THP",
        of: |what| is_mode(what, Mode::Independent),
        figure: Figure::Value,
        first: Method::Hpmmap,
        second: Method::Thp,
        limit: SAME,
    },
    Claim {
        text: "bandwidth of pool memory is at most 2 % below that of THP",
        of: |what| is_mode(what, Mode::Triad),
        figure: Figure::Value,
        first: Method::Hpmmap,
        second: Method::Thp,
        limit: SAME,
    },
    Claim {
        text: "bandwidth of pool memory is at most 2 % below that of reserved huge pages",
        of: |what| is_mode(what, Mode::Triad),
        figure: Figure::Value,
        first: Method::Hpmmap,
        second: Method::Hugetlb,
        limit: SAME,
    },
    Claim {
        text: "getting pool memory from zeroed blocks costs less than THP",
        of: |what| matches!(what, What::Alloc { pattern, .. } if *pattern != Pattern::Threads),
        figure: Figure::Value,
        first: Method::Hpmmap,
        second: Method::Thp,
        limit: 1.0,
    },
    Claim {
        text: "getting pool memory from zeroed blocks costs less than reserved huge pages",
        of: is_mapping,
        figure: Figure::Value,
        first: Method::Hpmmap,
        second: Method::Hugetlb,
        limit: 1.0,
    },
    Claim {
        text: "threads get pool memory from zeroed blocks faster than THP",
        of: |what| matches!(what, What::Alloc { pattern, .. } if *pattern == Pattern::Threads),
        figure: Figure::Value,
        first: Method::Hpmmap,
        second: Method::Thp,
        limit: 1.0,
    },
    Claim {
        text: "new pool memory causes less noise than THP",
        of: |what| matches!(what, What::Detours { variant } if *variant == Variant::Fresh),
        figure: Figure::Value,
        first: Method::Hpmmap,
        second: Method::Thp,
        limit: 1.0,
    },
    Claim {
        text: "programs in pool memory are faster than with 4 KB pages",
        of: |what| matches!(what, What::App { .. }),
        figure: Figure::Value,
        first: Method::Hpmmap,
        second: Method::Small,
        limit: 1.0,
    },
    Claim {
        text: "programs in pool memory are at most 2 % slower than with THP",
        of: |what| matches!(what, What::App { .. }),
        figure: Figure::Value,
        first: Method::Hpmmap,
        second: Method::Thp,
        limit: SAME,
    },
    Claim {
        text: "programs have fewer TLB misses in pool memory than with THP",
        of: |what| matches!(what, What::App { .. }),
        figure: Figure::Misses,
        first: Method::Hpmmap,
        second: Method::Thp,
        limit: 1.0,
    },
];

/// What the results of one measurement say of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The claim.
    pub claim: String,
    /// The measurement; `None` if none was made for it.
    pub what: Option<What>,
    /// The cost of `first` is claimed to be below `limit` times that of `second`.
    pub first: Method,
    /// The other.
    pub second: Method,
    /// The claimed limit.
    pub limit: f64,
    /// Median cost of the first over that of the second.
    pub ratio: Option<f64>,
    /// The bounds of the ratio, from the confidence intervals of both.
    pub bounds: Option<(f64, f64)>,
    /// The answer.
    pub answer: Answer,
    /// Why it is neither yes nor no.
    pub reason: Option<String>,
}

impl Claim {
    /// The same counters of both, in all their samples.
    fn figures(&self, both: [&Outcome; 2]) -> Option<[Summary; 2]> {
        if self.figure == Figure::Value {
            return Some(both.map(|outcome| outcome.summary));
        }
        // Not all CPUs count misses of writes, and a counter that never ran is left out.
        let mut samples = both.iter().flat_map(|outcome| &outcome.samples);
        let names = match samples.all(|sample| sample.counts.contains_key(TLB_STORES)) {
            true => &[TLB_LOADS, TLB_STORES][..],
            false => &[TLB_LOADS],
        };
        let misses = |outcome: &Outcome| {
            let of = |sample: &Sample| {
                let counts: Option<u64> = names.iter().map(|&name| sample.counts.get(name)).sum();
                Some(counts? as f64)
            };
            let counted: Option<Vec<f64>> = outcome.samples.iter().map(of).collect();
            Summary::of(counted?)
        };
        Some([misses(both[0])?, misses(both[1])?])
    }

    fn verdict(&self, what: Option<What>) -> Verdict {
        Verdict {
            claim: self.text.into(),
            what,
            first: self.first,
            second: self.second,
            limit: self.limit,
            ratio: None,
            bounds: None,
            answer: Answer::NotMeasured,
            reason: None,
        }
    }

    fn judge(&self, what: What, first: &Outcome, second: &Outcome) -> Option<Verdict> {
        let [a, b] = self.figures([first, second])?;
        // Where more is better the cost is the inverse.
        let is_inverse = self.figure == Figure::Value && what.unit().more_is_better;
        let (over, under) = if is_inverse { (b, a) } else { (a, b) };
        let mut verdict = self.verdict(Some(what));
        verdict.ratio = ratio(over.median, under.median);
        let bounds = over.interval.zip(under.interval);
        verdict.bounds =
            bounds.and_then(|(over, under)| ratio(over.0, under.1).zip(ratio(over.1, under.0)));
        (verdict.answer, verdict.reason) = match verdict.bounds {
            Some((_, high)) if high < self.limit => (Answer::Yes, None),
            Some((low, _)) if low >= self.limit => (Answer::No, None),
            Some(_) => (Answer::NotDecided, Some("spread".into())),
            None if bounds.is_some() => {
                (Answer::NotDecided, Some("there is nothing to count".into()))
            }
            None => (
                Answer::NotDecided,
                Some(format!(
                    "it takes 6 repetitions of both, there are {} and {}",
                    a.n, b.n
                )),
            ),
        };
        Some(verdict)
    }
}

/// `None` if it would have no meaning.
fn ratio(over: f64, under: f64) -> Option<f64> {
    (under > 0.0).then(|| over / under)
}

/// The verdicts on all claims, in their order. A measurement that failed by a method, if only once,
/// is not used.
pub fn verdicts(
    results: &[Outcome],
    failed: &[LeftOut],
    missing: &BTreeMap<String, String>,
) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for claim in &CLAIMS {
        let failed_by = |method| {
            let of_claim = failed.iter().filter(|one| (claim.of)(&one.what));
            of_claim.filter(move |one| one.method == method)
        };
        let by = |method| {
            let of_claim = results.iter().filter(|one| (claim.of)(&one.what));
            of_claim.filter(move |one| {
                one.method == method && failed_by(method).all(|failed| failed.what != one.what)
            })
        };
        let before = verdicts.len();
        for first in by(claim.first) {
            let second = by(claim.second).find(|one| one.what == first.what);
            verdicts.extend(second.and_then(|second| claim.judge(first.what, first, second)));
        }
        if verdicts.len() == before {
            let methods = |are: &dyn Fn(Method) -> bool| -> Vec<&str> {
                let both = [claim.first, claim.second].into_iter();
                both.filter(|&method| are(method))
                    .map(Method::name)
                    .collect()
            };
            let lacking = methods(&|method| by(method).next().is_none());
            let failed = methods(&|method| failed_by(method).next().is_some());
            let mut verdict = claim.verdict(None);
            verdict.reason = Some(match missing.get(TLB_LOADS) {
                Some(why) if claim.figure == Figure::Misses => why.clone(),
                _ if !failed.is_empty() => {
                    format!("measurements by {} failed", failed.join(" and "))
                }
                _ if lacking.is_empty() => "no measurement was made by both".into(),
                _ => format!("nothing was measured by {}", lacking.join(" and ")),
            });
            verdicts.push(verdict);
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::result::tests::outcome;

    fn what(mode: Mode) -> What {
        What::Accesses {
            mode,
            size_bytes: 1 << 30,
            tasks: 1,
        }
    }

    fn answers(results: &[Outcome], claim: &str) -> Vec<(Answer, Option<String>)> {
        let all = verdicts(results, &[], &BTreeMap::new());
        let mine = all.into_iter().filter(|one| one.claim.starts_with(claim));
        mine.map(|one| (one.answer, one.reason)).collect()
    }

    /// The answer to a claim about latency, with these values of both methods.
    fn latency(ours: &[f64], thp: &[f64]) -> (Answer, Option<String>) {
        let results = [
            outcome(what(Mode::Dependent), Method::Hpmmap, ours, None),
            outcome(what(Mode::Dependent), Method::Thp, thp, None),
        ];
        let mut all = answers(&results, "latency of pool memory");
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn an_answer_takes_the_whole_interval() {
        let thp = [100.0, 100.1, 100.2, 100.1, 100.0, 100.2];
        assert_eq!(latency(&thp, &thp), (Answer::Yes, None));
        let slower = thp.map(|value| value * 1.05);
        assert_eq!(latency(&slower, &thp), (Answer::No, None));
        let loose = [90.0, 110.0, 100.0, 101.0, 99.0, 105.0];
        assert_eq!(
            latency(&loose, &thp),
            (Answer::NotDecided, Some("spread".into()))
        );
        let (answer, reason) = latency(&thp[..5], &thp);
        assert_eq!(answer, Answer::NotDecided);
        assert!(reason.unwrap().ends_with("there are 5 and 6"));
    }

    #[test]
    fn where_more_is_better_less_is_worse() {
        let answer = |ours: f64| {
            let results = [
                outcome(what(Mode::Triad), Method::Hpmmap, &[ours; 6], None),
                outcome(what(Mode::Triad), Method::Thp, &[10.0; 6], None),
            ];
            answers(
                &results,
                "bandwidth of pool memory is at most 2 % below that of THP",
            )[0]
            .0
        };
        assert_eq!(answer(20.0), Answer::Yes);
        assert_eq!(answer(9.9), Answer::Yes);
        assert_eq!(answer(9.5), Answer::No);
    }

    #[test]
    fn counts_decide_about_tlb_misses() {
        let by = |method, misses| outcome(what(Mode::Independent), method, &[1.0; 6], Some(misses));
        let answer = |ours, thp| {
            let results = [by(Method::Hpmmap, ours), by(Method::Thp, thp)];
            answers(&results, "pool memory has fewer TLB misses than THP").remove(0)
        };
        assert_eq!(answer(5, 1000).0, Answer::Yes);
        assert_eq!(answer(1001, 1000).0, Answer::No);
        assert_eq!(answer(1000, 1000).0, Answer::No);
        let (none, reason) = answer(0, 0);
        assert_eq!(none, Answer::NotDecided);
        assert_eq!(reason.unwrap(), "there is nothing to count");
    }

    #[test]
    fn misses_of_writes_count_if_all_samples_have_them() {
        let by = |method, loads, stores: &[u64]| {
            let mut one = outcome(what(Mode::Independent), method, &[1.0; 6], Some(loads));
            for (sample, &n) in one.samples.iter_mut().zip(stores) {
                sample.counts.insert(TLB_STORES.into(), n);
            }
            one
        };
        let answer = |ours: &[u64], thp: &[u64]| {
            let results = [by(Method::Hpmmap, 5, ours), by(Method::Thp, 10, thp)];
            answers(&results, "pool memory has fewer TLB misses than THP")[0].0
        };
        assert_eq!(answer(&[], &[]), Answer::Yes);
        assert_eq!(answer(&[90; 6], &[10; 6]), Answer::No);
        assert_eq!(answer(&[90; 6], &[10; 5]), Answer::Yes);
        assert_eq!(answer(&[90; 6], &[]), Answer::Yes);
        assert_eq!(answer(&[], &[90; 6]), Answer::Yes);
    }

    #[test]
    fn what_failed_once_is_not_judged() {
        let of = |mode, method| outcome(what(mode), method, &[1.0; 6], None);
        let results = [
            of(Mode::Dependent, Method::Hpmmap),
            of(Mode::Dependent, Method::Thp),
            of(Mode::Triad, Method::Hpmmap),
            of(Mode::Triad, Method::Thp),
        ];
        let failed = |method| LeftOut {
            what: what(Mode::Dependent),
            method,
            reason: "its result is 2, another method's is 1".into(),
        };
        for (method, said) in [(Method::Hpmmap, "hpmmap"), (Method::Thp, "thp")] {
            let all = verdicts(&results, &[failed(method)], &BTreeMap::new());
            let of = |claim: &str| all.iter().find(|one| one.claim.starts_with(claim)).unwrap();
            let latency = of("latency of pool memory");
            assert_eq!(latency.answer, Answer::NotMeasured);
            let reason = format!("measurements by {said} failed");
            assert_eq!(latency.reason.as_ref(), Some(&reason));
            let triad = of("bandwidth of pool memory is at most 2 % below that of THP");
            assert_eq!(triad.answer, Answer::Yes);
        }
    }

    #[test]
    fn what_was_not_measured_says_why() {
        let results = [outcome(
            what(Mode::Dependent),
            Method::Hpmmap,
            &[1.0; 6],
            None,
        )];
        let missing = BTreeMap::from([(TLB_LOADS.to_string(), "no such counter".to_string())]);
        let all = verdicts(&results, &[], &missing);
        assert_eq!(all.len(), CLAIMS.len());
        assert!(all.iter().all(|one| one.answer == Answer::NotMeasured));
        let reason = |claim: &str| {
            let mut all = all.iter();
            all.find(|one| one.claim.starts_with(claim))
                .unwrap()
                .reason
                .clone()
                .unwrap()
        };
        assert_eq!(reason("pool memory has fewer"), "no such counter");
        assert_eq!(reason("latency of pool"), "nothing was measured by thp");
        assert_eq!(reason("threads"), "nothing was measured by hpmmap and thp");
    }
}
