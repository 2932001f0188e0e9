//! The disposition of a signal, as the caller of this process left it.

use std::io;
use std::mem::MaybeUninit;

use nix::errno::Errno;
use nix::libc;

/// Is a signal ignored? nohup and shells ignore signals for commands that are to continue.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: sets nothing; the current disposition is written to a struct of the right type.
    Errno::result(unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded, so it has written all of it.
    Ok(unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disposition_is_told() {
        // The runtime of the test harness ignores SIGPIPE, unless it was restored.
        assert!(!is_ignored(libc::SIGTERM).unwrap());
        assert!(is_ignored(9999).is_err());
    }
}
