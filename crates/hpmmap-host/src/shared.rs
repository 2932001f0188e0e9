//! Memory of files: `/sys/kernel/hpmmap/shared`.

use serde::Serialize;

use crate::root::optional;
use crate::{Result, Root};

const DIR: &str = "sys/kernel/hpmmap/shared";

/// Of all users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Shared {
    /// File systems that are mounted.
    pub mounts: u64,
    /// Files that have memory.
    pub files: u64,
    /// What they have.
    pub held_bytes: u64,
    /// What files gave up, and somebody still refers to.
    pub pinned_bytes: u64,
}

/// What there is to see; `None` from a module that has no files.
pub fn read(root: &Root) -> Result<Option<Shared>> {
    optional(read_all(root))
}

fn read_all(root: &Root) -> Result<Shared> {
    let number = |name: &str| root.read_number::<u64>(format!("{DIR}/{name}"));
    Ok(Shared {
        mounts: number("mounts")?,
        files: number("files")?,
        held_bytes: number("held_bytes")?,
        pinned_bytes: number("pinned_bytes")?,
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
