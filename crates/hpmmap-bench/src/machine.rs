//! The machine: its properties, and what the methods need of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hpmmap_base::VERSION;
use hpmmap_base::size::short;
use hpmmap_host::{Root, chosen, pool, process};

use super::plan::{Allocator, Case, GIGABYTE, LARGE_PAGE, Method, Provider};

/// The setting of transparent huge pages.
pub const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";
/// Reserved pages of all sizes.
pub const HUGEPAGES: &str = "sys/kernel/mm/hugepages";
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

/// The number of reserved pages of a size, in all or of a NUMA node.
pub fn nr_hugepages(page: u64, node: Option<u32>) -> String {
    let dir = match node {
        Some(node) => {
            hugetlb(page).replace("kernel/mm", &format!("devices/system/node/node{node}"))
        }
        None => hugetlb(page),
    };
    format!("{dir}/nr_hugepages")
}

/// Reserved pages of a size that nobody has, in bytes.
pub fn hugetlb_free(root: &Root, page: u64) -> u64 {
    let pages: u64 = root
        .read_number(format!("{}/free_hugepages", hugetlb(page)))
        .unwrap_or(0);
    pages * page
}

/// Free memory of all pools.
pub fn pools_free(root: &Root) -> u64 {
    let pools = pool::nodes(root).unwrap_or_default();
    pools.iter().map(|pool| pool.free_bytes).sum()
}

/// The reason why a case cannot be measured on the machine as it is now.
pub fn obstacle(root: &Root, case: &Case) -> Option<String> {
    lacking(
        root,
        case.method,
        case.need_bytes(),
        case.pattern.uses_allocator(),
    )
}

/// The reason why the machine cannot provide this much memory by a method.
pub fn lacking(root: &Root, method: Method, need: u64, by_allocator: bool) -> Option<String> {
    let short_of = |what: &str, there: u64| {
        (need > there).then(|| {
            format!(
                "needs up to {} of {what}, there is {}",
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
    match method.provider() {
        Provider::Linux => short_of(
            "available memory",
            process::available_bytes(root).unwrap_or(0),
        ),
        Provider::Hugetlb => short_of("reserved huge pages", hugetlb_free(root, LARGE_PAGE)),
        Provider::Hugetlb1g => short_of("reserved pages of 1 GB", hugetlb_free(root, GIGABYTE)),
        Provider::Pools if !pool::is_loaded(root) => Some("the module is not loaded".into()),
        Provider::Pools => short_of("free pool memory", pools_free(root)),
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
