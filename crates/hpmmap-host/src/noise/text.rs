//! Noise for a person.

use super::{Cpu, Noise, QUIET_INTERRUPTS, Verdict};
use crate::number_list;

/// CPUs that have lines of their own.
const SHOWN: usize = 8;
/// Names in a line.
const NAMES: usize = 4;

/// The largest numbers with their names.
pub(super) fn counted<'a>(numbers: impl Iterator<Item = (&'a str, u64)>) -> String {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut parts: Vec<_> = numbers
        .iter()
        .take(NAMES)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let left: u64 = numbers.iter().skip(NAMES).map(|(_, count)| count).sum();
    if left != 0 {
        parts.push(format!("others {left}"));
    }
    parts.join(", ")
}

/// The switches to other tasks.
pub(super) fn others(cpu: &Cpu) -> String {
    let Some(switches) = &cpu.switches else {
        return "switches to other tasks: not known".into();
    };
    if switches.to_others == 0 {
        return "no other task".into();
    }
    let plural = if switches.to_others == 1 { "" } else { "es" };
    let preempted = match switches.preemptions {
        0 => String::new(),
        some => format!(", {some} of which preempted the job"),
    };
    let names = switches.others.iter();
    let names = counted(names.map(|one| (&*one.name, one.switches)));
    format!(
        "{} switch{plural} to other tasks{preempted} ({names})",
        switches.to_others
    )
}

impl Noise {
    /// Pairs of a name and a text, for lines of a report.
    pub fn lines(&self) -> Vec<(String, String)> {
        let mut cpus: Vec<&Cpu> = self.cpus.iter().collect();
        if cpus.len() > SHOWN {
            cpus.sort_by(|a, b| {
                let rate = |cpu: &Cpu| cpu.interrupts_per_second(self);
                rate(b).total_cmp(&rate(a))
            });
        }
        let mut lines: Vec<_> = cpus
            .iter()
            .take(SHOWN)
            .map(|cpu| (format!("CPU {}", cpu.cpu), self.line(cpu)))
            .collect();
        if cpus.len() > SHOWN {
            let left = format!("{} CPUs with fewer interrupts", cpus.len() - SHOWN);
            lines.push((String::new(), left));
        }
        if let Some(count) = self.migrations.filter(|count| *count != 0) {
            let text = format!("{count} moves of the job's tasks to another CPU");
            lines.push((String::new(), text));
        }
        lines.push((
            "noise".into(),
            match self.verdict() {
                Verdict::Quiet => "quiet".into(),
                Verdict::Noisy => format!("not quiet: {}", self.reasons()),
                Verdict::Unknown => format!("not known: {}", self.unknown.join("; ")),
            },
        ));
        lines
    }

    /// The CPUs that are not quiet.
    fn reasons(&self) -> String {
        let named = |is: &dyn Fn(&Cpu) -> bool| {
            let cpus: Vec<u32> = self
                .cpus
                .iter()
                .filter(|cpu| is(cpu))
                .map(|cpu| cpu.cpu)
                .collect();
            (!cpus.is_empty()).then(|| number_list::format(&cpus))
        };
        let interrupted = named(&|cpu| self.is_interrupted(cpu));
        let shared = named(&|cpu| cpu.has_others());
        let interrupted = interrupted
            .map(|cpus| format!("more than {QUIET_INTERRUPTS} interrupts a second on CPU {cpus}"));
        let shared = shared.map(|cpus| format!("other tasks on CPU {cpus}"));
        let reasons: Vec<_> = interrupted.into_iter().chain(shared).collect();
        reasons.join("; ")
    }

    fn line(&self, cpu: &Cpu) -> String {
        let kinds = counted(cpu.hits(self.whole_time));
        let kinds = match &*kinds {
            "" => String::new(),
            kinds => format!(" ({kinds})"),
        };
        let reasons = cpu.tick_reasons.iter();
        let reasons = counted(reasons.map(|one| (&*one.reason, one.count)));
        let reasons = match &*reasons {
            "" => String::new(),
            reasons => format!("; ticks because of: {reasons}"),
        };
        let job = match &cpu.switches {
            Some(switches) if !self.whole_time => format!("job {:.1} s, ", switches.job_seconds),
            _ => String::new(),
        };
        format!(
            "{job}{:.1} interrupts a second{kinds}, {}{reasons}",
            cpu.interrupts_per_second(self),
            others(cpu)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::TickReason;
    use super::super::tests::{interrupt, noise};

    #[test]
    fn a_line_for_each_cpu_and_the_verdict() {
        let mut noise = noise();
        assert_eq!(
            noise.lines(),
            [
                (
                    "CPU 2",
                    "job 10.0 s, 2.0 interrupts a second (LOC 12, CAL 8), no other task"
                ),
                ("noise", "quiet"),
            ]
            .map(|(name, text)| (name.to_string(), text.to_string()))
        );
        noise.migrations = Some(3);
        noise.cpus[0].tick_reasons = vec![TickReason {
            reason: "RCU".into(),
            count: 7,
        }];
        for name in ["24", "25", "26"] {
            noise.cpus[0].interrupts.push(interrupt(name, 1, 1));
        }
        let lines = noise.lines();
        assert_eq!(
            lines[0].1,
            "job 10.0 s, 2.3 interrupts a second (LOC 12, CAL 8, disk24 1, disk25 1, others 1), \
             no other task; ticks because of: RCU 7"
        );
        assert_eq!(lines[1].1, "3 moves of the job's tasks to another CPU");
        assert_eq!(
            lines[2].1,
            "not quiet: more than 2 interrupts a second on CPU 2"
        );
    }
}
