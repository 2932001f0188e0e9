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

/// Subject of a promise.
#[derive(Debug)]
pub enum PromiseOf {
    /// The user with this number.
    User(u32),
    /// The cgroup of this directory, with its descendants.
    Cgroup(File),
    /// The launch that the device keeps.
    Launch,
}

/// A part of a promise: a NUMA node, or `None` for a promise that is spread over all pools, and
/// bytes.
pub type Promise = (Option<u32>, u64);

/// A promise that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromiseError {
    /// The module's errno.
    pub errno: Errno,
    /// With ENOSPC: the NUMA node where it cannot be kept; `None`: on all together.
    pub node: Option<u32>,
    /// With ENOSPC: what could be promised there.
    pub room_bytes: u64,
}

/// Memory that each program of a launch has at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionRequest {
    /// First address, a multiple of `uapi::BLOCK_BYTES`.
    pub start: u64,
    /// Size, a multiple of `uapi::BLOCK_BYTES`.
    pub bytes: u64,
    /// The NUMA node that it is bound to; `None`: placed as other memory.
    pub node: Option<u32>,
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
    /// Size of the static region in bytes, a multiple of the page size; 0: none.
    pub static_bytes: u64,
    /// Memory at addresses, at most `uapi::LAUNCH_MAX_REGIONS`, in any order.
    pub regions: Vec<RegionRequest>,
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
        listed(|ranges, nr| {
            let mut arg = uapi::PoolList {
                size: size_of_u32::<uapi::PoolList>(),
                ranges,
                nr,
                range_size: size_of_u32::<uapi::PoolRange>(),
                ..Default::default()
            };
            // SAFETY: the fd is open, the struct is that of the uapi header, and `ranges` is valid
            // for `nr` elements of plain integers that nothing else borrows during the call.
            unsafe { raw::pool_list(self.file.as_raw_fd(), &mut arg) }?;
            Ok(arg.nr)
        })
    }

    /// Registers the calling process as the first of a new launch and returns the launch's number.
    /// The launch stays in sysfs while the device is open, in this process or one that has
    /// inherited it.
    pub fn launch(&self, request: &LaunchRequest) -> Result<u64, Errno> {
        let mask = nodemask(&request.nodes)?;
        let regions = regions(&request.regions)?;
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
            static_bytes: request.static_bytes,
            regions: if regions.is_empty() {
                0
            } else {
                regions.as_ptr() as u64
            },
            nr_regions: u32::try_from(regions.len()).map_err(|_| Errno::EINVAL)?,
            ..Default::default()
        };
        // SAFETY: the fd is open, the struct is that of the uapi header, and `mask`, `regions` and
        // `request` outlive the call, which only reads them.
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
        listed(|entries, nr| {
            let mut arg = uapi::LimitList {
                size: size_of_u32::<uapi::LimitList>(),
                entries,
                nr,
                ..Default::default()
            };
            // SAFETY: the fd is open, the struct is that of the uapi header, and `entries` is
            // valid for `nr` elements of plain integers that nothing else borrows during the call.
            unsafe { raw::limit_list(self.file.as_raw_fd(), &mut arg) }?;
            Ok(arg.nr)
        })
    }

    /// Promises pool memory in place of what was promised before; nothing with no part.
    pub fn promise_set(&self, of: &PromiseOf, parts: &[Promise]) -> Result<(), PromiseError> {
        let wrong = |errno| PromiseError {
            errno,
            node: None,
            room_bytes: 0,
        };
        let (flags, uid, cgroup_fd) = match of {
            PromiseOf::User(uid) => (0, *uid, 0),
            PromiseOf::Cgroup(directory) => (uapi::LIMIT_F_CGROUP, 0, directory.as_raw_fd()),
            PromiseOf::Launch => (uapi::PROMISE_F_LAUNCH, 0, 0),
        };
        let mut promises = Vec::new();
        for (node, bytes) in parts {
            promises.push(uapi::Promise {
                node: node
                    .map_or(Ok(-1), i32::try_from)
                    .map_err(|_| wrong(Errno::ENXIO))?,
                bytes: *bytes,
                ..Default::default()
            });
        }
        let mut arg = uapi::PromiseSet {
            size: size_of_u32::<uapi::PromiseSet>(),
            flags,
            uid,
            cgroup_fd,
            promises: promises.as_ptr() as u64,
            nr: u32::try_from(promises.len()).map_err(|_| wrong(Errno::EINVAL))?,
            ..Default::default()
        };
        // SAFETY: the fd is open, the struct is that of the uapi header, and `promises` outlives
        // the call, which only reads it.
        match unsafe { raw::promise_set(self.file.as_raw_fd(), &mut arg) } {
            Ok(_) => Ok(()),
            Err(errno) => Err(PromiseError {
                errno,
                node: u32::try_from(arg.node).ok(),
                room_bytes: arg.room_bytes,
            }),
        }
    }

    /// Returns the promises that this process may see.
    pub fn promise_list(&self) -> Result<Vec<uapi::PromiseEntry>, Errno> {
        listed(|entries, nr| {
            let mut arg = uapi::PromiseList {
                size: size_of_u32::<uapi::PromiseList>(),
                entries,
                nr,
                ..Default::default()
            };
            // SAFETY: the fd is open, the struct is that of the uapi header, and `entries` is
            // valid for `nr` elements of plain integers that nothing else borrows during the call.
            unsafe { raw::promise_list(self.file.as_raw_fd(), &mut arg) }?;
            Ok(arg.nr)
        })
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

/// All elements of a list: `call` writes `nr` of them at most to an address, and returns how many
/// there are. Those are an estimate until all have fitted.
fn listed<T: Clone + Default>(
    call: impl Fn(u64, u32) -> Result<u32, Errno>,
) -> Result<Vec<T>, Errno> {
    let mut all: Vec<T> = Vec::new();
    loop {
        let capacity = u32::try_from(all.len()).map_err(|_| Errno::ENOMEM)?;
        let address = match capacity {
            0 => 0,
            _ => all.as_mut_ptr() as u64,
        };
        let nr = call(address, capacity)?;
        if nr <= capacity {
            all.truncate(nr as usize);
            return Ok(all);
        }
        // There may be more by the next call.
        all.resize(nr as usize + 16, T::default());
    }
}

/// In the module's form: in order of address.
fn regions(requests: &[RegionRequest]) -> Result<Vec<uapi::Region>, Errno> {
    let mut regions = Vec::new();
    for request in requests {
        regions.push(uapi::Region {
            start: request.start,
            length: request.bytes,
            node: request
                .node
                .map_or(Ok(-1), i32::try_from)
                .map_err(|_| Errno::EINVAL)?,
            ..Default::default()
        });
    }
    regions.sort_by_key(|region| region.start);
    Ok(regions)
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
    fn regions_are_in_order_of_address() {
        let request = |start, node| RegionRequest {
            start,
            bytes: 2 << 20,
            node,
        };
        let found = regions(&[request(4 << 20, None), request(2 << 20, Some(1))]).unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.start, one.node)).collect();
        assert_eq!(found, [(2 << 20, 1), (4 << 20, -1)]);
        assert_eq!(
            regions(&[request(0, Some(u32::MAX))]).unwrap_err(),
            Errno::EINVAL
        );
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
