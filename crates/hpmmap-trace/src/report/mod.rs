//! Reports on a recorded file: tables for people, JSON and CSV for programs.

mod csv;
mod figures;
mod text;

pub use csv::csv;
pub use figures::*;
pub use text::{agreement_lines, text};
