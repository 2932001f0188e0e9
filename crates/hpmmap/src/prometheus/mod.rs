//! The state of the pools and launches in the text format of Prometheus (0.0.4).

mod format;
mod per_launch;

use hpmmap_host::pool::{Context, NodePool};
use hpmmap_host::shared::Shared;
use hpmmap_host::window::Windows;

use crate::limits::Reported;
use crate::metric_groups::Group;
use crate::promise::Promised;

use format::{Text, with};
pub use per_launch::JobState;

/// The state to report.
pub struct State<'a> {
    pub module_version: &'a str,
    pub hooks_active: bool,
    pub user_limit_bytes: Option<u64>,
    pub nodes: &'a [NodePool],
    pub contexts: &'a [Context],
    /// `None` if the module does not show launches.
    pub groups: Option<&'a [Group]>,
    /// `None` if metrics of each launch are not wanted.
    pub jobs: Option<&'a [JobState]>,
    /// `None` if the module has no windows.
    pub windows: Option<Windows>,
    /// Limits of users and cgroups, as far as the caller may see them.
    pub limits: &'a [Reported],
    /// Promises, as far as the caller may see them.
    pub promises: &'a [Promised],
    /// `None` if the module has no files.
    pub shared: Option<Shared>,
}

/// The text for a machine without the module, so that old figures are not taken for current ones.
pub fn text_without_module() -> String {
    let mut out = Text::default();
    up(&mut out, false);
    out.0
}

fn up(out: &mut Text, loaded: bool) {
    out.family(
        "hpmmap_up",
        "gauge",
        "1 while the module is loaded; without it there are no other figures.",
        [(vec![], u32::from(loaded))],
    );
}

/// The whole state in the text format.
pub fn text(state: &State) -> String {
    let mut out = Text::default();
    up(&mut out, true);
    out.family(
        "hpmmap_info",
        "gauge",
        "Version of the loaded module.",
        [(vec![("version", state.module_version.to_string())], 1)],
    );
    out.family(
        "hpmmap_hooks_active",
        "gauge",
        "1 while system calls are hooked.",
        [(vec![], u32::from(state.hooks_active))],
    );
    out.family(
        "hpmmap_user_limit_bytes",
        "gauge",
        "Default limit of a user.",
        state.user_limit_bytes.map(|bytes| (vec![], bytes)),
    );
    pools(&mut out, state.nodes);
    limits(&mut out, state.limits);
    promises(&mut out, state.promises);
    if let Some(groups) = state.groups {
        out.family(
            "hpmmap_jobs",
            "gauge",
            "Launches that exist now.",
            [(
                vec![],
                groups.iter().map(|group| group.launches).sum::<u64>(),
            )],
        );
        launches(&mut out, groups);
    }
    if let Some(jobs) = state.jobs {
        per_launch::families(&mut out, jobs, state.contexts);
    }
    if let Some(windows) = &state.windows {
        window_counts(&mut out, windows);
    }
    if let Some(shared) = &state.shared {
        shared_bytes(&mut out, shared);
    }
    out.0
}

fn shared_bytes(out: &mut Text, shared: &Shared) {
    for (what, help, value) in [
        ("mounts", "File systems of pool memory.", shared.mounts),
        ("files", "Files that have pool memory.", shared.files),
        ("bytes", "Pool memory of files.", shared.held_bytes),
        (
            "pinned_bytes",
            "Pool memory that files gave up and that still has references.",
            shared.pinned_bytes,
        ),
    ] {
        out.family(
            &format!("hpmmap_shared_{what}"),
            "gauge",
            help,
            [(vec![], value)],
        );
    }
}

