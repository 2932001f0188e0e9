//! The contract with the kernel module: `kernel/uapi/hpmmap.h` in Rust.
//!
//! All unsafe code of the command is in this crate: the ioctls and the
//! handling of SIGPIPE. What it exports is safe.

mod device;
pub mod sigpipe;
pub mod uapi;

pub use device::{Device, LaunchRequest, RemoveError};
pub use nix::errno::Errno;
