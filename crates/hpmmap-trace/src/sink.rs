//! Turns the events of the programs into the records of the file: numbers mappings and names, and
//! finds the ranks of processes.

use std::collections::HashMap;

use hpmmap_base::error::{Error, Result};
use hpmmap_bpf::{Class, Event, TaskEvent};
use hpmmap_host::Root;

use super::format::{Fault, Happened, Mapping, Task, Time, Writer};

/// Variables in which launchers give the rank of a process.
const RANKS: [&str; 4] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
];

/// Identifies a mapping. Heap and stack grow; other mappings are known by their start.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    pid: u32,
    class: Class,
    file: Option<(u32, u64)>,
    start: u64,
}

/// Writes records. After the first error, which is kept, it writes nothing.
pub struct Sink {
    root: Root,
    writer: Writer,
    mappings: HashMap<Key, Mapping>,
    next: u32,
    files: HashMap<(u32, u64), String>,
    /// Events that could not be decoded.
    pub broken: u64,
    error: Option<Error>,
}

impl Sink {
    /// Appends to a file that has its header.
    pub fn new(root: Root, writer: Writer) -> Self {
        Self {
            root,
            writer,
            mappings: HashMap::new(),
            next: 0,
            files: HashMap::new(),
            broken: 0,
            error: None,
        }
    }

    /// Takes an event; `None`: one that could not be decoded.
    pub fn take(&mut self, event: Option<Event>) {
        if self.error.is_some() {
            return;
        }
        let result = match event {
            None => {
                self.broken += 1;
                Ok(())
            }
            Some(event) => self.write(event),
        };
        self.error = result.err();
    }

    /// Hands everything to the kernel; fails if any write has failed so far.
    pub fn flush(&mut self) -> Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.writer.flush(),
        }
    }

    /// Returns the file, to be finished.
    pub fn into_writer(self) -> Writer {
        self.writer
    }

    fn write(&mut self, event: Event) -> Result<()> {
        match event {
            Event::File { id, name } => {
                self.files.insert(id, name);
                Ok(())
            }
            Event::Fault(fault) => {
                let mapping = self.mapping(&fault)?;
                self.writer.fault(Fault {
                    start_ns: fault.start_ns,
                    cost_ns: fault.cost_ns,
                    address: fault.address,
                    wait_ns: fault.wait_ns,
                    reclaim_ns: fault.reclaim_ns,
                    compaction_ns: fault.compaction_ns,
                    migration_ns: fault.migration_ns,
                    pid: fault.pid,
                    tid: fault.tid,
                    mapping,
                    cpu: fault.cpu,
                    retries: fault.retries,
                    kind: fault.kind,
                    stall: fault.stall,
                    origin: fault.origin,
                    write: fault.write,
                    exec: fault.exec,
                    major: fault.major,
                    level: fault.level,
                })
            }
            Event::Fork(task) => self.task(Happened::Fork, task),
            Event::Exec(task) => self.task(Happened::Exec, task),
            Event::Exit(task) => self.task(Happened::Exit, task),
            Event::Time(time) => self.writer.time(Time {
                cause: time.cause.name().into(),
                pid: time.pid,
                tid: time.tid,
                start_ns: time.start_ns,
                ns: time.ns,
            }),
        }
    }

    /// Adds a process that existed before.
    pub fn found(&mut self, pid: u32, comm: String, time_ns: u64) -> Result<()> {
        let rank = rank(&self.root, pid);
        self.writer.task(Task {
            event: Happened::Found,
            pid,
            tid: pid,
            parent: None,
            time_ns,
            comm,
            rank,
        })
    }

    fn task(&mut self, event: Happened, task: TaskEvent) -> Result<()> {
        // Numbers of processes are reused.
        if event == Happened::Fork && task.pid == task.tid {
            self.mappings.retain(|key, _| key.pid != task.pid);
        }
        self.writer.task(Task {
            event,
            pid: task.pid,
            tid: task.tid,
            parent: (event == Happened::Fork).then_some(task.parent),
            time_ns: task.time_ns,
            comm: task.comm,
            rank: (event == Happened::Exec)
                .then(|| rank(&self.root, task.pid))
                .flatten(),
        })
    }

    /// The number of a fault's mapping, which is written if it is new or has grown.
    fn mapping(&mut self, fault: &hpmmap_bpf::Fault) -> Result<u32> {
        let grows = matches!(fault.map_class, Class::Heap | Class::Stack);
        let key = Key {
            pid: fault.pid,
            class: fault.map_class,
            file: fault.map_file,
            start: if grows { 0 } else { fault.map_start },
        };
        let next = self.next;
        if let Some(known) = self.mappings.get_mut(&key) {
            if known.start > fault.map_start || known.end < fault.map_end {
                known.start = known.start.min(fault.map_start);
                known.end = known.end.max(fault.map_end);
                self.writer.mapping(known.clone())?;
            }
            return Ok(known.id);
        }
        let name = match fault.map_file {
            None => fault.map_class.name().to_string(),
            Some(id) => match self.files.get(&id) {
                Some(name) => name.clone(),
                None => format!("file {}:{}:{}", id.0 >> 20, id.0 & 0xf_ffff, id.1),
            },
        };
        let mapping = Mapping {
            id: next,
            pid: fault.pid,
            class: fault.map_class.name().into(),
            name,
            start: fault.map_start,
            end: fault.map_end,
        };
        self.writer.mapping(mapping.clone())?;
        self.mappings.insert(key, mapping);
        self.next += 1;
        Ok(next)
    }
}

