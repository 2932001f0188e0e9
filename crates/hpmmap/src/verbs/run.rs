//! `hpmmap run`

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use hpmmap_base::error::{Error, Result, exec_status};
use hpmmap_base::output::{complain, say};
use hpmmap_base::size::{Size, short};
use hpmmap_host::{Root, node, number_list, pool};
use hpmmap_sys::{Errno, LaunchRequest, PromiseError, PromiseOf, RegionRequest, uapi};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{Uid, execvpe};

use super::{partition, require_nodes, run_report};
use crate::allocator;
use crate::cli::RunArgs;
use crate::device;
use crate::launch::Placement;
use crate::limits::{self, Reported};
use crate::partition::Partition;
use crate::promise::{self, Promise};
use crate::region::{self, Region};
use crate::report_name;

/// The least memory that a program needs at its start: a block for its stack, and one for what the
/// dynamic loader maps.
const START_BYTES: u64 = 2 * uapi::BLOCK_BYTES;

/// Registers this process and executes the program; returns only on failure.
pub fn perform(args: &RunArgs) -> Result<ExitCode> {
    let root = Root::default();
    let request = checked(&root, args)?;
    let reserve = args
        .reserve
        .clone()
        .map(|reserve| reserve.on(&request.nodes));
    let reserve = reserve.transpose()?;
    let command = program(&args.command)?;
    let report = args
        .report
        .as_deref()
        .map(report_name::expand)
        .transpose()?;
    let gigabytes = request.page_size == uapi::LARGE_BYTES;
    let mut environment = allocator::environment(args.malloc, args.malloc_tune, gigabytes)?;
    if args.noise && report.is_none() && !args.verbose {
        return Err(Error::Usage(
            "--noise is a part of the report: add --report FILE or --verbose".into(),
        ));
    }
    let device = device::open()?;
    if let Some(partition) = partition::enter(&root, args)? {
        environment.extend(binding(&partition, |name| std::env::var_os(name).is_some()));
    }
    if !request.regions.is_empty() {
        let line = format!(
            "{}={}",
            region::VARIABLE,
            region::variable(&request.regions)
        );
        environment.extend(CString::new(line));
    }
    let region_bytes = request.regions.iter().map(|region| region.bytes).sum();
    for (option, bytes) in [
        ("--static", request.static_bytes),
        ("--region", region_bytes),
    ] {
        if let Some(error) = too_low_for(option, bytes)? {
            return Err(error);
        }
    }
    let limit = limits::tightest(&root, &device);
    if let Some(error) = limit.as_ref().and_then(|limit| no_start(&request, limit)) {
        return Err(error);
    }
    let smallest = limits::smallest(&root, &device);
    let bounded = reserve.as_ref().zip(smallest.as_ref());
    if let Some(error) = bounded.and_then(|(reserve, limit)| over_limit(reserve, limit)) {
        return Err(error);
    }
    let note = limit
        .as_ref()
        .and_then(|limit| note(&root, &request, limit));
    let notes = region_notes(&root, &request, limit.as_ref(), args.verbose);
    let launch = || -> Result<u64> {
        let id = device.launch(&request).map_err(|errno| {
            let full = limit.as_ref().filter(|limit| limit.is_full());
            explain(&root, &request, errno, full.map(ToString::to_string))
        })?;
        if let Some(reserve) = &reserve {
            device
                .promise_set(&PromiseOf::Launch, reserve.parts())
                .map_err(|error| not_reserved(&root, reserve, error, Uid::effective().is_root()))?;
        }
        note.iter().chain(&notes).for_each(|note| say(note));
        small_entries(&root, &request)
            .iter()
            .for_each(|note| say(note));
        Ok(id)
    };
    let execute = || -> u8 {
        let Err(errno) = execvpe(&command[0], &command, &environment);
        let error = Error::Exec {
            program: args.command[0].to_string_lossy().into_owned(),
            errno,
        };
        complain(&error);
        exec_status(errno)
    };
    if report.is_some() || args.verbose {
        let report = report.as_deref();
        return run_report::perform(&root, args, report, &device, launch, execute);
    }
    launch()?;
    Ok(ExitCode::from(execute()))
}

