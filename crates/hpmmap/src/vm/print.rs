//! A virtual machine for QEMU and for libvirt.

use std::fmt::Write;

use hpmmap_base::size::Size;
use hpmmap_host::number_list;

use super::Guest;

impl Guest {
    /// The command line of QEMU, an option a line. Its names of threads are needed by 'vm status' and
    /// 'vm pin'.
    pub fn qemu(&self) -> String {
        let mut lines = Vec::new();
        let node = self
            .node
            .map_or(String::new(), |node| format!(" --node {node}"));
        match &self.partition {
            Some(one) => lines.push(format!("hpmmap run --partition {}{node} --", one.name)),
            None if self.node.is_some() => lines.push(format!("hpmmap run{node} --")),
            None => (),
        }
        lines.push(format!(
            "qemu-system-x86_64 -name {},debug-threads=on",
            self.name
        ));
        lines.push("-machine q35,accel=kvm,memory-backend=ram,mem-merge=off -cpu host".into());
        lines.push(format!(
            "-smp {} -m {}M",
            self.cpus,
            self.memory_bytes >> 20
        ));
        let node = self.node.map_or(String::new(), |node| {
            format!(",host-nodes={node},policy=bind")
        });
        lines.push(format!(
            "-object memory-backend-file,id=ram,mem-path={},size={},share=on,prealloc=on{node}",
            self.mount,
            Size(self.memory_bytes)
        ));
        for device in &self.devices {
            lines.push(format!("-device vfio-pci,host={device}"));
        }
        lines.join(" \\\n  ")
    }

    /// The domain of libvirt.
    pub fn xml(&self) -> String {
        let page = self.page_size >> 20;
        let mut text = format!(
            "<!-- /etc/libvirt/qemu.conf: hugetlbfs_mount = \"{}\" -->\n\
             <domain type='kvm'>\n\
             \x20 <name>{}</name>\n\
             \x20 <memory unit='MiB'>{}</memory>\n\
             \x20 <memoryBacking>\n\
             \x20   <hugepages>\n\
             \x20     <page size='{page}' unit='MiB'/>\n\
             \x20   </hugepages>\n\
             \x20   <nosharepages/>\n\
             \x20   <access mode='shared'/>\n\
             \x20   <allocation mode='immediate'/>\n\
             \x20 </memoryBacking>\n\
             \x20 <vcpu>{}</vcpu>\n",
            self.mount,
            self.name,
            self.memory_bytes >> 20,
            self.cpus
        );
        self.cputune(&mut text);
        if let Some(node) = self.node {
            let _ = writeln!(
                text,
                "  <numatune>\n    <memory mode='strict' nodeset='{node}'/>\n  </numatune>"
            );
        }
        if let Some(one) = &self.partition {
            let _ = writeln!(
                text,
                "  <resource>\n    <partition>{}</partition>\n  </resource>",
                one.path
            );
        }
        text += "  <os>\n    <type arch='x86_64' machine='q35'>hvm</type>\n  </os>\n  \
                 <features>\n    <acpi/>\n    <apic/>\n  </features>\n  \
                 <cpu mode='host-passthrough'/>\n";
        if !self.devices.is_empty() {
            text += "  <devices>\n";
            for one in &self.devices {
                let _ = writeln!(
                    text,
                    "    <hostdev mode='subsystem' type='pci' managed='yes'>\n      <source>\n        \
                     <address domain='{:#06x}' bus='{:#04x}' slot='{:#04x}' function='{:#x}'/>\n      \
                     </source>\n    </hostdev>",
                    one.domain, one.bus, one.slot, one.function
                );
            }
            text += "  </devices>\n";
        }
        text + "</domain>"
    }

    /// Where vCPUs and the other threads run, and how.
    fn cputune(&self, text: &mut String) {
        let Some(one) = &self.partition else { return };
        *text += "  <cputune>\n";
        for (vcpu, cpu) in one.cpus.vcpus.iter().enumerate() {
            let _ = writeln!(text, "    <vcpupin vcpu='{vcpu}' cpuset='{cpu}'/>");
        }
        if !one.cpus.others.is_empty() {
            let others = number_list::format(&one.cpus.others);
            let _ = writeln!(text, "    <emulatorpin cpuset='{others}'/>");
        }
        if let Some(priority) = self.fifo {
            let last = self.cpus - 1;
            let vcpus = if last == 0 {
                "0".into()
            } else {
                format!("0-{last}")
            };
            let _ = writeln!(
                text,
                "    <vcpusched vcpus='{vcpus}' scheduler='fifo' priority='{priority}'/>"
            );
        }
        *text += "  </cputune>\n";
    }
}
