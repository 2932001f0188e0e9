//! What is free: CPUs, and memory within the limits of the caller's cgroup.

use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::{Size, short};
use hpmmap_host::{Root, cgroup, node, number_list, process};

const STATUS: &str = "proc/self/status";

/// One CPU of each core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    /// The NUMA node with the most.
    pub number: u32,
    /// Of that node.
    pub node: Vec<u32>,
    /// Of all nodes, those of that node first.
    pub all: Vec<u32>,
}

fn list(root: &Root, file: &str) -> Option<Vec<u32>> {
    number_list::parse(&root.read(file).ok()?).ok()
}

/// The CPUs that the caller may use: its affinity, which its cgroup bounds.
fn allowed(root: &Root) -> Result<Vec<u32>> {
    let text = root.read(STATUS)?;
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .and_then(|list| number_list::parse(list.trim()).ok());
    found.ok_or_else(|| Error::Failed(format!("/{STATUS} has no list of CPUs")))
}

/// The CPUs to measure on: those asked for, otherwise all that the caller may use.
pub fn cpus(root: &Root, asked: Option<&str>) -> Result<Cpus> {
    let allowed = allowed(root)?;
    let mut wanted = match asked {
        None => allowed.clone(),
        Some(text) => {
            number_list::parse(text).map_err(|error| Error::Usage(format!("--cpus: {error}")))?
        }
    };
    if let Some(cpu) = wanted.iter().find(|cpu| !allowed.contains(cpu)) {
        return Err(Error::Usage(format!(
            "--cpus: this process may not use CPU {cpu}: choose from {}",
            number_list::format(&allowed)
        )));
    }
    // The first of a core that is wanted.
    let all_wanted = wanted.clone();
    wanted.retain(|cpu| {
        let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let core = list(root, &file).unwrap_or_else(|| vec![*cpu]);
        core.iter().find(|one| all_wanted.contains(one)) == Some(cpu)
    });
    let mut nodes: Vec<(u32, Vec<u32>)> = node::all(root)?
        .into_iter()
        .map(|node| {
            let file = format!("sys/devices/system/node/node{node}/cpulist");
            let own = list(root, &file).unwrap_or_else(|| wanted.clone());
            let own = own.into_iter().filter(|cpu| wanted.contains(cpu));
            (node, own.collect())
        })
        .collect();
    // The largest first; of several the first.
    nodes.sort_by_key(|(_, cpus)| std::cmp::Reverse(cpus.len()));
    match nodes.first() {
        Some((number, cpus)) if !cpus.is_empty() => Ok(Cpus {
            number: *number,
            node: cpus.clone(),
            all: nodes.iter().flat_map(|(_, cpus)| cpus.clone()).collect(),
        }),
        _ => Err(Error::Failed(format!(
            "no NUMA node has one of the CPUs {}",
            number_list::format(&all_wanted)
        ))),
    }
}

