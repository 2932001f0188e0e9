//! The mark in a program file: what it says, where it is, how it gets there.

mod elf;
mod replace;

use std::fs::File;
use std::path::{Path, PathBuf};

use hpmmap_sys::uapi;

use crate::cli::Placement;
use crate::error::{Error, Result};
use crate::launch::Options;
pub use replace::{Digests, hex};

/// The bytes of the file that hold the mark: e_flags.
pub const OFFSET: u64 = 48;
/// How many they are.
pub const LENGTH: usize = 4;

const PLACEMENTS: u32 = uapi::LAUNCH_F_INTERLEAVE | uapi::LAUNCH_F_FIRST_TOUCH;

/// Whether these options place a block in two ways.
fn places_twice(flags: u32) -> bool {
    let is_first_touch = flags & uapi::LAUNCH_F_FIRST_TOUCH != 0;
    let is_other = flags & (uapi::LAUNCH_F_INTERLEAVE | uapi::MARK_F_1G) != 0;
    is_first_touch && is_other
}

/// e_flags of a program so marked.
fn to_flags(options: Options) -> u32 {
    let large = options.page_size == uapi::LARGE_BYTES;
    uapi::MARK_MAGIC | options.flags() | if large { uapi::MARK_F_1G } else { 0 }
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
        page_size: if flags & uapi::MARK_F_1G != 0 {
            uapi::LARGE_BYTES
        } else {
            uapi::BLOCK_BYTES
        },
    }
}

/// A program file that was looked at.
#[derive(Debug)]
pub struct Program {
    /// As the user named it.
    name: PathBuf,
    /// Where the file itself is, symbolic links followed.
    pub path: PathBuf,
    file: File,
    flags: u32,
}