fn window_counts(out: &mut Text, windows: &Windows) {
    for (what, kind, help, value) in [
        (
            "attachments",
            "gauge",
            "Windows onto other processes' memory.",
            windows.attachments,
        ),
        (
            "attached_bytes",
            "gauge",
            "Length of these windows.",
            windows.attached_bytes,
        ),
        (
            "faults_total",
            "counter",
            "Page faults in windows.",
            windows.faults,
        ),
        (
            "retries_total",
            "counter",
            "Faults in windows that waited for the other process.",
            windows.retries,
        ),
        (
            "revocations_total",
            "counter",
            "Ranges taken out of windows, since they changed.",
            windows.revoked,
        ),
    ] {
        out.family(
            &format!("hpmmap_window_{what}"),
            kind,
            help,
            [(vec![], value)],
        );
    }
    out.family(
        "hpmmap_window_entries_total",
        "counter",
        "Page table entries made in windows: of 2 MB, of 4 KB, for ordinary memory.",
        [
            ("2m", windows.entries_2m),
            ("4k", windows.entries_4k),
            ("linux", windows.entries_linux),
        ]
        .map(|(kind, count)| (vec![("kind", kind.to_string())], count)),
    );
}

fn pools(out: &mut Text, nodes: &[NodePool]) {
    type Value = fn(&NodePool) -> u64;
    let families: [(&str, &str, Value); 8] = [
        ("size", "Size of the pool of a node.", |n| n.total_bytes),
        ("free", "Free pool memory.", |n| n.free_bytes),
        ("clean", "Pool memory that is free and zero already.", |n| {
            n.clean_bytes
        }),
        ("largest_free", "Largest free block, at most 1 GiB.", |n| {
            n.largest_free_bytes
        }),
        ("pinned", "Pool memory given up but still pinned.", |n| {
            n.pinned_bytes
        }),
        ("bad", "Blocks with memory errors.", |n| n.bad_bytes),
        (
            "promised",
            "Free memory that goes only to those to whom it is promised.",
            |n| n.promised_bytes,
        ),
        (
            "broken",
            "Promised memory that is not there, because of memory errors.",
            |n| n.broken_bytes,
        ),
    ];
    for (what, help, value) in families {
        out.family(
            &format!("hpmmap_pool_{what}_bytes"),
            "gauge",
            help,
            nodes
                .iter()
                .map(|node| (vec![("node", node.node.to_string())], value(node))),
        );
    }
}

fn limits(out: &mut Text, limits: &[Reported]) {
    let labels = |one: &Reported| {
        let name = one.name.clone().unwrap_or_default();
        vec![("kind", one.kind.to_string()), ("name", name)]
    };
    let shown = || limits.iter().filter(|one| one.is_of_somebody());
    out.family(
        "hpmmap_limit_bytes",
        "gauge",
        "Pool memory that a user or a cgroup may hold.",
        shown().filter_map(|one| Some((labels(one), one.limit_bytes?))),
    );
    out.family(
        "hpmmap_limit_held_bytes",
        "gauge",
        "Pool memory that a user or a cgroup holds.",
        shown().map(|one| (labels(one), one.held_bytes)),
    );
}

fn promises(out: &mut Text, promises: &[Promised]) {
    let labels = |one: &Promised| {
        let name = one.name.clone().unwrap_or_default();
        let node = one.node.to_string();
        vec![
            ("kind", one.kind.to_string()),
            ("name", name),
            ("node", node),
        ]
    };
    // A launch has no name that lasts.
    let shown = || {
        let lasts = |one: &&Promised| one.kind != "launch" && one.name.is_some();
        promises.iter().filter(lasts)
    };
    out.family(
        "hpmmap_promise_bytes",
        "gauge",
        "Pool memory of a NUMA node that is promised to a user or a cgroup.",
        shown().map(|one| (labels(one), one.promised_bytes)),
    );
    out.family(
        "hpmmap_promise_held_bytes",
        "gauge",
        "Pool memory of the NUMA node that counts for the promise, which may be more.",
        shown().map(|one| (labels(one), one.held_bytes)),
    );
}

