//! Files that are made, replaced and read in directories that others may write to.
//!
//! root writes into directories of users, and a user into those of a group. So a directory is
//! opened once, and everything else is done by name in that open directory: new files have
//! unpredictable names, a file that exists is never opened as a new one, and a rename replaces a
//! link instead of following it. A link at the end of a path is followed only if the caller or
//! root made it; for root the same holds for links in the middle of a path.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{AccessFlags, Uid, UnlinkatFlags, faccessat, unlinkat};
use xattr::FileExt as _;

use crate::error::{Error, Result, describe};
use crate::user_name;

const ACCESS_ACL: &str = "system.posix_acl_access";
/// The kernel's own limit.
const MAX_LINKS: usize = 40;
/// How often another name is tried if one exists already.
const ATTEMPTS: usize = 100;

/// Is an owner `uid` as trustworthy as the caller?
fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == Uid::effective().as_raw()
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Explains why another user may control the files there.
fn distrust(meta: &Metadata) -> io::Result<()> {
    if !is_trusted(meta.uid()) {
        return Err(refused(format!("belongs to {}", user_name(meta.uid()))));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(refused(
            "can be written by others (chmod go-w takes that away)".into(),
        ));
    }
    Ok(())
}

/// Lets no other user open a file or directory from now on. flock(2) asks for no more than an open
/// file: what others can open they can lock, and never unlock.
pub fn keep_from_others(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.mode();
    match mode & 0o077 {
        0 => Ok(()),
        _ => file.set_permissions(Permissions::from_mode(mode & 0o700)),
    }
}

/// Pushes the components of a path onto a stack, the first one on top.
fn push_components(path: &Path, stack: &mut Vec<OsString>) {
    stack.extend(path.iter().rev().map(OsStr::to_os_string));
}

fn others_link(stat: &FileStat) -> io::Error {
    refused(format!(
        "is a symbolic link of {}, which is not followed: name the file itself",
        user_name(stat.st_uid)
    ))
}

/// Opens a directory component by component, and follows no link of another user.
fn open_trusted(path: &Path) -> io::Result<File> {
    let open = |at: &File, name: &OsStr, flags: OFlag| -> io::Result<File> {
        let flags = flags | OFlag::O_CLOEXEC;
        Ok(File::from(openat(at, name, flags, Mode::empty())?))
    };
    let start = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let mut at = File::from(openat(AT_FDCWD, ".", start, Mode::empty())?);
    let mut left = Vec::new();
    let mut links = 0;
    push_components(path, &mut left);
    while let Some(name) = left.pop() {
        // Continue from the descriptor that was checked: the name may lead elsewhere by then.
        let next = open(&at, &name, OFlag::O_PATH | OFlag::O_NOFOLLOW)?;
        let stat = fstat(&next)?;
        if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFLNK {
            at = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::ELOOP.into());
        }
        if !is_trusted(stat.st_uid) {
            return Err(others_link(&stat));
        }
        // Links in /proc lead to open files, not to paths.
        if fstatfs(&next)?.filesystem_type() == PROC_SUPER_MAGIC {
            at = open(&at, &name, OFlag::O_PATH)?;
            continue;
        }
        let target = readlinkat(&next, "")?;
        push_components(Path::new(&target), &mut left);
    }
    open(&at, OsStr::new("."), OFlag::O_RDONLY | OFlag::O_DIRECTORY)
}

/// An open directory: it stays the same, whatever happens to its path.
#[derive(Debug)]
pub struct Dir {
    file: File,
    path: PathBuf,
}

