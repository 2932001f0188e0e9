//! The neighbour of `bench noise`: a process group of its own, which ends with this process.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use hpmmap_base::error::{Error, Result};
use hpmmap_sys::child::{Setup, Signal};
use nix::sys::signal::killpg;
use nix::unistd::Pid;

use super::plan;
use crate::program::{content, memory_file};

/// Time for the neighbour to get to work.
const SETTLE: Duration = Duration::from_secs(1);

/// A neighbour that runs until this is dropped.
pub struct Neighbour {
    child: Child,
    errors: File,
}

impl Neighbour {
    /// Starts it, one process for each CPU; together they use `bytes`.
    pub fn start(program: &Path, neighbour: &plan::Neighbour, bytes: u64) -> Result<Self> {
        let errors = memory_file("errors")?;
        let mut command = Command::new(program);
        command
            .arg("neighbour")
            .args(["--size", &(bytes & !0xfff).to_string()])
            .args(["--processes", &neighbour.cpus.len().to_string()]);
        if let Some(text) = &neighbour.command {
            command.args(["--command", text]);
        }
        for cpu in &neighbour.cpus {
            command.args(["--cpu", &cpu.to_string()]);
        }
        Setup {
            own_group: true,
            dies_with_parent: Some(Signal::SIGTERM),
            ..Setup::default()
        }
        .apply(&mut command)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors.try_clone()?)
            .spawn()
            .map_err(|error| {
                Error::Failed(format!("the neighbour: {}: {error}", program.display()))
            })?;
        let mut started = Self { child, errors };
        thread::sleep(SETTLE);
        started.check()?;
        Ok(started)
    }

    /// Fails if it has ended.
    pub fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(());
        };
        let said = content(self.errors.try_clone()?)?;
        let last = said.lines().last().unwrap_or("it said nothing");
        Err(Error::Failed(format!(
            "the neighbour has ended: {status}: {last}"
        )))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // All its processes are in its group. If they are gone already there is nothing to do.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_ends_is_an_error() {
        let plan = plan::Neighbour {
            command: None,
            cpus: vec![0],
        };
        let started = Neighbour::start(Path::new("/bin/false"), &plan, 4096);
        let message = started.err().unwrap().to_string();
        assert_eq!(
            message,
            "the neighbour has ended: exit status: 1: it said nothing"
        );
        let missing = Neighbour::start(Path::new("/nonexistent"), &plan, 4096);
        let message = missing.err().unwrap().to_string();
        assert!(
            message.starts_with("the neighbour: /nonexistent: "),
            "{message}"
        );
    }
}
