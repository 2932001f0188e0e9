//! The program `hpmmap`.

use std::process::ExitCode;

fn main() -> ExitCode {
    hpmmap::main()
}
