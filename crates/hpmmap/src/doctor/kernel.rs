//! Checks of the machine and its kernel.

use hpmmap_host::boot::Config;
use hpmmap_host::{Root, process, security};

use super::Check;

/// The oldest kernel that is supported.
const OLDEST_KERNEL: (u32, u32) = (6, 1);

/// Series of Debian's kernels that the tests have run on; see docs/kernels.md.
const TRIED: [(u32, u32); 3] = [(6, 1), (6, 12), (7, 3)];

/// Required options of the kernel: one of each list, and the reason.
pub const OPTIONS: &[(&[&str], &str)] = &[
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

pub fn architecture(machine: &str) -> Check {
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

pub fn kernel(release: &str) -> Check {
    let id = "kernel";
    let (major, minor) = OLDEST_KERNEL;
    let mut parts = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(a), Some(b)) if TRIED.contains(&(a, b)) && release.ends_with("amd64") => {
            Check::ok(id, release)
        }
        (Some(a), Some(b)) if (a, b) >= OLDEST_KERNEL => Check::warn(
            id,
            format!("{release}: the tests have not run on this kernel"),
            "they have run on Debian's 6.1, 6.12 and 7.3: try a host without production jobs first",
        ),
        _ => Check::fail(
            id,
            release,
            format!("hpmmap needs Linux {major}.{minor} or newer"),
        ),
    }
}

pub fn config(root: &Root, release: &str) -> Check {
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

/// PREEMPT_RT excludes transparent huge pages, and with them entries of 2 MB.
pub fn entries(root: &Root) -> Check {
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

pub fn ftrace(root: &Root) -> Check {
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

pub fn livepatch(root: &Root) -> Check {
    let id = "livepatch";
    match security::livepatches(root) {
        Ok(patches) if patches.is_empty() => Check::ok(id, "none"),
        Ok(patches) => Check::warn(
            id,
            format!("loaded: {}", patches.join(", ")),
            "if 'hpmmap run' says that the hooks are in use, a live patch holds \
             one of the functions that hpmmap hooks; if a live patch is refused, \
             end the jobs, wait until /sys/kernel/hpmmap/hooks_active is 0, and \
             load it again",
        ),
        Err(error) => Check::unknown(id, &error),
    }
}
