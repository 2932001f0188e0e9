//! `hpmmap status`

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::Column::{Number, Text};
use hpmmap_base::output::{print, print_versioned, print_versioned_line, table};
use hpmmap_base::size::{Size, short};
use hpmmap_base::{safe_files, signals};
use hpmmap_host::Root;
use hpmmap_host::job::{self, TIMED_CALLS};
use hpmmap_host::pool::{self, Context, NodePool};

use super::pool_list::nodes_table;
use super::status_watch::{self, SLICE};
use crate::cli::StatusArgs;
use crate::doctor::module::HOW_TO_RELOAD;
use crate::metric_groups;
use crate::prometheus::{self, JobState};
use crate::status::{Process, Status, or_unknown};

/// It grows when a member changes its meaning or is removed; new members may come without that.
const SCHEMA: u32 = 2;

pub fn perform(args: &StatusArgs) -> Result<ExitCode> {
    let interval = checked_interval(args)?;
    let root = Root::default();
    match interval {
        None if args.prometheus => {
            let text = metrics(&root, args.per_launch)?;
            match &args.output {
                Some(path) => safe_files::write(path, &text)?,
                None => print(text.trim_end())?,
            }
        }
        None => {
            let status = Status::read(&root)?.complete(&root);
            match args.json {
                true => print_versioned(SCHEMA, &status)?,
                false => print(&shown(&status))?,
            }
        }
        Some(interval) => watch(&root, args.json, interval)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The time between two reports; `None` for a single one.
fn checked_interval(args: &StatusArgs) -> Result<Option<Duration>> {
    let Some(seconds) = args.watch else {
        return Ok(None);
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(interval) if (0.1..=86400.0).contains(&interval.as_secs_f64()) => Ok(Some(interval)),
        _ => Err(Error::Usage(format!(
            "--watch {seconds} is not between 0.1 and 86400 seconds"
        ))),
    }
}

/// A launch with its times; `None` if it ends while it is read.
fn job_state(root: &Root, job: job::Job) -> Result<Option<JobState>> {
    let mut latency = Vec::new();
    for call in TIMED_CALLS {
        match job::latency(root, job.id, call) {
            Ok(times) => latency.push(times),
            Err(error) if error.is_absent() => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(JobState { job, latency }))
}

/// The metrics for Prometheus; without the module they say so. Mapped memory and the times of
/// calls are read only for the metrics of each launch.
fn metrics(root: &Root, per_launch: bool) -> Result<String> {
    let read = || match per_launch {
        true => Status::read(root),
        false => Status::of(root, pool::contexts_unmapped(root)?),
    };
    let status = match read() {
        // The module may be unloaded meanwhile.
        Err(_) if !pool::is_loaded(root) => return Ok(prometheus::text_without_module()),
        read => read?.complete(root),
    };
    let contexts: Vec<Context> = status.contexts.into_iter().map(|one| one.context).collect();
    let groups = status
        .jobs
        .as_ref()
        .map(|jobs| metric_groups::of(root, jobs, &contexts));
    let jobs: Option<Vec<JobState>> = status
        .jobs
        .filter(|_| per_launch)
        .map(|jobs| {
            jobs.into_iter()
                .filter_map(|job| job_state(root, job).transpose())
                .collect::<Result<_>>()
        })
        .transpose()?;
    Ok(prometheus::text(&prometheus::State {
        module_version: &status.module_version,
        hooks_active: status.hooks_active,
        user_limit_bytes: status.user_limit_bytes,
        nodes: &status.nodes,
        contexts: &contexts,
        groups: groups.as_deref(),
        jobs: jobs.as_deref(),
        windows: status.windows,
        limits: status.limits.as_deref().unwrap_or_default(),
        promises: status.promises.as_deref().unwrap_or_default(),
        shared: status.shared,
    }))
}

fn shown(status: &Status) -> String {
    let jobs = if status.contexts.is_empty() {
        status.none().to_string()
    } else {
        processes_table(&status.contexts)
    };
    let mut text = format!("{}\n\n{jobs}", nodes_table(&status.nodes));
    let more = [
        status.hidden(),
        shown_windows(status),
        shown_files(status),
        shown_promised(status),
        status.host.as_ref().map(|host| host.line()),
        shown_waiting(status),
    ];
    for more in more.into_iter().flatten() {
        text += &format!("\n{more}");
    }
    text
}

/// Lines about promised memory, if there is some.
fn shown_promised(status: &Status) -> Option<String> {
    let text = |node: &NodePool| {
        let lack = match node.broken_bytes {
            0 => String::new(),
            lack => format!(", {} of it lost to memory errors", short(lack)),
        };
        let promised = short(node.promised_bytes);
        format!("{promised} of NUMA node {}{lack}", node.node)
    };
    let nodes = status.nodes.iter().filter(|node| node.promised_bytes != 0);
    let nodes: Vec<String> = nodes.map(text).collect();
    (!nodes.is_empty()).then(|| {
        format!(
            "Free, but promised: {} (see: hpmmap pool limit --list).",
            nodes.join(", ")
        )
    })
}

/// A line about windows, if there are any.
fn shown_windows(status: &Status) -> Option<String> {
    let windows = status.windows.filter(|windows| windows.attachments != 0)?;
    Some(format!(
        "Windows onto other processes' memory: {}, {}.",
        windows.attachments,
        short(windows.attached_bytes)
    ))
}

/// A line if another module than the loaded one is installed.
fn shown_waiting(status: &Status) -> Option<String> {
    let version = status.waiting_module_version.as_ref()?;
    Some(format!(
        "Version {} of the module is loaded, {version} is installed: {HOW_TO_RELOAD}.",
        status.module_version
    ))
}

/// A line about memory of files, if there is any.
fn shown_files(status: &Status) -> Option<String> {
    let shared = status.shared.filter(|shared| shared.files != 0)?;
    Some(format!(
        "Shared memory in files: {}, {}.",
        shared.files,
        short(shared.held_bytes)
    ))
}

fn processes_table(processes: &[Process]) -> String {
    table(
        &[
            Number("JOB"),
            Number("PID"),
            Text("USER"),
            Text("COMMAND"),
            Text("POLICY"),
            Number("PAGE"),
            Number("HELD"),
            Number("RUNS"),
            Number("1G MADE"),
            Number("2M"),
            Number("4K"),
            Number("LINUX"),
            Number("FALLBACKS"),
            Number("FAULTS"),
            Number("PINS"),
        ],
        processes.iter().map(|process| {
            let context = &process.context;
            vec![
                context.job.to_string(),
                context.pid.to_string(),
                process.user.clone(),
                process.printable_command(),
                if context.strict { "strict" } else { "fallback" }.to_string(),
                Size(context.page_size).to_string(),
                short(context.held_bytes),
                context.placed_runs.to_string(),
                context.entries_1g.to_string(),
                or_unknown(context.mapped_2m_bytes),
                or_unknown(context.mapped_4k_bytes),
                or_unknown(context.stands_in_bytes()),
                context.fallbacks.to_string(),
                context.faults.to_string(),
                context.pins_waiting.to_string(),
            ]
        }),
    )
}

fn watch(root: &Root, json: bool, interval: Duration) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    signals::catch(&stop)?;
    if json {
        return every(interval, &stop, || {
            print_versioned_line(SCHEMA, &Status::read(root)?)
        });
    }
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        return every(interval, &stop, || {
            print(&format!("{}\n", shown(&Status::read(root)?)))
        });
    }
    status_watch::watch(root, interval, &stop)
}

fn every(
    interval: Duration,
    stop: &AtomicBool,
    mut report: impl FnMut() -> Result<()>,
) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        report()?;
        let until = Instant::now() + interval;
        while !stop.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(SLICE));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    fn fixture() -> Fixture {
        let fixture = Fixture::new();
        fixture.module();
        fixture.node_pool(0, 4 << 30, 3 << 30, 1 << 30, 0);
        fixture.context(7, 1234, 0);
        fixture.write("proc/1234/comm", "lmp\u{1b}[2J\n");
        fixture
    }

    #[test]
    fn json_has_the_names_of_sysfs_and_bytes_as_integers() {
        let json = serde_json::to_value(Status::read(&fixture().root()).unwrap()).unwrap();
        assert_eq!(json["module_version"], "1.2.3");
        assert_eq!(json["hooks_active"], false);
        assert_eq!(json["user_limit_bytes"], serde_json::Value::Null);
        assert_eq!(json["nodes"][0]["free_bytes"], 3u64 << 30);
        let context = &json["contexts"][0];
        for (name, value) in [
            ("id", 7u64),
            ("pid", 1234),
            ("job", 3),
            ("uid", 0),
            ("page_size", 2 << 20),
            ("held_bytes", 8 << 20),
            ("mapped_2m_bytes", 6 << 20),
            ("mapped_4k_bytes", 4096),
            ("mapped_linux_bytes", 65536),
            ("linux_bytes", 4096),
            ("few_bytes", 8192),
            ("fallbacks", 2),
            ("faults", 11),
            ("faults_kernel", 1),
            ("pins_waiting", 0),
            ("placed_runs", 0),
            ("entries_1g", 0),
        ] {
            assert_eq!(context[name], value, "{name}");
        }
        assert_eq!(context["strict"], true);
        assert_eq!(context["user"], "root");
        assert_eq!(context["command"], "lmp\u{1b}[2J");
    }

    #[test]
    fn windows_are_shown_while_there_are_some() {
        let fixture = fixture();
        fixture.windows(0, 0);
        let status = Status::read(&fixture.root()).unwrap();
        assert!(!shown(&status).contains("Windows"), "{}", shown(&status));
        fixture.windows(3, 5 << 20);
        let status = Status::read(&fixture.root()).unwrap();
        let last = "Windows onto other processes' memory: 3, 5M.";
        assert!(shown(&status).ends_with(last), "{}", shown(&status));
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["windows"]["attached_bytes"], 5 << 20);
    }

    #[test]
    fn promised_memory_is_told() {
        let fixture = fixture();
        fixture.write("sys/kernel/hpmmap/nodes/node0/promised_bytes", "4194304\n");
        let status = Status::read(&fixture.root()).unwrap();
        let last = "Free, but promised: 4M of NUMA node 0 (see: hpmmap pool limit --list).";
        assert!(shown(&status).ends_with(last), "{}", shown(&status));
        fixture.write("sys/kernel/hpmmap/nodes/node0/broken_bytes", "2097152\n");
        let status = Status::read(&fixture.root()).unwrap();
        let lost = "4M of NUMA node 0, 2M of it lost to memory errors (";
        assert!(shown(&status).contains(lost), "{}", shown(&status));
    }

    #[test]
    fn a_module_that_waits_is_told() {
        let mut status = Status::read(&fixture().root()).unwrap();
        assert!(!shown(&status).contains("installed"));
        status.waiting_module_version = Some("1.3.0".into());
        let text = shown(&status);
        assert!(
            text.contains("\nVersion 1.2.3 of the module is loaded, 1.3.0 is installed: it"),
            "{text}"
        );
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["waiting_module_version"], "1.3.0");
        assert_eq!(json["limits"], serde_json::Value::Null);
    }

    #[test]
    fn files_are_shown_while_there_are_some() {
        let fixture = fixture();
        fixture.shared(0, 0);
        let status = Status::read(&fixture.root()).unwrap();
        assert!(!shown(&status).contains("Shared"), "{}", shown(&status));
        fixture.shared(2, 6 << 20);
        let status = Status::read(&fixture.root()).unwrap();
        let last = "Shared memory in files: 2, 6M.";
        assert!(shown(&status).ends_with(last), "{}", shown(&status));
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["shared"]["held_bytes"], 6 << 20);
    }

    #[test]
    fn a_process_that_ended_has_no_command() {
        let fixture = fixture();
        fixture.remove("proc/1234/comm");
        let status = Status::read(&fixture.root()).unwrap();
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["contexts"][0]["command"], serde_json::Value::Null);
        assert!(shown(&status).contains(" - "), "{}", shown(&status));
    }

    #[test]
    fn the_table_names_the_job_and_hides_control_characters() {
        let text = shown(&Status::read(&fixture().root()).unwrap());
        let row = text.lines().last().unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "3", "1234", "root", "lmp?[2J", "strict", "2M", "8M", "0", "0", "6M", "4K", "68K",
                "2", "11", "0"
            ]
        );
    }

    #[test]
    fn processes_are_in_the_order_of_launches_and_numbers() {
        let fixture = fixture();
        fixture.context(8, 99, 0);
        fixture.context(9, 5000, 0);
        fixture.edit("proc/hpmmap", |text| text.replacen("job 3", "job 12", 1));
        let status = Status::read(&fixture.root()).unwrap();
        let order: Vec<_> = status
            .contexts
            .iter()
            .map(|one| (one.context.job, one.context.pid))
            .collect();
        assert_eq!(order, [(3, 99), (3, 5000), (12, 1234)]);
    }

    #[test]
    fn no_jobs_is_said() {
        let fixture = Fixture::new();
        fixture.module();
        let text = shown(&Status::read(&fixture.root()).unwrap());
        assert!(text.ends_with("No jobs."), "{text}");
    }

    #[test]
    fn processes_of_others_are_counted() {
        let mut status = Status::read(&fixture().root()).unwrap();
        assert_eq!(status.hidden(), None);
        status.hidden_contexts = 1;
        let one = "(1 process of other users: only root sees them)";
        assert_eq!(status.hidden().as_deref(), Some(one));
        status.hidden_contexts = 3;
        let text = shown(&status);
        assert!(
            text.ends_with("\n(3 processes of other users: only root sees them)"),
            "{text}"
        );
        status.contexts.clear();
        let text = shown(&status);
        assert!(text.contains("\n\nNo jobs of this user.\n("), "{text}");
    }

    #[test]
    fn intervals_are_checked() {
        let interval = |watch| {
            checked_interval(&StatusArgs {
                watch,
                json: false,
                prometheus: false,
                per_launch: false,
                output: None,
            })
        };
        assert_eq!(interval(None).unwrap(), None);
        assert_eq!(
            interval(Some(0.5)).unwrap(),
            Some(Duration::from_millis(500))
        );
        for wrong in [0.0, -1.0, 1e9, f64::NAN, f64::INFINITY] {
            assert_eq!(interval(Some(wrong)).unwrap_err().exit_code(), 2);
        }
    }

    #[test]
    fn metrics_are_those_of_the_machine() {
        let fixture = fixture();
        fixture.job(3, 0);
        let metrics = |per_launch| metrics(&fixture.root(), per_launch);
        let each = "\nhpmmap_job_refusals_total{hpmmap_job=\"3\",user=\"root\"} 3\n";
        assert!(metrics(true).unwrap().contains(each));
        fixture.remove("sys/kernel/hpmmap/jobs/3/latency_brk");
        let text = metrics(true).unwrap();
        assert!(!text.contains("hpmmap_job_"), "{text}");
        fixture.write("sys/kernel/hpmmap/jobs/3/latency_brk", "many\n");
        assert!(metrics(true).is_err());
        // Values that are not printed are not read.
        fixture.write("proc/1234/cgroup", "0::/user.slice/user-0.slice/x.scope\n");
        let text = metrics(false).unwrap();
        assert!(!text.contains("hpmmap_job_"), "{text}");
        let all = "\nhpmmap_launches_refusals{batch_job=\"\",\
                   cgroup=\"/user.slice/user-0.slice\",user=\"root\"} 3\n";
        assert!(text.contains(all), "{text}");
    }

    #[test]
    fn reports_end_when_told_to() {
        let stop = AtomicBool::new(false);
        let mut reports = 0;
        every(Duration::from_millis(1), &stop, || {
            reports += 1;
            stop.store(reports == 3, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        assert_eq!(reports, 3);
    }
}
