//! A child process that runs code of the parent's.

use std::fs;
use std::io;

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{ForkResult, Pid, fork};

/// Forks. The child runs `child` and ends with the status it returns; the
/// parent gets its number, and can wait for it even if it was told to ignore
/// SIGCHLD, which only the child still does.
///
/// Only for a process with one thread: of others' the child would find locks
/// that nobody releases. With more it is an error.
pub fn spawn(child: impl FnOnce() -> i32) -> io::Result<Pid> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!(
            "cannot fork a process of {threads} threads"
        )));
    }
    // SAFETY: the default handler is no code of this program.
    let sigchld = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    // SAFETY: there is one thread, so the child is a whole copy of the process.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            // SAFETY: as it was set before.
            let restored = unsafe { signal(Signal::SIGCHLD, sigchld) };
            let status = restored.map_or(1, |_| child());
            // SAFETY: ends the process without running what the parent has
            // registered to run at its own end.
            unsafe { nix::libc::_exit(status) }
        }
    }
}
