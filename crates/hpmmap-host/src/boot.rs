//! Build configuration and installed modules of the running kernel.

use std::collections::HashMap;
use std::io::Read;
use std::process::Command;

use flate2::read::GzDecoder;

use crate::root::optional;
use crate::{Error, Result, Root};

/// Build configuration of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file it came from.
    pub source: String,
    options: HashMap<String, String>,
}

impl Config {
    /// Reads `/boot/config-RELEASE`, else `/lib/modules/RELEASE/config` (newer distributions),
    /// else `/proc/config.gz`; `None` if none exists.
    pub fn read(root: &Root, release: &str) -> Result<Option<Self>> {
        for file in [
            format!("boot/config-{release}"),
            format!("lib/modules/{release}/config"),
        ] {
            if let Some(text) = optional(root.read(&file))? {
                return Ok(Some(Self::parse(format!("/{file}"), &text)));
            }
        }
        let file = "proc/config.gz";
        let Some(packed) = optional(root.read_bytes(file))? else {
            return Ok(None);
        };
        let mut text = String::new();
        GzDecoder::new(packed.as_slice())
            .read_to_string(&mut text)
            .map_err(|source| Error::Io {
                path: root.join(file),
                source,
            })?;
        Ok(Some(Self::parse(format!("/{file}"), &text)))
    }

    fn parse(source: String, text: &str) -> Self {
        let options = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        Self { source, options }
    }

    /// True if the option (with its prefix `CONFIG_`) is built in.
    pub fn is_enabled(&self, option: &str) -> bool {
        self.options.get(option).is_some_and(|value| value == "y")
    }
}

/// True if modprobe would find the module `name` for the kernel `release`.
pub fn is_module_installed(root: &Root, release: &str, name: &str) -> Result<bool> {
    let listed = optional(root.read(format!("lib/modules/{release}/modules.dep")))?;
    Ok(listed.is_some_and(|text| {
        text.lines()
            .filter_map(|line| line.split(':').next())
            .filter_map(|path| path.rsplit('/').next())
            .filter_map(|file| file.split_once(".ko"))
            .any(|(stem, _)| stem == name)
    }))
}

/// A module as modprobe would load it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installed {
    /// Its version.
    pub version: String,
    /// Checksum of its sources, which tells builds apart.
    pub srcversion: String,
    /// Its signer; empty if it is not signed.
    pub signer: String,
}

impl Installed {
    /// Parses the output of modinfo(8).
    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let mut lines = text.lines();
            lines
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map_or(String::new(), |value| value.trim().to_string())
        };
        Self {
            version: field("version"),
            srcversion: field("srcversion"),
            signer: field("signer"),
        }
    }
}

/// The installed module `name` for the kernel `release`; `None` if there is none or it cannot be
/// read.
pub fn installed_module(root: &Root, release: &str, name: &str) -> Option<Installed> {
    // kmod reads compressed modules. The PATH of ordinary users may lack it.
    let path = format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new("modinfo")
        .env("PATH", path)
        .env("LC_ALL", "C")
        .arg("-b")
        .arg(root.join(""))
        .args(["-k", release, name])
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| Installed::parse(&String::from_utf8_lossy(&output.stdout)))
}

/// The checksum of the sources of the loaded module `name`.
pub fn loaded_srcversion(root: &Root, name: &str) -> Result<Option<String>> {
    optional(root.read(format!("sys/module/{name}/srcversion")))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn options_set_and_not_set() {
        let fixture = Fixture::new();
        fixture.write(
            "boot/config-6.1.0",
            "CONFIG_KPROBES=y\nCONFIG_XFS_FS=m\n# CONFIG_CMA is not set\n",
        );
        let config = Config::read(&fixture.root(), "6.1.0").unwrap().unwrap();
        assert_eq!(config.source, "/boot/config-6.1.0");
        assert!(config.is_enabled("CONFIG_KPROBES"));
        assert!(!config.is_enabled("CONFIG_XFS_FS"));
        assert!(!config.is_enabled("CONFIG_CMA"));

        fixture.remove("boot/config-6.1.0");
        fixture.write("lib/modules/6.1.0/config", "CONFIG_KPROBES=y\n");
        let config = Config::read(&fixture.root(), "6.1.0").unwrap().unwrap();
        assert_eq!(config.source, "/lib/modules/6.1.0/config");
    }

    #[test]
    fn the_kernels_own_copy_is_the_last_choice() {
        let fixture = Fixture::new();
        assert_eq!(Config::read(&fixture.root(), "6.1.0").unwrap(), None);
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(b"CONFIG_KALLSYMS=y\n").unwrap();
        fixture.write_bytes("proc/config.gz", &packed.finish().unwrap());
        let config = Config::read(&fixture.root(), "6.1.0").unwrap().unwrap();
        assert_eq!(config.source, "/proc/config.gz");
        assert!(config.is_enabled("CONFIG_KALLSYMS"));
    }

    #[test]
    fn a_damaged_copy_is_an_error() {
        let fixture = Fixture::new();
        fixture.write("proc/config.gz", "no gzip");
        assert!(Config::read(&fixture.root(), "6.1.0").is_err());
    }

    #[test]
    fn what_modinfo_prints_is_understood() {
        let text = "filename:       /lib/modules/6.1.0/updates/dkms/hpmmap.ko\n\
            version:        1.2.0\nsrcversion:     0123456789ABCDEF\n\
            depends:        \nvermagic:       6.1.0 SMP\n";
        let mut module = Installed {
            version: "1.2.0".into(),
            srcversion: "0123456789ABCDEF".into(),
            signer: String::new(),
        };
        assert_eq!(Installed::parse(text), module);
        module.signer = "DKMS module signing key".into();
        let signed = format!("{text}signer:         DKMS module signing key\n");
        assert_eq!(Installed::parse(&signed), module);
        assert_eq!(
            installed_module(&Fixture::new().root(), "6.1.0", "hpmmap"),
            None
        );
    }

    #[test]
    fn installed_modules_are_found_by_name_in_any_directory() {
        let fixture = Fixture::new();
        let root = fixture.root();
        assert!(!is_module_installed(&root, "6.1.0", "hpmmap").unwrap());
        fixture.write(
            "lib/modules/6.1.0/modules.dep",
            "kernel/fs/xfs/xfs.ko: kernel/lib/libcrc32c.ko\nupdates/dkms/hpmmap.ko.xz:\n",
        );
        assert!(is_module_installed(&root, "6.1.0", "hpmmap").unwrap());
        assert!(is_module_installed(&root, "6.1.0", "xfs").unwrap());
        assert!(!is_module_installed(&root, "6.1.0", "libcrc32c").unwrap());
    }
}
