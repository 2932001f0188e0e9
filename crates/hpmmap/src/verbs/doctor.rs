//! `hpmmap doctor`

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use hpmmap_base::VERSION;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{print, print_json};
use hpmmap_base::size::short;
use hpmmap_base::user_name;
use hpmmap_host::boot::{self, Config};
use hpmmap_host::memory::{self, Zone};
use hpmmap_host::security::{self, Lockdown};
use hpmmap_host::{Root, node, pool, process};
use hpmmap_sys::{Device, Errno, uapi};
use nix::sys::utsname::uname;
use nix::unistd::{AccessFlags, Uid, access};
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::device;

/// The oldest kernel that is supported.
const OLDEST_KERNEL: (u32, u32) = (6, 1);

/// What the kernel must be built with; any one of each line, and why.
const OPTIONS: &[(&[&str], &str)] = &[
    (
        &["CONFIG_MEMORY_HOTPLUG", "CONFIG_MEMORY_HOTPLUG_SPARSE"],
        "memory blocks",
    ),
    (&["CONFIG_MEMORY_HOTREMOVE"], "taking memory offline"),
    (&["CONFIG_FUNCTION_TRACER"], "the hooks"),
    (
        &[
            "CONFIG_DYNAMIC_FTRACE_WITH_ARGS",
            "CONFIG_HAVE_DYNAMIC_FTRACE_WITH_ARGS",
        ],
        "the hooks",
    ),
    (&["CONFIG_KPROBES"], "finding kernel functions"),
    (&["CONFIG_KALLSYMS"], "finding kernel functions"),
];

pub fn perform(args: &DoctorArgs) -> Result<ExitCode> {
    let root = args.root();
    if !root.join("proc").is_dir() {
        return Err(Error::Usage(format!(
            "--root {} holds no directory proc",
            args.root.display()
        )));
    }
    let checks = examine(&root, &Facts::gather(&root));
    let report = Report::new(checks);
    if args.json {
        print_json(&report)?;
    } else {
        print(&report.text())?;
    }
    Ok(if report.able {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One check: what was found and, unless it is fine, what to do.
#[derive(Debug, Serialize)]
struct Check {
    id: &'static str,
    result: Verdict,
    detail: String,
    hint: Option<String>,
}

impl Check {
    fn ok(id: &'static str, detail: impl Into<String>) -> Self {
        Self {
            id,
            result: Verdict::Ok,
            detail: detail.into(),
            hint: None,
        }
    }

    fn warn(id: &'static str, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            id,
            result: Verdict::Warn,
            detail: detail.into(),
            hint: Some(hint.into()),
        }
    }

    fn fail(id: &'static str, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            result: Verdict::Fail,
            ..Self::warn(id, detail, hint)
        }
    }

    /// For what could not be found out.
    fn unknown(id: &'static str, error: &hpmmap_host::Error) -> Self {
        Self::warn(
            id,
            format!("cannot be checked: {error}"),
            "run hpmmap doctor as root",
        )
    }
}

#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    /// No check failed.
    able: bool,
    checks: Vec<Check>,
}

impl Report {
    fn new(checks: Vec<Check>) -> Self {
        Self {
            version: VERSION,
            able: checks.iter().all(|check| check.result != Verdict::Fail),
            checks,
        }
    }

    fn text(&self) -> String {
        let mut lines = Vec::new();
        for check in &self.checks {
            let verdict = match check.result {
                Verdict::Ok => "ok  ",
                Verdict::Warn => "warn",
                Verdict::Fail => "FAIL",
            };
            lines.push(format!("{verdict}  {:<14}  {}", check.id, check.detail));
            if let Some(hint) = &check.hint {
                lines.push(format!("{:>20}  -> {hint}", ""));
            }
        }
        let count = |verdict| self.checks.iter().filter(|c| c.result == verdict).count();
        lines.push(String::new());
        lines.push(match (count(Verdict::Fail), count(Verdict::Warn)) {
            (0, 0) => "This machine is ready for hpmmap.".to_string(),
            (0, warnings) => format!("This machine is ready for hpmmap, warnings: {warnings}."),
            (failures, _) => format!("This machine cannot run hpmmap yet, failed: {failures}."),
        });
        lines.join("\n")
    }
}

