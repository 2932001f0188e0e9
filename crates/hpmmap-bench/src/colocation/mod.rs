//! The parts of the co-location study. `docs/colocation.md` has the formulas.

pub mod agent;
pub mod cell;
pub mod chart;
pub mod cluster;
pub mod html;
pub mod job;
pub mod launcher;
pub mod neighbour;
pub mod paper;
mod peer;
pub mod plan;
pub mod rank;
pub mod record;
pub mod settings;
pub mod site;
pub mod statistics;
pub mod summary;
pub mod text;
pub mod workload;
