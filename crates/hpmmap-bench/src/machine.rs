//! The machine: its properties, and what the methods need of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hpmmap_base::VERSION;
use hpmmap_base::error::Result;
use hpmmap_base::size::short;
use hpmmap_host::{Root, chosen, pool, process};

use super::plan::{Allocator, Case, GIGABYTE, LARGE_PAGE, Method, Provider};

/// The setting of transparent huge pages.
pub const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";
/// Reserved pages of all sizes.
const HUGEPAGES: &str = "sys/kernel/mm/hugepages";
/// Reserved huge pages.
pub const HUGETLB: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";

/// Directories of the allocators' libraries.
const LIBRARIES: [&str; 6] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/x86_64-linux-gnu/hpmmap",
    "usr/lib64/hpmmap",
    "usr/lib/hpmmap",
];

/// The setting of transparent huge pages: the word in brackets.
pub fn thp(root: &Root) -> Option<String> {
    let text = root.read(THP).ok()?;
    chosen(&text).map(str::to_string)
}

/// The directory of reserved pages of a size.
pub fn hugetlb(page: u64) -> String {
    format!("{HUGEPAGES}/hugepages-{}kB", page >> 10)
}

/// The sizes of reserved pages that the kernel has, in bytes.
pub fn hugetlb_sizes(root: &Root) -> Vec<u64> {
    let size = |dir: &String| {
        let kib = dir.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        Some(kib.parse::<u64>().ok()? << 10)
    };
    let dirs = root.entries(HUGEPAGES).unwrap_or_default();
    dirs.iter().filter_map(size).collect()
}

/// The directory of reserved pages of a size on a NUMA node.
fn hugetlb_of(page: u64, node: u32) -> String {
    hugetlb(page).replace("kernel/mm", &format!("devices/system/node/node{node}"))
}

/// The same of a NUMA node, if the kernel has NUMA.
pub fn hugetlb_at(root: &Root, page: u64, node: Option<u32>) -> String {
    let of_node = node.map(|node| hugetlb_of(page, node));
    let of_node = of_node.filter(|dir| root.join(dir).is_dir());
    of_node.unwrap_or_else(|| hugetlb(page))
}

/// The number of reserved pages of a size, in all or of a NUMA node.
pub fn nr_hugepages(page: u64, node: Option<u32>) -> String {
    let dir = node.map_or_else(|| hugetlb(page), |node| hugetlb_of(page, node));
    format!("{dir}/nr_hugepages")
}

/// Reserved pages of a size that nobody has, in bytes; all of them, or those of a NUMA node.
pub fn hugetlb_free(root: &Root, page: u64, node: Option<u32>) -> u64 {
    let dir = hugetlb_at(root, page, node);
    let pages: u64 = root
        .read_number(format!("{dir}/free_hugepages"))
        .unwrap_or(0);
    pages * page
}

/// The pools of all NUMA nodes, or that of one.
fn pools(root: &Root, node: Option<u32>) -> Vec<pool::NodePool> {
    let mut pools = pool::nodes(root).unwrap_or_default();
    pools.retain(|pool| node.is_none_or(|node| pool.node == node));
    pools
}

/// Free memory of all pools, or of that of a NUMA node.
pub fn pools_free(root: &Root, node: Option<u32>) -> u64 {
    pools(root, node).iter().map(|pool| pool.free_bytes).sum()
}

/// Memory of a NUMA node that Linux could give up without swapping: free pages, and those of
/// files.
pub fn linux_free(root: &Root, node: u32) -> Result<u64> {
    let available = process::unswapped_bytes(root)?;
    let path = format!("sys/devices/system/node/node{node}/meminfo");
    // A kernel without NUMA has no such file.
    let Ok(text) = root.read(path) else {
        return Ok(available);
    };
    let kib = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(2);
        let counts = ["MemFree:", "Active(file):", "Inactive(file):"].contains(&words.next()?);
        words.next()?.parse::<u64>().ok().filter(|_| counts)
    });
    Ok(available.min(kib.sum::<u64>() << 10))
}

