//! Recording with tracefs, where BPF is not allowed: probes at the beginning
//! and the end of the kernel's fault handler, in an instance of their own. What
//! a fault did is not known then.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use hpmmap_base::error::{Error, Result};
use hpmmap_bpf::{Class, Event, Fault, Kind, Origin, Stall, TaskEvent};
use hpmmap_host::{Root, process};

use super::Target;
use super::format::{Counts, Header, Overhead, Summary, Writer};
use super::job::{self, Job, Signals, State};
use super::sink::Sink;

const TRACEFS: &str = "/sys/kernel/tracing";
const PREFIX: &str = "hpmmap_trace_";
const INTERVAL: Duration = Duration::from_millis(50);
/// Faults that may be under way at the same time on the whole machine.
const UNDER_WAY: u32 = 1024;

// Of enum vm_fault_reason and enum fault_flag, the same from Linux 6.1 on.
const RET_ERROR: u32 = 0x873;
const RET_MAJOR: u32 = 0x4;
const RET_RETRY: u32 = 0x400;
const FLAG_WRITE: u32 = 1 << 0;
const FLAG_TRIED: u32 = 1 << 5;
const FLAG_USER: u32 = 1 << 6;
const FLAG_EXEC: u32 = 1 << 8;
const CLONE_THREAD: u64 = 0x10000;

/// Whether the caller may use it.
pub fn is_usable() -> bool {
    OpenOptions::new()
        .append(true)
        .open(Path::new(TRACEFS).join("kprobe_events"))
        .is_ok()
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Error::NoPermission {
            what: format!("to use {}", path.display()),
            hint: "be root".into(),
        };
    }
    Error::Failed(format!("cannot {what} {}: {error}", path.display()))
}

fn set(path: &Path, text: &str) -> Result<()> {
    OpenOptions::new()
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| failed("write", path, &error))
}

/// Probes and an instance, removed when this is dropped.
pub struct Session {
    root: PathBuf,
    name: String,
    pipe: Option<File>,
}

impl Session {
    /// Makes probes and an instance that follow a process, or what this one
    /// starts.
    pub fn prepare(target: &Target, buffer_bytes: u64) -> Result<Self> {
        let root = PathBuf::from(TRACEFS);
        if !root.join("kprobe_events").exists() {
            return Err(Error::Failed(format!(
                "there is no {TRACEFS}/kprobe_events (mount it with: mount -t tracefs tracefs {TRACEFS})"
            )));
        }
        remove_leftovers(&root);
        let mut session = Self {
            name: format!("{PREFIX}{}", std::process::id()),
            root,
            pipe: None,
        };
        session.set_up(target, buffer_bytes)?;
        Ok(session)
    }

    fn instance(&self) -> PathBuf {
        self.root.join("instances").join(&self.name)
    }

    fn set_up(&mut self, target: &Target, buffer_bytes: u64) -> Result<()> {
        let name = &self.name;
        let probes = self.root.join("kprobe_events");
        set(
            &probes,
            &format!(
                "p:{name}/enter handle_mm_fault address=%si:x64 flags=%dx:x32 regs=%cx:x64 \
                 start=+0(%di):x64 end=+8(%di):x64\n"
            ),
        )?;
        set(
            &probes,
            &format!("r{UNDER_WAY}:{name}/leave handle_mm_fault ret=$retval:x32\n"),
        )?;
        let instance = self.instance();
        fs::create_dir(&instance).map_err(|error| failed("make", &instance, &error))?;
        let cpus = thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let kib = (buffer_bytes / cpus / 1024).max(64);
        set(&instance.join("buffer_size_kb"), &kib.to_string())?;
        set(&instance.join("trace_clock"), "mono")?;
        set(&instance.join("options/event-fork"), "1")?;
        let pids = match target {
            Target::Command(_) => vec![std::process::id()],
            Target::Process(pid) => threads(&job::family(&Root::default(), *pid)?),
        };
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        set(&instance.join("set_event_pid"), &pids.join(" "))?;
        for event in ["task/task_newtask", "sched/sched_process_exec"] {
            set(&instance.join("events").join(event).join("enable"), "1")?;
        }
        for event in ["leave", "enter"] {
            let path = instance.join("events").join(name).join(event);
            set(&path.join("enable"), "1")?;
        }
        let path = instance.join("trace_pipe");
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(&path)
            .map_err(|error| failed("read", &path, &error))?;
        self.pipe = Some(pipe);
        Ok(())
    }

