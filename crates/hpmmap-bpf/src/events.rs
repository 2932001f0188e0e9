//! Made by bindgen from `bpf/events.h`: `tests/header.rs`.

pub const FAULT_F_WRITE: u8 = 1;
pub const FAULT_F_EXEC: u8 = 2;
pub const FAULT_F_MAJOR: u8 = 4;
pub const NAME_BYTES: u32 = 64;
pub type __u8 = ::std::os::raw::c_uchar;
pub type __u16 = ::std::os::raw::c_ushort;
pub type __u32 = ::std::os::raw::c_uint;
pub type __u64 = ::std::os::raw::c_ulonglong;
pub const EVENT_FAULT: event_type = 1;
pub const EVENT_FILE: event_type = 2;
pub const EVENT_FORK: event_type = 3;
pub const EVENT_EXEC: event_type = 4;
pub const EVENT_EXIT: event_type = 5;
pub const EVENT_MERGE: event_type = 6;
pub const EVENT_STOLEN: event_type = 7;
pub type event_type = ::std::os::raw::c_uint;
pub const KIND_OTHER: kind = 0;
pub const KIND_4K: kind = 1;
pub const KIND_2M: kind = 2;
pub const KIND_HUGETLB: kind = 3;
pub const KIND_COW: kind = 4;
pub const KIND_WRITE: kind = 5;
pub const KIND_SWAP: kind = 6;
pub const KIND_FILE: kind = 7;
pub const KIND_NUMA: kind = 8;
pub const KIND_MIGRATION: kind = 9;
pub const KIND_SPURIOUS: kind = 10;
pub const KIND_ERROR: kind = 11;
pub const KIND_COUNT: kind = 12;
pub type kind = ::std::os::raw::c_uint;
pub const STALL_NONE: stall = 0;
pub const STALL_MERGE: stall = 1;
pub const STALL_COMPACTION: stall = 2;
pub const STALL_RECLAIM: stall = 3;
pub const STALL_COUNT: stall = 4;
pub type stall = ::std::os::raw::c_uint;
pub const ORIGIN_USER: origin = 0;
pub const ORIGIN_KERNEL: origin = 1;
pub const ORIGIN_CALL: origin = 2;
pub const ORIGIN_COUNT: origin = 3;
pub type origin = ::std::os::raw::c_uint;
pub const CAUSE_RECLAIM: cause = 0;
pub const CAUSE_COMPACTION: cause = 1;
pub const CAUSE_MIGRATION: cause = 2;
pub const CAUSE_MERGE: cause = 3;
pub const CAUSE_COUNT: cause = 4;
pub type cause = ::std::os::raw::c_uint;
pub const MAPPING_ANON: mapping = 0;
pub const MAPPING_HEAP: mapping = 1;
pub const MAPPING_STACK: mapping = 2;
pub const MAPPING_FILE: mapping = 3;
pub const MAPPING_SPECIAL: mapping = 4;
pub type mapping = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Copy,
    Clone,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable
)]
pub struct fault_event {
    pub type_: __u16,
    pub cpu: __u16,
    pub pid: __u32,
    pub tid: __u32,
    pub kind: __u8,
    pub stall: __u8,
    pub origin: __u8,
    pub flags: __u8,
    pub start_ns: __u64,
    pub cost_ns: __u64,
    pub wait_ns: __u64,
    pub reclaim_ns: __u64,
    pub compaction_ns: __u64,
    pub migration_ns: __u64,
    pub address: __u64,
    pub map_start: __u64,
    pub map_end: __u64,
    pub map_ino: __u64,
    pub map_dev: __u32,
    pub map_class: __u8,
    pub level: __u8,
    pub retries: __u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of fault_event"][::std::mem::size_of::<fault_event>() - 104usize];
    ["Alignment of fault_event"][::std::mem::align_of::<fault_event>() - 8usize];
    [
        "Offset of field: fault_event::type_",
    ][::std::mem::offset_of!(fault_event, type_) - 0usize];
    [
        "Offset of field: fault_event::cpu",
    ][::std::mem::offset_of!(fault_event, cpu) - 2usize];
    [
        "Offset of field: fault_event::pid",
    ][::std::mem::offset_of!(fault_event, pid) - 4usize];
    [
        "Offset of field: fault_event::tid",
    ][::std::mem::offset_of!(fault_event, tid) - 8usize];
    [
        "Offset of field: fault_event::kind",
    ][::std::mem::offset_of!(fault_event, kind) - 12usize];
    [
        "Offset of field: fault_event::stall",
    ][::std::mem::offset_of!(fault_event, stall) - 13usize];
    [
        "Offset of field: fault_event::origin",
    ][::std::mem::offset_of!(fault_event, origin) - 14usize];
    [
        "Offset of field: fault_event::flags",
    ][::std::mem::offset_of!(fault_event, flags) - 15usize];
    [
        "Offset of field: fault_event::start_ns",
    ][::std::mem::offset_of!(fault_event, start_ns) - 16usize];
    [
        "Offset of field: fault_event::cost_ns",
    ][::std::mem::offset_of!(fault_event, cost_ns) - 24usize];
    [
        "Offset of field: fault_event::wait_ns",
    ][::std::mem::offset_of!(fault_event, wait_ns) - 32usize];
    [
        "Offset of field: fault_event::reclaim_ns",
    ][::std::mem::offset_of!(fault_event, reclaim_ns) - 40usize];
    [
        "Offset of field: fault_event::compaction_ns",
    ][::std::mem::offset_of!(fault_event, compaction_ns) - 48usize];
    [
        "Offset of field: fault_event::migration_ns",
    ][::std::mem::offset_of!(fault_event, migration_ns) - 56usize];
    [
        "Offset of field: fault_event::address",
    ][::std::mem::offset_of!(fault_event, address) - 64usize];
    [
        "Offset of field: fault_event::map_start",
    ][::std::mem::offset_of!(fault_event, map_start) - 72usize];
    [
        "Offset of field: fault_event::map_end",
    ][::std::mem::offset_of!(fault_event, map_end) - 80usize];
    [
        "Offset of field: fault_event::map_ino",
    ][::std::mem::offset_of!(fault_event, map_ino) - 88usize];
    [
        "Offset of field: fault_event::map_dev",
    ][::std::mem::offset_of!(fault_event, map_dev) - 96usize];
    [
        "Offset of field: fault_event::map_class",
    ][::std::mem::offset_of!(fault_event, map_class) - 100usize];
    [
        "Offset of field: fault_event::level",
    ][::std::mem::offset_of!(fault_event, level) - 101usize];
    [
        "Offset of field: fault_event::retries",
    ][::std::mem::offset_of!(fault_event, retries) - 102usize];
};
#[repr(C)]
#[derive(
    Debug,
    Copy,
    Clone,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable
)]
pub struct file_event {
    pub type_: __u16,
    pub unused: __u16,
    pub dev: __u32,
    pub ino: __u64,
    pub name: [::std::os::raw::c_char; 64usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of file_event"][::std::mem::size_of::<file_event>() - 80usize];
    ["Alignment of file_event"][::std::mem::align_of::<file_event>() - 8usize];
    [
        "Offset of field: file_event::type_",
    ][::std::mem::offset_of!(file_event, type_) - 0usize];
    [
        "Offset of field: file_event::unused",
    ][::std::mem::offset_of!(file_event, unused) - 2usize];
    [
        "Offset of field: file_event::dev",
    ][::std::mem::offset_of!(file_event, dev) - 4usize];
    [
        "Offset of field: file_event::ino",
    ][::std::mem::offset_of!(file_event, ino) - 8usize];
    [
        "Offset of field: file_event::name",
    ][::std::mem::offset_of!(file_event, name) - 16usize];
};
#[repr(C)]
#[derive(
    Debug,
    Copy,
    Clone,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable
)]
pub struct task_event {
    pub type_: __u16,
    pub unused: __u16,
    pub pid: __u32,
    pub tid: __u32,
    pub parent: __u32,
    pub time_ns: __u64,
    pub comm: [::std::os::raw::c_char; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of task_event"][::std::mem::size_of::<task_event>() - 40usize];
    ["Alignment of task_event"][::std::mem::align_of::<task_event>() - 8usize];
    [
        "Offset of field: task_event::type_",
    ][::std::mem::offset_of!(task_event, type_) - 0usize];
    [
        "Offset of field: task_event::unused",
    ][::std::mem::offset_of!(task_event, unused) - 2usize];
    [
        "Offset of field: task_event::pid",
    ][::std::mem::offset_of!(task_event, pid) - 4usize];
    [
        "Offset of field: task_event::tid",
    ][::std::mem::offset_of!(task_event, tid) - 8usize];
    [
        "Offset of field: task_event::parent",
    ][::std::mem::offset_of!(task_event, parent) - 12usize];
    [
        "Offset of field: task_event::time_ns",
    ][::std::mem::offset_of!(task_event, time_ns) - 16usize];
    [
        "Offset of field: task_event::comm",
    ][::std::mem::offset_of!(task_event, comm) - 24usize];
};
#[repr(C)]
#[derive(
    Debug,
    Copy,
    Clone,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable
)]
pub struct time_event {
    pub type_: __u16,
    pub cause: __u16,
    pub pid: __u32,
    pub tid: __u32,
    pub unused: __u32,
    pub start_ns: __u64,
    pub ns: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of time_event"][::std::mem::size_of::<time_event>() - 32usize];
    ["Alignment of time_event"][::std::mem::align_of::<time_event>() - 8usize];
    [
        "Offset of field: time_event::type_",
    ][::std::mem::offset_of!(time_event, type_) - 0usize];
    [
        "Offset of field: time_event::cause",
    ][::std::mem::offset_of!(time_event, cause) - 2usize];
    [
        "Offset of field: time_event::pid",
    ][::std::mem::offset_of!(time_event, pid) - 4usize];
    [
        "Offset of field: time_event::tid",
    ][::std::mem::offset_of!(time_event, tid) - 8usize];
    [
        "Offset of field: time_event::unused",
    ][::std::mem::offset_of!(time_event, unused) - 12usize];
    [
        "Offset of field: time_event::start_ns",
    ][::std::mem::offset_of!(time_event, start_ns) - 16usize];
    [
        "Offset of field: time_event::ns",
    ][::std::mem::offset_of!(time_event, ns) - 24usize];
};
#[repr(C)]
#[derive(
    Debug,
    Copy,
    Clone,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable
)]
pub struct total {
    pub count: __u64,
    pub sum_ns: __u64,
    pub max_ns: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of total"][::std::mem::size_of::<total>() - 24usize];
    ["Alignment of total"][::std::mem::align_of::<total>() - 8usize];
    ["Offset of field: total::count"][::std::mem::offset_of!(total, count) - 0usize];
    ["Offset of field: total::sum_ns"][::std::mem::offset_of!(total, sum_ns) - 8usize];
    ["Offset of field: total::max_ns"][::std::mem::offset_of!(total, max_ns) - 16usize];
};
pub const COUNTER_DROPPED: counter = 0;
pub const COUNTER_UNTRACKED: counter = 1;
pub const COUNTER_KERNEL_MINOR: counter = 2;
pub const COUNTER_KERNEL_MAJOR: counter = 3;
pub const COUNTER_MINOR: counter = 4;
pub const COUNTER_MAJOR: counter = 5;
pub const COUNTER_RETRIES: counter = 6;
pub const COUNTER_EXCEPTIONS: counter = 7;
pub const COUNTER_COUNT: counter = 8;
pub type counter = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Copy,
    Clone,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable
)]
pub struct control {
    pub recorder: __u32,
    pub root: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of control"][::std::mem::size_of::<control>() - 8usize];
    ["Alignment of control"][::std::mem::align_of::<control>() - 4usize];
    [
        "Offset of field: control::recorder",
    ][::std::mem::offset_of!(control, recorder) - 0usize];
    ["Offset of field: control::root"][::std::mem::offset_of!(control, root) - 4usize];
};
