//! `hpmmap trace noise`: counts what takes CPUs away from a command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use hpmmap_base::error::{Error, Result, exec_status};
use hpmmap_base::output::{complain, say};
use hpmmap_base::safe_files;
use hpmmap_bpf::{Counted, CountedCpu, Hits, NoiseProbes, SOFTIRQS, TICK_REASONS, VECTORS};
use hpmmap_host::noise::interrupts::{self, Row, growth};
use hpmmap_host::noise::{
    BEGIN, Cpu, Interrupt, NAMES, Noise, Other, READY, Softirq, Switches, TickReason,
};
use hpmmap_host::{Root, number_list};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::{Pid, getppid};

use crate::job::{self, Job, Signals, State};

/// Interval at which the command is looked at.
const INTERVAL: Duration = Duration::from_millis(50);

/// Counts while a command runs; prints the counts and writes them to `output`.
pub fn run(
    root: &Root,
    cpus: Option<Vec<u32>>,
    command: &[OsString],
    output: Option<&Path>,
) -> Result<ExitCode> {
    if let Some(path) = output {
        safe_files::check(path)?;
    }
    let signals = Signals::catch()?;
    let mut count = Count::prepare(root, cpus, std::process::id())?;
    count.begin()?;
    let mut job = match Job::start(command) {
        Err(error @ Error::Exec { errno, .. }) => {
            complain(&error);
            return Ok(ExitCode::from(exec_status(errno)));
        }
        other => other?,
    };
    let status = loop {
        if let State::Ended(status) = job.state(&signals)? {
            break status;
        }
        thread::sleep(INTERVAL);
    };
    let noise = count.finish()?;
    for (name, text) in noise.lines() {
        say(&format!("{name:<6} {text}"));
    }
    if let Some(path) = output {
        let json = serde_json::to_string_pretty(&noise).map_err(io::Error::from)?;
        safe_files::write(path, json + "\n")?;
    }
    Ok(ExitCode::from(status.map_or(0, job::shell_status) as u8))
}

/// Counts for the children of the parent process, until its stream ends.
pub fn beside(root: &Root, cpus: Option<Vec<u32>>) -> Result<ExitCode> {
    let mut count = Count::prepare(root, cpus, getppid().as_raw() as u32)?;
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    writeln!(output, "{READY}")?;
    let mut word = String::new();
    if input.read_line(&mut word)? == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    count.begin()?;
    writeln!(output, "{BEGIN}")?;
    io::copy(&mut input, &mut io::sink())?;
    let noise = count.finish()?;
    writeln!(
        output,
        "{}",
        serde_json::to_string(&noise).map_err(io::Error::from)?
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The named CPUs, which must be online.
pub fn online(root: &Root, text: &str) -> Result<Vec<u32>> {
    let cpus = number_list::parse(text).map_err(|error| Error::Usage(format!("--cpu: {error}")))?;
    let online = number_list::parse(&root.read("sys/devices/system/cpu/online")?)
        .map_err(|error| Error::Failed(error.to_string()))?;
    match cpus.iter().find(|cpu| !online.contains(cpu)) {
        None => Ok(cpus),
        Some(cpu) => Err(Error::Usage(format!(
            "--cpu {text}: there is no CPU {cpu}: this host has {}",
            number_list::format(&online)
        ))),
    }
}

/// The CPUs that this process and its children may use.
fn allowed() -> Result<Vec<u32>> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(io::Error::from)?;
    let is_set = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    Ok((0..CpuSet::count())
        .filter(is_set)
        .map(|cpu| cpu as u32)
        .collect())
}

/// A count, with tracepoints where they are allowed.
struct Count<'a> {
    root: &'a Root,
    /// Those to report where switches are not counted.
    cpus: Vec<u32>,
    whole_time: bool,
    probes: std::result::Result<NoiseProbes, String>,
    start: Instant,
    before: Vec<Row>,
}

impl<'a> Count<'a> {
    fn prepare(root: &'a Root, cpus: Option<Vec<u32>>, launcher: u32) -> Result<Self> {
        let probes = NoiseProbes::attach(cpus.as_deref(), launcher);
        Ok(Self {
            root,
            whole_time: cpus.is_some(),
            cpus: cpus.map_or_else(allowed, Ok)?,
            probes: probes.map_err(|error| format!("switches were not counted: {error}")),
            start: Instant::now(),
            before: Vec::new(),
        })
    }

