//! `hpmmap cdi`: a specification by which container runtimes that know CDI add the device.

use std::fs::create_dir_all;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use hpmmap_base::error::{Error, Result, describe};
use hpmmap_base::output::print;
use hpmmap_base::safe_files;
use hpmmap_host::Root;
use hpmmap_sys::uapi;
use nix::sys::stat::{Mode, umask};
use serde::Serialize;

use crate::cli::CdiArgs;

/// The version that podman 4.3 of Debian 12 knows.
const VERSION: &str = "0.5.0";
const KIND: &str = "hpmmap.io/pool";

pub fn perform(args: &CdiArgs) -> Result<ExitCode> {
    let json = specification(&Root::default())?;
    match &args.output {
        Some(path) => {
            // All users' runtimes must be able to read it. This process makes no other file.
            umask(Mode::S_IWGRP | Mode::S_IWOTH);
            make_directory(path)?;
            safe_files::write(path, format!("{json}\n"))?;
        }
        None => print(&json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// `/etc/cdi` exists only if a package or an administrator has made it.
fn make_directory(path: &Path) -> Result<()> {
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    create_dir_all(directory).map_err(|error| {
        Error::Failed(format!(
            "cannot make {}: {}",
            directory.display(),
            describe(&error)
        ))
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Specification {
    cdi_version: &'static str,
    kind: &'static str,
    devices: [Device; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: &'static str,
    container_edits: Edits,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits {
    device_nodes: [Node; 1],
}

/// The device with its owner and mode on this machine, so that the same users may open it in the
/// container. Without an owner it would be the container's.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    path: &'static str,
    permissions: &'static str,
    file_mode: u32,
    uid: u32,
    gid: u32,
}

fn specification(root: &Root) -> Result<String> {
    let path = root.join(uapi::DEVICE_PATH.trim_start_matches('/'));
    let meta = path.metadata().map_err(|_| Error::NotLoaded)?;
    let specification = Specification {
        cdi_version: VERSION,
        kind: KIND,
        devices: [Device {
            name: "all",
            container_edits: Edits {
                device_nodes: [Node {
                    path: uapi::DEVICE_PATH,
                    permissions: "rw",
                    file_mode: meta.mode() & 0o777,
                    uid: meta.uid(),
                    gid: meta.gid(),
                }],
            },
        }],
    };
    serde_json::to_string_pretty(&specification)
        .map_err(|error| Error::Failed(format!("cannot write the specification: {error}")))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use hpmmap_host::fixture::Fixture;

    use super::*;

    #[test]
    fn the_directory_is_made() {
        let fixture = Fixture::new();
        let path = fixture.path().join("etc/cdi/hpmmap.json");
        make_directory(&path).unwrap();
        make_directory(&path).unwrap();
        assert!(path.parent().unwrap().is_dir());
        fixture.write("file", "");
        let error = make_directory(&fixture.path().join("file/x.json")).unwrap_err();
        assert!(error.to_string().starts_with("cannot make "), "{error}");
        make_directory(Path::new("hpmmap.json")).unwrap();
    }

    #[test]
    fn the_device_is_as_on_the_machine() {
        let fixture = Fixture::new();
        assert!(matches!(
            specification(&fixture.root()),
            Err(Error::NotLoaded)
        ));
        fixture.write("dev/hpmmap", "");
        let path = fixture.path().join("dev/hpmmap");
        set_permissions(&path, Permissions::from_mode(0o660)).unwrap();
        let json: serde_json::Value =
            serde_json::from_str(&specification(&fixture.root()).unwrap()).unwrap();
        assert_eq!(json["cdiVersion"], "0.5.0");
        assert_eq!(json["kind"], "hpmmap.io/pool");
        let device = &json["devices"][0];
        assert_eq!(device["name"], "all");
        let node = &device["containerEdits"]["deviceNodes"][0];
        assert_eq!(node["path"], "/dev/hpmmap");
        assert_eq!(node["permissions"], "rw");
        assert_eq!(node["fileMode"], 0o660);
        let meta = path.metadata().unwrap();
        assert_eq!(
            (&node["uid"], &node["gid"]),
            (&meta.uid().into(), &meta.gid().into())
        );
    }
}
