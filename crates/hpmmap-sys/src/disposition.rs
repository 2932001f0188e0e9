//! What a signal does, as whoever started this process left it.

use std::io;
use std::mem::MaybeUninit;

use nix::errno::Errno;
use nix::libc;

/// Whether a signal is ignored, as nohup and shells have it for what is to go
/// on without them.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set; what is there now is written to a struct of the
    // right type.
    Errno::result(unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded, so it has written all of it.
    Ok(unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disposition_is_told() {
        // The test harness's runtime ignores SIGPIPE, if nobody has undone it.
        assert!(!is_ignored(libc::SIGTERM).unwrap());
        assert!(is_ignored(9999).is_err());
    }
}
