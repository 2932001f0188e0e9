//! A limit, a promise, or both, of one subject.

use std::fmt;
use std::fs::File;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::{Size, multiple_of};
use hpmmap_base::user_name;
use hpmmap_host::{Root, cgroup, pool};
use hpmmap_sys::uapi;
use hpmmap_sys::{Device, Errno, LimitOf, LimitRule, PromiseOf};
use nix::unistd::User;

use crate::cli::{Limit, PoolLimitArgs, parse_limit};
use crate::device;
use crate::limits::Reported;
use crate::promise::{self, Promise, Promised};

/// The subject of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Who {
    Default,
    User(u32),
    /// Each member of the group; only in a file.
    Group(String),
    Cgroup(String),
}

/// A checked request, with a limit, a promise, or both.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) who: Who,
    pub(super) rule: Option<LimitRule>,
    pub(super) promise: Option<Promise>,
}

impl Request {
    pub(super) fn new(args: &PoolLimitArgs) -> Result<Self> {
        let who = match (&args.user, &args.cgroup) {
            (Some(user), _) => Who::User(find_user(user)?),
            (_, Some(path)) => Who::Cgroup(path.clone()),
            _ => Who::Default,
        };
        Self::checked(who, args.size, args.min.clone())
    }

    fn checked(who: Who, limit: Option<Limit>, promise: Option<Promise>) -> Result<Self> {
        let rule = limit.map(|limit| Self::rule(&who, limit)).transpose()?;
        Ok(Self { who, rule, promise })
    }

    fn rule(who: &Who, limit: Limit) -> Result<LimitRule> {
        Ok(match limit {
            Limit::None => LimitRule::None,
            Limit::Default if *who == Who::Default => {
                return Err(Error::Usage(
                    "the default itself needs a size, a part such as 50%, or 'none'".into(),
                ));
            }
            Limit::Default => LimitRule::Inherit,
            Limit::Percent(percent) => LimitRule::Percent(percent),
            // 0 means no memory.
            Limit::Size(Size(0)) => LimitRule::Bytes(0),
            Limit::Size(Size(few @ 1..=100)) => {
                return Err(Error::Usage(format!(
                    "{few} is {few} bytes: did you mean {few}% or {few}G?"
                )));
            }
            Limit::Size(size) => {
                multiple_of(size, uapi::BLOCK_BYTES, "the block size")?;
                LimitRule::Bytes(size.0)
            }
        })
    }

    /// Parses a line of the file; `None` for an empty one.
    pub(super) fn parse(line: &str) -> Result<Option<Self>> {
        let line = line.split('#').next().unwrap_or_default();
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let min = words.last().and_then(|word| word.strip_prefix("min="));
        let promise = min.map(str::parse).transpose().map_err(Error::Usage)?;
        if promise.is_some() {
            words.pop();
        }
        let (who, size) = match (&words[..], &promise) {
            ([], None) => return Ok(None),
            (["user", name], Some(_)) => (Who::User(find_user(name)?), None),
            (["user", name, size], _) => (Who::User(find_user(name)?), Some(size)),
            (["cgroup", path], Some(_)) => (Who::Cgroup(path.to_string()), None),
            (["cgroup", path, size], _) => (Who::Cgroup(path.to_string()), Some(size)),
            (["group", name, size], None) => (Who::Group(name.to_string()), Some(size)),
            (["default", size], None) => (Who::Default, Some(size)),
            _ => {
                return Err(Error::Usage(format!(
                    "'{}' is not 'user NAME SIZE', 'group NAME SIZE', 'cgroup PATH SIZE' or \
                     'default SIZE'; for a user or cgroup 'min=SIZE' may follow, or replace SIZE",
                    line.trim()
                )));
            }
        };
        let limit = size.map(|size| parse_limit(size)).transpose();
        Self::checked(who, limit.map_err(Error::Usage)?, promise).map(Some)
    }

    /// Is it of the user or cgroup that has this promise?
    fn is_to(&self, one: &Promised) -> bool {
        match &self.who {
            Who::User(uid) => one.kind == "user" && one.uid == Some(*uid),
            Who::Cgroup(path) => one.kind == "cgroup" && is_path(path, one.name.as_deref()),
            Who::Default | Who::Group(_) => false,
        }
    }

    /// What it takes from a promise; `None` if it takes nothing.
    pub(super) fn lowered(&self, promises: &[Promised]) -> Option<Self> {
        let promised: Vec<&Promised> = promises.iter().filter(|one| self.is_to(one)).collect();
        let promise = self.promise.as_ref()?.lowered(&promised)?;
        Some(Self {
            who: self.who.clone(),
            rule: None,
            promise: Some(promise),
        })
    }

    fn is_of(&self, one: &Reported) -> bool {
        match &self.who {
            Who::Default => one.kind == "default",
            Who::User(uid) => one.uid == Some(*uid),
            // The members are in the list instead.
            Who::Group(_) => false,
            Who::Cgroup(path) => one.kind == "cgroup" && is_path(path, one.name.as_deref()),
        }
    }

