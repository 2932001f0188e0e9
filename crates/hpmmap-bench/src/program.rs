//! Programs to run: their paths and their output.

use std::env;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;

use hpmmap_base::error::{Error, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// The command `hpmmap`, which is beside this program.
pub fn hpmmap() -> PathBuf {
    let own = env::current_exe().unwrap_or_default();
    own.with_file_name("hpmmap")
}

/// The first of these paths, relative to this program, that exists.
pub fn beside(paths: &[&str]) -> Option<PathBuf> {
    let own = env::current_exe().ok()?;
    let dir = own.parent()?;
    let mut paths = paths.iter().map(|path| dir.join(path));
    paths.find(|path| path.exists())
}

/// A program in PATH.
pub fn in_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

/// A file in memory: writing to it wakes no other task.
pub fn memory_file(name: &str) -> Result<File> {
    memfd_create(name, MFdFlags::MFD_CLOEXEC)
        .map(File::from)
        .map_err(|errno| Error::Failed(format!("memfd_create: {}", errno.desc())))
}

/// All that was written to a file.
pub fn content(mut file: File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
