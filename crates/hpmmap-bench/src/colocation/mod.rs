//! The parts of the co-location study. `docs/colocation.md` has the formulas.

pub mod chart;
pub mod html;
pub mod job;
pub mod neighbour;
pub mod plan;
pub mod rank;
pub mod record;
pub mod settings;
pub mod statistics;
pub mod summary;
pub mod text;
pub mod workload;
