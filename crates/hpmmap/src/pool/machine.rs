//! The operations that change the machine, as a trait: [`super::LiveMachine`] does them, and
//! tests simulate them.

use hpmmap_host::memory::Change;
use hpmmap_sys::{Errno, RemoveError};

/// The operations that change the machine.
pub trait Machine {
    /// Sets a memory block offline or online. EINTR: the user wants to stop; ETIMEDOUT: the kernel
    /// did not do it in time.
    fn set_state(&mut self, block: u64, change: Change) -> Result<(), Errno>;
    /// Hands an offline range to the pool of `node`.
    fn pool_add(&mut self, start: u64, length: u64, node: u32, movable: bool) -> Result<(), Errno>;
    /// Takes a range out of its pool, all or nothing.
    fn pool_remove(&mut self, start: u64, length: u64) -> Result<(), RemoveError>;
    /// Does the user want to stop?
    fn is_interrupted(&self) -> bool;
}
