//! The machine: its properties, and the settings that the methods need.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hpmmap_base::VERSION;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::signals::{Means, Watched};
use hpmmap_base::size::{Size, short};
use hpmmap_host::{Root, node, pool, process};
use hpmmap_sys::child::{Setup, Signal};
use hpmmap_sys::clock::ticks;
use serde::Deserialize;

use super::journal::{Journal, Undo};
use super::plan::{Allocator, Case, GIGABYTE, LARGE_PAGE, Method, Provider};
use super::program::{content, hpmmap, memory_file};
use super::result::PoolAdd;

/// The setting of transparent huge pages.
pub const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";
/// Reserved huge pages.
pub const HUGETLB: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";
const MEMORY_BLOCK: &str = "sys/devices/system/memory/block_size_bytes";

/// Memory that Linux keeps when pools or reserved pages are made.
const RESERVE_BYTES: u64 = 512 << 20;

/// Time that the last pages of an ended job may take to become free.
const REMOVE: Duration = Duration::from_secs(20);

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
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_string())
}

/// The directory of reserved pages of a size.
fn hugetlb(page: u64) -> String {
    format!("sys/kernel/mm/hugepages/hugepages-{}kB", page >> 10)
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

/// Changed settings of the machine, which are restored at the end.
pub struct Prepared {
    root: Root,
    undo: Vec<Undo>,
    /// From the first change on.
    journal: Option<Journal>,
}

impl Prepared {
    /// Without any change yet.
    pub fn new(root: &Root) -> Self {
        Self {
            root: root.clone(),
            undo: Vec::new(),
            journal: None,
        }
    }

    /// Restores what a benchmark changed that was killed, before the first change. Fails while
    /// another process makes changes.
    pub fn begin(&mut self) -> Result<()> {
        if self.journal.is_some() {
            return Ok(());
        }
        for (journal, undo) in Journal::left(&self.root)? {
            hpmmap_base::output::say("restoring what a killed benchmark changed");
            let root = self.root.clone();
            // Dropped here.
            let _left = Self {
                root,
                undo,
                journal: Some(journal),
            };
        }
        self.journal = Some(Journal::new(&self.root)?);
        Ok(())
    }

    /// Records a change that is made next.
    fn remember(&mut self, undo: Undo) -> Result<()> {
        if let Some(journal) = &mut self.journal {
            journal.add(&undo)?;
        }
        self.undo.push(undo);
        Ok(())
    }

    /// Changes a setting and remembers the old value.
    pub fn write(&mut self, path: &str, text: &str) -> Result<()> {
        self.begin()?;
        let old = match path {
            THP => thp(&self.root),
            _ => self.root.read(path).ok(),
        };
        let known = self.undo.len();
        if let Some(old) = old {
            self.remember(Undo::Write(path.to_string(), old))?;
        }
        let path_there = self.root.join(path);
        fs::write(&path_there, text).map_err(|error| {
            self.undo.truncate(known);
            Error::Failed(format!("cannot write to {}: {error}", path_there.display()))
        })
    }

    /// Reserves so many pages of a size in all, as far as they can be had. Those of each
    /// node come back, however Linux divides the new ones.
    pub fn reserve_hugepages(&mut self, page: u64, pages: u64) -> Result<()> {
        self.begin()?;
        let dir = hugetlb(page);
        let size = dir.rsplit('/').next().unwrap_or_default();
        // Taken back last to first: the total, then where they were.
        for node in node::with_memory(&self.root).unwrap_or_default() {
            let path = format!("sys/devices/system/node/node{node}/hugepages/{size}/nr_hugepages");
            if let Ok(old) = self.root.read(&path) {
                self.remember(Undo::Write(path, old))?;
            }
        }
        self.write(&format!("{dir}/nr_hugepages"), &pages.to_string())
    }

    /// Gets memory from one provider, as much as possible.
    pub fn provide(&mut self, provider: Provider, need: u64) -> Result<Option<PoolAdd>> {
        self.restore();
        let available = process::available_bytes(&self.root)?.saturating_sub(RESERVE_BYTES);
        let bytes = need.min(available);
        match provider {
            Provider::Linux => Ok(None),
            Provider::Hugetlb => {
                self.reserve_hugepages(LARGE_PAGE, bytes.div_ceil(LARGE_PAGE))?;
                Ok(None)
            }
            // Those of the kernel's command line would not come back.
            Provider::Hugetlb1g if hugetlb_free(&self.root, GIGABYTE) >= need => Ok(None),
            // A kernel whose CPU has none has no directory for them.
            Provider::Hugetlb1g if !self.root.join(hugetlb(GIGABYTE)).is_dir() => Ok(None),
            Provider::Hugetlb1g => {
                self.reserve_hugepages(GIGABYTE, bytes.div_ceil(GIGABYTE))?;
                Ok(None)
            }
            Provider::Pools if !pool::is_loaded(&self.root) => Ok(None),
            Provider::Pools => self.add_pool(bytes),
        }
    }

    /// Makes the settings that a case needs besides memory.
    pub fn set_for(&mut self, case: &Case) -> Result<()> {
        self.set_thp(match (case.method, case.pattern.uses_allocator()) {
            (Method::Thp, true) => "always",
            _ => "madvise",
        })
    }

    /// Sets transparent huge pages, if the kernel has them.
    pub fn set_thp(&mut self, want: &str) -> Result<()> {
        if thp(&self.root).is_some_and(|now| now != want) {
            self.write(THP, want)?;
        }
        Ok(())
    }

    /// Adds pools of this size in all, in equal parts on all nodes, as far as possible.
    pub fn add_pool(&mut self, bytes: u64) -> Result<Option<PoolAdd>> {
        self.begin()?;
        let text = self.root.read(MEMORY_BLOCK)?;
        let block = u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .map_err(|_| Error::Failed(format!("/{MEMORY_BLOCK}: '{text}' is no size")))?;
        let nodes = node::with_memory(&self.root)?;
        let wanted = (bytes / nodes.len().max(1) as u64).next_multiple_of(block);
        let size = Size(wanted).to_string();
        let mut added = PoolAdd { bytes: 0, cost: 0 };
        for node in nodes {
            let start = ticks();
            let name = node.to_string();
            let args = [
                "add",
                "--json",
                "--partial",
                "--node",
                &name,
                "--size",
                &size,
            ];
            self.remember(Undo::PoolRemove {
                node,
                before: pool_bytes(&self.root, node),
                bytes: wanted,
            })?;
            added.bytes += added_bytes(&self.pool(&args, false)?)?;
            added.cost += ticks() - start;
        }
        Ok(Some(added))
    }

    fn remove_pool(&self, node: u32, bytes: u64) -> Result<()> {
        let (node, size) = (node.to_string(), Size(bytes).to_string());
        let deadline = Instant::now() + REMOVE;
        loop {
            match self.pool(&["remove", "--node", &node, "--size", &size], true) {
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(500)),
                result => return result.map(|_| ()),
            }
        }
    }

    /// Runs a verb of pools and returns its output. Signals that end this process end it, too;
    /// with `restores` it is out of reach of the terminal's keys, and outlives this process.
    fn pool(&self, args: &[&str], restores: bool) -> Result<String> {
        let (output, errors) = (memory_file("output")?, memory_file("errors")?);
        let mut command = Command::new(hpmmap());
        // It reads nothing; a later benchmark must wait for it.
        let input = match &self.journal {
            Some(journal) => journal.share()?.into(),
            None => Stdio::null(),
        };
        command.arg("pool").args(args).stdin(input);
        Setup {
            own_group: restores,
            dies_with_parent: (!restores).then_some(Signal::SIGTERM),
            ..Setup::default()
        }
        .apply(&mut command)?;
        let mut child = command
            .stdout(output.try_clone()?)
            .stderr(errors.try_clone()?)
            .spawn()?;
        if !restores {
            Watched::new(child.id(), Means::Ask).wait();
        }
        if child.wait()?.success() {
            return content(output);
        }
        let said = content(errors)?;
        Err(Error::Failed(format!(
            "'hpmmap pool {}' failed: {}",
            args.join(" "),
            said.trim()
        )))
    }

    /// Restores all changes, and prints what could not be restored.
    pub fn restore(&mut self) {
        say_not_set_back(&self.set_back());
    }

    /// The same, from last to first; returns what could not be restored, and why.
    pub fn set_back(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        while let Some(undo) = self.undo.pop() {
            let result = match &undo {
                Undo::Write(path, text) => fs::write(self.root.join(path), text)
                    .map_err(|error| format!("cannot write to /{path}: {error}")),
                Undo::PoolRemove {
                    node,
                    before,
                    bytes,
                } => match pool_bytes(&self.root, *node).saturating_sub(*before) {
                    0 => Ok(()),
                    more => self
                        .remove_pool(*node, more.min(*bytes))
                        .map_err(|error| error.to_string()),
                },
            };
            failed.extend(result.err());
        }
        // Otherwise the next benchmark tries again.
        if failed.is_empty()
            && let Some(journal) = self.journal.take()
        {
            journal.remove();
        }
        failed
    }
}

