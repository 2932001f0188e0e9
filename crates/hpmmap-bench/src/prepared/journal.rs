//! Changed settings in a file, so that those of a benchmark that was killed are restored by the
//! next one that changes settings.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::process;
use std::slice;
use std::time::SystemTime;

use hpmmap_base::error::{Error, Result, describe};
use hpmmap_base::safe_files::{Dir, keep_from_others};
use hpmmap_host::Root;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, umask};

use super::undo::{Setting, Undo};
use crate::switch::Switch;

/// The journals. A restart of the machine empties the directory, and restores settings.
const DIR: &str = "run/hpmmap/bench";
/// The most bytes that are read of a journal.
const LIMIT: u64 = 1 << 20;

/// An error of the file `path`.
fn named(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    move |error| Error::Failed(format!("{}: {}", path.display(), describe(&error)))
}

/// The process that made a journal, and when.
fn made_by(name: &str) -> Option<(u32, u128)> {
    let (owner, time) = name.split_once('-')?;
    Some((owner.parse().ok()?, time.parse().ok()?))
}

/// The directory of the journals. It is locked while this process may change settings.
#[derive(Debug)]
pub struct Journals {
    dir: Dir,
    lock: Flock<File>,
}

impl Journals {
    /// Fails while another process may change settings.
    pub fn lock(root: &Root) -> Result<Self> {
        let path = root.join(DIR);
        let open = || -> io::Result<(Dir, File)> {
            // Other users must not write to the directory above.
            let mask = umask(Mode::from_bits_truncate(0o022));
            let made = fs::create_dir_all(&path);
            umask(mask);
            made?;
            let dir = Dir::open(&path)?;
            dir.check_trusted()?;
            let file = File::open(&path)?;
            keep_from_others(&file)?;
            Ok((dir, file))
        };
        let (dir, file) = open().map_err(named(&path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { dir, lock }),
            Err((_, Errno::EWOULDBLOCK)) => {
                let newest = Self::names(&dir)?.into_iter().next();
                let owner = match newest.and_then(|name| made_by(&name)) {
                    Some((owner, _)) => format!("process {owner}"),
                    None => "another process".into(),
                };
                Err(Error::Failed(format!(
                    "{owner} runs a benchmark that has changed settings of this machine: wait \
                     for its end"
                )))
            }
            Err((_, errno)) => Err(named(&path)(errno.into())),
        }
    }

    /// Names of all journals, the newest first.
    fn names(dir: &Dir) -> Result<Vec<String>> {
        let mut names = Root::new(dir.path()).entries("")?;
        names.retain(|name| made_by(name).is_some());
        names.sort_by_key(|name| std::cmp::Reverse(made_by(name).map(|(_, time)| time)));
        Ok(names)
    }

    /// Those of processes that were killed, with their changes, first to last. The newest journal
    /// comes first.
    pub fn left(&self) -> Result<Vec<(Journal, Vec<Undo>)>> {
        let read = |name: String| {
            let path = self.dir.path().join(&name);
            let bytes = self.dir.read(&name, LIMIT, true).map_err(named(&path))?;
            let undo = parse(&bytes).map_err(|why| {
                Error::Failed(format!(
                    "{}: {why}: set back what it says, and remove it",
                    path.display()
                ))
            })?;
            let file = self.dir.append(&name).map_err(named(&path))?;
            Ok((Journal { file, path }, undo))
        };
        Self::names(&self.dir)?.into_iter().map(read).collect()
    }

    /// An empty one of this process.
    pub fn begin(&self) -> Result<Journal> {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let name = format!("{}-{}", process::id(), now.as_nanos());
        let path = self.dir.path().join(&name);
        let file = self.dir.append(&name).map_err(named(&path))?;
        Ok(Journal { file, path })
    }

    /// Replaces the changes of a journal by those that are still to be undone.
    pub fn keep(&self, journal: &mut Journal, undo: &[Undo]) -> Result<()> {
        let keep = || -> io::Result<File> {
            let name = journal.path.file_name().unwrap_or_default();
            let name = name.to_string_lossy();
            self.dir.write(&name, text(undo)?.as_bytes())?;
            self.dir.append(&name)
        };
        journal.file = keep().map_err(named(&journal.path))?;
        Ok(())
    }

