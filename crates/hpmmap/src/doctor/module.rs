//! The module: whether it can be loaded, is, and who may use it.

use std::os::unix::fs::MetadataExt;

use hpmmap_base::VERSION;
use hpmmap_base::user_name;
use hpmmap_host::security::{self, Lockdown};
use hpmmap_host::{Root, boot, pool};
use hpmmap_sys::uapi;
use nix::unistd::{AccessFlags, Uid, access};

use super::{Check, Facts};
use crate::device;

pub fn signatures(root: &Root) -> Check {
    let id = "signatures";
    let hint = "sign hpmmap.ko with a key that is enrolled (mokutil --import), \
                as dkms does, or switch Secure Boot off";
    let found = security::lockdown(root).and_then(|lockdown| {
        let enforced = security::modules_must_be_signed(root)?;
        Ok((lockdown, enforced, security::secure_boot(root)?))
    });
    let (lockdown, enforced, secure_boot) = match found {
        Ok(found) => found,
        Err(error) => return Check::unknown(id, &error),
    };
    let mut reasons = Vec::new();
    match lockdown {
        Lockdown::None => (),
        Lockdown::Integrity => reasons.push("lockdown is 'integrity'"),
        Lockdown::Confidentiality => reasons.push("lockdown is 'confidentiality'"),
    }
    if enforced {
        reasons.push("signatures are enforced");
    }
    if reasons.is_empty() {
        let boot = if secure_boot { "on" } else { "off" };
        return Check::ok(id, format!("not required (Secure Boot {boot})"));
    }
    let detail = format!("modules must be signed: {}", reasons.join(", "));
    if pool::is_loaded(root) {
        Check::ok(id, format!("{detail}; the module is loaded all the same"))
    } else {
        Check::warn(id, detail, hint)
    }
}

pub fn module(root: &Root, release: &str) -> Check {
    let id = "module";
    if !pool::is_loaded(root) {
        return match boot::is_module_installed(root, release, "hpmmap") {
            Ok(true) => Check::fail(id, "installed, not loaded", "load it: modprobe hpmmap"),
            Ok(false) => Check::fail(
                id,
                format!("neither loaded nor installed for {release}"),
                "install it: make install; or load it: insmod hpmmap.ko",
            ),
            Err(error) => Check::unknown(id, &error),
        };
    }
    match pool::version(root) {
        Ok(version) if version == VERSION => Check::ok(id, format!("loaded, version {version}")),
        Ok(version) => Check::warn(
            id,
            format!("version {version} is loaded, this command is {VERSION}"),
            "load the module of the same version",
        ),
        Err(error) => Check::unknown(id, &error),
    }
}

pub fn interface(facts: &Facts) -> Check {
    let id = "interface";
    match &facts.info {
        Some(Ok(info)) if info.abi_version >= uapi::ABI_VERSION => {
            let version = info.abi_version;
            Check::ok(id, format!("version {version}, 1 GB runs use 2 MB entries"))
        }
        Some(Ok(info)) => Check::fail(
            id,
            format!(
                "version {}, this command needs {}",
                info.abi_version,
                uapi::ABI_VERSION
            ),
            "unload the module and load the one of this version",
        ),
        Some(Err(errno)) => Check::fail(
            id,
            format!("{} does not answer: {}", uapi::DEVICE_PATH, errno.desc()),
            "remove what is at this path and load the module again",
        ),
        None => Check::warn(
            id,
            "not asked, the device cannot be opened",
            "see the check 'device'",
        ),
    }
}

pub fn device_node(root: &Root) -> Check {
    let id = "device";
    let path = root.join(uapi::DEVICE_PATH.trim_start_matches('/'));
    let Ok(meta) = path.metadata() else {
        return Check::fail(
            id,
            format!("{} is missing", uapi::DEVICE_PATH),
            "see that udev or devtmpfs runs, then load the module again",
        );
    };
    let user = user_name(Uid::current().as_raw());
    let group = device::owner(&path);
    let detail = match &group {
        Some(group) => format!("{} is for the group '{group}'", uapi::DEVICE_PATH),
        None => format!("{} is for root only", uapi::DEVICE_PATH),
    };
    let for_group = "install the udev rule of hpmmap, or: groupadd -r hpmmap; \
                     chgrp hpmmap /dev/hpmmap; chmod 660 /dev/hpmmap";
    if meta.mode() & 0o006 != 0 {
        return Check::warn(
            id,
            format!("{} is open to every user", uapi::DEVICE_PATH),
            for_group,
        );
    }
    let accessible = access(&path, AccessFlags::R_OK | AccessFlags::W_OK).is_ok();
    match group {
        Some(_) if accessible => Check::ok(id, detail),
        Some(group) => Check::fail(
            id,
            format!("{detail}; {user} is not in it"),
            format!("usermod -aG {group} {user}, and log in again"),
        ),
        None if accessible => Check::warn(id, detail, for_group),
        None => Check::fail(id, detail, for_group),
    }
}
