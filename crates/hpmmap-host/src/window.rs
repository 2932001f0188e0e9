//! Windows onto other processes' memory: `/sys/kernel/hpmmap/windows`.

use serde::Serialize;

use crate::root::optional;
use crate::{Result, Root};

const DIR: &str = "sys/kernel/hpmmap/windows";

/// Of all processes; all but the first two since the module was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Windows {
    /// Mappings of other processes' memory that there are.
    pub attachments: u64,
    /// Their length.
    pub attached_bytes: u64,
    /// Page faults in them.
    pub faults: u64,
    /// Of those, tried again since the other process was changing its mappings.
    pub retries: u64,
    /// Entries of 2 MB that were made.
    pub entries_2m: u64,
    /// Entries of 4 KB that were made.
    pub entries_4k: u64,
    /// Entries of 4 KB that were made for memory of Linux.
    pub entries_linux: u64,
    /// Ranges that were taken out of them, since they changed.
    pub revoked: u64,
}

/// What there is to see; `None` from a module that has no windows.
pub fn read(root: &Root) -> Result<Option<Windows>> {
    optional(read_all(root))
}

fn read_all(root: &Root) -> Result<Windows> {
    let number = |name: &str| root.read_number::<u64>(format!("{DIR}/{name}"));
    Ok(Windows {
        attachments: number("attachments")?,
        attached_bytes: number("attached_bytes")?,
        faults: number("faults")?,
        retries: number("retries")?,
        entries_2m: number("entries_2m")?,
        entries_4k: number("entries_4k")?,
        entries_linux: number("entries_linux")?,
        revoked: number("revoked")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn every_file_has_its_member() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.windows(2, 3 << 20);
        let windows = read(&fixture.root()).unwrap().unwrap();
        assert_eq!((windows.attachments, windows.attached_bytes), (2, 3 << 20));
        assert_eq!((windows.faults, windows.retries), (10, 11));
        assert_eq!((windows.entries_2m, windows.entries_4k), (12, 13));
        assert_eq!((windows.entries_linux, windows.revoked), (14, 15));
    }

    #[test]
    fn a_module_without_windows_has_none() {
        let fixture = Fixture::new();
        fixture.module();
        assert_eq!(read(&fixture.root()).unwrap(), None);
    }
}