/// The reason why a case cannot be measured on the machine as it is now.
pub fn obstacle(root: &Root, case: &Case) -> Option<String> {
    lacking(
        root,
        case.method,
        case.need_bytes(),
        case.pattern.uses_allocator(),
        None,
    )
}

/// The reason why the machine, or one NUMA node of it, cannot provide this much memory by a method.
pub fn lacking(
    root: &Root,
    method: Method,
    need: u64,
    by_allocator: bool,
    node: Option<u32>,
) -> Option<String> {
    let place = node.map_or(String::new(), |node| format!(" on NUMA node {node}"));
    let short_of = |what: &str, there: u64| {
        (need > there).then(|| {
            format!(
                "needs up to {} of {what}{place}, there is {}",
                short(need),
                short(there)
            )
        })
    };
    if method.is_thp() {
        match thp(root).as_deref() {
            None | Some("never") => {
                return Some(format!("transparent huge pages are off in /{THP}"));
            }
            Some("always") => (),
            Some(_) if by_allocator => {
                return Some(format!(
                    "allocators get huge pages only with 'always' in /{THP}"
                ));
            }
            Some(_) => (),
        }
    }
    if method == Method::Hpmmap1g
        && pool::is_loaded(root)
        && let Ok(Some(why)) = pool::why_no_gigabytes(root)
    {
        return Some(format!("entries would be of 2 MB: {why}"));
    }
    let is_whole = |pool: &pool::NodePool| pool.largest_free_bytes >= GIGABYTE;
    if method == Method::Hpmmap1g
        && need >= GIGABYTE
        && pool::is_loaded(root)
        && !pools(root, node).iter().any(is_whole)
    {
        return Some(format!(
            "entries would be of 2 MB: no pool has a whole gigabyte free{place}"
        ));
    }
    match method.provider() {
        Provider::Linux => {
            let there = match node {
                Some(node) => linux_free(root, node),
                None => Ok(process::available_bytes(root).unwrap_or(0)),
            };
            short_of("available memory", there.unwrap_or(0))
        }
        Provider::Hugetlb => short_of("reserved huge pages", hugetlb_free(root, LARGE_PAGE, node)),
        Provider::Hugetlb1g => {
            short_of("reserved pages of 1 GB", hugetlb_free(root, GIGABYTE, node))
        }
        Provider::Pools if !pool::is_loaded(root) => Some("the module is not loaded".into()),
        Provider::Pools => short_of("free pool memory", pools_free(root, node)),
    }
}

/// The libraries to preload for an allocator; none for the C library's. HPMMAP's needs jemalloc,
/// too, and its path may be given.
pub fn libraries(
    root: &Root,
    allocator: Allocator,
    hpmmap_jemalloc: Option<&Path>,
) -> std::result::Result<Vec<PathBuf>, String> {
    let installed = |names: &[&str]| {
        LIBRARIES
            .iter()
            .flat_map(|dir| names.iter().map(move |name| root.join(dir).join(name)))
            .find(|path| path.exists())
            .ok_or_else(|| format!("{} is not installed", names[0]))
    };
    let jemalloc = || installed(&["libjemalloc.so.2"]);
    Ok(match (allocator, hpmmap_jemalloc) {
        (Allocator::Glibc, _) => Vec::new(),
        (Allocator::Jemalloc, _) => vec![jemalloc()?],
        (Allocator::Mimalloc, _) => vec![installed(&["libmimalloc.so.2", "libmimalloc.so.2.0"])?],
        (Allocator::HpmmapJemalloc, Some(path)) if !path.exists() => {
            return Err(format!("there is no {}", path.display()));
        }
        (Allocator::HpmmapJemalloc, Some(path)) => vec![path.to_path_buf(), jemalloc()?],
        (Allocator::HpmmapJemalloc, None) => {
            vec![installed(&["libhpmmap_jemalloc.so"])?, jemalloc()?]
        }
    })
}

