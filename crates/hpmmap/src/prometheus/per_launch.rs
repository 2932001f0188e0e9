//! The metrics of each launch.

use hpmmap_base::user_name;
use hpmmap_host::job::{Job, Latency, TIMED_CALLS};
use hpmmap_host::pool::Context;
use hpmmap_sys::uapi::BLOCK_BYTES;

use super::format::{Labels, Text, with};

/// A launch and the times of its calls, in the order of [`TIMED_CALLS`].
pub struct JobState {
    pub job: Job,
    pub latency: Vec<Latency>,
}

fn of_job(job: &Job) -> Labels {
    // Prometheus uses the label "job" itself.
    vec![
        ("hpmmap_job", job.id.to_string()),
        ("user", user_name(job.uid)),
    ]
}

/// Writes all families of `jobs`; `contexts` are the contexts of their processes.
pub fn families(out: &mut Text, jobs: &[JobState], contexts: &[Context]) {
    gauges(out, jobs, contexts);
    counters(out, jobs);
    histograms(out, jobs);
}

fn gauges(out: &mut Text, jobs: &[JobState], contexts: &[Context]) {
    type Value = fn(&Job) -> u64;
    let families: [(&str, &str, Value); 8] = [
        ("processes", "Processes of a launch.", |j| j.processes),
        ("held_bytes", "Pool memory that a launch holds.", |j| {
            j.held_bytes
        }),
        (
            "peak_bytes",
            "Most pool memory that a launch has held.",
            |j| j.peak_bytes,
        ),
        ("reuse_bytes", "Held pool memory kept for reuse.", |j| {
            j.reuse_bytes
        }),
        (
            "linux_bytes",
            "Ordinary pages that stand in for pool memory in blocks.",
            |j| j.linux_bytes,
        ),
        (
            "few_bytes",
            "Ordinary pages in slots that need only a few.",
            |j| j.few_bytes,
        ),
        (
            "pinned_bytes",
            "Pool memory that a launch gave up and that is still pinned.",
            |j| j.pins_waiting * BLOCK_BYTES,
        ),
        ("strict", "1 for policy strict, 0 for fallback.", |j| {
            u64::from(j.strict)
        }),
    ];
    for (what, help, value) in families {
        out.family(
            &format!("hpmmap_job_{what}"),
            "gauge",
            help,
            jobs.iter().map(|one| (of_job(&one.job), value(&one.job))),
        );
    }
    out.family(
        "hpmmap_job_lowest_free_bytes",
        "gauge",
        "Least free memory in the pools of a launch right after it took some.",
        jobs.iter().filter_map(|one| {
            let bytes = one.job.lowest_free_bytes?;
            Some((of_job(&one.job), bytes))
        }),
    );
    out.family(
        "hpmmap_job_mapped_bytes",
        "gauge",
        "Mapped memory of a launch: pool memory by entries of 2M and 4K, and ordinary memory that calls fell back to.",
        jobs.iter().flat_map(|one| {
            let sum = |value: fn(&Context) -> Option<u64>| -> Option<u64> {
                contexts
                    .iter()
                    .filter(|context| context.job == one.job.id)
                    .map(value)
                    .sum()
            };
            [
                ("2M", sum(|context| context.mapped_2m_bytes)),
                ("4K", sum(|context| context.mapped_4k_bytes)),
                ("linux", sum(|context| context.mapped_linux_bytes)),
            ]
            .into_iter()
            .filter_map(|(size, bytes)| Some((with(of_job(&one.job), "page_size", size), bytes?)))
        }),
    );
}