fn checked(root: &Root, args: &RunArgs) -> Result<LaunchRequest> {
    let nodes = match args.node.as_deref() {
        None => Vec::new(),
        Some(text) => {
            let nodes = number_list::parse(text)
                .map_err(|error| Error::Usage(format!("--node: {error}")))?;
            require_nodes(&node::with_memory(root)?, &nodes)?;
            nodes
        }
    };
    let mut options = args.launch.options(args.image)?;
    let regions = parsed(&args.region)?;
    if regions.iter().any(|region| region.gigabytes) {
        options.page_size = uapi::LARGE_BYTES;
    }
    Ok(LaunchRequest {
        regions: placed(root, args, &regions, &nodes)?,
        flags: options.flags(),
        page_size: options.page_size,
        nodes,
        only: patterns(&args.only)?,
        static_bytes: options.static_bytes,
    })
}

fn parsed(texts: &[String]) -> Result<Vec<Region>> {
    let wrong = |text, error| Error::Usage(format!("--region {text}: {error}"));
    texts
        .iter()
        .map(|text| text.parse().map_err(|error: String| wrong(text, error)))
        .collect()
}

/// The regions with their addresses, on NUMA nodes that the launch may use.
fn placed(
    root: &Root,
    args: &RunArgs,
    regions: &[Region],
    nodes: &[u32],
) -> Result<Vec<RegionRequest>> {
    if regions.is_empty() {
        return Ok(Vec::new());
    }
    if args.launch.placement == Placement::FirstTouch {
        return Err(Error::Usage(
            "--region maps all memory at once: leave out --placement first-touch".into(),
        ));
    }
    let (stack, _) = getrlimit(Resource::RLIMIT_STACK).map_err(io::Error::from)?;
    let stack = Some(stack).filter(|bytes| *bytes != RLIM_INFINITY);
    let command = args.command.first().map_or(OsStr::new(""), |word| word);
    let regions = region::place(regions, command, stack)?;
    for node in regions.iter().filter_map(|region| region.node) {
        require_nodes(&node::with_memory(root)?, &[node])?;
        if !nodes.is_empty() && !nodes.contains(&node) {
            return Err(Error::Usage(format!(
                "--region on NUMA node {node}, but --node {} leaves it out",
                number_list::format(nodes)
            )));
        }
    }
    Ok(regions)
}

