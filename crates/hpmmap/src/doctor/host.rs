//! The check of what the host of a virtual machine tells.

use hpmmap_base::size::short;
use hpmmap_host::Root;

use super::Check;
use crate::symbiosis::guest::{self, Found};

const ID: &str = "host";

/// Does the host map this virtual machine's RAM by large entries? Nothing without a host that tells.
pub fn host(root: &Root) -> Option<Check> {
    let told = match guest::find(root) {
        Found::Nothing => return None,
        Found::Unreadable(reason) => {
            return Some(Check::warn(
                ID,
                format!("what the host tells cannot be read: {reason}"),
                "run hpmmap doctor as root",
            ));
        }
        Found::Told(told) => told,
    };
    let small = told.small_bytes();
    Some(if !told.running {
        Check::warn(
            ID,
            format!(
                "the host's agent does not run, it wrote {} s ago",
                told.silent_seconds
            ),
            "run on the host: hpmmap vm agent",
        )
    } else if small > told.bytes() / 100 {
        Check::warn(
            ID,
            format!(
                "the host maps {} of {} of RAM by entries of 4K",
                short(small),
                short(told.bytes())
            ),
            "give the VM memory of the host's pools",
        )
    } else {
        Check::ok(ID, told.line())
    })
}