impl Dir {
    /// Opens a directory. Symbolic links are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = match path == Path::new("") {
            true => Path::new("."),
            false => path,
        };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let file = File::from(openat(AT_FDCWD, path, flags, Mode::empty())?);
        Ok(Self {
            file,
            path: path.to_path_buf(),
        })
    }

    /// Opens a directory for `links`. If root trusts only its own links, that holds for each link
    /// in the path: any could lead into a directory of root.
    fn open_by(path: &Path, links: Links) -> io::Result<Self> {
        if links == Links::All || !Uid::effective().is_root() {
            return Self::open(path);
        }
        Ok(Self {
            file: open_trusted(path)?,
            path: path.to_path_buf(),
        })
    }

    /// Fails if other users can change the directory.
    pub fn check_trusted(&self) -> io::Result<()> {
        distrust(&self.file.metadata()?)
    }

    /// The path as it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn stat(&self, name: &OsStr) -> io::Result<Option<FileStat>> {
        match fstatat(&self.file, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The file that has this name now, if any; a link is not followed.
    pub fn inode(&self, name: &OsStr) -> io::Result<Option<Inode>> {
        Ok(self.stat(name)?.map(|stat| Inode {
            device: stat.st_dev,
            number: stat.st_ino,
            size: stat.st_size as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }))
    }

    fn open_at(&self, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<OwnedFd> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        Ok(openat(
            &self.file,
            name,
            flags,
            Mode::from_bits_truncate(mode),
        )?)
    }

    /// Opens a regular file that is not a link.
    fn regular(&self, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<File> {
        // Does not wait for the other end if it is a pipe.
        let file = match self.open_at(name, flags | OFlag::O_NONBLOCK, mode) {
            Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) => {
                return Err(refused("is a symbolic link".into()));
            }
            opened => File::from(opened?),
        };
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(refused("is not a regular file".into())),
        }
    }

    /// Reads a whole regular file of at most `limit` bytes; with `trusted` only if no user but the
    /// caller and root can write to it.
    pub fn read(&self, name: &str, limit: u64, trusted: bool) -> io::Result<Vec<u8>> {
        let file = self.regular(OsStr::new(name), OFlag::O_RDONLY, 0)?;
        let meta = file.metadata()?;
        if trusted {
            distrust(&meta)?;
        }
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(refused(format!("is larger than {limit} bytes")));
        }
        Ok(bytes)
    }

    /// Opens a regular file of the caller or root for appending; it is made if it does not exist.
    pub fn append(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT;
        let file = self.regular(OsStr::new(name), flags, 0o644)?;
        distrust(&file.metadata()?)?;
        Ok(file)
    }

    /// Opens a file that only its owner can lock by flock(2); it is made if it does not exist.
    pub fn lock_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_CREAT;
        let file = self.regular(OsStr::new(name), flags, 0o600)?;
        keep_from_others(&file)?;
        Ok(file)
    }

    /// Makes a directory in it that other users cannot write to, or finds one.
    pub fn make_dir(&self, name: &str) -> io::Result<()> {
        match mkdirat(&self.file, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) => return Ok(()),
            Err(Errno::EEXIST) => (),
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        distrust(&File::from(self.open_at(OsStr::new(name), flags, 0)?).metadata()?)
    }

    /// Makes a new file with an unpredictable name.
    pub fn create(&self, mode: u32) -> io::Result<New<'_>> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        for _ in 0..ATTEMPTS {
            // Collectors of *.prom files skip names with another ending.
            let name: String = (0..12).map(|_| fastrand::alphanumeric()).collect();
            let name = OsString::from(format!(".hpmmap-{name}"));
            match self.open_at(&name, flags, mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => {
                    return Ok(New {
                        file: File::from(opened?),
                        dir: self,
                        name: Some(name),
                    });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Replaces a file whole or not at all, durably.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut new = self.create(0o666)?;
        new.file.write_all(bytes)?;
        new.file.sync_all()?;
        new.commit(OsStr::new(name))?;
        self.sync()
    }

    /// Makes changes of names durable.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Removes a name.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.file, name, UnlinkatFlags::NoRemoveDir)?)
    }
}

