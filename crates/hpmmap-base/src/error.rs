//! What goes wrong, each in one line that says what to do.

use std::io;

use hpmmap_sys::{Errno, uapi};

/// An error that ends the command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments cannot be right.
    #[error("{0}")]
    Usage(String),
    /// There is no module to talk to.
    #[error("the module is not loaded (load it with: modprobe hpmmap)")]
    NotLoaded,
    /// The module is older than this command.
    #[error(
        "the loaded module has interface version {0}, this command needs {need}: \
         unload it and load the one of this version",
        need = uapi::ABI_VERSION
    )]
    OldModule(u32),
    /// The caller may not do this.
    #[error("no permission {what}: {hint}")]
    NoPermission {
        /// To do what.
        what: String,
        /// Who may, or how to become one who may.
        hint: String,
    },
    /// There is nothing to run a job in.
    #[error("{0} (add memory with: hpmmap pool add --size SIZE)")]
    PoolEmpty(String),
    /// The program cannot be executed; the status is the one of env(1).
    #[error("cannot run '{program}': {}", errno.desc())]
    Exec {
        /// As given.
        program: String,
        /// Why.
        errno: Errno,
    },
    /// Anything else that stands for itself.
    #[error("{0}")]
    Failed(String),
    /// A file of the kernel could not be read.
    #[error(transparent)]
    Host(#[from] hpmmap_host::Error),
    /// The report could not be written.
    #[error("cannot write the output: {}", describe(.0))]
    Output(#[from] io::Error),
}

/// Result of a verb and its parts.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Exit status of every verb but `run`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}

/// Without the number of the error that Rust appends.
pub fn describe(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().to_string(),
        // Those made here have a text of their own.
        None => error.to_string(),
    }
}

/// Exit status of a verb that was to execute a program and could not, as env(1)
/// has it.
pub fn exec_status(errno: Errno) -> u8 {
    match errno {
        Errno::ENOENT => 127,
        _ => 126,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_the_one_of_env() {
        assert_eq!(exec_status(Errno::ENOENT), 127);
        assert_eq!(exec_status(Errno::EACCES), 126);
        assert_eq!(exec_status(Errno::ENOEXEC), 126);
    }

    #[test]
    fn an_error_of_the_output_has_no_number() {
        let error = Error::from(io::Error::from_raw_os_error(28));
        assert_eq!(
            error.to_string(),
            "cannot write the output: No space left on device"
        );
    }
}
