//! A switch of a module, which it gets when it is loaded.

use std::process::Command;

use hpmmap_base::error::{Error, Result};
use hpmmap_host::Root;
use serde::{Deserialize, Serialize};

/// A parameter that is on or off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The module.
    pub module: String,
    /// The parameter.
    pub name: String,
}

impl Switch {
    /// The one for nested paging on AMD's CPUs.
    pub fn npt() -> Self {
        Self {
            module: "kvm_amd".into(),
            name: "npt".into(),
        }
    }

    /// The same on Intel's.
    pub fn ept() -> Self {
        Self {
            module: "kvm_intel".into(),
            name: "ept".into(),
        }
    }

    /// Its state; `None` if the module is not loaded.
    pub fn is_on(&self, root: &Root) -> Option<bool> {
        let path = format!("sys/module/{}/parameters/{}", self.module, self.name);
        Some(matches!(root.read(path).ok()?.trim(), "Y" | "1"))
    }

    /// The option of the module.
    pub fn option(&self, on: bool) -> String {
        format!("{}={}", self.name, u8::from(on))
    }

    /// Why the module cannot be unloaded.
    pub fn obstacle(&self, root: &Root, want: bool) -> Option<String> {
        let module = &self.module;
        let count = root.read(format!("sys/module/{module}/refcnt"));
        match count.as_deref().map(str::trim) {
            Ok("0") => None,
            Ok(count) => Some(format!(
                "{module} is in use (refcnt {count}): paging cannot change while virtual machines run (end \
                 them: 'fuser -v /dev/kvm' names their processes)"
            )),
            Err(_) => Some(format!(
                "{module} is part of the kernel: boot with {module}.{}",
                self.option(want)
            )),
        }
    }

    /// Brings it to this state, with `None` by unloading the module. This never happens under a
    /// virtual machine: the kernel refuses to unload it then.
    pub fn set(&self, root: &Root, want: Option<bool>) -> Result<()> {
        let now = self.is_on(root);
        if now == want {
            return Ok(());
        }
        if now.is_some() {
            if let Some(why) = self.obstacle(root, want.unwrap_or_default()) {
                return Err(Error::Failed(why));
            }
            modprobe(&["-r", &self.module])?;
        }
        want.map_or(Ok(()), |on| modprobe(&[&self.module, &self.option(on)]))
    }
}

fn modprobe(args: &[&str]) -> Result<()> {
    let failed = |why: &str| Error::Failed(format!("'modprobe {}' failed: {why}", args.join(" ")));
    let output = Command::new("modprobe")
        .args(args)
        .output()
        .map_err(|error| failed(&error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(said.lines().last().unwrap_or("it said nothing")))
}
