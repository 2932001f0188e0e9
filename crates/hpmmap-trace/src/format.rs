//! The recorded file: `docs/trace.md` describes it. Later versions read all
//! earlier ones.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::replace::{Created, create_private};
use hpmmap_bpf::{Kind, Origin, Stall};
use serde::{Deserialize, Serialize};

const MAGIC: [u8; 8] = *b"HPMMAPT\n";
/// Of the format that is written.
pub const VERSION: u32 = 1;
/// No header or record is larger, however long the command line is.
const MAX_BYTES: u32 = 16 << 20;

/// No time is later or longer: 36 years.
const MAX_NS: u64 = 1 << 60;
/// No counter is faster.
const MAX_HZ: u64 = 1_000_000_000_000;
/// No count is larger.
const MAX_COUNT: u64 = 1 << 48;

const FAULT: u16 = 1;
const MAPPING: u16 = 2;
const TASK: u16 = 3;
const TIME: u16 = 4;
const SUMMARY: u16 = 5;

const F_WRITE: u8 = 1 << 0;
const F_EXEC: u8 = 1 << 1;
const F_MAJOR: u8 = 1 << 2;

/// What is known before the first fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Version of the command that recorded.
    pub hpmmap: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the machine.
    pub machine: String,
    /// Its CPUs.
    pub cpus: u32,
    /// Rate of its time stamp counter.
    pub tsc_hz: u64,
    /// The command; empty with a process that was there already.
    pub command: Vec<String>,
    /// That process.
    pub pid: Option<u32>,
    /// `bpf` or `tracefs`.
    pub method: String,
    /// Why it is not `bpf`, if that was not asked for.
    pub method_reason: Option<String>,
    /// When it began: seconds of the calendar.
    pub started: u64,
    /// The same by CLOCK_MONOTONIC, by which all other times are given.
    pub start_ns: u64,
    /// What the kernel lacks, so that nothing is known about it.
    pub missing: Vec<String>,
}

impl Header {
    /// What was recorded, in one line.
    pub fn what(&self) -> String {
        let text = match self.pid {
            Some(pid) => format!("process {pid}"),
            None => self.command.join(" "),
        };
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// A page fault, or a page filled by a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// When it began.
    pub start_ns: u64,
    /// How long it took.
    pub cost_ns: u64,
    /// Where.
    pub address: u64,
    /// Of the cost, until the handler was entered.
    pub wait_ns: u64,
    /// Of the cost, for direct reclaim.
    pub reclaim_ns: u64,
    /// Of the cost, for direct compaction.
    pub compaction_ns: u64,
    /// Of the cost, for moving pages.
    pub migration_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Number of its mapping.
    pub mapping: u32,
    /// CPU.
    pub cpu: u16,
    /// How often it was begun anew.
    pub retries: u16,
    /// What it did.
    pub kind: Kind,
    /// What it waited for.
    pub stall: Stall,
    /// Who took it.
    pub origin: Origin,
    /// It wrote.
    pub write: bool,
    /// It fetched an instruction.
    pub exec: bool,
    /// The kernel counts it as a major one.
    pub major: bool,
    /// Of the entry that maps the page after it: 1 4 KB, 2 2 MB, 3 1 GB.
    pub level: u8,
}

impl Fault {
    /// Whether getrusage counts it.
    pub fn is_counted(&self) -> bool {
        self.kind != Kind::Error
    }

    /// Whether the program was interrupted, as by every real page fault.
    pub fn is_exception(&self) -> bool {
        self.origin != Origin::Call
    }
}

/// A range of addresses with one purpose. A later one of the same number takes
/// the place of an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Its number.
    pub id: u32,
    /// Process.
    pub pid: u32,
    /// `anon`, `heap`, `stack`, `file` or `special`.
    pub class: String,
    /// Of the file; otherwise as the class.
    pub name: String,
    /// First address.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
}

