use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;

use crate::uapi::{self, raw, size_of_u32};

/// The open device. Closed when dropped and on execve(2).
#[derive(Debug)]
pub struct Device {
    file: File,
}

/// An error of taking memory out of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoveError {
    /// The module's errno.
    pub errno: Errno,
    /// With EBUSY: bytes of the range that jobs hold.
    pub busy_bytes: u64,
    /// With EBUSY: bytes that no job holds but that are still pinned.
    pub pinned_bytes: u64,
}

/// Subject of a limit.
#[derive(Debug)]
pub enum LimitOf {
    /// All users without a limit of their own.
    Default,
    /// The user with this number.
    User(u32),
    /// The cgroup of this directory, with its descendants.
    Cgroup(File),
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitRule {
    /// No limit.
    None,
    /// No limit of its own: the default or the parent's applies.
    Inherit,
    /// A multiple of `uapi::BLOCK_BYTES`.
    Bytes(u64),
    /// Share of all pool memory, 1 to 100.
    Percent(u8),
}

/// A request for a launch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchRequest {
    /// `uapi::LAUNCH_F_*`
    pub flags: u32,
    /// In bytes; 0: the module's default.
    pub page_size: u64,
    /// Numbers of the nodes, each below `uapi::LAUNCH_MAX_NODES`; empty: all.
    pub nodes: Vec<u32>,
    /// Patterns of the programs that are registered, each with its zero; empty: all.
    pub only: Vec<u8>,
}

impl Device {
    /// Opens the device at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { file })
    }

    /// Returns the abilities of the loaded module.
    pub fn info(&self) -> Result<uapi::Info, Errno> {
        let mut arg = uapi::Info {
            size: size_of_u32::<uapi::Info>(),
            ..Default::default()
        };
        // SAFETY: the fd is open, and the struct is that of the uapi header.
        unsafe { raw::info(self.file.as_raw_fd(), &mut arg) }?;
        Ok(arg)
    }

    /// Hands the offline range to the pool of `node`.
    pub fn pool_add(&self, start: u64, length: u64, node: u32, movable: bool) -> Result<(), Errno> {
        let mut arg = uapi::PoolAdd {
            size: size_of_u32::<uapi::PoolAdd>(),
            flags: if movable { uapi::POOL_F_MOVABLE } else { 0 },
            start,
            length,
            node: i32::try_from(node).map_err(|_| Errno::EINVAL)?,
            ..Default::default()
        };
        // SAFETY: the fd is open, and the struct is that of the uapi header.
        unsafe { raw::pool_add(self.file.as_raw_fd(), &mut arg) }?;
        Ok(())
    }

    /// Takes the range out of its pool, all or nothing.
    pub fn pool_remove(&self, start: u64, length: u64) -> Result<(), RemoveError> {
        let mut arg = uapi::PoolRemove {
            size: size_of_u32::<uapi::PoolRemove>(),
            start,
            length,
            ..Default::default()
        };
        // SAFETY: the fd is open, and the struct is that of the uapi header.
        match unsafe { raw::pool_remove(self.file.as_raw_fd(), &mut arg) } {
            Ok(_) => Ok(()),
            Err(errno) => Err(RemoveError {
                errno,
                busy_bytes: arg.busy_bytes,
                pinned_bytes: arg.pinned_bytes,
            }),
        }
    }

    /// Returns all ranges of all pools, in order of address.
    pub fn pool_list(&self) -> Result<Vec<uapi::PoolRange>, Errno> {
        let mut ranges: Vec<uapi::PoolRange> = Vec::new();
        loop {
            let capacity = u32::try_from(ranges.len()).map_err(|_| Errno::ENOMEM)?;
            let mut arg = uapi::PoolList {
                size: size_of_u32::<uapi::PoolList>(),
                ranges: if ranges.is_empty() {
                    0
                } else {
                    ranges.as_mut_ptr() as u64
                },
                nr: capacity,
                range_size: size_of_u32::<uapi::PoolRange>(),
                ..Default::default()
            };
            // SAFETY: the fd is open, the struct is that of the uapi header, and `ranges` is valid
            // for `nr` elements of plain integers that nothing else borrows during the call.
            unsafe { raw::pool_list(self.file.as_raw_fd(), &mut arg) }?;
            if arg.nr <= capacity {
                ranges.truncate(arg.nr as usize);
                return Ok(ranges);
            }
            ranges.resize(arg.nr as usize, Default::default());
        }
    }

    /// Registers the calling process as the first of a new launch and returns the launch's number.
    /// The launch stays in sysfs while the device is open, in this process or one that has
    /// inherited it.
    pub fn launch(&self, request: &LaunchRequest) -> Result<u64, Errno> {
        let mask = nodemask(&request.nodes)?;
        let mut arg = uapi::Launch {
            size: size_of_u32::<uapi::Launch>(),
            flags: request.flags,
            page_size: request.page_size,
            nodemask: if mask.is_empty() {
                0
            } else {
                mask.as_ptr() as u64
            },
            nodemask_bits: 64 * mask.len() as u32,
            only: if request.only.is_empty() {
                0
            } else {
                request.only.as_ptr() as u64
            },
            only_bytes: u32::try_from(request.only.len()).map_err(|_| Errno::EINVAL)?,
            ..Default::default()
        };
        // SAFETY: the fd is open, the struct is that of the uapi header, and `mask` and `request`
        // outlive the call, which only reads them.
        unsafe { raw::launch(self.file.as_raw_fd(), &mut arg) }?;
        Ok(arg.job_id)
    }

    /// Sets a limit.
    pub fn limit_set(&self, who: &LimitOf, rule: LimitRule) -> Result<(), Errno> {
        let (who_flags, uid, cgroup_fd) = match who {
            LimitOf::Default => (uapi::LIMIT_F_DEFAULT, 0, 0),
            LimitOf::User(uid) => (0, *uid, 0),
            LimitOf::Cgroup(directory) => (uapi::LIMIT_F_CGROUP, 0, directory.as_raw_fd()),
        };
        let (rule_flags, bytes) = match rule {
            LimitRule::None => (0, uapi::LIMIT_NONE),
            LimitRule::Inherit => (0, uapi::LIMIT_INHERIT),
            LimitRule::Bytes(bytes) => (0, bytes),
            LimitRule::Percent(percent) => (uapi::LIMIT_F_PERCENT, percent.into()),
        };
        let mut arg = uapi::LimitSet {
            size: size_of_u32::<uapi::LimitSet>(),
            flags: who_flags | rule_flags,
            uid,
            cgroup_fd,
            bytes,
        };
        // SAFETY: the fd is open, and the struct is that of the uapi header.
        unsafe { raw::limit_set(self.file.as_raw_fd(), &mut arg) }?;
        Ok(())
    }

    /// Returns the limits that this process may see, the default one first.
    pub fn limit_list(&self) -> Result<Vec<uapi::LimitEntry>, Errno> {
        let mut entries: Vec<uapi::LimitEntry> = Vec::new();
        loop {
            let capacity = u32::try_from(entries.len()).map_err(|_| Errno::ENOMEM)?;
            let mut arg = uapi::LimitList {
                size: size_of_u32::<uapi::LimitList>(),
                entries: if entries.is_empty() {
                    0
                } else {
                    entries.as_mut_ptr() as u64
                },
                nr: capacity,
                ..Default::default()
            };
            // SAFETY: the fd is open, the struct is that of the uapi header, and `entries` is
            // valid for `nr` elements of plain integers that nothing else borrows during the call.
            unsafe { raw::limit_list(self.file.as_raw_fd(), &mut arg) }?;
            if arg.nr <= capacity {
                entries.truncate(arg.nr as usize);
                return Ok(entries);
            }
            // More limits may be set before the next call.
            entries.resize(arg.nr as usize + 16, Default::default());
        }
    }

    /// Pins a range of this process until the device is closed, and tells where it lies.
    pub fn runs(&self, start: u64, length: u64) -> Result<Vec<uapi::Run>, Errno> {
        let mut runs = vec![uapi::Run::default(); 64];
        loop {
            let mut arg = uapi::Runs {
                size: size_of_u32::<uapi::Runs>(),
                start,
                length,
                runs: runs.as_mut_ptr() as u64,
                nr: u32::try_from(runs.len()).map_err(|_| Errno::ENOMEM)?,
                ..Default::default()
            };
            // SAFETY: the fd is open, the struct is the one of this command,
            // and `runs` is valid for `nr` elements of plain integers,
            // borrowed by nobody else during the call.
            match unsafe { raw::runs(self.file.as_raw_fd(), &mut arg) } {
                Err(Errno::EMSGSIZE) => runs.resize(arg.nr as usize, Default::default()),
                result => {
                    result?;
                    runs.truncate(arg.nr as usize);
                    return Ok(runs);
                }
            }
        }
    }
}

