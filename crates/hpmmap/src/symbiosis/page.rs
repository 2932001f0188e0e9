//! The format of the page, as lib/hpmmap_host.h has it: the host's part, then the guest's.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Size of the page, and of each part.
pub const PAGE_BYTES: usize = 4096;
pub const PART_BYTES: usize = PAGE_BYTES / 2;
pub const VERSION: u32 = 1;
/// Offset of the sequence number in the host's part.
pub const SEQUENCE_AT: usize = 12;
pub const HOST_MAGIC: u64 = u64::from_le_bytes(*b"HPMMAPVM");
pub const GUEST_MAGIC: u64 = u64::from_le_bytes(*b"HPMMAPGU");

pub const MOST_RANGES: usize = 20;
pub const MOST_DEVICES: usize = 8;
pub const MOST_VCPUS: usize = 256;

/// Flags of the host's part.
pub const RUNNING: u32 = 1;
pub const CRITICAL: u32 = 2;
pub const TIMER: u32 = 4;
/// A number of 64 bits that is not known.
pub const UNKNOWN: u64 = u64::MAX;
/// A vCPU that may run on several CPUs, a host without pools.
pub const NONE: u16 = u16::MAX;

/// RAM of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Range {
    /// Guest-physical address.
    pub start: u64,
    pub bytes: u64,
    /// Part of it that the host maps by entries of 2 MB or more.
    pub large_bytes: u64,
    /// Size of the host's entries that map most of it; 0: unknown.
    pub entry_bytes: u64,
    /// Largest nested entry that the addresses of guest and host allow.
    pub align_bytes: u64,
    /// Host-physical address of its first byte.
    pub physical: u64,
    /// Host-physically contiguous runs; 0: unknown.
    pub runs: u32,
    /// NUMA node of the host; -1: unknown, or several.
    pub node: i32,
}

impl Range {
    /// The largest nested entries that most of it can have; 0: unknown.
    pub fn nested_bytes(&self) -> u64 {
        self.entry_bytes.min(self.align_bytes)
    }
}

/// A passed-through device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Device {
    pub vendor: u16,
    pub device: u16,
    /// NUMA node of the host, or -1.
    pub node: i16,
    pub reserved: u16,
}

/// The part that the host writes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HostPart {
    pub magic: u64,
    pub version: u32,
    /// Odd while the part is written.
    pub sequence: u32,
    pub flags: u32,
    /// Longest critical section that the host honours.
    pub deadline_ms: u32,
    /// Seconds since 1970 of the last update.
    pub updated: u64,
    /// RAM by nested entries of 4 KB, 2 MB and 1 GB.
    pub nested: [u64; 3],
    pub nr_ranges: u16,
    pub nr_devices: u16,
    pub nr_vcpus: u16,
    /// Percent of the host's pools that are used, or `NONE`.
    pub pool_used: u16,
    pub reserved: [u64; 8],
    pub ranges: [Range; MOST_RANGES],
    pub devices: [Device; MOST_DEVICES],
    /// The CPU of the host that each vCPU is bound to, or `NONE`.
    pub vcpus: [u16; MOST_VCPUS],
    pub end: [u8; 224],
}

impl HostPart {
    /// One that tells nothing.
    pub fn new() -> Self {
        Self {
            magic: HOST_MAGIC,
            version: VERSION,
            nested: [UNKNOWN; 3],
            pool_used: NONE,
            vcpus: [NONE; MOST_VCPUS],
            ..Self::new_zeroed()
        }
    }

    pub fn set_ranges(&mut self, ranges: &[Range]) {
        let nr = ranges.len().min(MOST_RANGES);
        self.ranges[..nr].copy_from_slice(&ranges[..nr]);
        self.nr_ranges = nr as u16;
    }

    pub fn set_devices(&mut self, devices: &[Device]) {
        let nr = devices.len().min(MOST_DEVICES);
        self.devices[..nr].copy_from_slice(&devices[..nr]);
        self.nr_devices = nr as u16;
    }

    pub fn set_vcpus(&mut self, vcpus: &[u16]) {
        let nr = vcpus.len().min(MOST_VCPUS);
        self.vcpus[..nr].copy_from_slice(&vcpus[..nr]);
        self.nr_vcpus = nr as u16;
    }

    pub fn ranges(&self) -> &[Range] {
        &self.ranges[..usize::from(self.nr_ranges).min(MOST_RANGES)]
    }

    pub fn devices(&self) -> &[Device] {
        &self.devices[..usize::from(self.nr_devices).min(MOST_DEVICES)]
    }

    pub fn vcpus(&self) -> &[u16] {
        &self.vcpus[..usize::from(self.nr_vcpus).min(MOST_VCPUS)]
    }
}

/// The part that the guest writes. Each word stands alone, so it has no sequence number: a guest
/// cannot make the host wait.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GuestPart {
    pub magic: u64,
    pub version: u32,
    /// Programs that are sensitive to timers.
    pub timer: u32,
    /// The boot of the guest that has written it.
    pub boot: u64,
    pub reserved: [u64; 5],
    /// Of each vCPU: how deep its critical sections are nested (lower half), and how many have begun
    /// (upper half).
    pub critical: [u32; MOST_VCPUS],
}

/// What the guest asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Demands<'a> {
    pub timer: bool,
    pub critical: &'a [u32; MOST_VCPUS],
}

impl GuestPart {
    /// What the guest asks for; `None` if it has never written, or speaks another version.
    pub fn demands(&self) -> Option<Demands<'_>> {
        (self.magic == GUEST_MAGIC && self.version == VERSION).then_some(Demands {
            timer: self.timer != 0,
            critical: &self.critical,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// The assertions of lib/host.c, which the compiler checks, name the same offsets.
    #[test]
    fn the_format_is_that_of_the_header() {
        assert_eq!(size_of::<HostPart>(), PART_BYTES);
        assert_eq!(offset_of!(HostPart, sequence), SEQUENCE_AT);
        let asserted = include_str!("../../../../lib/host.c");
        let found: Vec<(&str, usize)> = asserted
            .lines()
            .filter_map(|line| {
                let (field, offset) = line.strip_prefix("AT(")?.split_once(", ")?;
                let offset = offset.strip_suffix(");")?.strip_prefix("0x")?;
                Some((field, usize::from_str_radix(offset, 16).ok()?))
            })
            .collect();
        let ours = [
            ("host.sequence", offset_of!(HostPart, sequence)),
            ("host.flags", offset_of!(HostPart, flags)),
            ("host.updated", offset_of!(HostPart, updated)),
            ("host.nested", offset_of!(HostPart, nested)),
            ("host.nr_ranges", offset_of!(HostPart, nr_ranges)),
            ("host.ranges", offset_of!(HostPart, ranges)),
            ("host.devices", offset_of!(HostPart, devices)),
            ("host.vcpus", offset_of!(HostPart, vcpus)),
            ("guest", PART_BYTES),
            ("guest.timer", PART_BYTES + offset_of!(GuestPart, timer)),
            ("guest.boot", PART_BYTES + offset_of!(GuestPart, boot)),
            (
                "guest.critical",
                PART_BYTES + offset_of!(GuestPart, critical),
            ),
        ];
        assert_eq!(found, ours);
    }
}