/// Versions of all software that takes part.
pub fn versions(root: &Root, libraries: &[PathBuf]) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::from([("hpmmap".to_string(), VERSION.to_string())]);
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            versions.insert(name.to_string(), value);
        }
    };
    put("kernel", process::kernel_release(root).ok());
    put("module", pool::version(root).ok());
    put(
        "glibc",
        first_line(Command::new("getconf").arg("GNU_LIBC_VERSION")),
    );
    for library in libraries {
        let name = library.file_name().unwrap_or_default().to_string_lossy();
        // A library of Debian has its package's version.
        let file = fs::canonicalize(library).unwrap_or_else(|_| library.clone());
        let version = package_version(&file).unwrap_or_else(|| file.display().to_string());
        put(&name, Some(version));
    }
    versions
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_string())
}

/// Debian's package of a file, and its version.
pub fn package_version(file: &Path) -> Option<String> {
    let owner = first_line(Command::new("dpkg-query").arg("--search").arg(file))?;
    let package = owner.split(": ").next()?;
    first_line(Command::new("dpkg-query").args([
        "--show",
        "--showformat",
        "${Package} ${Version}",
        package,
    ]))
}

/// Properties of the machine.
pub fn machine(root: &Root) -> BTreeMap<String, String> {
    let line = |file: &str, name: &str| -> Option<String> {
        let text = root.read(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    let cpus = root
        .read("sys/devices/system/cpu/online")
        .ok()
        .and_then(|text| hpmmap_host::number_list::parse(&text).ok())
        .map(|list| list.len().to_string());
    [
        ("cpu", line("proc/cpuinfo", "model name")),
        ("cpus", cpus),
        ("memory", line("proc/meminfo", "MemTotal")),
        ("transparent_hugepage", thp(root)),
        (
            "kernel_command_line",
            process::kernel_command_line(root).ok(),
        ),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_string(), value?)))
    .collect()
}

/// CPU time of all tasks so far, in nanoseconds.
pub fn tasks_ns(root: &Root) -> Option<u64> {
    let text = root.read("proc/schedstat").ok()?;
    let times = text
        .lines()
        .filter(|line| line.starts_with("cpu"))
        .map(|line| line.split_whitespace().nth(7)?.parse::<u64>().ok());
    times.sum()
}

