//! The command `hpmmap`.

mod allocator;
mod cli;
mod device;
mod doctor;
mod launch;
mod limits;
mod mark;
mod metric_groups;
mod pool;
mod prometheus;
mod report;
mod report_name;
mod verbs;

use std::process::ExitCode;

use clap::Parser;
use hpmmap_base::error::Error;
use hpmmap_base::output;

fn main() -> ExitCode {
    hpmmap_sys::sigpipe::restore();
    if cli::wants_json(std::env::args_os()) {
        output::messages_as_json();
    }
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
