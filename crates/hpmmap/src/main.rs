//! The command `hpmmap`.

mod allocator;
mod bench;
mod cli;
mod device;
mod error;
mod escape;
#[cfg(test)]
mod fuzz;
mod launch;
mod mark;
mod output;
mod picture;
mod pool;
mod prometheus;
mod replace;
mod report;
mod signals;
mod size;
mod trace;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

use crate::error::Error;

fn main() -> ExitCode {
    hpmmap_sys::sigpipe::restore();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return cli::report(&error),
    };
    let own_failure = cli.verb.own_failure();
    match verbs::perform(cli.verb) {
        Ok(code) => code,
        Err(error) => {
            output::complain(&error);
            ExitCode::from(own_failure.unwrap_or_else(|| Error::exit_code(&error)))
        }
    }
}
