//! Limits of users and cgroups, as they are reported.

use std::fmt;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::{Size, short};
use hpmmap_base::user_name;
use hpmmap_host::{Root, cgroup};
use hpmmap_sys::Device;
use hpmmap_sys::uapi::{self, LimitEntry};
use nix::unistd::Uid;
use serde::Serialize;

/// One limit.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Reported {
    /// "default", "user" or "cgroup".
    pub kind: &'static str,
    pub uid: Option<u32>,
    /// Name of the user, or path of the cgroup unless it is gone.
    pub name: Option<String>,
    pub cgroup_id: Option<u64>,
    /// The rule as it was set; `None`: none was set.
    pub rule: Option<String>,
    /// The limit that follows from it now; `None`: no limit.
    pub limit_bytes: Option<u64>,
    pub held_bytes: u64,
}

impl Reported {
    /// Adds names to an entry of the module.
    pub fn new(root: &Root, entry: &LimitEntry) -> Self {
        let is = |flag| entry.flags & flag != 0;
        let (kind, uid, cgroup_id) = if is(uapi::LIMIT_F_DEFAULT) {
            ("default", None, None)
        } else if is(uapi::LIMIT_F_CGROUP) {
            ("cgroup", None, Some(entry.cgroup_id))
        } else {
            ("user", Some(entry.uid), None)
        };
        Self {
            kind,
            uid,
            name: uid
                .map(user_name)
                .or_else(|| cgroup_id.and_then(|id| cgroup::path(root, id))),
            cgroup_id,
            rule: match entry.rule {
                uapi::LIMIT_INHERIT => None,
                uapi::LIMIT_NONE => Some("none".into()),
                percent if is(uapi::LIMIT_F_PERCENT) => Some(format!("{percent}%")),
                bytes => Some(Size(bytes).to_string()),
            },
            limit_bytes: (entry.limit_bytes != uapi::LIMIT_NONE).then_some(entry.limit_bytes),
            held_bytes: entry.held_bytes,
        }
    }

    /// Is it a user's limit, or that of a cgroup that still exists?
    pub fn is_of_somebody(&self) -> bool {
        self.kind != "default" && self.name.is_some()
    }

    /// The bytes that may still be taken; `None`: there is no limit.
    pub fn room(&self) -> Option<u64> {
        Some(self.limit_bytes?.saturating_sub(self.held_bytes))
    }

    /// Is less than a block left?
    pub fn is_full(&self) -> bool {
        self.room().is_some_and(|room| room < uapi::BLOCK_BYTES)
    }

    /// Is it the default limit of users?
    pub fn is_default(&self) -> bool {
        self.kind == "default" || (self.kind == "user" && self.rule.is_none())
    }
}

/// The limit that leaves the least to this process; `None`: there is none.
pub fn tightest(root: &Root, device: &Device) -> Option<Reported> {
    own(root, device, |entry| {
        entry.limit_bytes.saturating_sub(entry.held_bytes)
    })
}

/// The limit that lets this process hold the least, whatever it holds; `None`: there is none.
pub fn smallest(root: &Root, device: &Device) -> Option<Reported> {
    own(root, device, |entry| entry.limit_bytes)
}

fn own(root: &Root, device: &Device, least: fn(&LimitEntry) -> u64) -> Option<Reported> {
    let entries = device.limit_list().ok()?;
    let (uid, cgroups) = (Uid::current().as_raw(), cgroup::own_numbers(root));
    let entry = own_of(&entries, uid, &cgroups).min_by_key(|entry| least(entry))?;
    Some(Reported::new(root, entry))
}

