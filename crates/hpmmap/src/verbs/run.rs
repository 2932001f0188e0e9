//! `hpmmap run`

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use hpmmap_base::error::{Error, Result, exec_status};
use hpmmap_base::output::{complain, say};
use hpmmap_base::size::{Size, short};
use hpmmap_host::{Root, node, number_list, pool};
use hpmmap_sys::{Errno, LaunchRequest, uapi};
use nix::unistd::execvpe;

use super::{require_nodes, run_report};
use crate::allocator;
use crate::cli::RunArgs;
use crate::device;
use crate::limits::{self, Reported};
use crate::report_name;

/// The least memory that a program needs at its start: a block for its stack, and one for what the
/// dynamic loader maps.
const START_BYTES: u64 = 2 * uapi::BLOCK_BYTES;

/// Registers this process and executes the program; returns only on failure.
pub fn perform(args: &RunArgs) -> Result<ExitCode> {
    let root = Root::default();
    let request = checked(&root, args)?;
    let command = program(&args.command)?;
    let report = args
        .report
        .as_deref()
        .map(report_name::expand)
        .transpose()?;
    let environment = allocator::environment(args.malloc, args.malloc_tune)?;
    let device = device::open()?;
    let limit = limits::tightest(&root, &device);
    if let Some(error) = limit.as_ref().and_then(|limit| no_start(&request, limit)) {
        return Err(error);
    }
    let note = limit
        .as_ref()
        .and_then(|limit| note(&root, &request, limit));
    let launch = || -> Result<u64> {
        let id = device.launch(&request).map_err(|errno| {
            let full = limit.as_ref().filter(|limit| limit.is_full());
            explain(&root, &request, errno, full.map(ToString::to_string))
        })?;
        note.iter().for_each(|note| say(note));
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
    let options = args.launch.options(args.image)?;
    Ok(LaunchRequest {
        flags: options.flags(),
        page_size: options.page_size,
        nodes,
        only: patterns(&args.only)?,
    })
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

/// With --strict and a limit too low for its start, a program would end with SIGSEGV: fail before.
fn no_start(request: &LaunchRequest, limit: &Reported) -> Option<Error> {
    let room = limit.room()?;
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

/// That a launch with --page-size 1G has entries of 2 MB, after it has tried to get others.
fn small_entries(root: &Root, request: &LaunchRequest) -> Option<String> {
    if request.page_size != uapi::LARGE_BYTES || !report_name::is_first_rank() {
        return None;
    }
    let why = pool::why_no_gigabytes(root).ok()??;
    Some(format!("--page-size 1G: entries are of 2 MB: {why}"))
}

/// Why the module refused, with the pools as they are now.
fn explain(root: &Root, request: &LaunchRequest, errno: Errno, full: Option<String>) -> Error {
    let pools = pool::nodes(root).unwrap_or_default();
    let eligible: Vec<_> = pools
        .iter()
        .filter(|pool| request.nodes.is_empty() || request.nodes.contains(&pool.node))
        .collect();
    let total: u64 = eligible.iter().map(|pool| pool.total_bytes).sum();
    let free: u64 = eligible.iter().map(|pool| pool.free_bytes).sum();
    let whose = if request.nodes.is_empty() {
        "the pools".to_string()
    } else {
        format!("the pools of node {}", number_list::format(&request.nodes))
    };
    match errno {
        Errno::ENODEV | Errno::ENOMEM if total == 0 => {
            Error::PoolEmpty(format!("{whose} are empty"))
        }
        Errno::ENODEV => Error::PoolEmpty(format!("{whose} cannot be used")),
        Errno::ENOMEM if free == 0 => {
            Error::PoolEmpty(format!("{whose} ({}) are used up", short(total)))
        }
        Errno::ENOMEM => Error::Failed(match full {
            Some(limit) => format!(
                "no memory for the launch: {limit} is reached (see: hpmmap pool limit --list); {} \
                 are free in {whose}",
                short(free)
            ),
            None => format!(
                "no memory for the launch: {} are free in {whose} now",
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
    use crate::launch::{Placement, Shared, Stacks};
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
            },
            node: node.map(str::to_string),
            only: Vec::new(),
            image: false,
            malloc: None,
            malloc_tune: false,
            report: None,
            verbose: false,
            command: vec!["prog".into()],
        }
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
    fn entries_of_2m_are_told() {
        let fixture = Fixture::new();
        fixture.module();
        let mut request = LaunchRequest {
            flags: 0,
            page_size: 1 << 30,
            nodes: Vec::new(),
            only: Vec::new(),
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
