//! Options of the kernel's command line, in files of GRUB.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::warn;
use hpmmap_base::safe_files;
use hpmmap_host::Root;

/// A file of this command that GRUB reads after /etc/default/grub, by its path below the root.
pub struct DropIn(pub &'static str);

impl fmt::Display for DropIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0)
    }
}

impl DropIn {
    /// Writes the file and calls `update`; without success the file is as it was. `hint`: what the
    /// administrator can do instead.
    pub fn write(
        &self,
        root: &Root,
        text: &str,
        hint: &str,
        update: impl FnOnce(&str) -> Result<()>,
    ) -> Result<()> {
        let path = root.join(self.0);
        let before = match fs::read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Error::Failed(format!("{self}: {error}"))),
        };
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(|error| {
                Error::Failed(format!("cannot make {}: {error}", dir.display()))
            })?;
        }
        safe_files::write(&path, text)?;
        update(hint).inspect_err(|_| {
            let undone = match &before {
                Some(bytes) => safe_files::write(&path, bytes),
                None => fs::remove_file(&path).map_err(Error::from),
            };
            if let Err(error) = undone {
                warn(&format!("{self} stays: {error}"));
            }
        })
    }

    /// Removes the file and calls `update`, which may be due from a call that failed or was killed
    /// between the two, also if there is no file; returns whether there was one.
    pub fn remove(
        &self,
        root: &Root,
        hint: &str,
        update: impl FnOnce(&str) -> Result<()>,
    ) -> Result<bool> {
        let was_there = match fs::remove_file(root.join(self.0)) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(Error::Failed(format!("{self}: {error}"))),
        };
        update(hint)?;
        Ok(was_there)
    }
}

/// Writes GRUB's configuration anew. `hint`: another way if that fails.
pub fn update(hint: &str) -> Result<()> {
    let failed = |why: String| Error::Failed(format!("update-grub {why}: {hint}"));
    // The PATH of ordinary users may lack it.
    let path = format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new("sh")
        .args([
            "-c",
            "command -v update-grub >/dev/null || exit 127; exec update-grub",
        ])
        .env("PATH", path)
        .output()
        .map_err(|error| failed(format!("cannot be run ({error})")))?;
    match output.status.code() {
        Some(0) => Ok(()),
        Some(127) => Err(failed(
            "is not there, this machine does not boot by GRUB".into(),
        )),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or_default();
            Err(failed(format!("failed ({})", last.trim())))
        }
    }
}
