//! The options of `hpmmap partition`.

use clap::{ArgGroup, Args, Subcommand};
use hpmmap_base::size::Size;

#[derive(Debug, Subcommand)]
pub enum PartitionVerb {
    /// Take CPUs from everything else, for the programs of one job
    ///
    /// Makes an isolated cpuset partition, and moves interrupts, workqueues, kernel threads,
    /// watchdogs, the fair server and the polls for corrected memory errors off its CPUs. Tells
    /// which interrupts stay, and which options the kernel's command line lacks. 'hpmmap run
    /// --partition NAME' runs a program there.
    ///
    /// All is undone by 'hpmmap partition delete': each value is recorded in
    /// /run/hpmmap/partitions before it changes. If the command is killed, the next 'create' or
    /// 'delete' undoes what it has begun. A partition ends with the boot.
    Create(PartitionCreateArgs),
    /// Show the partitions
    List(PartitionListArgs),
    /// Show a partition, and what disturbs its CPUs
    Show(PartitionShowArgs),
    /// Give CPUs and memory back, and put everything back as it was
    Delete(PartitionDeleteArgs),
    /// Write the options for the kernel's command line that make CPUs quiet from the next boot on
    ///
    /// The scheduler's tick, callbacks of RCU and interrupts of drivers that have one for each CPU
    /// can only be kept away by nohz_full=, rcu_nocbs= and isolcpus=managed_irq. Writes them to
    /// /etc/default/grub.d/hpmmap-partition.cfg and runs update-grub; other files stay as they are.
    Reserve(PartitionReserveArgs),
    /// Serve one request of 'hpmmap run --partition' on standard input, a socket
    #[command(hide = true)]
    Serve,
}

#[derive(Debug, Args)]
pub struct PartitionCreateArgs {
    /// Its name: up to 32 letters, digits and '_'
    pub name: String,
    /// The CPUs, such as 2-5,8
    #[arg(long, value_name = "LIST", required_unless_present = "of_cgroup")]
    pub cpus: Option<String>,
    /// Pool memory that is promised to the partition: nobody else can have it, and its programs
    /// cannot have more
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// NUMA node of all its memory, that of the pools and ordinary memory
    #[arg(long, value_name = "N")]
    pub node: Option<u32>,
    /// Let this user run programs in it, beside root
    #[arg(long, value_name = "NAME|UID")]
    pub user: Option<String>,
    /// Let the scheduler balance load between its CPUs, for threads that nothing binds; costs
    /// some interrupts
    #[arg(long)]
    pub balance: bool,
    /// Make it below this cgroup, such as that of a batch job (Linux 6.12 and newer)
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,
    /// Make this cgroup itself a partition, with its CPUs (cpuset.cpus) and the processes in it,
    /// such as that of a batch job (Linux 6.12 and newer). It stays the cgroup of its owner: the
    /// partition ends with it, and the next 'create' or 'delete' puts back what is left
    #[arg(long, value_name = "PATH", conflicts_with_all = ["cpus", "memory", "node", "user", "cgroup"])]
    pub of_cgroup: Option<String>,
    /// Let KVM poll so long on a halted vCPU before it gives up the CPU, on the whole host while the
    /// partition lives; 0 turns polling off
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub halt_poll_ns: Option<u64>,
    /// Let real-time tasks run without a break (kernel.sched_rt_runtime_us=-1), on the whole host
    /// while the partition lives; one that never sleeps then starves all other tasks of its CPU
    #[arg(long)]
    pub no_rt_throttling: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PartitionListArgs {
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PartitionShowArgs {
    /// Its name
    pub name: String,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PartitionDeleteArgs {
    /// Its name
    pub name: String,
    /// Kill the processes in it first
    #[arg(long)]
    pub kill: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["cpus", "undo"]))]
pub struct PartitionReserveArgs {
    /// The CPUs of partitions to come
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Remove the options from the next boot on
    #[arg(long)]
    pub undo: bool,
}