/// What happened to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Happened {
    /// It was there before.
    Found,
    /// It began.
    Fork,
    /// It executes another program.
    Exec,
    /// It ended.
    Exit,
}

/// Something happened to a process or thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// What.
    pub event: Happened,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Who made it; with `fork`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// When.
    pub time_ns: u64,
    /// Its short name.
    pub comm: String,
    /// Rank in an MPI job; with `exec` and `found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

/// Time that was stolen, or a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// `reclaim`, `compaction`, `migration` or `merge`.
    pub cause: String,
    /// From which process.
    pub pid: u32,
    /// From which thread; for a merge, the one that merged.
    pub tid: u32,
    /// From when.
    pub start_ns: u64,
    /// How long.
    pub ns: u64,
}

/// All faults of a kind, including those whose events were dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// What they did.
    pub kind: String,
    /// What they waited for.
    pub stall: String,
    /// Who took them.
    pub origin: String,
    /// How many.
    pub count: u64,
    /// How long, all together.
    pub sum_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// All time stolen by a cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stolen {
    /// By what.
    pub cause: String,
    /// How often.
    pub count: u64,
    /// How long, all together.
    pub sum_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Counts of minor and major faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Without input or output.
    pub minor: u64,
    /// With.
    pub major: u64,
}

impl Counts {
    /// Both.
    pub fn all(self) -> u64 {
        self.minor + self.major
    }
}

/// What recording cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overhead {
    /// How often the programs in the kernel ran.
    pub runs: u64,
    /// How long, in the tasks that were traced and in others.
    pub run_ns: u64,
    /// How often one did not run although it should have.
    pub missed: u64,
    /// CPU time of the recorder itself.
    pub recorder_ns: u64,
}

/// What is known at the end. A file without one is of a recorder that was
/// killed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// When it ended.
    pub end_ns: u64,
    /// Of the command, as a shell has it; `None` if it was not waited for.
    pub exit_status: Option<i32>,
    /// Exact totals; none from tracefs.
    pub totals: Vec<Total>,
    /// The same of stolen time.
    pub stolen: Vec<Stolen>,
    /// The faults of `totals` by the kernel's rules; those in the file with
    /// tracefs.
    pub recorded: Counts,
    /// What the kernel's counters of the threads grew by.
    pub kernel: Option<Counts>,
    /// getrusage of the command and those of its descendants that were
    /// waited for.
    pub getrusage: Option<Counts>,
    /// Events that are missing in the file.
    pub dropped: u64,
    /// Processes and threads that could not be traced.
    pub untracked: u64,
    /// Attempts after which the kernel began anew.
    pub retries: u64,
    /// Processes that were still running.
    pub running: u32,
    /// What recording cost.
    pub overhead: Overhead,
}

impl Summary {
    /// All numbers that others are added to.
    fn counts(&self) -> Vec<u64> {
        let both = |counts: &Counts| [counts.minor, counts.major];
        let given = [Some(self.recorded), self.kernel, self.getrusage];
        let mut all: Vec<u64> = given.iter().flatten().flat_map(both).collect();
        all.extend(self.totals.iter().map(|one| one.count));
        all.extend(self.stolen.iter().map(|one| one.count));
        all.extend([self.dropped, self.untracked, self.retries]);
        all.extend([self.overhead.runs, self.overhead.missed]);
        all
    }
}

/// Appends to a file. What was flushed can be read whatever happens later.
/// Others cannot read it: it tells where programs have what.
pub struct Writer {
    out: BufWriter<File>,
    created: Rc<Created>,
    path: PathBuf,
}

impl Writer {
    /// Creates the file, in place of what is there.
    pub fn create(path: &Path, header: &Header) -> Result<Self> {
        let created = create_private(path)?;
        let mut writer = Self {
            out: BufWriter::with_capacity(1 << 18, created.file.try_clone()?),
            created: Rc::new(created),
            path: path.to_path_buf(),
        };
        let json = serde_json::to_vec(header).map_err(io::Error::from)?;
        writer.put(&MAGIC)?;
        writer.put(&VERSION.to_le_bytes())?;
        writer.put(&(json.len() as u32).to_le_bytes())?;
        writer.put(&json)?;
        writer.flush()?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let result = self.out.write_all(bytes);
        result.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::Failed(format!("cannot write {}: {error}", self.path.display()))
    }

