//! Reads (and, for the state of memory blocks, writes) the kernel's file systems. Everything goes
//! through a [`Root`], so that it works the same on `/`, on a copy of another machine's files and
//! on the fixture trees of the tests.

pub mod backing;
pub mod boot;
pub mod cgroup;
pub mod job;
pub mod mapped;
pub mod memory;
pub mod node;
pub mod noise;
pub mod number_list;
mod numbers;
pub mod pool;
pub mod process;
mod root;
pub mod security;
pub mod shared;
pub mod vm;
pub mod window;

pub mod fixture;

pub use root::{Error, Result, Root, chosen};
