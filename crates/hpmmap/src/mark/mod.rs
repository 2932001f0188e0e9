//! The mark in a program file: its contents, its place, and how it is set.

pub mod elf;
mod target;

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use hpmmap_base::error::{Error, Result, describe};
use hpmmap_base::escape;
use hpmmap_base::safe_files::{Dir, Links, Place, find};
use hpmmap_base::size::Size;
use hpmmap_sys::{Errno, uapi};

use crate::launch::{Options, Placement, Shared, Stacks};
pub use target::{Digests, LENGTH, hex};

/// The bytes of the file that hold the mark: e_flags.
pub const OFFSET: u64 = 48;

const PLACEMENTS: u32 = uapi::LAUNCH_F_INTERLEAVE | uapi::LAUNCH_F_FIRST_TOUCH;

/// Do these flags exclude each other?
fn contradicts(flags: u32) -> bool {
    let is_first_touch = flags & uapi::LAUNCH_F_FIRST_TOUCH != 0;
    let others = uapi::LAUNCH_F_INTERLEAVE | uapi::MARK_F_1G | uapi::MARK_STATIC_MASK;
    is_first_touch && flags & others != 0
}

/// e_flags of a program with this mark, which holds sizes that are powers of two only.
fn to_flags(options: Options) -> Result<u32> {
    let large = options.page_size == uapi::LARGE_BYTES;
    let region = match options.static_bytes {
        0 => 0,
        bytes if bytes.is_power_of_two() => (bytes / uapi::BLOCK_BYTES).ilog2() + 1,
        bytes => {
            let above = bytes.next_power_of_two();
            return Err(Error::Usage(format!(
                "--static {}: the size in a mark is a power of two, such as {} or {}",
                Size(bytes),
                Size(above / 2),
                Size(above)
            )));
        }
    };
    Ok(uapi::MARK_MAGIC
        | options.flags()
        | if large { uapi::MARK_F_1G } else { 0 }
        | region << uapi::MARK_STATIC_SHIFT)
}

/// The size of the static region.
fn region(flags: u32) -> u64 {
    match (flags & uapi::MARK_STATIC_MASK) >> uapi::MARK_STATIC_SHIFT {
        0 => 0,
        region => uapi::BLOCK_BYTES << (region - 1),
    }
}

fn from_flags(flags: u32) -> Options {
    Options {
        image: flags & uapi::LAUNCH_F_IMAGE != 0,
        strict: flags & uapi::LAUNCH_F_STRICT != 0,
        no_inherit: flags & uapi::LAUNCH_F_NO_INHERIT != 0,
        placement: match flags & PLACEMENTS {
            0 => Placement::Local,
            uapi::LAUNCH_F_INTERLEAVE => Placement::Interleave,
            _ => Placement::FirstTouch,
        },
        stacks: if flags & uapi::LAUNCH_F_EAGER_STACKS != 0 {
            Stacks::Eager
        } else {
            Stacks::Grow
        },
        shared: if flags & uapi::LAUNCH_F_SHARED_LINUX != 0 {
            Shared::Linux
        } else {
            Shared::Pools
        },
        page_size: if flags & uapi::MARK_F_1G != 0 {
            uapi::LARGE_BYTES
        } else {
            uapi::BLOCK_BYTES
        },
        static_bytes: region(flags),
    }
}

/// A program file that was checked.
#[derive(Debug)]
pub struct Program {
    /// The name that the user gave.
    name: PathBuf,
    /// The path of the file itself, after symbolic links.
    pub path: PathBuf,
    dir: Dir,
    file_name: OsString,
    file: File,
    flags: u32,
}

