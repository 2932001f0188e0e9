//! The neighbours: builds that begin anew until they are told to end, a program that fills memory,
//! and one that fills the page cache and fragments memory.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hpmmap_host::{Root, process};
use hpmmap_sys::child::{Setup, Signal, end_group};

use super::plan::{Parameters, Profile};

/// Files in the compiled tree, and functions in each.
const FILES: u32 = 24;
const FUNCTIONS: u32 = 60;
/// Time that neighbours run before the job starts; at most until the memory is filled.
const SETTLE: Duration = Duration::from_secs(1);
const FILL: Duration = Duration::from_secs(10);
/// The same for the program that fills the page cache: it reads all of memory from a disk.
const READ: Duration = Duration::from_secs(600);
/// The program's own part of the available memory, as scattered pages.
const SCATTERED: u64 = 16;
/// Paths of the program relative to this command: in the build tree, installed.
const FRAGMENT: [&str; 2] = ["bench/fragment", "../lib/hpmmap/fragment"];
/// Time that a neighbour may take to end when it is told to.
const END: Duration = Duration::from_secs(3);

/// A C file that takes an optimising compiler long; always the same.
fn source(file: u32) -> String {
    let mut text = String::from("#include <stddef.h>\n#include <string.h>\n");
    for n in 0..FUNCTIONS {
        let k = file * FUNCTIONS + n;
        text += &format!(
            "\ndouble work_{k}(double *a, const double *b, size_t n)\n{{\n\tdouble sum = {k}.0;\n\
             \tfor (size_t i = 1; i + 1 < n; i++) {{\n\
             \t\ta[i] = b[i - 1] * {}.5 + b[i + 1] / {}.25;\n\
             \t\tif (a[i] > {k}.0)\n\t\t\tsum += a[i] * b[i * {} % n];\n\
             \t\telse\n\t\t\tmemmove(a, b, i * sizeof(*a));\n\t}}\n\treturn sum;\n}}\n",
            k + 1,
            k + 2,
            n % 7 + 1,
        );
    }
    text
}

fn makefile() -> String {
    let objects: Vec<String> = (0..FILES).map(|n| format!("work{n}.o")).collect();
    format!(
        "CFLAGS := -O2\nlibwork.a: {0}\n\t$(AR) rcs $@ $^\n",
        objects.join(" ")
    )
}

fn failed(what: &str, error: impl std::fmt::Display) -> String {
    format!("{what}: {error}")
}

/// A process and all its descendants.
struct Group {
    child: Child,
    log: PathBuf,
}

impl Group {
    /// Starts a command with its output in `log`.
    fn start(mut command: Command, cpus: &[u32], dir: &Path, log: PathBuf) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = File::create(&log).map_err(|error| failed("log", error))?;
        let errors = output.try_clone().map_err(|error| failed("log", error))?;
        command
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        // Both commands pass SIGTERM on to their children.
        Setup {
            cpus: cpus.to_vec(),
            own_group: true,
            dies_with_parent: Some(Signal::SIGTERM),
            ..Setup::default()
        }
        .apply(&mut command)
        .map_err(|error| failed(&name, error))?;
        let child = command.spawn().map_err(|error| failed(&name, error))?;
        Ok(Self { child, log })
    }

    /// `None` while it runs; its output if it failed.
    fn ended(&mut self) -> Result<Option<Result<(), String>>, String> {
        let status = self
            .child
            .try_wait()
            .map_err(|error| failed("wait", error))?;
        Ok(status.map(|status| {
            if status.success() {
                return Ok(());
            }
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            let last = said.lines().last().unwrap_or("it said nothing");
            Err(format!("{status}: {last}"))
        }))
    }
}

