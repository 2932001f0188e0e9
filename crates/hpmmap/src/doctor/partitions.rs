//! The check of partitions.

use hpmmap_host::Root;

use super::Check;
use crate::partition::machine::format_cpus;
use crate::partition::{self, Phase, quiet};

const ID: &str = "partitions";

/// Are the partitions whole, and their CPUs as quiet as the kernel's command line can make them?
pub fn partitions(root: &Root) -> Check {
    let all = match partition::all(root) {
        Ok(all) => all,
        Err(error) => {
            return Check::warn(
                ID,
                error.to_string(),
                "remove /run/hpmmap/partitions and reboot",
            );
        }
    };
    if all.is_empty() {
        let nohz = root
            .read("sys/devices/system/cpu/nohz_full")
            .unwrap_or_default();
        return Check::ok(
            ID,
            match nohz.starts_with(|c: char| c.is_ascii_digit()) {
                true => format!("none; CPUs {nohz} can be quiet in one (nohz_full)"),
                false => "none; before one is quiet its CPUs need options of the kernel's command \
                          line (hpmmap partition reserve)"
                    .into(),
            },
        );
    }
    let mut ready = Vec::new();
    for one in &all {
        let state = partition::state(root, one);
        let is_whole = matches!(state.as_deref(), Some("isolated" | "root"));
        if one.phase != Phase::Ready || !is_whole {
            return Check::warn(
                ID,
                format!("partition '{}' is not whole", one.name),
                format!("see: hpmmap partition show {}", one.name),
            );
        }
        match quiet::missing(root, &one.cpus).as_deref() {
            Ok([]) => ready.push(format!("{} (CPUs {})", one.name, format_cpus(&one.cpus))),
            Ok([missing, ..]) => {
                return Check::warn(
                    ID,
                    format!(
                        "partition '{}': without {} {}",
                        one.name, missing.option, missing.cost
                    ),
                    format!(
                        "hpmmap partition reserve --cpus {}, then reboot",
                        format_cpus(&one.cpus)
                    ),
                );
            }
            Err(error) => return Check::warn(ID, error.to_string(), "run hpmmap doctor as root"),
        }
    }
    Check::ok(ID, ready.join(", "))
}