/// Variables that spread the threads of OpenMP over a partition where the kernel moves none, unless
/// the user has set where they go.
fn binding(partition: &Partition, is_set: impl Fn(&str) -> bool) -> Vec<CString> {
    let bound = [
        "OMP_PROC_BIND",
        "OMP_PLACES",
        "GOMP_CPU_AFFINITY",
        "KMP_AFFINITY",
    ];
    match partition.balance || bound.into_iter().any(is_set) {
        true => Vec::new(),
        false => vec![c"OMP_PROC_BIND=spread".into(), c"OMP_PLACES=threads".into()],
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

/// The patterns in the module's form.
fn patterns(only: &[OsString]) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for pattern in only {
        if pattern.is_empty() || pattern.as_bytes().contains(&0) {
            return Err(Error::Usage(
                "--only: a pattern has at least one character, such as 'lmp*'".into(),
            ));
        }
        all.extend_from_slice(pattern.as_bytes());
        all.push(0);
    }
    let most = uapi::LAUNCH_ONLY_MAX_BYTES as usize;
    if all.len() > most {
        return Err(Error::Usage(format!(
            "--only: the patterns have {} characters in all, {most} at most are possible: \
             use fewer, or '*'",
            all.len()
        )));
    }
    Ok(all)
}

fn program(command: &[OsString]) -> Result<Vec<CString>> {
    command
        .iter()
        .map(|word| {
            CString::new(word.as_bytes())
                .map_err(|_| Error::Usage("the command contains a zero byte".into()))
        })
        .collect()
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

/// Why nothing is reserved for the launch.
fn not_reserved(root: &Root, reserve: &Promise, error: PromiseError, by_root: bool) -> Error {
    match error.errno {
        Errno::ENOSPC if !by_root => Error::Failed(format!(
            "--reserve {reserve}: {} of what is promised to this user or its cgroup is left for \
             it (see: hpmmap pool limit --list; root promises with: hpmmap pool limit --min SIZE)",
            Size(error.room_bytes)
        )),
        _ => promise::refused(
            "the launch",
            reserve,
            error,
            &pool::nodes(root).unwrap_or_default(),
        ),
    }
}

/// That a launch with --page-size 1G has entries of 2 MB, after it has tried to get others.
fn small_entries(root: &Root, request: &LaunchRequest) -> Option<String> {
    if request.page_size != uapi::LARGE_BYTES || !report_name::is_first_rank() {
        return None;
    }
    let why = pool::why_no_gigabytes(root).ok()??;
    Some(format!("--page-size 1G: entries are of 2 MB: {why}"))
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
fn explain(root: &Root, request: &LaunchRequest, errno: Errno, full: Option<String>) -> Error {
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
        Errno::ENOMEM => Error::Failed(match full {
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
    use crate::cli::{LaunchArgs, PageSize};
    use crate::launch::{Shared, Stacks};
    use hpmmap_host::fixture::Fixture;

    fn args(node: Option<&str>) -> RunArgs {
        RunArgs {
            launch: LaunchArgs {
                page_size: PageSize::OneGiga,
                placement: Placement::Interleave,
                strict: true,
                no_inherit: false,
                stacks: Stacks::Grow,
                shared: Shared::Pools,
                static_size: None,
            },
            node: node.map(str::to_string),
            reserve: None,
            region: Vec::new(),
            only: Vec::new(),
            image: false,
            malloc: None,
            malloc_tune: false,
            report: None,
            verbose: false,
            partition: None,
            per_core: false,
            noise: false,
            command: vec!["prog".into()],
        }
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
    fn options_become_flags() {
        let fixture = Fixture::new();
        fixture.nodes("0-3");
        let request = checked(&fixture.root(), &args(Some("0,2-3"))).unwrap();
        assert_eq!(
            request,
            LaunchRequest {
                flags: uapi::LAUNCH_F_STRICT | uapi::LAUNCH_F_INTERLEAVE,
                page_size: 1 << 30,
                nodes: vec![0, 2, 3],
                only: Vec::new(),
                static_bytes: 0,
                regions: Vec::new(),
            }
        );
        let mut plain = args(None);
        (plain.launch.strict, plain.launch.placement) = (false, Placement::Local);
        (plain.launch.no_inherit, plain.image) = (true, true);
        let request = checked(&fixture.root(), &plain).unwrap();
        assert_eq!(
            request.flags,
            uapi::LAUNCH_F_NO_INHERIT | uapi::LAUNCH_F_IMAGE
        );
        assert!(request.nodes.is_empty());
    }

    #[test]
    fn a_static_region_is_whole_pages() {
        let fixture = Fixture::new();
        let mut args = args(None);
        let mut bytes = |size: &str, page_size| {
            args.launch.static_size = Some(size.parse().unwrap());
            args.launch.page_size = page_size;
            checked(&fixture.root(), &args)
                .map(|request| request.static_bytes)
                .map_err(|error| error.to_string())
        };
        assert_eq!(bytes("3M", PageSize::TwoMega), Ok(4 << 20));
        assert_eq!(bytes("3M", PageSize::OneGiga), Ok(1 << 30));
        for wrong in ["0", "65T", "16777215T"] {
            let text = bytes(wrong, PageSize::TwoMega).unwrap_err();
            assert_eq!(
                text,
                format!("--static {wrong}: it has to be between 1 and 64T")
            );
        }
        args.launch.placement = Placement::FirstTouch;
        let error = checked(&fixture.root(), &args).unwrap_err();
        assert!(
            error.to_string().starts_with("--static maps all"),
            "{error}"
        );
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
    fn regions_are_checked() {
        let fixture = Fixture::new();
        fixture.nodes("0-1");
        let mut args = args(Some("0"));
        args.launch.page_size = PageSize::TwoMega;
        let mut request = |text: &str, placement| {
            args.region = vec![text.into()];
            args.launch.placement = placement;
            checked(&fixture.root(), &args).map_err(|error| error.to_string())
        };
        let found = request("2M@0x40000000,node=0", Placement::Local).unwrap();
        assert_eq!(region::variable(&found.regions), "0x40000000+0x200000@0");
        assert_eq!(found.page_size, 2 << 20);
        let found = request("1G,page-size=1G", Placement::Local).unwrap();
        assert_eq!(found.page_size, 1 << 30);
        assert_eq!(
            request("2M,node=1", Placement::Local).unwrap_err(),
            "--region on NUMA node 1, but --node 0 leaves it out"
        );
        assert_eq!(
            request("2M,node=7", Placement::Local).unwrap_err(),
            "there is no NUMA node 7 with memory; nodes with memory: 0-1"
        );
        assert_eq!(
            request("2M", Placement::FirstTouch).unwrap_err(),
            "--region maps all memory at once: leave out --placement first-touch"
        );
        assert_eq!(
            request("3M", Placement::Local).unwrap_err(),
            "--region 3M: the size 3M is not a multiple of 2M"
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
    fn patterns_are_strings_one_after_the_other() {
        let of = |only: &[&str]| {
            let only: Vec<OsString> = only.iter().map(OsString::from).collect();
            patterns(&only).map_err(|error| error.to_string())
        };
        assert_eq!(of(&[]), Ok(vec![]));
        assert_eq!(of(&["lmp*", "/opt/*"]), Ok(b"lmp*\0/opt/*\0".to_vec()));
        assert!(
            of(&["a", ""])
                .unwrap_err()
                .contains("at least one character")
        );
        let most = uapi::LAUNCH_ONLY_MAX_BYTES as usize;
        let long = "x".repeat(most - 1);
        assert_eq!(of(&[&long]).unwrap().len(), most);
        assert!(
            of(&[&long, "y"])
                .unwrap_err()
                .contains(&format!("{} characters", most + 2))
        );
    }

    #[test]
    fn wrong_nodes_are_named() {
        let fixture = Fixture::new();
        fixture.nodes("0-1");
        let message = |nodes| {
            let error = checked(&fixture.root(), &args(Some(nodes))).unwrap_err();
            error.to_string()
        };
        assert_eq!(
            message("0,5"),
            "there is no NUMA node 5 with memory; nodes with memory: 0-1"
        );
        assert_eq!(
            message("zero"),
            "--node: 'zero' is not a list of numbers such as 0,2-3"
        );
    }

    #[test]
    fn placements_are_flags_and_nodes_a_list() {
        let fixture = Fixture::new();
        fixture.nodes("0-1");
        let flags = |node, placement| {
            let mut args = args(node);
            args.launch = LaunchArgs {
                page_size: PageSize::TwoMega,
                placement,
                strict: false,
                no_inherit: false,
                stacks: Stacks::Grow,
                shared: Shared::Pools,
                static_size: None,
            };
            let request = checked(&fixture.root(), &args).unwrap();
            (request.flags, request.nodes)
        };
        assert_eq!(flags(None, Placement::Local), (0, vec![]));
        assert_eq!(flags(Some("1"), Placement::Local), (0, vec![1]));
        assert_eq!(
            flags(None, Placement::Interleave),
            (uapi::LAUNCH_F_INTERLEAVE, vec![])
        );
        assert_eq!(
            flags(Some("0,1"), Placement::FirstTouch),
            (uapi::LAUNCH_F_FIRST_TOUCH, vec![0, 1])
        );
    }

    #[test]
    fn first_touch_is_for_2m() {
        let fixture = Fixture::new();
        let mut args = args(None);
        args.launch.placement = Placement::FirstTouch;
        let error = checked(&fixture.root(), &args).unwrap_err();
        assert!(error.to_string().contains("--page-size 1G"), "{error}");
    }

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
        let limit = Some("the limit of cgroup /slurm (8M)".to_string());
        let error = explain(&fixture.root(), &request, Errno::ENOMEM, limit).to_string();
        assert!(
            error.contains("the limit of cgroup /slurm (8M) is reached"),
            "{error}"
        );
    }
}
