//! Page faults of a program and its descendants: recording, the file, and
//! what is made of it. `docs/trace.md` describes the figures and the format.

use std::ffi::OsString;

pub mod bpf;
pub mod format;
pub mod job;
pub mod plot;
pub mod report;
mod sink;
mod statistics;
pub mod tracefs;

/// What is recorded.
pub enum Target {
    /// A command, from its start to its end.
    Command(Vec<OsString>),
    /// A process that is there, and its descendants.
    Process(u32),
}
