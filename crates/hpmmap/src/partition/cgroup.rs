//! The cgroup of a partition.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use hpmmap_base::error::{Error, Result};
use hpmmap_host::{Root, cgroup};

use super::machine::{Cpus, Machine, format_cpus, parse_cpus};
use super::record::Partition;

/// systemd makes a cgroup soon after it has said so.
const LOOKS: u32 = 100;
const LOOK: Duration = Duration::from_millis(50);

/// The most levels below a partition: a name has 255 bytes at most, and its path must stay shorter than PATH_MAX.
const DEPTH: &str = "8";

/// The files that a cgroup's user owns, as systemd delegates.
const DELEGATED: [&str; 4] = [
    "",
    "/cgroup.procs",
    "/cgroup.threads",
    "/cgroup.subtree_control",
];

/// The mount point of the hierarchy, relative to the root.
pub fn mount(root: &Root) -> Result<String> {
    let error = || {
        Error::Failed(
            "a partition needs the cpuset controller of cgroups of version 2: see \
             /sys/fs/cgroup/cgroup.controllers, and boot without \
             systemd.unified_cgroup_hierarchy=0 and cgroup_disable=cpuset"
                .into(),
        )
    };
    let mount = cgroup::mount(root).ok_or_else(error)?;
    let mount = mount.strip_prefix(root.join("")).map_err(|_| error())?;
    let mount = mount.display().to_string();
    let controllers = root.read(format!("{mount}/cgroup.controllers"))?;
    match controllers.split(' ').any(|name| name == "cpuset") {
        true => Ok(mount),
        false => Err(error()),
    }
}

/// Makes the cgroup, which has its CPUs but shares them.
pub fn make(machine: &impl Machine, one: &Partition) -> Result<()> {
    let cpus = format_cpus(&one.cpus);
    if one.systemd {
        start_slice(machine, one, &one.units()[0], &one.cgroup)?;
    } else if !one.adopted {
        machine
            .make_dir(&one.cgroup)
            .map_err(|error| Error::Failed(format!("cannot make /{}: {error}", one.cgroup)))?;
    }
    set(machine, one, "cpuset.cpus", &cpus)?;
    if one.is_remote() {
        set(machine, one, "cpuset.cpus.exclusive", &cpus)?;
    }
    if let Some(node) = one.node {
        set(machine, one, "cpuset.mems", &node.to_string())?;
    }
    Ok(())
}

/// Makes the cgroup a partition of this kind, which takes its CPUs from all others.
pub fn become_partition(machine: &impl Machine, one: &Partition, kind: &str) -> Result<()> {
    set(machine, one, "cpuset.cpus.partition", kind)?;
    match state(machine.root(), one) {
        Some(state) if state == kind => Ok(()),
        Some(state) => Err(Error::Failed(format!(
            "the kernel makes no partition of CPUs {}: it says '{state}' in \
             /{}/cpuset.cpus.partition",
            format_cpus(&one.cpus),
            one.cgroup
        ))),
        None => Err(Error::Failed(format!("/{} is gone", one.cgroup))),
    }
}

/// The CPUs of a cgroup that is to become a partition; the error tells why it cannot.
pub fn own_cpus(root: &Root, dir: &str) -> Result<Cpus> {
    let name = dir.rsplit_once("/cgroup").map_or(dir, |(_, name)| name);
    let refused = |why: String| Error::Failed(format!("--of-cgroup {name}: {why}"));
    let value = |file: &str| root.read(format!("{dir}/{file}"));
    let Ok(text) = value("cpuset.cpus") else {
        let why = "the cgroup above it does not have the controller cpuset on";
        return Err(refused(why.into()));
    };
    let cpus = parse_cpus(&text).unwrap_or_default();
    if cpus.is_empty() {
        return Err(refused(
            "the cgroup has no CPUs of its own (for Slurm: ConstrainCores=yes in cgroup.conf)"
                .into(),
        ));
    }
    if value("cpuset.cpus.exclusive").is_ok_and(|text| !text.is_empty()) {
        return Err(refused(
            "it has cpuset.cpus.exclusive of another program".into(),
        ));
    }
    for cpu in &cpus {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings = root.read(path).ok().as_deref().and_then(parse_cpus);
        let outside = &siblings.unwrap_or_default() - &cpus;
        if !outside.is_empty() {
            return Err(refused(format!(
                "it has a part of a core only: CPU {cpu} shares its core with CPUs {}",
                format_cpus(&outside)
            )));
        }
    }
    Ok(cpus)
}

/// Has the owner of the cgroup ended it? Another one may have its path by now.
pub fn is_ended(root: &Root, one: &Partition) -> bool {
    one.adopted && state(root, one).is_none_or(|state| state == "member")
}

/// Makes the cgroup of another owner what it was, unless it is gone.
fn release(machine: &impl Machine, one: &Partition) -> Result<()> {
    for (file, value) in [("partition", "member"), ("exclusive", "")] {
        let path = format!("{}/cpuset.cpus.{file}", one.cgroup);
        let is_due = |root: &Root| root.read(&path).is_ok_and(|present| present != value);
        if !is_due(machine.root()) {
            continue;
        }
        match machine.write(&path, value) {
            Err(error) if is_due(machine.root()) => {
                let text = format!("cannot write '{value}' to /{path}: {error}");
                return Err(Error::Failed(text));
            }
            _ => (),
        }
    }
    Ok(())
}