    /// For a process that makes a change: the lock stays until it has ended, too.
    pub fn share(&self) -> Result<File> {
        Ok(self.lock.try_clone()?)
    }
}

/// The lines of a journal.
pub fn text(list: &[Undo]) -> io::Result<String> {
    let line = |undo| Ok(serde_json::to_string(undo)? + "\n");
    list.iter().map(line).collect()
}

/// root writes what a journal says: to settings of the kernel only.
fn is_of_settings(undo: &Undo) -> bool {
    let is_file_of_them = |file: &Setting| {
        let path = Path::new(&file.path);
        let is_plain = |part| matches!(part, Component::Normal(_));
        path.components().all(is_plain) && (path.starts_with("sys") || path.starts_with("proc/sys"))
    };
    match undo {
        Undo::Write(files) => files.iter().all(is_file_of_them),
        Undo::PoolRemove(_) => true,
        Undo::Switch { switch, .. } => [Switch::npt(), Switch::ept()].contains(switch),
    }
}

/// The changes that a journal has. The last one may have been cut: its change was not made.
fn parse(bytes: &[u8]) -> std::result::Result<Vec<Undo>, String> {
    let Some(whole) = bytes.iter().rposition(|&byte| byte == b'\n') else {
        return Ok(Vec::new());
    };
    let mut list = Vec::new();
    for (n, line) in (1..).zip(bytes[..whole].split(|&byte| byte == b'\n')) {
        match serde_json::from_slice::<Undo>(line) {
            Ok(undo) if is_of_settings(&undo) => undo.put(&mut list),
            Ok(_) => return Err(format!("line {n} is of no setting of the kernel")),
            Err(error) => return Err(format!("line {n} cannot be read ({error})")),
        }
    }
    Ok(list)
}