impl Program {
    /// Opens `name` and checks that it is a program that can be marked or unmarked. The directory
    /// stays open, so that a change hits this file, whatever happens to its path.
    pub fn open(name: &Path, links: Links) -> Result<Self> {
        let io = |error| failed(name, &describe(&error));
        let (dir, file_name, file) = match find(name, links) {
            Ok(Place::Name(dir, file_name, Some(file))) => (dir, file_name, file),
            Ok(Place::Name(_, _, None)) => return Err(io(Errno::ENOENT.into())),
            Ok(Place::Stream(..)) => return Err(failed(name, "is not a regular file")),
            Err(error) if error.raw_os_error() == Some(Errno::EISDIR as i32) => {
                return Err(failed(name, "is a directory"));
            }
            Err(error) => return Err(io(error)),
        };
        let path = dir.path().join(&file_name);
        let path = path.canonicalize().unwrap_or(path);
        let flags = elf::program_flags(&file).map_err(|what| failed(name, &what))?;
        if flags != 0 && flags & uapi::MARK_MAGIC_MASK != uapi::MARK_MAGIC {
            return Err(failed(
                name,
                &format!("has flags of its own in the ELF header ({flags:#x})"),
            ));
        }
        if flags & !(uapi::MARK_MAGIC_MASK | uapi::MARK_OPTIONS) != 0 {
            return Err(failed(
                name,
                &format!("has a mark with options this version does not know ({flags:#x})"),
            ));
        }
        Ok(Self {
            name: name.to_path_buf(),
            path,
            dir,
            file_name,
            file,
            flags,
        })
    }

    /// The options of the mark, if there is one.
    pub fn mark(&self) -> Result<Option<Options>> {
        if contradicts(self.flags) {
            let what = "has a mark with options that exclude each other, so it is ignored: mark or unmark it anew";
            return Err(failed(&self.name, &format!("{what} ({:#x})", self.flags)));
        }
        Ok((self.flags != 0).then(|| from_flags(self.flags)))
    }

    /// Marks the program, or removes the mark. `None` if it is in that state already.
    pub fn change(&self, to: Option<Options>) -> Result<Option<Change>> {
        let flags = to.map_or(Ok(0), to_flags)?;
        if flags == self.flags {
            return Ok(None);
        }
        let place = target::Place {
            dir: &self.dir,
            name: &self.file_name,
            file: &self.file,
        };
        place
            .check(to.is_some())
            .and_then(|()| place.replace(OFFSET, flags.to_le_bytes()))
            .map(|digests| {
                Some(Change {
                    before: self.flags.to_le_bytes(),
                    after: flags.to_le_bytes(),
                    digests,
                })
            })
            .map_err(|what| failed(&self.name, &what))
    }
}

/// A change of the bytes from `OFFSET` on, and of the file.
#[derive(Debug)]
pub struct Change {
    /// The old bytes.
    pub before: [u8; LENGTH],
    /// The new ones.
    pub after: [u8; LENGTH],
    /// SHA-256 of the whole file.
    pub digests: Digests,
}

