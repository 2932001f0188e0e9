//! The structs, constants and ioctls of `kernel/uapi/hpmmap.h`, without the prefix of their names.
#![allow(missing_docs)]

use std::ffi::CStr;

#[rustfmt::skip]
#[allow(non_camel_case_types)]
mod generated;

pub use generated::*;

/// Path of the device.
pub const DEVICE_PATH: &str = text(generated::DEVICE_PATH);
/// The most nodes that a node mask can name.
pub const LAUNCH_MAX_NODES: u32 = 1024;

const fn text(of_header: &CStr) -> &str {
    match of_header.to_str() {
        Ok(text) => text,
        Err(_) => panic!("the header is ASCII"),
    }
}

/// `sizeof(T)` for the member `size`.
pub(crate) const fn size_of_u32<T>() -> u32 {
    size_of::<T>() as u32
}

/// The numbers come from the header's macros.
pub(crate) mod raw {
    use super::*;
    nix::ioctl_readwrite_bad!(info, IOC_INFO, Info);
    nix::ioctl_readwrite_bad!(pool_add, IOC_POOL_ADD, PoolAdd);
    nix::ioctl_readwrite_bad!(pool_remove, IOC_POOL_REMOVE, PoolRemove);
    nix::ioctl_readwrite_bad!(pool_list, IOC_POOL_LIST, PoolList);
    nix::ioctl_readwrite_bad!(launch, IOC_LAUNCH, Launch);
    nix::ioctl_readwrite_bad!(limit_set, IOC_LIMIT_SET, LimitSet);
    nix::ioctl_readwrite_bad!(limit_list, IOC_LIMIT_LIST, LimitList);
    nix::ioctl_readwrite_bad!(runs, IOC_RUNS, Runs);
    nix::ioctl_readwrite_bad!(promise_set, IOC_PROMISE_SET, PromiseSet);
    nix::ioctl_readwrite_bad!(promise_list, IOC_PROMISE_LIST, PromiseList);
}
