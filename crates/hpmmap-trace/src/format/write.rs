//! Writing a recorded file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::replace::{Created, create_private};
use serde::Serialize;

use super::wire::{
    FAULT, MAGIC, MAPPING, SUMMARY, TASK, TIME, encode_fault, file_head, record_head,
};
use super::{Fault, Header, Mapping, Summary, Task, Time};

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
        writer.put(&file_head(&json))?;
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
        self.put(&record_head(kind, payload))?;
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
        self.record(FAULT, &encode_fault(f))
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
