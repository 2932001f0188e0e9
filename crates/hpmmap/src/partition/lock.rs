//! The lock of commands that change partitions or what is in them.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use hpmmap_base::error::{Error, Result, describe};
use hpmmap_host::Root;
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};
use nix::sys::stat::{major, minor};

use super::machine::{Live, Machine, RECORDS};

/// The name of the lock; no partition has a dot in its name.
const LOCK: &str = ".lock";
/// Where processes that come in wait for each other: only one of them stands in the way of other
/// commands, however many a user starts.
const ENTRY: &str = ".enter";
/// The longest wait for each.
const WAIT: Duration = Duration::from_secs(30);

/// One command at a time makes or deletes partitions. The lock ends with the process, and with the
/// programs that it has started: what a killed command has asked systemd for is done before the next
/// command undoes it.
pub fn lock(machine: &Live) -> Result<Flock<File>> {
    machine.prepare()?;
    let lock = take_shared(machine)?;
    machine.forget_unfinished()?;
    Ok(lock)
}

/// The locks for a process that comes in: its partition stays what it is meanwhile.
pub fn lock_entry(machine: &Live) -> Result<(Flock<File>, Flock<File>)> {
    let turn = take(machine, ENTRY, WAIT)?;
    Ok((take_shared(machine)?, turn))
}

/// Takes the lock, which programs that this process starts have, too.
fn take_shared(machine: &Live) -> Result<Flock<File>> {
    let lock = take(machine, LOCK, WAIT)?;
    fcntl(&*lock, FcntlArg::F_SETFD(FdFlag::empty())).map_err(std::io::Error::from)?;
    Ok(lock)
}

/// Locks a file beside the records; after `wait` the error says which process has the lock then.
fn take(machine: &Live, name: &str, wait: Duration) -> Result<Flock<File>> {
    let path = machine.root().join(RECORDS).join(name);
    let failed = |why: &str| Error::Failed(format!("{}: {why}", path.display()));
    let opened = machine.lock_file(name);
    let file = opened.map_err(|error| failed(&describe(&error)))?;
    let meta = file.metadata()?;
    let (device, inode) = (meta.dev(), meta.ino());
    // As /proc/locks has it.
    let id = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let (taken, result) = mpsc::channel();
    // flock(2) has no limit. If this process no longer waits, the lock ends with the message.
    thread::spawn(move || taken.send(Flock::lock(file, FlockArg::LockExclusive)));
    match result.recv_timeout(wait) {
        Ok(lock) => lock.map_err(|(_, errno)| failed(errno.desc())),
        Err(_) => Err(failed(&format!(
            "this lock was not free for {} seconds; now {} has it: wait until it ends, then try again",
            wait.as_secs(),
            holder(machine.root(), &id).map_or("another command".into(), |process| format!(
                "process {process}, or a program that it started,"
            ))
        ))),
    }
}

/// The process that has locked the file with this ID.
fn holder(root: &Root, id: &str) -> Option<u32> {
    let locks = root.read("proc/locks").ok()?;
    locks.lines().find_map(|line| {
        // One that waits has "->" before its kind.
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, "FLOCK", _, _, process, file, ..] if file == id => process.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use hpmmap_host::fixture::Fixture;

    use super::*;

    #[test]
    fn only_root_can_hold_it_and_its_holder_is_named() {
        let fixture = Fixture::new();
        let live = Live::at(fixture.root());
        let path = fixture.path().join(RECORDS).join(LOCK);
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        drop(lock(&live).unwrap());
        assert_eq!(mode(), 0o600);
        // Of an older version.
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        fixture.write(&format!("{RECORDS}/.hpmmap-x"), "half a record");
        let held = lock(&live).unwrap();
        assert_eq!(mode(), 0o600);
        assert!(!fixture.path().join(RECORDS).join(".hpmmap-x").exists());
        let refused = || {
            let error = take(&live, LOCK, Duration::from_millis(50)).unwrap_err();
            error.to_string()
        };
        assert!(refused().contains("now another command has it"));
        let meta = held.metadata().unwrap();
        let id = format!(
            "{:02x}:{:02x}:{}",
            major(meta.dev()),
            minor(meta.dev()),
            meta.ino()
        );
        let locks = format!(
            "1: FLOCK  ADVISORY  WRITE 41 00:01:7 0 EOF\n\
             2: FLOCK  ADVISORY  WRITE 42 {id} 0 EOF\n\
             2: -> FLOCK  ADVISORY  WRITE 43 {id} 0 EOF\n"
        );
        fixture.write("proc/locks", &locks);
        let error = refused();
        assert!(error.contains("process 42, or a program"), "{error}");
        drop(held);
        take(&live, LOCK, WAIT).unwrap();
    }
}
