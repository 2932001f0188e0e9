//! Page faults of a program and its descendants: recording, the file, and reports. `docs/trace.md`
//! describes the figures and the format. Also counts what takes CPUs away from it (`docs/noise.md`).

mod bpf;
pub mod cli;
mod format;
#[cfg(test)]
mod fuzz;
mod job;
mod noise;
mod plot;
mod report;
mod sink;
mod statistics;
pub mod verbs;

use std::ffi::OsString;

/// The subject of a recording.
enum Target {
    /// A command, from its start to its end.
    Command(Vec<OsString>),
    /// A running process, and its descendants.
    Process(u32),
}