    fn record(&mut self, kind: u16, payload: &[u8]) -> Result<()> {
        self.put(&kind.to_le_bytes())?;
        self.put(&[0, 0])?;
        self.put(&(payload.len() as u32).to_le_bytes())?;
        self.put(payload)
    }

    fn json(&mut self, kind: u16, value: &impl Serialize) -> Result<()> {
        let json = serde_json::to_vec(value).map_err(io::Error::from)?;
        self.record(kind, &json)
    }

    /// What takes the file away again.
    pub fn created(&self) -> Rc<Created> {
        Rc::clone(&self.created)
    }

    /// Appends a fault.
    pub fn fault(&mut self, f: &Fault) -> Result<()> {
        let mut bytes = Vec::with_capacity(80);
        for n in [
            f.start_ns,
            f.cost_ns,
            f.address,
            f.wait_ns,
            f.reclaim_ns,
            f.compaction_ns,
            f.migration_ns,
        ] {
            bytes.extend(n.to_le_bytes());
        }
        for n in [f.pid, f.tid, f.mapping] {
            bytes.extend(n.to_le_bytes());
        }
        for n in [f.cpu, f.retries] {
            bytes.extend(n.to_le_bytes());
        }
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(f.write, F_WRITE) | flag(f.exec, F_EXEC) | flag(f.major, F_MAJOR);
        bytes.extend([
            f.kind as u8,
            f.stall as u8,
            f.origin as u8,
            flags,
            f.level,
            0,
            0,
            0,
        ]);
        self.record(FAULT, &bytes)
    }

    /// Appends a mapping.
    pub fn mapping(&mut self, mapping: &Mapping) -> Result<()> {
        self.json(MAPPING, mapping)
    }

    /// Appends what happened to a task.
    pub fn task(&mut self, task: &Task) -> Result<()> {
        self.json(TASK, task)
    }

    /// Appends stolen time.
    pub fn time(&mut self, time: &Time) -> Result<()> {
        self.json(TIME, time)
    }

    /// Appends the end.
    pub fn summary(&mut self, summary: &Summary) -> Result<()> {
        self.json(SUMMARY, summary)?;
        self.flush()
    }

    /// Hands everything to the kernel.
    pub fn flush(&mut self) -> Result<()> {
        let result = self.out.flush();
        result.map_err(|error| self.failed(&error))
    }
}

/// A file that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Its header.
    pub header: Header,
    /// All faults, in the order in which they ended.
    pub faults: Vec<Fault>,
    /// Mappings by number.
    pub mappings: BTreeMap<u32, Mapping>,
    /// What happened to tasks.
    pub tasks: Vec<Task>,
    /// Stolen times.
    pub times: Vec<Time>,
    /// The end; `None` if the recorder was killed.
    pub summary: Option<Summary>,
}

