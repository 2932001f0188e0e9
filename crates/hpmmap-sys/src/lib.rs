//! The contract with the kernel module: `kernel/uapi/hpmmap.h` in Rust.
//!
//! All unsafe code of the command is in this crate: the ioctls, the handling
//! of SIGPIPE and what signals do, child processes, the time stamp counter, one call of bpf(2)
//! and one of open_by_handle_at(2).
//! What it exports is safe.

pub mod bpf;
pub mod cgroup;
pub mod child;
pub mod clock;
mod device;
pub mod disposition;
pub mod sigpipe;
pub mod uapi;

pub use device::{Device, LaunchRequest, LimitOf, LimitRule, RemoveError};
pub use nix::errno::Errno;
