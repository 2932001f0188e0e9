//! `/proc`: processes, memory, the kernel command line.

use std::fs;
use std::path::Path;

use crate::root::optional;
use crate::{Result, Root};

/// The initial PID namespace (PROC_PID_INIT_INO of the kernel).
const MACHINES_NAMESPACE: &str = "pid:[4026531836]";

/// Do processes have other numbers here than in the module's reports, as in a container?
pub(crate) fn has_other_numbers(root: &Root) -> bool {
    fs::read_link(root.join("proc/self/ns/pid"))
        .is_ok_and(|namespace| namespace != Path::new(MACHINES_NAMESPACE))
}

/// The short name of a process by its number in the initial PID namespace; `None` if it has ended
/// or has another number here.
pub fn command(root: &Root, pid: u32) -> Result<Option<String>> {
    if has_other_numbers(root) {
        return Ok(None);
    }
    optional(root.read(format!("proc/{pid}/comm")))
}

/// Release of the running kernel, as uname -r prints it.
pub fn kernel_release(root: &Root) -> Result<String> {
    root.read("proc/sys/kernel/osrelease")
}

/// The kernel command line.
pub fn kernel_command_line(root: &Root) -> Result<String> {
    root.read("proc/cmdline")
}

/// The switch of ftrace; `None` if this kernel has no ftrace.
pub fn ftrace_enabled(root: &Root) -> Result<Option<bool>> {
    Ok(optional(root.read_number::<u32>("proc/sys/kernel/ftrace_enabled"))?.map(|n| n != 0))
}

/// Bytes of a value such as `  12 kB`.
pub(crate) fn kib(value: &str) -> Option<u64> {
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Memory that Linux could give up without killing a process: available memory plus free swap.
pub fn available_bytes(root: &Root) -> Result<u64> {
    root.parse("proc/meminfo", "MemAvailable and SwapFree in kB", |text| {
        Some(field(text, "MemAvailable:")? + field(text, "SwapFree:")?)
    })
}

/// Memory that Linux could give up without swapping that of other processes.
pub fn unswapped_bytes(root: &Root) -> Result<u64> {
    root.parse("proc/meminfo", "MemAvailable in kB", |text| {
        field(text, "MemAvailable:")
    })
}

/// Bytes of a line of meminfo.
fn field(text: &str, name: &str) -> Option<u64> {
    kib(text.lines().find_map(|line| line.strip_prefix(name))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn available_memory_counts_free_swap_if_swapping_is_fine() {
        let fixture = Fixture::new();
        fixture.write(
            "proc/meminfo",
            "MemTotal:  9 kB\nMemAvailable:    5 kB\nSwapTotal: 3 kB\nSwapFree:   2 kB\n",
        );
        assert_eq!(available_bytes(&fixture.root()).unwrap(), 7 * 1024);
        assert_eq!(unswapped_bytes(&fixture.root()).unwrap(), 5 * 1024);
        fixture.write("proc/meminfo", "MemTotal:  9 kB\n");
        assert!(available_bytes(&fixture.root()).is_err());
        assert!(unswapped_bytes(&fixture.root()).is_err());
    }

    #[test]
    fn a_process_that_ended_has_no_name() {
        let fixture = Fixture::new();
        fixture.write("proc/17/comm", "lmp\n");
        assert_eq!(
            command(&fixture.root(), 17).unwrap().as_deref(),
            Some("lmp")
        );
        assert_eq!(command(&fixture.root(), 18).unwrap(), None);
    }

    #[test]
    fn in_a_container_a_number_is_somebody_elses() {
        let fixture = Fixture::new();
        fixture.write("proc/17/comm", "sh\n");
        fixture.write("proc/self/ns/user", "");
        let namespace = fixture.path().join("proc/self/ns/pid");
        symlink(MACHINES_NAMESPACE, &namespace).unwrap();
        let name = || command(&fixture.root(), 17).unwrap();
        assert_eq!(name().as_deref(), Some("sh"));
        fs::remove_file(&namespace).unwrap();
        symlink("pid:[4026532281]", &namespace).unwrap();
        assert_eq!(name(), None);
    }
}
