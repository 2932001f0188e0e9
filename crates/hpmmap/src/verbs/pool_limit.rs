//! `hpmmap pool limit`

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::process::ExitCode;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::Column::{Number, Text};
use hpmmap_base::output::{print, print_versioned, table, warn};
use hpmmap_base::size::{Size, multiple_of, short};
use hpmmap_base::user_name;
use hpmmap_host::{Root, cgroup};
use hpmmap_sys::uapi::{self, LimitEntry};
use hpmmap_sys::{Device, Errno, LimitOf, LimitRule};
use nix::unistd::{Group, Uid, User};
use serde::Serialize;

use crate::cli::{Limit, PoolLimitArgs, parse_limit};
use crate::device;
use crate::limits::{Reported, list};

pub fn perform(args: &PoolLimitArgs) -> Result<ExitCode> {
    let root = Root::default();
    if args.list {
        let limits = list(&root, &device::open()?)?;
        match args.json {
            true => print_versioned(1, &Listed { limits: &limits })?,
            false => print(&text(&limits))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &args.load {
        return load(&root, path);
    }
    let request = Request::new(args)?;
    request.apply(&root, &device::open_as_root("to set limits")?)?;
    print(&request.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// The module's own default in percent.
const DEFAULT_PERCENT: u8 = 50;

/// The subject of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Who {
    Default,
    User(u32),
    /// Each member of the group; only in a file.
    Group(String),
    Cgroup(String),
}

/// A checked request.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    who: Who,
    rule: LimitRule,
}

impl Request {
    fn new(args: &PoolLimitArgs) -> Result<Self> {
        let who = match (&args.user, &args.cgroup) {
            (Some(user), _) => Who::User(find_user(user)?),
            (_, Some(path)) => Who::Cgroup(path.clone()),
            _ => Who::Default,
        };
        let limit = args
            .size
            .ok_or_else(|| Error::Usage("--size is missing".into()))?;
        Self::checked(who, limit)
    }

    fn checked(who: Who, limit: Limit) -> Result<Self> {
        let rule = match limit {
            Limit::None => LimitRule::None,
            Limit::Default if who == Who::Default => {
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
        };
        Ok(Self { who, rule })
    }

    /// Parses a line of the file; `None` for an empty one.
    fn parse(line: &str) -> Result<Option<Self>> {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (who, size) = match words[..] {
            [] => return Ok(None),
            ["user", name, size] => (Who::User(find_user(name)?), size),
            ["group", name, size] => (Who::Group(name.to_string()), size),
            ["cgroup", path, size] => (Who::Cgroup(path.to_string()), size),
            ["default", size] => (Who::Default, size),
            _ => {
                return Err(Error::Usage(format!(
                    "'{}' is not 'user NAME SIZE', 'group NAME SIZE', 'cgroup PATH SIZE' or 'default SIZE'",
                    line.trim()
                )));
            }
        };
        Self::checked(who, parse_limit(size).map_err(Error::Usage)?).map(Some)
    }

    fn is_of(&self, one: &Reported) -> bool {
        match &self.who {
            Who::Default => one.kind == "default",
            Who::User(uid) => one.uid == Some(*uid),
            // The members are in the list instead.
            Who::Group(_) => false,
            Who::Cgroup(path) => {
                let name = one.name.as_deref().map(|name| name.trim_matches('/'));
                let path = path.trim_matches('/');
                let below = path.strip_prefix("sys/fs/cgroup/").unwrap_or(path);
                one.kind == "cgroup" && name == Some(below)
            }
        }
    }

    /// Is this limit in force? A subject without a limit of its own need not be in the list.
    fn holds(&self, limits: &[Reported]) -> bool {
        let rule = match self.rule {
            LimitRule::Bytes(bytes) => Some(Size(bytes).to_string()),
            LimitRule::Percent(percent) => Some(format!("{percent}%")),
            LimitRule::None => Some("none".into()),
            LimitRule::Inherit => None,
        };
        match limits.iter().find(|one| self.is_of(one)) {
            Some(one) => one.rule == rule,
            None => self.rule == LimitRule::Inherit,
        }
    }

    fn user(&self) -> Option<u32> {
        match self.who {
            Who::User(uid) => Some(uid),
            _ => None,
        }
    }

    fn apply(&self, root: &Root, device: &Device) -> Result<()> {
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
        device
            .limit_set(&who, self.rule)
            .map_err(|errno| match (errno, &self.who) {
                (Errno::EPERM, _) => device::only_root("to set limits"),
                (Errno::EBADF | Errno::ENOENT, Who::Cgroup(path)) => Error::Failed(format!(
                    "{path} is no cgroup of the unified hierarchy (version 2)"
                )),
                (Errno::EINVAL, Who::Cgroup(path)) => Error::Failed(format!(
                    "{path} is the root of all cgroups: it can have no limit"
                )),
                (other, _) => Error::Failed(format!("cannot set the limit: {}", other.desc())),
            })
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            Who::User(uid) => write!(f, "limit of user {}: ", user_name(*uid))?,
            Who::Group(name) => write!(f, "limit of each user of group {name}: ")?,
            Who::Cgroup(path) => write!(f, "limit of cgroup {path}: ")?,
            Who::Default => write!(f, "default limit of every user: ")?,
        }
        match self.rule {
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

/// The requests of a file, with the numbers of their lines.
#[derive(Debug, Default)]
struct Limits {
    requests: Vec<(usize, Request)>,
    wrong: Vec<(usize, Error)>,
}

impl Limits {
    fn parse(root: &Root, text: &str) -> Self {
        let mut limits = Self::default();
        for (line, number) in text.lines().zip(1..) {
            match Request::parse(line) {
                Ok(request) => limits.requests.extend(request.map(|one| (number, one))),
                Err(error) => limits.wrong.push((number, error)),
            }
        }
        limits.expand(root);
        limits
    }

    /// Replaces groups by their users. A user's own line takes precedence; of several groups the
    /// first one counts.
    fn expand(&mut self, root: &Root) {
        let mut known: HashSet<u32> = self
            .requests
            .iter()
            .filter_map(|(_, request)| request.user())
            .collect();
        for (number, request) in std::mem::take(&mut self.requests) {
            let Who::Group(name) = &request.who else {
                self.requests.push((number, request));
                continue;
            };
            match members(root, name) {
                Ok(uids) => {
                    for uid in uids.into_iter().filter(|uid| known.insert(*uid)) {
                        let (who, rule) = (Who::User(uid), request.rule);
                        self.requests.push((number, Request { who, rule }));
                    }
                }
                Err(error) => self.wrong.push((number, error)),
            }
        }
    }

    /// The requests that follow from missing lines: a user without a line has no limit of their
    /// own, and without a line the default is the module's. Not while a line is wrong, which may
    /// have meant them, and not for cgroups, whose limits other programs set.
    fn unsaid(&self, entries: &[LimitEntry]) -> Vec<Request> {
        if !self.wrong.is_empty() {
            return Vec::new();
        }
        let says = |who: &Who| self.requests.iter().any(|(_, one)| one.who == *who);
        let mut unsaid = Vec::new();
        for entry in entries {
            let default = entry.flags & uapi::LIMIT_F_DEFAULT != 0;
            let percent = entry.flags & uapi::LIMIT_F_PERCENT != 0;
            let (who, rule, as_it_is) = match default {
                true => (
                    Who::Default,
                    LimitRule::Percent(DEFAULT_PERCENT),
                    percent && entry.rule == u64::from(DEFAULT_PERCENT),
                ),
                false => (
                    Who::User(entry.uid),
                    LimitRule::Inherit,
                    entry.rule == uapi::LIMIT_INHERIT,
                ),
            };
            if entry.flags & uapi::LIMIT_F_CGROUP == 0 && !as_it_is && !says(&who) {
                unsaid.push(Request { who, rule });
            }
        }
        unsaid
    }
}

/// The lines of the file of limits that do not hold; `None` if that cannot be known.
pub fn unmet(root: &Root) -> Option<Vec<String>> {
    // Other users see only their own limits.
    if !root.is_live() || !Uid::effective().is_root() {
        return None;
    }
    let content = root.read("etc/hpmmap/limits").ok()?;
    let limits = list(root, &device::open().ok()?).ok()?;
    Some(unmet_lines(root, &content, &limits))
}

fn unmet_lines(root: &Root, content: &str, limits: &[Reported]) -> Vec<String> {
    let said = Limits::parse(root, content);
    let mut numbers: BTreeSet<usize> = said.wrong.iter().map(|(number, _)| *number).collect();
    for (at, (number, request)) in said.requests.iter().enumerate() {
        // The last line for a subject counts.
        let replaced = said.requests[at + 1..]
            .iter()
            .any(|(_, later)| later.who == request.who);
        if !replaced && !request.holds(limits) {
            numbers.insert(*number);
        }
    }
    let text = |number: usize| {
        let line = content.lines().nth(number - 1).unwrap_or_default();
        let text = line.split('#').next().unwrap_or_default().trim();
        format!("line {number} ({text})")
    };
    numbers.into_iter().map(text).collect()
}

/// The users of a group: its members, and the users of /etc/passwd with this primary group.
fn members(root: &Root, name: &str) -> Result<Vec<u32>> {
    let group = Group::from_name(name)
        .ok()
        .flatten()
        .ok_or_else(|| Error::Usage(format!("there is no group '{name}'")))?;
    let mut uids: Vec<u32> = group
        .mem
        .iter()
        .filter_map(|user| User::from_name(user).ok().flatten())
        .map(|user| user.uid.as_raw())
        .collect();
    uids.extend(first_members(
        &root.read("etc/passwd").unwrap_or_default(),
        group.gid.as_raw(),
    ));
    Ok(uids)
}

fn first_members(passwd: &str, gid: u32) -> impl Iterator<Item = u32> {
    passwd.lines().filter_map(move |line| {
        let mut fields = line.split(':').skip(2);
        let uid = fields.next()?.parse().ok()?;
        (fields.next()?.parse() == Ok(gid)).then_some(uid)
    })
}

/// Sets the limits of a file, as far as possible.
fn load(root: &Root, path: &Path) -> Result<ExitCode> {
    let content = fs::read_to_string(path)
        .map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
    let limits = Limits::parse(root, &content);
    let mut status = ExitCode::SUCCESS;
    let mut refuse = |number: usize, error: &Error| {
        warn(&format!("{}:{number}: {error}", path.display()));
        status = ExitCode::FAILURE;
    };
    for (number, error) in &limits.wrong {
        refuse(*number, error);
    }
    // An empty file changes nothing and needs no module.
    if !limits.requests.is_empty() {
        let device = device::open_as_root("to set limits")?;
        let entries = device
            .limit_list()
            .map_err(|errno| Error::Failed(format!("cannot read the limits: {}", errno.desc())))?;
        for request in limits.unsaid(&entries) {
            request.apply(root, &device)?;
            print(&request.to_string())?;
        }
        for (number, request) in &limits.requests {
            match request.apply(root, &device) {
                Ok(()) => print(&request.to_string())?,
                Err(error) => refuse(*number, &error),
            }
        }
    }
    Ok(status)
}

/// The printed form.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    limits: &'a [Reported],
}

fn text(limits: &[Reported]) -> String {
    table(
        &[
            Text("WHO"),
            Text("NAME"),
            Text("SET"),
            Number("LIMIT"),
            Number("HELD"),
        ],
        limits.iter().map(|one| {
            vec![
                one.kind.to_string(),
                match one.kind {
                    "default" => "-".to_string(),
                    _ => one.name.clone().unwrap_or_else(|| "(gone)".into()),
                },
                one.rule.clone().unwrap_or_else(|| "-".into()),
                one.limit_bytes.map_or_else(|| "none".into(), short),
                match one.kind {
                    "default" => "-".to_string(),
                    _ => short(one.held_bytes),
                },
            ]
        }),
    )
}

/// A name takes precedence over a number, as in chown(1).
fn find_user(text: &str) -> Result<u32> {
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
    fn the_lockdown_of_a_batch_system_is_read() {
        let fixture = Fixture::new();
        let limits = Limits::parse(
            &fixture.root(),
            "default none\ncgroup /user.slice 0\ncgroup /system.slice/cron.service 0\n",
        );
        assert!(limits.wrong.is_empty(), "{:?}", limits.wrong);
        assert_eq!(
            said(&limits),
            [
                (1, "default limit of every user: none".to_string()),
                (2, "limit of cgroup /user.slice: 0".to_string()),
                (
                    3,
                    "limit of cgroup /system.slice/cron.service: 0".to_string()
                ),
            ]
        );
        // The module reports this for a limit that holds.
        let nothing = entry(uapi::LIMIT_F_CGROUP, 0, 0);
        let mut limits = [Reported::new(&fixture.root(), &nothing)];
        limits[0].name = Some("/user.slice".into());
        let lines = unmet_lines(&fixture.root(), "cgroup /user.slice 0\n", &limits);
        assert_eq!(lines, [""; 0]);
        assert!(limits[0].is_full());
    }

    #[test]
    fn no_limit_for_everybody() {
        let right = request(None, Limit::None).unwrap();
        assert_eq!((&right.who, right.rule), (&Who::Default, LimitRule::None));
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
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    fn said(limits: &Limits) -> Vec<(usize, String)> {
        let text = |(number, request): &(usize, Request)| (*number, request.to_string());
        limits.requests.iter().map(text).collect()
    }

    #[test]
    fn lines_that_do_not_hold_are_named() {
        let fixture = Fixture::new();
        let root = fixture.root();
        let mut limits: Vec<Reported> = [
            entry(uapi::LIMIT_F_DEFAULT | uapi::LIMIT_F_PERCENT, 0, 50),
            entry(0, 12_345_678, 4 << 20),
            entry(0, 12_345_679, uapi::LIMIT_INHERIT),
            entry(uapi::LIMIT_F_CGROUP, 0, uapi::LIMIT_NONE),
        ]
        .iter()
        .map(|entry| Reported::new(&root, entry))
        .collect();
        limits[3].name = Some("/slurm/one".into());
        let holds = "# nothing\ndefault 50%\nuser 12345678 8M\nuser 12345678 4M\nuser 12345679 default\n\
                     user 12345680 default\ncgroup /slurm/one none\ncgroup /sys/fs/cgroup/slurm/one none\n";
        assert_eq!(unmet_lines(&root, holds, &limits), Vec::<String>::new());
        let lacks = "default 40%\nuser nobody-there 4M # comes later\nuser 12345678 default\n\
                     user 12345680 4M\ncgroup /slurm 4M\ncgroup /slurm/one 4M\n";
        let lines = unmet_lines(&root, lacks, &limits);
        assert_eq!(lines.len(), 6, "{lines:?}");
        assert_eq!(lines[1], "line 2 (user nobody-there 4M)");
    }

    #[test]
    fn a_group_is_each_of_its_users() {
        let fixture = Fixture::new();
        fixture.write(
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\nbroken\na:x:4000000001:0:::\nb:x:4000000002:1:::\n",
        );
        let limits = Limits::parse(&fixture.root(), "group root 8G\nuser 4000000001 4G\n");
        assert_eq!(
            said(&limits),
            [
                (1, "limit of user root: 8G".to_string()),
                (2, "limit of user 4000000001: 4G".to_string()),
            ]
        );
        let limits = Limits::parse(&fixture.root(), "\ngroup nobody-there 8G\n");
        assert_eq!(limits.wrong[0].0, 2);
        assert_eq!(
            limits.wrong[0].1.to_string(),
            "there is no group 'nobody-there'"
        );
    }

    fn entry(flags: u32, uid: u32, rule: u64) -> LimitEntry {
        LimitEntry {
            flags,
            uid,
            rule,
            ..Default::default()
        }
    }

    #[test]
    fn what_a_file_does_not_say_is_as_if_it_had_never_been_said() {
        let root = Fixture::new().root();
        let entries = [
            entry(uapi::LIMIT_F_DEFAULT, 0, 8 << 30),
            entry(0, 1, 8 << 30),
            entry(0, 2, 8 << 30),
            entry(0, 3, uapi::LIMIT_INHERIT),
            entry(uapi::LIMIT_F_CGROUP, 0, 8 << 30),
        ];
        let unsaid = |text: &str| -> Vec<String> {
            let limits = Limits::parse(&root, text);
            let requests = limits.unsaid(&entries);
            requests.iter().map(ToString::to_string).collect()
        };
        let default = "default limit of every user: 50% of all pool memory";
        let no_one = format!("limit of user {}: none of its own", user_name(2));
        assert_eq!(unsaid("user 1 4G\n"), [default, &no_one]);
        assert_eq!(unsaid("user 1 4G\ndefault 100%\n"), [no_one]);
        assert!(unsaid("user 1 4G\nuser nobody-there 4G\n").is_empty());
        let as_it_is = [entry(uapi::LIMIT_F_DEFAULT | uapi::LIMIT_F_PERCENT, 0, 50)];
        assert!(
            Limits::parse(&root, "user 1 4G\n")
                .unsaid(&as_it_is)
                .is_empty()
        );
    }
}
