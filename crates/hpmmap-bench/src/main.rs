//! The program `hpmmap-bench`, which `hpmmap bench` executes.

use std::process::ExitCode;

use hpmmap_bench::{cli::Cli, verbs};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    hpmmap_program::main(&words, false, |cli: Cli| verbs::perform(&cli.verb))
}