    fn begin(&mut self) -> Result<()> {
        self.start = Instant::now();
        self.before = interrupts::read(self.root)?;
        if let Ok(probes) = &mut self.probes {
            probes.start().map_err(failed)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Noise> {
        let after = interrupts::read(self.root)?;
        let mut noise = Noise {
            seconds: self.start.elapsed().as_secs_f64(),
            whole_time: self.whole_time,
            ..Noise::default()
        };
        match &mut self.probes {
            Err(why) => {
                noise.unknown.push(why.clone());
                let proc_only = |&cpu: &u32| Cpu {
                    cpu,
                    interrupts: kinds(growth(&self.before, &after, cpu), None),
                    softirqs: Vec::new(),
                    tick_reasons: Vec::new(),
                    switches: None,
                };
                noise.cpus = self.cpus.iter().map(proc_only).collect();
            }
            Ok(probes) => {
                probes.stop().map_err(failed)?;
                let counted = probes.counts().map_err(failed)?;
                noise.unknown = unknown(&counted, probes.missing());
                noise.migrations = Some(counted.migrations);
                noise.cpus = counted
                    .cpus
                    .iter()
                    .filter(|one| self.whole_time || one.arrivals != 0)
                    .map(|one| cpu(one, growth(&self.before, &after, one.cpu)))
                    .collect();
                for runs in probes.runs() {
                    noise.cost.runs += runs.count;
                    noise.cost.seconds += runs.ns as f64 / 1e9;
                    if runs.missed != 0 {
                        noise.unknown.push(format!(
                            "{} events of {} were not counted",
                            runs.missed, runs.program
                        ));
                    }
                }
            }
        }
        noise.note_unknown();
        Ok(noise)
    }
}

fn failed(error: hpmmap_bpf::Error) -> Error {
    Error::Failed(error.to_string())
}

/// The parts that the counts lack, with the reason of each.
fn unknown(counted: &Counted, missing: &[String]) -> Vec<String> {
    let mut unknown: Vec<_> = missing
        .iter()
        .map(|name| format!("this kernel has no tracepoint {name}"))
        .collect();
    if counted.lost != 0 {
        unknown.push(format!("{} events had no room", counted.lost));
    }
    unknown
}

/// The kinds of interrupts that came, by /proc/interrupts, with the tracepoints' counts.
fn kinds<'a>(
    grown: impl Iterator<Item = (&'a Row, u64)>,
    traced: Option<&BTreeMap<String, Hits>>,
) -> Vec<Interrupt> {
    grown
        .map(|(row, count)| {
            let hits = traced.and_then(|traced| match traced.get(&row.name) {
                // A device or vector that has a tracepoint and was not seen.
                None if has_tracepoint(&row.name) => Some(Hits::default()),
                found => found.copied(),
            });
            Interrupt {
                name: row.name.clone(),
                label: row.label.clone(),
                count,
                traced: hits.map(|hits| hits.count),
                in_job: hits.map(|hits| hits.in_job),
            }
        })
        .collect()
}

fn has_tracepoint(name: &str) -> bool {
    VECTORS.contains(&name) || name.bytes().all(|byte| byte.is_ascii_digit())
}

fn cpu<'a>(counted: &CountedCpu, grown: impl Iterator<Item = (&'a Row, u64)>) -> Cpu {
    let mut traced: BTreeMap<String, Hits> = counted
        .devices
        .iter()
        .map(|(number, hits)| (number.to_string(), *hits))
        .collect();
    let vectors = VECTORS.iter().map(|name| name.to_string());
    traced.extend(vectors.zip(counted.vectors));
    let softirqs = SOFTIRQS.iter().zip(counted.softirqs);
    let reasons = TICK_REASONS.iter().zip(counted.tick_reasons);
    Cpu {
        cpu: counted.cpu,
        interrupts: kinds(grown, Some(&traced)),
        softirqs: softirqs
            .filter(|(_, hits)| hits.count != 0)
            .map(|(name, hits)| Softirq {
                name: name.to_string(),
                count: hits.count,
                in_job: hits.in_job,
            })
            .collect(),
        tick_reasons: reasons
            .filter(|(_, count)| *count != 0)
            .map(|(reason, count)| TickReason {
                reason: reason.to_string(),
                count,
            })
            .collect(),
        switches: Some(Switches {
            job_seconds: counted.job_ns as f64 / 1e9,
            to_job: counted.arrivals,
            to_others: counted.others,
            preemptions: counted.preemptions,
            others: counted
                .names
                .iter()
                .take(NAMES)
                .map(|one| Other {
                    name: one.name.clone(),
                    switches: one.switches,
                    preemptions: one.preemptions,
                    seconds: one.ns as f64 / 1e9,
                })
                .collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, count: u64) -> Row {
        Row {
            name: name.into(),
            label: "text".into(),
            counts: BTreeMap::from([(1, count)]),
        }
    }

    #[test]
    fn proc_interrupts_say_what_came_and_tracepoints_whom_it_hit() {
        let counted = CountedCpu {
            cpu: 1,
            job_ns: 2_500_000_000,
            arrivals: 4,
            others: 0,
            preemptions: 0,
            vectors: [Hits {
                count: 9,
                in_job: 3,
            }; VECTORS.len()],
            devices: BTreeMap::from([(
                24,
                Hits {
                    count: 5,
                    in_job: 1,
                },
            )]),
            softirqs: [Hits::default(); SOFTIRQS.len()],
            tick_reasons: [0; TICK_REASONS.len()],
            names: Vec::new(),
        };
        let after = [row("24", 5), row("25", 2), row("LOC", 10), row("NMI", 1)];
        let cpu = cpu(&counted, growth(&[], &after, 1));
        let kinds: Vec<_> = cpu
            .interrupts
            .iter()
            .map(|one| (&*one.name, one.count, one.traced, one.in_job))
            .collect();
        assert_eq!(
            kinds,
            [
                ("24", 5, Some(5), Some(1)),
                ("25", 2, Some(0), Some(0)),
                ("LOC", 10, Some(9), Some(3)),
                ("NMI", 1, None, None),
            ]
        );
        assert_eq!(cpu.switches.unwrap().job_seconds, 2.5);
    }

    #[test]
    fn what_had_no_room_is_not_known() {
        let counted = Counted {
            lost: 1,
            ..Counted::default()
        };
        let said = unknown(&counted, &["tick_stop".into()]);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(unknown(&Counted::default(), &[]).is_empty());
    }
}
