//! The statistics of BPF programs.

use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;

const ENABLE_STATS: libc::c_long = 32;
/// A prefix of the kernel's argument: the kernel accepts shorter ones than it knows.
#[repr(C)]
struct EnableStats {
    kind: u32,
}
const RUN_TIME: u32 = 0;

/// Makes the kernel count the runs of BPF programs and their time while the returned file is open.
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
    // SAFETY: the kernel has just made the descriptor for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
