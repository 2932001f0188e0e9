//! The disturbances of the CPUs of a job: counts, a verdict, and the process that counts.

pub mod interrupts;
mod recorder;
mod text;

use serde::{Deserialize, Serialize};

pub use recorder::{BEGIN, READY, Recorder};

/// Most interrupts a second on a quiet CPU.
///
/// A CPU of `nohz_full=` with one task to run still has a timer about once a second (vmstat or a
/// watchdog that cannot leave it); a tick of 100 to 1000 Hz is far above.
pub const QUIET_INTERRUPTS: f64 = 2.0;
/// The names of other tasks that are kept for each CPU.
pub const NAMES: usize = 8;

/// Interrupts of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupt {
    /// Number or short name, as in /proc/interrupts.
    pub name: String,
    /// The text there.
    pub label: String,
    /// By how much /proc/interrupts grew.
    pub count: u64,
    /// The same as its tracepoint counted; `None` without one.
    pub traced: Option<u64>,
    /// The part that came while a task of the job was running.
    pub in_job: Option<u64>,
}

impl Interrupt {
    /// The name for a person: that of the device instead of a number.
    fn shown(&self) -> &str {
        match self.name.bytes().all(|byte| byte.is_ascii_digit()) {
            true => self.label.rsplit(' ').next().unwrap_or_default(),
            false => &self.name,
        }
    }

    /// Those that may have interrupted the job: all, where that was not seen.
    fn hits(&self) -> u64 {
        self.in_job.unwrap_or(self.count)
    }
}

/// Softirqs of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softirq {
    /// The kernel's name.
    pub name: String,
    /// Number of runs.
    pub count: u64,
    /// The part that came while a task of the job was running.
    pub in_job: u64,
}

/// Tasks of one name that are not the job's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Other {
    /// The name.
    pub name: String,
    /// Switches to them.
    pub switches: u64,
    /// Those at which a task of the job could have gone on.
    pub preemptions: u64,
    /// Time on the CPU.
    pub seconds: f64,
}

/// The reason for which ticks went on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TickReason {
    /// The reason.
    pub reason: String,
    /// Number of ticks.
    pub count: u64,
}

/// The switches on a CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Switches {
    /// Time of the job's tasks.
    pub job_seconds: f64,
    /// To tasks of the job.
    pub to_job: u64,
    /// To other tasks.
    pub to_others: u64,
    /// Those at which a task of the job could have gone on.
    pub preemptions: u64,
    /// The most frequent names of other tasks.
    pub others: Vec<Other>,
}

/// One CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// The interrupts that came, by kind.
    pub interrupts: Vec<Interrupt>,
    /// The softirqs that ran, by kind.
    pub softirqs: Vec<Softirq>,
    /// The reasons of ticks, known on CPUs of `nohz_full=` only.
    pub tick_reasons: Vec<TickReason>,
    /// The switches; `None` if they were not counted.
    pub switches: Option<Switches>,
}

/// The price of counting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Runs of BPF programs, on all CPUs.
    pub runs: u64,
    /// Their time, as the kernel counts it.
    pub seconds: f64,
}

/// All that was counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Length of the count.
    pub seconds: f64,
    /// The CPUs were named: all counts are of the whole time. Otherwise those are listed that tasks of
    /// the job ran on, and only what came while they ran is judged.
    pub whole_time: bool,
    /// The CPUs.
    pub cpus: Vec<Cpu>,
    /// Moves of the job's tasks to another CPU.
    pub migrations: Option<u64>,
    /// Facts that were not counted.
    pub unknown: Vec<String>,
    /// The price.
    pub cost: Cost,
}

/// Were the CPUs quiet?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// At most [`QUIET_INTERRUPTS`] a second, and no other task.
    Quiet,
    /// More.
    Noisy,
    /// Not all was counted, and what was counted is not more.
    Unknown,
}

impl Cpu {
    /// The interrupts that count for the verdict, by kind.
    fn hits(&self, whole_time: bool) -> impl Iterator<Item = (&str, u64)> {
        self.interrupts
            .iter()
            .map(move |one| match whole_time {
                true => (one.shown(), one.count),
                false => (one.shown(), one.hits()),
            })
            .filter(|(_, hits)| *hits != 0)
    }

    /// The time that they belong to.
    fn judged_seconds(&self, noise: &Noise) -> f64 {
        match &self.switches {
            Some(switches) if !noise.whole_time => switches.job_seconds,
            _ => noise.seconds,
        }
    }

    /// The interrupts a second that count for the verdict. A time below a second counts as one.
    pub fn interrupts_per_second(&self, noise: &Noise) -> f64 {
        let hits: u64 = self.hits(noise.whole_time).map(|(_, hits)| hits).sum();
        hits as f64 / self.judged_seconds(noise).max(1.0)
    }

    /// Did a task run on it that is not the job's?
    fn has_others(&self) -> bool {
        self.switches.as_ref().is_some_and(|one| one.to_others != 0)
    }

    /// Kinds whose tracepoints counted something else than /proc/interrupts.
    fn disagreements(&self) -> impl Iterator<Item = String> {
        self.interrupts.iter().filter_map(|one| {
            let traced = one.traced?;
            // /proc/interrupts is read a moment after the job's end.
            (traced.abs_diff(one.count) > 50 + one.count / 10).then(|| {
                format!(
                    "CPU {}: {} interrupts {} in /proc/interrupts, {traced} in tracepoints",
                    self.cpu, one.count, one.name
                )
            })
        })
    }
}

