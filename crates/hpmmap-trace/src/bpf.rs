//! Recording with BPF programs.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hpmmap_base::error::{Error, Result};
use hpmmap_bpf::Probes;
use hpmmap_host::{Root, process};

use super::Target;
use super::format::{Counts, Header, Overhead, Stolen, Summary, Total, Writer};
use super::job::{self, Job, Signals, State};
use super::sink::Sink;

/// Interval at which the buffer is emptied.
const INTERVAL: Duration = Duration::from_millis(50);

/// Loads the programs, ready to trace a command or process.
pub fn prepare(target: &Target, buffer_bytes: u32) -> hpmmap_bpf::Result<Probes> {
    let recorder = match target {
        Target::Command(_) => Some(std::process::id()),
        Target::Process(_) => None,
    };
    Probes::attach(buffer_bytes, recorder)
}

fn failed(error: hpmmap_bpf::Error) -> Error {
    Error::Failed(error.to_string())
}

/// Records until the command or process has ended.
pub fn record(
    mut probes: Probes,
    target: &Target,
    writer: Writer,
    header: &Header,
    signals: &Signals,
) -> Result<(Writer, Summary)> {
    let root = Root::default();
    let before_ns = job::own_cpu_ns()?;
    let sink = Rc::new(RefCell::new(Sink::new(root.clone(), writer)));
    let mut job = match target {
        Target::Command(command) => Job::start(command)?,
        Target::Process(pid) => {
            follow(
                &root,
                &probes,
                *pid,
                &mut sink.borrow_mut(),
                header.start_ns,
            )?;
            Job::Process(*pid)
        }
    };
    let theirs = Rc::clone(&sink);
    let ring = probes
        .ring(move |event| theirs.borrow_mut().take(event))
        .map_err(failed)?;
    let status = loop {
        ring.take(INTERVAL).map_err(failed)?;
        sink.borrow_mut().flush()?;
        if let State::Ended(status) = job.state(signals)? {
            break status;
        }
    };
    let end_ns = job::now_ns();
    probes.detach();
    ring.take(Duration::ZERO).map_err(failed)?;
    drop(ring);
    let mut sink = Rc::into_inner(sink)
        .ok_or_else(|| Error::Failed("the buffer is still in use".into()))?
        .into_inner();
    sink.flush()?;

    let counters = probes.counters().map_err(failed)?;
    let mut overhead = Overhead {
        recorder_ns: job::own_cpu_ns()? - before_ns,
        ..Overhead::default()
    };
    for runs in probes.runs() {
        overhead.runs += runs.count;
        overhead.run_ns += runs.ns;
        overhead.missed += runs.missed;
    }
    let summary = Summary {
        end_ns,
        exit_status: status.map(job::shell_status),
        totals: totals(&probes)?,
        stolen: stolen(&probes)?,
        recorded: Counts {
            minor: counters.minor,
            major: counters.major,
        },
        kernel: Some(Counts {
            minor: counters.kernel_minor,
            major: counters.kernel_major,
        }),
        getrusage: match target {
            Target::Command(_) => Some(job::children_faults()?),
            Target::Process(_) => None,
        },
        dropped: counters.dropped + sink.broken,
        untracked: counters.untracked,
        retries: counters.retries,
        running: probes.running().map_err(failed)?,
        overhead,
    };
    Ok((sink.into_writer(), summary))
}

/// Traces a running process and its descendants: looks for descendants until all are traced.
fn follow(root: &Root, probes: &Probes, pid: u32, sink: &mut Sink, now: u64) -> Result<()> {
    let mut traced = Vec::new();
    loop {
        let mut fresh = job::family(root, pid)?;
        fresh.retain(|pid| !traced.contains(pid));
        if fresh.is_empty() {
            return Ok(());
        }
        for pid in fresh {
            probes.trace(pid).map_err(failed)?;
            if let Some(comm) = process::command(root, pid)? {
                sink.found(pid, comm, now)?;
            }
            traced.push(pid);
        }
    }
}

fn totals(probes: &Probes) -> Result<Vec<Total>> {
    let totals = probes.totals().map_err(failed)?;
    let record = |total: &hpmmap_bpf::Total| Total {
        kind: total.kind.name().into(),
        stall: total.stall.name().into(),
        origin: total.origin.name().into(),
        count: total.figures.count,
        sum_ns: total.figures.sum_ns,
        max_ns: total.figures.max_ns,
    };
    Ok(totals.iter().map(record).collect())
}

fn stolen(probes: &Probes) -> Result<Vec<Stolen>> {
    let stolen = probes.stolen().map_err(failed)?;
    let record = |total: &hpmmap_bpf::StolenTotal| Stolen {
        cause: total.cause.name().into(),
        count: total.figures.count,
        sum_ns: total.figures.sum_ns,
        max_ns: total.figures.max_ns,
    };
    Ok(stolen.iter().map(record).collect())
}
