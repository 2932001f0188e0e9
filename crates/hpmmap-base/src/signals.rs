//! Signals that are to end something which has changed the machine: it sets
//! everything back first.

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

/// What ends a process from outside: by the keyboard, with the terminal, by the
/// administrator, or when nobody reads what it prints any more.
const ENDING: [i32; 5] = [SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGPIPE];

/// How long a process that was started may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// Whether a signal is to be left as it is: nohup ignores those that are not for
/// what goes on. Scripts start everything in the background with SIGINT
/// ignored, though, and then send it.
pub fn is_left(signal: i32) -> Result<bool> {
    Ok(signal != SIGINT && is_ignored(signal)?)
}

/// Those of these signals that are not left as they are.
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

/// Processes that are waited for without looking at the flag.
static CHILDREN: Mutex<Vec<(Pid, Means)>> = Mutex::new(Vec::new());

/// How a process is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// It is asked to, and killed if it does not.
    Kill,
    /// It is only asked to: it has something to set back itself.
    Ask,
}

fn children() -> MutexGuard<'static, Vec<(Pid, Means)>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that is ended if a signal comes and it does not end by itself.
pub struct Watched(Pid);

impl Watched {
    /// From now on.
    pub fn new(pid: u32, means: Means) -> Self {
        let pid = Pid::from_raw(pid as i32);
        children().push((pid, means));
        Self(pid)
    }

    /// Waits for its end, and leaves its status to the next who waits: until
    /// then nobody else has its number.
    pub fn wait(self) {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        // An error means that there is nothing to wait for.
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

/// As `catch`; and processes that are watched end, too: they are asked to at
/// the first signal, and killed at the second, or if it takes too long.
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
        // A second signal, or none in time.
        let _ = come.read_exact(&mut byte);
        loop {
            end_children(Signal::SIGKILL);
            thread::sleep(Duration::from_millis(200));
        }
    });
    Ok(())
}

/// Whether one of the signals has come.
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
