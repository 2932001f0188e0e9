//! `hpmmap vm agent`

use std::time::Duration;

use hpmmap_base::error::Result;

use crate::cli::VmAgentArgs;
use crate::symbiosis::agent::{self, Options};

pub fn perform(args: &VmAgentArgs) -> Result<()> {
    agent::run(&Options {
        page: args.page.clone(),
        pid: args.pid,
        monitor: args.qmp.clone(),
        deadline: Duration::from_millis(args.deadline.into()),
        poll: Duration::from_millis(args.poll.into()),
        physical: args.physical,
    })
}
