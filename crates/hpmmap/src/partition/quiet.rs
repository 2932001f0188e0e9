//! The disturbances of a partition's CPUs, and the options of the kernel's command line that would
//! prevent them.

use hpmmap_base::error::Result;
use hpmmap_base::size::counted;
use hpmmap_host::{Root, process};
use serde::Serialize;

use super::machine::{Cpus, format_cpus, parse_cpus};
use super::record::{self, Host, Partition};
use super::values;
use crate::grub::DropIn;

/// Options that nothing can replace at run time.
pub fn options(cpus: &Cpus) -> String {
    let list = format_cpus(cpus);
    format!("nohz_full={list} rcu_nocbs={list} isolcpus=managed_irq,{list}")
}

/// An option that CPUs lack on the kernel's command line.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub option: String,
    /// The disturbance that remains without it.
    pub cost: String,
}

/// The options that these CPUs lack in this boot.
pub fn missing(root: &Root, cpus: &Cpus) -> Result<Vec<Missing>> {
    let line = process::kernel_command_line(root)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let option = |name: &'static str| words.iter().filter_map(move |word| word.strip_prefix(name));
    let nohz = root.read("sys/devices/system/cpu/nohz_full");
    // "(null)" without the option.
    let nohz = nohz
        .ok()
        .as_deref()
        .and_then(parse_cpus)
        .unwrap_or_default();
    let mut nocbs = nohz.clone();
    for list in option("rcu_nocbs=") {
        nocbs.extend(match list {
            "all" => cpus.clone(),
            list => parse_cpus(list).unwrap_or_default(),
        });
    }
    let managed =
        option("isolcpus=").filter(|value| value.split(',').any(|flag| flag == "managed_irq"));
    let managed = managed.filter_map(|value| {
        let list = value.find(|c: char| c.is_ascii_digit())?;
        parse_cpus(&value[list..])
    });
    let managed: Cpus = managed.flatten().collect();
    let lacks = [
        (
            "nohz_full=",
            nohz,
            "the scheduler's tick interrupts these CPUs (250 times a second in Debian's kernels)",
        ),
        ("rcu_nocbs=", nocbs, "callbacks of RCU run on these CPUs"),
        (
            "isolcpus=managed_irq,",
            managed,
            "interrupts that a driver has for each CPU (NVMe, network) cannot leave them",
        ),
    ];
    Ok(lacks
        .into_iter()
        .filter_map(|(name, has, cost)| {
            let lacks: Cpus = cpus - &has;
            (!lacks.is_empty()).then(|| Missing {
                option: format!("{name}{}", format_cpus(&lacks)),
                cost: cost.into(),
            })
        })
        .collect())
}

/// The possible disturbances of CPUs.
#[derive(Debug, Serialize)]
pub struct Disturbances {
    /// Interrupts that come to them.
    pub interrupts: Vec<values::Interrupt>,
    /// Options that the kernel's command line lacks.
    pub missing: Vec<Missing>,
    /// Files that others have changed since, or that the kernel does not let change.
    pub unmet: Vec<String>,
    /// Has /sys/kernel/debug the switches of the scheduler?
    pub debugfs: bool,
}

impl Disturbances {
    /// Looks at the CPUs of one partition, among all.
    pub fn of(root: &Root, one: &Partition) -> Result<Self> {
        let all = record::all(root)?;
        let host = Host::load(root)?;
        let mut unmet = values::unmet(root, &host, &all)?;
        // They are among the interrupts, if they come here.
        unmet.retain(|path| !path.ends_with("/smp_affinity_list"));
        Ok(Self {
            interrupts: values::interrupts(root, &one.cpus),
            missing: missing(root, &one.cpus)?,
            unmet,
            debugfs: root.join("sys/kernel/debug/sched").is_dir(),
        })
    }

    /// For people.
    pub fn lines(&self, cpus: &Cpus) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.interrupts.is_empty() {
            let names: Vec<String> = self.interrupts.iter().map(ToString::to_string).collect();
            let count = counted(names.len(), "interrupt");
            lines.push(format!("{count} cannot be moved: {}", names.join(", ")));
        }
        for path in &self.unmet {
            lines.push(format!(
                "/{path} is not as the partition needs it: the kernel refuses, or another program \
                 has changed it"
            ));
        }
        if !self.debugfs {
            lines.push(
                "/sys/kernel/debug/sched cannot be seen: since Linux 6.12 the fair server ticks \
                 there (mount -t debugfs debugfs /sys/kernel/debug; or the kernel is locked down)"
                    .into(),
            );
        }
        for missing in &self.missing {
            lines.push(format!("without {} {}", missing.option, missing.cost));
        }
        if !self.missing.is_empty() {
            lines.push(format!(
                "for the next boot: hpmmap partition reserve --cpus {}",
                format_cpus(cpus)
            ));
        }
        lines
    }
}

/// The options of `hpmmap partition reserve`.
pub const DROP_IN: DropIn = DropIn("etc/default/grub.d/hpmmap-partition.cfg");

/// The text for GRUB.
pub fn drop_in(cpus: &Cpus) -> String {
    format!(
        "# Written by 'hpmmap partition reserve --cpus {}'; undone by 'hpmmap partition reserve --undo'.\n\
         GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {}\"\n",
        format_cpus(cpus),
        options(cpus)
    )
}

/// Such options on this boot's command line that do not come from the drop-in.
pub fn others(root: &Root) -> Result<Vec<String>> {
    let own = root.read(DROP_IN.0).unwrap_or_default();
    let line = process::kernel_command_line(root)?;
    let names = ["nohz_full=", "rcu_nocbs=", "isolcpus="];
    Ok(line
        .split_whitespace()
        .filter(|word| names.iter().any(|name| word.starts_with(name)))
        .filter(|word| !own.split([' ', '"']).any(|own| own == *word))
        .map(str::to_string)
        .collect())
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    fn lacks(line: &str, nohz: &str) -> Vec<String> {
        let fixture = Fixture::new();
        fixture.write("proc/cmdline", line);
        fixture.write("sys/devices/system/cpu/nohz_full", nohz);
        let missing = missing(&fixture.root(), &Cpus::from([2, 3])).unwrap();
        missing.into_iter().map(|one| one.option).collect()
    }

    #[test]
    fn what_the_command_line_lacks_is_told_by_cpu() {
        let all = ["nohz_full=2-3", "rcu_nocbs=2-3", "isolcpus=managed_irq,2-3"];
        assert_eq!(lacks("quiet", "  (null)\n"), all);
        assert_eq!(
            lacks("nohz_full=3", "3\n"),
            ["nohz_full=2", "rcu_nocbs=2", all[2]]
        );
        assert_eq!(
            lacks("rcu_nocbs=all isolcpus=domain,managed_irq,2-3", "\n"),
            all[..1]
        );
        let line = options(&Cpus::from([2, 3]));
        assert!(lacks(&line, "2-3\n").is_empty());
    }

    #[test]
    fn options_of_others_are_told_from_ours() {
        let fixture = Fixture::new();
        let cpus = Cpus::from([2, 3]);
        let line = format!("quiet {} isolcpus=1", options(&cpus));
        fixture.write("proc/cmdline", &line);
        assert_eq!(others(&fixture.root()).unwrap().len(), 4);
        fixture.write(DROP_IN.0, &drop_in(&cpus));
        assert_eq!(others(&fixture.root()).unwrap(), ["isolcpus=1"]);
    }
}
