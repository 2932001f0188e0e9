//! Opens /dev/hpmmap; its errors say what to do.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::user_name;
use hpmmap_host::{Root, pool};
use hpmmap_sys::{Device, Errno, uapi};
use nix::unistd::{Gid, Group, Uid};

/// Opens the device and checks that the module is new enough.
pub fn open() -> Result<Device> {
    let path = Path::new(uapi::DEVICE_PATH);
    let device = Device::open(path).map_err(|error| explain_open(path, &error))?;
    let info = device.info().map_err(|errno| {
        Error::Failed(format!(
            "{} is not the device of hpmmap: {}",
            path.display(),
            errno.desc()
        ))
    })?;
    if info.abi_version < uapi::ABI_VERSION {
        return Err(Error::OldModule(info.abi_version));
    }
    Ok(device)
}

/// As `open`, for actions of root only: `what`, such as "to change pools".
pub fn open_as_root(what: &str) -> Result<Device> {
    open().map_err(|error| roots(error, what))
}

/// Replaces an error that advises to join the device's group, which would not help here.
fn roots(error: Error, what: &str) -> Error {
    match error {
        Error::NoPermission { .. } => only_root(what),
        other => other,
    }
}

/// The error for an action of root only.
pub fn only_root(what: &str) -> Error {
    Error::NoPermission {
        what: what.into(),
        hint: "only root may (CAP_SYS_ADMIN)".into(),
    }
}

/// All ranges of all pools, in order of address.
pub fn pool_ranges(device: &Device) -> Result<Vec<uapi::PoolRange>> {
    device
        .pool_list()
        .map_err(|errno| Error::Failed(format!("cannot list the pools: {}", errno.desc())))
}

/// Fails unless the module is loaded; for verbs that only read sysfs.
pub fn require_module(root: &Root) -> Result<()> {
    if pool::is_loaded(root) {
        Ok(())
    } else {
        Err(Error::NotLoaded)
    }
}

fn explain_open(path: &Path, error: &io::Error) -> Error {
    let errno = error.raw_os_error().map(Errno::from_raw);
    match (error.kind(), errno) {
        (ErrorKind::NotFound, _) if pool::is_loaded(&Root::default()) => Error::Failed(format!(
            "the module is loaded but {} is missing: a container needs \
             --device hpmmap.io/pool=all (see: hpmmap help cdi), a machine udev or devtmpfs",
            path.display()
        )),
        (ErrorKind::NotFound, _) | (_, Some(Errno::ENXIO | Errno::ENODEV)) => Error::NotLoaded,
        (ErrorKind::PermissionDenied, _) => Error::NoPermission {
            what: format!("to open {}", path.display()),
            hint: match owner(path) {
                Some(group) => how_to_join(&group),
                None => "only root may".to_string(),
            },
        },
        _ => Error::Failed(format!("cannot open {}: {error}", path.display())),
    }
}

/// The number that stands for all unmapped groups in a user namespace.
const NO_GROUP: u32 = 65534;

/// A group that may open the device.
#[derive(Debug, PartialEq, Eq)]
pub enum Owner {
    /// A group of this machine.
    Named(String),
    /// A group without a name here, as in a container.
    Numbered(u32),
    /// A group without a number here, as in a user's container.
    Unmapped,
}

impl Owner {
    fn of(gid: u32, name: Option<String>) -> Self {
        match name {
            _ if gid == NO_GROUP => Self::Unmapped,
            Some(name) => Self::Named(name),
            None => Self::Numbered(gid),
        }
    }
}

/// The group, other than root's, that may open the device.
pub fn owner(path: &Path) -> Option<Owner> {
    let meta = path.metadata().ok()?;
    (meta.gid() != 0 && meta.mode() & 0o060 == 0o060).then(|| {
        let group = Group::from_gid(Gid::from_raw(meta.gid())).ok().flatten();
        Owner::of(meta.gid(), group.map(|group| group.name))
    })
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "'{name}'"),
            Self::Numbered(gid) => write!(f, "{gid}"),
            Self::Unmapped => f.write_str("of the machine"),
        }
    }
}

/// Tells how to become a member of the group.
pub fn how_to_join(group: &Owner) -> String {
    match group {
        Owner::Named(name) => format!(
            "join the group '{name}' (usermod -aG {name} {}) and log in again",
            user_name(Uid::current().as_raw())
        ),
        Owner::Numbered(gid) => format!(
            "the group {gid} may, which has no name here: a container needs --group-add {gid}"
        ),
        Owner::Unmapped => "its group may, which this user namespace does not have: a container \
                            of a user who is in it needs --group-add keep-groups"
            .to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_means_no_module() {
        let path = Path::new("/nonexistent/hpmmap");
        let missing = io::Error::from_raw_os_error(Errno::ENOENT as i32);
        if !pool::is_loaded(&Root::default()) {
            assert!(matches!(explain_open(path, &missing), Error::NotLoaded));
        }
        let stale = io::Error::from_raw_os_error(Errno::ENXIO as i32);
        assert!(matches!(explain_open(path, &stale), Error::NotLoaded));
    }

    #[test]
    fn no_permission_says_who_may() {
        let denied = io::Error::from_raw_os_error(Errno::EACCES as i32);
        let error = explain_open(Path::new("/nonexistent/hpmmap"), &denied);
        assert_eq!(
            error.to_string(),
            "no permission to open /nonexistent/hpmmap: only root may"
        );
        assert_eq!(
            roots(error, "to change pools").to_string(),
            "no permission to change pools: only root may (CAP_SYS_ADMIN)"
        );
        assert!(matches!(roots(Error::NotLoaded, "x"), Error::NotLoaded));
    }

    #[test]
    fn in_a_container_the_group_is_another_way() {
        let named = Owner::of(997, Some("hpmmap".into()));
        assert_eq!(named, Owner::Named("hpmmap".into()));
        assert!(how_to_join(&named).starts_with("join the group 'hpmmap' (usermod -aG hpmmap "));
        let numbered = Owner::of(997, None);
        assert!(how_to_join(&numbered).ends_with("--group-add 997"));
        let unmapped = Owner::of(NO_GROUP, Some("nogroup".into()));
        assert!(how_to_join(&unmapped).ends_with("--group-add keep-groups"));
    }

    #[test]
    fn users_without_a_name_are_numbers() {
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(4_000_000_123), "4000000123");
    }
}
