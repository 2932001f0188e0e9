//! Memory for `hpmmap run`: what can be known of it before the launch, and why the module refuses it.

use std::io;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::{Size, short};
use hpmmap_host::{Root, number_list, pool};
use hpmmap_sys::{Device, Errno, LaunchRequest, PromiseError, RegionRequest, uapi};
use nix::sys::resource::{Resource, getrlimit};

use crate::limits::{self, Reported};
use crate::promise::{self, Promise};
use crate::report_name;

/// The least memory that a program needs at its start: a block for its stack, and one for what the
/// dynamic loader maps.
const START_BYTES: u64 = 2 * uapi::BLOCK_BYTES;

/// What is known of the memory for a launch that can begin.
pub struct Memory {
    /// Notes for the user, to be printed once the launch is made.
    pub notes: Vec<String>,
    /// The limit of this process, if it is reached.
    reached: Option<String>,
}

impl Memory {
    /// Fails if a limit is too low for the launch, whatever is free in the pools.
    pub fn check(
        root: &Root,
        device: &Device,
        request: &LaunchRequest,
        reserve: Option<&Promise>,
        verbose: bool,
    ) -> Result<Self> {
        let region_bytes = request.regions.iter().map(|region| region.bytes).sum();
        for (option, bytes) in [
            ("--static", request.static_bytes),
            ("--region", region_bytes),
        ] {
            if let Some(error) = too_low_for(option, bytes)? {
                return Err(error);
            }
        }
        let limit = limits::tightest(root, device);
        if let Some(error) = limit.as_ref().and_then(|limit| no_start(request, limit)) {
            return Err(error);
        }
        let smallest = limits::smallest(root, device);
        let bounded = reserve.zip(smallest.as_ref());
        if let Some(error) = bounded.and_then(|(reserve, limit)| over_limit(reserve, limit)) {
            return Err(error);
        }
        let note = limit.as_ref().and_then(|limit| note(root, request, limit));
        let more = region_notes(root, request, limit.as_ref(), verbose);
        Ok(Self {
            notes: note.into_iter().chain(more).collect(),
            reached: limit
                .filter(Reported::is_full)
                .map(|limit| limit.to_string()),
        })
    }

    /// The error of a launch that the module refused.
    pub fn refused(&self, root: &Root, request: &LaunchRequest, errno: Errno) -> Error {
        explain(root, request, errno, self.reached.as_deref())
    }
}

/// A limit of the process that is lower than what an option wants mapped.
fn too_low_for(what: &str, bytes: u64) -> Result<Option<Error>> {
    for (resource, name, option) in [
        (Resource::RLIMIT_AS, "RLIMIT_AS", "-v"),
        (Resource::RLIMIT_DATA, "RLIMIT_DATA", "-d"),
    ] {
        let (soft, _) = getrlimit(resource).map_err(io::Error::from)?;
        if soft < bytes {
            return Ok(Some(Error::Failed(format!(
                "{what} {} is more than {name} allows ({}): raise it with ulimit {option}",
                short(bytes),
                short(soft)
            ))));
        }
    }
    Ok(None)
}

/// A limit that is too low for the regions. With --strict and one too low for its start, a program
/// would end with SIGSEGV: fail before.
fn no_start(request: &LaunchRequest, limit: &Reported) -> Option<Error> {
    let room = limit.room()?;
    let regions: u64 = request.regions.iter().map(|region| region.bytes).sum();
    if regions > room {
        return Some(Error::Failed(format!(
            "--region: {} are asked for, and {limit} leaves {}: raise the limit (hpmmap pool limit)",
            short(regions),
            short(room)
        )));
    }
    let all = request.only.is_empty() && request.flags & uapi::LAUNCH_F_STRICT != 0;
    // With a limit that leaves less than a block the module refuses the launch itself.
    (all && (uapi::BLOCK_BYTES..START_BYTES).contains(&room)).then(|| {
        Error::Failed(format!(
            "no memory for the launch: {limit} leaves {}, and with --strict a program needs {} \
             to start: raise the limit (hpmmap pool limit) or leave out --strict",
            short(room),
            short(START_BYTES)
        ))
    })
}