/// What does not come from files below the root.
#[derive(Debug)]
struct Facts {
    machine: String,
    /// What the device answers; `None` if it was not asked.
    info: Option<std::result::Result<uapi::Info, Errno>>,
}

impl Facts {
    fn gather(root: &Root) -> Self {
        let machine = if root.is_live() {
            uname().map_or_else(
                |_| "unknown".into(),
                |names| names.machine().to_string_lossy().into_owned(),
            )
        } else {
            root.read("proc/sys/kernel/arch")
                .unwrap_or_else(|_| "unknown".into())
        };
        let info = root
            .is_live()
            .then(|| Device::open(Path::new(uapi::DEVICE_PATH)).ok())
            .flatten()
            .map(|device| device.info());
        Self { machine, info }
    }
}

fn examine(root: &Root, facts: &Facts) -> Vec<Check> {
    let release = process::kernel_release(root).unwrap_or_else(|_| "unknown".into());
    let mut checks = vec![
        architecture(&facts.machine),
        kernel(&release),
        config(root, &release),
        entries(root),
        ftrace(root),
        livepatch(root),
        memory_blocks(root),
    ];
    checks.extend(movable(root));
    checks.push(signatures(root));
    checks.push(module(root, &release));
    if pool::is_loaded(root) {
        checks.push(interface(facts));
        checks.push(device_node(root));
        checks.push(pools(root));
    }
    checks
}

fn architecture(machine: &str) -> Check {
    let id = "architecture";
    match machine {
        "x86_64" => Check::ok(id, machine),
        "unknown" => Check::warn(
            id,
            "unknown: proc/sys/kernel/arch is missing",
            "hpmmap needs x86_64",
        ),
        other => Check::fail(id, other, "hpmmap needs x86_64"),
    }
}

fn kernel(release: &str) -> Check {
    let id = "kernel";
    let (major, minor) = OLDEST_KERNEL;
    let mut parts = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(a), Some(b)) if (a, b) >= OLDEST_KERNEL => Check::ok(id, release),
        _ => Check::fail(
            id,
            release,
            format!("hpmmap needs Linux {major}.{minor} or newer"),
        ),
    }
}

fn config(root: &Root, release: &str) -> Check {
    let id = "config";
    let config = match Config::read(root, release) {
        Ok(Some(config)) => config,
        Ok(None) => {
            return Check::warn(
                id,
                format!("there is no /boot/config-{release}, and no /proc/config.gz either"),
                "install the file of the kernel's package, or run: modprobe configs",
            );
        }
        Err(error) => return Check::unknown(id, &error),
    };
    let missing: Vec<String> = OPTIONS
        .iter()
        .filter(|(names, _)| !names.iter().any(|name| config.is_enabled(name)))
        .map(|(names, purpose)| format!("{} ({purpose})", names[0]))
        .collect();
    if missing.is_empty() {
        Check::ok(id, format!("{} has all that is needed", config.source))
    } else {
        Check::fail(
            id,
            format!("{} lacks {}", config.source, missing.join(", ")),
            "use a kernel that is built with these, such as Debian's",
        )
    }
}

/// PREEMPT_RT excludes transparent huge pages, and with them what maps 2 MB.
fn entries(root: &Root) -> Check {
    let id = "entries";
    if root.join("sys/kernel/mm/transparent_hugepage").is_dir() {
        Check::ok(id, "2 MB")
    } else {
        Check::warn(
            id,
            "memory will be mapped by entries of 4 KB: this kernel has no transparent huge pages",
            "for entries of 2 MB use a kernel with CONFIG_TRANSPARENT_HUGEPAGE, which is one without PREEMPT_RT",
        )
    }
}

