//! `hpmmap bench noise`: detours on each CPU, and random accesses.

pub mod neighbour;
pub mod plan;
pub mod plot;
pub mod report;
pub mod result;
pub mod worker;
