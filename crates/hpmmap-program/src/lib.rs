//! The begin and end of each program of hpmmap: arguments, messages, exit status.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::output;

/// Exit status if hpmmap itself fails in a verb that runs another program, as of env(1).
pub const RUN_FAILED: u8 = 125;

/// Parses `words`, the first of which is the program's name, performs the verb and reports errors.
/// `runs`: the verb runs another program.
pub fn main<C: Parser>(
    words: &[OsString],
    runs: bool,
    perform: impl FnOnce(C) -> Result<ExitCode>,
) -> ExitCode {
    hpmmap_sys::sigpipe::restore();
    if !runs && wants_json(words) {
        output::messages_as_json();
    }
    let status = |status| ExitCode::from(if runs { RUN_FAILED } else { status });
    match C::try_parse_from(words) {
        Ok(cli) => perform(cli).unwrap_or_else(|error| {
            output::complain(&error);
            status(Error::exit_code(&error))
        }),
        Err(error) if error.use_stderr() => {
            let code = error.exit_code() as u8;
            let text = error.render().to_string();
            if !output::complain_as_json(text.trim().trim_start_matches("error: "), code) {
                // Nothing can be done if standard error is closed.
                let _ = error.print();
            }
            status(code)
        }
        Err(help) => {
            let _ = help.print();
            ExitCode::SUCCESS
        }
    }
}

/// Is a report to be JSON? The words may be wrong otherwise. Words after "--" belong to another
/// program.
fn wants_json(words: &[OsString]) -> bool {
    let mut options = words.iter().skip(1).take_while(|word| *word != "--");
    options.any(|word| word == "--json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_wanted_in_front_of_other_programs_only() {
        let wants = |line: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            wants_json(&words)
        };
        assert!(wants("hpmmap status --json"));
        assert!(wants("hpmmap pool add --json --size 1X"));
        assert!(!wants("hpmmap status"));
        assert!(!wants("--json"));
        assert!(!wants("hpmmap mark -- --json"));
    }
}