/// The error of a promise that the launch could never use in full.
fn over_limit(reserve: &Promise, limit: &Reported) -> Option<Error> {
    let most = limit.limit_bytes?;
    (reserve.bytes() > most).then(|| {
        Error::Failed(format!(
            "--reserve {reserve}: {limit} lets the launch hold {} at most: reserve no more than \
             that (see: hpmmap pool limit --list)",
            Size(most)
        ))
    })
}

/// A note if a limit, not the size of the pools, will cause fallbacks: one that is reached, or the
/// default limit, which the user has not chosen.
fn note(root: &Root, request: &LaunchRequest, limit: &Reported) -> Option<String> {
    let is_strict = request.flags & uapi::LAUNCH_F_STRICT != 0;
    if limit.is_full() && !is_strict && report_name::is_first_rank() {
        return Some(format!(
            "{limit} is reached: the launch gets ordinary memory (see: hpmmap pool limit --list)"
        ));
    }
    let room = limit.room().filter(|_| limit.is_default())?;
    let file = root.read("etc/hpmmap/limits").unwrap_or_default();
    let is_set = file.lines().any(|line| line.trim().starts_with("default"));
    let pools = pool::nodes(root).unwrap_or_default();
    let free: u64 = pools.iter().map(|pool| pool.free_bytes).sum();
    if is_set || room >= free || !report_name::is_first_rank() {
        return None;
    }
    let then = match is_strict {
        true => "fails",
        false => "comes from ordinary memory",
    };
    Some(format!(
        "{limit} leaves {} of the {} that are free in the pools: more than that {then} \
         (see: hpmmap pool limit --list)",
        short(room),
        short(free)
    ))
}

/// Notes: properties that a static region gives up, and a region without memory.
fn region_notes(
    root: &Root,
    request: &LaunchRequest,
    limit: Option<&Reported>,
    verbose: bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    if request.static_bytes == 0 || !report_name::is_first_rank() {
        return notes;
    }
    let size = short(request.static_bytes);
    let free: u64 = eligible(root, request)
        .iter()
        .map(|pool| pool.free_bytes)
        .sum();
    let room = limit.and_then(Reported::room).unwrap_or(u64::MAX).min(free);
    if room < request.static_bytes && request.flags & uapi::LAUNCH_F_STRICT == 0 {
        notes.push(format!(
            "--static {size}: the launch may get no more than {} now: programs run without a \
             region until there is more (see: hpmmap status)",
            short(room)
        ));
    }
    if verbose {
        notes.push(format!(
            "--static {size} gives up: SIGSEGV after munmap and above the break, lines of \
             /proc/PID/maps for single mappings, addresses at multiples of 2M, moves without \
             a copy in mremap; ulimit -v and -d count the whole region"
        ));
    }
    notes
}

/// The pools that a launch may use.
fn eligible(root: &Root, request: &LaunchRequest) -> Vec<pool::NodePool> {
    let mut pools = pool::nodes(root).unwrap_or_default();
    pools.retain(|pool| request.nodes.is_empty() || request.nodes.contains(&pool.node));
    pools
}

/// That a launch with --page-size 1G has entries of 2 MB, after it has tried to get others.
pub fn small_entries(root: &Root, request: &LaunchRequest) -> Option<String> {
    if request.page_size != uapi::LARGE_BYTES || !report_name::is_first_rank() {
        return None;
    }
    let why = pool::why_no_gigabytes(root).ok()??;
    Some(format!("--page-size 1G: entries are of 2 MB: {why}"))
}

/// Why nothing is reserved for the launch.
pub fn not_reserved(root: &Root, reserve: &Promise, error: PromiseError, by_root: bool) -> Error {
    match error.errno {
        Errno::ENOSPC if !by_root => Error::Failed(format!(
            "--reserve {reserve}: {} of what is promised to this user or its cgroup is left for \
             it (see: hpmmap pool limit --list; root promises with: hpmmap pool limit --min SIZE)",
            Size(error.room_bytes)
        )),
        Errno::EDQUOT => Error::Failed(format!(
            "--reserve {reserve}: with what other launches reserve, it is more than the limit of \
             this user or of its cgroup (see: hpmmap pool limit --list)"
        )),
        _ => promise::refused(
            "the launch",
            reserve,
            error,
            &pool::nodes(root).unwrap_or_default(),
        ),
    }
}

