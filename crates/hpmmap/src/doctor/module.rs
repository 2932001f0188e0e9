//! Checks of the module: whether it can be loaded, is loaded, and who may use it.

use std::os::unix::fs::MetadataExt;

use hpmmap_base::VERSION;
use hpmmap_base::user_name;
use hpmmap_host::boot::Installed;
use hpmmap_host::security::{self, Lockdown};
use hpmmap_host::{Root, boot, pool};
use hpmmap_sys::uapi;
use nix::unistd::{AccessFlags, Uid, access};

use super::{Check, Facts};
use crate::device;

pub fn signatures(root: &Root, facts: &Facts) -> Check {
    let id = "signatures";
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
        return Check::ok(id, format!("{detail}; the module is loaded all the same"));
    }
    match facts
        .installed
        .as_ref()
        .map(|module| module.signer.as_str())
    {
        Some("") => Check::fail(
            id,
            format!("{detail}; hpmmap.ko is not"),
            "let dkms sign it, and enrol its key: mokutil --import /var/lib/dkms/mok.pub, \
             then reboot; or switch Secure Boot off",
        ),
        Some(signer) => Check::warn(
            id,
            format!("{detail}; hpmmap.ko is, by '{signer}'"),
            "if it cannot be loaded, that key is not enrolled: \
             mokutil --import /var/lib/dkms/mok.pub, then reboot",
        ),
        None => Check::warn(
            id,
            detail,
            "sign hpmmap.ko with a key that is enrolled (mokutil --import), \
             as dkms does, or switch Secure Boot off",
        ),
    }
}

/// The installed module, if it differs from the loaded one.
pub fn waiting<'a>(root: &Root, installed: Option<&'a Installed>) -> Option<&'a Installed> {
    let loaded = boot::loaded_srcversion(root, "hpmmap").ok().flatten()?;
    installed.filter(|module| module.srcversion != loaded)
}

/// How to load the installed one.
pub const HOW_TO_RELOAD: &str = "it is used from the next boot on, or, when no job runs: \
    systemctl stop hpmmap-pools; modprobe -r hpmmap; systemctl start hpmmap-pools";

pub fn module(root: &Root, release: &str, facts: &Facts) -> Check {
    let id = "module";
    if !pool::is_loaded(root) {
        return match boot::is_module_installed(root, release, "hpmmap") {
            Ok(true) => Check::fail(id, "installed, not loaded", "load it: modprobe hpmmap"),
            Ok(false) => Check::fail(
                id,
                format!("neither loaded nor installed for {release}"),
                "install it: dkms autoinstall, or make install; or load it: insmod hpmmap.ko",
            ),
            Err(error) => Check::unknown(id, &error),
        };
    }
    if let (Ok(version), Some(module)) =
        (pool::version(root), waiting(root, facts.installed.as_ref()))
    {
        return Check::warn(
            id,
            match module.version == version {
                true => format!("version {version} is loaded, another build of it is installed"),
                false => format!(
                    "version {version} is loaded, {} is installed",
                    module.version
                ),
            },
            HOW_TO_RELOAD,
        );
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
            Check::ok(id, format!("version {version}"))
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

pub fn gigabytes(root: &Root) -> Check {
    let id = "gigabytes";
    match pool::why_no_gigabytes(root) {
        Ok(None) => Check::ok(id, "--page-size 1G makes entries of 1 GB"),
        Ok(Some(why)) => Check::ok(id, format!("--page-size 1G makes entries of 2 MB: {why}")),
        Err(error) => Check::unknown(id, &error),
    }
}

pub fn device_node(root: &Root) -> Check {
    let id = "device";
    let path = root.join(uapi::DEVICE_PATH.trim_start_matches('/'));
    let Ok(meta) = path.metadata() else {
        return Check::fail(
            id,
            format!("{} is missing", uapi::DEVICE_PATH),
            "see that udev or devtmpfs runs, then load the module again; \
             a container needs --device hpmmap.io/pool=all",
        );
    };
    let user = user_name(Uid::current().as_raw());
    let group = device::owner(&path);
    let detail = match &group {
        Some(group) => format!("{} is for the group {group}", uapi::DEVICE_PATH),
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
            device::how_to_join(&group),
        ),
        None if accessible => Check::warn(id, detail, for_group),
        None => Check::fail(id, detail, for_group),
    }
}