impl Group {
    fn end(&mut self) {
        end_group(&mut self.child, END);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// A build that begins anew whenever it ends.
struct Build {
    dir: PathBuf,
    jobs: u32,
    cpus: Vec<u32>,
    ended: u32,
    group: Group,
}

impl Build {
    fn start(dir: PathBuf, jobs: u32, cpus: &[u32]) -> Result<Self, String> {
        fs::create_dir_all(&dir).map_err(|error| failed("sources", error))?;
        let write = |name: &str, text: String| {
            fs::write(dir.join(name), text).map_err(|error| failed("sources", error))
        };
        for n in 0..FILES {
            write(&format!("work{n}.c"), source(n))?;
        }
        write("Makefile", makefile())?;
        let group = Self::make(&dir, jobs, cpus)?;
        Ok(Self {
            dir,
            jobs,
            cpus: cpus.to_vec(),
            ended: 0,
            group,
        })
    }

    /// Builds everything, even what exists already.
    fn make(dir: &Path, jobs: u32, cpus: &[u32]) -> Result<Group, String> {
        let mut make = Command::new("make");
        // The variables of a make above must not affect this one.
        make.env_remove("MAKEFLAGS").env_remove("MFLAGS");
        make.args(["--silent", "--always-make"])
            .arg(format!("--jobs={jobs}"));
        Group::start(make, cpus, dir, dir.join("make.log"))
    }

    fn tend(&mut self) -> Result<(), String> {
        match self.group.ended()? {
            None => Ok(()),
            Some(Err(why)) => Err(format!("the build failed: {why}")),
            Some(Ok(())) => {
                self.ended += 1;
                self.group = Self::make(&self.dir, self.jobs, &self.cpus)?;
                Ok(())
            }
        }
    }
}

/// The program of neighbour D, or what is missing.
pub fn find_fragment() -> Result<PathBuf, String> {
    let own = env::current_exe().unwrap_or_default();
    let beside = own.parent().unwrap_or(Path::new("/"));
    let places = FRAGMENT.map(|place| beside.join(place));
    let found = places.iter().find(|path| path.is_file());
    found
        .cloned()
        .ok_or_else(|| format!("there is no {}", places[0].display()))
}

/// A program that keeps the page cache full and memory fragmented.
struct Fragment {
    group: Group,
    file: PathBuf,
}

impl Fragment {
    /// Starts it; it reads a sparse file in `cache`.
    fn start(program: &Path, available: u64, cache: &Path, dir: &Path) -> Result<Self, String> {
        fs::create_dir_all(dir).map_err(|error| failed("neighbour", error))?;
        fs::create_dir_all(cache).map_err(|error| failed("neighbour", error))?;
        let file = cache.join(format!("hole-{}", std::process::id()));
        let hole = File::create(&file).and_then(|made| made.set_len(available * 2));
        hole.map_err(|error| failed(&file.display().to_string(), error))?;
        let mut command = Command::new(program);
        command
            .arg(((available / SCATTERED) >> 20).max(1).to_string())
            .arg(&file);
        let group = Group::start(command, &[], dir, dir.join("fragment.log"))?;
        Ok(Self { group, file })
    }

    fn is_ready(&self) -> bool {
        fs::read_to_string(&self.group.log).is_ok_and(|said| said.contains("ready"))
    }

    fn tend(&mut self) -> Result<(), String> {
        match self.group.ended()? {
            None => Ok(()),
            Some(Ok(())) => Err("fragment ended early".into()),
            Some(Err(why)) => Err(format!("fragment failed: {why}")),
        }
    }
}

impl Drop for Fragment {
    fn drop(&mut self) {
        // Its pages are freed with it once no process reads it.
        self.group.end();
        let _ = fs::remove_file(&self.file);
    }
}

/// All neighbours of a job. Dropping this ends them.
pub struct Neighbours {
    builds: Vec<Build>,
    filler: Option<Group>,
    fragment: Option<Fragment>,
    fill_bytes: Option<u64>,
    /// The available memory before they began.
    available_bytes: u64,
    begun: Instant,
}

impl Neighbours {
    /// Starts them, with their files in `dir`; a program fills `fill_bytes`.
    pub fn start(
        root: &Root,
        profile: Profile,
        parameters: &Parameters,
        fill_bytes: Option<u64>,
        dir: &Path,
        cache: Option<&Path>,
    ) -> Result<Self, String> {
        let mut all = Self {
            builds: Vec::new(),
            filler: None,
            fragment: None,
            fill_bytes,
            available_bytes: process::available_bytes(root).unwrap_or(0),
            begun: Instant::now(),
        };
        if profile == Profile::None {
            return Ok(all);
        }
        if profile == Profile::D {
            let (program, cache) = (find_fragment()?, cache.unwrap_or(dir));
            let available = all.available_bytes;
            all.fragment = Some(Fragment::start(&program, available, cache, dir)?);
        }
        if let Some(bytes) = fill_bytes {
            let cpus = match profile {
                Profile::C => &parameters.other_cpus[..],
                _ => &[],
            };
            fs::create_dir_all(dir).map_err(|error| failed("neighbour", error))?;
            let mut command = Command::new("stress-ng");
            // Without --vm-keep it maps, fills and unmaps its memory repeatedly.
            command
                .args(["--vm", "1", "--vm-bytes", &bytes.to_string()])
                .args(["--vm-method", "write64", "--temp-path"])
                .arg(dir);
            all.filler = Some(Group::start(command, cpus, dir, dir.join("fill.log"))?);
        }
        for n in 0..profile.builds() {
            all.builds.push(Build::start(
                dir.join(format!("build{n}")),
                parameters.build_jobs(profile),
                parameters.build_cpus(profile, n),
            )?);
        }
        Ok(all)
    }

    /// Waits until they are at work.
    pub fn settle(&mut self, root: &Root, stop: impl Fn() -> bool) -> Result<(), String> {
        let any = !self.builds.is_empty() || self.fragment.is_some();
        while any && !self.is_settled(root) && !stop() {
            self.tend()?;
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn is_settled(&self, root: &Root) -> bool {
        let now = process::available_bytes(root).unwrap_or(0);
        let filled = self.available_bytes.saturating_sub(now);
        let is_full = self.fill_bytes.is_none_or(|fill| filled > fill / 2);
        let since = self.begun.elapsed();
        if let Some(fragment) = &self.fragment {
            return fragment.is_ready() || since >= READ;
        }
        since >= FILL || (since >= SETTLE && is_full)
    }

    /// Begins ended builds anew; fails if a neighbour failed.
    pub fn tend(&mut self) -> Result<(), String> {
        for build in &mut self.builds {
            build.tend()?;
        }
        if let Some(fragment) = &mut self.fragment {
            fragment.tend()?;
        }
        match self
            .filler
            .as_mut()
            .map(Group::ended)
            .transpose()?
            .flatten()
        {
            None => Ok(()),
            Some(Ok(())) => Err("stress-ng ended early".into()),
            Some(Err(why)) => Err(format!("stress-ng failed: {why}")),
        }
    }

    /// Number of completed builds.
    pub fn builds_ended(&self) -> u32 {
        self.builds.iter().map(|build| build.ended).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::colocation::plan::tests::parameters;

    #[test]
    fn sources_are_always_the_same() {
        assert_eq!(source(3), source(3));
        assert_ne!(source(3), source(4));
        assert_eq!(source(0).matches("\ndouble ").count(), FUNCTIONS as usize);
        assert!(makefile().contains("work23.o\n"));
    }

    /// Processes of a group that have not ended.
    fn living(group: i32) -> usize {
        let root = Root::default();
        let lives = |pid: &String| {
            let text = root.read(format!("proc/{pid}/stat")).unwrap_or_default();
            let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
            let words: Vec<&str> = rest.split_whitespace().collect();
            words.get(2) == Some(&group.to_string().as_str()) && words[0] != "Z"
        };
        let entries = root.entries("proc").unwrap();
        entries.iter().filter(|pid| lives(pid)).count()
    }

    #[test]
    fn a_build_runs_and_ends_with_all_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = Neighbours::start(
            &Root::default(),
            Profile::A,
            &parameters(),
            None,
            dir.path(),
            None,
        )
        .unwrap();
        let group = all.builds[0].group.child.id() as i32;
        all.settle(&Root::default(), || false).unwrap();
        assert!(living(group) > 1);
        drop(all);
        // They have been killed but may not have ended yet.
        let deadline = Instant::now() + Duration::from_secs(20);
        while living(group) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(living(group), 0);
    }

    #[test]
    fn the_file_that_fills_the_page_cache_goes_with_its_reader() {
        let dir = tempfile::tempdir().unwrap();
        let (program, cache) = (dir.path().join("fragment"), dir.path().join("cache"));
        let script = "#!/bin/sh\n[ \"$1\" = 4 ] && [ -s \"$2\" ] && echo ready\nexec sleep 100\n";
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let own = dir.path().join("own");
        let mut fragment = Fragment::start(&program, 64 << 20, &cache, &own).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !fragment.is_ready() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        assert!(fragment.is_ready());
        assert_eq!(fragment.tend(), Ok(()));
        let files = || fs::read_dir(&cache).unwrap().count();
        assert_eq!(files(), 1);
        drop(fragment);
        assert_eq!(files(), 0);

        let mut ended = Fragment::start(Path::new("/bin/false"), 64 << 20, &cache, &own).unwrap();
        ended.group.child.wait().unwrap();
        assert!(ended.tend().unwrap_err().contains("fragment failed"));
    }

    #[test]
    fn a_build_that_fails_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let mut build = Build::start(dir.path().to_path_buf(), 1, &[]).unwrap();
        fs::write(dir.path().join("Makefile"), "all:\n\t@echo no; false\n").unwrap();
        build.group = Build::make(dir.path(), 1, &[]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let error = loop {
            match build.tend() {
                Err(why) => break why,
                Ok(()) if Instant::now() > deadline => panic!("it goes on"),
                Ok(()) => thread::sleep(Duration::from_millis(20)),
            }
        };
        assert!(
            error.starts_with("the build failed: exit status: 2"),
            "{error}"
        );
    }
}
