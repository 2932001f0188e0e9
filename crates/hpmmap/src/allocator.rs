//! The environment for programs with another malloc, or with a tuned one.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use hpmmap_base::error::{Error, Result};

use crate::region;

/// The malloc that replaces the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Malloc {
    Jemalloc,
}

const LIBRARY: &str = "libhpmmap_jemalloc.so";
const JEMALLOC: &str = "libjemalloc.so.2";
/// Directories of distributions for libraries of x86-64.
const SYSTEM_DIRS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];
/// Directories of the library relative to that of the command: in a build tree, and installed.
const OWN_DIRS: [&str; 4] = [
    "lib",
    "../lib/x86_64-linux-gnu/hpmmap",
    "../lib64/hpmmap",
    "../lib/hpmmap",
];

/// Extents are as large as requested, and those of a block or more are given back when they are
/// free: the module hands them out again without zeroing. Free extents of any size serve small
/// requests before new memory does.
const JEMALLOC_OPTIONS: &str =
    "retain:false,oversize_threshold:2097152,lg_extent_max_active_fit:30";

/// Variables of an environment.
type Variables = BTreeMap<OsString, OsString>;

/// The environment for execve(2): that of the command, with the variables for `malloc` and, with
/// `tune`, those that make glibc keep memory, by gigabytes if these are asked for. What it says of
/// the regions of another launch is left out.
pub fn environment(malloc: Option<Malloc>, tune: bool, gigabytes: bool) -> Result<Vec<CString>> {
    let mut variables: Variables = env::vars_os().collect();
    variables.remove(OsStr::new(region::VARIABLE));
    if malloc == Some(Malloc::Jemalloc) {
        let exe = env::current_exe()?;
        let own: Vec<_> = OWN_DIRS
            .iter()
            .map(|dir| exe.parent().unwrap_or(Path::new("/")).join(dir))
            .collect();
        let system: Vec<_> = SYSTEM_DIRS.iter().map(PathBuf::from).collect();
        use_jemalloc(&mut variables, &own, &system)?;
    }
    if tune {
        let options = if gigabytes {
            &GLIBC_GIGABYTES
        } else {
            &GLIBC_OPTIONS
        };
        tune_glibc(&mut variables, options);
    }
    variables
        .into_iter()
        .map(|(name, value)| {
            let line = [name.as_bytes(), b"=", value.as_bytes()].concat();
            CString::new(line)
                .map_err(|_| Error::Usage("the environment contains a zero byte".into()))
        })
        .collect()
}

fn use_jemalloc(variables: &mut Variables, own: &[PathBuf], system: &[PathBuf]) -> Result<()> {
    let jemalloc = find(JEMALLOC, system).ok_or_else(|| {
        Error::Failed(format!(
            "there is no {JEMALLOC} (install the package libjemalloc2; EL and Fedora: jemalloc)"
        ))
    })?;
    let library = find(LIBRARY, own).ok_or_else(|| {
        Error::Failed(format!(
            "there is no {LIBRARY} in {} (install it with: make install)",
            own[0].display()
        ))
    })?;
    for path in [&library, &jemalloc] {
        // A path in LD_PRELOAD cannot contain its separators.
        if path
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|b| b" :".contains(b))
        {
            return Err(Error::Failed(format!(
                "{}: LD_PRELOAD takes no path with spaces or colons",
                path.display()
            )));
        }
    }
    put_first(
        variables,
        "LD_PRELOAD",
        &[library.as_os_str(), jemalloc.as_os_str()].join(OsStr::new(":")),
        ":",
    );
    // jemalloc uses the last of several values, which is the user's.
    put_first(variables, "MALLOC_CONF", OsStr::new(JEMALLOC_OPTIONS), ",");
    Ok(())
}

fn find(name: &str, dirs: &[PathBuf]) -> Option<PathBuf> {
    dirs.iter()
        .map(|dir| dir.join(name))
        .find(|path| path.exists())
        .map(|path| path.canonicalize().unwrap_or(path))
}

/// Puts an element in front of a list, which may be empty.
fn put_first(variables: &mut Variables, name: &str, value: &OsStr, separator: &str) {
    let list = variables.entry(name.into()).or_default();
    let mut new = value.to_os_string();
    if !list.is_empty() {
        new.push(separator);
        new.push(&*list);
    }
    *list = new;
}

