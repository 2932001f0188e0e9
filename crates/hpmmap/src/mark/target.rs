//! Replaces a file by a copy that differs in a few bytes only.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use hpmmap_base::error::describe;
use hpmmap_base::safe_files::{Dir, Inode, copy_attributes, is_unsupported};
use hpmmap_base::user_name;
use nix::unistd::Uid;
use sha2::{Digest, Sha256};
use xattr::FileExt as _;

/// Length of a mark in bytes: e_flags of the ELF header.
pub const LENGTH: usize = 4;

const CAPABILITIES: &str = "security.capability";
const SIGNATURE: &str = "security.ima";

/// SHA-256 of a file, in hexadecimal.
#[derive(Debug)]
pub struct Digests {
    /// The old file.
    pub before: String,
    /// The new file.
    pub after: String,
}

/// A file that is to be replaced where it is.
pub struct Place<'a> {
    /// Its directory.
    pub dir: &'a Dir,
    /// Its name there.
    pub name: &'a OsStr,
    /// Open for reading.
    pub file: &'a File,
}

impl Place<'_> {
    /// The reasons against replacing the file or, with `to_mark`, against a mark.
    pub fn check(&self, to_mark: bool) -> Result<(), String> {
        let meta = self.file.metadata().map_err(|error| describe(&error))?;
        if meta.nlink() > 1 {
            return Err(format!(
                "has {} hard links, of which only this one would change: copy it first",
                meta.nlink()
            ));
        }
        if to_mark {
            for (bit, what) in [(0o4000, "user"), (0o2000, "group")] {
                if meta.mode() & bit != 0 {
                    return Err(format!(
                        "is set-{what}-ID: such a program is never registered"
                    ));
                }
            }
            if self.has_attribute(CAPABILITIES)? {
                return Err("has file capabilities: such a program is never registered".into());
            }
        }
        if self.has_attribute(SIGNATURE)? {
            return Err("is signed (security.ima): the signature would be wrong".into());
        }
        let me = Uid::effective();
        if !me.is_root() && meta.uid() != me.as_raw() {
            return Err(format!(
                "belongs to {}: only they or root can replace it",
                user_name(meta.uid())
            ));
        }
        Ok(())
    }

    fn has_attribute(&self, name: &str) -> Result<bool, String> {
        match self.file.get_xattr(name) {
            Ok(value) => Ok(value.is_some()),
            Err(error) if is_unsupported(&error) => Ok(false),
            Err(error) => Err(format!("cannot read {name}: {}", describe(&error))),
        }
    }

    /// Replaces the file by a copy with other bytes at `offset`, in one step and durably.
    pub fn replace(&self, offset: u64, bytes: [u8; LENGTH]) -> Result<Digests, String> {
        let dir = self.dir.path();
        // An absolute path, which is valid from any directory.
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
        let dir = dir.display();
        let step = |what: String| move |error: io::Error| format!("{what}: {}", describe(&error));
        let meta = self.file.metadata().map_err(|error| describe(&error))?;
        let mut new = self
            .dir
            .create(0o600)
            .map_err(step(format!("cannot make a file in {dir}")))?;
        let digests =
            copy(self.file, &mut new.file, offset, bytes).map_err(step("cannot copy it".into()))?;
        copy_attributes(self.file, &new.file, 0o7777, &[])?;
        new.file
            .sync_all()
            .map_err(step("cannot write the new file".into()))?;
        let now = self
            .dir
            .inode(self.name)
            .map_err(|error| describe(&error))?;
        if now != Some(Inode::from(&meta)) {
            return Err("was changed by another process meanwhile".into());
        }
        new.commit(self.name)
            .map_err(step("cannot replace it".into()))?;
        self.dir
            .sync()
            .map_err(step(format!("cannot sync {dir}")))?;
        Ok(digests)
    }
}

/// Copies all of `old`, with `bytes` at `offset`.
fn copy(mut old: &File, new: &mut File, offset: u64, bytes: [u8; LENGTH]) -> io::Result<Digests> {
    let mut hashes = (Sha256::new(), Sha256::new());
    let mut head = vec![0; offset as usize + LENGTH];
    old.read_exact_at(&mut head, 0)?;
    hashes.0.update(&head);
    head[offset as usize..].copy_from_slice(&bytes);
    hashes.1.update(&head);
    new.write_all(&head)?;

    io::Seek::seek(&mut old, io::SeekFrom::Start(head.len() as u64))?;
    let mut piece = vec![0; 1 << 20];
    loop {
        let n = match old.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hashes.0.update(&piece[..n]);
        hashes.1.update(&piece[..n]);
        new.write_all(&piece[..n])?;
    }
    Ok(Digests {
        before: hex(&hashes.0.finalize()),
        after: hex(&hashes.1.finalize()),
    })
}

/// Bytes in hexadecimal, as sha256sum prints them.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
