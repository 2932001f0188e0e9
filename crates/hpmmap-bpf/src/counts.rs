//! Made by bindgen from `bpf/noise.h`: `tests/header.rs`.

pub const SOFTIRQS: u32 = 10;
pub const TICK_REASONS: u32 = 6;
pub type __u32 = ::std::os::raw::c_uint;
pub type __u64 = ::std::os::raw::c_ulonglong;
pub const VECTOR_LOC: vector = 0;
pub const VECTOR_RES: vector = 1;
pub const VECTOR_CAL: vector = 2;
pub const VECTOR_IWI: vector = 3;
pub const VECTOR_TRM: vector = 4;
pub const VECTOR_THR: vector = 5;
pub const VECTOR_DFR: vector = 6;
pub const VECTOR_SPU: vector = 7;
pub const VECTOR_PLT: vector = 8;
pub const VECTOR_COUNT: vector = 9;
pub type vector = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Copy,
    Clone,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable
)]
pub struct hits {
    pub count: __u64,
    pub in_job: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hits"][::std::mem::size_of::<hits>() - 16usize];
    ["Alignment of hits"][::std::mem::align_of::<hits>() - 8usize];
    ["Offset of field: hits::count"][::std::mem::offset_of!(hits, count) - 0usize];
    ["Offset of field: hits::in_job"][::std::mem::offset_of!(hits, in_job) - 8usize];
};
pub const WHO_IDLE: who = 0;
pub const WHO_JOB: who = 1;
pub const WHO_LAUNCHER: who = 2;
pub const WHO_OTHER: who = 3;
pub const WHO_ENDING: who = 4;
pub type who = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Copy,
    Clone,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable
)]
pub struct cpu_counts {
    pub measured: __u64,
    pub since_ns: __u64,
    pub who: __u64,
    pub job_ns: __u64,
    pub arrivals: __u64,
    pub others: __u64,
    pub preemptions: __u64,
    pub migrations: __u64,
    pub lost: __u64,
    pub vectors: [hits; 9usize],
    pub softirqs: [hits; 10usize],
    pub tick_reasons: [__u64; 6usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpu_counts"][::std::mem::size_of::<cpu_counts>() - 424usize];
    ["Alignment of cpu_counts"][::std::mem::align_of::<cpu_counts>() - 8usize];
    [
        "Offset of field: cpu_counts::measured",
    ][::std::mem::offset_of!(cpu_counts, measured) - 0usize];
    [
        "Offset of field: cpu_counts::since_ns",
    ][::std::mem::offset_of!(cpu_counts, since_ns) - 8usize];
    [
        "Offset of field: cpu_counts::who",
    ][::std::mem::offset_of!(cpu_counts, who) - 16usize];
    [
        "Offset of field: cpu_counts::job_ns",
    ][::std::mem::offset_of!(cpu_counts, job_ns) - 24usize];
    [
        "Offset of field: cpu_counts::arrivals",
    ][::std::mem::offset_of!(cpu_counts, arrivals) - 32usize];
    [
        "Offset of field: cpu_counts::others",
    ][::std::mem::offset_of!(cpu_counts, others) - 40usize];
    [
        "Offset of field: cpu_counts::preemptions",
    ][::std::mem::offset_of!(cpu_counts, preemptions) - 48usize];
    [
        "Offset of field: cpu_counts::migrations",
    ][::std::mem::offset_of!(cpu_counts, migrations) - 56usize];
    [
        "Offset of field: cpu_counts::lost",
    ][::std::mem::offset_of!(cpu_counts, lost) - 64usize];
    [
        "Offset of field: cpu_counts::vectors",
    ][::std::mem::offset_of!(cpu_counts, vectors) - 72usize];
    [
        "Offset of field: cpu_counts::softirqs",
    ][::std::mem::offset_of!(cpu_counts, softirqs) - 216usize];
    [
        "Offset of field: cpu_counts::tick_reasons",
    ][::std::mem::offset_of!(cpu_counts, tick_reasons) - 376usize];
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
pub struct other_key {
    pub cpu: __u32,
    pub comm: [::std::os::raw::c_char; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of other_key"][::std::mem::size_of::<other_key>() - 20usize];
    ["Alignment of other_key"][::std::mem::align_of::<other_key>() - 4usize];
    ["Offset of field: other_key::cpu"][::std::mem::offset_of!(other_key, cpu) - 0usize];
    [
        "Offset of field: other_key::comm",
    ][::std::mem::offset_of!(other_key, comm) - 4usize];
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
pub struct other_counts {
    pub switches: __u64,
    pub preemptions: __u64,
    pub ns: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of other_counts"][::std::mem::size_of::<other_counts>() - 24usize];
    ["Alignment of other_counts"][::std::mem::align_of::<other_counts>() - 8usize];
    [
        "Offset of field: other_counts::switches",
    ][::std::mem::offset_of!(other_counts, switches) - 0usize];
    [
        "Offset of field: other_counts::preemptions",
    ][::std::mem::offset_of!(other_counts, preemptions) - 8usize];
    [
        "Offset of field: other_counts::ns",
    ][::std::mem::offset_of!(other_counts, ns) - 16usize];
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
pub struct noise_control {
    pub namespace_dev: __u64,
    pub namespace_ino: __u64,
    pub launcher: __u32,
    pub recorder: __u32,
    pub whole_time: __u32,
    pub on: __u32,
    pub processes: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of noise_control"][::std::mem::size_of::<noise_control>() - 40usize];
    ["Alignment of noise_control"][::std::mem::align_of::<noise_control>() - 8usize];
    [
        "Offset of field: noise_control::namespace_dev",
    ][::std::mem::offset_of!(noise_control, namespace_dev) - 0usize];
    [
        "Offset of field: noise_control::namespace_ino",
    ][::std::mem::offset_of!(noise_control, namespace_ino) - 8usize];
    [
        "Offset of field: noise_control::launcher",
    ][::std::mem::offset_of!(noise_control, launcher) - 16usize];
    [
        "Offset of field: noise_control::recorder",
    ][::std::mem::offset_of!(noise_control, recorder) - 20usize];
    [
        "Offset of field: noise_control::whole_time",
    ][::std::mem::offset_of!(noise_control, whole_time) - 24usize];
    [
        "Offset of field: noise_control::on",
    ][::std::mem::offset_of!(noise_control, on) - 28usize];
    [
        "Offset of field: noise_control::processes",
    ][::std::mem::offset_of!(noise_control, processes) - 32usize];
};