/// Identifies a file at a moment.
#[derive(Debug, PartialEq, Eq)]
pub struct Inode {
    device: u64,
    number: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Metadata> for Inode {
    fn from(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            number: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// A new file, which gets its name at the end; without that it is removed.
pub struct New<'a> {
    /// Open for writing.
    pub file: File,
    dir: &'a Dir,
    name: Option<OsString>,
}

impl New<'_> {
    /// Gives the file the name `to`, in place of a file that has it.
    pub fn commit(mut self, to: &OsStr) -> io::Result<File> {
        if let Some(name) = &self.name {
            renameat(&self.dir.file, name.as_os_str(), &self.dir.file, to)?;
            self.name = None;
        }
        self.file.try_clone()
    }
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // There is no place to report a failure.
            let _ = self.dir.remove(name);
        }
    }
}

/// The symbolic links that are followed: at the end of a path and, for root, in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// All links: for files that are only read.
    All,
    /// Links that the caller or root made.
    Trusted,
}

/// The place that a path leads to.
#[derive(Debug)]
pub enum Place {
    /// A name in a directory, and the regular file that has the name now.
    Name(Dir, OsString, Option<File>),
    /// A pipe, a device or the like.
    Stream(Dir, OsString, OFlag),
}

/// Finds the place that a path leads to.
pub fn find(path: &Path, links: Links) -> io::Result<Place> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Some(name) = path.file_name().map(OsStr::to_os_string) else {
            return Err(Errno::EISDIR.into());
        };
        let dir = Dir::open_by(path.parent().unwrap_or(Path::new("")), links)?;
        let Some(stat) = dir.stat(&name)? else {
            return Ok(Place::Name(dir, name, None));
        };
        let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
        let is_others = links == Links::Trusted && !is_trusted(stat.st_uid);
        match kind {
            SFlag::S_IFLNK if is_others => {
                return Err(others_link(&stat));
            }
            // Links in /proc lead to open files, not to paths.
            SFlag::S_IFLNK
                if links == Links::Trusted
                    && fstatfs(&dir.file)?.filesystem_type() == PROC_SUPER_MAGIC =>
            {
                return Ok(Place::Stream(dir, name, OFlag::O_APPEND));
            }
            SFlag::S_IFLNK => path = dir.path.join(readlinkat(&dir.file, name.as_os_str())?),
            SFlag::S_IFDIR => return Err(Errno::EISDIR.into()),
            SFlag::S_IFREG => {
                let file = dir.regular(&name, OFlag::O_RDONLY, 0)?;
                return Ok(Place::Name(dir, name, Some(file)));
            }
            SFlag::S_IFIFO if is_others => {
                let owner = user_name(stat.st_uid);
                return Err(refused(format!("is a pipe of {owner}")));
            }
            _ => return Ok(Place::Stream(dir, name, OFlag::O_NOFOLLOW)),
        }
    }
    Err(Errno::ELOOP.into())
}

/// Gives `new` the owner, mode and extended attributes of `old`, except the attributes in
/// `skipped`, which describe `old`'s contents. The owner comes first, since setting it clears
/// capabilities and mode bits; the mode comes last. An owner that is right already is not set: a
/// service may not be allowed to.
pub fn copy_attributes(
    old: &File,
    new: &File,
    mask: u32,
    skipped: &[&str],
) -> std::result::Result<(), String> {
    let meta = old.metadata().map_err(|error| describe(&error))?;
    let made = new.metadata().map_err(|error| describe(&error))?;
    if (made.uid(), made.gid()) != (meta.uid(), meta.gid()) {
        fchown(new, Some(meta.uid()), Some(meta.gid()))
            .map_err(|error| format!("cannot keep its owner and group: {}", describe(&error)))?;
    }
    let names: Vec<_> = match old.list_xattr() {
        Ok(names) => names.collect(),
        Err(error) if is_unsupported(&error) => Vec::new(),
        Err(error) => return Err(format!("cannot list its attributes: {}", describe(&error))),
    };
    for name in &names {
        if skipped.iter().any(|skipped| name == skipped) {
            continue;
        }
        let copied = old.get_xattr(name).and_then(|value| match value {
            // The new file often inherits it from the directory.
            Some(value) if new.get_xattr(name)?.as_ref() == Some(&value) => Ok(()),
            Some(value) => new.set_xattr(name, &value),
            None => Ok(()),
        });
        copied.map_err(|error| {
            let name = name.to_string_lossy();
            format!("cannot keep its attribute {name}: {}", describe(&error))
        })?;
    }
    // The directory gives it to new files, but the old file does not have it.
    if !names.iter().any(|name| name == ACCESS_ACL) {
        match new.remove_xattr(ACCESS_ACL) {
            Err(error) if !is_unsupported(&error) && !is_missing(&error) => {
                return Err(format!("cannot keep its ACL: {}", describe(&error)));
            }
            _ => {}
        }
    }
    new.set_permissions(Permissions::from_mode(meta.mode() & mask))
        .map_err(|error| format!("cannot keep its mode: {}", describe(&error)))
}

