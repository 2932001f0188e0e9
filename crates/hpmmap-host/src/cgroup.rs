//! Control groups of the unified hierarchy (version 2).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Root;

/// Where the hierarchy is mounted; `None` if it is not.
pub fn mount(root: &Root) -> Option<PathBuf> {
    let mounts = root.read("proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let path = words.next()?;
        (words.next()? == "cgroup2").then(|| root.join(path.trim_start_matches('/')))
    })
}

/// The directory that is meant: a path below the mount, as `/proc/PID/cgroup`
/// has it, or the whole one.
pub fn directory(mount: &Path, text: &str) -> PathBuf {
    let path = Path::new(text);
    if path.starts_with(mount) {
        return path.to_path_buf();
    }
    mount.join(text.trim_start_matches('/'))
}

/// The path of the cgroup with this number below where the hierarchy is
/// mounted; `None` if it is not mounted, or the cgroup is gone.
pub fn path(root: &Root, id: u64) -> Option<String> {
    path_of(&mount(root)?, id)
}

fn path_of(mount: &Path, id: u64) -> Option<String> {
    // The number of a cgroup is the inode number of its directory.
    let mut left = vec![mount.to_path_buf()];
    while let Some(directory) = left.pop() {
        if directory.metadata().is_ok_and(|meta| meta.ino() == id) {
            let below = directory.strip_prefix(mount).ok()?;
            return Some(format!("/{}", below.display()));
        }
        // Cgroups come and go.
        let Ok(entries) = directory.read_dir() else {
            continue;
        };
        left.extend(
            entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
    None
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
        let id = job.metadata().unwrap().ino();
        assert_eq!(path_of(&mount, id).as_deref(), Some("/slurm/job_1"));
        assert_eq!(path_of(&mount, u64::MAX), None);
    }
}
