//! The statistics of BPF programs.

use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;

const ENABLE_STATS: libc::c_long = 32;
/// The kernel takes shorter arguments than it knows; this one is all that the
/// command has.
#[repr(C)]
struct EnableStats {
    kind: u32,
}
const RUN_TIME: u32 = 0;

/// Makes the kernel count how often BPF programs run, and how long, as long as
/// the file is open.
pub fn count_run_times() -> Result<OwnedFd, Errno> {
    let argument = EnableStats { kind: RUN_TIME };
    // SAFETY: the kernel only reads the argument, whose size it is told.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            ENABLE_STATS,
            &raw const argument,
            size_of::<EnableStats>(),
        )
    };
    let fd = Errno::result(fd)? as i32;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
