//! A page of a device's memory, which a host writes at any moment.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// Size of a page.
pub const BYTES: usize = 4096;
const WORDS: usize = BYTES / 8;

/// A mapped page.
#[derive(Debug)]
pub struct DevicePage {
    start: NonNull<u64>,
}

impl DevicePage {
    /// Maps the first page of `path`, such as `/sys/bus/pci/devices/.../resource2`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.len() < BYTES as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let length = NonZeroUsize::new(BYTES).expect("a page is not empty");
        // SAFETY: the kernel chooses a free address; nothing else knows it.
        let start = unsafe {
            mmap(
                None,
                length,
                ProtFlags::PROT_READ,
                MapFlags::MAP_SHARED,
                file.as_fd(),
                0,
            )
        }?;
        Ok(Self {
            start: start.cast(),
        })
    }

    /// Copies it, each word of 8 bytes once. Words may be of different moments.
    pub fn copy(&self) -> [u8; BYTES] {
        let mut copy = [0; BYTES];
        for at in 0..WORDS {
            // SAFETY: the word lies in the mapped page, which is aligned and lives as long as
            // `self`. The host may write it: a volatile load takes what is there.
            let word = unsafe { self.start.add(at).read_volatile() };
            copy[at * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        copy
    }
}

impl Drop for DevicePage {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and no reference into it exists.
        let _ = unsafe { munmap(self.start.cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn it_shows_what_is_there_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page");
        fs::write(&path, [7; 100]).unwrap();
        assert!(DevicePage::open(&path).is_err());
        fs::write(&path, [7; BYTES]).unwrap();
        let page = DevicePage::open(&path).unwrap();
        assert_eq!(page.copy(), [7; BYTES]);
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[1, 2, 3], 8).unwrap();
        assert_eq!(page.copy()[7..12], [7, 1, 2, 3, 7]);
    }
}
