//! Numbers in the form of reports.

use hpmmap_sys::uapi::LARGE_BYTES;

/// Whole gigabytes.
pub fn gigabytes(bytes: u64) -> u64 {
    bytes / LARGE_BYTES
}

pub fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
