//! Workers of `bench noise`: a process for each CPU, or one for each array.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use hpmmap_base::error::{Error, Result};
use hpmmap_base::signals::{Means, Watched};
use hpmmap_host::noise::{Noise, Recorder};
use serde::Deserialize;

use super::plan::{Case, Mode, Parameters, Tasks, Variant};
use super::result::{Accesses, Cpu};
use crate::plan::{Method, Provider};
use crate::program::{content, hpmmap, memory_file};
use crate::worker::ends_with_this;

/// The worker program and its clock.
pub struct Worker {
    /// Path of the program.
    pub program: PathBuf,
    /// Ticks of the time stamp counter a second.
    pub hz: u64,
    /// The place that the workers run in.
    pub place: Place,
}

/// The place that workers run in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// That of this process.
    Own,
    /// A partition of `hpmmap partition create`.
    Partition(String),
    /// The directory of a cgroup.
    Cgroup(String),
}

/// Executes its other arguments in the cgroup that is the first.
const ENTER: &str = r#"echo $$ >"$0/cgroup.procs" && exec "$@""#;

/// A line of the worker's output, with the names that it prints.
#[derive(Deserialize)]
struct DetourLine {
    elapsed_ns: u64,
    rounds: u64,
    round_ps: u64,
    threshold_ns: u64,
    detours: u64,
    detour_ns: u64,
    longest_ns: u64,
    calls: u64,
    call_ns: u64,
    longest_call_ns: u64,
    faults: u64,
    fault_counter: String,
    preempted: u64,
    histogram: Vec<u64>,
    slices: Vec<u64>,
}

#[derive(Deserialize)]
struct AccessLine {
    accesses: u64,
    set_up_ns: u64,
    least_ns: u64,
    median_ns: u64,
    most_ns: u64,
    faults: u64,
    last: u64,
}

fn parse_cpu(text: &str, cpu: u32, shared: bool) -> std::result::Result<Cpu, String> {
    let line: DetourLine =
        serde_json::from_str(text).map_err(|_| format!("it printed '{}'", text.trim()))?;
    let found = Cpu {
        cpu,
        shared,
        elapsed_ns: line.elapsed_ns,
        rounds: line.rounds,
        round_ps: line.round_ps,
        threshold_ns: line.threshold_ns,
        detours: line.detours,
        detour_ns: line.detour_ns,
        longest_ns: line.longest_ns,
        calls: line.calls,
        call_ns: line.call_ns,
        longest_call_ns: line.longest_call_ns,
        faults: line.faults,
        fault_counter: line.fault_counter,
        preempted: line.preempted,
        histogram: line.histogram,
        slices: line.slices,
    };
    match found.contradiction() {
        None => Ok(found),
        Some(why) => Err(format!("its figures cannot be: {why}")),
    }
}

fn parse_accesses(
    text: &str,
    mode: Mode,
    tasks: Tasks,
    method: Method,
    size_bytes: u64,
) -> std::result::Result<Accesses, String> {
    let line: AccessLine =
        serde_json::from_str(text).map_err(|_| format!("it printed '{}'", text.trim()))?;
    let each = |ns: u64| ns as f64 / line.accesses.max(1) as f64;
    Ok(Accesses {
        mode,
        tasks,
        method,
        size_bytes,
        median: each(line.median_ns),
        least: each(line.least_ns),
        most: each(line.most_ns),
        faults: line.faults,
        set_up_ns: line.set_up_ns,
        last: line.last,
    })
}

/// A running process; dropping it kills it.
struct Running {
    child: Child,
    watched: Option<Watched>,
    output: BufReader<ChildStdout>,
    errors: File,
}

impl Running {
    fn start(mut command: Command) -> Result<Self> {
        let errors = memory_file("errors")?;
        ends_with_this().apply(&mut command)?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            .spawn()?;
        let output = child.stdout.take().expect("it is piped");
        Ok(Self {
            watched: Some(Watched::new(child.id(), Means::Kill)),
            child,
            output: BufReader::new(output),
            errors,
        })
    }

