//! How a process comes into a partition.
//!
//! The kernel lets a process move into a cgroup only if it may write to the cgroups that it comes
//! from and goes to have in common: for a login and a partition that is the root, which is root's.
//! So root moves processes, and for the user of a partition hpmmap-partition.socket does.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::short;
use hpmmap_base::user_name;
use hpmmap_host::{Root, number_list};
use hpmmap_sys::uapi;
use nix::sys::socket::{MsgFlags, UnixCredentials, getsockopt, send, sockopt::PeerCredentials};
use nix::unistd::Uid;

use super::cgroup;
use super::machine::{Cpus, Machine, format_cpus};
use super::record::{self, Partition, Phase};

/// Where the service listens.
const SOCKET: &str = "/run/hpmmap/partition.socket";
/// The longest wait for its answer: it runs for 90 seconds at most.
const ANSWER: Duration = Duration::from_secs(100);
/// How long it is asked again if it ends without an answer.
const AGAIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);
/// How long the service waits for a request, which is sent at once.
const REQUEST: Duration = Duration::from_secs(2);
/// The longest request, a name and two numbers.
const MOST_REQUEST: usize = 256;

/// One of the ranks of this host, which has its part of the CPUs and of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    pub index: usize,
    pub of: usize,
}

/// Variables with the number of a rank on its host, and of the ranks there.
const RANKS: [(&str, &str); 6] = [
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
    ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    ("PMI_RANK", "PMI_SIZE"),
];

impl Rank {
    /// This process's, from the variables of MPI libraries and Slurm; without a number of ranks
    /// there are as many as CPUs.
    pub fn own(cpus: usize, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let found = RANKS
            .iter()
            .find_map(|(index, of)| Some((variable(index)?.parse().ok()?, of)));
        let Some((index, of)) = found else {
            let names: Vec<&str> = RANKS.iter().map(|(index, _)| *index).collect();
            return Err(Error::Usage(format!(
                "--per-core: the rank on this host is not known, which is in {}: run it under \
                 mpirun or srun",
                names.join(", ")
            )));
        };
        // Slurm tells "4(x2)" for nodes with 4 each, and "4,3" if they differ.
        let of = variable(of).and_then(|text| {
            let (number, rest) = text.split_at(text.find(['(', ',']).unwrap_or(text.len()));
            (!rest.contains(',')).then(|| number.parse().ok())?
        });
        Ok(Self {
            index,
            of: of.unwrap_or(cpus),
        })
    }

    /// Its part of CPUs in this order.
    fn part(self, cpus: &[u32]) -> Result<Cpus> {
        let Self { index, of } = self;
        if index >= of || of > cpus.len() {
            return Err(Error::Failed(format!(
                "--per-core: rank {index} of {of} on this host has no CPU of its own: the \
                 partition has {}",
                cpus.len()
            )));
        }
        let first = index * cpus.len() / of;
        let last = (index + 1) * cpus.len() / of;
        Ok(cpus[first..last].iter().copied().collect())
    }

    /// Its part of the memory of NUMA nodes in this order, in whole blocks.
    pub fn memory(self, nodes: &[(u32, u64)]) -> Vec<(u32, u64)> {
        let blocks = |bytes: u64| bytes / uapi::BLOCK_BYTES;
        let all: u64 = nodes.iter().map(|(_, bytes)| blocks(*bytes)).sum();
        let each = all / self.of as u64;
        let first = self.index as u64 * each;
        let mut before = 0;
        let part = |&(node, bytes): &(u32, u64)| {
            let start = first.max(before);
            before += blocks(bytes);
            let end = before.min(first + each);
            (end > start).then(|| (node, (end - start) * uapi::BLOCK_BYTES))
        };
        nodes.iter().filter_map(part).collect()
    }

    /// The same, if the memory that `others` have leaves that much of each NUMA node.
    pub fn share(self, nodes: &[(u32, u64)], others: &[(u32, u64)]) -> Result<Vec<(u32, u64)>> {
        let of_node = |all: &[(u32, u64)], node| -> u64 {
            let here = all.iter().filter(|one| one.0 == node);
            here.map(|one| one.1).sum()
        };
        let parts = self.memory(nodes);
        for &(node, bytes) in &parts {
            let (has, taken) = (of_node(nodes, node), of_node(others, node));
            if bytes > has.saturating_sub(taken) {
                return Err(Error::Failed(format!(
                    "--per-core: rank {} of {} cannot have {} of NUMA node {node}: the partition \
                     has {} there, and other ranks that still run have {} of that: wait until they \
                     end",
                    self.index,
                    self.of,
                    short(bytes),
                    short(has),
                    short(taken)
                )));
            }
        }
        Ok(parts)
    }
}

