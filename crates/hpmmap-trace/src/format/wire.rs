//! The bytes of a recorded file, as they lie there.

use bytes::{Buf, BufMut};
use hpmmap_bpf::{Kind, Origin, Stall};

use super::Fault;

/// What a file begins with.
pub const MAGIC: [u8; 8] = *b"HPMMAPT\n";
/// Of the format that is written.
pub const VERSION: u32 = 1;
/// No header or record is larger, however long the command line is.
pub const MAX_BYTES: u32 = 16 << 20;

/// Kinds of records.
pub const FAULT: u16 = 1;
pub const MAPPING: u16 = 2;
pub const TASK: u16 = 3;
pub const TIME: u16 = 4;
pub const SUMMARY: u16 = 5;

const F_WRITE: u8 = 1 << 0;
const F_EXEC: u8 = 1 << 1;
const F_MAJOR: u8 = 1 << 2;

/// Of the head of a file and that of a record, in bytes.
pub const HEAD_BYTES: usize = 8;

/// What lies between [`MAGIC`] and the header, which is JSON: the version of the
/// format, and the length of the header in bytes.
pub fn file_head(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES);
    out.put_u32_le(VERSION);
    out.put_u32_le(json.len() as u32);
    out
}

/// Version and length of a [`file_head`].
pub fn read_file_head(head: &[u8; HEAD_BYTES]) -> (u32, u32) {
    let mut head = &head[..];
    (head.get_u32_le(), head.get_u32_le())
}

/// What lies in front of each record: its kind, and the length of the payload in
/// bytes.
pub fn record_head(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES);
    out.put_u16_le(kind);
    out.put_u16_le(0);
    out.put_u32_le(payload.len() as u32);
    out
}

/// Kind and length of a [`record_head`].
pub fn read_record_head(head: &[u8; HEAD_BYTES]) -> (u16, u32) {
    let mut head = &head[..];
    let kind = head.get_u16_le();
    head.advance(2);
    (kind, head.get_u32_le())
}

/// The payload of a record of a fault.
pub fn encode_fault(fault: &Fault) -> Vec<u8> {
    let mut out = Vec::with_capacity(80);
    for ns_or_address in [
        fault.start_ns,
        fault.cost_ns,
        fault.address,
        fault.wait_ns,
        fault.reclaim_ns,
        fault.compaction_ns,
        fault.migration_ns,
    ] {
        out.put_u64_le(ns_or_address);
    }
    out.put_u32_le(fault.pid);
    out.put_u32_le(fault.tid);
    out.put_u32_le(fault.mapping);
    out.put_u16_le(fault.cpu);
    out.put_u16_le(fault.retries);
    out.put_u8(fault.kind as u8);
    out.put_u8(fault.stall as u8);
    out.put_u8(fault.origin as u8);
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    out.put_u8(flag(fault.write, F_WRITE) | flag(fault.exec, F_EXEC) | flag(fault.major, F_MAJOR));
    out.put_u8(fault.level);
    out.put_bytes(0, 3);
    out
}

/// The fault of a payload; `None` if that is too short or has numbers that
/// nothing has. Later versions may append to it.
pub fn decode_fault(mut payload: &[u8]) -> Option<Fault> {
    let from = &mut payload;
    // The fields are evaluated in the order in which they stand here: that of the file.
    let mut fault = Fault {
        start_ns: from.try_get_u64_le().ok()?,
        cost_ns: from.try_get_u64_le().ok()?,
        address: from.try_get_u64_le().ok()?,
        wait_ns: from.try_get_u64_le().ok()?,
        reclaim_ns: from.try_get_u64_le().ok()?,
        compaction_ns: from.try_get_u64_le().ok()?,
        migration_ns: from.try_get_u64_le().ok()?,
        pid: from.try_get_u32_le().ok()?,
        tid: from.try_get_u32_le().ok()?,
        mapping: from.try_get_u32_le().ok()?,
        cpu: from.try_get_u16_le().ok()?,
        retries: from.try_get_u16_le().ok()?,
        kind: Kind::from_number(from.try_get_u8().ok()?)?,
        stall: Stall::from_number(from.try_get_u8().ok()?)?,
        origin: Origin::from_number(from.try_get_u8().ok()?)?,
        write: false,
        exec: false,
        major: false,
        level: 0,
    };
    let flags = from.try_get_u8().ok()?;
    (fault.write, fault.exec) = (flags & F_WRITE != 0, flags & F_EXEC != 0);
    fault.major = flags & F_MAJOR != 0;
    fault.level = from.try_get_u8().ok()?;
    Some(fault)
}
