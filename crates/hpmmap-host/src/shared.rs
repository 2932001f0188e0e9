//! Memory of files: `/sys/kernel/hpmmap/shared`.

use crate::numbers::numbers;
use crate::root::optional;
use crate::{Result, Root};

numbers! {
    /// Of all users.
    Shared: "sys/kernel/hpmmap/shared" {
        /// File systems that are mounted.
        mounts,
        /// Files that have memory.
        files,
        /// Memory of the files.
        held_bytes,
        /// Memory that files gave up and that still has references.
        pinned_bytes,
    }
}

/// The counters; `None` if the module has no files.
pub fn read(root: &Root) -> Result<Option<Shared>> {
    optional(Shared::read(root))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn every_file_has_its_member() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.shared(3, 6 << 20);
        let shared = read(&fixture.root()).unwrap().unwrap();
        assert_eq!((shared.files, shared.held_bytes), (3, 6 << 20));
        assert_eq!((shared.mounts, shared.pinned_bytes), (1, 2 << 20));
    }

    #[test]
    fn a_module_without_files_has_none() {
        let fixture = Fixture::new();
        fixture.module();
        assert_eq!(read(&fixture.root()).unwrap(), None);
    }
}
