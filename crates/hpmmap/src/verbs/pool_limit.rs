//! `hpmmap pool limit`

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
use nix::unistd::{Uid, User};
use serde::Serialize;

use crate::cli::{Limit, PoolLimitArgs, parse_limit};
use crate::device;

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
    request.apply(&root, &device::open()?)?;
    print(&request.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Whose limit it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Who {
    Default,
    User(u32),
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
            Limit::Size(size) => {
                multiple_of(size, uapi::BLOCK_BYTES, "the unit")?;
                LimitRule::Bytes(size.0)
            }
        };
        Ok(Self { who, rule })
    }

    /// A line of the file; `None` for one that says nothing.
    fn parse(line: &str) -> Result<Option<Self>> {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (who, size) = match words[..] {
            [] => return Ok(None),
            ["user", name, size] => (Who::User(find_user(name)?), size),
            ["cgroup", path, size] => (Who::Cgroup(path.to_string()), size),
            ["default", size] => (Who::Default, size),
            _ => {
                return Err(Error::Usage(format!(
                    "'{}' is not 'user NAME SIZE', 'cgroup PATH SIZE' or 'default SIZE'",
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
            Who::Cgroup(path) => {
                let name = one.name.as_deref().map(|name| name.trim_matches('/'));
                let path = path.trim_matches('/');
                let below = path.strip_prefix("sys/fs/cgroup/").unwrap_or(path);
                one.kind == "cgroup" && name == Some(below)
            }
        }
    }

    /// Whether this is what was set.
    fn is(&self, one: &Reported) -> bool {
        let rule = match self.rule {
            LimitRule::Bytes(bytes) => Some(Size(bytes).to_string()),
            LimitRule::Percent(percent) => Some(format!("{percent}%")),
            LimitRule::None => Some("none".into()),
            LimitRule::Inherit => None,
        };
        self.is_of(one) && one.rule == rule
    }

    /// Who has nothing of his own need not be in the list.
    fn is_by_itself(&self, limits: &[Reported]) -> bool {
        self.rule == LimitRule::Inherit && !limits.iter().any(|one| self.is_of(one))
    }

    fn apply(&self, root: &Root, device: &Device) -> Result<()> {
        let who = match &self.who {
            Who::Default => LimitOf::Default,
            Who::User(uid) => LimitOf::User(*uid),
            Who::Cgroup(path) => LimitOf::Cgroup(open_cgroup(root, path)?),
        };
        device
            .limit_set(&who, self.rule)
            .map_err(|errno| match (errno, &self.who) {
                (Errno::EPERM, _) => Error::NoPermission {
                    what: "to set limits".into(),
                    hint: "only root may (CAP_SYS_ADMIN)".into(),
                },
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

/// Sets the limits of a file: as many as can be.
fn load(root: &Root, path: &Path) -> Result<ExitCode> {
    let content = fs::read_to_string(path)
        .map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
    let device = device::open()?;
    let mut status = ExitCode::SUCCESS;
    for (line, number) in content.lines().zip(1..) {
        let done = Request::parse(line).and_then(|request| {
            request.map_or(Ok(()), |request| {
                request.apply(root, &device)?;
                print(&request.to_string())?;
                Ok(())
            })
        });
        if let Err(error) = done {
            warn(&format!("{}, line {number}: {error}", path.display()));
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

/// The lines of the file of limits that do not hold; `None` if that cannot be known.
pub fn unmet(root: &Root) -> Option<Vec<String>> {
    // Others see only their own.
    if !root.is_live() || !Uid::effective().is_root() {
        return None;
    }
    let content = root.read("etc/hpmmap/limits").ok()?;
    let limits = list(root, &device::open().ok()?).ok()?;
    Some(unmet_lines(&content, &limits))
}

fn unmet_lines(content: &str, limits: &[Reported]) -> Vec<String> {
    let mut lines: Vec<(Option<Who>, bool, String)> = Vec::new();
    for (line, number) in content.lines().zip(1..) {
        let text = || {
            format!(
                "line {number} ({})",
                line.split('#').next().unwrap_or_default().trim()
            )
        };
        match Request::parse(line) {
            Ok(None) => {}
            Ok(Some(request)) => {
                // The last one is what holds.
                lines.retain(|(who, ..)| who.as_ref() != Some(&request.who));
                let holds =
                    limits.iter().any(|one| request.is(one)) || request.is_by_itself(limits);
                lines.push((Some(request.who), holds, text()));
            }
            Err(_) => lines.push((None, false, text())),
        }
    }
    lines
        .into_iter()
        .filter(|(_, holds, _)| !holds)
        .map(|(.., text)| text)
        .collect()
}

/// One limit, as it is reported.
/// As it is printed.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    limits: &'a [Reported],
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Reported {
    /// "default", "user" or "cgroup".
    kind: &'static str,
    uid: Option<u32>,
    /// Name of the user, or path of the cgroup unless it is gone.
    name: Option<String>,
    cgroup_id: Option<u64>,
    /// What was set, as it can be set; `None`: nothing.
    rule: Option<String>,
    /// What follows from it now; `None`: no limit.
    limit_bytes: Option<u64>,
    held_bytes: u64,
}

impl Reported {
    fn new(root: &Root, entry: &LimitEntry) -> Self {
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

    /// Whether less than a block is left.
    pub fn is_full(&self) -> bool {
        self.kind != "default"
            && self
                .limit_bytes
                .is_some_and(|limit| self.held_bytes + uapi::BLOCK_BYTES > limit)
    }
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

/// The limits that concern this user; to root, all of them.
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

/// A name goes before a number, as in chown(1).
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
        assert!(wrong.to_string().ends_with("use 2M or 4M"), "{wrong}");
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
                " cgroup\t/slurm 16G # all jobs",
                "limit of cgroup /slurm: 16G",
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
            ("group users 8G", "is not 'user NAME SIZE'"),
            ("user root", "is not 'user NAME SIZE'"),
            ("user nobody-there 8G", "there is no user"),
            ("default 101%", "not between 1% and 100%"),
            ("default much", "expected bytes"),
            ("default 1M", "2M"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn lines_that_do_not_hold_are_named() {
        let fixture = Fixture::new();
        let root = fixture.root();
        let entry = |flags, uid, rule| LimitEntry {
            flags,
            uid,
            rule,
            ..Default::default()
        };
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
        assert_eq!(unmet_lines(holds, &limits), Vec::<String>::new());
        let lacks = "default 40%\nuser nobody-there 4M # comes later\nuser 12345678 default\n\
                     user 12345680 4M\ncgroup /slurm 4M\ncgroup /slurm/one 4M\n";
        let lines = unmet_lines(lacks, &limits);
        assert_eq!(lines.len(), 6, "{lines:?}");
        assert_eq!(lines[1], "line 2 (user nobody-there 4M)");
    }

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
}
