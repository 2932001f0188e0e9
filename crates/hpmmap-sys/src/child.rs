//! Child processes: what they are to be like before they become their program,
//! and one that runs code of the parent's.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, signal};
use nix::unistd::{ForkResult, Pid, fork, getppid, setpgid};

pub use nix::sys::signal::Signal;

/// What is set between fork and exec. The default changes nothing.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// It runs on these CPUs only; on all it may if there is none.
    pub cpus: Vec<u32>,
    /// It gets no transparent huge pages, nor do its children.
    pub no_thp: bool,
    /// It leads a process group of its own.
    pub own_group: bool,
    /// It gets this signal when the thread that starts it ends.
    pub dies_with_parent: Option<Signal>,
}

impl Setup {
    /// Has `command` start that way.
    pub fn apply(self, command: &mut Command) -> io::Result<()> {
        let mut set = CpuSet::new();
        for &cpu in &self.cpus {
            set.set(cpu as usize)?;
        }
        let parent = Pid::this();
        let before_exec = move || {
            if self.own_group {
                setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
            }
            if let Some(signal) = self.dies_with_parent {
                prctl::set_pdeathsig(signal)?;
                if getppid() != parent {
                    return Err(Errno::ESRCH.into());
                }
            }
            if !self.cpus.is_empty() {
                sched_setaffinity(Pid::from_raw(0), &set)?;
            }
            if self.no_thp {
                prctl::set_thp_disable(true)?;
            }
            Ok(())
        };
        // SAFETY: the closure only makes system calls; an error of the kernel
        // is a number, nothing is allocated for it.
        unsafe {
            command.pre_exec(before_exec);
        }
        Ok(())
    }
}

/// How many CPUs this process may use.
pub fn allowed_cpus() -> io::Result<u32> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    let is_set = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    Ok((0..CpuSet::count()).filter(is_set).count() as u32)
}

/// Makes this process the parent of what its children leave behind.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// Forks. The child runs `child` and ends with the status it returns; the
/// parent gets its number, and can wait for it even if it was told to ignore
/// SIGCHLD, which only the child still does.
///
/// Only for a process with one thread: of others' the child would find locks
/// that nobody releases. With more it is an error.
pub fn spawn(child: impl FnOnce() -> i32) -> io::Result<Pid> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!(
            "cannot fork a process of {threads} threads"
        )));
    }
    // SAFETY: the default handler is no code of this program.
    let sigchld = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    // SAFETY: there is one thread, so the child is a whole copy of the process.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            // SAFETY: as it was set before.
            let restored = unsafe { signal(Signal::SIGCHLD, sigchld) };
            let status = restored.map_or(1, |_| child());
            // SAFETY: ends the process without running what the parent has
            // registered to run at its own end.
            unsafe { nix::libc::_exit(status) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_line(setup: Setup, name: &str) -> String {
        let mut command = Command::new("grep");
        command.args([name, "/proc/self/status"]);
        setup.apply(&mut command).unwrap();
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    }

    #[test]
    fn a_child_is_as_it_was_asked_to_be() {
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        let list = own
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .unwrap();
        let digits = |c: char| !c.is_ascii_digit();
        let first: u32 = list.trim().split(digits).next().unwrap().parse().unwrap();
        let setup = Setup {
            cpus: vec![first],
            no_thp: true,
            own_group: true,
            dies_with_parent: Some(Signal::SIGTERM),
        };
        assert_eq!(
            status_line(setup.clone(), "Cpus_allowed_list"),
            format!("Cpus_allowed_list:\t{first}")
        );
        assert_eq!(status_line(setup, "THP_enabled"), "THP_enabled:\t0");
        assert_eq!(
            status_line(Setup::default(), "THP_enabled"),
            "THP_enabled:\t1"
        );
    }
}
