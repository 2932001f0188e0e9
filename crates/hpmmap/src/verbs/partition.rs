//! `hpmmap partition`

use std::env;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::{
    Column::{Number, Text},
    print, print_versioned, table, warn,
};
use hpmmap_base::size::{counted, multiple_of, short};
use hpmmap_base::user_name;
use hpmmap_host::{Root, cgroup, number_list};
use hpmmap_sys::uapi;
use nix::unistd::Uid;
use serde::Serialize;

use super::{pool_limit, require_nodes};
use crate::cli::{
    PartitionCreateArgs, PartitionDeleteArgs, PartitionListArgs, PartitionReserveArgs,
    PartitionShowArgs, PartitionVerb, RunArgs,
};
use crate::device::{self, only_root};
use crate::partition::enter::{self, Rank};
use crate::partition::machine::{Cpus, Live, Machine, format_cpus};
use crate::partition::quiet::{self, DROP_IN, Disturbances};
use crate::partition::values::Refused;
use crate::partition::{self, Partition, Phase, Request};
use crate::{grub, limits, promise};

/// How long killed processes may take to end.
const LOOKS: u32 = 100;
const LOOK: Duration = Duration::from_millis(100);

pub fn perform(verb: &PartitionVerb) -> Result<ExitCode> {
    match verb {
        PartitionVerb::Create(args) => create(args),
        PartitionVerb::List(args) => list(args),
        PartitionVerb::Show(args) => show(args),
        PartitionVerb::Delete(args) => delete(args),
        PartitionVerb::Reserve(args) => reserve(args),
        PartitionVerb::Serve => serve(),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn parse(list: &str) -> Result<Cpus> {
    let cpus =
        number_list::parse(list).map_err(|error| Error::Usage(format!("--cpus: {error}")))?;
    Ok(cpus.into_iter().collect())
}

fn require_root(what: &str) -> Result<()> {
    match Uid::effective().is_root() {
        true => Ok(()),
        false => Err(only_root(what)),
    }
}

fn create(args: &PartitionCreateArgs) -> Result<()> {
    require_root("to make partitions")?;
    let root = Root::default();
    if let Some(size) = args.memory {
        multiple_of(size, uapi::BLOCK_BYTES, "the block size")?;
    }
    if let Some(node) = args.node {
        require_nodes(&hpmmap_host::node::with_memory(&root)?, &[node])?;
    }
    let request = Request {
        name: args.name.clone(),
        cpus: args.cpus.as_deref().map_or(Ok(Cpus::new()), parse)?,
        balance: args.balance,
        memory_bytes: args.memory.map_or(0, |size| size.0),
        node: args.node,
        user: args
            .user
            .as_deref()
            .map(pool_limit::find_user)
            .transpose()?,
        under: args
            .of_cgroup
            .as_ref()
            .or(args.cgroup.as_ref())
            .cloned()
            .unwrap_or_default(),
        adopts: args.of_cgroup.is_some(),
        halt_poll_ns: args.halt_poll_ns,
        unthrottled: args.no_rt_throttling,
    };
    let machine = Live::default();
    let _lock = partition::lock(&machine)?;
    let promise = |one: &Partition| match one.memory_bytes {
        0 => Ok(()),
        bytes => {
            let node = one.node.map_or(String::new(), |node| format!("{node}:"));
            hold(&machine, &one.cgroup, &format!("{node}{bytes}"), bytes)
        }
    };
    let (one, refused) = partition::create(&machine, &request, &promise)?;
    tell(&refused);
    report(&root, &one, args.json)
}

/// Promises pool memory to a cgroup, which gets no more than that.
fn hold(machine: &Live, cgroup: &str, promise: &str, bytes: u64) -> Result<()> {
    let exe = env::current_exe()?;
    machine.run(&[
        &exe.to_string_lossy(),
        "pool",
        "limit",
        "--cgroup",
        &format!("/{cgroup}"),
        "--min",
        promise,
        "--size",
        &bytes.to_string(),
    ])
}

/// The share of a rank: of what the partition was promised on each NUMA node, those of its CPUs
/// first.
fn share(machine: &Live, one: &Partition, cgroup: &str, rank: Rank) -> Result<()> {
    let root = machine.root();
    let order = enter::nodes(root, &one.cpus);
    let place = |node: u32| order.iter().position(|known| *known == node);
    let promises = promise::list(root, &device::open()?)?;
    let promised_to = |cgroup: &str| -> Vec<(u32, u64)> {
        // By its ID: paths take a capability that the service does not have.
        let id = cgroup::number(&root.join(cgroup));
        let own = promises.iter();
        let own = own.filter(|promised| id.is_some() && promised.cgroup_id == id);
        own.map(|promised| (promised.node, promised.promised_bytes))
            .collect()
    };
    let mut nodes = promised_to(&one.cgroup);
    if nodes.is_empty() {
        return Err(Error::Failed(format!(
            "--per-core: partition '{}' has no promise of memory any more (see: hpmmap pool limit \
             --list)",
            one.name
        )));
    }
    nodes.sort_by_key(|(node, _)| place(*node).unwrap_or(order.len()));
    let ranks = partition::ranks(root, one);
    let others = ranks.iter().filter(|dir| *dir != cgroup);
    let others: Vec<(u32, u64)> = others.flat_map(|dir| promised_to(dir)).collect();
    let parts = rank.share(&nodes, &others)?;
    let text: Vec<String> = parts
        .iter()
        .map(|(node, bytes)| format!("{node}:{bytes}"))
        .collect();
    let promise = if text.is_empty() {
        "none".into()
    } else {
        text.join(",")
    };
    hold(
        machine,
        cgroup,
        &promise,
        parts.iter().map(|(_, bytes)| bytes).sum(),
    )
}

/// Values that the kernel does not let change; interrupts that stay are reported with what they are.
fn tell(refused: &[Refused]) {
    for one in refused.iter().filter(|one| !one.path.contains("/irq/")) {
        warn(&format!("/{}: {}", one.path, one.why));
    }
}

/// The report of a partition.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    phase: Phase,
    /// The kernel's word for its state.
    state: Option<String>,
    cpus: String,
    cgroup: String,
    balance: bool,
    user: Option<String>,
    node: Option<u32>,
    processes: usize,
    memory_bytes: u64,
    held_bytes: Option<u64>,
    #[serde(flatten)]
    disturbances: Option<Disturbances>,
}

impl Shown {
    fn new(root: &Root, one: &Partition) -> Self {
        Self {
            name: one.name.clone(),
            phase: one.phase,
            state: partition::state(root, one),
            cpus: format_cpus(&one.cpus),
            cgroup: one.path().to_string(),
            balance: one.balance,
            user: one.user.map(user_name),
            node: one.node,
            processes: partition::processes(root, one).len(),
            memory_bytes: one.memory_bytes,
            held_bytes: held(root, one),
            disturbances: None,
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![
            format!("partition {}: {}", self.name, self.condition()),
            format!("CPUs {}, cgroup {}", self.cpus, self.cgroup),
            format!("processes: {}", self.processes),
        ];
        if let Some(user) = &self.user {
            lines.push(format!("user: {user}"));
        }
        if self.memory_bytes > 0 {
            let node = self
                .node
                .map_or(String::new(), |node| format!(" on node {node}"));
            let held = self.held_bytes.map_or("unknown".into(), short);
            lines.push(format!(
                "memory: {} promised{node}, {held} held",
                short(self.memory_bytes)
            ));
        }
        lines.join("\n")
    }

    /// Ready, or what is wrong.
    fn condition(&self) -> String {
        match (self.phase, self.state.as_deref()) {
            (Phase::Making, _) => "half made".into(),
            (Phase::Deleting, _) => "half deleted".into(),
            (Phase::Ready, Some(state @ ("isolated" | "root"))) => format!("ready, {state}"),
            (Phase::Ready, Some(state)) => format!("no partition any more ({state})"),
            (Phase::Ready, None) => "its cgroup is gone".into(),
        }
    }
}

/// Pool memory that its programs hold; `None` if that is not known, such as without the module.
fn held(root: &Root, one: &Partition) -> Option<u64> {
    let limits = limits::list(root, &device::open().ok()?).ok()?;
    let id = Some(cgroup::number(&root.join(&one.cgroup))?);
    let own = limits.iter().find(|limit| limit.cgroup_id == id)?;
    Some(own.held_bytes)
}

fn report(root: &Root, one: &Partition, json: bool) -> Result<()> {
    let mut shown = Shown::new(root, one);
    let disturbances = Disturbances::of(root, one)?;
    if json {
        shown.disturbances = Some(disturbances);
        return print_versioned(1, &shown);
    }
    let lines = [vec![shown.text()], disturbances.lines(&one.cpus)].concat();
    print(&lines.join("\n"))
}

fn show(args: &PartitionShowArgs) -> Result<()> {
    let root = Root::default();
    report(&root, &partition::find(&root, &args.name)?, args.json)
}

/// The printed form.
#[derive(Debug, Serialize)]
struct Listed {
    partitions: Vec<Shown>,
}

fn list(args: &PartitionListArgs) -> Result<()> {
    let root = Root::default();
    let partitions: Vec<Shown> = partition::all(&root)?
        .iter()
        .map(|one| Shown::new(&root, one))
        .collect();
    if args.json {
        return print_versioned(1, &Listed { partitions });
    }
    print(&table(
        &[
            Text("NAME"),
            Text("CPUS"),
            Text("USER"),
            Number("PROMISED"),
            Number("HELD"),
            Number("PROCESSES"),
            Text("STATE"),
        ],
        partitions.iter().map(|one| {
            vec![
                one.name.clone(),
                one.cpus.clone(),
                one.user.clone().unwrap_or_else(|| "-".into()),
                short(one.memory_bytes),
                one.held_bytes.map_or("-".into(), short),
                one.processes.to_string(),
                one.condition(),
            ]
        }),
    ))
}

fn delete(args: &PartitionDeleteArgs) -> Result<()> {
    require_root("to delete partitions")?;
    let machine = Live::default();
    let root = machine.root();
    let _lock = partition::lock(&machine)?;
    let one = partition::find(root, &args.name)?;
    let count = || partition::processes(root, &one).len();
    if args.kill {
        // The kernel kills those that the processes start meanwhile, too.
        let _ = machine.write(&format!("{}/cgroup.kill", one.cgroup), "1");
        let mut looks = 0..LOOKS;
        while count() > 0 && looks.next().is_some() {
            sleep(LOOK);
        }
    }
    match count() {
        0 => (),
        left => {
            let numbers = partition::processes(root, &one);
            return Err(Error::Failed(format!(
                "partition '{}' has {} ({}): wait until they end, or use --kill",
                one.name,
                counted(left, "process"),
                number_list::format(&numbers)
            )));
        }
    }
    tell(&partition::delete(&machine, &args.name)?);
    print(&format!(
        "partition '{}' is deleted: CPUs {} are everybody's again",
        one.name,
        format_cpus(&one.cpus)
    ))
}

fn reserve(args: &PartitionReserveArgs) -> Result<()> {
    let root = Root::default();
    let Some(list) = &args.cpus else {
        let hint = "take nohz_full=, rcu_nocbs= and isolcpus= off the kernel's command line \
                    yourself";
        return print(&match DROP_IN.remove(&root, hint, grub::update)? {
            true => format!("{DROP_IN} is gone: the next boot has none of its options"),
            false => format!("there is no {DROP_IN}: the next boot has no options by it"),
        });
    };
    let cpus = parse(list)?;
    let online = partition::online(&root)?;
    if !cpus.is_subset(&online) || cpus.len() == online.len() {
        return Err(Error::Usage(format!(
            "--cpus {list}: name some of the CPUs {}, and leave one at least for everything else",
            format_cpus(&online)
        )));
    }
    for other in quiet::others(&root)? {
        warn(&format!(
            "this boot has {other} already: take it from /etc/default/grub, the kernel takes only \
             one of each"
        ));
    }
    let options = quiet::options(&cpus);
    let hint = format!("put '{options}' on the kernel's command line yourself");
    DROP_IN.write(&root, &quiet::drop_in(&cpus), &hint, grub::update)?;
    print(&format!(
        "the next boot has {options} (in {DROP_IN}): reboot, then CPUs {} can be quiet",
        format_cpus(&cpus)
    ))
}

/// Brings this process into the partition of `hpmmap run`.
pub fn enter(root: &Root, args: &RunArgs) -> Result<Option<Partition>> {
    let Some(name) = &args.partition else {
        return Ok(None);
    };
    let one = partition::find(root, name)?;
    let variable = |name: &str| env::var(name).ok();
    let rank = args
        .per_core
        .then(|| Rank::own(one.cpus.len(), variable))
        .transpose()?;
    match Uid::effective().is_root() {
        true => {
            let machine = Live::default();
            let lock = || partition::lock_entry(&machine);
            let share = |one: &Partition, cgroup: &str, rank| share(&machine, one, cgroup, rank);
            enter::enter(&machine, name, std::process::id(), rank, lock, &share).map(Some)
        }
        false => enter::ask(&one, rank).map(|()| Some(one)),
    }
}

fn serve() -> Result<()> {
    let machine = Live::default();
    let mut stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let lock = || partition::lock_entry(&machine);
    let share = |one: &Partition, cgroup: &str, rank| share(&machine, one, cgroup, rank);
    enter::serve(&machine, &mut stream, lock, &share)
}