/// Gives memory to the cgroup of a rank: its share, no more and no less.
pub type Share<'a> = &'a dyn Fn(&Partition, &str, Rank) -> Result<()>;

/// Moves a process into the partition with this name, or into the cgroup of its rank. The result of
/// `lock` is held meanwhile.
pub fn enter<Lock>(
    machine: &impl Machine,
    name: &str,
    process: u32,
    rank: Option<Rank>,
    lock: impl Fn() -> Result<Lock>,
    share: Share,
) -> Result<Partition> {
    let _lock = lock()?;
    let one = record::find(machine.root(), name)?;
    let path = prepare(machine, &one, process, rank, share)?;
    join(machine, &path, process)?;
    Ok(one)
}

fn join(machine: &impl Machine, path: &str, process: u32) -> Result<()> {
    let path = format!("{path}/cgroup.procs");
    machine
        .write(&path, &process.to_string())
        .map_err(|error| Error::Failed(format!("cannot write '{process}' to /{path}: {error}")))
}

/// The cgroup for a process, which is made if need be.
fn prepare(
    machine: &impl Machine,
    one: &Partition,
    process: u32,
    rank: Option<Rank>,
    share: Share,
) -> Result<String> {
    if one.phase != Phase::Ready {
        return Err(Error::Failed(format!(
            "partition '{}' is not ready: a command that makes or deletes it runs, or was killed \
             (then: hpmmap partition delete {})",
            one.name, one.name
        )));
    }
    if one.adopted {
        return Err(Error::Failed(format!(
            "partition '{}' is cgroup {}, whose owner starts its programs (for a batch job of \
             Slurm: srun --jobid)",
            one.name,
            one.path()
        )));
    }
    match rank {
        None => cgroup::child(machine, one, &one.tasks()),
        Some(rank) => {
            let cpus = rank.part(&nearest(machine.root(), &one.cpus))?;
            let path = cgroup::rank(one, rank.index);
            let mut others = cgroup::processes_in(machine.root(), path.as_ref());
            // It may ask again.
            others.retain(|other| *other != process);
            if !others.is_empty() {
                return Err(Error::Failed(format!(
                    "--per-core: rank {} of partition '{}' has processes already ({}): wait until \
                     they end",
                    rank.index,
                    one.name,
                    number_list::format(&others)
                )));
            }
            let name = format!("rank_{}", rank.index);
            cgroup::child(machine, one, &name)?;
            cgroup::set(
                machine,
                one,
                &format!("{name}/cpuset.cpus"),
                &format_cpus(&cpus),
            )?;
            if one.memory_bytes > 0 {
                cgroup::remove_ended_ranks(machine, one, &path);
                share(one, &path, rank)?;
            }
            Ok(path)
        }
    }
}

/// CPUs so that those of a core, of a cache and of a NUMA node follow each other.
pub fn nearest(root: &Root, cpus: &Cpus) -> Vec<u32> {
    let number = |cpu: u32, file: &str| -> u64 {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/{file}");
        root.read_number(path).unwrap_or(0)
    };
    let mut all: Vec<u32> = cpus.iter().copied().collect();
    all.sort_by_cached_key(|&cpu| {
        let place = ["physical_package_id", "die_id", "core_id"].map(|file| number(cpu, file));
        (place, cpu)
    });
    all
}

/// The NUMA nodes of CPUs, in the order in which ranks get these.
pub fn nodes(root: &Root, cpus: &Cpus) -> Vec<u32> {
    let node = |cpu: u32| {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}");
        root.numbered::<u32>(dir, "node").unwrap_or_default()
    };
    let mut nodes: Vec<u32> = nearest(root, cpus).into_iter().flat_map(node).collect();
    nodes.dedup();
    nodes
}

