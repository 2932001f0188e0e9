//! Structs and constants of `kernel/uapi/hpmmap.h`, with the same names,
//! layout and meaning. The test `header` compares them with the header.
#![allow(missing_docs)]

/// Path of the device.
pub const DEVICE_PATH: &str = "/dev/hpmmap";
/// The interface these structs describe.
pub const ABI_VERSION: u32 = 2;
/// Unit of allocation.
pub const BLOCK_BYTES: u64 = 1 << 21;
/// Smallest size of an element of the list of ranges.
pub const POOL_RANGE_MIN_SIZE: u32 = 40;
/// Largest contiguous run that is handed out.
pub const LARGE_BYTES: u64 = 1 << 30;

pub const IOC_MAGIC: u8 = 0xB6;

pub const FEATURE_JOBS: u64 = 1 << 1;
pub const FEATURE_LIMITS: u64 = 1 << 2;

pub const POOL_F_MOVABLE: u32 = 1 << 0;

pub const LAUNCH_F_STRICT: u32 = 1 << 0;
pub const LAUNCH_F_NO_INHERIT: u32 = 1 << 1;
pub const LAUNCH_F_INTERLEAVE: u32 = 1 << 2;
pub const LAUNCH_F_IMAGE: u32 = 1 << 3;
pub const LAUNCH_F_FIRST_TOUCH: u32 = 1 << 4;
/// Most nodes that a node mask can name.
pub const LAUNCH_MAX_NODES: u32 = 1024;

/// A program's mark: e_flags of its ELF header, of which this is the upper half.
pub const MARK_MAGIC: u32 = 0x484d_0000;
pub const MARK_MAGIC_MASK: u32 = 0xffff_0000;
pub const MARK_F_1G: u32 = 1 << 15;
pub const MARK_LAUNCH_FLAGS: u32 = LAUNCH_F_STRICT
    | LAUNCH_F_NO_INHERIT
    | LAUNCH_F_INTERLEAVE
    | LAUNCH_F_IMAGE
    | LAUNCH_F_FIRST_TOUCH;
pub const MARK_OPTIONS: u32 = MARK_LAUNCH_FLAGS | MARK_F_1G;

pub const LIMIT_F_DEFAULT: u32 = 1 << 0;
pub const LIMIT_F_CGROUP: u32 = 1 << 1;
pub const LIMIT_F_PERCENT: u32 = 1 << 2;
pub const LIMIT_NONE: u64 = u64::MAX;
pub const LIMIT_INHERIT: u64 = u64::MAX - 1;

#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct Info {
    pub size: u32,
    pub flags: u32,
    pub abi_version: u32,
    pub __reserved: u32,
    pub memory_block_bytes: u64,
    pub features: u64,
}

#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct PoolAdd {
    pub size: u32,
    pub flags: u32,
    pub start: u64,
    pub length: u64,
    pub node: i32,
    pub __reserved: u32,
}

#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct PoolRemove {
    pub size: u32,
    pub flags: u32,
    pub start: u64,
    pub length: u64,
    pub busy_bytes: u64,
    pub pinned_bytes: u64,
    pub bad_bytes: u64,
}

#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PoolRange {
    pub start: u64,
    pub length: u64,
    pub free_bytes: u64,
    pub pinned_bytes: u64,
    pub node: i32,
    pub flags: u32,
    pub bad_bytes: u64,
}

#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct PoolList {
    pub size: u32,
    pub flags: u32,
    pub ranges: u64,
    pub nr: u32,
    pub range_size: u32,
}

#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct Launch {
    pub size: u32,
    pub flags: u32,
    pub page_size: u64,
    pub nodemask: u64,
    pub nodemask_bits: u32,
    pub __reserved: u32,
    pub job_id: u64,
}

#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct LimitSet {
    pub size: u32,
    pub flags: u32,
    pub uid: u32,
    pub cgroup_fd: i32,
    pub bytes: u64,
}

#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LimitEntry {
    pub flags: u32,
    pub uid: u32,
    pub cgroup_id: u64,
    pub rule: u64,
    pub limit_bytes: u64,
    pub held_bytes: u64,
}

#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct LimitList {
    pub size: u32,
    pub flags: u32,
    pub entries: u64,
    pub nr: u32,
    pub __reserved: u32,
}

/// `sizeof(T)` for the member `size`.
pub(crate) const fn size_of_u32<T>() -> u32 {
    size_of::<T>() as u32
}

pub const IOC_INFO: u64 = nix::request_code_readwrite!(IOC_MAGIC, 0, size_of::<Info>());
pub const IOC_POOL_ADD: u64 = nix::request_code_readwrite!(IOC_MAGIC, 1, size_of::<PoolAdd>());
pub const IOC_POOL_REMOVE: u64 =
    nix::request_code_readwrite!(IOC_MAGIC, 2, size_of::<PoolRemove>());
pub const IOC_POOL_LIST: u64 = nix::request_code_readwrite!(IOC_MAGIC, 3, size_of::<PoolList>());
pub const IOC_LAUNCH: u64 = nix::request_code_readwrite!(IOC_MAGIC, 4, size_of::<Launch>());
pub const IOC_LIMIT_SET: u64 = nix::request_code_readwrite!(IOC_MAGIC, 5, size_of::<LimitSet>());
pub const IOC_LIMIT_LIST: u64 = nix::request_code_readwrite!(IOC_MAGIC, 6, size_of::<LimitList>());

pub(crate) mod raw {
    use super::*;
    nix::ioctl_readwrite!(info, IOC_MAGIC, 0, Info);
    nix::ioctl_readwrite!(pool_add, IOC_MAGIC, 1, PoolAdd);
    nix::ioctl_readwrite!(pool_remove, IOC_MAGIC, 2, PoolRemove);
    nix::ioctl_readwrite!(pool_list, IOC_MAGIC, 3, PoolList);
    nix::ioctl_readwrite!(launch, IOC_MAGIC, 4, Launch);
    nix::ioctl_readwrite!(limit_set, IOC_MAGIC, 5, LimitSet);
    nix::ioctl_readwrite!(limit_list, IOC_MAGIC, 6, LimitList);
}