fn own_of<'a>(
    entries: &'a [LimitEntry],
    uid: u32,
    cgroups: &'a [u64],
) -> impl Iterator<Item = &'a LimitEntry> {
    let is = |entry: &LimitEntry, flag| entry.flags & flag != 0;
    let of_user = |entry: &LimitEntry| {
        !is(entry, uapi::LIMIT_F_DEFAULT | uapi::LIMIT_F_CGROUP) && entry.uid == uid
    };
    // A user's own entry replaces the default.
    let is_known = entries.iter().any(of_user);
    let applies = move |entry: &&LimitEntry| {
        if is(entry, uapi::LIMIT_F_DEFAULT) {
            uid != 0 && !is_known
        } else if is(entry, uapi::LIMIT_F_CGROUP) {
            cgroups.contains(&entry.cgroup_id)
        } else {
            entry.uid == uid
        }
    };
    let limited = entries.iter().filter(applies);
    limited.filter(|entry| entry.limit_bytes != uapi::LIMIT_NONE)
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit_bytes.map_or("none".to_string(), short);
        let name = self.name.as_deref().unwrap_or("that is gone");
        match (self.kind, &self.rule) {
            ("cgroup", _) => write!(f, "the limit of cgroup {name} ({limit})"),
            ("user", Some(_)) => write!(f, "the limit of user {name} ({limit})"),
            _ => write!(f, "the default limit of every user ({limit})"),
        }
    }
}

/// The limits that concern this user; for root all of them.
pub fn list(root: &Root, device: &Device) -> Result<Vec<Reported>> {
    let mut limits: Vec<Reported> = device
        .limit_list()
        .map_err(|errno| Error::Failed(format!("cannot read the limits: {}", errno.desc())))?
        .iter()
        .map(|entry| Reported::new(root, entry))
        .collect();
    let rank = |one: &Reported| {
        ["default", "user", "cgroup"]
            .iter()
            .position(|k| *k == one.kind)
    };
    limits.sort_by(|a, b| {
        (rank(a), a.uid, &a.name, a.cgroup_id).cmp(&(rank(b), b.uid, &b.name, b.cgroup_id))
    });
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    #[test]
    fn entries_are_named() {
        let fixture = Fixture::new();
        let root = fixture.root();
        let entry = |flags, rule, limit_bytes| LimitEntry {
            flags,
            rule,
            limit_bytes,
            held_bytes: 4 << 20,
            ..Default::default()
        };
        let user = Reported::new(&root, &entry(0, uapi::LIMIT_INHERIT, 4 << 20));
        assert_eq!((user.kind, user.name.as_deref()), ("user", Some("root")));
        assert_eq!(user.rule, None);
        assert!(user.is_full());
        assert_eq!(user.to_string(), "the default limit of every user (4M)");
        let own = Reported::new(&root, &entry(uapi::LIMIT_F_PERCENT, 10, 8 << 20));
        assert_eq!(own.rule.as_deref(), Some("10%"));
        assert!(!own.is_full());
        assert_eq!(own.to_string(), "the limit of user root (8M)");
        let group = Reported::new(
            &root,
            &entry(uapi::LIMIT_F_CGROUP, uapi::LIMIT_NONE, uapi::LIMIT_NONE),
        );
        assert_eq!((group.name, group.limit_bytes), (None, None));
    }

    #[test]
    fn the_limit_that_leaves_the_least_counts() {
        let entry = |flags, uid, cgroup_id, limit_bytes, held_bytes| LimitEntry {
            flags,
            uid,
            cgroup_id,
            limit_bytes,
            held_bytes,
            ..Default::default()
        };
        let none = uapi::LIMIT_NONE;
        let entries = [
            entry(uapi::LIMIT_F_DEFAULT, 0, 0, 50, 0),
            entry(0, 0, 0, none, 7),
            entry(0, 1, 0, 50, 40),
            entry(uapi::LIMIT_F_CGROUP, 0, 17, 30, 25),
            entry(uapi::LIMIT_F_CGROUP, 0, 18, 0, 0),
        ];
        let room = |uid, cgroups: &[u64]| {
            let rooms = own_of(&entries, uid, cgroups).map(|one| one.limit_bytes - one.held_bytes);
            rooms.min()
        };
        assert_eq!(room(0, &[]), None);
        assert_eq!(room(0, &[17]), Some(5));
        assert_eq!(room(1, &[]), Some(10));
        assert_eq!(room(1, &[1, 17]), Some(5));
        assert_eq!(room(1, &[17, 18]), Some(0));
        assert_eq!(room(2, &[]), Some(50));
    }
}
