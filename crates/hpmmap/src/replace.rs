//! Output files that a reader finds whole: the old one or the new one.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::error::{Error, Result};

/// Where the output goes: the file that `path` leads to.
fn target(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Pipes and devices cannot be replaced.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| !meta.is_file())
}

fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let dir = match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    // The umask is applied to it. A collector of *.prom files skips it.
    Builder::new()
        .prefix(".hpmmap-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(dir)
}

fn explain(path: &Path, error: &io::Error) -> Error {
    // The number, and where the temporary file would have been, help nobody.
    let text = error.to_string();
    let reason = text.split(" (os error").next().unwrap_or(&text);
    Error::Failed(format!("cannot write {}: {reason}", path.display()))
}

/// Error if `file` could not be written now.
pub fn check(path: &Path) -> Result<()> {
    let file = target(path);
    let tried = if is_special(&file) {
        OpenOptions::new().write(true).open(&file).map(|_| ())
    } else {
        temporary(&file).map(|_| ())
    };
    tried.map_err(|error| explain(path, &error))
}

/// Puts `text` into `path` in one step; what is there stays if that fails.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let file = target(path);
    let written = if is_special(&file) {
        OpenOptions::new()
            .write(true)
            .open(&file)
            .and_then(|mut out| out.write_all(text.as_bytes()))
    } else {
        temporary(&file).and_then(|mut out| {
            out.write_all(text.as_bytes())?;
            out.persist(&file)?;
            Ok(())
        })
    };
    written.map_err(|error| explain(path, &error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

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
    fn a_symbolic_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        write(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    }

    #[test]
    fn a_device_is_written_to_and_stays() {
        check(Path::new("/dev/null")).unwrap();
        write(Path::new("/dev/null"), "gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let error = check(Path::new("/nonexistent/report.json")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot write /nonexistent/report.json: No such file or directory"
        );
        assert!(write(Path::new("/nonexistent/report.json"), "").is_err());
    }
}
