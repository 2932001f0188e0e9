//! The file of limits, `/etc/hpmmap/limits`.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{print, warn};
use hpmmap_host::Root;
use hpmmap_sys::LimitRule;
use hpmmap_sys::uapi::{self, LimitEntry, PromiseEntry};
use nix::unistd::{Group, Uid, User};

use super::request::{Request, Who};
use crate::device;
use crate::limits::{Reported, list};
use crate::promise::{self, Promise, Promised};

/// The module's own default in percent.
const DEFAULT_PERCENT: u8 = 50;

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
                        let one = Request {
                            who: Who::User(uid),
                            rule: request.rule,
                            promise: None,
                        };
                        self.requests.push((number, one));
                    }
                }
                Err(error) => self.wrong.push((number, error)),
            }
        }
    }

    /// What the lines take from promises.
    fn lowered(&self, promises: &[Promised]) -> Vec<Request> {
        let requests = self.requests.iter();
        let lowered = requests.filter_map(|(_, request)| request.lowered(promises));
        lowered.collect()
    }

    /// The requests that follow from missing lines: a user without a line has no limit of their
    /// own, and without a line the default is the module's. Not while a line is wrong, which may
    /// have meant them, and not for cgroups, whose limits other programs set.
    fn unsaid(&self, entries: &[LimitEntry], promises: &[PromiseEntry]) -> Vec<Request> {
        if !self.wrong.is_empty() {
            return Vec::new();
        }
        let says = |who: &Who| {
            let of = |one: &(usize, Request)| one.1.who == *who && one.1.rule.is_some();
            self.requests.iter().any(of)
        };
        let mut unsaid = Vec::new();
        for entry in promises.iter().filter(|entry| entry.flags == 0) {
            let who = Who::User(entry.uid);
            let of = |one: &(usize, Request)| one.1.who == who && one.1.promise.is_some();
            let is_said = self.requests.iter().any(of);
            if !is_said && !unsaid.iter().any(|one: &Request| one.who == who) {
                unsaid.push(Request {
                    who,
                    rule: None,
                    promise: Some(Promise::default()),
                });
            }
        }
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
                unsaid.push(Request {
                    who,
                    rule: Some(rule),
                    promise: None,
                });
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
    let device = device::open().ok()?;
    let limits = list(root, &device).ok()?;
    let promises = promise::list(root, &device).ok()?;
    Some(unmet_lines(root, &content, &limits, &promises))
}

fn unmet_lines(
    root: &Root,
    content: &str,
    limits: &[Reported],
    promises: &[Promised],
) -> Vec<String> {
    let said = Limits::parse(root, content);
    let mut numbers: BTreeSet<usize> = said.wrong.iter().map(|(number, _)| *number).collect();
    for (at, (number, request)) in said.requests.iter().enumerate() {
        // The last line for a subject counts.
        let replaced = said.requests[at + 1..]
            .iter()
            .any(|(_, later)| later.who == request.who);
        if !replaced && !request.holds(limits, promises) {
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
pub(super) fn load(root: &Root, path: &Path) -> Result<ExitCode> {
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
        let promises = device.promise_list().unwrap_or_default();
        for request in limits.unsaid(&entries, &promises) {
            request.apply(root, &device)?;
            print(&request.to_string())?;
        }
        // Before any promise becomes more: a file that fits is not refused for the order of its lines.
        for request in limits.lowered(&promise::list(root, &device).unwrap_or_default()) {
            // Its line says so if it fails again.
            let _ = request.apply(root, &device);
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

#[cfg(test)]
mod tests {
    use hpmmap_base::user_name;
    use hpmmap_host::fixture::Fixture;

    use super::*;

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
        let lines = unmet_lines(&fixture.root(), "cgroup /user.slice 0\n", &limits, &[]);
        assert_eq!(lines, [""; 0]);
        assert!(limits[0].is_full());
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
        assert_eq!(
            unmet_lines(&root, holds, &limits, &[]),
            Vec::<String>::new()
        );
        let lacks = "default 40%\nuser nobody-there 4M # comes later\nuser 12345678 default\n\
                     user 12345680 4M\ncgroup /slurm 4M\ncgroup /slurm/one 4M\n";
        let lines = unmet_lines(&root, lacks, &limits, &[]);
        assert_eq!(lines.len(), 6, "{lines:?}");
        assert_eq!(lines[1], "line 2 (user nobody-there 4M)");
    }

    #[test]
    fn promises_that_become_less_come_first() {
        let root = Fixture::new().root();
        let promised = |flags, uid, node, promised_bytes| {
            let entry = PromiseEntry {
                flags,
                uid,
                node,
                promised_bytes,
                ..Default::default()
            };
            Promised::new(&root, &entry)
        };
        let mut promises = [
            promised(0, 12_345_678, 0, 4 << 20),
            promised(0, 12_345_679, 0, 8 << 20),
            promised(0, 12_345_680, 0, 2 << 20),
            promised(uapi::LIMIT_F_CGROUP, 0, 1, 8 << 20),
        ];
        promises[3].name = Some("/slurm".into());
        let text = "user 12345678 16M min=0:10M\nuser 12345679 min=0:2M\nuser 12345680 4M\n\
                    cgroup /slurm min=0:2M,1:4M\n";
        let lowered = Limits::parse(&root, text).lowered(&promises);
        let said: Vec<String> = lowered.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "promised to user 12345679: 2M of NUMA node 0",
                "promised to cgroup /slurm: 4M of NUMA node 1"
            ]
        );
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
            let requests = limits.unsaid(&entries, &[]);
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
                .unsaid(&as_it_is, &[])
                .is_empty()
        );
        let promised = |flags, uid| PromiseEntry {
            flags,
            uid,
            promised_bytes: 2 << 20,
            ..Default::default()
        };
        let promises = [
            promised(0, 12_345_678),
            promised(0, 12_345_679),
            promised(uapi::LIMIT_F_CGROUP, 0),
        ];
        let text = "user 12345678 min=2M\nuser 12345679 8M\n";
        let unsaid = Limits::parse(&root, text).unsaid(&as_it_is, &promises);
        let said: Vec<String> = unsaid.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["promised to user 12345679: none"]);
    }
}
