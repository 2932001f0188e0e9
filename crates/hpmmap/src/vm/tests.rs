//! Requests on a fixture tree, and what is printed for them.

use std::os::unix::fs::symlink;

use hpmmap_host::fixture::Fixture;

use super::*;

fn host() -> Fixture {
    let fixture = Fixture::new();
    fixture.module();
    fixture.node_pool(0, 8 << 30, 8 << 30, 1 << 30, 0);
    fixture.node_pool(1, 4 << 30, 1 << 30, 1 << 30, 0);
    let mounts = "none /dev/hp hpmmap rw,nr_inodes=0 0 0\n\
                  none /hp2 hpmmap rw,pagesize=2M,nr_inodes=0 0 0\n\
                  none /hp1 hpmmap rw,pagesize=1024M,nr_inodes=0 0 0\n";
    fixture.write("proc/self/mounts", mounts);
    let dir = "sys/bus/pci/devices/0000:01:00.0";
    fixture.write(&format!("{dir}/iommu_group/type"), "DMA\n");
    symlink(
        "../../../bus/pci/drivers/vfio-pci",
        fixture.path().join(dir).join("driver"),
    )
    .unwrap();
    let record = r#"{"name":"sim","phase":"ready","cpus":[2,3,4],"balance":false,"memory_bytes":4294967296,
        "node":null,"user":null,"mount":"sys/fs/cgroup","cgroup":"sys/fs/cgroup/hpmmap_sim.slice","systemd":true}"#;
    fixture.write("run/hpmmap/partitions/sim", record);
    fixture
}

fn request(memory: u64) -> Request {
    Request {
        name: "guest".into(),
        memory: Size(memory),
        page_size: 2 << 20,
        cpus: 2,
        node: None,
        partition: None,
        fifo: None,
        devices: Vec::new(),
        mount: None,
    }
}

fn full() -> Request {
    Request {
        page_size: 1 << 30,
        node: Some(1),
        partition: Some("sim".into()),
        devices: vec!["01:00.0".into()],
        ..request(4 << 30)
    }
}

fn refused(fixture: &Fixture, request: &Request, starter: Starter) -> String {
    let guest = Guest::checked(&fixture.root(), request, starter);
    guest.unwrap_err().to_string()
}

#[test]
fn qemu_has_its_options() {
    let fixture = host();
    let (guest, warning) =
        Guest::checked(&fixture.root(), &request(1 << 30), Starter::Qemu).unwrap();
    assert_eq!(guest.qemu(), include_str!("golden/plain.qemu").trim_end());
    assert_eq!(warning, None);
    let (guest, warning) = Guest::checked(&fixture.root(), &full(), Starter::Qemu).unwrap();
    assert_eq!(guest.qemu(), include_str!("golden/full.qemu").trim_end());
    assert!(warning.unwrap().contains("NUMA node 1 has 1G free now"));
}

#[test]
fn libvirt_has_its_domain() {
    let fixture = host();
    let (guest, _) = Guest::checked(&fixture.root(), &request(1 << 30), Starter::Libvirt).unwrap();
    assert_eq!(guest.xml(), include_str!("golden/plain.xml").trim_end());
    let fifo = Request {
        fifo: Some(1),
        ..full()
    };
    let (guest, _) = Guest::checked(&fixture.root(), &fifo, Starter::Libvirt).unwrap();
    assert_eq!(guest.xml(), include_str!("golden/full.xml").trim_end());
}

#[test]
fn what_cannot_run_is_refused_with_the_next_command() {
    let fixture = host();
    let of = |change: fn(&mut Request)| {
        let mut request = full();
        change(&mut request);
        refused(&fixture, &request, Starter::Qemu)
    };
    for (text, part) in [
        (of(|one| one.memory = Size(3 << 29)), "the page size"),
        (
            of(|one| one.memory = Size(5 << 30)),
            "the pool of NUMA node 1 has only 4G: hpmmap pool add --node 1 --size 5G --up-to",
        ),
        (of(|one| one.name = "a b".into()), "'a b'"),
        (of(|one| one.fifo = Some(1)), "hpmmap vm pin PID --fifo"),
        (
            of(|one| one.cpus = 4),
            "partition 'sim' has 3 CPUs, and 4 vCPUs need one each",
        ),
        (of(|one| one.partition = Some("x".into())), "'x'"),
        (
            of(|one| (one.node, one.memory) = (None, Size(5 << 30))),
            "partition 'sim' may have 4G",
        ),
        (of(|one| one.devices = vec!["x".into()]), "lspci -D"),
        (
            of(|one| one.devices = vec!["02:00.0".into()]),
            "no PCI device 0000:02:00.0",
        ),
        (
            of(|one| one.mount = Some("/mnt".into())),
            "mkdir -p /mnt && mount -t hpmmap -o pagesize=1G hpmmap /mnt",
        ),
        (
            of(|one| one.mount = Some("/hp2".into())),
            "it has pagesize=2M",
        ),
    ] {
        assert!(text.contains(part), "{text}");
    }
    let fifo = Request {
        cpus: 3,
        fifo: Some(1),
        ..full()
    };
    let text = refused(&fixture, &fifo, Starter::Libvirt);
    assert!(text.contains("one for the other threads"), "{text}");
    fixture.edit("run/hpmmap/partitions/sim", |text| {
        text.replace("\"systemd\":true", "\"systemd\":false")
    });
    let text = refused(&fixture, &full(), Starter::Libvirt);
    assert!(
        text.contains("cgroup /hpmmap_sim.slice, and libvirt"),
        "{text}"
    );
    assert!(Guest::checked(&fixture.root(), &full(), Starter::Qemu).is_ok());
    fixture.edit("proc/self/mounts", |text| text.replace("pagesize=2M,", ""));
    let text = refused(&fixture, &request(1 << 30), Starter::Qemu);
    let next = "mkdir -p /dev/hpmmap-vm && mount -t hpmmap -o pagesize=2M hpmmap /dev/hpmmap-vm";
    assert!(text.contains(next), "{text}");
}

#[test]
fn a_device_needs_an_iommu_and_its_driver() {
    let fixture = host();
    let dir = "sys/bus/pci/devices/0000:01:00.0";
    fixture.remove(&format!("{dir}/driver"));
    let text = refused(&fixture, &full(), Starter::Qemu);
    assert!(
        text.contains("it has no driver, not vfio-pci: modprobe vfio-pci"),
        "{text}"
    );
    assert!(Guest::checked(&fixture.root(), &full(), Starter::Libvirt).is_ok());
    fixture.remove(&format!("{dir}/iommu_group"));
    let text = refused(&fixture, &full(), Starter::Libvirt);
    assert!(text.contains("intel_iommu=on"), "{text}");
}

#[test]
fn vcpus_have_the_last_cpus() {
    let fixture = host();
    let one = partition::find(&fixture.root(), "sim").unwrap();
    let cpus = Cpus::of(&fixture.root(), &one, 2, true).unwrap();
    assert_eq!((cpus.vcpus, cpus.others), (vec![3, 4], vec![2]));
    fixture.write(
        "proc/7/cgroup",
        "0::/hpmmap_sim.slice/hpmmap_sim-tasks.slice\n",
    );
    fixture.write("proc/8/cgroup", "0::/hpmmap_sim.slicer\n");
    let of = |pid| {
        pin::partition_of(&fixture.root(), pid)
            .unwrap()
            .map(|one| one.name)
    };
    assert_eq!(of(7).as_deref(), Some("sim"));
    assert_eq!((of(8), of(9)), (None, None));
}