/// Reads as much as there is; `None` at the end, or if there is less.
fn read_exactly(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<Option<()>> {
    match from.read_exact(bytes) {
        Ok(()) => Ok(Some(())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_u32(from: &mut impl Read) -> io::Result<Option<u32>> {
    let mut bytes = [0; 4];
    Ok(read_exactly(from, &mut bytes)?.map(|()| u32::from_le_bytes(bytes)))
}

impl Trace {
    /// Reads a file. What was cut off at its end is left out.
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |what: String| Error::Failed(format!("{}: {what}", path.display()));
        let file = File::open(path)
            .map_err(|error| Error::Failed(format!("cannot read {}: {error}", path.display())))?;
        let mut from = BufReader::with_capacity(1 << 18, file);
        let mut magic = [0; 8];
        let io_failed = |error: io::Error| failed(error.to_string());
        let whole = read_exactly(&mut from, &mut magic).map_err(io_failed)?;
        if whole.is_none() || magic != MAGIC {
            return Err(failed(
                "this is not a file of 'hpmmap trace record'".to_string(),
            ));
        }
        let cut = || failed("the file is cut off in its header".to_string());
        let version = read_u32(&mut from).map_err(io_failed)?.ok_or_else(cut)?;
        if version == 0 || version > VERSION {
            return Err(failed(format!(
                "the file has version {version} of the format, this command reads versions \
                 up to {VERSION}: use the hpmmap that recorded it, or a later one"
            )));
        }
        let length = read_u32(&mut from).map_err(io_failed)?.ok_or_else(cut)?;
        if length > MAX_BYTES {
            return Err(failed("the header is broken".into()));
        }
        let mut json = vec![0; length as usize];
        read_exactly(&mut from, &mut json)
            .map_err(io_failed)?
            .ok_or_else(cut)?;
        let header = serde_json::from_slice(&json)
            .map_err(|error| failed(format!("the header is broken: {error}")))?;
        let mut trace = Self {
            header,
            ..Self::default()
        };
        while let Some((kind, payload)) = record(&mut from).map_err(io_failed)? {
            trace
                .take(kind, &payload)
                .map_err(|what| failed(format!("a record is broken: {what}")))?;
        }
        trace.check().map_err(failed)?;
        Ok(trace)
    }

    /// Error if times cannot be such, or are so long that sums of them would
    /// be no numbers any more.
    fn check(&self) -> std::result::Result<(), String> {
        let header = [
            ("time of the start", self.header.start_ns, MAX_NS),
            ("rate of the counter", self.header.tsc_hz, MAX_HZ),
        ];
        let summary = self.summary.iter().flat_map(|summary| {
            let totals = summary.totals.iter().map(|one| one.sum_ns);
            let stolen = summary.stolen.iter().map(|one| one.sum_ns);
            let all = totals.chain(stolen).chain([summary.end_ns]);
            all.map(|ns| ("time in the summary", ns, MAX_NS))
        });
        let faults = self.faults.iter().flat_map(|fault| {
            [
                ("time of a fault", fault.start_ns, MAX_NS),
                ("cost of a fault", fault.cost_ns, MAX_NS),
            ]
        });
        let tasks = self.tasks.iter();
        let tasks = tasks.map(|task| ("time of a task", task.time_ns, MAX_NS));
        let times = self.times.iter().flat_map(|time| {
            [
                ("time of a stall", time.start_ns, MAX_NS),
                ("length of a stall", time.ns, MAX_NS),
            ]
        });
        let counts = self.summary.iter().flat_map(Summary::counts);
        let counts = counts.map(|count| ("count", count, MAX_COUNT));
        let all = header.into_iter().chain(summary).chain(faults);
        let wrong = all
            .chain(tasks)
            .chain(times)
            .chain(counts)
            .find(|(_, value, most)| value > most);
        if let Some((what, value, _)) = wrong {
            return Err(format!("the file is broken: {value} is no {what}"));
        }
        let costs = |of: fn(&Fault) -> u64| self.faults.iter().map(|f| u128::from(of(f))).sum();
        let longest: u128 = [
            costs(|fault| fault.cost_ns),
            costs(|fault| fault.wait_ns),
            costs(|fault| fault.reclaim_ns),
            costs(|fault| fault.compaction_ns),
            costs(|fault| fault.migration_ns),
            self.times.iter().map(|time| u128::from(time.ns)).sum(),
        ]
        .into_iter()
        .max()
        .unwrap_or(0);
        if longest > u128::from(MAX_NS) {
            return Err(format!(
                "the file is broken: what it tells of took {longest} ns"
            ));
        }
        Ok(())
    }

    /// Records of a kind that this version does not know are left out.
    fn take(&mut self, kind: u16, payload: &[u8]) -> std::result::Result<(), String> {
        fn json<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> std::result::Result<T, String> {
            serde_json::from_slice(payload).map_err(|error| error.to_string())
        }
        match kind {
            FAULT => self
                .faults
                .push(decode_fault(payload).ok_or("a fault is cut off or has unknown numbers")?),
            MAPPING => {
                let mapping: Mapping = json(payload)?;
                self.mappings.insert(mapping.id, mapping);
            }
            TASK => self.tasks.push(json(payload)?),
            TIME => self.times.push(json(payload)?),
            SUMMARY => self.summary = Some(json(payload)?),
            _ => {}
        }
        Ok(())
    }

    /// When it ended, as far as is known.
    pub fn end_ns(&self) -> u64 {
        match &self.summary {
            Some(summary) => summary.end_ns,
            None => self
                .faults
                .iter()
                .map(|fault| fault.start_ns + fault.cost_ns)
                .chain(self.tasks.iter().map(|task| task.time_ns))
                .max()
                .unwrap_or(self.header.start_ns),
        }
    }

    /// How long it took.
    pub fn run_ns(&self) -> u64 {
        self.end_ns().saturating_sub(self.header.start_ns)
    }
}

fn record(from: &mut impl Read) -> io::Result<Option<(u16, Vec<u8>)>> {
    let mut head = [0; 8];
    if read_exactly(from, &mut head)?.is_none() {
        return Ok(None);
    }
    let kind = u16::from_le_bytes([head[0], head[1]]);
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    if length > MAX_BYTES {
        return Err(io::Error::other("a record is broken: it is too long"));
    }
    let mut payload = vec![0; length as usize];
    Ok(read_exactly(from, &mut payload)?.map(|()| (kind, payload)))
}

/// Later versions may append to a fault.
fn decode_fault(bytes: &[u8]) -> Option<Fault> {
    let u64_at = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let u32_at = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let u16_at = |at: usize| -> Option<u16> {
        Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
    };
    let byte = |at: usize| bytes.get(at).copied();
    let flags = byte(75)?;
    Some(Fault {
        start_ns: u64_at(0)?,
        cost_ns: u64_at(8)?,
        address: u64_at(16)?,
        wait_ns: u64_at(24)?,
        reclaim_ns: u64_at(32)?,
        compaction_ns: u64_at(40)?,
        migration_ns: u64_at(48)?,
        pid: u32_at(56)?,
        tid: u32_at(60)?,
        mapping: u32_at(64)?,
        cpu: u16_at(68)?,
        retries: u16_at(70)?,
        kind: Kind::from_number(byte(72)?)?,
        stall: Stall::from_number(byte(73)?)?,
        origin: Origin::from_number(byte(74)?)?,
        write: flags & F_WRITE != 0,
        exec: flags & F_EXEC != 0,
        major: flags & F_MAJOR != 0,
        level: byte(76)?,
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A fault of process 10 that took this long.
    pub fn fault(start_ns: u64, cost_ns: u64, kind: Kind) -> Fault {
        Fault {
            start_ns,
            cost_ns,
            address: 0x1000,
            wait_ns: 1,
            reclaim_ns: 2,
            compaction_ns: 3,
            migration_ns: 4,
            pid: 10,
            tid: 11,
            mapping: 1,
            cpu: 5,
            retries: 6,
            kind,
            stall: Stall::None,
            origin: Origin::User,
            write: true,
            exec: false,
            major: true,
            level: 2,
        }
    }

    fn header() -> Header {
        Header {
            kernel: "6.12".into(),
            command: vec!["prog".into()],
            method: "bpf".into(),
            start_ns: 5,
            ..Header::default()
        }
    }

    pub fn written(path: &Path) -> Trace {
        let mut writer = Writer::create(path, &header()).unwrap();
        let mapping = Mapping {
            id: 1,
            pid: 10,
            class: "heap".into(),
            name: "heap".into(),
            start: 0x1000,
            end: 0x2000,
        };
        writer.mapping(&mapping).unwrap();
        let grown = Mapping {
            end: 0x3000,
            ..mapping
        };
        writer.mapping(&grown).unwrap();
        let fault = fault(10, 20, Kind::Large);
        writer.fault(&fault).unwrap();
        let task = Task {
            event: Happened::Exec,
            pid: 10,
            tid: 10,
            parent: None,
            time_ns: 9,
            comm: "prog".into(),
            rank: Some(3),
        };
        writer.task(&task).unwrap();
        let time = Time {
            cause: "reclaim".into(),
            pid: 10,
            tid: 11,
            start_ns: 12,
            ns: 2,
        };
        writer.time(&time).unwrap();
        let summary = Summary {
            end_ns: 100,
            recorded: Counts { minor: 1, major: 2 },
            ..Summary::default()
        };
        writer.summary(&summary).unwrap();
        Trace {
            header: header(),
            faults: vec![fault],
            mappings: BTreeMap::from([(1, grown)]),
            tasks: vec![task],
            times: vec![time],
            summary: Some(summary),
        }
    }

    #[test]
    fn what_was_recorded_is_one_line() {
        let mut header = header();
        header.command = vec!["sh".into(), "-c".into(), "\n a\n\tb".into()];
        assert_eq!(header.what(), "sh -c a b");
        header.pid = Some(7);
        assert_eq!(header.what(), "process 7");
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let trace = written(&path);
        assert_eq!(Trace::read(&path).unwrap(), trace);
        assert_eq!(trace.run_ns(), 95);
    }

    #[test]
    fn a_file_that_is_cut_off_is_read_up_to_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        written(&path);
        let whole = std::fs::read(&path).unwrap();
        let head = 16 + u32::from_le_bytes(whole[12..16].try_into().unwrap()) as usize;
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let trace = Trace::read(&path);
            if length < head {
                assert!(trace.is_err(), "{length}");
            } else {
                let trace = trace.unwrap();
                assert_eq!(trace.header, header());
                assert_eq!(trace.summary, None, "{length}");
            }
        }
    }

    #[test]
    fn a_later_version_is_refused_and_an_unknown_record_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let trace = written(&path);
        let mut bytes = std::fs::read(&path).unwrap();
        let unknown = [99, 0, 0, 0, 2, 0, 0, 0, 1, 2];
        bytes.extend(unknown);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(Trace::read(&path).unwrap(), trace);

        bytes[8] = 2;
        std::fs::write(&path, &bytes).unwrap();
        let message = Trace::read(&path).unwrap_err().to_string();
        assert!(message.contains("has version 2 of the format"), "{message}");
        bytes[8] = 0;
        std::fs::write(&path, &bytes).unwrap();
        assert!(Trace::read(&path).is_err());
    }

    #[test]
    fn another_file_is_none_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        std::fs::write(&path, "{\"json\": \"and so on\"}").unwrap();
        let message = Trace::read(&path).unwrap_err().to_string();
        assert!(message.contains("not a file of 'hpmmap trace record'"));
        std::fs::write(&path, "").unwrap();
        assert!(Trace::read(&path).is_err());
        assert!(Trace::read(&dir.path().join("none")).is_err());
    }

    #[test]
    fn broken_records_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        written(&path);
        let whole = std::fs::read(&path).unwrap();
        for record in [
            // A fault of three bytes, a summary that is no JSON, one without end.
            &[1, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3][..],
            &[5, 0, 0, 0, 1, 0, 0, 0, b'x'],
            &[1, 0, 0, 0, 255, 255, 255, 255],
        ] {
            std::fs::write(&path, [&whole[..], record].concat()).unwrap();
            let message = Trace::read(&path).unwrap_err().to_string();
            assert!(message.contains("a record is broken"), "{message}");
        }
    }
}