    /// Are this limit and this promise in force? A subject without a limit of its own need not be
    /// in the list.
    pub(super) fn holds(&self, limits: &[Reported], promises: &[Promised]) -> bool {
        let promised: Vec<&Promised> = promises.iter().filter(|one| self.is_to(one)).collect();
        if self
            .promise
            .as_ref()
            .is_some_and(|promise| !promise.holds(&promised))
        {
            return false;
        }
        let Some(said) = self.rule else {
            return true;
        };
        let rule = match said {
            LimitRule::Bytes(bytes) => Some(Size(bytes).to_string()),
            LimitRule::Percent(percent) => Some(format!("{percent}%")),
            LimitRule::None => Some("none".into()),
            LimitRule::Inherit => None,
        };
        match limits.iter().find(|one| self.is_of(one)) {
            Some(one) => one.rule == rule,
            None => said == LimitRule::Inherit,
        }
    }

    /// A note if the limit leaves less than is promised.
    pub(super) fn bounded(&self, limits: &[Reported]) -> Option<String> {
        let promised = self.promise.as_ref()?.bytes();
        let own = limits.iter().find(|one| self.is_of(one));
        let limit = match self.who {
            Who::User(uid) if uid != 0 => own.or(limits.iter().find(|one| one.kind == "default")),
            _ => own,
        };
        let limit = limit.filter(|one| one.limit_bytes.is_some_and(|bytes| bytes < promised))?;
        Some(format!(
            "{} are promised, but {limit} is lower: raise it with --size",
            Size(promised)
        ))
    }

    pub(super) fn user(&self) -> Option<u32> {
        match self.who {
            Who::User(uid) => Some(uid),
            _ => None,
        }
    }

    pub(super) fn apply(&self, root: &Root, device: &Device) -> Result<()> {
        // The promise first: it may be refused, and then nothing has changed.
        if let Some(promise) = &self.promise {
            let to = match &self.who {
                Who::User(uid) => PromiseOf::User(*uid),
                Who::Cgroup(path) => PromiseOf::Cgroup(open_cgroup(root, path)?),
                Who::Default | Who::Group(_) => {
                    return Err(Error::Failed("only users and cgroups get promises".into()));
                }
            };
            device.promise_set(&to, promise.parts()).map_err(|error| {
                let nodes = pool::nodes(root).unwrap_or_default();
                self.explain(error.errno, || {
                    promise::refused(&self.whom(), promise, error, &nodes)
                })
            })?;
        }
        let Some(rule) = self.rule else {
            return Ok(());
        };
        let who = match &self.who {
            Who::Default => LimitOf::Default,
            Who::User(uid) => LimitOf::User(*uid),
            // Only files have groups, and they are replaced by their members before.
            Who::Group(name) => {
                return Err(Error::Failed(format!(
                    "group {name} has no limit by itself"
                )));
            }
            Who::Cgroup(path) => LimitOf::Cgroup(open_cgroup(root, path)?),
        };
        device.limit_set(&who, rule).map_err(|errno| {
            self.explain(errno, || {
                Error::Failed(format!("cannot set the limit: {}", errno.desc()))
            })
        })
    }

    fn explain(&self, errno: Errno, other: impl FnOnce() -> Error) -> Error {
        match (errno, &self.who) {
            (Errno::EPERM, _) => device::only_root("to set limits"),
            (Errno::EBADF | Errno::ENOENT, Who::Cgroup(path)) => Error::Failed(format!(
                "{path} is no cgroup of the unified hierarchy (version 2)"
            )),
            (Errno::EINVAL, Who::Cgroup(path)) => Error::Failed(format!(
                "{path} is the root of all cgroups, or more than 64 levels below it: it can have \
                 neither limit nor promise"
            )),
            _ => other(),
        }
    }

    fn whom(&self) -> String {
        match &self.who {
            Who::User(uid) => format!("user {}", user_name(*uid)),
            Who::Group(name) => format!("each user of group {name}"),
            Who::Cgroup(path) => format!("cgroup {path}"),
            Who::Default => "every user".into(),
        }
    }
}

/// Is this the path of the cgroup with this name?
fn is_path(path: &str, name: Option<&str>) -> bool {
    let path = path.trim_matches('/');
    let below = path.strip_prefix("sys/fs/cgroup/").unwrap_or(path);
    name.map(|name| name.trim_matches('/')) == Some(below)
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(promise) = &self.promise {
            write!(f, "promised to {}: {promise}", self.whom())?;
        }
        let Some(rule) = self.rule else {
            return Ok(());
        };
        if self.promise.is_some() {
            f.write_str("; ")?;
        }
        match &self.who {
            Who::Default => write!(f, "default limit of every user: ")?,
            _ => write!(f, "limit of {}: ", self.whom())?,
        }
        match rule {
            LimitRule::Bytes(bytes) => write!(f, "{}", Size(bytes)),
            LimitRule::Percent(percent) => write!(f, "{percent}% of all pool memory"),
            LimitRule::None => write!(f, "none"),
            LimitRule::Inherit => write!(f, "none of its own"),
        }
    }
}

