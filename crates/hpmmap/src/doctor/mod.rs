//! The checks of `hpmmap doctor`: each says what was found, and what to do.

mod host;
mod kernel;
mod memory;
pub mod module;
mod partitions;

use std::path::Path;

use hpmmap_base::VERSION;
use hpmmap_host::boot::{self, Installed};
use hpmmap_host::{Root, pool, process};
use hpmmap_sys::{Device, Errno, uapi};
use nix::sys::utsname::uname;
use serde::Serialize;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One check: what was found and, unless it is fine, what to do.
#[derive(Debug, Serialize)]
pub struct Check {
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

    /// A check that could not be made.
    fn unknown(id: &'static str, error: &hpmmap_host::Error) -> Self {
        Self::warn(
            id,
            format!("cannot be checked: {error}"),
            "run hpmmap doctor as root",
        )
    }
}

/// The result of all checks.
#[derive(Debug, Serialize)]
pub struct Report {
    version: &'static str,
    /// True if no check failed.
    pub able: bool,
    checks: Vec<Check>,
}

impl Report {
    /// Sums up these checks.
    pub fn new(checks: Vec<Check>) -> Self {
        Self {
            version: VERSION,
            able: checks.iter().all(|check| check.result != Verdict::Fail),
            checks,
        }
    }

    /// The report for people.
    pub fn text(&self) -> String {
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

/// Facts that do not come from files below the root.
#[derive(Debug)]
pub struct Facts {
    machine: String,
    /// The device's answer; `None` if it was not asked.
    info: Option<std::result::Result<uapi::Info, Errno>>,
    /// Lines of `/etc/hpmmap/limits` that do not hold; `None` if that is not known.
    unmet_limits: Option<Vec<String>>,
    /// The module that modprobe would load.
    installed: Option<Installed>,
}

impl Facts {
    /// If `root` is the running machine, the device and the tools are asked; otherwise only files
    /// are read.
    pub fn gather(root: &Root, unmet_limits: Option<Vec<String>>) -> Self {
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
        let installed = process::kernel_release(root)
            .ok()
            .and_then(|release| boot::installed_module(root, &release, "hpmmap"));
        Self {
            machine,
            info,
            unmet_limits,
            installed,
        }
    }
}

/// All checks of a machine, in the order in which they matter.
pub fn examine(root: &Root, facts: &Facts) -> Vec<Check> {
    let release = process::kernel_release(root).unwrap_or_else(|_| "unknown".into());
    let mut checks = vec![
        kernel::architecture(&facts.machine),
        kernel::kernel(&release),
        kernel::config(root, &release),
        kernel::entries(root),
        kernel::ftrace(root),
        kernel::livepatch(root),
        memory::memory_blocks(root),
    ];
    checks.extend(memory::movable(root));
    checks.push(partitions::partitions(root));
    checks.extend(host::host(root));
    checks.push(module::signatures(root, facts));
    checks.push(module::module(root, &release, facts));
    if pool::is_loaded(root) {
        checks.push(module::interface(facts));
        checks.push(module::gigabytes(root));
        checks.push(module::device_node(root));
        checks.push(memory::pools(root));
        checks.extend(memory::user_limit(root));
        checks.extend(facts.unmet_limits.as_deref().map(memory::limits));
    }
    checks
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use hpmmap_host::fixture::Fixture;

    use super::kernel::OPTIONS;
    use super::*;
    use crate::symbiosis::guest::tests as guest;

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
            unmet_limits: None,
            installed: None,
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
        assert_eq!(report.checks.len(), 16);
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
            ("7.3.4+deb13-amd64", Verdict::Ok),
            ("6.12.117+deb12-rt-amd64", Verdict::Ok),
            ("7.0-rc1", Verdict::Warn),
            ("6.8.0-40-generic", Verdict::Warn),
            ("6.12.0-55.el10.x86_64", Verdict::Warn),
            ("6.11.4-amd64", Verdict::Warn),
            ("6.0.19", Verdict::Fail),
            ("5.15.0", Verdict::Fail),
            ("unknown", Verdict::Fail),
        ] {
            assert_eq!(kernel::kernel(release).result, result, "{release}");
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
    fn partitions_are_whole_and_quiet() {
        let fixture = able();
        let nohz = "sys/devices/system/cpu/nohz_full";
        assert_check(
            &fixture,
            "partitions",
            Verdict::Ok,
            "none; before one is quiet",
        );
        fixture.write(nohz, "2-3\n");
        assert_check(&fixture, "partitions", Verdict::Ok, "CPUs 2-3 can be quiet");
        let record = |phase: &str| {
            fixture.write(
                "run/hpmmap/partitions/a",
                &format!(
                    r#"{{"name":"a","phase":"{phase}","cpus":[2,3],"balance":false,
                    "memory_bytes":0,"node":null,"user":null,"mount":"sys/fs/cgroup",
                    "cgroup":"sys/fs/cgroup/hpmmap_a","systemd":false}}"#
                ),
            );
        };
        record("ready");
        assert_check(
            &fixture,
            "partitions",
            Verdict::Warn,
            "hpmmap partition show a",
        );
        fixture.write("sys/fs/cgroup/hpmmap_a/cpuset.cpus.partition", "isolated\n");
        assert_check(
            &fixture,
            "partitions",
            Verdict::Warn,
            "isolcpus=managed_irq,2-3",
        );
        fixture.write("proc/cmdline", "movablecore=4G isolcpus=managed_irq,2-3\n");
        assert_check(&fixture, "partitions", Verdict::Ok, "a (CPUs 2-3)");
        record("deleting");
        assert_check(&fixture, "partitions", Verdict::Warn, "is not whole");
        fixture.write("run/hpmmap/partitions/a", "{");
        assert_check(&fixture, "partitions", Verdict::Warn, "no record");
    }

