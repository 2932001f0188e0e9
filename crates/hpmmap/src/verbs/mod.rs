//! One file for each verb.

mod cdi;
mod doctor;
mod mark;
mod other;
mod partition;
mod pool_add;
mod pool_iomem;
mod pool_limit;
mod pool_list;
mod pool_remove;
mod pool_reserve;
mod pool_set;
mod progress;
mod run;
mod run_memory;
mod run_report;
mod status;
mod status_watch;
mod vm;
mod vm_agent;

use std::process::ExitCode;

use hpmmap_base::error::{Error, Result};
use hpmmap_host::{Root, node, number_list};

use crate::cli::{PoolVerb, Verb};

/// Performs the verb.
pub fn perform(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Pool(PoolVerb::Add(args)) => off_partitions(pool_add::perform(&args)?),
        Verb::Pool(PoolVerb::Remove(args)) => pool_remove::perform(&args),
        Verb::Pool(PoolVerb::Set(args)) => off_partitions(pool_set::perform(&args)?),
        Verb::Pool(PoolVerb::Reserve(args)) => pool_reserve::perform(&args),
        Verb::Pool(PoolVerb::List(args)) => pool_list::perform(&args),
        Verb::Pool(PoolVerb::Iomem) => pool_iomem::perform(),
        Verb::Pool(PoolVerb::Limit(args)) => pool_limit::perform(&args),
        Verb::Partition(verb) => partition::perform(&verb),
        Verb::Vm(verb) => vm::perform(&verb),
        Verb::Bench(args) => other::perform("bench", &args.words),
        Verb::Run(args) => run::perform(&args),
        Verb::Status(args) => status::perform(&args),
        Verb::Doctor(args) => doctor::perform(&args),
        Verb::Cdi(args) => cdi::perform(&args),
        Verb::Mark(args) => mark::mark(&args),
        Verb::Unmark(args) => mark::unmark(&args),
        Verb::Trace(args) => other::perform("trace", &args.words),
    }
}

/// Moves the threads that the module has for new pools off the partitions.
fn off_partitions(status: ExitCode) -> Result<ExitCode> {
    crate::partition::refresh().map(|()| status)
}

/// The requested node, checked, or the only one if none was requested; `None` if there are
/// several.
fn chosen_node(root: &Root, asked: Option<u32>) -> Result<Option<u32>> {
    let nodes = node::with_memory(root)?;
    match asked {
        Some(node) => require_nodes(&nodes, &[node]).map(|()| Some(node)),
        None if nodes.len() == 1 => Ok(Some(nodes[0])),
        None => Ok(None),
    }
}

/// As `chosen_node`, but there must be one.
fn require_node(root: &Root, asked: Option<u32>) -> Result<u32> {
    chosen_node(root, asked)?.ok_or_else(|| {
        let nodes = node::with_memory(root).unwrap_or_default();
        Error::Usage(format!(
            "--node is missing; nodes with memory: {}",
            number_list::format(&nodes)
        ))
    })
}

/// Fails for the first of `asked` that is not among the machine's `nodes`.
fn require_nodes(nodes: &[u32], asked: &[u32]) -> Result<()> {
    match asked.iter().find(|node| !nodes.contains(node)) {
        None => Ok(()),
        Some(node) => Err(Error::Usage(format!(
            "there is no NUMA node {node} with memory; nodes with memory: {}",
            number_list::format(nodes)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    #[test]
    fn the_only_node_need_not_be_said() {
        let fixture = Fixture::new();
        fixture.nodes("3");
        assert_eq!(require_node(&fixture.root(), None).unwrap(), 3);
        fixture.nodes("0-1");
        assert_eq!(require_node(&fixture.root(), Some(1)).unwrap(), 1);
        assert_eq!(chosen_node(&fixture.root(), None).unwrap(), None);
        let error = require_node(&fixture.root(), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--node is missing; nodes with memory: 0-1"
        );
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn a_node_that_is_not_there_is_named() {
        let fixture = Fixture::new();
        fixture.nodes("0,2");
        assert_eq!(
            require_node(&fixture.root(), Some(1))
                .unwrap_err()
                .to_string(),
            "there is no NUMA node 1 with memory; nodes with memory: 0,2"
        );
    }
}
