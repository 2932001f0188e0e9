//! `bench node`: what emulated machines cannot show, on a real one.

pub mod app;
pub mod counters;
pub mod cpus;
pub mod names;
pub mod plan;
pub mod plot;
pub mod record;
pub mod report;
pub mod result;
pub mod verdict;
