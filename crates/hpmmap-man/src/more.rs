//! Examples, files and related pages of each manual page: what the definition of the arguments
//! does not say.

/// An example: its purpose, and its lines.
pub type Example = (&'static str, &'static [&'static str]);

/// The sections of a page that do not come from the definition of its arguments.
pub struct More {
    pub page: &'static str,
    pub examples: &'static [Example],
    pub files: &'static [&'static str],
    pub see: &'static [&'static str],
}

const DEVICE: &str = "/dev/hpmmap";
const SYSFS: &str = "/sys/kernel/hpmmap";

/// The purpose of each file.
pub const FILES: &[(&str, &str)] = &[
    (
        DEVICE,
        "the device of the module; its group may use the pools",
    ),
    (SYSFS, "counters of the module"),
    ("/etc/hpmmap/pools", "sizes of the pools at boot"),
    ("/etc/hpmmap/limits", "limits of users and cgroups"),
    (
        "/sys/devices/system/memory",
        "the memory blocks, and whether they are online",
    ),
    (
        "/etc/cdi/hpmmap.json",
        "specification of the device for containers",
    ),
    (
        "/etc/default/grub.d/hpmmap.cfg",
        "the reservation at boot, for GRUB",
    ),
    (
        "/etc/default/grub.d/hpmmap-partition.cfg",
        "the kernel's options for partitions, for GRUB",
    ),
    (
        "/run/hpmmap/partitions",
        "the partitions, and the values from before them",
    ),
    (
        "/run/hpmmap/partition.socket",
        "where users ask to run in their partitions",
    ),
    (
        "/sys/fs/cgroup",
        "the cgroups: that of a partition is hpmmap_NAME, with systemd hpmmap_NAME.slice",
    ),
    (
        "/usr/lib/hpmmap/kdump-load",
        "loads a crash kernel that leaves the pools out",
    ),
    (
        "/usr/lib/hpmmap/bench-alloc",
        "the worker program of hpmmap bench alloc, and of node",
    ),
    (
        "/usr/lib/hpmmap/bench-noise",
        "the worker program of hpmmap bench noise, and of node",
    ),
    (
        "/usr/lib/hpmmap/apps",
        "the MPI programs of hpmmap bench colocation, and of node",
    ),
    (
        "/run/hpmmap/bench",
        "the values from before the changes of a benchmark with --prepare, while it runs",
    ),
    (
        "/usr/lib/hpmmap/bench-vm",
        "the worker program of hpmmap bench vm, and the first process of its machines",
    ),
    (
        "/sys/kernel/tracing/instances/hpmmap-bench-vm",
        "counts the exits of virtual machines while hpmmap bench vm runs",
    ),
    ("/dev/kvm", "KVM, without which there is no virtual machine"),
    ("/proc/interrupts", "interrupts of each CPU, by kind"),
    (
        "/sys/kernel/debug/kvm",
        "counters of KVM: nested entries, threads of vCPUs (root)",
    ),
    (
        "/sys/kernel/tracing/instances",
        "where exits are counted, in an instance hpmmap-vm-PID (root)",
    ),
    (
        "/sys/bus/pci/devices",
        "in the guest: resource2 of the ivshmem-plain device is the page",
    ),
];