/// Tells the administrator.
pub fn say_not_set_back(failed: &[String]) {
    for why in failed {
        hpmmap_base::output::warn(&format!("not set back: {why}"));
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Size of the pool of a node.
fn pool_bytes(root: &Root, node: u32) -> u64 {
    let pools = pool::nodes(root).unwrap_or_default();
    let own = pools.iter().find(|pool| pool.node == node);
    own.map_or(0, |pool| pool.total_bytes)
}

/// The bytes that `pool add --json` has added.
fn added_bytes(json: &str) -> Result<u64> {
    #[derive(Deserialize)]
    struct Added {
        added_bytes: u64,
    }
    let added: Added = serde_json::from_str(json)
        .map_err(|error| Error::Failed(format!("'hpmmap pool add' printed: {error}")))?;
    Ok(added.added_bytes)
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
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;
    use crate::plan::Pattern;

    fn case(pattern: Pattern, method: Method) -> Case {
        Case {
            pattern,
            method,
            allocator: pattern.uses_allocator().then_some(Allocator::Glibc),
            size_bytes: 128 << 20,
            threads: 1,
        }
    }

    fn fixture() -> Fixture {
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
    fn settings_come_back() {
        let fixture = fixture();
        let pages = format!("{HUGETLB}/nr_hugepages");
        fixture.write(&pages, "3\n");
        let read = || fixture.root().read(&pages).unwrap();
        {
            let mut prepared = Prepared::new(&fixture.root());
            prepared
                .provide(
                    Provider::Hugetlb,
                    case(Pattern::Map, Method::Hugetlb).need_bytes(),
                )
                .unwrap();
            assert_eq!(read(), "96");
        }
        assert_eq!(read(), "3");
    }

    #[test]
    fn what_a_killed_benchmark_changed_comes_back_before_the_first_change() {
        let fixture = fixture();
        let left = "run/hpmmap/bench/1-0";
        fixture.write(THP, "[never]\n");
        fixture.module();
        fixture.node_pool(0, 5 << 30, 1 << 30, 0, 0);
        let undo = Undo::Write(THP.into(), "always [madvise] never".into());
        // The pool is not larger than it was: nothing is removed.
        let pool = Undo::PoolRemove {
            node: 0,
            before: 5 << 30,
            bytes: 1 << 30,
        };
        let line = |undo| serde_json::to_string(undo).unwrap() + "\n";
        fixture.write(left, &(line(&undo) + &line(&pool)));
        let mut prepared = Prepared::new(&fixture.root());
        prepared.set_thp("always").unwrap();
        assert!(!fixture.root().join(left).exists());
        drop(prepared);
        assert_eq!(fixture.root().read(THP).unwrap(), "madvise");
        assert!(
            fixture
                .root()
                .entries("run/hpmmap/bench")
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn each_node_gets_its_huge_pages_back() {
        let fixture = fixture();
        fixture.nodes("0-1");
        fixture.write("sys/devices/system/node/has_memory", "0-1\n");
        let of_node = |node: u32| {
            format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages")
        };
        let all = format!("{HUGETLB}/nr_hugepages");
        fixture.write(&all, "5\n");
        fixture.write(&of_node(0), "5\n");
        fixture.write(&of_node(1), "0\n");
        let read = |path: &str| fixture.root().read(path).unwrap();
        {
            let mut prepared = Prepared::new(&fixture.root());
            prepared.reserve_hugepages(LARGE_PAGE, 64).unwrap();
            // As Linux divides them.
            fixture.write(&of_node(0), "32\n");
            fixture.write(&of_node(1), "32\n");
            assert_eq!(read(&all), "64");
        }
        let now = [read(&all), read(&of_node(0)), read(&of_node(1))];
        assert_eq!(now, ["5", "5", "0"]);
    }

    #[test]
    fn what_was_added_is_what_was_said() {
        let json = r#"{"node": 0, "requested_bytes": 7, "added_bytes": 5, "blocks": []}"#;
        assert_eq!(added_bytes(json).unwrap(), 5);
        assert!(added_bytes("added 5").is_err());
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
