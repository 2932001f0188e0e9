//! Replacing a file by one that differs in a few bytes and in nothing else.

use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use nix::unistd::Uid;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use xattr::FileExt as _;

use super::{LENGTH, describe};
use crate::device::user_name;

const ACCESS_ACL: &str = "system.posix_acl_access";
const CAPABILITIES: &str = "security.capability";
const SIGNATURE: &str = "security.ima";

/// SHA-256 of a file, in hexadecimal.
#[derive(Debug)]
pub struct Digests {
    /// As it was.
    pub before: String,
    /// As it is now.
    pub after: String,
}

/// A file that is to be replaced where it is.
pub struct Place<'a> {
    /// Its path, without symbolic links.
    pub path: &'a Path,
    /// Open for reading.
    pub file: &'a File,
}

impl Place<'_> {
    /// What speaks against replacing the file, or, `to_mark`, against a mark.
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

    /// Puts a copy with other bytes at `offset` in the file's place, at once
    /// and for good.
    pub fn replace(&self, offset: u64, bytes: [u8; LENGTH]) -> Result<Digests, String> {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        let step = |what: String| move |error: io::Error| format!("{what}: {}", describe(&error));
        let meta = self.file.metadata().map_err(|error| describe(&error))?;
        let mut new = tempfile::Builder::new()
            .prefix(".hpmmap-mark-")
            .tempfile_in(dir)
            .map_err(step(format!("cannot make a file in {}", dir.display())))?;
        let digests =
            copy(self.file, &mut new, offset, bytes).map_err(step("cannot copy it".into()))?;
        self.copy_attributes(&meta, new.as_file())?;
        new.as_file()
            .sync_all()
            .map_err(step("cannot write the new file".into()))?;
        if !self.is_still(&meta) {
            return Err("was changed by somebody else meanwhile".into());
        }
        new.persist(self.path)
            .map_err(|error| step("cannot replace it".into())(error.error))?;
        File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(step(format!("cannot sync {}", dir.display())))?;
        Ok(digests)
    }

    /// Owner first, for that takes capabilities and mode bits away; mode last.
    fn copy_attributes(&self, meta: &Metadata, new: &File) -> Result<(), String> {
        fchown(new, Some(meta.uid()), Some(meta.gid()))
            .map_err(|error| format!("cannot keep its owner and group: {}", describe(&error)))?;
        let names: Vec<_> = match self.file.list_xattr() {
            Ok(names) => names.collect(),
            Err(error) if is_unsupported(&error) => Vec::new(),
            Err(error) => return Err(format!("cannot list its attributes: {}", describe(&error))),
        };
        for name in &names {
            let copied = self.file.get_xattr(name).and_then(|value| match value {
                // The new file often has it already, from the directory.
                Some(value) if new.get_xattr(name)?.as_ref() == Some(&value) => Ok(()),
                Some(value) => new.set_xattr(name, &value),
                None => Ok(()),
            });
            copied.map_err(|error| {
                let name = name.to_string_lossy();
                format!("cannot keep its attribute {name}: {}", describe(&error))
            })?;
        }
        // One that the directory gives to new files, but the old has not.
        if !names.iter().any(|name| name == ACCESS_ACL) {
            match new.remove_xattr(ACCESS_ACL) {
                Err(error) if !is_unsupported(&error) && !is_missing(&error) => {
                    return Err(format!("cannot keep its ACL: {}", describe(&error)));
                }
                _ => {}
            }
        }
        new.set_permissions(fs::Permissions::from_mode(meta.mode() & 0o7777))
            .map_err(|error| format!("cannot keep its mode: {}", describe(&error)))
    }

    fn is_still(&self, meta: &Metadata) -> bool {
        let identity = |meta: &Metadata| {
            (
                meta.dev(),
                meta.ino(),
                meta.size(),
                (meta.mtime(), meta.mtime_nsec()),
                (meta.ctime(), meta.ctime_nsec()),
            )
        };
        self.path
            .symlink_metadata()
            .is_ok_and(|now| identity(&now) == identity(meta))
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(hpmmap_sys::Errno::ENODATA as i32)
}

/// Copies all of `old`, with `bytes` at `offset`.
fn copy(
    mut old: &File,
    new: &mut NamedTempFile,
    offset: u64,
    bytes: [u8; LENGTH],
) -> io::Result<Digests> {
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

/// As sha256sum and diff tools print bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
