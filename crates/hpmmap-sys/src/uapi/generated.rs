//! Made by bindgen from `kernel/uapi/hpmmap.h`: `tests/header.rs`.

pub const DEVICE_PATH: &::std::ffi::CStr = c"/dev/hpmmap";
pub const SYSFS_PATH: &::std::ffi::CStr = c"/sys/kernel/hpmmap";
pub const CONTEXTS_PATH: &::std::ffi::CStr = c"/proc/hpmmap";
pub const ABI_VERSION: u32 = 6;
pub const BLOCK_BYTES: u64 = 2097152;
pub const LARGE_BYTES: u64 = 1073741824;
pub const IOC_MAGIC: u32 = 182;
pub const IOC_INFO: u64 = 3223369216;
pub const FEATURE_JOBS: u64 = 2;
pub const FEATURE_LIMITS: u64 = 4;
pub const IOC_POOL_ADD: u64 = 3223369217;
pub const POOL_F_MOVABLE: u32 = 1;
pub const IOC_POOL_REMOVE: u64 = 3224417794;
pub const POOL_RANGE_MIN_SIZE: u32 = 40;
pub const IOC_POOL_LIST: u64 = 3222844931;
pub const IOC_LAUNCH: u64 = 3225990660;
pub const LAUNCH_ONLY_MAX_BYTES: u64 = 256;
pub const LAUNCH_STATIC_MAX_BYTES: u64 = 70368744177664;
pub const LAUNCH_MAX_REGIONS: u32 = 16;
pub const LAUNCH_F_STRICT: u32 = 1;
pub const LAUNCH_F_NO_INHERIT: u32 = 2;
pub const LAUNCH_F_INTERLEAVE: u32 = 4;
pub const LAUNCH_F_IMAGE: u32 = 8;
pub const LAUNCH_F_FIRST_TOUCH: u32 = 16;
pub const LAUNCH_F_EAGER_STACKS: u32 = 32;
pub const LAUNCH_F_SHARED_LINUX: u32 = 64;
pub const IOC_LIMIT_SET: u64 = 3222844933;
pub const LIMIT_F_DEFAULT: u32 = 1;
pub const LIMIT_F_CGROUP: u32 = 2;
pub const LIMIT_F_PERCENT: u32 = 4;
pub const LIMIT_NONE: u64 = 18446744073709551615;
pub const LIMIT_INHERIT: u64 = 18446744073709551614;
pub const IOC_LIMIT_LIST: u64 = 3222844934;
pub const PROMISE_F_LAUNCH: u32 = 8;
pub const IOC_PROMISE_SET: u64 = 3223893512;
pub const IOC_PROMISE_LIST: u64 = 3222844937;
pub const IOC_RUNS: u64 = 3223893511;
pub const MARK_MAGIC: u32 = 1213005824;
pub const MARK_MAGIC_MASK: u32 = 4294901760;
pub const MARK_STATIC_SHIFT: u32 = 10;
pub const MARK_STATIC_MASK: u32 = 31744;
pub const MARK_F_1G: u32 = 32768;
pub const MARK_LAUNCH_FLAGS: u32 = 127;
pub const MARK_OPTIONS: u32 = 64639;
pub const MADV_REUSE: u32 = 1213223425;
pub type __s32 = ::std::os::raw::c_int;
pub type __u32 = ::std::os::raw::c_uint;
pub type __u64 = ::std::os::raw::c_ulonglong;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct Info {
    pub size: __u32,
    pub flags: __u32,
    pub abi_version: __u32,
    pub __reserved: __u32,
    pub memory_block_bytes: __u64,
    pub features: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Info"][::std::mem::size_of::<Info>() - 32usize];
    ["Alignment of Info"][::std::mem::align_of::<Info>() - 8usize];
    ["Offset of field: Info::size"][::std::mem::offset_of!(Info, size) - 0usize];
    ["Offset of field: Info::flags"][::std::mem::offset_of!(Info, flags) - 4usize];
    [
        "Offset of field: Info::abi_version",
    ][::std::mem::offset_of!(Info, abi_version) - 8usize];
    [
        "Offset of field: Info::__reserved",
    ][::std::mem::offset_of!(Info, __reserved) - 12usize];
    [
        "Offset of field: Info::memory_block_bytes",
    ][::std::mem::offset_of!(Info, memory_block_bytes) - 16usize];
    [
        "Offset of field: Info::features",
    ][::std::mem::offset_of!(Info, features) - 24usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct PoolAdd {
    pub size: __u32,
    pub flags: __u32,
    pub start: __u64,
    pub length: __u64,
    pub node: __s32,
    pub __reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PoolAdd"][::std::mem::size_of::<PoolAdd>() - 32usize];
    ["Alignment of PoolAdd"][::std::mem::align_of::<PoolAdd>() - 8usize];
    ["Offset of field: PoolAdd::size"][::std::mem::offset_of!(PoolAdd, size) - 0usize];
    ["Offset of field: PoolAdd::flags"][::std::mem::offset_of!(PoolAdd, flags) - 4usize];
    ["Offset of field: PoolAdd::start"][::std::mem::offset_of!(PoolAdd, start) - 8usize];
    [
        "Offset of field: PoolAdd::length",
    ][::std::mem::offset_of!(PoolAdd, length) - 16usize];
    ["Offset of field: PoolAdd::node"][::std::mem::offset_of!(PoolAdd, node) - 24usize];
    [
        "Offset of field: PoolAdd::__reserved",
    ][::std::mem::offset_of!(PoolAdd, __reserved) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct PoolRemove {
    pub size: __u32,
    pub flags: __u32,
    pub start: __u64,
    pub length: __u64,
    pub busy_bytes: __u64,
    pub pinned_bytes: __u64,
    pub bad_bytes: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PoolRemove"][::std::mem::size_of::<PoolRemove>() - 48usize];
    ["Alignment of PoolRemove"][::std::mem::align_of::<PoolRemove>() - 8usize];
    [
        "Offset of field: PoolRemove::size",
    ][::std::mem::offset_of!(PoolRemove, size) - 0usize];
    [
        "Offset of field: PoolRemove::flags",
    ][::std::mem::offset_of!(PoolRemove, flags) - 4usize];
    [
        "Offset of field: PoolRemove::start",
    ][::std::mem::offset_of!(PoolRemove, start) - 8usize];
    [
        "Offset of field: PoolRemove::length",
    ][::std::mem::offset_of!(PoolRemove, length) - 16usize];
    [
        "Offset of field: PoolRemove::busy_bytes",
    ][::std::mem::offset_of!(PoolRemove, busy_bytes) - 24usize];
    [
        "Offset of field: PoolRemove::pinned_bytes",
    ][::std::mem::offset_of!(PoolRemove, pinned_bytes) - 32usize];
    [
        "Offset of field: PoolRemove::bad_bytes",
    ][::std::mem::offset_of!(PoolRemove, bad_bytes) - 40usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct PoolRange {
    pub start: __u64,
    pub length: __u64,
    pub free_bytes: __u64,
    pub pinned_bytes: __u64,
    pub node: __s32,
    pub flags: __u32,
    pub bad_bytes: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PoolRange"][::std::mem::size_of::<PoolRange>() - 48usize];
    ["Alignment of PoolRange"][::std::mem::align_of::<PoolRange>() - 8usize];
    [
        "Offset of field: PoolRange::start",
    ][::std::mem::offset_of!(PoolRange, start) - 0usize];
    [
        "Offset of field: PoolRange::length",
    ][::std::mem::offset_of!(PoolRange, length) - 8usize];
    [
        "Offset of field: PoolRange::free_bytes",
    ][::std::mem::offset_of!(PoolRange, free_bytes) - 16usize];
    [
        "Offset of field: PoolRange::pinned_bytes",
    ][::std::mem::offset_of!(PoolRange, pinned_bytes) - 24usize];
    [
        "Offset of field: PoolRange::node",
    ][::std::mem::offset_of!(PoolRange, node) - 32usize];
    [
        "Offset of field: PoolRange::flags",
    ][::std::mem::offset_of!(PoolRange, flags) - 36usize];
    [
        "Offset of field: PoolRange::bad_bytes",
    ][::std::mem::offset_of!(PoolRange, bad_bytes) - 40usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct PoolList {
    pub size: __u32,
    pub flags: __u32,
    pub ranges: __u64,
    pub nr: __u32,
    pub range_size: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PoolList"][::std::mem::size_of::<PoolList>() - 24usize];
    ["Alignment of PoolList"][::std::mem::align_of::<PoolList>() - 8usize];
    ["Offset of field: PoolList::size"][::std::mem::offset_of!(PoolList, size) - 0usize];
    [
        "Offset of field: PoolList::flags",
    ][::std::mem::offset_of!(PoolList, flags) - 4usize];
    [
        "Offset of field: PoolList::ranges",
    ][::std::mem::offset_of!(PoolList, ranges) - 8usize];
    ["Offset of field: PoolList::nr"][::std::mem::offset_of!(PoolList, nr) - 16usize];
    [
        "Offset of field: PoolList::range_size",
    ][::std::mem::offset_of!(PoolList, range_size) - 20usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct Region {
    pub start: __u64,
    pub length: __u64,
    pub node: __s32,
    pub __reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Region"][::std::mem::size_of::<Region>() - 24usize];
    ["Alignment of Region"][::std::mem::align_of::<Region>() - 8usize];
    ["Offset of field: Region::start"][::std::mem::offset_of!(Region, start) - 0usize];
    ["Offset of field: Region::length"][::std::mem::offset_of!(Region, length) - 8usize];
    ["Offset of field: Region::node"][::std::mem::offset_of!(Region, node) - 16usize];
    [
        "Offset of field: Region::__reserved",
    ][::std::mem::offset_of!(Region, __reserved) - 20usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct Launch {
    pub size: __u32,
    pub flags: __u32,
    pub page_size: __u64,
    pub nodemask: __u64,
    pub nodemask_bits: __u32,
    pub __reserved: __u32,
    pub job_id: __u64,
    pub only: __u64,
    pub only_bytes: __u32,
    pub nr_regions: __u32,
    pub static_bytes: __u64,
    pub regions: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Launch"][::std::mem::size_of::<Launch>() - 72usize];
    ["Alignment of Launch"][::std::mem::align_of::<Launch>() - 8usize];
    ["Offset of field: Launch::size"][::std::mem::offset_of!(Launch, size) - 0usize];
    ["Offset of field: Launch::flags"][::std::mem::offset_of!(Launch, flags) - 4usize];
    [
        "Offset of field: Launch::page_size",
    ][::std::mem::offset_of!(Launch, page_size) - 8usize];
    [
        "Offset of field: Launch::nodemask",
    ][::std::mem::offset_of!(Launch, nodemask) - 16usize];
    [
        "Offset of field: Launch::nodemask_bits",
    ][::std::mem::offset_of!(Launch, nodemask_bits) - 24usize];
    [
        "Offset of field: Launch::__reserved",
    ][::std::mem::offset_of!(Launch, __reserved) - 28usize];
    [
        "Offset of field: Launch::job_id",
    ][::std::mem::offset_of!(Launch, job_id) - 32usize];
    ["Offset of field: Launch::only"][::std::mem::offset_of!(Launch, only) - 40usize];
    [
        "Offset of field: Launch::only_bytes",
    ][::std::mem::offset_of!(Launch, only_bytes) - 48usize];
    [
        "Offset of field: Launch::nr_regions",
    ][::std::mem::offset_of!(Launch, nr_regions) - 52usize];
    [
        "Offset of field: Launch::static_bytes",
    ][::std::mem::offset_of!(Launch, static_bytes) - 56usize];
    [
        "Offset of field: Launch::regions",
    ][::std::mem::offset_of!(Launch, regions) - 64usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct LimitSet {
    pub size: __u32,
    pub flags: __u32,
    pub uid: __u32,
    pub cgroup_fd: __s32,
    pub bytes: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of LimitSet"][::std::mem::size_of::<LimitSet>() - 24usize];
    ["Alignment of LimitSet"][::std::mem::align_of::<LimitSet>() - 8usize];
    ["Offset of field: LimitSet::size"][::std::mem::offset_of!(LimitSet, size) - 0usize];
    [
        "Offset of field: LimitSet::flags",
    ][::std::mem::offset_of!(LimitSet, flags) - 4usize];
    ["Offset of field: LimitSet::uid"][::std::mem::offset_of!(LimitSet, uid) - 8usize];
    [
        "Offset of field: LimitSet::cgroup_fd",
    ][::std::mem::offset_of!(LimitSet, cgroup_fd) - 12usize];
    [
        "Offset of field: LimitSet::bytes",
    ][::std::mem::offset_of!(LimitSet, bytes) - 16usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct LimitEntry {
    pub flags: __u32,
    pub uid: __u32,
    pub cgroup_id: __u64,
    pub rule: __u64,
    pub limit_bytes: __u64,
    pub held_bytes: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of LimitEntry"][::std::mem::size_of::<LimitEntry>() - 40usize];
    ["Alignment of LimitEntry"][::std::mem::align_of::<LimitEntry>() - 8usize];
    [
        "Offset of field: LimitEntry::flags",
    ][::std::mem::offset_of!(LimitEntry, flags) - 0usize];
    [
        "Offset of field: LimitEntry::uid",
    ][::std::mem::offset_of!(LimitEntry, uid) - 4usize];
    [
        "Offset of field: LimitEntry::cgroup_id",
    ][::std::mem::offset_of!(LimitEntry, cgroup_id) - 8usize];
    [
        "Offset of field: LimitEntry::rule",
    ][::std::mem::offset_of!(LimitEntry, rule) - 16usize];
    [
        "Offset of field: LimitEntry::limit_bytes",
    ][::std::mem::offset_of!(LimitEntry, limit_bytes) - 24usize];
    [
        "Offset of field: LimitEntry::held_bytes",
    ][::std::mem::offset_of!(LimitEntry, held_bytes) - 32usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct LimitList {
    pub size: __u32,
    pub flags: __u32,
    pub entries: __u64,
    pub nr: __u32,
    pub __reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of LimitList"][::std::mem::size_of::<LimitList>() - 24usize];
    ["Alignment of LimitList"][::std::mem::align_of::<LimitList>() - 8usize];
    [
        "Offset of field: LimitList::size",
    ][::std::mem::offset_of!(LimitList, size) - 0usize];
    [
        "Offset of field: LimitList::flags",
    ][::std::mem::offset_of!(LimitList, flags) - 4usize];
    [
        "Offset of field: LimitList::entries",
    ][::std::mem::offset_of!(LimitList, entries) - 8usize];
    ["Offset of field: LimitList::nr"][::std::mem::offset_of!(LimitList, nr) - 16usize];
    [
        "Offset of field: LimitList::__reserved",
    ][::std::mem::offset_of!(LimitList, __reserved) - 20usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct Promise {
    pub node: __s32,
    pub __reserved: __u32,
    pub bytes: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Promise"][::std::mem::size_of::<Promise>() - 16usize];
    ["Alignment of Promise"][::std::mem::align_of::<Promise>() - 8usize];
    ["Offset of field: Promise::node"][::std::mem::offset_of!(Promise, node) - 0usize];
    [
        "Offset of field: Promise::__reserved",
    ][::std::mem::offset_of!(Promise, __reserved) - 4usize];
    ["Offset of field: Promise::bytes"][::std::mem::offset_of!(Promise, bytes) - 8usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct PromiseSet {
    pub size: __u32,
    pub flags: __u32,
    pub uid: __u32,
    pub cgroup_fd: __s32,
    pub promises: __u64,
    pub nr: __u32,
    pub node: __s32,
    pub room_bytes: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PromiseSet"][::std::mem::size_of::<PromiseSet>() - 40usize];
    ["Alignment of PromiseSet"][::std::mem::align_of::<PromiseSet>() - 8usize];
    [
        "Offset of field: PromiseSet::size",
    ][::std::mem::offset_of!(PromiseSet, size) - 0usize];
    [
        "Offset of field: PromiseSet::flags",
    ][::std::mem::offset_of!(PromiseSet, flags) - 4usize];
    [
        "Offset of field: PromiseSet::uid",
    ][::std::mem::offset_of!(PromiseSet, uid) - 8usize];
    [
        "Offset of field: PromiseSet::cgroup_fd",
    ][::std::mem::offset_of!(PromiseSet, cgroup_fd) - 12usize];
    [
        "Offset of field: PromiseSet::promises",
    ][::std::mem::offset_of!(PromiseSet, promises) - 16usize];
    [
        "Offset of field: PromiseSet::nr",
    ][::std::mem::offset_of!(PromiseSet, nr) - 24usize];
    [
        "Offset of field: PromiseSet::node",
    ][::std::mem::offset_of!(PromiseSet, node) - 28usize];
    [
        "Offset of field: PromiseSet::room_bytes",
    ][::std::mem::offset_of!(PromiseSet, room_bytes) - 32usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct PromiseEntry {
    pub flags: __u32,
    pub uid: __u32,
    pub id: __u64,
    pub node: __s32,
    pub __reserved: __u32,
    pub promised_bytes: __u64,
    pub held_bytes: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PromiseEntry"][::std::mem::size_of::<PromiseEntry>() - 40usize];
    ["Alignment of PromiseEntry"][::std::mem::align_of::<PromiseEntry>() - 8usize];
    [
        "Offset of field: PromiseEntry::flags",
    ][::std::mem::offset_of!(PromiseEntry, flags) - 0usize];
    [
        "Offset of field: PromiseEntry::uid",
    ][::std::mem::offset_of!(PromiseEntry, uid) - 4usize];
    [
        "Offset of field: PromiseEntry::id",
    ][::std::mem::offset_of!(PromiseEntry, id) - 8usize];
    [
        "Offset of field: PromiseEntry::node",
    ][::std::mem::offset_of!(PromiseEntry, node) - 16usize];
    [
        "Offset of field: PromiseEntry::__reserved",
    ][::std::mem::offset_of!(PromiseEntry, __reserved) - 20usize];
    [
        "Offset of field: PromiseEntry::promised_bytes",
    ][::std::mem::offset_of!(PromiseEntry, promised_bytes) - 24usize];
    [
        "Offset of field: PromiseEntry::held_bytes",
    ][::std::mem::offset_of!(PromiseEntry, held_bytes) - 32usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct PromiseList {
    pub size: __u32,
    pub flags: __u32,
    pub entries: __u64,
    pub nr: __u32,
    pub __reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PromiseList"][::std::mem::size_of::<PromiseList>() - 24usize];
    ["Alignment of PromiseList"][::std::mem::align_of::<PromiseList>() - 8usize];
    [
        "Offset of field: PromiseList::size",
    ][::std::mem::offset_of!(PromiseList, size) - 0usize];
    [
        "Offset of field: PromiseList::flags",
    ][::std::mem::offset_of!(PromiseList, flags) - 4usize];
    [
        "Offset of field: PromiseList::entries",
    ][::std::mem::offset_of!(PromiseList, entries) - 8usize];
    [
        "Offset of field: PromiseList::nr",
    ][::std::mem::offset_of!(PromiseList, nr) - 16usize];
    [
        "Offset of field: PromiseList::__reserved",
    ][::std::mem::offset_of!(PromiseList, __reserved) - 20usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct Run {
    pub address: __u64,
    pub length: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Run"][::std::mem::size_of::<Run>() - 16usize];
    ["Alignment of Run"][::std::mem::align_of::<Run>() - 8usize];
    ["Offset of field: Run::address"][::std::mem::offset_of!(Run, address) - 0usize];
    ["Offset of field: Run::length"][::std::mem::offset_of!(Run, length) - 8usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct Runs {
    pub size: __u32,
    pub flags: __u32,
    pub start: __u64,
    pub length: __u64,
    pub runs: __u64,
    pub nr: __u32,
    pub __reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Runs"][::std::mem::size_of::<Runs>() - 40usize];
    ["Alignment of Runs"][::std::mem::align_of::<Runs>() - 8usize];
    ["Offset of field: Runs::size"][::std::mem::offset_of!(Runs, size) - 0usize];
    ["Offset of field: Runs::flags"][::std::mem::offset_of!(Runs, flags) - 4usize];
    ["Offset of field: Runs::start"][::std::mem::offset_of!(Runs, start) - 8usize];
    ["Offset of field: Runs::length"][::std::mem::offset_of!(Runs, length) - 16usize];
    ["Offset of field: Runs::runs"][::std::mem::offset_of!(Runs, runs) - 24usize];
    ["Offset of field: Runs::nr"][::std::mem::offset_of!(Runs, nr) - 32usize];
    [
        "Offset of field: Runs::__reserved",
    ][::std::mem::offset_of!(Runs, __reserved) - 36usize];
};