/// The NUMA node that has too little for the regions, `None` for all of them together, with what is
/// asked for and what is free.
fn short_of(
    regions: &[RegionRequest],
    pools: &[pool::NodePool],
) -> Option<(Option<u32>, u64, u64)> {
    let asked = |node: Option<u32>| -> u64 {
        let here = |region: &&RegionRequest| node.is_none() || region.node == node;
        regions.iter().filter(here).map(|region| region.bytes).sum()
    };
    let free = |node: Option<u32>| -> u64 {
        let here = |pool: &&pool::NodePool| node.is_none_or(|node| node == pool.node);
        pools.iter().filter(here).map(|pool| pool.free_bytes).sum()
    };
    regions
        .iter()
        .map(|region| region.node)
        .chain([None])
        .map(|node| (node, asked(node), free(node)))
        .find(|(_, asked, free)| free < asked)
}

/// Why the module refused, with the pools as they are now.
fn explain(root: &Root, request: &LaunchRequest, errno: Errno, reached: Option<&str>) -> Error {
    let eligible = eligible(root, request);
    let total: u64 = eligible.iter().map(|pool| pool.total_bytes).sum();
    let free: u64 = eligible.iter().map(|pool| pool.free_bytes).sum();
    let promised = match eligible.iter().map(|pool| pool.promised_bytes).sum() {
        0 => String::new(),
        bytes => format!(", {} of that promised", short(bytes)),
    };
    let whose = if request.nodes.is_empty() {
        "the pools".to_string()
    } else {
        format!("the pools of node {}", number_list::format(&request.nodes))
    };
    let lack = short_of(&request.regions, &eligible);
    if let (Errno::ENOMEM, Some((node, asked, free))) = (errno, lack) {
        let of = node.map_or(whose, |node| format!("the pool of NUMA node {node}"));
        return Error::PoolEmpty(format!(
            "--region: {} are asked for, {} are free in {of} now",
            short(asked),
            short(free)
        ));
    }
    match errno {
        Errno::ENODEV | Errno::ENOMEM if total == 0 => {
            Error::PoolEmpty(format!("{whose} are empty"))
        }
        Errno::ENODEV => Error::PoolEmpty(format!("{whose} cannot be used")),
        Errno::ENOMEM if free == 0 => {
            Error::PoolEmpty(format!("{whose} ({}) are used up", short(total)))
        }
        Errno::ENOMEM if free < request.static_bytes => Error::PoolEmpty(format!(
            "--static {}: {} are free in {whose} now",
            short(request.static_bytes),
            short(free)
        )),
        Errno::ENOMEM => Error::Failed(match reached {
            Some(limit) => format!(
                "no memory for the launch: {limit} is reached (see: hpmmap pool limit --list); {} \
                 are free in {whose}",
                short(free)
            ),
            None => format!(
                "no memory for the launch: {} are free in {whose} now{promised}",
                short(free)
            ),
        }),
        Errno::EBUSY => Error::Failed(
            "the hooks into the system calls are in use, such as by a live patch \
             (see: hpmmap doctor, and dmesg)"
                .into(),
        ),
        Errno::EAGAIN => Error::Failed(
            "this user has 32768 launches, or 1024 without a process that open files keep, which is the maximum: let some of them end".into(),
        ),
        Errno::EINVAL if request.regions.iter().any(|region| region.node.is_some()) => {
            Error::Failed(
                "--region: the cpuset of this process has not all of the NUMA nodes (see \
                 Mems_allowed_list in /proc/self/status)"
                    .into(),
            )
        }
        Errno::EINVAL | Errno::EOPNOTSUPP => Error::Failed(format!(
            "the module refuses this request (page size {}): {}",
            Size(request.page_size),
            errno.desc()
        )),
        other => Error::Failed(format!("cannot register the launch: {}", other.desc())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hpmmap_host::fixture::Fixture;

    fn limit(flags: u32, rule: u64, limit_bytes: u64) -> Reported {
        let entry = uapi::LimitEntry {
            flags,
            rule,
            limit_bytes,
            ..Default::default()
        };
        Reported::new(&Fixture::new().root(), &entry)
    }

    #[test]
    fn what_a_static_region_lacks_is_told() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.node_pool(0, 4 << 30, 1 << 30, 0, 0);
        let mut request = LaunchRequest {
            static_bytes: 2 << 30,
            ..Default::default()
        };
        let notes = |request: &LaunchRequest, verbose| {
            region_notes(&fixture.root(), request, None, verbose)
        };
        assert_eq!(
            notes(&request, false),
            [
                "--static 2G: the launch may get no more than 1G now: programs run without a \
                 region until there is more (see: hpmmap status)"
            ]
        );
        assert!(notes(&request, true)[1].contains("gives up: SIGSEGV after munmap"));
        request.flags = uapi::LAUNCH_F_STRICT;
        assert!(notes(&request, false).is_empty());
        let text = explain(&fixture.root(), &request, Errno::ENOMEM, None).to_string();
        assert!(
            text.starts_with("--static 2G: 1G are free in the pools now"),
            "{text}"
        );
    }

    #[test]
    fn what_regions_lack_is_told() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.node_pool(0, 4 << 30, 3 << 30, 0, 0);
        fixture.node_pool(1, 4 << 30, 1 << 30, 0, 0);
        let region = |bytes, node| RegionRequest {
            start: 1 << 30,
            bytes,
            node,
        };
        let text = |regions: Vec<RegionRequest>, errno| {
            let request = LaunchRequest {
                regions,
                ..Default::default()
            };
            explain(&fixture.root(), &request, errno, None).to_string()
        };
        let two = vec![region(1 << 30, Some(1)), region(2 << 20, Some(1))];
        assert_eq!(
            text(two, Errno::ENOMEM),
            "--region: 1G are asked for, 1G are free in the pool of NUMA node 1 now (add memory \
             with: hpmmap pool add --size SIZE)"
        );
        let all = text(vec![region(8 << 30, None)], Errno::ENOMEM);
        assert!(
            all.contains("8G are asked for, 4G are free in the pools now"),
            "{all}"
        );
        let fits = text(vec![region(2 << 20, None)], Errno::ENOMEM);
        assert!(
            fits.contains("no memory for the launch: 4G are free"),
            "{fits}"
        );
        assert!(text(vec![region(2 << 20, Some(0))], Errno::EINVAL).contains("Mems_allowed_list"));
    }

    #[test]
    fn entries_of_2m_are_told() {
        let fixture = Fixture::new();
        fixture.module();
        let mut request = LaunchRequest {
            flags: 0,
            page_size: 1 << 30,
            nodes: Vec::new(),
            only: Vec::new(),
            static_bytes: 0,
            regions: Vec::new(),
        };
        assert_eq!(small_entries(&fixture.root(), &request), None);
        fixture.write("sys/kernel/hpmmap/gigabytes", "cpu\n");
        let note = small_entries(&fixture.root(), &request).unwrap();
        assert!(
            note.starts_with("--page-size 1G: entries are of 2 MB: the CPU"),
            "{note}"
        );
        request.page_size = 2 << 20;
        assert_eq!(small_entries(&fixture.root(), &request), None);
    }

    #[test]
    fn the_default_limit_is_told_where_it_bounds_a_launch() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.node_pool(0, 16 << 30, 16 << 30, 1 << 30, 0);
        let default = limit(uapi::LIMIT_F_DEFAULT | uapi::LIMIT_F_PERCENT, 50, 8 << 30);
        let mut request = LaunchRequest::default();
        let told =
            |request: &LaunchRequest, limit: &Reported| note(&fixture.root(), request, limit);
        assert_eq!(
            told(&request, &default).unwrap(),
            "the default limit of every user (8G) leaves 8G of the 16G that are free in the \
             pools: more than that comes from ordinary memory (see: hpmmap pool limit --list)"
        );
        request.flags = uapi::LAUNCH_F_STRICT;
        assert!(
            told(&request, &default)
                .unwrap()
                .contains("more than that fails")
        );
        let nothing = limit(0, 0, 0);
        assert_eq!(told(&request, &nothing), None);
        request.flags = 0;
        assert_eq!(
            told(&request, &nothing).unwrap(),
            "the limit of user root (0) is reached: the launch gets ordinary memory \
             (see: hpmmap pool limit --list)"
        );
        // An administrator's limit is no surprise.
        assert_eq!(told(&request, &limit(0, 8 << 30, 8 << 30)), None);
        fixture.write("etc/hpmmap/limits", "# none\n default 50%\n");
        assert_eq!(told(&request, &default), None);
        fixture.write("etc/hpmmap/limits", "user alice 1G\n");
        assert!(told(&request, &default).is_some());
        fixture.node_pool(0, 16 << 30, 8 << 30, 1 << 30, 0);
        assert_eq!(told(&request, &default), None);
    }

    #[test]
    fn a_limit_that_lets_no_program_start_is_an_error() {
        let strict = LaunchRequest {
            flags: uapi::LAUNCH_F_STRICT,
            ..Default::default()
        };
        let small = limit(0, 2 << 20, 2 << 20);
        let error = no_start(&strict, &small).unwrap().to_string();
        assert!(
            error.starts_with("no memory for the launch: the limit of user root (2M) leaves 2M,"),
            "{error}"
        );
        assert!(no_start(&LaunchRequest::default(), &small).is_none());
        let region = RegionRequest {
            start: 1 << 30,
            bytes: 4 << 20,
            node: None,
        };
        let request = LaunchRequest {
            regions: vec![region],
            ..Default::default()
        };
        assert_eq!(
            no_start(&request, &small).unwrap().to_string(),
            "--region: 4M are asked for, and the limit of user root (2M) leaves 2M: raise the limit \
             (hpmmap pool limit)"
        );
        assert!(no_start(&strict, &limit(0, 64 << 20, 64 << 20)).is_none());
        // The module refuses it itself.
        assert!(no_start(&strict, &limit(0, 0, 0)).is_none());
    }

    #[test]
    fn a_promise_over_a_limit_is_refused() {
        let reserve: Promise = "0:32M,1:34M".parse().unwrap();
        let limit = |limit_bytes| {
            let entry = uapi::LimitEntry {
                limit_bytes,
                rule: limit_bytes,
                ..uapi::LimitEntry::default()
            };
            Reported::new(&Fixture::new().root(), &entry)
        };
        let error = over_limit(&reserve, &limit(64 << 20)).unwrap();
        assert!(
            error
                .to_string()
                .contains("the limit of user root (64M) lets the launch hold 64M at most"),
            "{error}"
        );
        assert!(over_limit(&reserve, &limit(66 << 20)).is_none());
        assert!(over_limit(&reserve, &limit(uapi::LIMIT_NONE)).is_none());
    }

    #[test]
    fn an_empty_pool_and_a_used_up_one_differ() {
        let fixture = Fixture::new();
        fixture.module();
        let mut request = LaunchRequest::default();
        let message = |request: &LaunchRequest, errno| {
            explain(&fixture.root(), request, errno, None).to_string()
        };
        assert_eq!(
            message(&request, Errno::ENODEV),
            "the pools are empty (add memory with: hpmmap pool add --size SIZE)"
        );
        fixture.node_pool(0, 4 << 30, 0, 0, 0);
        assert!(message(&request, Errno::ENOMEM).starts_with("the pools (4G) are used up"));
        request.nodes = vec![1, 2];
        assert!(message(&request, Errno::ENODEV).starts_with("the pools of node 1-2 are empty"));
        request.nodes.clear();
        fixture.node_pool(0, 4 << 30, 1 << 30, 0, 0);
        assert!(message(&request, Errno::ENOMEM).contains("1G are free in the pools now"));
        let limit = Some("the limit of cgroup /slurm (8M)");
        let error = explain(&fixture.root(), &request, Errno::ENOMEM, limit).to_string();
        assert!(
            error.contains("the limit of cgroup /slurm (8M) is reached"),
            "{error}"
        );
    }
}
