//! The options of `hpmmap vm`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hpmmap_base::size::Size;

use super::{PageSize, parse_seconds};

#[derive(Debug, Subcommand)]
pub enum VmVerb {
    /// Print the command line of QEMU for a virtual machine whose RAM is pool memory
    ///
    /// Add the disk, the network and the console of your own. The RAM is a file of a mount of type
    /// hpmmap with the option pagesize=, which the command looks for.
    Qemu(VmGuestArgs),
    /// Print the domain of libvirt for the same
    ///
    /// Add the disk, the network and the console of your own, then 'virsh define'.
    Xml(VmGuestArgs),
    /// Show the running virtual machines: nested entries, exits, steal time, interrupts of the host
    ///
    /// Counts for --seconds. Each user sees their own virtual machines with the times of their
    /// vCPUs; only root sees all of them, the sizes of nested entries (debugfs) and exits by reason
    /// (tracefs).
    Status(VmStatusArgs),
    /// Bind each vCPU of a virtual machine to a CPU of a partition
    ///
    /// The other threads of the virtual machine have the CPUs that are left. A partition moves no
    /// thread by itself, so without this all vCPUs run on one CPU. As root it also moves the process
    /// into the partition.
    Pin(VmPinArgs),
    /// Tell a VM about its host, and do what it asks for
    ///
    /// Writes into a page of memory that QEMU shares with the guest how the host maps the
    /// guest's RAM, to which CPUs its vCPUs are bound, which devices are passed through, and
    /// how much of the pools is used. In the guest 'hpmmap status' and 'hpmmap doctor' show
    /// it, and 'hpmmap pool' takes memory with large entries first.
    ///
    /// A program in the guest can ask for critical sections (hpmmap_critical_begin(3)): its
    /// vCPU is SCHED_FIFO until the end of the section, at most for --deadline and half of
    /// the time. That holds only for vCPUs that are bound to one CPU of a partition. It needs
    /// CAP_SYS_NICE, or an RLIMIT_RTPRIO of 1 of QEMU. If a program is sensitive to timers,
    /// these CPUs sleep only lightly (pm_qos_resume_latency_us), which needs root.
    ///
    /// The agent runs as the user that runs QEMU, until the VM ends. Then all is undone.
    /// QEMU needs '-object memory-backend-file,id=ID,mem-path=FILE,size=1M,share=on -device
    /// ivshmem-plain,memdev=ID', and a monitor that nothing else uses: '-qmp
    /// unix:SOCKET,server=on,wait=off'.
    Agent(VmAgentArgs),
}

#[derive(Debug, Args)]
pub struct VmGuestArgs {
    /// RAM: bytes, or a number with K, M, G or T; a multiple of the page size
    #[arg(long, value_name = "SIZE")]
    pub memory: Size,
    /// Size of the nested page-table entries
    #[arg(
        long,
        value_enum,
        value_name = "2M|1G",
        default_value = "2M",
        ignore_case = true,
        hide_possible_values = true
    )]
    pub page_size: PageSize,
    /// Number of vCPUs
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus: u32,
    /// NUMA node of the RAM
    #[arg(long, value_name = "N")]
    pub node: Option<u32>,
    /// Run in this partition, each vCPU on a CPU of its own (see 'hpmmap partition')
    #[arg(long, value_name = "NAME")]
    pub partition: Option<String>,
    /// Real-time priority (SCHED_FIFO) of the vCPUs; the partition needs one CPU more than there
    /// are vCPUs (only 'vm xml'; with QEMU: 'vm pin --fifo')
    #[arg(long, requires = "partition", value_name = "PRIORITY", num_args = 0..=1,
          default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub fifo: Option<u32>,
    /// Pass this PCI device through, such as 0000:01:00.0; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub device: Vec<String>,
    /// Directory where the pools are mounted with pagesize=; by default the first one with the
    /// page size
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Its name
    #[arg(long, value_name = "NAME", default_value = "guest")]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct VmStatusArgs {
    /// Process of the virtual machine; by default all virtual machines
    pub pid: Option<u32>,
    /// How long to count exits, times and interrupts
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub seconds: f64,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct VmPinArgs {
    /// Process of the virtual machine
    pub pid: u32,
    /// The partition; by default the one that the process is in
    #[arg(long, value_name = "NAME")]
    pub partition: Option<String>,
    /// Also give the vCPUs this real-time priority (SCHED_FIFO); the partition needs one CPU more
    /// than there are vCPUs, for the other threads
    #[arg(long, value_name = "PRIORITY", num_args = 0..=1, default_missing_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=99))]
    pub fifo: Option<u32>,
}

#[derive(Debug, Args)]
pub struct VmAgentArgs {
    /// The file of the ivshmem-plain device; the first 4096 bytes are used
    #[arg(long, value_name = "FILE")]
    pub page: PathBuf,
    /// The process of QEMU
    #[arg(long, value_name = "PID")]
    pub pid: u32,
    /// The socket of QEMU's monitor (QMP)
    #[arg(long, value_name = "SOCKET")]
    pub qmp: PathBuf,
    /// Longest critical section, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=10000))]
    pub deadline: u32,
    /// Time between two looks at the guest's critical sections, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub poll: u32,
    /// Also tell host-physical addresses, which make attacks on other VMs easier
    ///
    /// Needs CAP_SYS_ADMIN. RAM that may have entries of 1 GB has none: reading them would
    /// split these.
    #[arg(long)]
    pub physical: bool,
}