/// The break and the heaps of threads grow by at least a block and are not trimmed below a size.
/// Buffers up to 32 MB, the maximum that glibc accepts, come from there.
const GLIBC_OPTIONS: [(&str, &str); 3] = [
    ("glibc.malloc.trim_threshold", "268435456"),
    ("glibc.malloc.mmap_threshold", "33554432"),
    ("glibc.malloc.top_pad", "2097152"),
];

/// All memory comes from the break, whose first step covers a gigabyte: the heap begins up to a block
/// below one.
const GLIBC_GIGABYTES: [(&str, &str); 3] = [
    ("glibc.malloc.trim_threshold", "4294967296"),
    ("glibc.malloc.mmap_max", "0"),
    ("glibc.malloc.top_pad", "1075838976"),
];

fn tune_glibc(variables: &mut Variables, options: &[(&str, &str)]) {
    let tunables = variables.entry("GLIBC_TUNABLES".into()).or_default();
    for (name, value) in options {
        if !has_tunable(tunables, name) {
            if !tunables.is_empty() {
                tunables.push(":");
            }
            tunables.push(format!("{name}={value}"));
        }
    }
}

fn has_tunable(tunables: &OsStr, name: &str) -> bool {
    tunables.as_bytes().split(|&b| b == b':').any(|one| {
        one.strip_prefix(name.as_bytes())
            .is_some_and(|rest| rest.starts_with(b"="))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    fn get<'a>(variables: &'a Variables, name: &str) -> &'a str {
        variables[OsStr::new(name)].to_str().unwrap()
    }

    #[test]
    fn jemalloc_comes_in_front_and_the_users_options_last() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().join("no"), dir.path().to_path_buf()];
        for name in [LIBRARY, JEMALLOC] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let path = dir.path().canonicalize().unwrap();
        let both = format!("{0}/{LIBRARY}:{0}/{JEMALLOC}", path.display());

        let mut plain = Variables::new();
        use_jemalloc(&mut plain, &dirs, &dirs).unwrap();
        assert_eq!(get(&plain, "LD_PRELOAD"), both);
        assert_eq!(get(&plain, "MALLOC_CONF"), JEMALLOC_OPTIONS);

        let mut set = variables(&[("LD_PRELOAD", "a.so b.so"), ("MALLOC_CONF", "retain:true")]);
        use_jemalloc(&mut set, &dirs, &dirs).unwrap();
        assert_eq!(get(&set, "LD_PRELOAD"), format!("{both}:a.so b.so"));
        assert_eq!(
            get(&set, "MALLOC_CONF"),
            format!("{JEMALLOC_OPTIONS},retain:true")
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let with = [dir.path().to_path_buf()];
        let without = [dir.path().join("no")];
        std::fs::write(dir.path().join(JEMALLOC), "").unwrap();
        let message = |own: &[PathBuf], system: &[PathBuf]| {
            use_jemalloc(&mut Variables::new(), own, system)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            message(&with, &without),
            "there is no libjemalloc.so.2 (install the package libjemalloc2; EL and Fedora: jemalloc)"
        );
        assert!(message(&without, &with).starts_with("there is no libhpmmap_jemalloc.so in "));

        let spaced = dir.path().join("a b");
        std::fs::create_dir(&spaced).unwrap();
        std::fs::write(spaced.join(LIBRARY), "").unwrap();
        assert!(
            message(&[spaced], &with).ends_with("LD_PRELOAD takes no path with spaces or colons")
        );
    }

    #[test]
    fn tuning_leaves_what_the_user_has_set() {
        let mut plain = Variables::new();
        tune_glibc(&mut plain, &GLIBC_OPTIONS);
        assert_eq!(
            get(&plain, "GLIBC_TUNABLES"),
            "glibc.malloc.trim_threshold=268435456:glibc.malloc.mmap_threshold=33554432:\
             glibc.malloc.top_pad=2097152"
        );

        let mut set = variables(&[(
            "GLIBC_TUNABLES",
            "glibc.malloc.trim_threshold=1:glibc.malloc.mmap_thresholdx=2:glibc.malloc.top_pad=3",
        )]);
        tune_glibc(&mut set, &GLIBC_OPTIONS);
        assert_eq!(
            get(&set, "GLIBC_TUNABLES"),
            "glibc.malloc.trim_threshold=1:glibc.malloc.mmap_thresholdx=2:\
             glibc.malloc.top_pad=3:glibc.malloc.mmap_threshold=33554432"
        );
    }
}
