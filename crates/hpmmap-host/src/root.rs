use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An error: a file could not be read, or its contents are not of the expected form.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The contents are not of the expected form.
    #[error("{}: expected {expected}, found '{found}'", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its contents.
        found: String,
        /// The expected form.
        expected: &'static str,
    },
}

/// Result of the readers.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The file does not exist, or went away while it was read.
    pub fn is_absent(&self) -> bool {
        const ENODEV: i32 = 19;
        const ESRCH: i32 = 3;
        match self {
            Self::Io { source, .. } => {
                source.kind() == io::ErrorKind::NotFound
                    || matches!(source.raw_os_error(), Some(ENODEV | ESRCH))
            }
            Self::Format { .. } => false,
        }
    }

    /// This user may not read the file.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// Of words of which one holds, such as `always [madvise] never`, that in brackets.
pub fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// `Ok(None)` if the file does not exist.
pub(crate) fn optional<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The directory that stands for `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self::new("/")
    }
}

impl Root {
    /// Reads below `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Is this the running system itself?
    pub fn is_live(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// `path` (relative) below the root.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// The contents of a file without white space at its ends.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<String> {
        let bytes = self.read_bytes(path)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_string())
    }

    /// The contents of a file.
    pub fn read_bytes(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = self.join(path);
        fs::read(&path).map_err(|source| Error::Io { path, source })
    }

    /// A file that holds one decimal number.
    pub fn read_number<T: FromStr>(&self, path: impl AsRef<Path>) -> Result<T> {
        self.parse(path, "a decimal number", |text| text.parse().ok())
    }

    /// A file whose lines are a name and a decimal number each.
    pub(crate) fn read_values(&self, path: impl AsRef<Path>) -> Result<BTreeMap<String, u64>> {
        self.parse(path, "lines of a name and a number", |text| {
            text.lines()
                .map(|line| {
                    let (name, value) = line.split_once(' ')?;
                    Some((name.to_string(), value.parse().ok()?))
                })
                .collect()
        })
    }

    /// Parses the whole contents of a file.
    pub(crate) fn parse<T>(
        &self,
        path: impl AsRef<Path>,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T> {
        let found = self.read(&path)?;
        parse(&found).ok_or_else(|| Error::Format {
            path: self.join(path),
            found,
            expected,
        })
    }

    /// Names of the entries of a directory, sorted.
    pub fn entries(&self, path: impl AsRef<Path>) -> Result<Vec<String>> {
        let path = self.join(path);
        let wrap = |source| Error::Io {
            path: path.clone(),
            source,
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(wrap)? {
            names.push(
                entry
                    .map_err(wrap)?
                    .file_name()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
        names.sort();
        Ok(names)
    }

    /// Numbers N of the entries `<prefix>N` of a directory, ascending.
    pub fn numbered<T: FromStr + Ord>(
        &self,
        path: impl AsRef<Path>,
        prefix: &str,
    ) -> Result<Vec<T>> {
        let mut numbers: Vec<T> = self
            .entries(path)?
            .iter()
            .filter_map(|name| name.strip_prefix(prefix)?.parse().ok())
            .collect();
        numbers.sort();
        Ok(numbers)
    }
}
