//! Writing a recorded file.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::safe_files::{Created, create_private};
use serde::Serialize;
use zstd::Encoder;

use super::record::{Fault, Header, Mapping, NAME, Record, Summary, Task, Time, VERSION};

/// The fastest level: recording takes time from the recorded command.
const LEVEL: i32 = 1;
/// Bytes collected before they are compressed.
const MOST: usize = 1 << 16;

/// Appends to a file. Flushed records can be read whatever happens later. Only the owner can read
/// the file, since it tells the addresses of programs.
pub struct Writer {
    out: Encoder<'static, File>,
    items: Vec<u8>,
    created: Rc<Created>,
    path: PathBuf,
}

impl Writer {
    /// Creates the file, or replaces an old one.
    pub fn create(path: &Path, header: &Header) -> Result<Self> {
        let created = create_private(path)?;
        let mut writer = Self {
            out: Encoder::new(created.file.try_clone()?, LEVEL)?,
            items: Vec::new(),
            created: Rc::new(created),
            path: path.to_path_buf(),
        };
        writer.put(&(NAME, VERSION))?;
        writer.put(header)?;
        writer.flush()?;
        Ok(writer)
    }

    fn put(&mut self, item: &impl Serialize) -> Result<()> {
        let items = mem::take(&mut self.items);
        self.items = postcard::to_extend(item, items).map_err(|error| self.failed(&error))?;
        if self.items.len() < MOST {
            return Ok(());
        }
        self.compress()
    }

    fn compress(&mut self) -> Result<()> {
        let written = self.out.write_all(&self.items);
        self.items.clear();
        written.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &impl std::fmt::Display) -> Error {
        Error::Failed(format!("cannot write {}: {error}", self.path.display()))
    }

    /// The file, to be removed.
    pub fn created(&self) -> Rc<Created> {
        Rc::clone(&self.created)
    }

    /// Appends a fault.
    pub fn fault(&mut self, fault: Fault) -> Result<()> {
        self.put(&Record::Fault(fault))
    }

    /// Appends a mapping.
    pub fn mapping(&mut self, mapping: Mapping) -> Result<()> {
        self.put(&Record::Mapping(mapping))
    }

    /// Appends an event of a task.
    pub fn task(&mut self, task: Task) -> Result<()> {
        self.put(&Record::Task(task))
    }

    /// Appends stolen time.
    pub fn time(&mut self, time: Time) -> Result<()> {
        self.put(&Record::Time(time))
    }

    /// Appends the end.
    pub fn summary(&mut self, summary: Summary) -> Result<()> {
        self.put(&Record::Summary(summary))?;
        self.compress()?;
        let finished = self.out.do_finish().and_then(|()| self.out.flush());
        finished.map_err(|error| self.failed(&error))
    }

    /// Hands everything to the kernel.
    pub fn flush(&mut self) -> Result<()> {
        self.compress()?;
        let result: io::Result<()> = self.out.flush();
        result.map_err(|error| self.failed(&error))
    }
}