fn open_cgroup(root: &Root, path: &str) -> Result<File> {
    let mount = cgroup::mount(root).ok_or_else(|| {
        Error::Failed("cgroups of version 2 are not mounted (see: man 7 cgroups)".into())
    })?;
    let directory = cgroup::directory(&mount, path);
    File::open(&directory)
        .map_err(|error| Error::Failed(format!("no cgroup {}: {error}", directory.display())))
}

/// A name takes precedence over a number, as in chown(1).
pub fn find_user(text: &str) -> Result<u32> {
    if let Ok(Some(user)) = User::from_name(text) {
        return Ok(user.uid.as_raw());
    }
    text.parse().map_err(|_| {
        Error::Usage(format!(
            "there is no user '{text}': give a name or a number"
        ))
    })
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;
    use hpmmap_sys::uapi::{LimitEntry, PromiseEntry};

    use super::*;

    fn request(user: Option<&str>, size: Limit) -> Result<Request> {
        Request::new(&PoolLimitArgs {
            user: user.map(str::to_string),
            default: user.is_none(),
            size: Some(size),
            ..Default::default()
        })
    }

    #[test]
    fn users_by_name_and_by_number() {
        assert_eq!(find_user("root").unwrap(), 0);
        assert_eq!(find_user("12345678").unwrap(), 12_345_678);
        let error = find_user("no such user").unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no user 'no such user': give a name or a number"
        );
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn limits_are_multiples_of_two_megabytes() {
        let limit = |text: &str| Limit::Size(text.parse().unwrap());
        let right = request(Some("root"), limit("4M")).unwrap();
        assert_eq!(right.to_string(), "limit of user root: 4M");
        let wrong = request(None, limit("3M")).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "3M is not a multiple of the block size 2M: use 2M or 4M"
        );
        let nothing = request(Some("root"), limit("0")).unwrap();
        assert_eq!(nothing.to_string(), "limit of user root: 0");
        for (few, meant) in [("50", "50% or 50G"), ("1", "1% or 1G")] {
            let wrong = request(None, limit(few)).unwrap_err().to_string();
            assert_eq!(
                wrong,
                format!("{few} is {few} bytes: did you mean {meant}?")
            );
        }
    }

    #[test]
    fn no_limit_for_everybody() {
        let right = request(None, Limit::None).unwrap();
        assert_eq!(
            (&right.who, right.rule),
            (&Who::Default, Some(LimitRule::None))
        );
        assert_eq!(right.to_string(), "default limit of every user: none");
        assert_eq!(request(None, Limit::Default).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn lines_of_the_file() {
        let parse = |line| Request::parse(line).map(|one| one.map(|one| one.to_string()));
        for nothing in ["", "  ", "# user root 4M"] {
            assert_eq!(parse(nothing).unwrap(), None);
        }
        for (line, says) in [
            ("user root 8G", "limit of user root: 8G"),
            (
                " cgroup\t/system.slice/slurmstepd.scope/job_7 16G # a batch job",
                "limit of cgroup /system.slice/slurmstepd.scope/job_7: 16G",
            ),
            (
                "default 50%",
                "default limit of every user: 50% of all pool memory",
            ),
            (
                "user 12345678 default",
                "limit of user 12345678: none of its own",
            ),
            (
                "user root 8G min=0:2G,1:2G",
                "promised to user root: 2G of NUMA node 0, 2G of NUMA node 1; limit of user root: 8G",
            ),
            ("cgroup /a min=2G", "promised to cgroup /a: 2G"),
        ] {
            assert_eq!(parse(line).unwrap().as_deref(), Some(says));
        }
        for (line, says) in [
            ("groups users 8G", "is not 'user NAME SIZE'"),
            ("user root", "is not 'user NAME SIZE'"),
            ("group users", "is not 'user NAME SIZE'"),
            ("user nobody-there 8G", "there is no user"),
            ("default 101%", "not between 1% and 100%"),
            ("default much", "expected bytes"),
            ("default 1M", "1M is not a multiple"),
            ("default 50", "50 is 50 bytes: did you mean 50% or 50G?"),
            (
                "group users 8G min=2G",
                "for a user or cgroup 'min=SIZE' may follow",
            ),
            ("default min=2G", "is not 'user NAME SIZE'"),
            ("user root min=3M", "3M is not a multiple"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn a_promise_beyond_the_limit_is_told() {
        let root = Fixture::new().root();
        let request = Request::parse("user 12345678 min=8M").unwrap().unwrap();
        let default = LimitEntry {
            flags: uapi::LIMIT_F_DEFAULT,
            limit_bytes: 4 << 20,
            ..Default::default()
        };
        let limits = [Reported::new(&root, &default)];
        assert_eq!(
            request.bounded(&limits).unwrap(),
            "8M are promised, but the default limit of every user (4M) is lower: raise it with --size"
        );
        let promised = Promised::new(
            &root,
            &PromiseEntry {
                uid: 12_345_678,
                promised_bytes: 8 << 20,
                ..Default::default()
            },
        );
        assert!(request.holds(&limits, std::slice::from_ref(&promised)));
        assert!(!request.holds(&limits, &[]));
    }
}