/// Asks the service to move this process.
pub fn ask(one: &Partition, rank: Option<Rank>) -> Result<()> {
    let refused = |why: &str| Error::NoPermission {
        what: format!("to run in partition '{}'", one.name),
        hint: why.to_string(),
    };
    let own = Uid::effective().as_raw();
    match one.user {
        Some(user) if user == own => (),
        Some(user) => {
            let user = user_name(user);
            return Err(refused(&format!("only {user} and root may")));
        }
        None => {
            return Err(refused(&format!(
                "only root may; 'hpmmap partition create --user {}' makes one for this user",
                user_name(own)
            )));
        }
    }
    let rank = rank.map_or(String::new(), |Rank { index, of }| format!(" {index} {of}"));
    let request = format!("{}{rank}\n", one.name);
    let answer = answer(SOCKET.as_ref(), &request).map_err(|error| {
        refused(&format!(
            "the kernel lets only root move a process there, and {SOCKET} does not answer \
             ({error}): systemctl enable --now hpmmap-partition.socket"
        ))
    })?;
    match answer.trim_end() {
        "ok" => Ok(()),
        "" => Err(refused(
            "the service ended without an answer: see 'journalctl -u hpmmap-partition@*'",
        )),
        why => Err(Error::Failed(why.to_string())),
    }
}

/// The answer to a request, which is empty if there is none. systemd drops connections beyond
/// MaxConnections, so it is tried again: to be moved twice does no harm.
fn answer(socket: &Path, request: &str) -> io::Result<String> {
    let start = Instant::now();
    loop {
        let answer = answer_once(socket, request);
        let is_dropped = match &answer {
            Ok(answer) => answer.is_empty(),
            Err(error) => matches!(
                error.kind(),
                ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ),
        };
        if !is_dropped || start.elapsed() >= AGAIN {
            return answer;
        }
        sleep(PAUSE);
    }
}

fn answer_once(socket: &Path, request: &str) -> io::Result<String> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER))?;
    // Without SIGPIPE, which ends the command. A request is short: all of it is sent, or nothing.
    send(
        stream.as_raw_fd(),
        request.as_bytes(),
        MsgFlags::MSG_NOSIGNAL,
    )?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer)
}

/// Serves one request of `ask`: the process at the other end comes into the partition, if it is one
/// of the partition's user. The result of `lock` is held meanwhile.
pub fn serve<Lock>(
    machine: &impl Machine,
    stream: &mut UnixStream,
    lock: impl Fn() -> Result<Lock>,
    share: Share,
) -> Result<()> {
    let answer = match serve_one(machine, stream, lock, share) {
        Ok(()) => "ok".to_string(),
        Err(error) => error.to_string(),
    };
    Ok(stream.write_all(format!("{answer}\n").as_bytes())?)
}

fn serve_one<Lock>(
    machine: &impl Machine,
    stream: &UnixStream,
    lock: impl Fn() -> Result<Lock>,
    share: Share,
) -> Result<()> {
    let peer = getsockopt(&stream.as_fd(), PeerCredentials).map_err(std::io::Error::from)?;
    stream.set_read_timeout(Some(REQUEST))?;
    let mut line = [0; MOST_REQUEST];
    // One read: a client that sends its request in parts would keep others waiting.
    let length = (&mut &*stream).read(&mut line).map_err(|error| {
        Error::Failed(format!(
            "no request within {} seconds: {error}",
            REQUEST.as_secs()
        ))
    })?;
    let line = String::from_utf8_lossy(&line[..length]);
    let words: Vec<&str> = line.split_whitespace().collect();
    let (name, rank) = match words[..] {
        [name] => (name, None),
        [name, index, of] => match (index.parse(), of.parse()) {
            (Ok(index), Ok(of)) => (name, Some(Rank { index, of })),
            _ => return Err(Error::Usage(format!("'{}' is no request", line.trim()))),
        },
        _ => return Err(Error::Usage(format!("'{}' is no request", line.trim()))),
    };
    let find = || record::find(machine.root(), name);
    // Other users are refused before the lock is taken.
    check(machine.root(), &find()?, &peer)?;
    let _lock = lock()?;
    // By now it may be another user's.
    let one = find()?;
    check(machine.root(), &one, &peer)?;
    let process = peer.pid() as u32;
    let path = prepare(machine, &one, process, rank, share)?;
    // The process may have ended meanwhile, and its number be another user's.
    check(machine.root(), &one, &peer)?;
    join(machine, &path, process)
}