/// Does the file system lack such attributes?
pub fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENODATA as i32)
}

/// Attributes that describe a file's contents, not the file.
const ABOUT_CONTENTS: [&str; 3] = ["security.capability", "security.ima", "security.evm"];

/// Fails if the caller must not replace `old` in `dir` by a file with the same owner.
fn check_owner(dir: &Dir, old: &File) -> io::Result<()> {
    let (uid, place) = (old.metadata()?.uid(), dir.file.metadata()?);
    let me = Uid::effective();
    // The rule of fs.protected_regular: another user may have put the file there as a trap.
    let is_common = place.mode() & 0o1000 != 0 && place.mode() & 0o022 != 0;
    if uid != me.as_raw() && (!me.is_root() || (is_common && uid != place.uid())) {
        return Err(refused(format!(
            "belongs to {}: remove it first, or name another file",
            user_name(uid)
        )));
    }
    Ok(())
}

fn explain(path: &Path, error: &io::Error) -> Error {
    Error::Failed(format!(
        "cannot write {}: {}",
        path.display(),
        describe(error)
    ))
}

fn try_check(path: &Path) -> io::Result<()> {
    match find(path, Links::Trusted)? {
        Place::Name(dir, _, old) => {
            if let Some(old) = old {
                check_owner(&dir, &old)?;
            }
            dir.create(0o600).map(|_| ())
        }
        Place::Stream(dir, name, _) => Ok(faccessat(
            &dir.file,
            name.as_os_str(),
            AccessFlags::W_OK,
            AtFlags::AT_EACCESS,
        )?),
    }
}

/// Fails if `path` could not be written now.
pub fn check(path: &Path) -> Result<()> {
    try_check(path).map_err(|error| explain(path, &error))
}

fn stream(dir: &Dir, name: &OsStr, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    Ok(File::from(openat(&dir.file, name, flags, Mode::empty())?))
}

fn try_write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match find(path, Links::Trusted)? {
        Place::Name(dir, name, None) => {
            let mut new = dir.create(0o666)?;
            new.file.write_all(bytes)?;
            new.commit(&name)?;
        }
        Place::Name(dir, name, Some(old)) => {
            check_owner(&dir, &old)?;
            let mut new = dir.create(0o600)?;
            new.file.write_all(bytes)?;
            copy_attributes(&old, &new.file, 0o777, &ABOUT_CONTENTS).map_err(io::Error::other)?;
            new.commit(&name)?;
        }
        Place::Stream(dir, name, flags) => stream(&dir, &name, flags)?.write_all(bytes)?,
    }
    Ok(())
}

/// Replaces `path` by `bytes` in one step; on failure the old file stays. A file that exists keeps
/// its owner, mode and attributes.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    try_write(path, bytes.as_ref()).map_err(|error| explain(path, &error))
}

/// A file that others may read while it is written.
pub struct Created {
    /// Open for writing.
    pub file: File,
    place: Option<(Dir, OsString)>,
}

