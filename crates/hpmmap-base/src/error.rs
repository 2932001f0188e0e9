//! Errors of a command, each in one line that says what to do.

use std::io;

use hpmmap_sys::{Errno, uapi};

/// An error that ends the command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments are wrong.
    #[error("{0}")]
    Usage(String),
    /// The module is not loaded.
    #[error("the module is not loaded (load it with: modprobe hpmmap)")]
    NotLoaded,
    /// The module is older than this command.
    #[error(
        "the loaded module has interface version {0}, this command needs {need}: \
         unload it and load the one of this version",
        need = uapi::ABI_VERSION
    )]
    OldModule(u32),
    /// The caller has no permission.
    #[error("no permission {what}: {hint}")]
    NoPermission {
        /// The action that was refused.
        what: String,
        /// The users who have permission, or the way to get it.
        hint: String,
    },
    /// There is no pool memory for a launch.
    #[error("{0} (add memory with: hpmmap pool add --size SIZE)")]
    PoolEmpty(String),
    /// The program cannot be executed; the exit status is that of env(1).
    #[error("cannot run '{program}': {}", errno.desc())]
    Exec {
        /// The name as given.
        program: String,
        /// The reason.
        errno: Errno,
    },
    /// Any other error, as a complete message.
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

/// The text of an error without the number that Rust appends.
pub fn describe(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().to_string(),
        // Errors that this program has made have a text of their own.
        None => error.to_string(),
    }
}

/// Exit status of a verb that could not execute a program, as of env(1).
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
