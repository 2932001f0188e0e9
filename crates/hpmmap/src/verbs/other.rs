//! `hpmmap bench` and `hpmmap trace`: programs of their own packages, installed beside this one.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use hpmmap_base::error::{Error, Result};
use hpmmap_sys::Errno;

/// Executes the program of the verb with the words.
pub fn perform(verb: &str, words: &[OsString]) -> Result<ExitCode> {
    let name = format!("hpmmap-{verb}");
    let program = env::current_exe()?.with_file_name(&name);
    let error = Command::new(&program).args(words).exec();
    let path = program.display();
    Err(match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => Error::Failed(format!(
            "there is no {path}, which 'hpmmap {verb}' executes: install the package {name} \
             (in the source tree: make tools)"
        )),
        _ => Error::Failed(format!("cannot execute {path}: {error}")),
    })
}
