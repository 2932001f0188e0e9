//! The contract with the kernel module: `kernel/uapi/hpmmap.h` in Rust.
//!
//! All unsafe code of the command is in this crate: the ioctls, SIGPIPE and signal dispositions,
//! child processes, the time stamp counter, scheduling policies, a page of a device, one call of
//! bpf(2) and one of open_by_handle_at(2). It exports safe functions only.

pub mod bpf;
pub mod cgroup;
pub mod child;
pub mod clock;
mod device;
pub mod device_page;
pub mod disposition;
pub mod scheduling;
pub mod sigpipe;
pub mod uapi;

pub use device::{
    Device, LaunchRequest, LimitOf, LimitRule, Promise, PromiseError, PromiseOf, RegionRequest,
    RemoveError,
};
pub use nix::errno::Errno;
