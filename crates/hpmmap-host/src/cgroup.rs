//! Control groups of the unified hierarchy (version 2).

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Root;

/// The mount point of the hierarchy; `None` if it is not mounted.
pub fn mount(root: &Root) -> Option<PathBuf> {
    let mounts = root.read("proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let path = words.next()?;
        (words.next()? == "cgroup2").then(|| root.join(path.trim_start_matches('/')))
    })
}

/// The directory for a path below the mount, as in `/proc/PID/cgroup`, or for a whole path.
pub fn directory(mount: &Path, text: &str) -> PathBuf {
    let path = Path::new(text);
    if path.starts_with(mount) {
        return path.to_path_buf();
    }
    mount.join(text.trim_start_matches('/'))
}

/// The path of the cgroup of a process, such as "self"; `None` if the process has ended.
pub fn of(root: &Root, process: &str) -> Option<String> {
    let text = root.read(format!("proc/{process}/cgroup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(line.to_string())
}

/// The path of the cgroup with this ID, below the mount; `None` if the hierarchy is not mounted or
/// the cgroup is gone. Without CAP_DAC_READ_SEARCH only the cgroup of this process and its
/// ancestors are found.
pub fn path(root: &Root, id: u64) -> Option<String> {
    let mount = mount(root)?;
    let own = of(root, "self").unwrap_or_else(|| "/".into());
    let found = above(&mount, &own, id).or_else(|| by_handle(&mount, id))?;
    Some(format!("/{}", found.strip_prefix(&mount).ok()?.display()))
}

/// The ID of the cgroup with this directory; `None` if it is gone.
pub fn number(directory: &Path) -> Option<u64> {
    // The kernel has it as the inode number.
    Some(directory.metadata().ok()?.ino())
}

/// The IDs of the cgroup of this process and of its ancestors.
pub fn own_numbers(root: &Root) -> Vec<u64> {
    let (Some(mount), Some(own)) = (mount(root), of(root, "self")) else {
        return Vec::new();
    };
    let own = mount.join(own.trim_start_matches('/'));
    let of_hierarchy = own.ancestors().take_while(|path| path.starts_with(&mount));
    of_hierarchy.filter_map(number).collect()
}

/// Finds the cgroup with this ID among a cgroup and its ancestors.
fn above(mount: &Path, own: &str, id: u64) -> Option<PathBuf> {
    let own = mount.join(own.trim_start_matches('/'));
    let of_hierarchy = own.ancestors().take_while(|path| path.starts_with(mount));
    let is_it = |path: &&Path| number(path) == Some(id);
    of_hierarchy.into_iter().find(is_it).map(Path::to_path_buf)
}

fn by_handle(mount: &Path, id: u64) -> Option<PathBuf> {
    let found = hpmmap_sys::cgroup::open(&File::open(mount).ok()?, id).ok()?;
    fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn the_hierarchy_is_found_wherever_it_is_mounted() {
        let fixture = Fixture::new();
        assert_eq!(mount(&fixture.root()), None);
        fixture.write(
            "proc/self/mounts",
            "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n\
             cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
        );
        let found = mount(&fixture.root()).unwrap();
        assert!(found.ends_with("sys/fs/cgroup/unified"), "{found:?}");
    }

    #[test]
    fn cgroups_by_path_and_by_number() {
        let fixture = Fixture::new();
        fixture.write("cg/slurm/job_1/cgroup.procs", "");
        let mount = fixture.path().join("cg");
        let job = mount.join("slurm/job_1");
        assert_eq!(directory(&mount, "/slurm/job_1"), job);
        assert_eq!(directory(&mount, "slurm/job_1"), job);
        assert_eq!(directory(&mount, job.to_str().unwrap()), job);
        fixture.write("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n");
        fixture.write("proc/self/cgroup", "1:cpu:/x\n0::/slurm/job_1\n");
        let root = fixture.root();
        for (directory, name) in [(&job, "/slurm/job_1"), (&mount.join("slurm"), "/slurm")] {
            let id = number(directory).unwrap();
            assert_eq!(path(&root, id).as_deref(), Some(name));
        }
        assert_eq!(path(&root, u64::MAX), None);
        // Not a cgroup.
        let outside = number(fixture.path()).unwrap();
        assert_eq!(path(&root, outside), None);
        assert_eq!(of(&root, "self").as_deref(), Some("/slurm/job_1"));
        assert_eq!(of(&root, "12"), None);
        assert_eq!(own_numbers(&root).len(), 3);
        assert_eq!(own_numbers(&root)[0], number(&job).unwrap());
    }
}