    /// Waits until the process is ready to start.
    fn ready(&mut self) -> std::result::Result<(), String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(_) if line == "ready\n" => Ok(()),
            _ => {
                self.ended()?;
                Err(format!("it printed '{}'", line.trim()))
            }
        }
    }

    fn go(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Reads its output until its end.
    fn rest(&mut self) -> std::result::Result<String, String> {
        let mut text = String::new();
        self.output
            .read_to_string(&mut text)
            .map_err(|error| error.to_string())?;
        self.ended()?;
        Ok(text)
    }

    /// Waits for its end.
    fn ended(&mut self) -> std::result::Result<(), String> {
        if let Some(watched) = self.watched.take() {
            watched.wait();
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(());
        }
        let said = self
            .errors
            .try_clone()
            .map_err(Error::from)
            .and_then(content);
        let said = said.map_err(|error| error.to_string())?;
        let last = said.lines().last().unwrap_or("it said nothing");
        Err(format!("{status}: {last}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already unless something failed.
        self.watched = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    fn command(&self, verb: &str, method: Method, cpus: &[u32], size: u64) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        let mut push = |more: &[&str]| words.extend(more.iter().map(OsString::from));
        let is_ours = method.provider() == Provider::Pools;
        if let Place::Cgroup(dir) = &self.place {
            push(&["sh", "-c", ENTER, dir]);
        }
        let hpmmap = hpmmap();
        let hpmmap = hpmmap.to_string_lossy();
        match (&self.place, is_ours) {
            (Place::Partition(name), true) => {
                push(&[&hpmmap, "run", "--strict", "--partition", name, "--"]);
            }
            // No program is called "/": it is not registered.
            (Place::Partition(name), false) => {
                push(&[&hpmmap, "run", "--only", "/", "--partition", name, "--"]);
            }
            (_, true) if method == Method::Hpmmap1g => {
                push(&[&hpmmap, "run", "--strict", "--page-size", "1G", "--"]);
            }
            (_, true) => push(&[&hpmmap, "run", "--strict", "--"]),
            (_, false) => (),
        }
        words.push(self.program.clone().into());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg(verb)
            .args(["--method", method.name()])
            .args(["--size", &size.to_string()])
            .args(["--hz", &self.hz.to_string()]);
        for cpu in cpus {
            command.args(["--cpu", &cpu.to_string()]);
        }
        command
    }

    /// Looks for detours on all CPUs at once; counts what disturbs them if that is wanted.
    pub fn detours(
        &self,
        parameters: &Parameters,
        case: &Case,
        variant: Variant,
        shared: &[u32],
    ) -> Result<(Vec<Cpu>, Option<Noise>)> {
        let failed = |cpu: u32| {
            move |why: String| {
                Error::Failed(format!(
                    "the worker of '{}' on CPU {cpu} failed: {why}",
                    case.title()
                ))
            }
        };
        let mut recorder = match parameters.count {
            true => Some(recorder(&parameters.cpus)?),
            false => None,
        };
        let mut running = Vec::new();
        for &cpu in &parameters.cpus {
            let mut command = self.command("detour", case.method, &[cpu], parameters.memory_bytes);
            command
                .args(["--variant", variant.name()])
                .args(["--milliseconds", &parameters.milliseconds.to_string()])
                .args(["--factor", &parameters.factor.to_string()]);
            let mut one =
                Running::start(command).map_err(|error| failed(cpu)(error.to_string()))?;
            one.ready().map_err(failed(cpu))?;
            running.push((cpu, one));
        }
        if let Some(recorder) = &mut recorder {
            recorder.begin().map_err(Error::Failed)?;
        }
        for (_, one) in &mut running {
            one.go();
        }
        let mut found = Vec::new();
        for (cpu, one) in &mut running {
            let text = one.rest().map_err(failed(*cpu))?;
            found.push(parse_cpu(&text, *cpu, shared.contains(cpu)).map_err(failed(*cpu))?);
        }
        let counts = recorder.map(Recorder::finish).transpose();
        Ok((found, counts.map_err(Error::Failed)?))
    }

    /// Accesses an array, or one for each of several tasks at the same time.
    pub fn accesses(
        &self,
        parameters: &Parameters,
        case: &Case,
        mode: Mode,
        tasks: Tasks,
        size_bytes: u64,
    ) -> Result<Accesses> {
        let failed =
            |why: String| Error::Failed(format!("the worker of '{}' failed: {why}", case.title()));
        let mut running = Vec::new();
        for task in 0..parameters.tasks as usize {
            let own = &parameters.cpus[task..=task];
            let cpus = match tasks {
                Tasks::One | Tasks::Bound => own,
                Tasks::Unbound => &parameters.cpus[..parameters.tasks as usize],
            };
            let mut command = self.command("access", case.method, cpus, size_bytes);
            command
                .args(["--mode", mode.name()])
                .args(["--accesses", &parameters.accesses.to_string()])
                .args(["--rounds", &parameters.rounds.to_string()]);
            running.push(Running::start(command).map_err(|error| failed(error.to_string()))?);
        }
        for one in &mut running {
            one.ready().map_err(failed)?;
        }
        running.iter_mut().for_each(Running::go);
        let mut found = Vec::new();
        for one in &mut running {
            let text = one.rest().map_err(failed)?;
            found
                .push(parse_accesses(&text, mode, tasks, case.method, size_bytes).map_err(failed)?);
        }
        together(found).map_err(failed)
    }
}

/// The accesses of tasks that ran at the same time, as one.
fn together(found: Vec<Accesses>) -> std::result::Result<Accesses, String> {
    let count = found.len() as f64;
    let mean = found.iter().map(|one| one.median).sum::<f64>() / count;
    let mut rest = found.into_iter();
    let mut all = rest.next().ok_or("there was no task")?;
    for one in rest {
        if one.last != all.last {
            return Err("two tasks ended at different places".into());
        }
        all.least = all.least.min(one.least);
        all.most = all.most.max(one.most);
        all.faults += one.faults;
        all.set_up_ns = all.set_up_ns.max(one.set_up_ns);
    }
    all.median = mean;
    Ok(all)
}

/// The process that counts on these CPUs: its children from now on are the workers.
fn recorder(cpus: &[u32]) -> Result<Recorder> {
    Recorder::start(&hpmmap().with_file_name("hpmmap-trace"), Some(cpus)).map_err(Error::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::plan::tests::parameters;

    const DETOURS: &str = r#"{"cpu": 3, "elapsed_ns": 1000, "rounds": 50, "round_ps": 20000, "threshold_ns": 180,
        "detours": 2, "detour_ns": 300, "longest_ns": 200, "calls": 4, "call_ns": 100, "longest_call_ns": 60,
        "faults": 1, "fault_counter": "perf", "preempted": 1, "histogram": [0, 0, 2], "slices": [200, 0]}"#;

    #[test]
    fn lines_are_understood() {
        let cpu = parse_cpu(DETOURS, 3, true).unwrap();
        assert_eq!((cpu.cpu, cpu.shared, cpu.detours), (3, true, 2));
        assert_eq!((cpu.noise(), cpu.longest_call_ns), (0.3, 60));
        assert_eq!(
            parse_cpu(&DETOURS.replace("300", "950"), 3, false).unwrap_err(),
            "its figures cannot be: detours and calls took 1050 of 1000 ns"
        );
        assert_eq!(
            parse_cpu("oops\n", 0, false).unwrap_err(),
            "it printed 'oops'"
        );

        let text = r#"{"accesses": 100, "set_up_ns": 7, "least_ns": 900, "median_ns": 1250, "most_ns": 2000,
            "faults": 0, "fault_counter": "perf", "last": 12}"#;
        let accesses =
            parse_accesses(text, Mode::Dependent, Tasks::One, Method::Thp, 4096).unwrap();
        assert_eq!(
            (accesses.least, accesses.median, accesses.most),
            (9.0, 12.5, 20.0)
        );
        assert_eq!(accesses.last, 12);
        assert!(parse_accesses("{}", Mode::Dependent, Tasks::One, Method::Thp, 4096).is_err());
    }

    #[test]
    fn only_our_method_is_launched_and_all_are_in_their_place() {
        let words = |method, place| -> String {
            let worker = Worker {
                program: "/w".into(),
                hz: 1000,
                place,
            };
            let command = worker.command("access", method, &[1, 2], 4096);
            std::iter::once(command.get_program())
                .chain(command.get_args())
                .map(|word| word.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let own = "/w access --method thp --size 4096 --hz 1000 --cpu 1 --cpu 2";
        assert_eq!(words(Method::Thp, Place::Own), own);
        let ours = words(Method::Hpmmap, Place::Own);
        assert!(
            ours.contains("/hpmmap run --strict -- /w access --method hpmmap "),
            "{ours}"
        );
        let there = words(Method::Thp, Place::Cgroup("/c".into()));
        assert!(there.starts_with("sh -c echo "), "{there}");
        assert!(there.ends_with(&format!("\"$@\" /c {own}")), "{there}");
        let quiet = words(Method::Thp, Place::Partition("q".into()));
        assert!(
            quiet.contains("/hpmmap run --only / --partition q -- /w access"),
            "{quiet}"
        );
    }

    #[test]
    fn tasks_that_ran_at_the_same_time_have_one_figure() {
        let one = |median, last| crate::noise::result::Accesses {
            median,
            ..crate::noise::result::tests::accesses(Method::Thp, 4096, last)
        };
        let all = together(vec![one(10.0, 3), one(14.0, 3)]).unwrap();
        assert_eq!((all.median, all.most), (12.0, 14.0));
        assert!(together(vec![one(10.0, 3), one(14.0, 4)]).is_err());
    }

    #[test]
    fn a_worker_that_fails_is_an_error_with_its_cpu() {
        let worker = Worker {
            program: "/bin/false".into(),
            hz: 1,
            place: Place::Own,
        };
        let parameters = parameters();
        let case = parameters.cases()[0];
        let error = worker
            .detours(&parameters, &case, Variant::Plain, &[])
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the worker of 'detours plain 4k alone' on CPU 0 failed: exit status: 1: it said nothing"
        );
    }
}
