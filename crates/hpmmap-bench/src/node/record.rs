//! The record of a run, as it is written to JSON: the file that a site sends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plan::{Parameters, What};
use super::result::Outcome;
use super::verdict::Verdict;
use crate::plan::Method;
use crate::result::{PoolAdd, Provenance};

/// Grows when a member changes its meaning.
pub const SCHEMA: u32 = 1;

/// A measurement that was not made, or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The measurement.
    pub what: What,
    /// The method.
    pub method: Method,
    /// The reason.
    pub reason: String,
}

/// The record of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The circumstances.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The requested measurements.
    pub parameters: Parameters,
    /// Seconds that it took.
    pub seconds: f64,
    /// Was it ended by a signal?
    pub interrupted: bool,
    /// Were settings changed, and set back?
    pub prepared: bool,
    /// The cost of pools that were added.
    pub pool_add: Option<PoolAdd>,
    /// Counters of the CPU that there are not, with the reason.
    pub missing_counters: BTreeMap<String, String>,
    /// Measurements that were not made.
    pub left_out: Vec<LeftOut>,
    /// Measurements that failed, or whose results were wrong.
    pub failed: Vec<LeftOut>,
    /// The results.
    pub results: Vec<Outcome>,
    /// What they say.
    pub verdicts: Vec<Verdict>,
}
