//! Page faults of a tree of processes, seen by eBPF programs (`bpf/trace.bpf.c`): loading them,
//! their events, and their counts.

mod event;
#[rustfmt::skip]
#[allow(non_camel_case_types, missing_docs, dead_code)]
mod events;
mod probes;

pub use event::{Cause, Class, Event, Fault, Kind, Origin, Stall, TaskEvent, Time};
pub use probes::{Counters, Error, Figures, Probes, Result, Ring, Runs, StolenTotal, Total};