fn counters(out: &mut Text, jobs: &[JobState]) {
    type Value = fn(&Job) -> u64;
    let families: [(&str, &str, Value); 10] = [
        (
            "processes_started",
            "Processes that a launch has had.",
            |j| j.processes_total,
        ),
        (
            "fallback_bytes",
            "Requested by calls that fell back to ordinary memory.",
            |j| j.fallback_bytes,
        ),
        (
            "refusals",
            "Calls that failed for want of pool memory.",
            |j| j.refusals,
        ),
        (
            "failures",
            "Calls that failed for want of ordinary memory.",
            |j| j.failures,
        ),
        (
            "placed_remote_bytes",
            "Pool memory given to mappings on another node than the CPU's.",
            |j| j.placed_remote_bytes,
        ),
        (
            "placed_runs",
            "Contiguous runs of pool memory given to mappings.",
            |j| j.placed_runs,
        ),
        (
            "fork_copied_bytes",
            "Copied because a fork had left it shared.",
            |j| j.fork_copied_bytes,
        ),
        ("cleared_bytes", "Zeroed while a process waited.", |j| {
            j.cleared_bytes
        }),
        (
            "gigabyte_splits",
            "1 GB entries that were split into 2 MB entries.",
            |j| j.splits_1g,
        ),
        (
            "gigabyte_joins",
            "1 GB entries that were made of 2 MB entries again.",
            |j| j.joins_1g,
        ),
    ];
    for (what, help, value) in families {
        out.family(
            &format!("hpmmap_job_{what}_total"),
            "counter",
            help,
            jobs.iter().map(|one| (of_job(&one.job), value(&one.job))),
        );
    }
    out.family(
        "hpmmap_job_placed_bytes_total",
        "counter",
        "Pool memory given to mappings, by node.",
        jobs.iter().flat_map(|one| {
            let placed = one.job.placed_bytes.iter();
            placed.map(|(node, &bytes)| (with(of_job(&one.job), "node", node), bytes))
        }),
    );
    out.family(
        "hpmmap_job_page_table_entries_total",
        "counter",
        "Page table entries made for pool memory.",
        jobs.iter().flat_map(|one| {
            [
                ("1G", one.job.entries_1g),
                ("2M", one.job.entries_2m),
                ("4K", one.job.entries_4k),
            ]
            .map(|(size, count)| (with(of_job(&one.job), "page_size", size), count))
        }),
    );
    out.family(
        "hpmmap_job_faults_total",
        "counter",
        "Page faults in pool memory.",
        jobs.iter().flat_map(|one| {
            let faults = one.job.faults_by_reason.iter();
            faults.map(|(reason, count)| (with(of_job(&one.job), "reason", reason), count))
        }),
    );
    out.family(
        "hpmmap_job_fallbacks_total",
        "counter",
        "Calls that fell back to ordinary memory.",
        jobs.iter().flat_map(|one| {
            let fallbacks = one.job.fallbacks.iter();
            fallbacks.map(|(call, count)| (with(of_job(&one.job), "call", call), count))
        }),
    );
    out.family(
        "hpmmap_job_waits_total",
        "counter",
        "How often processes waited.",
        jobs.iter().flat_map(|one| {
            let stalls = one.job.stalls.iter();
            stalls.map(|(cause, stall)| (with(of_job(&one.job), "cause", cause), stall.count))
        }),
    );
    out.family(
        "hpmmap_job_wait_seconds_total",
        "counter",
        "How long processes waited.",
        jobs.iter().flat_map(|one| {
            let khz = one.job.tick_khz;
            let stalls = one.job.stalls.iter().filter(move |_| khz != 0);
            stalls.map(move |(cause, stall)| {
                let labels = with(of_job(&one.job), "cause", cause);
                (labels, seconds(stall.ticks, khz))
            })
        }),
    );
}

fn seconds(ticks: u64, khz: u64) -> f64 {
    ticks as f64 / (khz as f64 * 1e3)
}

fn histograms(out: &mut Text, jobs: &[JobState]) {
    let name = "hpmmap_job_call_seconds";
    let known = || jobs.iter().filter(|one| one.job.tick_khz != 0);
    if known().next().is_none() {
        return;
    }
    out.head(name, "histogram", "Time of hooked system calls.");
    for one in known() {
        for (call, latency) in TIMED_CALLS.iter().zip(&one.latency) {
            let labels = with(of_job(&one.job), "call", call);
            let khz = one.job.tick_khz;
            let mut below = 0;
            for (end, calls) in latency.buckets_ns(khz) {
                below += calls;
                let end = end.map_or("+Inf".to_string(), |end| (end as f64 / 1e9).to_string());
                let labels = with(labels.clone(), "le", end);
                out.sample(&format!("{name}_bucket"), &labels, below);
            }
            out.sample(&format!("{name}_sum"), &labels, seconds(latency.ticks, khz));
            out.sample(&format!("{name}_count"), &labels, below);
        }
    }
}
