//! `hpmmap trace`

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hpmmap_base::VERSION;
use hpmmap_base::error::{Error, Result, exec_status};
use hpmmap_base::output::{complain, print, print_json, say, warn};
use hpmmap_base::safe_files::Created;
use hpmmap_host::{Root, process};
use hpmmap_sys::clock;

use crate::cli::{TraceNoiseArgs, TracePlotArgs, TraceRecordArgs, TraceReportArgs, TraceVerb};
use crate::format::{Header, Trace, Writer};
use crate::report::{self, Report};
use crate::{Target, bpf, job, noise, plot};

/// Performs the verb.
pub fn perform(verb: &TraceVerb) -> Result<ExitCode> {
    match verb {
        TraceVerb::Record(args) => record(args),
        TraceVerb::Report(args) => show(args),
        TraceVerb::Plot(args) => draw(args),
        TraceVerb::Noise(args) => count(args),
    }
}

/// The size of the buffer for events, which BPF wants as a power of two.
fn buffer_bytes(args: &TraceRecordArgs) -> Result<u32> {
    let bytes = args.buffer.0;
    if bytes.is_power_of_two() && (64 << 10..=1 << 30).contains(&bytes) {
        Ok(bytes as u32)
    } else {
        Err(Error::Usage(format!(
            "--buffer {} is not a power of two from 64K to 1G",
            args.buffer
        )))
    }
}

fn target(args: &TraceRecordArgs) -> Result<Target> {
    match args.pid {
        Some(pid) => Ok(Target::Process(job::existing(pid)?)),
        None => Ok(Target::Command(args.command.clone())),
    }
}

fn header(root: &Root, target: &Target) -> Result<Header> {
    let (command, pid) = match target {
        Target::Command(words) => {
            let words = words.iter().map(|word| word.to_string_lossy().into_owned());
            (words.collect(), None)
        }
        Target::Process(pid) => (Vec::new(), Some(*pid)),
    };
    let started = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    Ok(Header {
        hpmmap: VERSION.into(),
        kernel: process::kernel_release(root)?,
        machine: nix::unistd::gethostname()
            .map_err(io::Error::from)?
            .to_string_lossy()
            .into_owned(),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        tsc_hz: clock::hertz(),
        command,
        pid,
        started,
        start_ns: job::now_ns(),
        ..Header::default()
    })
}

fn record(args: &TraceRecordArgs) -> Result<ExitCode> {
    let root = Root::default();
    let buffer = buffer_bytes(args)?;
    let target = target(args)?;
    // Before anything is made that would have to be removed.
    let signals = job::Signals::catch()?;
    let probes = bpf::prepare(&target, buffer).map_err(|error| match error {
        hpmmap_bpf::Error::NotPermitted => Error::NoPermission {
            what: "to load BPF programs".into(),
            hint: "be root, or have CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE".into(),
        },
        error => Error::Failed(format!("BPF programs cannot record here: {error}")),
    })?;
    let header = Header {
        missing: probes.missing().to_vec(),
        ..header(&root, &target)?
    };
    let writer = Writer::create(&args.output, &header)?;
    let created = writer.created();
    conclude(
        args,
        &created,
        bpf::record(probes, &target, writer, &header, &signals),
    )
}

type Recorded = Result<(Writer, crate::format::Summary)>;

/// Finishes the file and prints a summary. Returns the exit status of the command.
fn conclude(args: &TraceRecordArgs, created: &Created, recorded: Recorded) -> Result<ExitCode> {
    let (mut writer, summary) = match recorded {
        Err(error @ Error::Exec { errno, .. }) => {
            complain(&error);
            // The file is empty.
            created.remove()?;
            return Ok(ExitCode::from(exec_status(errno)));
        }
        other => other?,
    };
    writer.summary(summary.clone())?;
    drop(writer);
    if !args.quiet {
        let whole = Report::new(&Trace::read(&args.output)?, 0);
        for line in report::agreement_lines(&whole) {
            say(&line);
        }
        if summary.dropped > 0 {
            warn(&format!(
                "{} events had no room in the buffer: try a larger one (--buffer)",
                summary.dropped
            ));
        }
        say(&format!("recorded to {}", args.output.display()));
    }
    Ok(ExitCode::from(summary.exit_status.unwrap_or(0) as u8))
}

/// The nanoseconds after the start that an option gives.
fn after_ns(after: Option<&str>, trace: &Trace) -> Result<u64> {
    let Some(text) = after else {
        return Ok(0);
    };
    let wrong = || {
        Error::Usage(format!(
            "--after {text}: expected seconds since the start such as 1.5, or a time of \
             CLOCK_MONOTONIC such as @1234.5"
        ))
    };
    let (number, from) = match text.strip_prefix('@') {
        Some(number) => (number, trace.header.start_ns),
        None => (text, 0),
    };
    let seconds: f64 = number.parse().map_err(|_| wrong())?;
    if !(0.0..1e9).contains(&seconds) {
        return Err(wrong());
    }
    Ok(((seconds * 1e9) as u64).saturating_sub(from))
}

fn count(args: &TraceNoiseArgs) -> Result<ExitCode> {
    let root = Root::default();
    let cpus = args.cpu.as_deref();
    let cpus = cpus.map(|text| noise::online(&root, text)).transpose()?;
    match args.beside {
        true => noise::beside(&root, cpus),
        false => noise::run(&root, cpus, &args.command, args.output.as_deref()),
    }
}

fn show(args: &TraceReportArgs) -> Result<ExitCode> {
    let trace = Trace::read(&args.file)?;
    let after = after_ns(args.after.as_deref(), &trace)?;
    if args.csv {
        let mut out = io::BufWriter::new(io::stdout().lock());
        report::csv(&trace, after, &mut out)?;
        io::Write::flush(&mut out)?;
    } else {
        let report = Report::new(&trace, after);
        if args.json {
            print_json(&report)?;
        } else {
            print(&report::text(&report, args.by, args.unit))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn draw(args: &TracePlotArgs) -> Result<ExitCode> {
    let outputs = if args.output.is_empty() {
        vec![default_picture(&args.file)]
    } else {
        args.output.clone()
    };
    for path in &outputs {
        plot::check(path)?;
    }
    let trace = Trace::read(&args.file)?;
    let after = after_ns(args.after.as_deref(), &trace)?;
    for path in &outputs {
        plot::write(&trace, after, path)?;
        print(&path.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of the recorded file with the ending of a picture.
fn default_picture(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_os_string();
    name.push(".png");
    name.into()
}
