//! Allocators of the programs that `run` executes: what their environment needs.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::cli::{Malloc, RunArgs};
use crate::error::{Error, Result};

const LIBRARY: &str = "libhpmmap_jemalloc.so";
const JEMALLOC: &str = "libjemalloc.so.2";
/// Where distributions have libraries for x86-64.
const SYSTEM_DIRS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];
/// Where the library is, seen from the directory of the command: in a build
/// tree, and installed.
const OWN_DIRS: [&str; 4] = [
    "lib",
    "../lib/x86_64-linux-gnu/hpmmap",
    "../lib64/hpmmap",
    "../lib/hpmmap",
];

/// Extents are what was asked for, and those of a block or more are given back
/// when they are free: the module hands them out again without zeroing.
const JEMALLOC_OPTIONS: &str = "retain:false,oversize_threshold:2097152";

/// Variables of an environment.
type Variables = BTreeMap<OsString, OsString>;

/// The environment of the command, as execve(2) takes it.
pub fn environment(args: &RunArgs) -> Result<Vec<CString>> {
    let mut variables: Variables = env::vars_os().collect();
    if args.malloc == Some(Malloc::Jemalloc) {
        let exe = env::current_exe()?;
        let own: Vec<_> = OWN_DIRS
            .iter()
            .map(|dir| exe.parent().unwrap_or(Path::new("/")).join(dir))
            .collect();
        let system: Vec<_> = SYSTEM_DIRS.iter().map(PathBuf::from).collect();
        use_jemalloc(&mut variables, &own, &system)?;
    }
    if args.malloc_tune {
        tune(&mut variables);
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
            "there is no {JEMALLOC} (install it with: apt install libjemalloc2)"
        ))
    })?;
    let library = find(LIBRARY, own).ok_or_else(|| {
        Error::Failed(format!(
            "there is no {LIBRARY} in {} (install it with: make install)",
            own[0].display()
        ))
    })?;
    for path in [&library, &jemalloc] {
        // What separates the names in LD_PRELOAD cannot be part of one.
        if path.as_os_str().as_bytes().iter().any(|b| b" :".contains(b)) {
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
    // jemalloc takes the last of several values: the user's.
    put_first(variables, "MALLOC_CONF", OsStr::new(JEMALLOC_OPTIONS), ",");
    Ok(())
}

fn find(name: &str, dirs: &[PathBuf]) -> Option<PathBuf> {
    dirs.iter()
        .map(|dir| dir.join(name))
        .find(|path| path.exists())
        .map(|path| path.canonicalize().unwrap_or(path))
}

/// Puts something in front of a list that there may be already.
fn put_first(variables: &mut Variables, name: &str, value: &OsStr, separator: &str) {
    let list = variables.entry(name.into()).or_default();
    let mut new = value.to_os_string();
    if !list.is_empty() {
        new.push(separator);
        new.push(&*list);
    }
    *list = new;
}
