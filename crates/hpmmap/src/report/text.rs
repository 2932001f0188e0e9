//! The report for a person, in a few lines.

use hpmmap_base::size::{self, Size, short};
use hpmmap_host::job;
use hpmmap_sys::uapi::LARGE_BYTES;

use super::verdict::{Program, Verdict};
use super::words::plural;
use super::{Exit, Report};

/// The names and values of the numbers that are not 0.
fn counted(numbers: impl Iterator<Item = (&'static str, u64)>) -> String {
    numbers
        .filter(|(_, count)| *count != 0)
        .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
        .collect::<Vec<_>>()
        .join(", ")
}

impl Report {
    /// For a person, in a few lines.
    pub fn text(&self) -> String {
        let mut lines = vec![self.headline()];
        let mut line = |name: &str, text: String| lines.push(format!("  {name:<12} {text}"));
        let pool_memory = &self.faults.pool_memory;
        line(
            "page faults",
            match pool_memory.total {
                0 => "0 in pool memory".to_string(),
                total => format!(
                    "{total} in pool memory ({})",
                    counted(pool_memory.by_reason.iter())
                ),
            },
        );
        for range in &pool_memory.places.ranges {
            line(
                "",
                format!(
                    "process {}: {:#x}-{:#x} {}: {}",
                    range.pid, range.start, range.end, range.reason, range.count
                ),
            );
        }
        if pool_memory.places.unlisted != 0 {
            line("", format!("{} elsewhere", pool_memory.places.unlisted));
        }
        for line_of in self.program_lines() {
            line("", line_of);
        }
        line(
            "",
            format!(
                "{} minor and {} major in all memory, start-up included",
                self.faults.all_memory.minor, self.faults.all_memory.major
            ),
        );
        let memory = &self.memory;
        line(
            "memory",
            format!(
                "peak {}; entries: {}{} of 2M, {} of 4K",
                short(memory.peak_bytes),
                self.gigabytes(),
                memory.entries.large,
                memory.entries.small
            ),
        );
        if let Some(share) = memory.remote_share {
            let nodes: Vec<String> = memory
                .placed
                .iter()
                .map(|placed| format!("node {} {}", placed.node, short(placed.bytes)))
                .collect();
            line(
                "",
                format!(
                    "placed on {}; {:.0} % remote{}",
                    nodes.join(", "),
                    share * 100.0,
                    self.runs()
                ),
            );
        }
        line(
            "fallbacks",
            match self.fallbacks.calls {
                0 => "none".to_string(),
                calls => format!(
                    "{calls} for {} (calls: {}; reasons: {})",
                    short(self.fallbacks.bytes),
                    counted(self.fallbacks.by_call.iter()),
                    counted(self.fallbacks.by_reason.iter())
                ),
            },
        );
        line(
            "pools",
            format!(
                "{}; {} refused, {} failed",
                match self.pools.lowest_free_bytes {
                    Some(bytes) => format!("{} free at the least", short(bytes)),
                    None => "nothing was taken".to_string(),
                },
                plural(self.pools.refusals, "call"),
                self.pools.failures
            ),
        );
        for call in job::TIMED_CALLS {
            let times = &self.latency[call];
            if times.calls != 0 {
                line(
                    call,
                    format!(
                        "{}, p50 {}, p99 {}, worst {}",
                        plural(times.calls, "call"),
                        duration(times.p50_ns),
                        duration(times.p99_ns),
                        duration(times.worst_ns)
                    ),
                );
            }
        }
        let stalls: Vec<String> = self
            .stalls
            .iter()
            .filter(|(_, wait)| wait.count != 0)
            .map(|(name, wait)| {
                let (total, worst) = (duration(wait.total_ns), duration(wait.worst_ns));
                format!("{name}: {} times, {total}, worst {worst}", wait.count)
            })
            .collect();
        line(
            "waits",
            match &stalls[..] {
                [] => "none".to_string(),
                some => some.join("; "),
            },
        );
        for (name, text) in self.noise.iter().flat_map(|noise| noise.counts.lines()) {
            line(&name, text);
        }
        for note in &self.notes {
            line("note", note.clone());
        }
        line(
            "verdict",
            match self.verdict {
                Verdict::Undisturbed => "undisturbed".to_string(),
                Verdict::Disturbed => {
                    let all = [&self.findings[..], &self.unknown[..]].concat();
                    format!("disturbed: {}", all.join("; "))
                }
                Verdict::Unknown => format!("not known: {}", self.unknown.join("; ")),
            },
        );
        lines.join("\n")
    }

    /// One line for each program, if there are several or a fork has made some.
    fn program_lines(&self) -> Vec<String> {
        let plain = |one: &Program| one.counted.forks == 0;
        if self.programs.len() < 2 && self.programs.iter().all(plain) {
            return Vec::new();
        }
        self.programs
            .iter()
            .map(|one| {
                let counted = &one.counted;
                let name = match &*counted.name {
                    "" => "others",
                    name => name,
                };
                let helper = if one.helper { " (helper)" } else { "" };
                let forks = match counted.forks {
                    0 => String::new(),
                    forks => format!(" ({})", plural(forks, "fork")),
                };
                let of_forks = match counted.faults_fork {
                    0 => String::new(),
                    count => format!(" ({count} because of forks)"),
                };
                format!(
                    "{name}{helper}: {}{of_forks} in {}{forks}",
                    plural(counted.faults, "fault"),
                    plural(counted.address_spaces, "address space"),
                )
            })
            .collect()
    }

    /// For jobs that asked for contiguous memory.
    fn runs(&self) -> String {
        match self.job.page_size {
            LARGE_BYTES => format!("; in {}", plural(self.memory.placed_runs, "run")),
            _ => String::new(),
        }
    }

    /// For jobs that asked for entries of 1 GB, or had some.
    fn gigabytes(&self) -> String {
        let entries = &self.memory.entries;
        match (self.job.page_size == LARGE_BYTES, entries.huge) {
            (false, 0) => String::new(),
            (_, made) if entries.splits == 0 => format!("{made} of 1G, "),
            (_, made) => format!(
                "{made} of 1G ({} split, {} rejoined), ",
                entries.splits, entries.joins
            ),
        }
    }

    fn headline(&self) -> String {
        let exit = match self.exit {
            Exit::Status(status) => format!("exit status {status}"),
            Exit::Signal(signal) => format!("killed by signal {signal}"),
        };
        let left = match self.processes.left {
            0 => String::new(),
            left => format!(" ({left} still running)"),
        };
        let policy = if self.job.strict {
            "strict"
        } else {
            "fallback"
        };
        format!(
            "hpmmap: job {} ({policy}, {}): {exit} after {:.1} s, {}{left}",
            self.job.id,
            Size(self.job.page_size),
            self.elapsed_seconds,
            size::counted(self.processes.total as usize, "process"),
        )
    }
}

/// A duration with three digits.
fn duration(ns: Option<u64>) -> String {
    let Some(ns) = ns else {
        return "unknown".to_string();
    };
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        for (ns, text) in [
            (None, "unknown"),
            (Some(999), "999 ns"),
            (Some(1_234), "1.23 us"),
            (Some(45_600_000), "45.6 ms"),
            (Some(123_000_000_000), "123 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
