//! The changes of a partition: to the files of the kernel, the affinity of tasks, systemd, irqbalance,
//! and the records that undo it.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::{output, safe_files};
use hpmmap_host::{Root, number_list};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::stat::{Mode, umask};
use nix::unistd::Pid;

/// Numbers of CPUs.
pub type Cpus = BTreeSet<u32>;

/// The directory of the records.
pub const RECORDS: &str = "run/hpmmap/partitions";

/// irqbalance has a socket here.
const IRQBALANCE: &str = "run/irqbalance";
const IRQBALANCE_SECONDS: u64 = 5;

/// The CPUs of a list of the kernel, which may be empty.
pub fn parse_cpus(text: &str) -> Option<Cpus> {
    match text.trim() {
        "" => Some(Cpus::new()),
        text => Some(number_list::parse(text).ok()?.into_iter().collect()),
    }
}

/// CPUs in the kernel's list format.
pub fn format_cpus(cpus: &Cpus) -> String {
    number_list::format(&cpus.iter().copied().collect::<Vec<u32>>())
}

/// The machine, or the model of one in the tests. Paths are relative to its root.
pub trait Machine {
    /// All files that are read are below it.
    fn root(&self) -> &Root;
    /// Writes a file of the kernel, which must exist, in one call.
    fn write(&self, path: &str, text: &str) -> io::Result<()>;
    /// Makes a directory, or finds one.
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// Removes a directory; it may be gone already.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Gives a file or directory to a user.
    fn give(&self, path: &Path, uid: u32) -> io::Result<()>;
    /// Sets the CPUs that a task may use.
    fn set_affinity(&self, task: u32, cpus: &Cpus) -> io::Result<()>;
    /// Runs a program.
    fn run(&self, words: &[&str]) -> Result<()>;
    /// Sends a request to irqbalance and returns the answer; `None` if it does not run.
    fn irqbalance(&self, request: &str) -> Option<String>;
    /// Replaces a record; it is durable when this returns.
    fn save(&self, name: &str, bytes: &[u8]) -> Result<()>;
    /// Removes a record; it may be gone already.
    fn forget(&self, name: &str) -> Result<()>;
    /// Tells the user what does not end the command.
    fn warn(&self, text: &str);
}

/// The running machine.
#[derive(Default)]
pub struct Live {
    root: Root,
}

impl Live {
    #[cfg(test)]
    pub fn at(root: Root) -> Self {
        Self { root }
    }

    /// Makes the directory of the records, for a command that writes some.
    pub fn prepare(&self) -> Result<()> {
        let dir = self.root.join(RECORDS);
        // Every user may see which partitions there are.
        umask(Mode::from_bits_truncate(0o022));
        fs::create_dir_all(&dir)
            .map_err(|error| Error::Failed(format!("cannot make {}: {error}", dir.display())))
    }

    /// Opens a file for flock(2) beside the records.
    pub fn lock_file(&self, name: &str) -> io::Result<File> {
        self.records()?.lock_file(name)
    }

    /// Removes records that a killed command has begun to write.
    pub fn forget_unfinished(&self) -> Result<()> {
        for name in self.root.entries(RECORDS)? {
            if name.starts_with(".hpmmap-") {
                let _ = fs::remove_file(self.root.join(RECORDS).join(name));
            }
        }
        Ok(())
    }

    /// Runs a script with `path` and `text` in a process that a kill of this one, and Ctrl-C, do not reach. It has
    /// the lock of the command, too.
    ///
    /// For changes of a cpuset that may be a partition: the kernel moves workqueues then, and leaves them where they
    /// are, with a warning in its log, if the process is killed meanwhile.
    fn apart(&self, script: &str, path: &Path, text: &str) -> io::Result<()> {
        let output = Command::new("sh")
            .args(["-c", &format!("trap '' HUP INT TERM; {script}"), "sh"])
            .arg(self.root.join(path))
            .arg(text)
            .process_group(0)
            .output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(
                String::from_utf8_lossy(&output.stderr).trim(),
            )),
        }
    }

    fn records(&self) -> io::Result<safe_files::Dir> {
        let dir = safe_files::Dir::open(&self.root.join(RECORDS))?;
        dir.check_trusted()?;
        Ok(dir)
    }
}

/// An error of the file `path`.
fn named(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    move |error| Error::Failed(format!("{}: {error}", path.display()))
}

