//! Signals that end a command which has changed the machine: it first sets everything back.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hpmmap_sys::disposition::is_ignored;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};

use crate::error::Result;

/// Signals that end a process from outside: from the keyboard, with the terminal, by the
/// administrator, or when the reader of its output has ended.
const ENDING: [i32; 5] = [SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGPIPE];

/// Time in which a child process may end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// Must a signal be left ignored? nohup ignores signals for commands that are to continue. SIGINT
/// is an exception: scripts start background commands with it ignored, and send it nevertheless.
pub fn is_left(signal: i32) -> Result<bool> {
    Ok(signal != SIGINT && is_ignored(signal)?)
}

/// Returns the signals that are not to be left ignored.
fn wanted() -> Result<Vec<i32>> {
    let mut wanted = Vec::new();
    for signal in ENDING {
        if !is_left(signal)? {
            wanted.push(signal);
        }
    }
    Ok(wanted)
}

/// From now on these signals only set the flag.
pub fn catch(stop: &Arc<AtomicBool>) -> Result<()> {
    for signal in wanted()? {
        signal_hook::flag::register(signal, Arc::clone(stop))?;
    }
    Ok(())
}

/// Child processes that this process waits for without looking at the flag.
static CHILDREN: Mutex<Vec<(Pid, Means)>> = Mutex::new(Vec::new());

/// The way to end a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// Signal it, and kill it if it does not end.
    Kill,
    /// Only signal it: it has something to set back itself.
    Ask,
}

fn children() -> MutexGuard<'static, Vec<(Pid, Means)>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that is ended when a signal comes.
pub struct Watched(Pid);

impl Watched {
    /// Watches the process from now on.
    pub fn new(pid: u32, means: Means) -> Self {
        let pid = Pid::from_raw(pid as i32);
        children().push((pid, means));
        Self(pid)
    }

    /// Waits for its end but leaves its status to a later wait: until then its number is not
    /// reused.
    pub fn wait(self) {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        // An error means that there is no such child.
        while waitid(Id::Pid(self.0), flags) == Err(nix::errno::Errno::EINTR) {}
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        children().retain(|(pid, _)| *pid != self.0);
    }
}

fn end_children(signal: Signal) {
    for &(pid, means) in children().iter() {
        if signal == Signal::SIGTERM || means == Means::Kill {
            // It may have ended meanwhile.
            let _ = kill(pid, signal);
        }
    }
}

/// As `catch`; watched processes end, too: the first signal is passed on to them, the second, or
/// too long a wait, kills them.
pub fn catch_and_watch(stop: &Arc<AtomicBool>) -> Result<()> {
    let (mut come, tell) = UnixStream::pair()?;
    for signal in wanted()? {
        signal_hook::low_level::pipe::register(signal, tell.try_clone()?)?;
    }
    catch(stop)?;
    thread::spawn(move || {
        // The other end stays open in the handlers.
        let _tell = tell;
        let mut byte = [0];
        while let Err(error) = come.read_exact(&mut byte) {
            if error.kind() != ErrorKind::Interrupted {
                return;
            }
        }
        end_children(Signal::SIGTERM);
        let _ = come.set_read_timeout(Some(GRACE));
        // A second signal came, or the time is over.
        let _ = come.read_exact(&mut byte);
        loop {
            end_children(Signal::SIGKILL);
            thread::sleep(Duration::from_millis(200));
        }
    });
    Ok(())
}

/// Has one of the signals come?
pub fn has_come(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_is_watched_is_killed_and_can_be_waited_for() {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; while :; do sleep 1; done"])
            .spawn()
            .unwrap();
        let watched = Watched::new(child.id(), Means::Kill);
        let start = Instant::now();
        end_children(Signal::SIGTERM);
        end_children(Signal::SIGKILL);
        watched.wait();
        assert!(!child.wait().unwrap().success());
        assert!(start.elapsed() < Duration::from_secs(60));
        let pid = Pid::from_raw(child.id() as i32);
        assert!(children().iter().all(|(other, _)| *other != pid));
    }
}
