//! The state of the pools and of all launches, as the views of `hpmmap status` show it.

use hpmmap_base::error::Result;
use hpmmap_base::size::{counted, short};
use hpmmap_base::user_name;
use hpmmap_host::pool::{self, Context, Contexts, NodePool};
use hpmmap_host::shared::{self, Shared};
use hpmmap_host::window::{self, Windows};
use hpmmap_host::{Root, boot, job, process};
use serde::Serialize;

use crate::device::{self, require_module};
use crate::doctor::module::waiting;
use crate::limits::{self, Reported};
use crate::promise::{self, Promised};
use crate::symbiosis::guest::{self, Told};

/// Version of the installed module, if another one is loaded.
fn waiting_version(root: &Root) -> Option<String> {
    let release = process::kernel_release(root).ok()?;
    let installed = boot::installed_module(root, &release, "hpmmap");
    waiting(root, installed.as_ref()).map(|module| module.version.clone())
}

/// The limits; `None` if this user may not read them, or `root` is not the running machine.
fn limits(root: &Root) -> Option<Vec<Reported>> {
    root.is_live()
        .then(device::open)?
        .ok()
        .and_then(|device| limits::list(root, &device).ok())
}

fn promises(root: &Root) -> Option<Vec<Promised>> {
    root.is_live()
        .then(device::open)?
        .ok()
        .and_then(|device| promise::list(root, &device).ok())
}

/// One registered process.
#[derive(Debug, Serialize)]
pub struct Process {
    #[serde(flatten)]
    pub context: Context,
    /// `None` if the process has ended, and in a container.
    pub command: Option<String>,
    pub user: String,
}

impl Process {
    /// The command without control characters: a process may give itself any name.
    pub fn printable_command(&self) -> String {
        self.command
            .as_deref()
            .unwrap_or("-")
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect()
    }
}

/// The whole state.
#[derive(Debug, Serialize)]
pub struct Status {
    pub module_version: String,
    pub hooks_active: bool,
    pub user_limit_bytes: Option<u64>,
    pub nodes: Vec<NodePool>,
    pub contexts: Vec<Process>,
    /// Number of processes of other users, which only root can see.
    pub hidden_contexts: usize,
    /// `None` if the module does not show launches.
    pub jobs: Option<Vec<job::Job>>,
    /// Of all users; `None` if the module has no windows.
    pub windows: Option<Windows>,
    /// The limits that this user may see; `None` if the device cannot be opened, and with --watch.
    pub limits: Option<Vec<Reported>>,
    /// The promises that this user may see; `None` as for the limits.
    pub promises: Option<Vec<Promised>>,
    /// Version of the module that the next boot loads, if it is another one; `None` with --watch.
    pub waiting_module_version: Option<String>,
    /// Memory of files, of all users; `None` if the module has no files.
    pub shared: Option<Shared>,
    /// News of this virtual machine's host; `None` if it tells nothing, for all but root, and
    /// with --watch.
    pub host: Option<Box<Told>>,
}

impl Status {
    pub fn read(root: &Root) -> Result<Self> {
        require_module(root)?;
        Self::of(root, pool::contexts(root)?)
    }

    pub fn of(root: &Root, found: Contexts) -> Result<Self> {
        require_module(root)?;
        let jobs = job::all(root)?;
        let mut contexts = found
            .visible
            .into_iter()
            .map(|context| {
                Ok(Process {
                    command: process::command(root, context.pid)?,
                    user: user_name(context.uid),
                    context,
                })
            })
            .collect::<Result<Vec<Process>>>()?;
        contexts.sort_by_key(|one| (one.context.job, one.context.pid));
        Ok(Self {
            module_version: pool::version(root)?,
            hooks_active: pool::hooks_active(root)?,
            user_limit_bytes: pool::user_limit_bytes(root)?,
            nodes: pool::nodes(root)?,
            contexts,
            hidden_contexts: found.hidden,
            jobs,
            windows: window::read(root)?,
            limits: None,
            promises: None,
            waiting_module_version: None,
            shared: shared::read(root)?,
            host: None,
        })
    }

    /// Adds values that take too long to read every few seconds.
    pub fn complete(mut self, root: &Root) -> Self {
        self.limits = limits(root);
        self.promises = promises(root);
        self.waiting_module_version = waiting_version(root);
        self.host = guest::told(root);
        self
    }

    /// The text if there is no process to show.
    pub fn none(&self) -> &'static str {
        match self.hidden_contexts {
            0 => "No jobs.",
            _ => "No jobs of this user.",
        }
    }

    /// A line about the processes that are not shown.
    pub fn hidden(&self) -> Option<String> {
        let count = self.hidden_contexts;
        let processes = counted(count, "process");
        (count != 0).then(|| format!("({processes} of other users: only root sees them)"))
    }
}

/// A size, or "-" if it is not known.
pub fn or_unknown(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_string(), short)
}