    #[test]
    fn a_guest_is_told_how_its_host_maps_it() {
        let fixture = able();
        guest::host(&fixture, 5 << 30, 2 << 20, 0);
        assert_check(
            &fixture,
            "host",
            Verdict::Warn,
            "1G of 2G of RAM by entries of 4K",
        );
        guest::host(&fixture, 5 << 30, 2 << 20, 60);
        assert_check(&fixture, "host", Verdict::Warn, "it wrote 6");
        guest::host(&fixture, 4 << 30, 2 << 20, 0);
        fixture.write_bytes("sys/bus/pci/devices/0000:00:04.0/resource2", &[0; 9]);
        assert_check(&fixture, "host", Verdict::Warn, "cannot be read");
        fixture.remove("sys/bus/pci/devices/0000:00:04.0");
        let checks = examine(&fixture.root(), &facts());
        assert!(checks.iter().all(|check| check.id != "host"));
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
    fn the_default_limit_is_told() {
        let fixture = able();
        let check = |words| assert_check(&fixture, "user-limit", Verdict::Ok, words);
        check("a user may hold all of the pools");
        fixture.write(
            "sys/kernel/hpmmap/user_limit_bytes",
            &format!("{}\n", 2u64 << 30),
        );
        check("a user may hold 2G of the 4G in the pools");
        check("'default 100%' into /etc/hpmmap/limits");
        fixture.write(
            "sys/kernel/hpmmap/user_limit_bytes",
            &format!("{}\n", 4u64 << 30),
        );
        check("a user may hold all of the pools");
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

    fn with_installed(version: &str, signer: &str) -> Facts {
        Facts {
            installed: Some(Installed {
                version: version.into(),
                srcversion: "NEW".into(),
                signer: signer.into(),
            }),
            ..facts()
        }
    }

    #[test]
    fn an_unsigned_module_is_told_where_it_must_be_signed() {
        let fixture = able();
        fixture.write("sys/module/module/parameters/sig_enforce", "Y\n");
        fixture.remove("sys/kernel/hpmmap");
        let unsigned = with_installed(VERSION, "");
        assert_check_with(
            &fixture,
            &unsigned,
            "signatures",
            Verdict::Fail,
            "hpmmap.ko is not",
        );
        let signed = with_installed(VERSION, "DKMS module signing key");
        assert_check_with(
            &fixture,
            &signed,
            "signatures",
            Verdict::Warn,
            "by 'DKMS module",
        );
    }

    #[test]
    fn a_module_that_waits_is_told() {
        let fixture = able();
        let (newer, other) = (with_installed("9.9.9", ""), with_installed(VERSION, ""));
        // An older module does not tell its checksum.
        assert_check_with(&fixture, &newer, "module", Verdict::Ok, VERSION);
        fixture.write("sys/module/hpmmap/srcversion", "OLD\n");
        assert_check_with(
            &fixture,
            &newer,
            "module",
            Verdict::Warn,
            "9.9.9 is installed",
        );
        assert_check_with(&fixture, &other, "module", Verdict::Warn, "another build");
        fixture.write("sys/module/hpmmap/srcversion", "NEW\n");
        assert_check_with(&fixture, &other, "module", Verdict::Ok, "loaded");
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
        for id in ["interface", "gigabytes", "device", "pools"] {
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
    fn pools_that_are_smaller_than_the_file_says_are_a_warning() {
        let fixture = able();
        fixture.write("etc/hpmmap/pools", "# sizes\n0 4G\n");
        assert_check(&fixture, "pools", Verdict::Ok, "node 0: 3G of 4G free");
        fixture.write("etc/hpmmap/pools", "# sizes\n0 5G\n1 1G\n");
        let less = "node 0 has 4G of the 5G of /etc/hpmmap/pools:2; node 1 has 0 of the 1G";
        assert_check(&fixture, "pools", Verdict::Warn, less);
    }

    #[test]
    fn limits_that_do_not_hold_are_a_warning() {
        let fixture = able();
        let with = |lines: &[&str]| Facts {
            unmet_limits: Some(lines.iter().map(|line| line.to_string()).collect()),
            ..facts()
        };
        assert_check_with(&fixture, &with(&[]), "limits", Verdict::Ok, "all");
        let one = with(&["line 2 (user alice 8G)"]);
        assert_check_with(
            &fixture,
            &one,
            "limits",
            Verdict::Warn,
            "line 2 (user alice 8G)",
        );
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
        let facts = Facts::gather(&able().root(), None);
        assert_eq!(facts.machine, "x86_64");
        assert!(facts.info.is_none());
    }
}
