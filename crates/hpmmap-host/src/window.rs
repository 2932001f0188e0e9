//! Windows onto other processes' memory: `/sys/kernel/hpmmap/windows`.

use crate::numbers::numbers;
use crate::root::optional;
use crate::{Result, Root};

numbers! {
    /// Of all processes. The first two are current, the others count since the module was loaded.
    Windows: "sys/kernel/hpmmap/windows" {
        /// Current mappings of other processes' memory.
        attachments,
        /// Their length.
        attached_bytes,
        /// Page faults in windows.
        faults,
        /// Faults that were retried because the other process was changing its mappings.
        retries,
        /// Entries of 2 MB made.
        entries_2m,
        /// Entries of 4 KB made.
        entries_4k,
        /// Entries of 4 KB made for ordinary memory.
        entries_linux,
        /// Ranges that were taken out of windows because they changed.
        revoked,
    }
}

/// The counters; `None` if the module has no windows.
pub fn read(root: &Root) -> Result<Option<Windows>> {
    optional(Windows::read(root))
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
