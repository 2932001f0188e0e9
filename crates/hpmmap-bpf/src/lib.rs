//! eBPF programs and their loaders: page faults of a tree of processes (`bpf/trace.bpf.c`), and what
//! takes CPUs away from a job (`bpf/noise.bpf.c`).

#[rustfmt::skip]
#[allow(non_camel_case_types, missing_docs, dead_code)]
mod counts;
mod event;
#[rustfmt::skip]
#[allow(non_camel_case_types, missing_docs, dead_code)]
mod events;
mod noise;
mod object;
mod probes;

pub use event::{Cause, Class, Event, Fault, Kind, Origin, Stall, TaskEvent, Time};
pub use noise::{Counted, CountedCpu, Hits, NoiseProbes, Other, SOFTIRQS, TICK_REASONS, VECTORS};
pub use object::{Error, Result, Runs};
pub use probes::{Counters, Figures, Probes, Ring, StolenTotal, Total};