impl Created {
    /// Removes the file; a place that is not a regular file stays.
    pub fn remove(&self) -> io::Result<()> {
        let Some((dir, name)) = &self.place else {
            return Ok(());
        };
        let own = self.file.metadata()?;
        match dir.stat(name)? {
            Some(stat) if (stat.st_dev, stat.st_ino) == (own.dev(), own.ino()) => dir.remove(name),
            _ => Ok(()),
        }
    }
}

/// Makes an empty file that only the caller can read, in place of the old one.
pub fn create_private(path: &Path) -> Result<Created> {
    let create = || -> io::Result<Created> {
        match find(path, Links::Trusted)? {
            Place::Name(dir, name, old) => {
                if let Some(old) = old {
                    check_owner(&dir, &old)?;
                }
                let file = dir.create(0o600)?.commit(&name)?;
                Ok(Created {
                    file,
                    place: Some((dir, name)),
                })
            }
            Place::Stream(dir, name, flags) => Ok(Created {
                file: stream(&dir, &name, flags)?,
                place: None,
            }),
        }
    };
    create().map_err(|error| explain(path, &error))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, lchown, symlink};

    use super::*;

    const STRANGER: u32 = 65534;

    /// A directory of another user. Only root can make one.
    pub fn strangers_dir() -> Option<tempfile::TempDir> {
        if !Uid::effective().is_root() {
            crate::output::say("left out: only root can give files away");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        chown(dir.path(), Some(STRANGER), Some(STRANGER)).unwrap();
        Some(dir)
    }

    #[test]
    fn the_file_is_replaced_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        check(&path).unwrap();
        assert!(!path.exists());
        write(&path, "one").unwrap();
        write(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o600, 0o600);
    }

    #[test]
    fn mode_owner_and_attributes_stay() {
        let Some(dir) = strangers_dir() else { return };
        let path = dir.path().join("out");
        fs::write(&path, "old").unwrap();
        chown(&path, Some(STRANGER), Some(7)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o4640)).unwrap();
        let has_attribute = xattr::set(&path, "user.note", b"x").is_ok();
        check(&path).unwrap();
        write(&path, "new").unwrap();
        let meta = path.metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid()), (STRANGER, 7));
        assert_eq!(meta.mode() & 0o7777, 0o640);
        assert!(!has_attribute || xattr::get(&path, "user.note").unwrap().is_some());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn root_follows_no_link_of_others_in_the_middle_of_a_path() {
        let Some(dir) = strangers_dir() else { return };
        let roots = tempfile::tempdir().unwrap();
        fs::write(roots.path().join("limits"), "old").unwrap();
        let link = dir.path().join("out");
        symlink(roots.path(), &link).unwrap();
        // Links of root, links in /proc and ".." are harmless.
        let ups = dir
            .path()
            .join("../.")
            .join(dir.path().file_name().unwrap());
        write(&ups.join("out/limits"), "new").unwrap();
        let process = format!("/proc/self/root{}", link.join("limits").display());
        write(Path::new(&process), "newer").unwrap();
        lchown(&link, Some(STRANGER), Some(STRANGER)).unwrap();
        for path in [
            link.join("limits"),
            link.join("fresh"),
            link.join("../out/limits"),
        ] {
            let error = write(&path, "theirs").unwrap_err().to_string();
            assert!(error.contains("is a symbolic link of"), "{error}");
        }
        assert_eq!(
            fs::read_to_string(roots.path().join("limits")).unwrap(),
            "newer"
        );
        assert_eq!(fs::read_dir(roots.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_symbolic_link_of_ones_own_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "old").unwrap();
        symlink("file", &link).unwrap();
        write(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        let loops = dir.path().join("loop");
        symlink("loop", &loops).unwrap();
        assert!(write(&loops, "").is_err());
    }

    #[test]
    fn a_symbolic_link_or_pipe_of_somebody_else_is_not_followed() {
        let Some(dir) = strangers_dir() else { return };
        let precious = tempfile::NamedTempFile::new().unwrap();
        fs::write(precious.path(), "precious").unwrap();
        let link = dir.path().join("link");
        symlink(precious.path(), &link).unwrap();
        lchown(&link, Some(STRANGER), None).unwrap();
        for result in [
            check(&link),
            write(&link, "x"),
            create_private(&link).map(|_| ()),
        ] {
            let text = result.unwrap_err().to_string();
            assert!(text.contains("is a symbolic link of"), "{text}");
        }
        assert_eq!(fs::read_to_string(precious.path()).unwrap(), "precious");
        assert!(matches!(
            find(&link, Links::All),
            Ok(Place::Name(_, _, Some(_)))
        ));

        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::from_bits_truncate(0o666)).unwrap();
        chown(&pipe, Some(STRANGER), None).unwrap();
        let text = write(&pipe, "x").unwrap_err().to_string();
        assert!(text.contains("is a pipe of"), "{text}");
    }

    #[test]
    fn a_file_that_waits_in_a_common_directory_is_not_written_to() {
        let Some(dir) = strangers_dir() else { return };
        chown(dir.path(), Some(0), Some(0)).unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "bait").unwrap();
        chown(&path, Some(STRANGER), None).unwrap();
        let text = write(&path, "x").unwrap_err().to_string();
        assert!(text.contains("belongs to"), "{text}");
        assert!(check(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "bait");
    }

    #[test]
    fn a_private_file_is_a_new_one_and_goes_away_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("trace"), dir.path().join("other"));
        fs::write(&path, "old").unwrap();
        fs::hard_link(&path, &other).unwrap();
        let mut created = create_private(&path).unwrap();
        created.file.write_all(b"new").unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&other).unwrap(), "old");
        created.remove().unwrap();
        assert!(!path.exists());
        let created = create_private(&path).unwrap();
        fs::rename(&other, &path).unwrap();
        created.remove().unwrap();
        assert!(path.exists());
    }

    #[test]
    fn a_device_and_an_open_file_are_written_to_and_stay() {
        check(Path::new("/dev/null")).unwrap();
        write(Path::new("/dev/null"), "gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let file = tempfile::tempfile().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        check(Path::new(&path)).unwrap();
        write(Path::new(&path), "here").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4);
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let error = check(Path::new("/nonexistent/report.json")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot write /nonexistent/report.json: No such file or directory"
        );
        assert!(write(Path::new("/nonexistent/report.json"), "").is_err());
        assert!(write(Path::new("/"), "").is_err());
        assert!(write(Path::new("/usr"), "").is_err());
    }

    #[test]
    fn only_what_nobody_else_can_change_is_trusted() {
        let Some(stranger) = strangers_dir() else {
            return;
        };
        let text = Dir::open(stranger.path()).unwrap().check_trusted();
        assert!(text.unwrap_err().to_string().starts_with("belongs to"));
        let own = tempfile::tempdir().unwrap();
        let dir = Dir::open(own.path()).unwrap();
        dir.check_trusted().unwrap();
        let file = own.path().join("file");
        fs::write(&file, "x").unwrap();
        assert_eq!(dir.read("file", 1, true).unwrap(), b"x");
        assert!(dir.read("file", 0, true).is_err());
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        assert!(dir.read("file", 1, true).is_err());
        assert!(dir.append("file").is_err());
        assert_eq!(dir.read("file", 1, false).unwrap(), b"x");
        symlink("file", own.path().join("link")).unwrap();
        assert!(dir.read("link", 1, false).is_err());
        assert!(dir.append("link").is_err());
        symlink("/usr", own.path().join("runs")).unwrap();
        assert!(dir.make_dir("runs").is_err());
        dir.make_dir("more").unwrap();
        dir.make_dir("more").unwrap();
        fs::set_permissions(own.path(), Permissions::from_mode(0o775)).unwrap();
        let text = dir.check_trusted().unwrap_err().to_string();
        assert!(text.contains("can be written by others"), "{text}");
    }
}