impl Machine for Live {
    fn root(&self) -> &Root {
        &self.root
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.root.join(path))?;
        // A value that is empty is a line without anything.
        let text = if text.is_empty() { "\n" } else { text };
        if path.contains("/cpuset.") {
            return self.apart(r#"env printf %s "$2" >"$1""#, path.as_ref(), text);
        }
        match file.write(text.as_bytes())? {
            written if written == text.len() => Ok(()),
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        match fs::create_dir(self.root.join(path)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        match self.apart(r#"rmdir -- "$1""#, path, "") {
            Err(_) if !self.root.join(path).exists() => Ok(()),
            other => other,
        }
    }

    fn give(&self, path: &Path, uid: u32) -> io::Result<()> {
        chown(self.root.join(path), Some(uid), None)
    }

    fn set_affinity(&self, task: u32, cpus: &Cpus) -> io::Result<()> {
        let mut set = CpuSet::new();
        for &cpu in cpus {
            set.set(cpu as usize)?;
        }
        Ok(sched_setaffinity(Pid::from_raw(task as i32), &set)?)
    }

    fn run(&self, words: &[&str]) -> Result<()> {
        let failed = |why: &str| Error::Failed(format!("'{}' failed: {why}", words.join(" ")));
        let output = Command::new(words[0]).args(&words[1..]).output();
        let output = output.map_err(|error| failed(&error.to_string()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    fn irqbalance(&self, request: &str) -> Option<String> {
        let sockets = self.root.entries(IRQBALANCE).ok()?;
        // A socket may be left of one that was killed.
        sockets.iter().find_map(|name| {
            let path = self.root.join(IRQBALANCE).join(name);
            let mut stream = UnixStream::connect(path).ok()?;
            let limit = Some(Duration::from_secs(IRQBALANCE_SECONDS));
            stream.set_read_timeout(limit).ok()?;
            stream.write_all(request.as_bytes()).ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            Some(answer)
        })
    }

    fn save(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let saved = self.records().and_then(|dir| dir.write(name, bytes));
        saved.map_err(named(&self.root.join(RECORDS).join(name)))
    }

    fn warn(&self, text: &str) {
        output::warn(text);
    }

    fn forget(&self, name: &str) -> Result<()> {
        let forgotten = self.records().and_then(|dir| {
            match dir.remove(name.as_ref()) {
                Err(error) if error.kind() == ErrorKind::NotFound => (),
                other => other?,
            }
            dir.sync()
        });
        forgotten.map_err(named(&self.root.join(RECORDS).join(name)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use hpmmap_host::fixture::Fixture;

    use super::*;

    fn live(fixture: &Fixture) -> Live {
        Live::at(fixture.root())
    }

    #[test]
    fn irqbalance_is_asked_through_its_socket() {
        let fixture = Fixture::new();
        assert_eq!(live(&fixture).irqbalance("setup"), None);
        // One of a process that was killed, and one that answers.
        fixture.write("run/irqbalance/irqbalance1.sock", "");
        let path = fixture.path().join("run/irqbalance/irqbalance2.sock");
        let listener = UnixListener::bind(path).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 100];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(b"SLEEP 10 BANNED 00000004").unwrap();
            request[..length].to_vec()
        });
        let answer = live(&fixture).irqbalance("settings cpus 2-3");
        assert_eq!(answer.as_deref(), Some("SLEEP 10 BANNED 00000004"));
        assert_eq!(server.join().unwrap(), b"settings cpus 2-3");
    }

    #[test]
    fn files_are_written_whole_and_never_made() {
        let fixture = Fixture::new();
        let live = live(&fixture);
        assert!(live.write("proc/x", "1").is_err());
        fixture.write("proc/x", "0\n");
        live.write("proc/x", "").unwrap();
        assert_eq!(live.root().read_bytes("proc/x").unwrap(), b"\n\n");
        fixture.write(&format!("{RECORDS}/b"), "old");
        fixture.write("cgroup/a/cpuset.cpus", "0-3\n");
        live.write("cgroup/a/cpuset.cpus", "2-3").unwrap();
        let written = live.root().read_bytes("cgroup/a/cpuset.cpus").unwrap();
        assert_eq!(written, b"2-3");
        let error = live
            .remove_dir("cgroup/a".as_ref())
            .unwrap_err()
            .to_string();
        assert!(error.contains("not empty"), "{error}");
        live.remove_dir("cgroup/b".as_ref()).unwrap();
        live.save("a", b"new").unwrap();
        live.forget("b").unwrap();
        live.forget("b").unwrap();
        assert_eq!(live.root().entries(RECORDS).unwrap(), ["a"]);
        let error = live.run(&["false"]).unwrap_err().to_string();
        assert!(error.starts_with("'false' failed"), "{error}");
    }

    #[test]
    fn lists_may_be_empty() {
        assert_eq!(parse_cpus("\n"), Some(Cpus::new()));
        assert_eq!(parse_cpus("0,2-3\n"), Some(Cpus::from([0, 2, 3])));
        assert_eq!(parse_cpus("0-"), None);
        assert_eq!(format_cpus(&Cpus::from([5, 0, 1])), "0-1,5");
    }
}
