//! The benchmarks' parts: what to measure, workers, results and what is made
//! of them. `bench/README.md` describes the figures.

pub mod colocation;
pub mod compare;
pub mod machine;
pub mod noise;
pub mod plan;
pub mod plot;
pub mod report;
pub mod result;
pub mod worker;