impl Program {
    /// Opens `name` and checks that it is a program that can be marked or
    /// unmarked.
    pub fn open(name: &Path) -> Result<Self> {
        let io = |error| failed(name, &describe(&error));
        let path = name.canonicalize().map_err(io)?;
        let kind = path.metadata().map_err(io)?.file_type();
        if kind.is_dir() {
            return Err(failed(name, "is a directory"));
        }
        if !kind.is_file() {
            return Err(failed(name, "is not a regular file"));
        }
        let file = File::open(&path).map_err(io)?;
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
            file,
            flags,
        })
    }

    /// How it is marked, if it is.
    pub fn mark(&self) -> Result<Option<Options>> {
        if places_twice(self.flags) {
            let what = "has a mark that places memory in two ways, so it is ignored: mark or unmark it anew";
            return Err(failed(&self.name, &format!("{what} ({:#x})", self.flags)));
        }
        Ok((self.flags != 0).then(|| from_flags(self.flags)))
    }

    /// Marks it, or takes the mark away. `None` if it is so already.
    pub fn change(&self, to: Option<Options>) -> Result<Option<Change>> {
        let flags = to.map_or(0, to_flags);
        if flags == self.flags {
            return Ok(None);
        }
        let place = replace::Place {
            path: &self.path,
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

/// What became of the bytes from `OFFSET` on, and of the file.
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
    Error::Failed(format!("{}: {what}", name.display()))
}

/// Without the number of the error that Rust appends.
fn describe(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => hpmmap_sys::Errno::from_raw(number).desc().to_string(),
        None => error.kind().to_string(),
    }
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
        placement: Placement::Interleave,
        page_size: uapi::LARGE_BYTES,
    };
    const IMAGE: Options = Options {
        image: true,
        strict: false,
        no_inherit: false,
        placement: Placement::Local,
        page_size: uapi::BLOCK_BYTES,
    };

    /// A copy of a real program.
    fn program(dir: &Path) -> PathBuf {
        let path = dir.join("program");
        fs::copy("/bin/true", &path).unwrap();
        path
    }

    fn message(name: &Path) -> String {
        Program::open(name).unwrap_err().to_string()
    }

    #[test]
    fn options_survive_the_file() {
        let first_touch = Options {
            placement: Placement::FirstTouch,
            ..IMAGE
        };
        for options in [IMAGE, ALL, first_touch] {
            let flags = to_flags(options);
            assert_eq!(flags & uapi::MARK_MAGIC_MASK, uapi::MARK_MAGIC);
            assert_eq!(flags & !(uapi::MARK_MAGIC_MASK | uapi::MARK_OPTIONS), 0);
            assert_eq!(from_flags(flags), options);
        }
        assert_eq!(IMAGE.to_string(), "page size 2M, image");
        assert_eq!(
            ALL.to_string(),
            "page size 1G, image, strict, no-inherit, interleave"
        );
        assert_eq!(first_touch.to_string(), "page size 2M, image, first-touch");
    }

    #[test]
    fn marking_changes_four_bytes_and_unmarking_restores_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        let original = fs::read(&path).unwrap();

        let change = Program::open(&path).unwrap().change(Some(ALL)).unwrap();
        let change = change.unwrap();
        let marked = fs::read(&path).unwrap();
        assert_eq!(change.before, [0; 4]);
        assert_eq!(change.after, marked[48..52]);
        assert_eq!(marked[..48], original[..48]);
        assert_eq!(marked[52..], original[52..]);
        assert!(Command::new(&path).status().unwrap().success());

        let program = Program::open(&path).unwrap();
        assert_eq!(program.mark().unwrap(), Some(ALL));
        assert!(program.change(Some(ALL)).unwrap().is_none());
        let again = program.change(Some(IMAGE)).unwrap().unwrap();
        assert_eq!(again.digests.before, change.digests.after);

        let program = Program::open(&path).unwrap();
        assert_eq!(program.mark().unwrap(), Some(IMAGE));
        let back = program.change(None).unwrap().unwrap();
        assert_eq!(back.digests.after, change.digests.before);
        assert_eq!(fs::read(&path).unwrap(), original);
        let program = Program::open(&path).unwrap();
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
        let change = Program::open(&path).unwrap().change(Some(IMAGE)).unwrap();
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
        Program::open(&path).unwrap().change(Some(IMAGE)).unwrap();
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
        let change = Program::open(&path).unwrap().change(Some(IMAGE)).unwrap();
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
        Program::open(&link).unwrap().change(Some(IMAGE)).unwrap();
        assert!(link.is_symlink());
        assert_eq!(Program::open(&path).unwrap().mark().unwrap(), Some(IMAGE));
    }

    #[test]
    fn hard_links_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        fs::hard_link(&path, dir.path().join("other")).unwrap();
        let error = Program::open(&path).unwrap().change(Some(IMAGE));
        let text = error.unwrap_err().to_string();
        assert!(text.contains("has 2 hard links"), "{text}");
        assert_eq!(Program::open(&path).unwrap().mark().unwrap(), None);
    }

    #[test]
    fn set_user_id_programs_are_refused_but_can_be_unmarked() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        Program::open(&path).unwrap().change(Some(IMAGE)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        let program = Program::open(&path).unwrap();
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
                &changed(48, &[0, 0x40, 0x4d, 0x48]),
                "has a mark with options this version does not know (0x484d4000)",
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
        let program = Program::open(&path).unwrap();
        let text = program.mark().unwrap_err().to_string();
        assert!(text.contains("places memory in two ways"), "{text}");
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
        assert_eq!(Program::open(&me).unwrap().mark().unwrap(), None);
    }

    #[test]
    fn a_file_that_changes_meanwhile_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        let program = Program::open(&path).unwrap();
        let other = dir.path().join("other");
        fs::copy("/bin/false", &other).unwrap();
        fs::rename(&other, &path).unwrap();
        let text = program.change(Some(IMAGE)).unwrap_err().to_string();
        assert!(
            text.ends_with("was changed by somebody else meanwhile"),
            "{text}"
        );
        let mut flags = [0xff; 4];
        File::open(&path)
            .unwrap()
            .read_exact_at(&mut flags, OFFSET)
            .unwrap();
        assert_eq!(flags, [0; 4]);
    }
}