pub const MORE: &[More] = &[
    More {
        page: "hpmmap",
        examples: &[(
            "A pool, a launch that uses it, and what it holds:",
            &[
                "# hpmmap pool add --node 0 --size 16G",
                "$ hpmmap run -- mpirun -n 4 ./app",
                "$ hpmmap status",
            ],
        )],
        files: &[DEVICE, SYSFS, "/etc/hpmmap/pools", "/etc/hpmmap/limits"],
        see: &["hpmmap-pools(5)", "hpmmap-limits(5)", "numactl(8)"],
    },
    More {
        page: "hpmmap-pool",
        examples: &[(
            "The pools, and the limits of users and cgroups:",
            &["$ hpmmap pool list", "$ hpmmap pool limit --list"],
        )],
        files: &["/etc/hpmmap/pools", "/etc/hpmmap/limits", SYSFS],
        see: &["hpmmap(1)", "hpmmap-pools(5)"],
    },
    More {
        page: "hpmmap-pool-add",
        examples: &[
            (
                "Take 16 GB of NUMA node 0 from Linux, or nothing:",
                &["# hpmmap pool add --node 0 --size 16G"],
            ),
            (
                "Make the pool of NUMA node 1 at least 1.5 TB large:",
                &["# hpmmap pool add --node 1 --size 1.5T --up-to"],
            ),
        ],
        files: &[DEVICE, "/etc/hpmmap/pools", "/sys/devices/system/memory"],
        see: &["hpmmap-pool-remove(8)", "hpmmap-pools(5)", "lsmem(1)"],
    },
    More {
        page: "hpmmap-pool-remove",
        examples: &[(
            "Give back all memory that no process holds:",
            &["# hpmmap pool remove --all"],
        )],
        files: &[DEVICE, "/sys/devices/system/memory"],
        see: &["hpmmap-pool-add(8)", "hpmmap-status(1)", "lsmem(1)"],
    },
    More {
        page: "hpmmap-pool-set",
        examples: &[
            (
                "Make the pools as large as /etc/hpmmap/pools says, as the service does:",
                &["# hpmmap pool set"],
            ),
            (
                "Make the pool of NUMA node 1 1.5 TB large, whatever it has now:",
                &["# hpmmap pool set --node 1 --size 1.5T"],
            ),
            (
                "On a small virtual machine, where Linux needs less than 2 GB:",
                &["# hpmmap pool set --size 2G --leave 1G"],
            ),
        ],
        files: &[DEVICE, "/etc/hpmmap/pools", "/sys/devices/system/memory"],
        see: &[
            "hpmmap-pools(5)",
            "hpmmap-pool-add(8)",
            "hpmmap-pool-remove(8)",
            "hpmmap-pool-reserve(8)",
        ],
    },
    More {
        page: "hpmmap-pool-reserve",
        examples: &[
            (
                "Reserve 64 GB from the next boot on:",
                &["# hpmmap pool reserve --size 64G"],
            ),
            (
                "Reserve nothing from the next boot on:",
                &["# hpmmap pool reserve --remove"],
            ),
        ],
        files: &[
            "/etc/default/grub.d/hpmmap.cfg",
            "/sys/devices/system/memory",
        ],
        see: &["hpmmap-pool-set(8)", "hpmmap-doctor(1)", "update-grub(8)"],
    },
    More {
        page: "hpmmap-pool-list",
        examples: &[(
            "Each memory block, as JSON:",
            &["# hpmmap pool list --verbose --json"],
        )],
        files: &[SYSFS, DEVICE],
        see: &["hpmmap-status(1)", "hpmmap-pool-limit(8)"],
    },
    More {
        page: "hpmmap-pool-limit",
        examples: &[
            (
                "8 GB for alice, and 16 GB for all batch jobs of Slurm:",
                &[
                    "# hpmmap pool limit --user alice --size 8G",
                    "# hpmmap pool limit --cgroup /system.slice/slurmstepd.scope --size 16G",
                ],
            ),
            (
                "Promise 32 GB of NUMA node 1 to a cgroup, and hold it to that:",
                &["# hpmmap pool limit --cgroup /hpc.slice --min 1:32G --size 32G"],
            ),
            (
                "The limits of all users and cgroups, what they hold and what they are promised:",
                &["$ hpmmap pool limit --list"],
            ),
        ],
        files: &[DEVICE, "/etc/hpmmap/limits"],
        see: &["hpmmap-limits(5)", "hpmmap-status(1)", "cgroups(7)"],
    },
    More {
        page: "hpmmap-pool-iomem",
        examples: &[(
            "Load a crash kernel that leaves the pools out of dumps:",
            &["# /usr/lib/hpmmap/kdump-load"],
        )],
        files: &["/usr/lib/hpmmap/kdump-load"],
        see: &["hpmmap-pool-add(8)", "kexec(8)"],
    },
    More {
        page: "hpmmap-partition",
        examples: &[(
            "CPUs 2 to 5 and 32 GB for a job of alice, and everything back afterwards:",
            &[
                "# hpmmap partition create sim --cpus 2-5 --memory 32G --user alice",
                "$ hpmmap run --partition sim -- ./app",
                "# hpmmap partition delete sim",
            ],
        )],
        files: &[
            "/run/hpmmap/partitions",
            "/run/hpmmap/partition.socket",
            "/sys/fs/cgroup",
        ],
        see: &[
            "hpmmap-run(1)",
            "hpmmap-doctor(1)",
            "cgroups(7)",
            "cpuset(7)",
        ],
    },
    More {
        page: "hpmmap-partition-create",
        examples: &[
            (
                "CPUs 2 to 5, with 32 GB of NUMA node 0:",
                &["# hpmmap partition create sim --cpus 2-5 --memory 32G --node 0"],
            ),
            (
                "For threads that nothing binds to CPUs:",
                &["# hpmmap partition create sim --cpus 2-5 --balance"],
            ),
            (
                "The CPUs that a batch job of Slurm has, for all its steps:",
                &[
                    "# hpmmap partition create job_7 --of-cgroup /system.slice/slurmstepd.scope/job_7",
                ],
            ),
            (
                "For a virtual machine with three real-time vCPUs:",
                &[
                    "# hpmmap partition create vm --cpus 2-5 --halt-poll-ns 1000000 --no-rt-throttling",
                ],
            ),
        ],
        files: &["/run/hpmmap/partitions", "/sys/fs/cgroup"],
        see: &[
            "hpmmap-partition-delete(8)",
            "hpmmap-partition-reserve(8)",
            "hpmmap-run(1)",
            "cpuset(7)",
        ],
    },
    More {
        page: "hpmmap-partition-list",
        examples: &[("As JSON:", &["$ hpmmap partition list --json"])],
        files: &["/run/hpmmap/partitions"],
        see: &["hpmmap-partition-show(8)"],
    },
    More {
        page: "hpmmap-partition-show",
        examples: &[(
            "Show the disturbances of a partition's CPUs:",
            &["$ hpmmap partition show sim"],
        )],
        files: &["/run/hpmmap/partitions", "/sys/fs/cgroup"],
        see: &["hpmmap-partition-create(8)", "hpmmap-doctor(1)"],
    },
    More {
        page: "hpmmap-partition-delete",
        examples: &[(
            "Delete a partition with the job in it:",
            &["# hpmmap partition delete sim --kill"],
        )],
        files: &["/run/hpmmap/partitions"],
        see: &["hpmmap-partition-create(8)"],
    },
    More {
        page: "hpmmap-partition-reserve",
        examples: &[
            (
                "CPUs 2 to 5 can be quiet from the next boot on:",
                &["# hpmmap partition reserve --cpus 2-5"],
            ),
            (
                "None from the next boot on:",
                &["# hpmmap partition reserve --undo"],
            ),
        ],
        files: &["/etc/default/grub.d/hpmmap-partition.cfg"],
        see: &["hpmmap-partition-create(8)", "update-grub(8)"],
    },
    More {
        page: "hpmmap-vm",
        examples: &[(
            "A virtual machine of 4 GB on CPUs of its own, and what disturbs it:",
            &[
                "# mkdir -p /dev/hpmmap-vm",
                "# mount -t hpmmap -o pagesize=1G hpmmap /dev/hpmmap-vm",
                "# hpmmap partition create vm --cpus 2-4",
                "# hpmmap vm qemu --memory 4G --page-size 1G --cpus 2 --partition vm",
                "# hpmmap vm pin 4711",
                "# hpmmap vm status 4711",
            ],
        )],
        files: &[SYSFS, "/run/hpmmap/partitions"],
        see: &[
            "hpmmap-mount(5)",
            "hpmmap-partition(8)",
            "qemu-system-x86_64(1)",
            "virsh(1)",
        ],
    },
    More {
        page: "hpmmap-vm-qemu",
        examples: &[(
            "Start a virtual machine of 4 GB with a disk:",
            &["$ eval \"$(hpmmap vm qemu --memory 4G) -drive file=disk.qcow2,if=virtio\""],
        )],
        files: &[SYSFS, "/run/hpmmap/partitions"],
        see: &["hpmmap-vm-pin(1)", "hpmmap-mount(5)"],
    },
    More {
        page: "hpmmap-vm-xml",
        examples: &[(
            "A domain of libvirt with two real-time vCPUs in a partition:",
            &[
                "# hpmmap vm xml --memory 4G --cpus 2 --partition vm --fifo >guest.xml",
                "# virsh define guest.xml",
            ],
        )],
        files: &[SYSFS, "/run/hpmmap/partitions"],
        see: &["hpmmap-partition-create(8)", "hpmmap-mount(5)", "virsh(1)"],
    },
    More {
        page: "hpmmap-vm-status",
        examples: &[(
            "Count the exits and steal time of ten seconds:",
            &["# hpmmap vm status --seconds 10"],
        )],
        files: &[
            "/sys/kernel/debug/kvm",
            "/sys/kernel/tracing/instances",
            "/proc/interrupts",
        ],
        see: &[
            "hpmmap-status(1)",
            "hpmmap-trace-noise(1)",
            "hpmmap-vm-pin(1)",
        ],
    },
    More {
        page: "hpmmap-vm-pin",
        examples: &[(
            "Each vCPU of process 4711 on a CPU of partition vm, with real-time priority 1:",
            &["# hpmmap vm pin 4711 --partition vm --fifo"],
        )],
        files: &["/run/hpmmap/partitions", "/sys/fs/cgroup"],
        see: &["hpmmap-partition-create(8)", "sched(7)", "taskset(1)"],
    },
    More {
        page: "hpmmap-vm-agent",
        examples: &[
            (
                "Serve the VM of a QEMU with the file and the monitor of these names:",
                &["$ hpmmap vm agent --page /dev/shm/vm1 --pid 1234 --qmp vm1.qmp"],
            ),
            (
                "Show in the guest what the host tells:",
                &["# hpmmap status", "# hpmmap doctor"],
            ),
        ],
        files: &["/sys/bus/pci/devices"],
        see: &["hpmmap-status(1)", "hpmmap-partition-create(8)", "qemu(1)"],
    },
    More {
        page: "hpmmap-run",
        examples: &[
            (
                "All processes of an MPI program on this host:",
                &["$ hpmmap run -- mpirun -n 4 ./lmp -in in.lj"],
            ),
            (
                "Only the ranks, and not mpirun and its helpers:",
                &["$ hpmmap run --only 'lmp*' -- mpirun -n 4 ./lmp -in in.lj"],
            ),
            (
                "A launch and a report for each rank:",
                &["$ mpirun -n 4 hpmmap run --report 'r-%h-%r.json' -- ./lmp -in in.lj"],
            ),
            (
                "Keep 32 GB for this launch, which no other launch can take:",
                &["$ hpmmap run --strict --reserve 32G -- ./app"],
            ),
            (
                "1 GB of NUMA node 1 at an address, before the first instruction:",
                &["$ hpmmap run --region 1G@0x200000000000,node=1 -- ./app"],
            ),
            (
                "Fail when the pools are exhausted, and print a report at the end:",
                &["$ hpmmap run --strict --verbose -- ./app"],
            ),
            (
                "A rank on each core of a partition:",
                &["$ mpirun -n 4 hpmmap run --partition sim --per-core -- ./app"],
            ),
        ],
        files: &[DEVICE, SYSFS],
        see: &[
            "hpmmap-status(1)",
            "hpmmap-mark(1)",
            "hpmmap-partition(8)",
            "numactl(8)",
            "mpirun(1)",
        ],
    },
    More {
        page: "hpmmap-status",
        examples: &[
            (
                "A screen that is updated each second:",
                &["$ hpmmap status --watch 1"],
            ),
            (
                "Metrics for the textfile collector of node_exporter:",
                &[
                    "# hpmmap status --prometheus --output \\",
                    "    /var/lib/prometheus/node-exporter/hpmmap.prom",
                ],
            ),
        ],
        files: &[SYSFS],
        see: &["hpmmap-run(1)", "hpmmap-pool-list(8)"],
    },
    More {
        page: "hpmmap-doctor",
        examples: &[("Check this host:", &["$ hpmmap doctor"])],
        files: &[DEVICE, SYSFS],
        see: &["hpmmap-pool-add(8)", "modprobe(8)"],
    },
    More {
        page: "hpmmap-cdi",
        examples: &[(
            "A container with the device, for a user of its group:",
            &[
                "# hpmmap cdi --output /etc/cdi/hpmmap.json",
                "# podman run --device hpmmap.io/pool=all \\",
                "    --group-add $(stat -c %g /dev/hpmmap) image hpmmap run -- ./app",
            ],
        )],
        files: &[DEVICE, "/etc/cdi/hpmmap.json"],
        see: &["hpmmap-run(1)", "hpmmap-mark(1)", "podman-run(1)"],
    },
    More {
        page: "hpmmap-mark",
        examples: &[
            ("Mark a program:", &["$ hpmmap mark ./app"]),
            (
                "Print whether it is marked, and with which options:",
                &["$ hpmmap mark --show ./app"],
            ),
        ],
        files: &[DEVICE],
        see: &["hpmmap-unmark(1)", "hpmmap-run(1)", "elf(5)"],
    },
    More {
        page: "hpmmap-unmark",
        examples: &[("Remove the mark:", &["$ hpmmap unmark ./app"])],
        files: &[DEVICE],
        see: &["hpmmap-mark(1)"],
    },
    More {
        page: "hpmmap-bench",
        examples: &[(
            "Measure the cost of memory on this host:",
            &["$ hpmmap bench alloc"],
        )],
        files: &[
            "/usr/lib/hpmmap/bench-alloc",
            "/usr/lib/hpmmap/bench-noise",
            "/usr/lib/hpmmap/bench-vm",
            "/run/hpmmap/bench",
        ],
        see: &["hpmmap-status(1)"],
    },
    More {
        page: "hpmmap-bench-alloc",
        examples: &[(
            "Pieces of 2 MB, of pool memory and of ordinary memory:",
            &["$ hpmmap bench alloc --method 4k,hpmmap --size 2M"],
        )],
        files: &["/usr/lib/hpmmap/bench-alloc", DEVICE],
        see: &["hpmmap-bench-noise(1)", "hpmmap-run(1)"],
    },
    More {
        page: "hpmmap-bench-noise",
        examples: &[(
            "Measure the time that is taken away on this host:",
            &["$ hpmmap bench noise"],
        )],
        files: &["/usr/lib/hpmmap/bench-noise", DEVICE],
        see: &["hpmmap-bench-alloc(1)"],
    },
    More {
        page: "hpmmap-bench-node",
        examples: &[
            (
                "An hour on a node, with all that is needed for every method:",
                &["# hpmmap bench node --prepare --out node"],
            ),
            (
                "What can be measured without root, on some CPUs:",
                &["$ hpmmap bench node --minutes 20 --cpus 0-15"],
            ),
        ],
        files: &[
            "/usr/lib/hpmmap/bench-alloc",
            "/usr/lib/hpmmap/bench-noise",
            "/usr/lib/hpmmap/apps",
            "/run/hpmmap/bench",
        ],
        see: &[
            "hpmmap-bench-alloc(1)",
            "hpmmap-bench-noise(1)",
            "perf_event_open(2)",
        ],
    },
    More {
        page: "hpmmap-bench-vm",
        examples: &[
            (
                "Nested and shadow paging on every kind of memory, on a host without virtual machines:",
                &["# hpmmap bench vm --prepare"],
            ),
            (
                "The paging that the host has, for random accesses, on pool memory:",
                &["# hpmmap bench vm --workload random --method hpmmap --paging nested"],
            ),
        ],
        files: &[
            "/usr/lib/hpmmap/bench-vm",
            "/dev/kvm",
            "/sys/kernel/tracing/instances/hpmmap-bench-vm",
        ],
        see: &["hpmmap-bench-alloc(1)", "hpmmap-mount(5)"],
    },
    More {
        page: "hpmmap-bench-colocation",
        examples: &[
            (
                "Measure MPI jobs beside neighbours:",
                &["# hpmmap bench colocation"],
            ),
            (
                "On one and on two hosts of an allocation of Slurm:",
                &["# salloc -w n1,n2 --exclusive hpmmap bench colocation --prepare --hosts n1,n2"],
            ),
        ],
        files: &[DEVICE, SYSFS],
        see: &["hpmmap-run(1)", "mpirun(1)"],
    },
    More {
        page: "hpmmap-trace",
        examples: &[(
            "Record a program's page faults and report them:",
            &[
                "# hpmmap trace record -o faults -- ./app",
                "$ hpmmap trace report faults",
            ],
        )],
        files: &[SYSFS],
        see: &["hpmmap-run(1)", "perf(1)"],
    },
    More {
        page: "hpmmap-trace-record",
        examples: &[(
            "A program and everything it starts:",
            &["# hpmmap trace record -o faults -- mpirun -n 2 ./app"],
        )],
        files: &[SYSFS],
        see: &["hpmmap-trace-report(1)", "perf-record(1)"],
    },
    More {
        page: "hpmmap-trace-report",
        examples: &[(
            "As JSON, for a program:",
            &["$ hpmmap trace report faults --json"],
        )],
        files: &[SYSFS],
        see: &["hpmmap-trace-record(1)", "hpmmap-trace-plot(1)"],
    },
    More {
        page: "hpmmap-trace-plot",
        examples: &[(
            "Draw a picture:",
            &["$ hpmmap trace plot faults -o faults.svg"],
        )],
        files: &[SYSFS],
        see: &["hpmmap-trace-record(1)", "hpmmap-trace-report(1)"],
    },
    More {
        page: "hpmmap-trace-noise",
        examples: &[
            (
                "What takes CPUs away from a program:",
                &["# hpmmap trace noise -- ./app"],
            ),
            (
                "What happens on CPUs 2 and 3 within a minute:",
                &["# hpmmap trace noise --cpu 2-3 -- sleep 60"],
            ),
        ],
        files: &["/proc/interrupts"],
        see: &["hpmmap-run(1)", "hpmmap-bench-noise(1)"],
    },
];

/// The pages of section 5, without their titles.
pub const OF_FILES: [(&str, &str); 3] = [
    ("hpmmap-pools", include_str!("../man/hpmmap-pools.5")),
    ("hpmmap-limits", include_str!("../man/hpmmap-limits.5")),
    ("hpmmap-mount", include_str!("../man/hpmmap-mount.5")),
];
