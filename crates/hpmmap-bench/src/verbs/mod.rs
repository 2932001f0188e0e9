//! One file for each benchmark.

mod alloc;
mod colocation;
mod node;
mod noise;
mod session;
mod vm;

use std::process::ExitCode;

use hpmmap_base::error::Result;

use crate::cli::{BenchVerb, ColocationRankArgs};
use crate::colocation::agent;
use crate::colocation::rank::{self, Rank};

/// Performs the verb. Changes of the machine are restored at the end, and when a signal ends it.
///
/// # Errors
///
/// The arguments are impossible, or a needed thing is missing or fails.
pub fn perform(verb: &BenchVerb) -> Result<ExitCode> {
    match verb {
        BenchVerb::Alloc(args) => alloc::perform(args),
        BenchVerb::Colocation(args) => colocation::perform(args),
        BenchVerb::ColocationRank(args) => rank::run(&rank_of(args)),
        BenchVerb::ColocationAgent => agent::run(),
        BenchVerb::Node(args) => node::perform(args),
        BenchVerb::Noise(args) => noise::perform(args),
        BenchVerb::Vm(args) => vm::perform(args),
    }
}

fn rank_of(args: &ColocationRankArgs) -> Rank {
    let (program, arguments) = args.command.split_first().expect("clap wants a command");
    Rank {
        record: args.record.clone(),
        cpus: args.cpus.clone(),
        no_thp: args.no_thp,
        started: args.started.clone(),
        program: program.clone(),
        arguments: arguments.to_vec(),
    }
}
