//! The options of a launch or a mark.

use std::fmt;

use clap::ValueEnum;
use hpmmap_base::size::Size;
use hpmmap_sys::uapi;
use serde::Serialize;

/// NUMA node of memory without a memory policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The node of the CPU that maps it, or the nearest with free memory
    Local,
    /// All nodes in turn, 2 MB by 2 MB
    Interleave,
    /// The node of the CPU that touches it first, 2 MB by 2 MB, with one page fault each;
    /// for threads that initialise their own part
    FirstTouch,
}

impl Placement {
    /// The flag of HPMMAP_IOC_LAUNCH.
    pub fn launch_flag(self) -> u32 {
        match self {
            Self::Local => 0,
            Self::Interleave => uapi::LAUNCH_F_INTERLEAVE,
            Self::FirstTouch => uapi::LAUNCH_F_FIRST_TOUCH,
        }
    }
}

/// Time at which stacks get their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Stacks {
    /// Populated as far as most programs need at once; the rest at the first access, with one page
    /// fault for each 2 MB (main stack: 4 KB, as natively)
    Grow,
    /// Populated in full at once: 8 MB for each program and thread, or the size that limits and
    /// attributes set
    Eager,
}

/// Source of shared memory without a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Shared {
    /// Pool memory
    Pools,
    /// Ordinary memory
    Linux,
}

/// Options of a launched program, apart from the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Options {
    /// Put text, data and bss into the pools.
    pub image: bool,
    /// Do not fall back to ordinary memory.
    pub strict: bool,
    /// Do not register programs that children execute.
    pub no_inherit: bool,
    /// NUMA nodes of memory without a policy.
    pub placement: Placement,
    /// Time at which stacks get their memory.
    pub stacks: Stacks,
    /// Source of shared memory without a name.
    pub shared: Shared,
    /// In bytes.
    pub page_size: u64,
    /// Size of the static region in bytes, a multiple of the page size; 0: none.
    pub static_bytes: u64,
}

impl Options {
    /// Flags of HPMMAP_IOC_LAUNCH; a mark has the same.
    pub fn flags(self) -> u32 {
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        flag(self.image, uapi::LAUNCH_F_IMAGE)
            | flag(self.strict, uapi::LAUNCH_F_STRICT)
            | flag(self.no_inherit, uapi::LAUNCH_F_NO_INHERIT)
            | flag(self.stacks == Stacks::Eager, uapi::LAUNCH_F_EAGER_STACKS)
            | flag(self.shared == Shared::Linux, uapi::LAUNCH_F_SHARED_LINUX)
            | self.placement.launch_flag()
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = if self.page_size == uapi::LARGE_BYTES {
            "1G"
        } else {
            "2M"
        };
        write!(f, "page size {pages}")?;
        for (set, name) in [
            (self.image, "image"),
            (self.strict, "strict"),
            (self.no_inherit, "no-inherit"),
            (self.placement == Placement::Interleave, "interleave"),
            (self.placement == Placement::FirstTouch, "first-touch"),
            (self.stacks == Stacks::Eager, "eager stacks"),
            (self.shared == Shared::Linux, "ordinary shared memory"),
        ] {
            if set {
                write!(f, ", {name}")?;
            }
        }
        if self.static_bytes != 0 {
            write!(f, ", static {}", Size(self.static_bytes))?;
        }
        Ok(())
    }
}
