//! The machine this command runs on.

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hpmmap_base::signals;
use hpmmap_host::memory::{self, Change};
use hpmmap_host::{Error as HostError, Root};
use hpmmap_sys::{Device, Errno, RemoveError};
use nix::unistd::alarm;
use signal_hook::consts::SIGALRM;
use signal_hook::flag;

use super::machine::Machine;

/// The running machine. While this exists, signals that end a process end the current step
/// instead, so that no step stays half done.
pub struct LiveMachine<'a> {
    device: &'a Device,
    root: Root,
    timeout_seconds: Option<NonZeroU32>,
    interrupted: Arc<AtomicBool>,
    timed_out: Arc<AtomicBool>,
}

impl<'a> LiveMachine<'a> {
    /// Setting a memory block offline may take `timeout_seconds`, or any time with `None`.
    pub fn new(
        device: &'a Device,
        timeout_seconds: Option<NonZeroU32>,
    ) -> hpmmap_base::error::Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        let timed_out = Arc::new(AtomicBool::new(false));
        signals::catch(&interrupted)?;
        flag::register(SIGALRM, timed_out.clone())?;
        Ok(Self {
            device,
            root: Root::default(),
            timeout_seconds,
            interrupted,
            timed_out,
        })
    }
}

impl Machine for LiveMachine<'_> {
    fn set_state(&mut self, block: u64, change: Change) -> Result<(), Errno> {
        if change != Change::Offline {
            return memory::set_state(&self.root, block, change).map_err(|e| errno(&e));
        }
        self.timed_out.store(false, Ordering::Relaxed);
        if let Some(seconds) = self.timeout_seconds {
            alarm::set(seconds.get());
        }
        let result = memory::set_state(&self.root, block, change);
        alarm::cancel();
        result.map_err(|error| match errno(&error) {
            Errno::EINTR if self.is_interrupted() => Errno::EINTR,
            Errno::EINTR if self.timed_out.load(Ordering::Relaxed) => Errno::ETIMEDOUT,
            // Another signal: treated as busy, and tried again.
            Errno::EINTR => Errno::EAGAIN,
            other => other,
        })
    }

    fn pool_add(&mut self, start: u64, length: u64, node: u32, movable: bool) -> Result<(), Errno> {
        self.device.pool_add(start, length, node, movable)
    }

    fn pool_remove(&mut self, start: u64, length: u64) -> Result<(), RemoveError> {
        self.device.pool_remove(start, length)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

fn errno(error: &HostError) -> Errno {
    match error {
        HostError::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
            Errno::EEXIST
        }
        HostError::Io { source, .. } => source.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
        HostError::Format { .. } => Errno::EIO,
    }
}
