//! Changed settings in a file, so that those of a benchmark that was killed are restored by the
//! next one that changes settings.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process;
use std::time::SystemTime;

use hpmmap_base::error::{Error, Result};
use hpmmap_host::Root;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

/// The journals. A restart of the machine empties the directory, and restores settings.
const DIR: &str = "run/hpmmap/bench";

/// How a change is undone. Each can be undone twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Undo {
    /// The old text of a file.
    Write(String, String),
    /// Removes memory from the pool of a node, but none that it had before.
    PoolRemove {
        /// The node.
        node: u32,
        /// Size of the pool before.
        before: u64,
        /// The most that was added.
        bytes: u64,
    },
}

/// The changes of one benchmark: a line of JSON each, written before the change is made. The file
/// is locked while the benchmark lives.
#[derive(Debug)]
pub struct Journal {
    file: Flock<File>,
    path: PathBuf,
}

impl Journal {
    /// An empty one of this process.
    pub fn new(root: &Root) -> Result<Self> {
        let dir = root.join(DIR);
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let name = format!("{}-{}", process::id(), now.as_nanos());
        let (path, unlocked) = (dir.join(&name), dir.join(format!(".{name}")));
        let made = || -> io::Result<Flock<File>> {
            fs::create_dir_all(&dir)?;
            let mut options = OpenOptions::new();
            options.append(true).create_new(true).mode(0o600);
            let file = options.open(&unlocked)?;
            let file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
            // Without a lock it would be one of a process that was killed.
            fs::rename(&unlocked, &path)?;
            Ok(file)
        };
        match made() {
            Ok(file) => Ok(Self { file, path }),
            Err(error) => Err(Error::Failed(format!(
                "cannot record changes in {}: {error}",
                dir.display()
            ))),
        }
    }

    /// Those of processes that were killed, with their changes, first to last. Fails while
    /// another process makes changes.
    pub fn left(root: &Root) -> Result<Vec<(Self, Vec<Undo>)>> {
        let names = match root.entries(DIR) {
            Ok(names) => names,
            Err(error) if error.is_absent() => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut left = Vec::new();
        for name in names {
            let Some((owner, _)) = name.split_once('-').filter(|_| !name.starts_with('.')) else {
                continue;
            };
            let path = root.join(DIR).join(&name);
            let file = OpenOptions::new().read(true).append(true).open(&path)?;
            let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((_, Errno::EWOULDBLOCK)) if owner == process::id().to_string() => continue,
                Err((_, Errno::EWOULDBLOCK)) => {
                    return Err(Error::Failed(format!(
                        "process {owner} runs a benchmark that has changed settings of this \
                         machine: wait for its end"
                    )));
                }
                Err((_, errno)) => return Err(io::Error::from(errno).into()),
            };
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            // The last line may have been cut: its change was not made.
            let lines = text.lines().map(serde_json::from_str);
            let undo = lines.map_while(std::result::Result::ok).collect();
            left.push((Self { file, path }, undo));
        }
        Ok(left)
    }

    /// Records a change that is made next.
    pub fn add(&mut self, undo: &Undo) -> Result<()> {
        let mut line = serde_json::to_vec(undo).map_err(io::Error::from)?;
        line.push(b'\n');
        Ok(self.file.write_all(&line)?)
    }

    /// For a process that makes a change: the lock stays until it has ended, too.
    pub fn share(&self) -> Result<File> {
        Ok(self.file.try_clone()?)
    }

    /// All changes are undone.
    pub fn remove(self) {
        // What stays is undone once more.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    #[test]
    fn what_a_killed_process_left_is_read_as_far_as_it_was_written() {
        let fixture = Fixture::new();
        assert!(Journal::left(&fixture.root()).unwrap().is_empty());
        let changes = [
            Undo::Write("a".into(), "1".into()),
            Undo::PoolRemove {
                node: 1,
                before: 2,
                bytes: 3,
            },
        ];
        let mut own = Journal::new(&fixture.root()).unwrap();
        changes.iter().for_each(|undo| own.add(undo).unwrap());
        assert!(Journal::left(&fixture.root()).unwrap().is_empty());
        let text = fixture
            .root()
            .read(own.path.strip_prefix(fixture.path()).unwrap());
        own.remove();
        let other = format!("{DIR}/1-0");
        fixture.write(&other, &(text.unwrap() + "\n{\"Write\":[\"b"));
        let left = Journal::left(&fixture.root()).unwrap();
        assert_eq!(left[0].1, changes);
        // It is locked now, as by a process that lives.
        let error = Journal::left(&fixture.root()).unwrap_err().to_string();
        assert!(error.starts_with("process 1 runs a benchmark"), "{error}");
        left.into_iter().for_each(|(journal, _)| journal.remove());
        assert!(fixture.root().entries(DIR).unwrap().is_empty());
    }
}
