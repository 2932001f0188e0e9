//! `hpmmap run`

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use hpmmap_base::error::{Error, Result, exec_status};
use hpmmap_base::output::{complain, say};
use hpmmap_host::{Root, node, number_list};
use hpmmap_sys::{LaunchRequest, PromiseOf, RegionRequest, uapi};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{Uid, execvpe};

use super::run_memory::{self, Memory};
use super::{partition, require_nodes, run_report};
use crate::allocator;
use crate::cli::RunArgs;
use crate::device;
use crate::launch::Placement;
use crate::partition::Partition;
use crate::region::{self, Region};
use crate::report_name;

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
    let memory = Memory::check(&root, &device, &request, reserve.as_ref(), args.verbose)?;
    let launch = || -> Result<u64> {
        let id = device
            .launch(&request)
            .map_err(|errno| memory.refused(&root, &request, errno))?;
        if let Some(reserve) = &reserve {
            device
                .promise_set(&PromiseOf::Launch, reserve.parts())
                .map_err(|error| {
                    run_memory::not_reserved(&root, reserve, error, Uid::effective().is_root())
                })?;
        }
        memory.notes.iter().for_each(|note| say(note));
        run_memory::small_entries(&root, &request)
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
}
