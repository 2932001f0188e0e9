//! Child processes: settings that they get before they execute a program, and children that run
//! code of the parent.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, killpg, signal};
use nix::unistd::{ForkResult, Pid, fork, getppid, setpgid};

pub use nix::sys::signal::Signal;

/// Settings made between fork and exec. The default changes nothing.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Run on these CPUs only; empty: on all allowed ones.
    pub cpus: Vec<u32>,
    /// Disable transparent huge pages, also for its children.
    pub no_thp: bool,
    /// Lead a process group of its own.
    pub own_group: bool,
    /// Get this signal when the thread that starts it ends.
    pub dies_with_parent: Option<Signal>,
}

impl Setup {
    /// Makes `command` start with these settings.
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
        // SAFETY: the closure makes only system calls; an error of the kernel is a number, so
        // nothing is allocated.
        unsafe {
            command.pre_exec(before_exec);
        }
        Ok(())
    }
}

/// The number of CPUs that this process may use.
pub fn allowed_cpus() -> io::Result<u32> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    let is_set = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    Ok((0..CpuSet::count()).filter(is_set).count() as u32)
}

/// Makes this process the parent of orphans of its children.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// Ends a child that leads a process group, and its group: by SIGTERM, and by SIGKILL what is left
/// once the child has ended or `patience` is over.
pub fn end_group(child: &mut Child, patience: Duration) {
    let group = Pid::from_raw(child.id() as i32);
    let deadline = Instant::now() + patience;
    // An error means that the group is gone.
    let _ = killpg(group, Signal::SIGTERM);
    while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(50));
    }
    let _ = killpg(group, Signal::SIGKILL);
    let _ = child.wait();
}

/// Forks. The child runs `child` and ends with the status it returns. The parent gets the child's
/// number and can wait for it even if the parent ignores SIGCHLD; the child still ignores it.
///
/// Fails in a process with more than one thread: the child would find locks that no thread
/// releases.
pub fn spawn(child: impl FnOnce() -> i32) -> io::Result<Pid> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!(
            "cannot fork a process of {threads} threads"
        )));
    }
    // SAFETY: the default handler is not code of this program.
    let sigchld = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    // SAFETY: there is one thread, so the child is a whole copy of the process.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            // SAFETY: restores the previous handler.
            let restored = unsafe { signal(Signal::SIGCHLD, sigchld) };
            let status = restored.map_or(1, |_| child());
            // SAFETY: ends the process without running the exit handlers of the parent.
            unsafe { nix::libc::_exit(status) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

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

    #[test]
    fn a_group_ends_by_sigterm_or_else_by_sigkill() {
        let ended_by = |script: &str, patience| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdout(Stdio::piped());
            let setup = Setup {
                own_group: true,
                ..Setup::default()
            };
            setup.apply(&mut command).unwrap();
            let mut child = command.spawn().unwrap();
            let mut said = [0; 1];
            child
                .stdout
                .as_mut()
                .unwrap()
                .read_exact(&mut said)
                .unwrap();
            end_group(&mut child, patience);
            child.try_wait().unwrap().unwrap().signal()
        };
        let hour = Duration::from_secs(3600);
        let term = ended_by("echo; exec sleep 3600", hour);
        assert_eq!(term, Some(Signal::SIGTERM as i32));
        let kill = ended_by("trap '' TERM; echo; exec sleep 3600", Duration::ZERO);
        assert_eq!(kill, Some(Signal::SIGKILL as i32));
    }
}
