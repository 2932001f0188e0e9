//! The program `hpmmap-trace`, which `hpmmap trace` executes.

use std::process::ExitCode;

use hpmmap_trace::{cli::Cli, verbs};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let runs = words
        .get(1)
        .is_some_and(|word| word == "record" || word == "noise");
    hpmmap_program::main(&words, runs, |cli: Cli| verbs::perform(&cli.verb))
}