    /// Takes what there is.
    fn drain(&mut self, lines: &mut Lines, sink: &mut Sink) -> Result<()> {
        let path = self.instance().join("trace_pipe");
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        let mut bytes = vec![0; 1 << 16];
        loop {
            match pipe.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(n) => lines.take(&bytes[..n], sink),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read", &path, &error)),
            }
        }
    }

    /// Records until the command or process has ended.
    pub fn record(
        mut self,
        target: &Target,
        writer: Writer,
        header: &Header,
        signals: &Signals,
    ) -> Result<(Writer, Summary)> {
        let root = Root::default();
        let before_ns = job::own_cpu_ns()?;
        let mut sink = Sink::new(root.clone(), writer);
        let mut lines = Lines::new(root.clone());
        let mut job = match target {
            Target::Command(command) => Job::start(command)?,
            Target::Process(pid) => {
                for pid in job::family(&root, *pid)? {
                    if let Some(comm) = process::command(&root, pid)? {
                        sink.found(pid, comm, header.start_ns)?;
                    }
                }
                Job::Process(*pid)
            }
        };
        let status = loop {
            thread::sleep(INTERVAL);
            self.drain(&mut lines, &mut sink)?;
            sink.flush()?;
            if let State::Ended(status) = job.state(signals)? {
                break status;
            }
        };
        let end_ns = job::now_ns();
        self.drain(&mut lines, &mut sink)?;
        sink.flush()?;
        let summary = Summary {
            end_ns,
            exit_status: status.map(job::shell_status),
            recorded: lines.counts,
            getrusage: match target {
                Target::Command(_) => Some(job::children_faults()?),
                Target::Process(_) => None,
            },
            dropped: self.overruns() + self.missed() + sink.broken,
            retries: lines.retries,
            overhead: Overhead {
                recorder_ns: job::own_cpu_ns()? - before_ns,
                ..Overhead::default()
            },
            ..Summary::default()
        };
        Ok((sink.into_writer(), summary))
    }

    /// Events for which the buffer had no room.
    fn overruns(&self) -> u64 {
        let root = Root::new(self.instance());
        root.numbered::<u32>("per_cpu", "cpu")
            .unwrap_or_default()
            .into_iter()
            .filter_map(|cpu| root.read(format!("per_cpu/cpu{cpu}/stats")).ok())
            .map(|text| overruns(&text))
            .sum()
    }

    /// Ends of faults that were missed, because too many were under way.
    fn missed(&self) -> u64 {
        let profile = fs::read_to_string(self.root.join("kprobe_profile")).unwrap_or_default();
        missed(&profile, &self.name)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.pipe = None;
        remove(&self.root, &self.name);
    }
}

/// Removes an instance and its probes, if they are there.
fn remove(root: &Path, name: &str) {
    // The probes are in use as long as the instance is there.
    let _ = fs::remove_dir(root.join("instances").join(name));
    for probe in ["enter", "leave"] {
        let _ = set(&root.join("kprobe_events"), &format!("-:{name}/{probe}\n"));
    }
}

/// What recorders that were killed have left.
fn remove_leftovers(root: &Path) {
    let probes = fs::read_to_string(root.join("kprobe_events")).unwrap_or_default();
    let instances = Root::new(root).entries("instances").unwrap_or_default();
    for name in leftovers(&probes, &instances) {
        let pid = name.trim_start_matches(PREFIX);
        if !Path::new("/proc").join(pid).exists() {
            remove(root, &name);
        }
    }
}

