//! Obstacles for loading a module: lockdown, signatures, Secure Boot, and other users of the
//! hooks.

use crate::root::{chosen, optional};
use crate::{Result, Root};

/// Kernel lockdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lockdown {
    /// Off, or not in this kernel.
    None,
    /// Modules must be signed.
    Integrity,
    /// As integrity, and tracing of kernel memory is off.
    Confidentiality,
}

/// The lockdown mode.
pub fn lockdown(root: &Root) -> Result<Lockdown> {
    let mode = root.parse(
        "sys/kernel/security/lockdown",
        "a lockdown mode in brackets",
        |text| {
            let word = chosen(text)?;
            match word {
                "none" => Some(Lockdown::None),
                "integrity" => Some(Lockdown::Integrity),
                "confidentiality" => Some(Lockdown::Confidentiality),
                _ => None,
            }
        },
    );
    Ok(optional(mode)?.unwrap_or(Lockdown::None))
}

/// Does the kernel accept only signed modules?
pub fn modules_must_be_signed(root: &Root) -> Result<bool> {
    let value = optional(root.read("sys/module/module/parameters/sig_enforce"))?;
    Ok(value.is_some_and(|v| v == "Y" || v == "1"))
}

/// Has the firmware started with Secure Boot?
pub fn secure_boot(root: &Root) -> Result<bool> {
    let variable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    // Four bytes of attributes precede the value.
    Ok(optional(root.read_bytes(variable))?.is_some_and(|bytes| bytes.get(4) == Some(&1)))
}

/// Names of the live patches that are loaded.
pub fn livepatches(root: &Root) -> Result<Vec<String>> {
    Ok(optional(root.entries("sys/kernel/livepatch"))?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn a_machine_without_any_of_it_is_open() {
        let fixture = Fixture::new();
        let root = fixture.root();
        assert_eq!(lockdown(&root).unwrap(), Lockdown::None);
        assert!(!modules_must_be_signed(&root).unwrap());
        assert!(!secure_boot(&root).unwrap());
        assert!(livepatches(&root).unwrap().is_empty());
    }

    #[test]
    fn the_mode_in_brackets_counts() {
        let fixture = Fixture::new();
        let file = "sys/kernel/security/lockdown";
        for (text, mode) in [
            ("[none] integrity confidentiality\n", Lockdown::None),
            ("none [integrity] confidentiality\n", Lockdown::Integrity),
            (
                "none integrity [confidentiality]\n",
                Lockdown::Confidentiality,
            ),
        ] {
            fixture.write(file, text);
            assert_eq!(lockdown(&fixture.root()).unwrap(), mode);
        }
        fixture.write(file, "none\n");
        assert!(lockdown(&fixture.root()).is_err());
    }

    #[test]
    fn enforced_signatures_secure_boot_and_livepatches() {
        let fixture = Fixture::new();
        fixture.write("sys/module/module/parameters/sig_enforce", "Y\n");
        fixture.write_bytes(
            "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
            &[6, 0, 0, 0, 1],
        );
        fixture.write("sys/kernel/livepatch/kpatch_1/enabled", "1\n");
        let root = fixture.root();
        assert!(modules_must_be_signed(&root).unwrap());
        assert!(secure_boot(&root).unwrap());
        assert_eq!(livepatches(&root).unwrap(), ["kpatch_1"]);
    }
}