/// Fails unless the process belongs to the user of the partition, or to root.
fn check(root: &Root, one: &Partition, peer: &UnixCredentials) -> Result<()> {
    let status = root.read(format!("proc/{}/status", peer.pid()))?;
    let owner = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|uids| uids.split_whitespace().nth(1)?.parse().ok());
    let may = peer.uid() == 0 || Some(peer.uid()) == one.user;
    if may && owner == Some(peer.uid()) {
        return Ok(());
    }
    Err(Error::NoPermission {
        what: format!("to run in partition '{}'", one.name),
        hint: one.user.map_or_else(
            || "only root may".into(),
            |user| format!("only {} and root may", user_name(user)),
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    fn rank(variables: &[(&str, &str)]) -> Result<Rank> {
        Rank::own(4, |name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn ranks_are_those_of_the_host() {
        let is = |variables: &[(&str, &str)], index, of| {
            assert_eq!(
                rank(variables).unwrap(),
                Rank { index, of },
                "{variables:?}"
            );
        };
        is(
            &[
                ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
                ("SLURM_LOCALID", "3"),
            ],
            1,
            2,
        );
        is(&[("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "3")], 0, 3);
        is(
            &[
                ("SLURM_LOCALID", "1"),
                ("SLURM_STEP_TASKS_PER_NODE", "2(x3)"),
            ],
            1,
            2,
        );
        // Not known for this one.
        is(
            &[("SLURM_LOCALID", "1"), ("SLURM_STEP_TASKS_PER_NODE", "2,1")],
            1,
            4,
        );
        is(&[("PMI_RANK", "2")], 2, 4);
        let error = rank(&[]).unwrap_err().to_string();
        assert!(error.contains("OMPI_COMM_WORLD_LOCAL_RANK"), "{error}");
    }

    #[test]
    fn a_dropped_client_asks_again_and_an_answered_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn(move || {
            // As systemd does beyond MaxConnections.
            drop(listener.accept().unwrap());
            ["ok\n", "has processes already\n"].map(|text| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; MOST_REQUEST];
                let length = stream.read(&mut request).unwrap();
                stream.write_all(text.as_bytes()).unwrap();
                request[..length].to_vec()
            })
        });
        assert_eq!(answer(&socket, "a 1 2\n").unwrap(), "ok\n");
        let refused = answer(&socket, "a 3 4\n").unwrap();
        assert_eq!(refused, "has processes already\n");
        assert_eq!(server.join().unwrap(), [b"a 1 2\n", b"a 3 4\n"]);
        let absent = answer(&dir.path().join("none"), "a\n").unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn memory_follows_the_cpus() {
        const MB: u64 = 1 << 20;
        let part = |index, of| Rank { index, of }.memory(&[(1, 64 * MB), (0, 32 * MB)]);
        assert_eq!(part(0, 3), [(1, 32 * MB)]);
        assert_eq!(part(1, 3), [(1, 32 * MB)]);
        assert_eq!(part(2, 3), [(0, 32 * MB)]);
        assert_eq!(part(1, 2), [(1, 16 * MB), (0, 32 * MB)]);
        // 48 blocks for 5 ranks are 9 for each.
        assert_eq!(part(3, 5), [(1, 10 * MB), (0, 8 * MB)]);
        assert_eq!(part(49, 50), []);
    }

    #[test]
    fn ranks_have_no_more_together_than_the_partition() {
        const MB: u64 = 1 << 20;
        let share = |index, of, others: &[(u32, u64)]| {
            let nodes = [(1, 64 * MB), (0, 32 * MB)];
            Rank { index, of }.share(&nodes, others)
        };
        let all_others = [(1, 32 * MB), (1, 32 * MB)];
        assert_eq!(share(2, 3, &all_others).unwrap(), [(0, 32 * MB)]);
        assert!(share(0, 3, &all_others).is_err());
        // What was promised to one of 3 is still kept for it.
        let error = share(0, 1, &[(1, 32 * MB)]).unwrap_err().to_string();
        assert!(
            error.contains("cannot have 64M of NUMA node 1: the partition has 64M there"),
            "{error}"
        );
        assert!(error.contains("have 32M of that"), "{error}");
        // More than all, as an administrator may promise by hand.
        assert!(share(0, 3, &[(1, 96 * MB)]).is_err());
    }

    #[test]
    fn each_rank_has_its_part() {
        let part = |index, of| Rank { index, of }.part(&[2, 6, 3, 7, 4]).ok();
        assert_eq!(part(0, 2), Some(Cpus::from([2, 6])));
        assert_eq!(part(1, 2), Some(Cpus::from([3, 7, 4])));
        assert_eq!(part(4, 5), Some(Cpus::from([4])));
        assert_eq!(part(5, 5), None);
        assert_eq!(part(0, 6), None);
    }
}