/// Makes room for programs in it, and gives it to its user.
pub fn open(machine: &impl Machine, one: &Partition) -> Result<()> {
    if one.adopted {
        return Ok(());
    }
    let tasks = one.tasks();
    if one.systemd {
        start_slice(machine, one, &tasks, &format!("{}/{tasks}", one.cgroup))?;
    }
    set(machine, one, "cgroup.subtree_control", "+cpuset")?;
    set(machine, one, "cgroup.max.depth", DEPTH)?;
    child(machine, one, &tasks)?;
    one.user
        .map_or(Ok(()), |user| give(machine, &one.cgroup, user))
}

/// The kernel's word for the state of the partition, with its reason if it has become none; `None`
/// if the cgroup is gone.
pub fn state(root: &Root, one: &Partition) -> Option<String> {
    root.read(format!("{}/cpuset.cpus.partition", one.cgroup))
        .ok()
}

/// Finds or makes a cgroup in the partition, and returns its path.
pub fn child(machine: &impl Machine, one: &Partition, name: &str) -> Result<String> {
    let path = format!("{}/{name}", one.cgroup);
    machine
        .make_dir(&path)
        .map_err(|error| Error::Failed(format!("cannot make /{path}: {error}")))?;
    one.user.map_or(Ok(()), |user| give(machine, &path, user))?;
    Ok(path)
}

fn give(machine: &impl Machine, dir: &str, user: u32) -> Result<()> {
    for file in DELEGATED {
        let path = format!("{dir}{file}");
        machine
            .give(path.as_ref(), user)
            .map_err(|error| Error::Failed(format!("cannot give /{path} to the user: {error}")))?;
    }
    Ok(())
}

/// Writes a file of the cgroup if it has another value.
pub fn set(machine: &impl Machine, one: &Partition, file: &str, value: &str) -> Result<()> {
    let path = format!("{}/{file}", one.cgroup);
    let present = machine.root().read(&path)?;
    let word = value.trim_start_matches('+');
    if present == value || (word != value && present.split(' ').any(|name| name == word)) {
        return Ok(());
    }
    machine
        .write(&path, value)
        .map_err(|error| Error::Failed(format!("cannot write '{value}' to /{path}: {error}")))
}