/// The rank of a process in an MPI job, if its environment has one.
fn rank(root: &Root, pid: u32) -> Option<u32> {
    let environment = root.read_bytes(format!("proc/{pid}/environ")).ok()?;
    let variables: Vec<&str> = environment
        .split(|byte| *byte == 0)
        .filter_map(|word| std::str::from_utf8(word).ok())
        .collect();
    RANKS.iter().find_map(|name| {
        let value = variables
            .iter()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
        value.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use hpmmap_bpf::{Kind, Origin, Stall};
    use hpmmap_host::fixture::Fixture;

    use super::super::format::{Header, Trace};
    use super::*;

    fn fault(pid: u32, class: Class, start: u64, end: u64) -> hpmmap_bpf::Fault {
        hpmmap_bpf::Fault {
            pid,
            tid: pid,
            cpu: 0,
            kind: Kind::Small,
            stall: Stall::None,
            origin: Origin::User,
            write: true,
            exec: false,
            major: false,
            level: 1,
            retries: 0,
            start_ns: 1,
            cost_ns: 2,
            wait_ns: 0,
            reclaim_ns: 0,
            compaction_ns: 0,
            migration_ns: 0,
            address: start,
            map_start: start,
            map_end: end,
            map_class: class,
            map_file: (class == Class::File).then_some((8 << 20 | 1, 55)),
        }
    }

    fn trace_of(fixture: &Fixture, events: Vec<Option<Event>>) -> (Trace, u64) {
        let path = fixture.path().join("trace");
        let writer = Writer::create(&path, &Header::default()).unwrap();
        let mut sink = Sink::new(fixture.root(), writer);
        for event in events {
            sink.take(event);
        }
        sink.flush().unwrap();
        (Trace::read(&path).unwrap(), sink.broken)
    }

    #[test]
    fn a_heap_that_grows_is_one_mapping() {
        let fixture = Fixture::new();
        let (trace, broken) = trace_of(
            &fixture,
            vec![
                Some(Event::Fault(fault(7, Class::Heap, 0x1000, 0x2000))),
                Some(Event::Fault(fault(7, Class::Heap, 0x1000, 0x9000))),
                Some(Event::Fault(fault(7, Class::Anon, 0x10000, 0x20000))),
                Some(Event::Fault(fault(8, Class::Heap, 0x1000, 0x2000))),
                None,
            ],
        );
        let ids: Vec<u32> = trace.faults.iter().map(|fault| fault.mapping).collect();
        assert_eq!(ids, [0, 0, 1, 2]);
        assert_eq!(trace.mappings[&0].end, 0x9000);
        assert_eq!(trace.mappings[&1].name, "anon");
        assert_eq!(trace.mappings[&2].pid, 8);
        assert_eq!(broken, 1);
    }

    #[test]
    fn files_have_the_names_they_were_told_by() {
        let fixture = Fixture::new();
        let file = || Some(Event::Fault(fault(7, Class::File, 0x1000, 0x2000)));
        let (trace, _) = trace_of(&fixture, vec![file()]);
        assert_eq!(trace.mappings[&0].name, "file 8:1:55");
        let name = Event::File {
            id: (8 << 20 | 1, 55),
            name: "libc.so.6".into(),
        };
        let (trace, _) = trace_of(&fixture, vec![Some(name), file()]);
        assert_eq!(trace.mappings[&0].name, "libc.so.6");
    }

    #[test]
    fn ranks_come_from_the_environment() {
        let fixture = Fixture::new();
        fixture.write("proc/7/environ", "A=1\0PMI_RANK=12\0B=2\0");
        fixture.write("proc/8/environ", "XPMI_RANK=12\0");
        assert_eq!(rank(&fixture.root(), 7), Some(12));
        assert_eq!(rank(&fixture.root(), 8), None);
        assert_eq!(rank(&fixture.root(), 9), None);
        let exec = Event::Exec(TaskEvent {
            pid: 7,
            tid: 7,
            parent: 0,
            time_ns: 3,
            comm: "lmp".into(),
        });
        let (trace, _) = trace_of(&fixture, vec![Some(exec)]);
        assert_eq!(trace.tasks[0].rank, Some(12));
        assert_eq!(trace.tasks[0].event, Happened::Exec);
    }

    #[test]
    fn a_new_process_of_the_same_number_has_its_own_mappings() {
        let fixture = Fixture::new();
        let fork = Event::Fork(TaskEvent {
            pid: 7,
            tid: 7,
            parent: 1,
            time_ns: 3,
            comm: "sh".into(),
        });
        let anon = || Some(Event::Fault(fault(7, Class::Heap, 0x1000, 0x2000)));
        let (trace, _) = trace_of(&fixture, vec![anon(), Some(fork), anon()]);
        assert_eq!(trace.tasks[0].parent, Some(1));
        let ids: Vec<u32> = trace.faults.iter().map(|fault| fault.mapping).collect();
        assert_ne!(ids[0], ids[1]);
    }
}