impl Noise {
    /// Do too many interrupts come to a CPU? Without tracepoints it is not known whether they came
    /// while the job was running.
    fn is_interrupted(&self, cpu: &Cpu) -> bool {
        (self.whole_time || cpu.switches.is_some())
            && cpu.interrupts_per_second(self) > QUIET_INTERRUPTS
    }

    /// The disturbances.
    pub fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        for cpu in &self.cpus {
            if self.is_interrupted(cpu) {
                findings.push(format!(
                    "CPU {}: {:.1} interrupts a second ({})",
                    cpu.cpu,
                    cpu.interrupts_per_second(self),
                    text::counted(cpu.hits(self.whole_time))
                ));
            }
            if cpu.has_others() {
                findings.push(format!("CPU {}: {}", cpu.cpu, text::others(cpu)));
            }
        }
        findings
    }

    /// The verdict.
    pub fn verdict(&self) -> Verdict {
        if !self.findings().is_empty() {
            Verdict::Noisy
        } else if !self.unknown.is_empty() || self.cpus.is_empty() {
            Verdict::Unknown
        } else {
            Verdict::Quiet
        }
    }

    /// Notes what the counts themselves show to be unknown.
    pub fn note_unknown(&mut self) {
        let disagreements: Vec<_> = self.cpus.iter().flat_map(Cpu::disagreements).collect();
        self.unknown.extend(disagreements);
        if self.cpus.is_empty() {
            self.unknown
                .push("no task of the job ran on a measured CPU".into());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn interrupt(name: &str, count: u64, in_job: u64) -> Interrupt {
        Interrupt {
            name: name.into(),
            label: format!("PCI-MSI {name}-edge disk{name}"),
            count,
            traced: Some(count),
            in_job: Some(in_job),
        }
    }

    pub(crate) fn noise() -> Noise {
        Noise {
            seconds: 10.0,
            whole_time: false,
            cpus: vec![Cpu {
                cpu: 2,
                interrupts: vec![interrupt("LOC", 900, 12), interrupt("CAL", 8, 8)],
                softirqs: Vec::new(),
                tick_reasons: Vec::new(),
                switches: Some(Switches {
                    job_seconds: 10.0,
                    to_job: 1,
                    to_others: 0,
                    preemptions: 0,
                    others: Vec::new(),
                }),
            }],
            migrations: Some(0),
            unknown: Vec::new(),
            cost: Cost::default(),
        }
    }

    #[test]
    fn two_interrupts_a_second_are_quiet() {
        let mut noise = noise();
        assert_eq!(noise.verdict(), Verdict::Quiet);
        noise.cpus[0].interrupts[1].in_job = Some(9);
        assert_eq!(noise.verdict(), Verdict::Noisy);
        assert_eq!(
            noise.findings(),
            ["CPU 2: 2.1 interrupts a second (LOC 12, CAL 9)"]
        );
        noise.whole_time = true;
        assert_eq!(
            noise.findings(),
            ["CPU 2: 90.8 interrupts a second (LOC 900, CAL 8)"]
        );
    }

    #[test]
    fn an_interrupt_without_a_tracepoint_may_have_hit_the_job() {
        let mut noise = noise();
        noise.cpus[0].interrupts.push(Interrupt {
            traced: None,
            in_job: None,
            ..interrupt("NMI", 1, 0)
        });
        assert_eq!(noise.verdict(), Verdict::Noisy);
    }

    #[test]
    fn another_task_is_not_quiet() {
        let mut noise = noise();
        let switches = noise.cpus[0].switches.as_mut().unwrap();
        switches.to_others = 3;
        switches.preemptions = 1;
        switches.others = vec![Other {
            name: "kworker/2:1".into(),
            switches: 3,
            preemptions: 1,
            seconds: 0.0004,
        }];
        assert_eq!(noise.verdict(), Verdict::Noisy);
        assert_eq!(
            noise.findings(),
            ["CPU 2: 3 switches to other tasks, 1 of which preempted the job (kworker/2:1 3)"]
        );
    }

    #[test]
    fn quiet_is_said_only_where_it_is_known() {
        let mut unknown = noise();
        unknown.unknown.push("the kernel has no tick_stop".into());
        assert_eq!(unknown.verdict(), Verdict::Unknown);

        let mut none = noise();
        none.cpus.clear();
        none.note_unknown();
        assert_eq!(none.verdict(), Verdict::Unknown);
        assert_eq!(none.unknown, ["no task of the job ran on a measured CPU"]);

        let mut wrong = noise();
        wrong.cpus[0].interrupts[0].traced = Some(12);
        wrong.note_unknown();
        assert_eq!(wrong.verdict(), Verdict::Unknown);
        assert_eq!(
            wrong.unknown,
            ["CPU 2: 900 interrupts LOC in /proc/interrupts, 12 in tracepoints"]
        );

        // Without BPF: the interrupts of the CPU may have come while the job slept.
        let mut proc_only = noise();
        proc_only.cpus[0].switches = None;
        for one in &mut proc_only.cpus[0].interrupts {
            (one.traced, one.in_job) = (None, None);
        }
        proc_only
            .unknown
            .push("no permission to load BPF programs".into());
        assert_eq!(proc_only.verdict(), Verdict::Unknown);
    }
}