/// The changes of one benchmark: a line of JSON each, written before the change is made, and one
/// with its result after it.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Records a change that is made next, or its result.
    pub fn add(&self, undo: &Undo) -> Result<()> {
        let write = || {
            let line = text(slice::from_ref(undo))?;
            let length = self.file.metadata()?.len();
            (&self.file).write_all(line.as_bytes()).inspect_err(|_| {
                // Without a part of the line. If that fails, too, the journal cannot be read.
                let _ = self.file.set_len(length);
            })
        };
        write().map_err(named(&self.path))
    }

    /// All changes are undone.
    pub fn remove(self) {
        // What stays is undone once more.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use hpmmap_host::fixture::Fixture;

    use super::super::undo::tests::{growth, setting};
    use super::*;

    fn journals(fixture: &Fixture) -> Journals {
        Journals::lock(&fixture.root()).unwrap()
    }

    fn change(n: u32) -> Undo {
        write("sys/a", n)
    }

    fn write(path: &str, n: u32) -> Undo {
        Undo::Write(vec![setting(path, &n.to_string(), "9")])
    }

    fn line(undo: &Undo) -> String {
        text(slice::from_ref(undo)).unwrap()
    }

    impl Journal {
        /// That of a full disk.
        pub fn full() -> Self {
            let file = File::options().append(true).open("/dev/full").unwrap();
            let path = "/nonexistent/journal".into();
            Self { file, path }
        }
    }

    #[test]
    fn what_a_killed_process_left_is_read_as_far_as_it_was_written() {
        let fixture = Fixture::new();
        let changes = [change(1), Undo::PoolRemove(growth(2, 3, None))];
        // Another version of this program may read it.
        let pool = r#"{"PoolRemove":{"node":0,"before":2,"bytes":3,"added":null}}"#;
        assert_eq!(line(&changes[1]), format!("{pool}\n"));
        let mut own = journals(&fixture).begin().unwrap();
        changes.iter().for_each(|undo| own.add(undo).unwrap());
        own.file.write_all(b"{\"Write\":[\"b").unwrap();
        let journals = journals(&fixture);
        let left = journals.left().unwrap();
        assert_eq!(left[0].1, changes);
        left.into_iter().for_each(|(journal, _)| journal.remove());
        assert!(journals.left().unwrap().is_empty());
        fixture.write(&format!("{DIR}/1-1"), "");
        assert!(journals.left().unwrap()[0].1.is_empty());
    }

    #[test]
    fn one_process_at_a_time_changes_settings() {
        let fixture = Fixture::new();
        let error = || Journals::lock(&fixture.root()).unwrap_err().to_string();
        let first = journals(&fixture);
        // No other user can open the directory, and lock it for good.
        let mode = fs::metadata(fixture.root().join(DIR)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        // It has not changed anything yet.
        assert!(error().starts_with("another process runs a benchmark"));
        let journal = first.begin().unwrap();
        assert!(error().starts_with(&format!("process {} runs", process::id())));
        journal.remove();
        drop(first);
        journals(&fixture);
        assert!(fixture.root().entries(DIR).unwrap().is_empty());
    }

    #[test]
    fn the_newest_is_undone_first() {
        let fixture = Fixture::new();
        for (name, n) in [("99-5", 1), ("100-40", 3), ("98-30", 2)] {
            fixture.write(&format!("{DIR}/{name}"), &line(&change(n)));
        }
        let left = journals(&fixture).left().unwrap();
        let order: Vec<Undo> = left.into_iter().flat_map(|(_, undo)| undo).collect();
        assert_eq!(order, [change(3), change(2), change(1)]);
    }

    #[test]
    fn what_is_no_record_of_settings_is_named_and_stays() {
        let fixture = Fixture::new();
        let name = format!("{DIR}/1-0");
        let refused = |text: &str, why: &str| {
            fixture.write(&name, text);
            let error = journals(&fixture).left().unwrap_err().to_string();
            assert!(error.contains(&name) && error.contains(why), "{error}");
        };
        let good = line(&change(1));
        refused(&format!("{good}?\n{good}"), "line 2 cannot be read");
        refused("\n", "line 1 cannot be read");
        for path in [
            "etc/passwd",
            "/sys/a",
            "sys/../etc/passwd",
            "proc/1/mem",
            "",
        ] {
            let undo = write(path, 1);
            refused(&(good.clone() + &line(&undo)), "line 2 is of no setting");
        }
        let switch = |module: &str, name: &str| Undo::Switch {
            switch: Switch {
                module: module.into(),
                name: name.into(),
            },
            old: Some(true),
            asked: false,
        };
        for (module, name) in [
            ("nvme", "npt"),
            ("kvm_amd", "ept"),
            ("kvm_intel", "x=1 ept"),
        ] {
            let undo = switch(module, name);
            refused(&line(&undo), "line 1 is of no setting");
        }
        fixture.write(&name, &line(&switch("kvm_intel", "ept")));
        assert_eq!(journals(&fixture).left().unwrap().len(), 1);
        // As older versions have written them.
        for old in [
            r#"{"Write":["sys/a","1"]}"#,
            r#"{"PoolRemove":{"node":0,"before":1}}"#,
        ] {
            refused(&format!("{old}\n"), "set back what it says, and remove it");
        }
        let undo = write("proc/sys/kernel/a", 0);
        fixture.write(&name, &line(&undo));
        assert_eq!(journals(&fixture).left().unwrap()[0].1, [undo]);
    }

    #[test]
    fn what_others_can_write_is_not_undone() {
        let fixture = Fixture::new();
        let name = format!("{DIR}/1-0");
        fixture.write(&name, &line(&change(1)));
        let set_mode = |path: &str, mode| {
            let path = fixture.root().join(path);
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        set_mode(&name, 0o666);
        let error = journals(&fixture).left().unwrap_err().to_string();
        assert!(error.contains("1-0: can be written by others"), "{error}");
        set_mode(&name, 0o644);
        assert_eq!(journals(&fixture).left().unwrap().len(), 1);
        set_mode(DIR, 0o777);
        let error = Journals::lock(&fixture.root()).unwrap_err().to_string();
        assert!(error.contains("can be written by others"), "{error}");
    }

    #[test]
    fn a_record_that_could_not_be_written_is_an_error_of_its_file() {
        let error = Journal::full().add(&change(1)).unwrap_err().to_string();
        assert_eq!(error, "/nonexistent/journal: No space left on device");
    }
}
