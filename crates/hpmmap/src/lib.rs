//! The command `hpmmap`: pools, launches and their state. Its verbs `bench` and `trace` are
//! programs of their own.

mod allocator;
mod cli;
mod device;
mod doctor;
mod grub;
mod launch;
mod limits;
mod mark;
mod metric_groups;
mod partition;
mod pool;
mod prometheus;
mod promise;
mod region;
mod report;
mod report_name;
mod status;
mod symbiosis;
mod verbs;
mod vm;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;

/// The definition of the command, its verbs and their options. Those of `bench` and `trace` are in
/// their programs.
pub fn command() -> clap::Command {
    cli::Cli::command()
}

/// Parses the arguments of the process and performs the verb.
pub fn main() -> ExitCode {
    let words = cli::with_help_last(std::env::args_os().collect());
    let word = |n: usize, text: &str| words.get(n).is_some_and(|word: &OsString| word == text);
    let runs = word(1, "run") || (word(1, "trace") && word(2, "record"));
    hpmmap_program::main(&words, runs, |cli: cli::Cli| verbs::perform(cli.verb))
}
