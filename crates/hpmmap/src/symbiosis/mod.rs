//! What host and guest tell each other through a page of shared memory (ivshmem-plain):
//! docs/symbiosis.md. The agent runs on the host beside QEMU, the reader in the guest.

pub mod agent;
#[cfg(test)]
mod fuzz;
pub mod guest;
mod memory;
mod page;
mod qmp;
mod sections;
mod threads;
