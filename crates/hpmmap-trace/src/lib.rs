//! Page faults of a program and its descendants: recording, the file, and
//! what is made of it. `docs/trace.md` describes the figures and the format.

mod bpf;
pub mod cli;
mod format;
#[cfg(test)]
mod fuzz;
mod job;
mod plot;
mod report;
mod sink;
mod statistics;
pub mod verbs;

use std::ffi::OsString;

/// What is recorded.
enum Target {
    /// A command, from its start to its end.
    Command(Vec<OsString>),
    /// A process that is there, and its descendants.
    Process(u32),
}
