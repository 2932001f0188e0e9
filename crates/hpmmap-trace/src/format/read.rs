//! Reading a recorded file, whoever wrote it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use hpmmap_base::error::{Error, Result};
use serde::Deserialize;

use super::wire::{
    FAULT, HEAD_BYTES, MAGIC, MAPPING, MAX_BYTES, SUMMARY, TASK, TIME, VERSION, decode_fault,
    read_file_head, read_record_head,
};
use super::{Fault, Header, Mapping, Summary, Task, Time};

/// No time is later or longer: 36 years.
const MAX_NS: u64 = 1 << 60;
/// No counter is faster.
const MAX_HZ: u64 = 1_000_000_000_000;
/// No count is larger.
const MAX_COUNT: u64 = 1 << 48;

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

fn read_head(from: &mut impl Read) -> io::Result<Option<[u8; HEAD_BYTES]>> {
    let mut head = [0; HEAD_BYTES];
    Ok(read_exactly(from, &mut head)?.map(|()| head))
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
        let head = read_head(&mut from).map_err(io_failed)?;
        let (version, length) = read_file_head(&head.ok_or_else(cut)?);
        if version == 0 || version > VERSION {
            return Err(failed(format!(
                "the file has version {version} of the format, this command reads versions \
                 up to {VERSION}: use the hpmmap that recorded it, or a later one"
            )));
        }
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
    let Some(head) = read_head(from)? else {
        return Ok(None);
    };
    let (kind, length) = read_record_head(&head);
    if length > MAX_BYTES {
        return Err(io::Error::other("a record is broken: it is too long"));
    }
    let mut payload = vec![0; length as usize];
    Ok(read_exactly(from, &mut payload)?.map(|()| (kind, payload)))
}
