//! `hpmmap run --report`: the program as a child, and a report at its end.

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{complain, tell, warn};
use hpmmap_base::safe_files;
use hpmmap_host::noise::{Noise, Recorder};
use hpmmap_host::{Root, pool};
use hpmmap_program::RUN_FAILED;
use hpmmap_sys::{Device, Errno, child, uapi};
use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::resource::{Resource, UsageWho, getrusage, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, gethostname, pipe2};
use signal_hook::low_level::emulate_default_handler;

use crate::cli::RunArgs;
use crate::report::{Exit, Report, Run};

/// Signals to hpmmap that are meant for the program.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Runs `launch` and `execute` in a child. The device stays open here, which keeps the launch's
/// counters.
pub fn perform(
    root: &Root,
    args: &RunArgs,
    file: Option<&Path>,
    device: &Device,
    launch: impl FnOnce() -> Result<u64>,
    execute: impl FnOnce() -> u8,
) -> Result<ExitCode> {
    require_counters(root, device)?;
    if let Some(path) = file {
        safe_files::check(path)?;
    }
    let signals: SigSet = PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect();
    let before = signals
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
        .map_err(io::Error::from)?;
    let recorder = args.noise.then(record_noise);
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from)?;
    let (start, started) = (Instant::now(), SystemTime::now());
    let pid = child::spawn(|| i32::from(become_program(&writer, before, launch, execute)))?;
    drop(writer);
    let job = read_job(reader)?;
    let exit = supervise(pid, &signals)?;
    let elapsed = start.elapsed();
    let noise = recorder.map(|recorder| counted(recorder.and_then(Recorder::finish)));
    before.thread_set_mask().map_err(io::Error::from)?;

    // Without a launch the program did not run, and the child has printed the reason.
    if let Some(job) = job {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(io::Error::from)?;
        let run = Run {
            command: args
                .command
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            host: gethostname().map_or_else(
                |_| "unknown".to_string(),
                |name| name.to_string_lossy().into_owned(),
            ),
            started: started
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
            elapsed,
            exit,
            minor_faults: usage.minor_page_faults().try_into().unwrap_or(0),
            major_faults: usage.major_page_faults().try_into().unwrap_or(0),
            noise,
        };
        // The exit status is the program's, even if the report fails.
        if let Err(error) = write_report(root, file, args.verbose, job, run) {
            warn(&format!("no report: {error}"));
        }
    }
    end_alike(exit)
}

/// Counts what takes CPUs away from the children of this process.
fn record_noise() -> std::result::Result<Recorder, String> {
    let own = env::current_exe().map_err(|error| error.to_string())?;
    let mut recorder = Recorder::start(&own.with_file_name("hpmmap-trace"), None)?;
    recorder.begin()?;
    Ok(recorder)
}

/// The counts, or the reason for which there are none: the launch runs without them.
fn counted(counted: std::result::Result<Noise, String>) -> Noise {
    counted.unwrap_or_else(|why| Noise {
        unknown: vec![why],
        ..Noise::default()
    })
}

fn require_counters(root: &Root, device: &Device) -> Result<()> {
    let info = device
        .info()
        .map_err(|errno| Error::Failed(format!("the device does not answer: {}", errno.desc())))?;
    if info.features & uapi::FEATURE_JOBS != 0 {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "the loaded module {} does not count for jobs: without --report and --verbose the \
         program can run; with them it takes a newer module",
        pool::version(root).unwrap_or_default()
    )))
}

/// Runs in the child. The pipe gets: nothing if the launch failed, else its number, and one byte
/// more if the program could not be executed.
fn become_program(
    pipe: &OwnedFd,
    signals: SigSet,
    launch: impl FnOnce() -> Result<u64>,
    execute: impl FnOnce() -> u8,
) -> u8 {
    let launched = launch().and_then(|job| {
        let mut pipe = File::from(pipe.try_clone()?);
        pipe.write_all(&job.to_ne_bytes())?;
        signals.thread_set_mask().map_err(io::Error::from)?;
        Ok(pipe)
    });
    match launched {
        Err(error) => {
            complain(&error);
            RUN_FAILED
        }
        Ok(mut pipe) => {
            let status = execute();
            // If the reader is gone there is no place to report that.
            let _ = pipe.write_all(&[1]);
            status
        }
    }
}

/// Waits until the child has executed the program or failed; returns the number of the launch if
/// it has.
fn read_job(pipe: OwnedFd) -> Result<Option<u64>> {
    let mut told = Vec::new();
    File::from(pipe).read_to_end(&mut told)?;
    Ok(told.try_into().ok().map(u64::from_ne_bytes))
}

/// Passes signals on until the program ends.
fn supervise(pid: Pid, signals: &SigSet) -> Result<Exit> {
    let incoming = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC).map_err(io::Error::from)?;
    loop {
        match waitpid(pid, Some(WaitPidFlag::WNOHANG)).map_err(io::Error::from)? {
            WaitStatus::Exited(_, status) => return Ok(Exit::Status(status)),
            WaitStatus::Signaled(_, signal, _) => return Ok(Exit::Signal(signal as i32)),
            _ => (),
        }
        let signal = match incoming.read_signal() {
            Ok(Some(signal)) => signal,
            Ok(None) | Err(Errno::EINTR) => continue,
            Err(errno) => return Err(io::Error::from(errno).into()),
        };
        // The terminal sends signals of its keys to the program itself.
        if signal.ssi_code == libc::SI_KERNEL {
            continue;
        }
        match Signal::try_from(signal.ssi_signo as i32) {
            Ok(signal) if PASSED_ON.contains(&signal) => {
                // If the program has ended the next wait shows it.
                let _ = kill(pid, signal);
            }
            _ => (),
        }
    }
}

fn write_report(root: &Root, file: Option<&Path>, verbose: bool, job: u64, run: Run) -> Result<()> {
    let report = Report::read(root, job, run)?;
    if let Some(path) = file {
        let json = serde_json::to_string_pretty(&report).map_err(io::Error::from)?;
        safe_files::write(path, json + "\n")?;
    }
    if verbose {
        tell(&report.text());
    }
    Ok(())
}

/// Ends in the same way as the program, but without a core dump of this process.
fn end_alike(exit: Exit) -> Result<ExitCode> {
    match exit {
        Exit::Status(status) => Ok(ExitCode::from(status as u8)),
        Exit::Signal(signal) => {
            setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(io::Error::from)?;
            emulate_default_handler(signal)?;
            // Only if the signal does not end a process.
            Ok(ExitCode::from(128u8.wrapping_add(signal as u8)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bytes: &[u8]) -> Option<u64> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
        File::from(writer).write_all(bytes).unwrap();
        read_job(reader).unwrap()
    }

    #[test]
    fn only_a_program_that_runs_has_a_job() {
        assert_eq!(told(&[]), None);
        assert_eq!(told(&7u64.to_ne_bytes()), Some(7));
        assert_eq!(told(&[7, 0, 0, 0, 0, 0, 0, 0, 1]), None);
    }
}