/// Memory that may still be used within the limits of the caller's cgroup and those above it;
/// `None` without a limit.
fn cgroup_room(root: &Root) -> Option<u64> {
    let mount = cgroup::mount(root)?;
    let own = cgroup::directory(&mount, &cgroup::of(root, "self")?);
    let number = |dir: &std::path::Path, file: &str| -> Option<u64> {
        std::fs::read_to_string(dir.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    own.ancestors()
        .take_while(|dir| dir.starts_with(&mount))
        // Without a limit it is "max".
        .filter_map(|dir| {
            let most = number(dir, "memory.max")?;
            Some(most.saturating_sub(number(dir, "memory.current")?))
        })
        .min()
}

/// Memory that the caller may take from Linux now, while all others stay in memory.
pub fn free_bytes(root: &Root) -> Result<u64> {
    let available = process::unswapped_bytes(root)?;
    Ok(cgroup_room(root).map_or(available, |room| room.min(available)))
}

/// The memory to measure with: what was asked for, which must be free, otherwise `fitting` a
/// quarter of what the NUMA node with the least has free. Nothing that is less than `least`.
pub fn memory(
    asked: Option<Size>,
    free: u64,
    of_node: u64,
    least: u64,
    fitting: impl Fn(u64) -> u64,
) -> Result<u64> {
    match asked {
        Some(size) if size.0 < least => Err(Error::Usage(format!(
            "--memory {size} is too little: {} is the least",
            Size(least)
        ))),
        Some(size) if size.0 > free => Err(Error::Failed(format!(
            "--memory {size} is more than the {} that are free: ask for less",
            short(free)
        ))),
        Some(size) => Ok(size.0),
        None => match fitting(of_node / 4) {
            bytes if bytes < least => Err(Error::Failed(format!(
                "of the {} that are free {} would be used, and {} is the least: free some memory",
                short(free),
                short(bytes),
                Size(least)
            ))),
            bytes => Ok(bytes),
        },
    }
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    fn fixture(allowed: &str) -> Fixture {
        let fixture = Fixture::new();
        fixture.write(STATUS, &format!("Cpus_allowed_list:\t{allowed}\n"));
        fixture.nodes("0-1");
        for (node, cpus) in [(0, "0-1,4-5"), (1, "2-3,6-7")] {
            let file = format!("sys/devices/system/node/node{node}/cpulist");
            fixture.write(&file, cpus);
        }
        for cpu in 0..8 {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            let siblings = format!("{},{}\n", cpu % 4, cpu % 4 + 4);
            fixture.write(&format!("{dir}/thread_siblings_list"), &siblings);
        }
        fixture
    }

    #[test]
    fn cpus_are_one_of_each_core_and_none_that_is_not_allowed() {
        let of = |allowed: &str, asked| {
            let found = cpus(&fixture(allowed).root(), asked);
            found.map(|cpus| (cpus.node, cpus.all))
        };
        assert_eq!(of("0-7", None).unwrap(), (vec![0, 1], vec![0, 1, 2, 3]));
        assert_eq!(cpus(&fixture("1-3,6-7").root(), None).unwrap().number, 1);
        // Of the larger node come first.
        assert_eq!(of("1-3,6-7", None).unwrap(), (vec![2, 3], vec![2, 3, 1]));
        assert_eq!(of("0-7", Some("5,7")).unwrap(), (vec![5], vec![5, 7]));
        let error = of("0-3", Some("3-4")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--cpus: this process may not use CPU 4: choose from 0-3"
        );
        assert_eq!(error.exit_code(), 2);
        assert!(of("0-3", Some("x")).is_err());
        assert!(of("8", None).unwrap_err().to_string().contains("CPUs 8"));
    }

    #[test]
    fn limits_of_cgroups_above_count() {
        let fixture = Fixture::new();
        fixture.write("proc/meminfo", "MemAvailable: 8388608 kB\nSwapFree: 9 kB\n");
        assert_eq!(free_bytes(&fixture.root()).unwrap(), 8 << 30);
        fixture.write("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n");
        fixture.write("proc/self/cgroup", "0::/job/step\n");
        fixture.write("cg/job/step/memory.max", "max\n");
        fixture.write("cg/job/memory.max", "3221225472\n");
        fixture.write("cg/job/memory.current", "1073741824\n");
        assert_eq!(free_bytes(&fixture.root()).unwrap(), 2 << 30);
    }

    #[test]
    fn too_little_memory_is_refused() {
        let of = |asked: Option<u64>, free| {
            memory(asked.map(Size), free, free / 2, 64 << 20, |free| {
                free.min(1 << 30)
            })
        };
        assert_eq!(of(None, 16 << 30).unwrap(), 1 << 30);
        assert_eq!(of(Some(2 << 30), 3 << 30).unwrap(), 2 << 30);
        let message = |asked, free| of(asked, free).unwrap_err().to_string();
        assert_eq!(
            message(Some(4 << 30), 3 << 30),
            "--memory 4G is more than the 3G that are free: ask for less"
        );
        assert!(message(Some(1 << 20), 3 << 30).contains("64M is the least"));
        assert!(message(None, 128 << 20).starts_with("of the 128M that are free 16M would"));
    }
}
