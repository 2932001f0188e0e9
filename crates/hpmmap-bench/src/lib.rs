//! The benchmarks' parts: what to measure, workers, results and what is made
//! of them. `bench/README.md` describes the figures.

pub mod cli;
mod colocation;
mod compare;
#[cfg(test)]
mod fuzz;
mod machine;
mod noise;
mod plan;
mod plot;
mod program;
mod report;
mod result;
pub mod verbs;
mod worker;
