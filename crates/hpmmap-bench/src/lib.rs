//! The parts of the benchmarks: plans, workers, results and reports. `bench/README.md` describes
//! the figures.

pub mod cli;
mod colocation;
mod compare;
#[cfg(test)]
mod fuzz;
mod machine;
mod node;
mod noise;
mod plan;
mod plot;
mod prepared;
mod program;
mod report;
mod result;
mod switch;
pub mod verbs;
mod vm;
mod worker;
