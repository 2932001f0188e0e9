//! Opens a cgroup by its ID.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;

/// FILEID_KERNFS: the handle is the ID of a kernfs node.
const KERNFS: i32 = 0xfe;

/// `struct file_handle` with an ID.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    id: u64,
}

/// Opens the directory of the cgroup with this ID. `mount` is any directory of the unified
/// hierarchy. Needs CAP_DAC_READ_SEARCH; ESTALE: there is no such cgroup.
pub fn open(mount: &File, id: u64) -> Result<OwnedFd, Errno> {
    let mut handle = Handle {
        bytes: size_of::<u64>() as u32,
        kind: KERNFS,
        id,
    };
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the handle is as large as it says and lives until the call returns.
    let fd = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), flags) };
    // SAFETY: the call has made the descriptor, and nothing else owns it.
    Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_no_cgroup_is_not_found() {
        let directory = File::open("/").unwrap();
        assert!(open(&directory, u64::MAX).is_err());
    }

    #[test]
    fn the_number_of_a_cgroup_is_that_of_its_directory() {
        let root = Path::new("/sys/fs/cgroup");
        let mount = File::open(root);
        // Needs root and cgroup v2.
        if !nix::unistd::Uid::effective().is_root() || !root.join("cgroup.procs").exists() {
            return;
        }
        let entries = fs::read_dir(root).unwrap().flatten();
        let Some(one) = entries.map(|entry| entry.path()).find(|path| path.is_dir()) else {
            return;
        };
        let found = open(&mount.unwrap(), one.metadata().unwrap().ino());
        // A container may lack the capability.
        if let Ok(found) = found {
            let link = format!("/proc/self/fd/{}", found.as_raw_fd());
            assert_eq!(fs::read_link(link).unwrap(), one);
        }
    }
}
