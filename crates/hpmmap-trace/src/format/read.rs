//! Reads a recorded file, which any user may have written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use hpmmap_base::error::{Error, Result};
use postcard::Error as Postcard;
use serde::de::DeserializeOwned;
use zstd::Decoder;

use super::record::{Fault, Header, Mapping, NAME, Record, Summary, Task, Time, VERSION};

/// The first bytes of files of version 1.
const FIRST_VERSION: &[u8] = b"HPMMAPT\n";
/// Maximum size of an item, enough for any command line.
const MAX_BYTES: usize = 16 << 20;
/// Bytes decompressed at a time.
const CHUNK: u64 = 1 << 18;

/// Maximum of a time or duration: 36 years.
const MAX_NS: u64 = 1 << 60;
/// Maximum rate of a counter.
const MAX_HZ: u64 = 1_000_000_000_000;
/// Maximum of a count.
const MAX_COUNT: u64 = 1 << 48;

/// A recorded file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Its header.
    pub header: Header,
    /// All faults, in the order in which they ended.
    pub faults: Vec<Fault>,
    /// Mappings by number.
    pub mappings: BTreeMap<u32, Mapping>,
    /// Events of tasks.
    pub tasks: Vec<Task>,
    /// Stolen times.
    pub times: Vec<Time>,
    /// The end; `None` if the recorder was killed.
    pub summary: Option<Summary>,
}

/// The items of a file.
struct Items {
    from: Decoder<'static, BufReader<File>>,
    bytes: Vec<u8>,
    /// The items up to here have been returned.
    taken: usize,
}

impl Items {
    /// Returns the next item; `None` at the end of the file, or where it is cut off.
    fn next<T: DeserializeOwned>(&mut self) -> std::result::Result<Option<T>, String> {
        loop {
            let taken = postcard::take_from_bytes(&self.bytes[self.taken..]);
            match taken.map(|(item, rest)| (item, rest.len())) {
                Ok((item, left)) => {
                    self.taken = self.bytes.len() - left;
                    return Ok(Some(item));
                }
                Err(Postcard::DeserializeUnexpectedEnd) => {
                    if !self.read_more()? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(format!("a record is broken: {error}")),
            }
        }
    }

    /// Reads on; false at the end.
    fn read_more(&mut self) -> std::result::Result<bool, String> {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let had = self.bytes.len();
        if had > MAX_BYTES {
            return Err("a record is broken: it is too long".into());
        }
        match (&mut self.from).take(CHUNK).read_to_end(&mut self.bytes) {
            // The recorder was killed.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => (),
            Err(error) => return Err(error.to_string()),
            Ok(_) => (),
        }
        Ok(self.bytes.len() > had)
    }
}

impl Trace {
    /// Reads a file. An incomplete item at its end is left out.
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |what: String| Error::Failed(format!("{}: {what}", path.display()));
        let other = |version: u32| {
            failed(format!(
                "the file has version {version} of the format, this command reads version \
                 {VERSION}: use the hpmmap that recorded it"
            ))
        };
        let not_ours = || failed("this is not a file of 'hpmmap trace record'".to_string());
        let cannot = |error| Error::Failed(format!("cannot read {}: {error}", path.display()));
        let mut file = BufReader::new(File::open(path).map_err(cannot)?);
        if file.fill_buf().map_err(cannot)?.starts_with(FIRST_VERSION) {
            return Err(other(1));
        }
        let mut items = Items {
            from: Decoder::with_buffer(file).map_err(cannot)?,
            bytes: Vec::new(),
            taken: 0,
        };
        match items.next::<(String, u32)>() {
            Ok(Some((name, VERSION))) if name == NAME => (),
            Ok(Some((name, version))) if name == NAME => return Err(other(version)),
            _ => return Err(not_ours()),
        }
        let header = items.next().map_err(failed)?;
        let mut trace = Self {
            header: header.ok_or_else(|| failed("the file is cut off in its header".into()))?,
            ..Self::default()
        };
        while let Some(record) = items.next().map_err(failed)? {
            trace.take(record);
        }
        trace.check().map_err(failed)?;
        Ok(trace)
    }

    /// Fails if times are impossible, or so long that their sums would overflow.
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
                "the file is broken: it has an event of {longest} ns"
            ));
        }
        Ok(())
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Fault(fault) => self.faults.push(fault),
            Record::Mapping(mapping) => {
                self.mappings.insert(mapping.id, mapping);
            }
            Record::Task(task) => self.tasks.push(task),
            Record::Time(time) => self.times.push(time),
            Record::Summary(summary) => self.summary = Some(summary),
        }
    }

    /// The end, as far as it is known.
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

    /// The length of the recording.
    pub fn run_ns(&self) -> u64 {
        self.end_ns().saturating_sub(self.header.start_ns)
    }
}