/// systemd makes the cgroup and sets its CPUs: it would undo what others do to its tree.
fn start_slice(machine: &impl Machine, one: &Partition, unit: &str, dir: &str) -> Result<()> {
    let bytes = mask_bytes(&one.cpus);
    let nodes = one.node.map(|node| mask_bytes(&Cpus::from([node])));
    let mut words: Vec<String> = [
        "busctl",
        "call",
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
        "org.freedesktop.systemd1.Manager",
        "StartTransientUnit",
        "ssa(sv)a(sa(sv))",
        unit,
        "fail",
        if nodes.is_some() { "3" } else { "2" },
        "Description",
        "s",
        &format!("Partition {} of hpmmap", one.name),
    ]
    .map(str::to_string)
    .to_vec();
    let mut add = |name: &str, bytes: &[u8]| {
        words.extend([name.into(), "ay".into(), bytes.len().to_string()]);
        words.extend(bytes.iter().map(ToString::to_string));
    };
    add("AllowedCPUs", &bytes);
    nodes
        .iter()
        .for_each(|nodes| add("AllowedMemoryNodes", nodes));
    words.push("0".into());
    machine.run(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    let file = machine.root().join(dir).join("cpuset.cpus");
    for _ in 0..LOOKS {
        if file.exists() {
            return Ok(());
        }
        sleep(LOOK);
    }
    Err(Error::Failed(format!(
        "systemd has started {unit} without a cgroup with cpuset: see 'systemctl status {unit}'"
    )))
}

/// A set as systemd has it: bits of bytes.
fn mask_bytes(set: &Cpus) -> Vec<u8> {
    let mut bytes = vec![0u8; set.last().map_or(1, |last| *last as usize / 8 + 1)];
    for &number in set {
        bytes[number as usize / 8] |= 1 << (number % 8);
    }
    bytes
}

/// Removes the cgroup with all below it; the kernel gives its CPUs back. Fails if it has tasks.
pub fn remove(machine: &impl Machine, one: &Partition) -> Result<()> {
    if one.adopted {
        return release(machine, one);
    }
    let partition = Path::new(&one.cgroup);
    let tasks = partition.join(one.tasks());
    let removed = |path: &Path| {
        machine.remove_dir(path).map_err(|error| {
            let path = path.display();
            Error::Failed(format!("cannot remove /{path}: {error}"))
        })
    };
    // Its user makes no more of them from now on.
    let take_back = |path: &Path| {
        if one.user.is_some() {
            let _ = machine.give(path, 0);
        }
    };
    let below = below(machine.root(), partition, &take_back);
    let mut others = below.iter().filter(|path| **path != tasks);
    others.try_for_each(|path| removed(path))?;
    let mut stopped = Ok(());
    if one.systemd {
        let [partition, tasks] = one.units();
        stopped = machine.run(&["systemctl", "stop", &tasks, &partition]);
    }
    // systemd does not know units that a killed command has stopped already.
    removed(&tasks)
        .and_then(|()| removed(partition))
        .map_err(|error| stopped.err().unwrap_or(error))?;
    await_cpus(machine.root(), one);
    Ok(())
}

/// Waits until the CPUs of a removed cgroup are its parent's again, some seconds at most.
///
/// The kernel gives them back some time after rmdir(2), and resets affinities then: what is put
/// back before would be lost.
fn await_cpus(root: &Root, one: &Partition) {
    let parent = one.cgroup.rsplit_once('/').map_or("", |(parent, _)| parent);
    let path = format!("{parent}/cpuset.cpus.effective");
    for _ in 0..LOOKS {
        let effective = root.read(&path).ok().as_deref().and_then(parse_cpus);
        if effective.is_none_or(|cpus| one.cpus.is_subset(&cpus)) {
            break;
        }
        sleep(LOOK);
    }
}

/// The cgroups below one, each after those below it. `visit` is called for a cgroup before it is
/// looked into. Their names are whatever users like.
fn below(root: &Root, dir: &Path, visit: &dyn Fn(&Path)) -> Vec<PathBuf> {
    visit(dir);
    let entries = fs::read_dir(root.join(dir)).into_iter().flatten();
    let mut dirs: Vec<PathBuf> = entries
        .filter_map(|entry| Some(dir.join(entry.ok()?.file_name())))
        .filter(|path| root.join(path).is_dir())
        .collect();
    dirs.sort();
    let with_below = |path: PathBuf| {
        let mut all = below(root, &path, visit);
        all.push(path);
        all
    };
    dirs.into_iter().flat_map(with_below).collect()
}

/// The numbers of the processes in the partition.
pub fn processes(root: &Root, one: &Partition) -> Vec<u32> {
    processes_in(root, one.cgroup.as_ref())
}

/// The numbers of the processes in a cgroup and below it.
pub fn processes_in(root: &Root, dir: &Path) -> Vec<u32> {
    let mut dirs = below(root, dir, &|_| ());
    dirs.push(dir.into());
    dirs.iter()
        .flat_map(|dir| {
            let text = root.read(dir.join("cgroup.procs")).unwrap_or_default();
            let numbers = text.lines().filter_map(|line| line.parse().ok());
            numbers.collect::<Vec<_>>()
        })
        .collect()
}

/// The cgroups of all ranks that there are.
pub fn ranks(root: &Root, one: &Partition) -> Vec<String> {
    let numbers = root.numbered::<usize>(&one.cgroup, "rank_");
    let numbers = numbers.unwrap_or_default().into_iter();
    numbers.map(|index| rank(one, index)).collect()
}

/// The cgroup of a rank.
pub fn rank(one: &Partition, index: usize) -> String {
    format!("{}/rank_{index}", one.cgroup)
}

/// Removes the cgroups of ranks that have ended, and with them their promises, except one.
pub fn remove_ended_ranks(machine: &impl Machine, one: &Partition, except: &str) {
    let root = machine.root();
    for dir in ranks(root, one).iter().filter(|dir| *dir != except) {
        if processes_in(root, dir.as_ref()).is_empty() {
            let mut dirs = below(root, dir.as_ref(), &|_| ());
            dirs.push(dir.into());
            // The user may move a process there meanwhile: it stays then, with its promise.
            let _ = dirs.iter().try_for_each(|dir| machine.remove_dir(dir));
        }
    }
}

/// Has a cgroup beside those of partitions set CPUs of its own since it may? `path` is the file
/// with the controllers.
pub fn has_cpusets_below(root: &Root, path: &str) -> bool {
    let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
    let names = root.entries(dir).unwrap_or_default();
    names.iter().any(|name| {
        ["cpuset.cpus", "cpuset.mems"].iter().any(|file| {
            let set = root.read(format!("{dir}/{name}/{file}"));
            set.is_ok_and(|text| !text.is_empty())
        })
    })
}

/// A partition that was made by others and has one of these CPUs: its cgroup and its CPUs.
pub fn others(root: &Root, mount: &str, cpus: &Cpus) -> Option<(String, Cpus)> {
    let all = below(root, mount.as_ref(), &|_| ());
    all.into_iter().find_map(|dir| {
        let kind = root.read(dir.join("cpuset.cpus.partition")).ok()?;
        let has = root.read(dir.join("cpuset.cpus.effective")).ok()?;
        let has = parse_cpus(&has)?;
        let is_one = matches!(kind.as_str(), "root" | "isolated");
        let name = || format!("/{}", dir.strip_prefix(mount).unwrap_or(&dir).display());
        (is_one && !has.is_disjoint(cpus)).then(|| (name(), has))
    })
}