fn failed(name: &Path, what: &str) -> Error {
    let name = name.to_string_lossy();
    Error::Failed(format!("{}: {what}", escape::line(&name)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
    use std::process::Command;

    use super::*;

    const ALL: Options = Options {
        image: true,
        strict: true,
        no_inherit: true,
        stacks: Stacks::Eager,
        shared: Shared::Linux,
        placement: Placement::Interleave,
        page_size: uapi::LARGE_BYTES,
        static_bytes: 64 << 30,
    };
    const IMAGE: Options = Options {
        image: true,
        strict: false,
        no_inherit: false,
        stacks: Stacks::Grow,
        shared: Shared::Pools,
        placement: Placement::Local,
        page_size: uapi::BLOCK_BYTES,
        static_bytes: 0,
    };

    /// A copy of a real program.
    fn program(dir: &Path) -> PathBuf {
        let path = dir.join("program");
        fs::copy("/bin/true", &path).unwrap();
        path
    }

    fn open(name: &Path) -> Result<Program> {
        Program::open(name, Links::Trusted)
    }

    fn message(name: &Path) -> String {
        open(name).unwrap_err().to_string()
    }

    #[test]
    fn options_survive_the_file() {
        let first_touch = Options {
            placement: Placement::FirstTouch,
            ..IMAGE
        };
        for options in [IMAGE, ALL, first_touch] {
            let flags = to_flags(options).unwrap();
            assert_eq!(flags & uapi::MARK_MAGIC_MASK, uapi::MARK_MAGIC);
            assert_eq!(flags & !(uapi::MARK_MAGIC_MASK | uapi::MARK_OPTIONS), 0);
            assert_eq!(from_flags(flags), options);
        }
        assert_eq!(IMAGE.to_string(), "page size 2M, image");
        assert_eq!(
            ALL.to_string(),
            "page size 1G, image, strict, no-inherit, interleave, eager stacks, ordinary shared memory, static 64G"
        );
        assert_eq!(first_touch.to_string(), "page size 2M, image, first-touch");
        let between = Options {
            static_bytes: 5 << 30,
            ..IMAGE
        };
        assert_eq!(
            to_flags(between).unwrap_err().to_string(),
            "--static 5G: the size in a mark is a power of two, such as 4G or 8G"
        );
    }

    #[test]
    fn marking_changes_four_bytes_and_unmarking_restores_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        let original = fs::read(&path).unwrap();

        let change = open(&path).unwrap().change(Some(ALL)).unwrap();
        let change = change.unwrap();
        let marked = fs::read(&path).unwrap();
        assert_eq!(change.before, [0; 4]);
        assert_eq!(change.after, marked[48..52]);
        assert_eq!(marked[..48], original[..48]);
        assert_eq!(marked[52..], original[52..]);
        assert!(Command::new(&path).status().unwrap().success());

        let program = open(&path).unwrap();
        assert_eq!(program.mark().unwrap(), Some(ALL));
        assert!(program.change(Some(ALL)).unwrap().is_none());
        let again = program.change(Some(IMAGE)).unwrap().unwrap();
        assert_eq!(again.digests.before, change.digests.after);

        let program = open(&path).unwrap();
        assert_eq!(program.mark().unwrap(), Some(IMAGE));
        let back = program.change(None).unwrap().unwrap();
        assert_eq!(back.digests.after, change.digests.before);
        assert_eq!(fs::read(&path).unwrap(), original);
        let program = open(&path).unwrap();
        assert_eq!(program.mark().unwrap(), None);
        assert!(program.change(None).unwrap().is_none());
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn the_digests_are_those_of_sha256sum() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        let sum = || {
            let output = Command::new("sha256sum").arg(&path).output().unwrap();
            String::from_utf8(output.stdout).unwrap()[..64].to_string()
        };
        let before = sum();
        let change = open(&path).unwrap().change(Some(IMAGE)).unwrap();
        let digests = change.unwrap().digests;
        assert_eq!(digests.before, before);
        assert_eq!(digests.after, sum());
    }

    #[test]
    fn mode_and_attributes_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
        let attributes = xattr::set(&path, "user.hpmmap-test", b"kept").is_ok();
        let before = path.metadata().unwrap();
        open(&path).unwrap().change(Some(IMAGE)).unwrap();
        let after = path.metadata().unwrap();
        assert_ne!(after.ino(), before.ino());
        assert_eq!(after.mode(), before.mode());
        assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
        if attributes {
            let value = xattr::get(&path, "user.hpmmap-test").unwrap();
            assert_eq!(value.as_deref(), Some(&b"kept"[..]));
        }
    }

    #[test]
    fn a_running_program_can_be_marked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sleeper");
        fs::copy("/bin/sleep", &path).unwrap();
        let mut child = Command::new(&path).arg("60").spawn().unwrap();
        let change = open(&path).unwrap().change(Some(IMAGE)).unwrap();
        assert!(change.is_some());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn of_a_symbolic_link_the_target_is_marked() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        let link = dir.path().join("link");
        symlink("program", &link).unwrap();
        open(&link).unwrap().change(Some(IMAGE)).unwrap();
        assert!(link.is_symlink());
        assert_eq!(open(&path).unwrap().mark().unwrap(), Some(IMAGE));
    }

    #[test]
    fn hard_links_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        fs::hard_link(&path, dir.path().join("other")).unwrap();
        let error = open(&path).unwrap().change(Some(IMAGE));
        let text = error.unwrap_err().to_string();
        assert!(text.contains("has 2 hard links"), "{text}");
        assert_eq!(open(&path).unwrap().mark().unwrap(), None);
    }

    #[test]
    fn set_user_id_programs_are_refused_but_can_be_unmarked() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        open(&path).unwrap().change(Some(IMAGE)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        let program = open(&path).unwrap();
        let text = program.change(Some(ALL)).unwrap_err().to_string();
        assert!(text.contains("set-user-ID"), "{text}");
        assert!(program.change(None).unwrap().is_some());
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o4755);
    }

    #[test]
    fn what_is_no_program_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let case = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            message(&path).split_once(": ").unwrap().1.to_string()
        };
        let real = fs::read("/bin/true").unwrap();
        let changed = |offset: usize, bytes: &[u8]| {
            let mut copy = real.clone();
            copy[offset..offset + bytes.len()].copy_from_slice(bytes);
            copy
        };
        for (name, bytes, want) in [
            ("empty", &[][..], "is not an ELF program"),
            ("text", b"hello, world", "is not an ELF program"),
            (
                "script",
                b"#!/bin/sh\n",
                "is a script: mark the program that runs it",
            ),
            ("short", &real[..40], "is a damaged ELF file"),
            ("cut", &real[..100], "is a damaged ELF file"),
            (
                "small",
                &changed(4, &[1]),
                "is a 32-bit program: HPMMAP is for 64-bit ones",
            ),
            ("big", &changed(5, &[2]), "is a big-endian program"),
            (
                "arm",
                &changed(18, &[183, 0]),
                "is for another machine than x86-64 (ELF machine 183)",
            ),
            (
                "object",
                &changed(16, &[1, 0]),
                "is an object file, not a program",
            ),
            (
                "core",
                &changed(16, &[4, 0]),
                "is a core dump, not a program",
            ),
            (
                "flags",
                &changed(48, &[2, 0, 0, 0]),
                "has flags of its own in the ELF header (0x2)",
            ),
            (
                "newer",
                &changed(48, &[0, 0x02, 0x4d, 0x48]),
                "has a mark with options this version does not know (0x484d0200)",
            ),
        ] {
            assert_eq!(case(name, bytes), want, "{name}");
        }
        assert!(message(dir.path()).ends_with(": is a directory"));
        assert!(message(Path::new("/dev/null")).ends_with(": is not a regular file"));
        assert_eq!(
            message(Path::new("/nonexistent")),
            "/nonexistent: No such file or directory"
        );
    }

    #[test]
    fn a_mark_that_contradicts_itself_is_told_and_can_be_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        let original = fs::read(&path).unwrap();
        let mut both = original.clone();
        both[48..52].copy_from_slice(&[0x14, 0, 0x4d, 0x48]);
        fs::write(&path, both).unwrap();
        let program = open(&path).unwrap();
        let text = program.mark().unwrap_err().to_string();
        assert!(text.contains("exclude each other"), "{text}");
        assert!(program.change(None).unwrap().is_some());
        assert_eq!(fs::read(&path).unwrap(), original);
    }

    #[test]
    fn shared_libraries_are_told_from_programs() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps
            .split_whitespace()
            .find(|word| word.contains("/libc.so"))
            .expect("this test is linked dynamically");
        assert!(message(Path::new(libc)).ends_with(": is a shared library, not a program"));
        // Position-independent and linked dynamically.
        let me = std::env::current_exe().unwrap();
        assert_eq!(open(&me).unwrap().mark().unwrap(), None);
    }

    #[test]
    fn a_file_that_changes_meanwhile_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        let program = open(&path).unwrap();
        let other = dir.path().join("other");
        fs::copy("/bin/false", &other).unwrap();
        fs::rename(&other, &path).unwrap();
        let text = program.change(Some(IMAGE)).unwrap_err().to_string();
        assert!(
            text.ends_with("was changed by another process meanwhile"),
            "{text}"
        );
        let mut flags = [0xff; 4];
        File::open(&path)
            .unwrap()
            .read_exact_at(&mut flags, OFFSET)
            .unwrap();
        assert_eq!(flags, [0; 4]);
    }

    #[test]
    fn what_was_looked_at_is_changed_whatever_its_path_becomes() {
        let parent = tempfile::tempdir().unwrap();
        let (dir, moved) = (parent.path().join("dir"), parent.path().join("moved"));
        let others = parent.path().join("others");
        for dir in [&dir, &others] {
            fs::create_dir(dir).unwrap();
            program(dir);
        }
        let found = open(&dir.join("program")).unwrap();
        fs::rename(&dir, &moved).unwrap();
        symlink(&others, &dir).unwrap();
        found.change(Some(IMAGE)).unwrap();
        let mark = |dir: &Path| open(&dir.join("program")).unwrap().mark().unwrap();
        assert_eq!(mark(&others), None);
        assert_eq!(mark(&moved), Some(IMAGE));
    }

    #[test]
    fn a_link_of_somebody_else_is_followed_only_to_show() {
        if !nix::unistd::Uid::effective().is_root() {
            hpmmap_base::output::say("left out: only root can give files away");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink(program(dir.path()), &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        let error = message(&link);
        assert!(error.contains("is a symbolic link of"), "{error}");
        let shown = Program::open(&link, Links::All).unwrap();
        assert_eq!(shown.mark().unwrap(), None);
    }
}