/// Bit n of word w stands for node 64 * w + n.
fn nodemask(nodes: &[u32]) -> Result<Vec<u64>, Errno> {
    let Some(&last) = nodes.iter().max() else {
        return Ok(Vec::new());
    };
    if last >= uapi::LAUNCH_MAX_NODES {
        return Err(Errno::EINVAL);
    }
    let mut mask = vec![0u64; last as usize / 64 + 1];
    for &node in nodes {
        mask[node as usize / 64] |= 1 << (node % 64);
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_nodes_is_an_empty_mask() {
        assert_eq!(nodemask(&[]), Ok(vec![]));
    }

    #[test]
    fn a_node_sets_its_bit_in_its_word() {
        assert_eq!(nodemask(&[0, 2, 65]), Ok(vec![0b101, 0b10]));
        assert_eq!(nodemask(&[1023]).unwrap().len(), 16);
    }

    #[test]
    fn a_node_beyond_the_mask_is_refused() {
        assert_eq!(nodemask(&[1024]), Err(Errno::EINVAL));
    }

    #[test]
    fn a_file_that_is_not_the_device_answers_enotty() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let device = Device::open(file.path()).unwrap();
        assert_eq!(device.info().unwrap_err(), Errno::ENOTTY);
        assert_eq!(device.pool_add(0, 1 << 27, 0, false), Err(Errno::ENOTTY));
        assert_eq!(
            device.pool_remove(0, 1 << 27).unwrap_err().errno,
            Errno::ENOTTY
        );
        assert_eq!(device.pool_list().unwrap_err(), Errno::ENOTTY);
        assert_eq!(device.launch(&LaunchRequest::default()), Err(Errno::ENOTTY));
        assert_eq!(
            device.limit_set(&LimitOf::Default, LimitRule::None),
            Err(Errno::ENOTTY)
        );
        assert_eq!(device.limit_list(), Err(Errno::ENOTTY));
        assert_eq!(device.runs(0, 4096), Err(Errno::ENOTTY));
    }
}
