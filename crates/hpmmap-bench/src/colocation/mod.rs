//! The parts of the co-location study. `docs/colocation.md` has the formulas.

pub mod agent;
pub mod cell_summary;
pub mod chart;
pub mod cluster;
pub mod html;
pub mod job;
pub mod launcher;
pub mod local_host;
pub mod neighbour;
pub mod paper;
pub mod plan;
pub mod rank;
pub mod record;
mod remote_agent;
pub mod settings;
pub mod statistics;
pub mod summary;
pub mod text;
pub mod workload;
