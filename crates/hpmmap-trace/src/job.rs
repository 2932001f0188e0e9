//! The recorded command, which is started, or process, which exists.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hpmmap_base::error::{Error, Result};
use hpmmap_base::signals::is_left;
use hpmmap_host::Root;
use hpmmap_sys::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};

use super::format::Counts;

/// The time by the clock of the kernel's events.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every kernel has this clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// A command or a process while it is recorded.
pub enum Job {
    /// Started by the recorder.
    Command(Child),
    /// Existed before.
    Process(u32),
}

/// Signals that have come.
pub struct Signals {
    interrupt: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
}

impl Signals {
    /// From now on signals do not end the recorder, which has to finish the file.
    pub fn catch() -> Result<Self> {
        let signals = Self {
            interrupt: Arc::default(),
            end: Arc::default(),
        };
        for (signal, flag) in [
            (SIGINT, &signals.interrupt),
            (SIGQUIT, &signals.interrupt),
            (SIGTERM, &signals.end),
            (SIGHUP, &signals.end),
            // The reader of the messages may be gone; the file is still written.
            (SIGPIPE, &Arc::default()),
        ] {
            if !is_left(signal)? {
                signal_hook::flag::register(signal, Arc::clone(flag))?;
            }
        }
        Ok(signals)
    }
}

/// The state of a job.
pub enum State {
    /// It runs.
    Running,
    /// It has ended; a command with this status.
    Ended(Option<ExitStatus>),
}

impl Job {
    /// Starts a command.
    pub fn start(command: &[OsString]) -> Result<Self> {
        Command::new(&command[0])
            .args(&command[1..])
            .spawn()
            .map(Self::Command)
            .map_err(|error| Error::Exec {
                program: command[0].to_string_lossy().into_owned(),
                errno: error.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
            })
    }

    /// Returns the state and passes signals on. A terminal sends its interrupt to the command
    /// itself.
    pub fn state(&mut self, signals: &Signals) -> Result<State> {
        let end = signals.end.swap(false, Ordering::Relaxed);
        let interrupt = signals.interrupt.swap(false, Ordering::Relaxed);
        match self {
            Self::Command(child) => {
                if end {
                    // It may have ended meanwhile.
                    let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
                }
                Ok(match child.try_wait()? {
                    Some(status) => State::Ended(Some(status)),
                    None => State::Running,
                })
            }
            Self::Process(pid) => Ok(if end || interrupt || !exists(*pid) {
                State::Ended(None)
            } else {
                State::Running
            }),
        }
    }
}

fn exists(pid: u32) -> bool {
    kill(Pid::from_raw(pid as i32), None) != Err(Errno::ESRCH)
}

/// Checks that a process can be recorded.
pub fn existing(pid: u32) -> Result<u32> {
    if i32::try_from(pid).is_ok_and(|n| n > 0) && exists(pid) {
        Ok(pid)
    } else {
        Err(Error::Usage(format!("there is no process {pid}")))
    }
}

/// A status as a shell returns it.
pub fn shell_status(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The kernel's counts for children that were waited for, and their descendants.
pub fn children_faults() -> Result<Counts> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(io::Error::from)?;
    Ok(Counts {
        minor: usage.minor_page_faults() as u64,
        major: usage.major_page_faults() as u64,
    })
}

/// CPU time of this process.
pub fn own_cpu_ns() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(io::Error::from)?;
    let ns = |time: nix::sys::time::TimeVal| {
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_usec() as u64 * 1000
    };
    Ok(ns(usage.user_time()) + ns(usage.system_time()))
}

/// A process and all its current descendants.
pub fn family(root: &Root, pid: u32) -> Result<Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for other in root.numbered::<u32>("proc", "")? {
        if let Some(parent) = parent(root, other) {
            children.entry(parent).or_default().push(other);
        }
    }
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(member) = family.get(at) {
        family.extend(children.get(member).into_iter().flatten());
        at += 1;
    }
    Ok(family)
}

fn parent(root: &Root, pid: u32) -> Option<u32> {
    let stat = root.read(format!("proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    #[test]
    fn a_family_is_found_whatever_its_members_are_called() {
        let fixture = Fixture::new();
        for (pid, comm, parent) in [
            (1, "init", 0),
            (5, "a (b) 9", 1),
            (6, "x", 5),
            (7, "y", 6),
            (8, "z", 1),
        ] {
            fixture.write(
                &format!("proc/{pid}/stat"),
                &format!("{pid} ({comm}) S {parent} 1"),
            );
        }
        fixture.write("proc/meminfo", "");
        assert_eq!(family(&fixture.root(), 5).unwrap(), [5, 6, 7]);
    }

    #[test]
    fn a_process_that_is_not_there_is_wrong_usage() {
        assert_eq!(existing(std::process::id()).unwrap(), std::process::id());
        for pid in [0, u32::MAX, 0x7fff_ffff] {
            let error = existing(pid).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert_eq!(error.to_string(), format!("there is no process {pid}"));
        }
    }

    #[test]
    fn statuses_are_those_of_a_shell() {
        assert_eq!(shell_status(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(shell_status(ExitStatus::from_raw(9)), 137);
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let error = Job::start(&["/nonexistent/x".into()]).err().unwrap();
        assert!(error.to_string().contains("/nonexistent/x"), "{error}");
    }
}