/// Sums over current launches. They are gauges, since the counts of a launch end with it.
fn launches(out: &mut Text, groups: &[Group]) {
    type Value = fn(&Group) -> f64;
    let families: [(&str, &str, Value); 12] = [
        ("", "Launches.", |g| g.launches as f64),
        ("_processes", "Processes.", |g| g.processes as f64),
        ("_held_bytes", "Pool memory held.", |g| g.held_bytes as f64),
        ("_reuse_bytes", "Held pool memory kept for reuse.", |g| {
            g.reuse_bytes as f64
        }),
        (
            "_pinned_bytes",
            "Pool memory given up but still pinned.",
            |g| g.pinned_bytes as f64,
        ),
        (
            "_linux_bytes",
            "Ordinary memory in blocks of the pools.",
            |g| g.linux_bytes as f64,
        ),
        (
            "_fallback_bytes",
            "Requested by calls that fell back to ordinary memory.",
            |g| g.fallback_bytes as f64,
        ),
        (
            "_refusals",
            "Calls that failed for want of pool memory.",
            |g| g.refusals as f64,
        ),
        (
            "_failures",
            "Calls that failed for want of ordinary memory.",
            |g| g.failures as f64,
        ),
        ("_faults", "Page faults in pool memory.", |g| {
            g.faults as f64
        }),
        ("_cleared_bytes", "Zeroed while a process waited.", |g| {
            g.cleared_bytes as f64
        }),
        (
            "_wait_seconds",
            "Time that processes waited in calls.",
            |g| g.wait_seconds,
        ),
    ];
    let labels = |group: &Group| {
        vec![
            ("batch_job", group.batch_job.clone()),
            ("cgroup", group.cgroup.clone()),
            ("user", group.user.clone()),
        ]
    };
    for (what, help, value) in families {
        out.family(
            &format!("hpmmap_launches{what}"),
            "gauge",
            help,
            groups.iter().map(|group| (labels(group), value(group))),
        );
    }
    out.family(
        "hpmmap_launches_fallbacks",
        "gauge",
        "Calls that fell back to ordinary memory: pools exhausted, a limit, other.",
        groups.iter().flat_map(|group| {
            let reasons = group.fallback_reasons.iter();
            reasons.map(move |(reason, count)| (with(labels(group), "reason", reason), count))
        }),
    );
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use hpmmap_host::fixture::Fixture;
    use hpmmap_host::job::TIMED_CALLS;
    use hpmmap_host::{job, pool, shared, window};
    use hpmmap_sys::uapi::{self, LimitEntry};

    use super::*;

    fn of(fixture: &Fixture) -> String {
        text_of(fixture, &[], true)
    }

    fn with_limits(fixture: &Fixture, limits: &[Reported]) -> String {
        text_of(fixture, limits, false)
    }

    fn text_of(fixture: &Fixture, limits: &[Reported], per_launch: bool) -> String {
        let root = fixture.root();
        let contexts = pool::contexts(&root).unwrap().visible;
        let groups = job::all(&root)
            .unwrap()
            .map(|jobs| crate::metric_groups::of(&root, &jobs, &contexts));
        let jobs: Option<Vec<JobState>> = job::all(&root).unwrap().map(|jobs| {
            jobs.into_iter()
                .map(|job| JobState {
                    latency: TIMED_CALLS
                        .iter()
                        .map(|call| job::latency(&root, job.id, call).unwrap())
                        .collect(),
                    job,
                })
                .collect()
        });
        text(&State {
            module_version: &pool::version(&root).unwrap(),
            hooks_active: pool::hooks_active(&root).unwrap(),
            user_limit_bytes: pool::user_limit_bytes(&root).unwrap(),
            nodes: &pool::nodes(&root).unwrap(),
            contexts: &contexts,
            groups: groups.as_deref(),
            jobs: jobs.as_deref().filter(|_| per_launch),
            windows: window::read(&root).unwrap(),
            limits,
            promises: &[],
            shared: shared::read(&root).unwrap(),
        })
    }

    fn machine() -> Fixture {
        let fixture = Fixture::new();
        fixture.module();
        fixture.node_pool(0, 4 << 30, 3 << 30, 1 << 30, 0);
        fixture.node_pool(1, 4 << 30, 4 << 30, 1 << 30, 0);
        fixture.context(7, 1234, 0);
        fixture.job(3, 0);
        fixture.job(4, 4_000_000_123);
        fixture.windows(2, 4 << 20);
        fixture.shared(2, 6 << 20);
        fixture
    }

    /// Checks that each line is valid, that each family is described once and before its samples,
    /// and that no sample comes twice.
    fn samples(text: &str) -> BTreeMap<String, f64> {
        let mut found = BTreeMap::new();
        let mut kinds = BTreeMap::new();
        let mut helped = BTreeSet::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').unwrap();
                assert!(helped.insert(name) && !help.is_empty(), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert!(helped.contains(name), "{line}");
                assert!(kinds.insert(name, kind).is_none(), "{line}");
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let name = series.split('{').next().unwrap();
                let family = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end))
                    .filter(|family| kinds.get(family) == Some(&"histogram"))
                    .unwrap_or(name);
                assert_eq!(kinds.keys().filter(|k| **k == family).count(), 1, "{line}");
                assert!(name.starts_with("hpmmap_"), "{line}");
                let value = value.parse().unwrap();
                assert!(found.insert(series.to_string(), value).is_none(), "{line}");
            }
        }
        assert!(text.ends_with('\n'));
        found
    }

    #[test]
    fn every_kind_of_value_is_there() {
        let text = of(&machine());
        let found = samples(&text);
        for (series, value) in [
            ("hpmmap_up", 1.0),
            ("hpmmap_info{version=\"1.2.3\"}", 1.0),
            ("hpmmap_pool_free_bytes{node=\"0\"}", (3u64 << 30) as f64),
            ("hpmmap_jobs", 2.0),
            ("hpmmap_job_processes{hpmmap_job=\"3\",user=\"root\"}", 2.0),
            (
                "hpmmap_job_mapped_bytes{hpmmap_job=\"3\",user=\"root\",page_size=\"2M\"}",
                (6 << 20) as f64,
            ),
            (
                "hpmmap_job_faults_total{hpmmap_job=\"4\",user=\"4000000123\",reason=\"fork\"}",
                10.0,
            ),
            (
                "hpmmap_job_wait_seconds_total{hpmmap_job=\"3\",user=\"root\",cause=\"zeroing\"}",
                0.0006,
            ),
        ] {
            assert_eq!(found.get(series), Some(&value), "{series} in\n{text}");
        }
        assert!(!text.contains("hpmmap_user_limit_bytes"));
    }

    #[test]
    fn without_the_module_there_is_one_figure() {
        let found = samples(&text_without_module());
        assert_eq!(found, BTreeMap::from([("hpmmap_up".to_string(), 0.0)]));
    }

    #[test]
    fn limits_are_those_of_users_and_cgroups_that_are_there() {
        let fixture = machine();
        let entry = |flags, uid, limit_bytes| LimitEntry {
            flags,
            uid,
            limit_bytes,
            held_bytes: 6 << 20,
            ..Default::default()
        };
        let limits = [
            entry(uapi::LIMIT_F_DEFAULT, 0, 8 << 20),
            entry(0, 0, uapi::LIMIT_NONE),
            entry(0, 4_000_000_123, 8 << 20),
            entry(uapi::LIMIT_F_CGROUP, 0, 8 << 20),
        ]
        .map(|entry| Reported::new(&fixture.root(), &entry));
        let found = samples(&with_limits(&fixture, &limits));
        let of = |what: &str| -> Vec<(&String, &f64)> {
            let start = format!("hpmmap_limit_{what}{{");
            found
                .iter()
                .filter(|(name, _)| name.starts_with(&start))
                .collect()
        };
        let series = |what, user| format!("hpmmap_limit_{what}{{kind=\"user\",name=\"{user}\"}}");
        assert_eq!(
            of("bytes"),
            [(&series("bytes", "4000000123"), &f64::from(8 << 20))]
        );
        assert_eq!(
            of("held_bytes"),
            [
                (&series("held_bytes", "4000000123"), &f64::from(6 << 20)),
                (&series("held_bytes", "root"), &f64::from(6 << 20)),
            ]
        );
    }

    #[test]
    fn a_batch_job_has_as_many_series_as_one_of_its_launches() {
        let fixture = machine();
        let few = with_limits(&fixture, &[]);
        for id in 10..138 {
            fixture.job(id, 0);
            fixture.context(id, 2000 + id as u32, 0);
            fixture.edit("proc/hpmmap", |text| {
                let at = text.rfind("job 3").unwrap();
                format!("{}job {id}{}", &text[..at], &text[at + 5..])
            });
            fixture.write(
                &format!("proc/{}/cgroup", 2000 + id),
                &format!("0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_{id}\n"),
            );
        }
        let text = with_limits(&fixture, &[]);
        let found = samples(&text);
        let labels =
            "batch_job=\"77\",cgroup=\"/system.slice/slurmstepd.scope/job_77\",user=\"root\"";
        for (what, value) in [
            ("", 128.0),
            ("_held_bytes", f64::from(128 * (8 << 20))),
            ("_refusals", 384.0),
        ] {
            let name = format!("hpmmap_launches{what}{{{labels}}}");
            assert_eq!(found.get(&name), Some(&value), "{name} in\n{text}");
        }
        let series = found.len() - samples(&few).len();
        assert!(series <= 16, "{series} series for a batch job");
        assert_eq!(found["hpmmap_jobs"], 130.0);
    }

    /// Each metric in the alerts exists.
    #[test]
    fn the_alerts_are_about_what_there_is() {
        let fixture = machine();
        let entry = LimitEntry {
            limit_bytes: 8 << 20,
            ..Default::default()
        };
        let limits = [Reported::new(&fixture.root(), &entry)];
        let text = with_limits(&fixture, &limits);
        let rules = include_str!("../../../../packaging/prometheus/hpmmap.rules.yml");
        let exprs = rules
            .lines()
            .filter(|line| line.trim().starts_with("expr:"));
        let words =
            exprs.flat_map(|line| line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
        let asked: BTreeSet<&str> = words.filter(|word| word.starts_with("hpmmap_")).collect();
        assert!(asked.len() >= 7, "{asked:?}");
        for name in asked {
            let found = |line: &str| {
                line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} "))
            };
            assert!(text.lines().any(found), "{name}");
        }
    }

    /// Each metric in Grafana's dashboard exists.
    #[test]
    fn the_dashboard_shows_what_there_is() {
        let fixture = machine();
        let entry = LimitEntry {
            limit_bytes: 8 << 20,
            ..Default::default()
        };
        let limits = [Reported::new(&fixture.root(), &entry)];
        let text = with_limits(&fixture, &limits);
        let dashboard = include_str!("../../../../packaging/grafana/hpmmap.json");
        let json: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let mut asked = BTreeSet::new();
        for panel in json["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let words = target["expr"].as_str().unwrap();
                let words = words.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                asked.extend(words.filter(|word| word.starts_with("hpmmap_")));
            }
        }
        assert!(asked.len() > 10, "{asked:?}");
        for name in asked {
            let found = |line: &str| {
                line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} "))
            };
            assert!(text.lines().any(found), "{name}");
        }
    }

    #[test]
    fn histograms_are_cumulative() {
        let found = samples(&of(&machine()));
        let bucket = |end: &str| {
            let labels = "hpmmap_job=\"3\",user=\"root\",call=\"mmap\"";
            found[&format!("hpmmap_job_call_seconds_bucket{{{labels},le=\"{end}\"}}")]
        };
        // 1280 and 4096 ticks of 0.4 ns are 0.5 and 1.6 microseconds; the buckets are the same on
        // each host.
        assert_eq!(bucket("0.000001"), 990.0);
        assert_eq!(bucket("0.0000025"), 999.0);
        assert_eq!(bucket("0.5"), 999.0);
        assert_eq!(bucket("+Inf"), 1000.0);
        let labels = "hpmmap_job=\"3\",user=\"root\",call=\"mmap\"";
        assert_eq!(
            found[&format!("hpmmap_job_call_seconds_sum{{{labels}}}")],
            2.0016
        );
    }

    #[test]
    fn an_older_module_has_pools_only() {
        let fixture = machine();
        fixture.remove("sys/kernel/hpmmap/jobs");
        let text = of(&fixture);
        assert!(samples(&text).contains_key("hpmmap_pool_size_bytes{node=\"1\"}"));
        assert!(!text.contains("hpmmap_job"), "{text}");
    }

    #[test]
    fn without_a_clock_there_are_no_seconds() {
        let fixture = machine();
        fixture.remove("sys/kernel/hpmmap/jobs/4");
        let path = "sys/kernel/hpmmap/jobs/3/stat";
        let stat = fixture.root().read(path).unwrap();
        fixture.write(path, &stat.replace("tick_khz 2500000", "tick_khz 0"));
        let text = of(&fixture);
        assert!(!text.contains("hpmmap_job_call_seconds"), "{text}");
        assert!(!text.contains("hpmmap_job_wait_seconds"), "{text}");
        samples(&text);
    }
}