/// Names of recorders among the probes and instances that are there.
fn leftovers(probes: &str, instances: &[String]) -> Vec<String> {
    let of_probes = probes
        .lines()
        .filter_map(|line| line.split_once(':')?.1.split_once('/'))
        .map(|(group, _)| group.to_string());
    let mut names: Vec<String> = of_probes
        .chain(instances.iter().cloned())
        .filter(|name| {
            name.strip_prefix(PREFIX)
                .is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

fn overruns(stats: &str) -> u64 {
    stats
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| matches!(*name, "overrun" | "dropped events"))
        .filter_map(|(_, n)| n.trim().parse::<u64>().ok())
        .sum()
}

fn missed(profile: &str, name: &str) -> u64 {
    profile
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let probe = words.next()?;
            (probe == format!("{name}/leave") || (probe == "leave" && profile.contains(name)))
                .then(|| words.nth(1)?.parse::<u64>().ok())
                .flatten()
        })
        .sum()
}

/// The threads of processes.
fn threads(pids: &[u32]) -> Vec<u32> {
    let root = Root::default();
    pids.iter()
        .flat_map(|pid| {
            root.numbered::<u32>(format!("proc/{pid}/task"), "")
                .unwrap_or_default()
        })
        .collect()
}

/// A fault that has begun.
struct Begun {
    start_ns: u64,
    address: u64,
    flags: u32,
    call: bool,
    map: (u64, u64),
    retries: u16,
}

/// The lines of trace_pipe, made into events.
struct Lines {
    root: Root,
    rest: Vec<u8>,
    begun: HashMap<u32, Begun>,
    processes: HashMap<u32, u32>,
    counts: Counts,
    retries: u64,
}

/// One line.
struct Line<'a> {
    tid: u32,
    comm: &'a str,
    cpu: u16,
    time_ns: u64,
    event: &'a str,
    fields: &'a str,
}

impl<'a> Line<'a> {
    /// `  name-123   [001] d..1.  12.345678: event: fields`; the name may hold
    /// anything.
    fn parse(line: &'a str) -> Option<Self> {
        let (task, rest) = line.split_once(" [")?;
        let (comm, tid) = task.trim().rsplit_once('-')?;
        let (cpu, rest) = rest.split_once(']')?;
        let (_flags, rest) = rest.trim_start().split_once(' ')?;
        let (time, rest) = rest.trim_start().split_once(": ")?;
        let (event, fields) = rest.split_once(':')?;
        let (seconds, fraction) = time.split_once('.')?;
        let scale = 10u64.checked_pow(9u32.checked_sub(fraction.len() as u32)?)?;
        Some(Self {
            tid: tid.parse().ok()?,
            comm,
            cpu: cpu.parse().ok()?,
            time_ns: seconds.parse::<u64>().ok()? * 1_000_000_000
                + fraction.parse::<u64>().ok()? * scale,
            event,
            fields,
        })
    }

    fn field(&self, name: &str) -> Option<&'a str> {
        self.fields
            .split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn number(&self, name: &str) -> Option<u64> {
        let text = self.field(name)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }
}

impl Lines {
    fn new(root: Root) -> Self {
        Self {
            root,
            rest: Vec::new(),
            begun: HashMap::new(),
            processes: HashMap::new(),
            counts: Counts::default(),
            retries: 0,
        }
    }