#[cfg(test)]
pub mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;
    use crate::plan::Pattern;

    pub fn case(pattern: Pattern, method: Method) -> Case {
        Case {
            pattern,
            method,
            allocator: pattern.uses_allocator().then_some(Allocator::Glibc),
            size_bytes: 128 << 20,
            threads: 1,
        }
    }

    pub fn fixture() -> Fixture {
        let fixture = Fixture::new();
        fixture.write("proc/meminfo", "MemAvailable: 1048576 kB\nSwapFree: 0 kB\n");
        fixture.write(THP, "always [madvise] never\n");
        fixture.write(&format!("{HUGETLB}/free_hugepages"), "8\n");
        fixture
    }

    #[test]
    fn what_is_missing_is_said() {
        let fixture = fixture();
        let why = |pattern, method| obstacle(&fixture.root(), &case(pattern, method));
        assert_eq!(why(Pattern::Map, Method::Small), None);
        assert_eq!(why(Pattern::Map, Method::Thp), None);
        assert_eq!(
            why(Pattern::Map, Method::Hugetlb).unwrap(),
            "needs up to 192M of reserved huge pages, there is 16M"
        );
        let mut gigabyte = case(Pattern::Map, Method::Hugetlb1g);
        gigabyte.size_bytes = GIGABYTE;
        assert_eq!(
            obstacle(&fixture.root(), &gigabyte).unwrap(),
            "needs up to 1G of reserved pages of 1 GB, there is 0"
        );
        assert_eq!(
            why(Pattern::Map, Method::Hpmmap).unwrap(),
            "the module is not loaded"
        );
        assert!(
            why(Pattern::Malloc, Method::Thp)
                .unwrap()
                .contains("'always'")
        );
        fixture.write(THP, "always madvise [never]\n");
        assert!(why(Pattern::Map, Method::Thp).unwrap().contains("are off"));
        fixture.module();
        fixture.node_pool(0, 1 << 30, 1 << 30, 0, 0);
        assert_eq!(why(Pattern::Map, Method::Hpmmap), None);
        assert_eq!(why(Pattern::Map, Method::Hpmmap1g), None);
        fixture.write("sys/kernel/hpmmap/gigabytes", "cpu\n");
        assert!(
            why(Pattern::Map, Method::Hpmmap1g)
                .unwrap()
                .starts_with("entries would be of 2 MB: the CPU")
        );
    }

    #[test]
    fn memory_of_another_node_is_not_there() {
        let fixture = fixture();
        fixture.module();
        let why = |method, need: u64, node| {
            lacking(&fixture.root(), method, need << 20, false, node).unwrap_or_default()
        };
        for (node, pages, kib) in [(0, 8, 4096), (1, 2, 65536)] {
            let dir = format!("sys/devices/system/node/node{node}");
            let pages_dir = hugetlb_of(LARGE_PAGE, node);
            fixture.write(&format!("{pages_dir}/free_hugepages"), &pages.to_string());
            let text =
                format!("Node {node} MemFree: {kib} kB\nNode {node} Active(file): 1024 kB\n");
            fixture.write(&format!("{dir}/meminfo"), &(text + "Node 0 Shmem: 9 kB\n"));
        }
        fixture.node_pool(0, 2 << 30, 2 << 30, 1 << 20, 0);
        fixture.node_pool(1, 2 << 30, 2 << 30, 1 << 30, 0);
        assert_eq!(why(Method::Hugetlb, 16, Some(0)), "");
        assert_eq!(
            why(Method::Hugetlb, 16, Some(1)),
            "needs up to 16M of reserved huge pages on NUMA node 1, there is 4M"
        );
        assert_eq!(why(Method::Hpmmap, 4096, None), "");
        assert!(why(Method::Hpmmap, 4096, Some(0)).ends_with("there is 2G"));
        assert!(why(Method::Small, 6, Some(0)).ends_with("on NUMA node 0, there is 5M"));
        assert_eq!(why(Method::Small, 6, Some(1)), "");
        // Free memory in pieces.
        assert_eq!(why(Method::Hpmmap1g, 1024, Some(1)), "");
        assert_eq!(
            why(Method::Hpmmap1g, 1024, Some(0)),
            "entries would be of 2 MB: no pool has a whole gigabyte free on NUMA node 0"
        );
    }

    #[test]
    fn libraries_are_found_or_named() {
        let fixture = Fixture::new();
        let find = |allocator, path| libraries(&fixture.root(), allocator, path);
        assert_eq!(find(Allocator::Glibc, None), Ok(Vec::new()));
        assert_eq!(
            find(Allocator::Jemalloc, None).unwrap_err(),
            "libjemalloc.so.2 is not installed"
        );
        fixture.write("usr/lib64/libmimalloc.so.2.0", "");
        let mimalloc = fixture.path().join("usr/lib64/libmimalloc.so.2.0");
        assert_eq!(find(Allocator::Mimalloc, None), Ok(vec![mimalloc]));

        let ours = Path::new("/nonexistent/lib.so");
        assert_eq!(
            find(Allocator::HpmmapJemalloc, Some(ours)).unwrap_err(),
            "there is no /nonexistent/lib.so"
        );
        fixture.write("usr/lib/libjemalloc.so.2", "");
        fixture.write("own.so", "");
        let ours = fixture.path().join("own.so");
        let jemalloc = fixture.path().join("usr/lib/libjemalloc.so.2");
        assert_eq!(
            find(Allocator::HpmmapJemalloc, Some(&ours)),
            Ok(vec![ours.clone(), jemalloc])
        );
    }

    #[test]
    fn the_time_of_all_cpus_is_added() {
        let fixture = Fixture::new();
        assert_eq!(tasks_ns(&fixture.root()), None);
        fixture.write(
            "proc/schedstat",
            "version 15\ntimestamp 1\ncpu0 0 0 5 1 2 1 300 9 4\ndomain0 3 1\ncpu1 0 0 5 1 2 1 40 9 4\n",
        );
        assert_eq!(tasks_ns(&fixture.root()), Some(340));
    }
}