fn ftrace(root: &Root) -> Check {
    let id = "ftrace";
    match process::ftrace_enabled(root) {
        Ok(Some(true)) => Check::ok(id, "on"),
        Ok(Some(false)) => Check::fail(
            id,
            "switched off",
            "switch it on: sysctl kernel.ftrace_enabled=1",
        ),
        Ok(None) => Check::fail(
            id,
            "not in this kernel",
            "use a kernel with CONFIG_FUNCTION_TRACER",
        ),
        Err(error) => Check::unknown(id, &error),
    }
}

fn livepatch(root: &Root) -> Check {
    let id = "livepatch";
    match security::livepatches(root) {
        Ok(patches) if patches.is_empty() => Check::ok(id, "none"),
        Ok(patches) => Check::warn(
            id,
            format!("loaded: {}", patches.join(", ")),
            "if 'hpmmap run' says that the hooks are in use, a live patch holds \
             one of the functions that hpmmap hooks",
        ),
        Err(error) => Check::unknown(id, &error),
    }
}

/// Blocks of a node that could be taken.
struct Removable {
    node: u32,
    movable: usize,
    other: usize,
}

fn removable(root: &Root) -> hpmmap_host::Result<Vec<Removable>> {
    node::with_memory(root)?
        .into_iter()
        .map(|node| {
            let blocks = memory::blocks_of_node(root, node)?;
            let able = blocks.iter().filter(|block| block.can_go_offline());
            let (movable, other): (Vec<_>, Vec<_>) =
                able.partition(|block| block.zone == Zone::Movable);
            Ok(Removable {
                node,
                movable: movable.len(),
                other: other.len(),
            })
        })
        .collect()
}

fn memory_blocks(root: &Root) -> Check {
    let id = "memory-blocks";
    if !memory::is_supported(root) {
        return Check::fail(
            id,
            "/sys/devices/system/memory is missing",
            "use a kernel with CONFIG_MEMORY_HOTPLUG and CONFIG_MEMORY_HOTREMOVE",
        );
    }
    let found = memory::block_bytes(root).and_then(|bytes| Ok((bytes, removable(root)?)));
    let (block_bytes, nodes) = match found {
        Ok(found) => found,
        Err(error) => return Check::unknown(id, &error),
    };
    let per_node: Vec<String> = nodes
        .iter()
        .map(|n| {
            let total = n.movable + n.other;
            format!(
                "node {}: {total} that may be taken ({}), {} of them movable",
                n.node,
                short(total as u64 * block_bytes),
                n.movable
            )
        })
        .collect();
    let detail = format!("{} each; {}", short(block_bytes), per_node.join("; "));
    let total: usize = nodes.iter().map(|n| n.movable + n.other).sum();
    // Where a pool has taken them all, none being left is as it should be.
    if total > 0 || has_pools(root) {
        Check::ok(id, detail)
    } else {
        Check::fail(
            id,
            detail,
            "boot with movablecore=SIZE, so that Linux leaves memory blocks free to take",
        )
    }
}

fn has_pools(root: &Root) -> bool {
    pool::nodes(root).is_ok_and(|nodes| nodes.iter().any(|node| node.total_bytes > 0))
}

/// Whether taking blocks will succeed; nothing to say without blocks.
fn movable(root: &Root) -> Option<Check> {
    let id = "movablecore";
    let nodes = removable(root).ok()?;
    let movable: usize = nodes.iter().map(|n| n.movable).sum();
    let command_line = process::kernel_command_line(root).unwrap_or_default();
    let option = command_line
        .split_whitespace()
        .find(|word| word.starts_with("movablecore=") || word.starts_with("kernelcore="));
    Some(match option {
        Some(option) => Check::ok(id, format!("booted with {option}")),
        None if movable > 0 => Check::ok(id, format!("{movable} movable memory blocks")),
        None => Check::warn(
            id,
            "no memory is reserved for movable content",
            "for big pools boot with movablecore=SIZE; without it taking blocks may \
             fail once the kernel has put its own memory into them",
        ),
    })
}