    fn take(&mut self, bytes: &[u8], sink: &mut Sink) {
        self.rest.extend(bytes);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return;
        };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        for line in String::from_utf8_lossy(&whole).lines() {
            if let Some(event) = Line::parse(line).and_then(|line| self.event(&line)) {
                sink.take(Some(event));
            }
        }
    }

    /// The process of a thread. That of one whose beginning was not seen can
    /// be found out as long as it lives.
    fn process(&mut self, tid: u32) -> u32 {
        if let Some(pid) = self.processes.get(&tid) {
            return *pid;
        }
        let status = self.root.read(format!("proc/{tid}/status"));
        let pid = status
            .ok()
            .and_then(|text| {
                let line = text.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
                line.trim().parse().ok()
            })
            .unwrap_or(tid);
        self.processes.insert(tid, pid);
        pid
    }

    fn event(&mut self, line: &Line) -> Option<Event> {
        if line.tid == std::process::id() && line.event != "task_newtask" {
            return None;
        }
        match line.event {
            "enter" => {
                self.enter(line);
                None
            }
            "leave" => self.leave(line).map(Event::Fault),
            "task_newtask" => {
                let tid = line.number("pid")? as u32;
                let parent = self.process(line.tid);
                let flags = u64::from_str_radix(line.field("clone_flags")?, 16).ok()?;
                let pid = if flags & CLONE_THREAD != 0 {
                    parent
                } else {
                    tid
                };
                self.processes.insert(tid, pid);
                self.begun.remove(&tid);
                Some(Event::Fork(TaskEvent {
                    pid,
                    tid,
                    parent,
                    time_ns: line.time_ns,
                    comm: line.comm.into(),
                }))
            }
            "sched_process_exec" => {
                let pid = line.number("pid")? as u32;
                self.processes.insert(pid, pid);
                Some(Event::Exec(TaskEvent {
                    pid,
                    tid: pid,
                    parent: 0,
                    time_ns: line.time_ns,
                    comm: line.comm.into(),
                }))
            }
            _ => None,
        }
    }

    fn enter(&mut self, line: &Line) -> Option<()> {
        let flags = line.number("flags")? as u32;
        let begun = Begun {
            start_ns: line.time_ns,
            address: line.number("address")?,
            flags,
            call: line.number("regs")? == 0,
            map: (line.number("start")?, line.number("end")?),
            retries: 0,
        };
        match self.begun.get_mut(&line.tid) {
            // It goes on.
            Some(known) if known.retries > 0 && known.address == begun.address => {
                known.flags = flags;
            }
            _ => {
                self.begun.insert(line.tid, begun);
            }
        }
        Some(())
    }

    fn leave(&mut self, line: &Line) -> Option<Fault> {
        let ret = line.number("ret")? as u32;
        if ret & RET_RETRY != 0 {
            self.begun.get_mut(&line.tid)?.retries += 1;
            self.retries += 1;
            return None;
        }
        let begun = self.begun.remove(&line.tid)?;
        let major = ret & RET_MAJOR != 0 || begun.flags & FLAG_TRIED != 0;
        let kind = if ret & RET_ERROR != 0 {
            Kind::Error
        } else {
            *(if major {
                &mut self.counts.major
            } else {
                &mut self.counts.minor
            }) += 1;
            Kind::Unknown
        };
        Some(Fault {
            pid: self.process(line.tid),
            tid: line.tid,
            cpu: line.cpu,
            kind,
            stall: Stall::None,
            origin: match (begun.call, begun.flags & FLAG_USER != 0) {
                (true, _) => Origin::Call,
                (false, true) => Origin::User,
                (false, false) => Origin::Kernel,
            },
            write: begun.flags & FLAG_WRITE != 0,
            exec: begun.flags & FLAG_EXEC != 0,
            major,
            level: 0,
            retries: begun.retries,
            start_ns: begun.start_ns,
            cost_ns: line.time_ns - begun.start_ns,
            wait_ns: 0,
            reclaim_ns: 0,
            compaction_ns: 0,
            migration_ns: 0,
            address: begun.address,
            map_start: begun.map.0,
            map_end: begun.map.1,
            map_class: Class::Anon,
            map_file: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    const ENTER: &str = "     my prog-x-512     [001] d..1.  12.000100: enter: (handle_mm_fault+0x0/0x2f0) address=0x7f0000001000 flags=0x1255 regs=0xffffc90000b7ff58 start=0x7f0000000000 end=0x7f0000200000";
    const LEAVE: &str = "     my prog-x-512     [001] d..1.  12.000103: leave: (do_user_addr_fault+0x17f/0x660 <- handle_mm_fault) ret=0x0";

    fn events(lines: &[&str]) -> (Vec<Event>, Lines) {
        let fixture = Fixture::new();
        fixture.write("proc/512/status", "Name:\tx\nTgid:\t500\n");
        let mut state = Lines::new(fixture.root());
        let events = lines
            .iter()
            .filter_map(|line| state.event(&Line::parse(line).unwrap()))
            .collect();
        (events, state)
    }

    #[test]
    fn a_fault_is_its_beginning_and_its_end() {
        let (events, state) = events(&[ENTER, LEAVE]);
        let [Event::Fault(fault)] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!((fault.pid, fault.tid, fault.cpu), (500, 512, 1));
        assert_eq!((fault.start_ns, fault.cost_ns), (12_000_100_000, 3000));
        assert_eq!((fault.kind, fault.origin), (Kind::Unknown, Origin::User));
        assert!(fault.write && !fault.exec && !fault.major);
        assert_eq!(
            (fault.map_start, fault.map_end),
            (0x7f00_0000_0000, 0x7f00_0020_0000)
        );
        assert_eq!(state.counts, Counts { minor: 1, major: 0 });
    }

    #[test]
    fn a_fault_that_is_begun_anew_is_one_and_major() {
        let retry = LEAVE.replace("ret=0x0", "ret=0x400");
        let again = ENTER
            .replace("flags=0x1255", "flags=0x1275")
            .replace("12.000100", "12.000500");
        let end = LEAVE.replace("12.000103", "12.000900");
        let (events, state) = events(&[ENTER, &retry, &again, &end]);
        let [Event::Fault(fault)] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!((fault.cost_ns, fault.retries), (800_000, 1));
        assert!(fault.major);
        assert_eq!(
            (state.counts, state.retries),
            (Counts { minor: 0, major: 1 }, 1)
        );
    }

    #[test]
    fn failed_faults_and_calls_are_told_apart() {
        let call = ENTER.replace("regs=0xffffc90000b7ff58", "regs=0x0");
        let failed = LEAVE.replace("ret=0x0", "ret=0x2");
        let (events, state) = events(&[&call, LEAVE, ENTER, &failed, LEAVE]);
        let origins: Vec<_> = events
            .iter()
            .map(|event| match event {
                Event::Fault(fault) => (fault.kind, fault.origin),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            origins,
            [(Kind::Unknown, Origin::Call), (Kind::Error, Origin::User)]
        );
        assert_eq!(state.counts.all(), 1);
    }

    #[test]
    fn threads_belong_to_the_process_of_their_parent() {
        let thread = "prog-512 [001] d..1. 11.5: task_newtask: pid=600 comm=prog clone_flags=3d0f00 oom_score_adj=0";
        let child = "prog-512 [001] d..1. 11.6: task_newtask: pid=601 comm=prog clone_flags=1200011 oom_score_adj=0";
        let enter = ENTER.replace("-512", "-600");
        let leave = LEAVE.replace("-512", "-600");
        let (events, _) = events(&[thread, child, &enter, &leave]);
        let [Event::Fork(thread), Event::Fork(child), Event::Fault(fault)] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!((thread.pid, thread.tid, thread.parent), (500, 600, 500));
        assert_eq!((child.pid, child.tid, child.parent), (601, 601, 500));
        assert_eq!((fault.pid, fault.tid), (500, 600));
    }

    #[test]
    fn what_is_no_event_is_left_out() {
        assert!(Line::parse("CPU:1 [LOST 44 EVENTS]").is_none());
        assert!(Line::parse("").is_none());
        let (events, _) = events(&[&ENTER.replace("enter:", "other:"), LEAVE]);
        assert!(events.is_empty());
    }

    #[test]
    fn what_was_lost_is_counted() {
        let stats = "entries: 5\noverrun: 7\ncommit overrun: 0\nbytes: 9\ndropped events: 2\nread events: 5\n";
        assert_eq!(overruns(stats), 9);
        let profile = "  hpmmap_trace_9/enter      100  3\n  hpmmap_trace_9/leave   100   4\n";
        assert_eq!(missed(profile, "hpmmap_trace_9"), 4);
    }

    #[test]
    fn leftovers_are_those_of_recorders() {
        let probes = "p:hpmmap_trace_77/enter handle_mm_fault\nr1024:hpmmap_trace_77/leave handle_mm_fault\np:kprobes/x y\n";
        let instances = [
            "hpmmap_trace_78".to_string(),
            "hpmmap_trace_".into(),
            "mine".into(),
        ];
        assert_eq!(
            leftovers(probes, &instances),
            ["hpmmap_trace_77", "hpmmap_trace_78"]
        );
    }
}