fn signatures(root: &Root) -> Check {
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

fn module(root: &Root, release: &str) -> Check {
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

fn interface(facts: &Facts) -> Check {
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

fn device_node(root: &Root) -> Check {
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

fn pools(root: &Root) -> Check {
    let id = "pools";
    let nodes = match pool::nodes(root) {
        Ok(nodes) => nodes,
        Err(error) => return Check::unknown(id, &error),
    };
    let filled: Vec<String> = nodes
        .iter()
        .filter(|node| node.total_bytes > 0)
        .map(|node| {
            format!(
                "node {}: {} of {} free",
                node.node,
                short(node.free_bytes),
                short(node.total_bytes)
            )
        })
        .collect();
    if filled.is_empty() {
        Check::warn(id, "empty", "add memory: hpmmap pool add --size SIZE")
    } else {
        Check::ok(id, filled.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use hpmmap_host::fixture::Fixture;

    use super::*;

    const RELEASE: &str = "6.1.0-56-amd64";

    /// A machine with everything hpmmap needs, the module loaded, and a pool.
    fn able() -> Fixture {
        let fixture = Fixture::new();
        fixture.write("proc/sys/kernel/osrelease", &format!("{RELEASE}\n"));
        fixture.write("proc/sys/kernel/arch", "x86_64\n");
        fixture.write("proc/sys/kernel/ftrace_enabled", "1\n");
        fixture.write("sys/kernel/mm/transparent_hugepage/enabled", "always\n");
        fixture.write("proc/cmdline", "quiet movablecore=4G\n");
        let options: String = OPTIONS
            .iter()
            .map(|(names, _)| format!("{}=y\n", names[0]))
            .collect();
        fixture.write(&format!("boot/config-{RELEASE}"), &options);
        fixture.write(
            "sys/kernel/security/lockdown",
            "[none] integrity confidentiality\n",
        );
        fixture.block_size(128 << 20);
        fixture.nodes("0");
        fixture.block(0, 0, "online", "none");
        fixture.block(0, 32, "online", "Normal");
        fixture.block(0, 40, "online", "Movable");
        fixture.module();
        fixture.write("sys/kernel/hpmmap/version", &format!("{VERSION}\n"));
        fixture.node_pool(0, 4 << 30, 3 << 30, 1 << 30, 0);
        device(&fixture, 0o600);
        fixture
    }

    fn device(fixture: &Fixture, mode: u32) {
        fixture.write("dev/hpmmap", "");
        set_permissions(
            fixture.path().join("dev/hpmmap"),
            Permissions::from_mode(mode),
        )
        .unwrap();
    }

    fn info(abi_version: u32) -> uapi::Info {
        uapi::Info {
            abi_version,
            ..Default::default()
        }
    }

    fn facts() -> Facts {
        Facts {
            machine: "x86_64".into(),
            info: Some(Ok(info(uapi::ABI_VERSION))),
        }
    }

    #[track_caller]
    fn assert_check(fixture: &Fixture, id: &str, result: Verdict, words: &str) {
        assert_check_with(fixture, &facts(), id, result, words);
    }

    #[track_caller]
    fn assert_check_with(fixture: &Fixture, facts: &Facts, id: &str, result: Verdict, words: &str) {
        let report = Report::new(examine(&fixture.root(), facts));
        let check = report
            .checks
            .iter()
            .find(|check| check.id == id)
            .unwrap_or_else(|| panic!("no check {id}"));
        assert_eq!(check.result, result, "{check:?}");
        let all = format!("{} {}", check.detail, check.hint.as_deref().unwrap_or(""));
        assert!(all.contains(words), "{check:?}");
        assert_eq!(check.hint.is_some(), result != Verdict::Ok, "{check:?}");
        if result == Verdict::Fail {
            assert!(!report.able);
        }
    }

    #[test]
    fn a_good_machine_passes_everything() {
        let report = Report::new(examine(&able().root(), &facts()));
        let bad: Vec<&Check> = report
            .checks
            .iter()
            // A fixture cannot belong to another group.
            .filter(|check| check.result != Verdict::Ok && check.id != "device")
            .collect();
        assert!(bad.is_empty(), "{bad:?}");
        assert!(report.able);
        assert_eq!(report.checks.len(), 13);
    }

    #[test]
    fn another_architecture_fails() {
        let facts = Facts {
            machine: "aarch64".into(),
            ..facts()
        };
        assert_check_with(&able(), &facts, "architecture", Verdict::Fail, "x86_64");
    }

    #[test]
    fn kernels_before_6_1_fail() {
        for (release, result) in [
            ("6.1.0-56-amd64", Verdict::Ok),
            ("6.12.117+deb12-amd64", Verdict::Ok),
            ("7.0-rc1", Verdict::Ok),
            ("6.0.19", Verdict::Fail),
            ("5.15.0", Verdict::Fail),
            ("unknown", Verdict::Fail),
        ] {
            assert_eq!(kernel(release).result, result, "{release}");
        }
    }

    #[test]
    fn every_option_is_needed() {
        let fixture = able();
        let file = format!("boot/config-{RELEASE}");
        let all = fixture.root().read(&file).unwrap();
        for (names, _) in OPTIONS {
            let without = all.replace(&format!("{}=y", names[0]), "");
            fixture.write(&file, &without);
            assert_check(&fixture, "config", Verdict::Fail, names[0]);
            for other in &names[1..] {
                fixture.write(&file, &format!("{without}\n{other}=y\n"));
                assert_check(&fixture, "config", Verdict::Ok, "all that is needed");
            }
        }
        fixture.remove(&file);
        assert_check(&fixture, "config", Verdict::Warn, "/proc/config.gz");
    }

    #[test]
    fn without_huge_pages_entries_are_small() {
        let fixture = able();
        fixture.remove("sys/kernel/mm/transparent_hugepage");
        assert_check(&fixture, "entries", Verdict::Warn, "PREEMPT_RT");
    }

    #[test]
    fn ftrace_must_be_on() {
        let fixture = able();
        fixture.write("proc/sys/kernel/ftrace_enabled", "0\n");
        assert_check(&fixture, "ftrace", Verdict::Fail, "kernel.ftrace_enabled=1");
        fixture.remove("proc/sys/kernel/ftrace_enabled");
        assert_check(&fixture, "ftrace", Verdict::Fail, "CONFIG_FUNCTION_TRACER");
    }

    #[test]
    fn a_live_patch_is_named() {
        let fixture = able();
        fixture.write("sys/kernel/livepatch/kpatch_7/enabled", "1\n");
        assert_check(&fixture, "livepatch", Verdict::Warn, "kpatch_7");
    }

    #[test]
    fn blocks_are_counted_per_node() {
        let fixture = able();
        assert_check(
            &fixture,
            "memory-blocks",
            Verdict::Ok,
            "128M each; node 0: 2 that may be taken (256M), 1 of them movable",
        );
        fixture.node_pool(0, 0, 0, 0, 0);
        for block in [32, 40] {
            fixture.write(
                &format!("sys/devices/system/memory/memory{block}/valid_zones"),
                "none\n",
            );
        }
        assert_check(&fixture, "memory-blocks", Verdict::Fail, "movablecore");
        fixture.remove("sys/devices/system/memory");
        assert_check(
            &fixture,
            "memory-blocks",
            Verdict::Fail,
            "CONFIG_MEMORY_HOTREMOVE",
        );
    }

    #[test]
    fn movablecore_is_recommended_where_nothing_is_movable() {
        let fixture = able();
        fixture.write("proc/cmdline", "quiet\n");
        assert_check(&fixture, "movablecore", Verdict::Ok, "1 movable");
        fixture.write("sys/devices/system/memory/memory40/valid_zones", "Normal\n");
        assert_check(&fixture, "movablecore", Verdict::Warn, "movablecore=SIZE");
    }

    #[test]
    fn signatures_matter_until_the_module_is_in() {
        let fixture = able();
        fixture.write("sys/module/module/parameters/sig_enforce", "Y\n");
        assert_check(&fixture, "signatures", Verdict::Ok, "loaded all the same");
        fixture.remove("sys/kernel/hpmmap");
        assert_check(&fixture, "signatures", Verdict::Warn, "mokutil");
        fixture.remove("sys/module/module/parameters/sig_enforce");
        assert_check(&fixture, "signatures", Verdict::Ok, "not required");
        fixture.write(
            "sys/kernel/security/lockdown",
            "none [integrity] confidentiality\n",
        );
        assert_check(&fixture, "signatures", Verdict::Warn, "integrity");
    }

    #[test]
    fn a_module_that_is_not_loaded_fails_with_the_command_that_helps() {
        let fixture = able();
        fixture.remove("sys/kernel/hpmmap");
        assert_check(&fixture, "module", Verdict::Fail, "insmod hpmmap.ko");
        fixture.write(
            &format!("lib/modules/{RELEASE}/modules.dep"),
            "updates/dkms/hpmmap.ko:\n",
        );
        assert_check(&fixture, "module", Verdict::Fail, "modprobe hpmmap");
        let ids: Vec<&str> = examine(&fixture.root(), &facts())
            .iter()
            .map(|check| check.id)
            .collect();
        for id in ["interface", "device", "pools"] {
            assert!(!ids.contains(&id), "{id}");
        }
    }

    #[test]
    fn a_module_of_another_version_is_told() {
        let fixture = able();
        fixture.write("sys/kernel/hpmmap/version", "0.0.1\n");
        assert_check(&fixture, "module", Verdict::Warn, "0.0.1");
        let old = Facts {
            info: Some(Ok(info(0))),
            ..facts()
        };
        let needs = format!("needs {}", uapi::ABI_VERSION);
        assert_check_with(&fixture, &old, "interface", Verdict::Fail, &needs);
        let mute = Facts {
            info: Some(Err(Errno::ENOTTY)),
            ..facts()
        };
        assert_check_with(&fixture, &mute, "interface", Verdict::Fail, "answer");
        let closed = Facts {
            info: None,
            ..facts()
        };
        assert_check_with(&fixture, &closed, "interface", Verdict::Warn, "device");
    }

    #[test]
    fn the_device_is_for_a_group() {
        let fixture = able();
        assert_check(&fixture, "device", Verdict::Warn, "root only");
        device(&fixture, 0o666);
        assert_check(&fixture, "device", Verdict::Warn, "every user");
        fixture.remove("dev/hpmmap");
        assert_check(&fixture, "device", Verdict::Fail, "missing");
    }

    #[test]
    fn empty_pools_are_a_warning() {
        let fixture = able();
        assert_check(&fixture, "pools", Verdict::Ok, "node 0: 3G of 4G free");
        fixture.node_pool(0, 0, 0, 0, 0);
        assert_check(&fixture, "pools", Verdict::Warn, "hpmmap pool add");
    }

    #[test]
    fn json_is_a_list_of_checks() {
        let fixture = able();
        fixture.remove("sys/kernel/hpmmap");
        let report = Report::new(examine(&fixture.root(), &facts()));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["version"], VERSION);
        assert_eq!(json["able"], false);
        let module = json["checks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|check| check["id"] == "module")
            .unwrap();
        assert_eq!(module["result"], "fail");
        assert!(module["hint"].is_string());
        assert!(report.text().contains("FAIL  module"), "{}", report.text());
    }

    #[test]
    fn a_copy_of_another_machine_is_not_asked_for_its_device() {
        let facts = Facts::gather(&able().root());
        assert_eq!(facts.machine, "x86_64");
        assert!(facts.info.is_none());
    }
}
