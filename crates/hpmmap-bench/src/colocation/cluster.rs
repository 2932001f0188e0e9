//! The machines of a study on several hosts. This one starts an agent on each by ssh, or by srun
//! within an allocation of Slurm, and sends it requests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hpmmap_base::VERSION;
use hpmmap_base::output::warn;
use hpmmap_host::number_list;

use super::agent::{Event, Request, SILENCE, run_dir};
use super::job::{Machines, Place, Trouble};
use super::launcher::Launcher;
use super::local_host::{Facts, Obstacle};
use super::plan::{Cell, Parameters, Workload};
use super::rank;
use super::record::{OnHost, decisive, first_difference};
use super::remote_agent::{Heard, RemoteAgent, keep, locked};
use super::workload::Start;

/// Interval at which the study's end is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// Time that a machine may take to restore everything.
const RESTORE: Duration = Duration::from_secs(90);

/// All machines. Dropping this restores their settings.
pub struct Cluster<'a> {
    peers: Vec<RemoteAgent>,
    heard: Receiver<(usize, Heard)>,
    how: Vec<String>,
    work: PathBuf,
    /// Number of machines that take part in the current run.
    used: usize,
    /// The file that has the program's result.
    answer: Option<String>,
    /// Time that each may take to end a run.
    patience: Duration,
    /// Some setting was not restored, or that is not known.
    has_failed: bool,
    has_ended: bool,
    stop: &'a dyn Fn() -> bool,
}

impl<'a> Cluster<'a> {
    /// Starts an agent on each of the hosts. Files of runs will be in `work` there.
    pub fn connect(
        hosts: &[String],
        launcher: Launcher,
        command: &Path,
        work: PathBuf,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Self, Trouble> {
        let (put, heard) = channel();
        let mut peers = Vec::new();
        for (n, host) in hosts.iter().enumerate() {
            let peer = launcher
                .agent(host, command)
                .and_then(|agent| RemoteAgent::start(n, host, agent, put.clone()));
            let mut peer =
                peer.map_err(|why| Trouble::Lost(format!("{host} cannot be used: {why}")))?;
            peer.is_agent = launcher.is_child(host);
            peers.push(peer);
        }
        let mut all = Self {
            peers,
            heard,
            how: launcher.mpirun(),
            work,
            used: hosts.len(),
            answer: None,
            patience: RESTORE,
            has_failed: false,
            has_ended: false,
            stop,
        };
        all.greet()?;
        Ok(all)
    }

    fn greet(&mut self) -> Result<(), Trouble> {
        let versions = self.gather(self.peers.len(), |event| match event {
            Event::Hello { version } => Some(version),
            _ => None,
        })?;
        for (peer, version) in self.peers.iter_mut().zip(versions) {
            peer.is_greeted = true;
            if version != VERSION {
                let why = format!("{} has hpmmap {version}, this is {VERSION}", peer.host);
                return Err(Trouble::Lost(why));
            }
        }
        Ok(())
    }

    /// The next event of any machine.
    fn next(&mut self, time: Duration) -> Result<Option<(usize, Event)>, Trouble> {
        let found = match self.heard.recv_timeout(time) {
            // It was not told to end.
            Ok((n, Heard::Event(Event::Restored(failed)))) => {
                let what = match failed.is_empty() {
                    true => "its agent was ended, and has set back what was set",
                    false => "its agent was ended, and has not set back all",
                };
                self.peers[n].is_restored = true;
                self.peers[n].lose(what);
                self.keeps(n, &failed);
                None
            }
            Ok((n, Heard::Event(event))) => Some((n, event)),
            Ok((n, Heard::Words(words))) => {
                keep(&mut locked(&self.peers[n].said), &words);
                None
            }
            Ok((n, Heard::End)) => {
                let words = self.peers[n].words();
                self.peers[n].lose(&words);
                None
            }
            Err(_) => None,
        };
        for peer in &mut self.peers[..self.used] {
            if peer.is_silent() {
                peer.lose(&format!(
                    "nothing was heard of it for {} s",
                    SILENCE.as_secs()
                ));
            }
            if let Some(why) = &peer.lost {
                return Err(Trouble::Lost(why.clone()));
            }
        }
        Ok(found)
    }

    /// Waits until each of the first `count` has sent the wanted event.
    fn gather<T>(
        &mut self,
        count: usize,
        want: impl Fn(Event) -> Option<T>,
    ) -> Result<Vec<T>, Trouble> {
        self.gather_until(None, count, want)
    }

    /// The same; machines that have not sent it in time are lost.
    fn gather_until<T>(
        &mut self,
        deadline: Option<Instant>,
        count: usize,
        want: impl Fn(Event) -> Option<T>,
    ) -> Result<Vec<T>, Trouble> {
        let mut all: Vec<Option<T>> = (0..count).map(|_| None).collect();
        while all.iter().any(Option::is_none) {
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                let late: Vec<bool> = all.iter().map(Option::is_none).collect();
                return Err(self.lose_late(&late));
            }
            if (self.stop)() {
                return Err(Trouble::Interrupted);
            }
            match self.next(LOOK)? {
                Some((n, Event::Failed(why))) => {
                    return Err(Trouble::Failed(format!("{}: {why}", self.peers[n].host)));
                }
                Some((n, event)) if n < count => {
                    if let Some(wanted) = want(event) {
                        all[n] = Some(wanted);
                    }
                }
                _ => (),
            }
        }
        Ok(all.into_iter().flatten().collect())
    }

    /// A machine has kept some of its settings.
    fn keeps(&mut self, n: usize, failed: &[String]) {
        self.has_failed |= !failed.is_empty();
        for why in failed {
            warn(&format!("{}: not set back: {why}", self.peers[n].host));
        }
    }

    /// Some machines have taken too long, although they are alive.
    fn lose_late(&mut self, late: &[bool]) -> Trouble {
        let peers = self.peers.iter_mut().zip(late);
        for (peer, _) in peers.filter(|(_, late)| **late) {
            peer.lose("it did not end the run");
        }
        let why = self.peers.iter().find_map(|peer| peer.lost.clone());
        Trouble::Lost(why.unwrap_or_default())
    }

    /// Asks each for its properties.
    pub fn look(
        &mut self,
        workloads: &[Workload],
        apps: Option<&Path>,
    ) -> Result<Vec<Facts>, Trouble> {
        for peer in &self.peers {
            peer.ask(Request::Look {
                workloads: workloads.to_vec(),
                apps: apps.map(Path::to_path_buf),
            });
        }
        self.gather(self.peers.len(), |event| match event {
            Event::Facts(facts) => Some(*facts),
            _ => None,
        })
    }

    /// Begins the study; returns the obstacles of each, in their order.
    pub fn study(
        &mut self,
        parameters: &Parameters,
        cache: Option<&Path>,
    ) -> Result<Vec<Vec<Obstacle>>, Trouble> {
        for peer in &self.peers {
            peer.ask(Request::Study {
                parameters: Box::new(parameters.clone()),
                work: self.work.clone(),
                cache: cache.map(Path::to_path_buf),
            });
        }
        self.gather(self.peers.len(), |event| match event {
            Event::Obstacles(obstacles) => Some(obstacles),
            _ => None,
        })
    }

    /// Lets all of them restore their settings and end.
    fn end(&mut self) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let mut left: Vec<bool> = self.peers.iter().map(|peer| peer.lost.is_none()).collect();
        for peer in &mut self.peers {
            // From now on their messages are shown.
            locked(&peer.said).clear();
            peer.ask(Request::End);
            // Closing it ends the agent.
            peer.requests = None;
        }
        let deadline = Instant::now() + RESTORE;
        while left.contains(&true) && Instant::now() < deadline {
            match self.heard.recv_timeout(LOOK) {
                Ok((n, Heard::Event(Event::Restored(failed)))) => {
                    self.peers[n].is_restored = true;
                    left[n] = false;
                    self.keeps(n, &failed);
                }
                Ok((n, Heard::End)) if left[n] => {
                    left[n] = false;
                    self.peers[n].lose("it ended before it had set back all");
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            for (left, peer) in left.iter_mut().zip(&mut self.peers) {
                if *left && peer.is_silent() {
                    *left = false;
                    peer.lose("it did not say that it has ended");
                }
            }
        }
        for (peer, left) in self.peers.iter_mut().zip(left) {
            if left {
                peer.lose("it did not say that it has ended");
            }
            if peer.lost.is_some() && peer.is_greeted && !peer.is_restored {
                let host = &peer.host;
                self.has_failed = true;
                warn(&format!(
                    "{host}: it is not known whether all was set back there"
                ));
            }
            for line in locked(&peer.said).iter() {
                warn(&format!("{}: {}", peer.host, line.trim()));
            }
        }
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Machines for Cluster<'_> {
    fn begin(&mut self, cell: &Cell, start: &Start, _dir: &Path) -> Result<(), Trouble> {
        self.used = cell.nodes as usize;
        self.answer = start.marker.clone();
        for peer in &self.peers[..self.used] {
            peer.ask(Request::Begin {
                cell: *cell,
                start: Box::new(start.clone()),
            });
        }
        let ready = |event| matches!(event, Event::Ready).then_some(());
        self.gather(self.used, ready).map(|_| ())
    }

    fn tend(&mut self, time: Duration) -> Result<(), Trouble> {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            match self.next(left)? {
                Some((n, Event::Failed(why))) => {
                    return Err(Trouble::Failed(format!("{}: {why}", self.peers[n].host)));
                }
                // Only one of the ranks makes the file that shows it.
                Some((from, Event::Started)) => {
                    let others = self.peers[..self.used].iter().enumerate();
                    for (_, peer) in others.filter(|(n, _)| *n != from) {
                        peer.ask(Request::Started);
                    }
                }
                _ => (),
            }
        }
    }

    fn finish(&mut self, dir: &Path) -> Result<Vec<OnHost>, Trouble> {
        for peer in &self.peers[..self.used] {
            peer.ask(Request::Finish);
        }
        let deadline = Some(Instant::now() + self.patience);
        let finished = self.gather_until(deadline, self.used, |event| match event {
            Event::Finished {
                on_host,
                answer,
                failed,
            } => Some((*on_host, answer, failed)),
            _ => None,
        })?;
        let wrap = |error: std::io::Error| format!("{}: {error}", dir.display());
        let mut all = Vec::new();
        for (n, (mut on_host, answer, failed)) in finished.into_iter().enumerate() {
            self.keeps(n, &failed);
            on_host.host.clone_from(&self.peers[n].host);
            for record in &on_host.ranks {
                let json = serde_json::to_vec(record).map_err(|error| error.to_string())?;
                fs::write(rank::path(dir, record.rank), json).map_err(wrap)?;
            }
            // The first machine has rank 0, which writes the result.
            if let (0, Some(name), Some(text)) = (n, &self.answer, answer) {
                fs::write(dir.join(name), text).map_err(wrap)?;
            }
            all.push(on_host);
        }
        Ok(all)
    }

    fn abandon(&mut self) -> Result<(), Trouble> {
        for peer in &self.peers[..self.used] {
            peer.ask(Request::Abandon);
        }
        let mut left: Vec<bool> = (0..self.peers.len()).map(|n| n < self.used).collect();
        let deadline = Instant::now() + self.patience;
        // Even if the study is to stop: they end the current run.
        while left.contains(&true) {
            if Instant::now() > deadline {
                return Err(self.lose_late(&left));
            }
            if let Some((n, Event::Abandoned)) = self.next(LOOK)? {
                left[n] = false;
            }
        }
        Ok(())
    }

    fn set_back(&mut self) -> bool {
        self.end();
        !self.has_failed
    }

    fn place(&self, nodes: u32) -> Place {
        let used = &self.peers[..nodes as usize];
        Place::There {
            hosts: used.iter().map(|peer| peer.host.clone()).collect(),
            how: self.how.clone(),
            dir: run_dir(&self.work),
            others: self
                .peers
                .iter()
                .filter_map(|peer| Some(peer.child.as_ref()?.id()))
                .collect(),
        }
    }
}

/// Fails if machines cannot take part in one study: names the first that differs from the first
/// machine, or on which ranks cannot be bound.
pub fn check_alike(
    hosts: &[String],
    facts: &[Facts],
    workloads: &[Workload],
) -> Result<(), String> {
    let mut boots: BTreeMap<&str, &str> = BTreeMap::new();
    let (Some(first), Some(name)) = (facts.first(), hosts.first()) else {
        return Ok(());
    };
    let cpus = |one: &Facts| number_list::format(&one.nodes.concat());
    let path = |one: &Facts, workload: &Workload| {
        let program = one.programs.get(workload)?.as_ref().ok()?;
        Some(program.path.display().to_string())
    };
    for (host, one) in hosts.iter().zip(facts) {
        if let Some(other) = boots.insert(&one.boot, host) {
            return Err(format!("{other} and {host} are the same machine"));
        }
        if one.nodes != first.nodes {
            return Err(format!(
                "{host} has {} CPUs ({}) in {} nodes, {name} has {} ({}) in {}",
                one.cpus(),
                cpus(one),
                one.nodes.len(),
                first.cpus(),
                cpus(first),
                first.nodes.len()
            ));
        }
        if let Some(allowed) = one.allowed_cpus.filter(|&allowed| allowed < one.cpus()) {
            return Err(format!(
                "{host}: only {allowed} of its {} CPUs may be used: have the whole machine",
                one.cpus()
            ));
        }
        let of = |one: &Facts| decisive(&one.versions_with(workloads), &one.machine);
        if let Some((what, theirs, firsts)) = first_difference(&of(one), &of(first)) {
            return Err(format!(
                "{host} has {what} '{theirs}', {name} has '{firsts}'"
            ));
        }
        let mut workloads = workloads.iter();
        if let Some(other) = workloads.find(|one_of| path(one, one_of) != path(first, one_of)) {
            let none = || "none".to_string();
            return Err(format!(
                "{host} has {} in {}, {name} in {}",
                other.name(),
                path(one, other).unwrap_or_else(none),
                path(first, other).unwrap_or_else(none)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use std::io::Write;
    use std::sync::mpsc::Sender;
    use std::thread;

    use super::*;
    use crate::colocation::agent::tests::{cell, fixture, start, stream, thp};
    use crate::colocation::agent::{BEAT, serve, write_line};
    use crate::colocation::plan::tests::parameters;
    use crate::colocation::rank::{Faults, RankRecord};

    fn cluster(
        hosts: &[&str],
        peer: impl Fn(usize, Sender<(usize, Heard)>) -> RemoteAgent,
    ) -> Cluster<'static> {
        let (put, heard) = channel();
        Cluster {
            peers: (0..hosts.len()).map(|n| peer(n, put.clone())).collect(),
            heard,
            how: Launcher::Ssh.mpirun(),
            work: "/study".into(),
            used: hosts.len(),
            answer: None,
            patience: RESTORE,
            has_failed: false,
            has_ended: false,
            stop: &|| false,
        }
    }

    /// Agents on these machines, which end when `ends` returns true.
    fn agents(fixtures: &[Fixture], ends: fn(usize) -> bool) -> Cluster<'static> {
        let names = ["n1", "n2"];
        let mut all = cluster(&names[..fixtures.len()], |n, put| {
            let (input, requests) = stream();
            let (events, output) = stream();
            let root = fixtures[n].root();
            thread::spawn(move || serve(&root, input, output, &|| ends(n), false));
            RemoteAgent::new(n, names[n], requests, events, put)
        });
        all.greet().unwrap();
        all
    }

    /// An agent that sends only this.
    fn saying(words: &'static str) -> Cluster<'static> {
        cluster(&["n1"], |n, put| {
            let (_, requests) = stream();
            let (events, mut output) = stream();
            output.write_all(words.as_bytes()).unwrap();
            RemoteAgent::new(n, "n1", requests, events, put)
        })
    }

    fn prepared() -> Parameters {
        let mut parameters = parameters();
        parameters.prepare = true;
        parameters.hosts = vec!["n1".into(), "n2".into()];
        parameters.nodes = vec![1, 2];
        parameters
    }

    fn record(rank: u32) -> RankRecord {
        RankRecord {
            rank,
            seconds: 2.0 + f64::from(rank),
            user_seconds: 1.0,
            system_seconds: 0.5,
            run_seconds: 1.5,
            wait_seconds: 0.1,
            blocked_seconds: None,
            faults: Faults {
                minor: 10,
                major: 1,
            },
            late_faults: Some(Faults { minor: 3, major: 0 }),
            fault_counter: "perf".into(),
            started_seconds: Some(0.1),
            rss_peak_bytes: 1 << 20,
            preemptions: 0,
        }
    }

    fn lost(trouble: Trouble) -> String {
        match trouble {
            Trouble::Lost(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_on_two_machines_is_prepared_collected_and_set_back() {
        let fixtures = [fixture("a"), fixture("b")];
        let mut cluster = agents(&fixtures, |_| false);
        let facts = cluster.look(&[], None).unwrap();
        assert_eq!(facts[1].boot, "b");
        assert_eq!((facts[0].cpus(), facts[0].memory_bytes), (1, 2 << 30));
        let obstacles = cluster.study(&prepared(), None).unwrap();
        // The module is not loaded.
        assert_eq!(obstacles[1][0].reason, "the module is not loaded");
        cluster.begin(&cell(2), &start(), Path::new("/")).unwrap();
        let dirs = fixtures.each_ref().map(|one| one.path().join("study/run"));
        for (fixture, dir) in fixtures.iter().zip(&dirs) {
            assert_eq!(thp(fixture), "always");
            assert!(dir.join("input").exists());
        }
        // Rank 0 makes its file; then the other machine has it, too.
        fs::write(dirs[0].join("started"), "result").unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !dirs[1].join("started").exists() && Instant::now() < deadline {
            cluster.tend(Duration::from_millis(20)).unwrap();
        }
        assert!(dirs[1].join("started").exists());
        for (n, dir) in dirs.iter().enumerate() {
            let json = serde_json::to_vec(&record(n as u32)).unwrap();
            fs::write(rank::path(dir, n as u32), json).unwrap();
        }
        fixtures[1].write("proc/vmstat", "pgfault 12\n");
        let out = tempfile::tempdir().unwrap();
        let found = cluster.finish(out.path()).unwrap();
        let names: Vec<&str> = found.iter().map(|one| one.host.as_str()).collect();
        assert_eq!(names, ["n1", "n2"]);
        assert_eq!((found[1].seconds, found[1].faults), (3.0, 11));
        assert_eq!(found[1].late_faults, Some(3));
        assert_eq!(found[1].vmstat["pgfault"], 5);
        assert_eq!(found[0].ranks[0].rank, 0);
        let text = fs::read_to_string(out.path().join("started")).unwrap();
        assert_eq!(text, "result");
        assert!(rank::path(out.path(), 1).exists());
        assert!(!dirs[0].exists());
        // On one machine, and interrupted.
        cluster.begin(&cell(1), &start(), Path::new("/")).unwrap();
        assert!(dirs[0].exists() && !dirs[1].exists());
        cluster.abandon().unwrap();
        drop(cluster);
        for fixture in &fixtures {
            assert_eq!(thp(fixture), "madvise");
            assert!(!fixture.path().join("study").exists());
        }
    }

    #[test]
    fn a_file_system_that_hosts_share_is_refused() {
        let fixtures = [fixture("a"), fixture("b")];
        let mut cluster = agents(&fixtures, |_| false);
        fs::create_dir(fixtures[1].path().join("study")).unwrap();
        let why = match cluster.study(&prepared(), None).unwrap_err() {
            Trouble::Failed(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(
            why.starts_with("n2: ") && why.contains("hosts share"),
            "{why}"
        );
    }

    #[test]
    fn who_dies_is_named_and_the_others_set_everything_back() {
        static DIES: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        let fixtures = [fixture("a"), fixture("b")];
        let mut cluster = agents(&fixtures, |n| {
            n == 1 && DIES.load(std::sync::atomic::Ordering::Relaxed)
        });
        cluster.study(&prepared(), None).unwrap();
        cluster.begin(&cell(2), &start(), Path::new("/")).unwrap();
        DIES.store(true, std::sync::atomic::Ordering::Relaxed);
        let deadline = Instant::now() + Duration::from_secs(20);
        let trouble = loop {
            match cluster.tend(Duration::from_millis(20)) {
                Ok(()) => assert!(Instant::now() < deadline),
                Err(trouble) => break trouble,
            }
        };
        let want = "n2 lost: its agent was ended, and has set back what was set";
        assert_eq!(lost(trouble), want);
        // The same again, for a caller that has seen the job fail because of it.
        assert_eq!(lost(cluster.abandon().unwrap_err()), want);
        drop(cluster);
        assert_eq!(thp(&fixtures[0]), "madvise");
    }

    #[test]
    fn who_is_cut_off_is_named_with_the_last_words() {
        let words = format!("{{\"hello\":{{\"version\":\"{VERSION}\"}}}}\n");
        let mut cluster = saying(words.leak());
        locked(&cluster.peers[0].said).push("Connection reset by peer".into());
        cluster.greet().unwrap();
        let trouble = cluster.tend(Duration::from_secs(20)).unwrap_err();
        assert_eq!(lost(trouble), "n1 lost: Connection reset by peer");
    }

    /// An agent that greets and then is silent. Both ends stay open.
    fn greeting() -> Cluster<'static> {
        let mut all = cluster(&["n1"], |n, put| {
            let (input, requests) = stream();
            let (events, mut output) = stream();
            let version = VERSION.into();
            write_line(&mut output, &Event::Hello { version }).unwrap();
            std::mem::forget((input, output));
            RemoteAgent::new(n, "n1", requests, events, put)
        });
        all.greet().unwrap();
        all.patience = Duration::from_millis(300);
        all
    }

    #[test]
    fn who_does_not_end_a_run_is_lost() {
        let want = "n1 lost: it did not end the run";
        assert_eq!(lost(greeting().abandon().unwrap_err()), want);
        let why = greeting().finish(Path::new("/")).unwrap_err();
        assert_eq!(lost(why), want);
    }

    #[test]
    fn who_ends_without_a_word_has_not_set_back_all() {
        let words = format!("{{\"hello\":{{\"version\":\"{VERSION}\"}}}}\n");
        let ended = |words: String| {
            let mut cluster = saying(words.leak());
            cluster.greet().unwrap();
            let is_set_back = cluster.set_back();
            let peer = &cluster.peers[0];
            (peer.is_restored, peer.lost.clone(), is_set_back)
        };
        let why = "n1 lost: it ended before it had set back all";
        assert_eq!(ended(words.clone()), (false, Some(why.into()), false));
        assert_eq!(
            ended(format!("{words}{{\"restored\":[]}}\n")),
            (true, None, true)
        );
        let words = format!("{words}{{\"restored\":[\"no\"]}}\n");
        assert_eq!(ended(words), (true, None, false));
    }

    #[test]
    fn who_says_nothing_is_lost() {
        let mut cluster = cluster(&["n1"], |n, put| {
            let (input, requests) = stream();
            let (events, output) = stream();
            // Both stay open.
            std::mem::forget((input, output));
            RemoteAgent::new(n, "n1", requests, events, put)
        });
        let long_ago = Instant::now().checked_sub(SILENCE + BEAT).unwrap();
        *locked(&cluster.peers[0].heard) = long_ago;
        let why = lost(cluster.greet().unwrap_err());
        assert_eq!(why, "n1 cannot be used: nothing was heard of it for 60 s");
    }

    #[test]
    fn another_version_is_refused_and_a_shell_that_greets_is_not() {
        let why = lost(
            saying("{\"hello\":{\"version\":\"0.0.9\"}}\n")
                .greet()
                .unwrap_err(),
        );
        assert_eq!(why, format!("n1 has hpmmap 0.0.9, this is {VERSION}"));
        let why = lost(saying("sh: 1: hpmmap: not found\n").greet().unwrap_err());
        assert_eq!(why, "n1 cannot be used: sh: 1: hpmmap: not found");
        let words = format!("Welcome!\n{{\"hello\":{{\"version\":\"{VERSION}\"}}}}\n");
        saying(words.leak()).greet().unwrap();
    }

    #[test]
    fn a_host_without_the_command_cannot_be_used() {
        let connect = |command: &str| {
            let hosts = ["localhost".to_string()];
            let path = Path::new(command);
            let all = Cluster::connect(&hosts, Launcher::Ssh, path, "/x".into(), &|| false);
            lost(all.err().unwrap())
        };
        let why = connect("/nonexistent/hpmmap");
        let want = "localhost cannot be used: cannot run /nonexistent/hpmmap: No such file";
        assert!(why.starts_with(want), "{why}");
        assert_eq!(
            connect("/bin/false"),
            "localhost cannot be used: it said nothing"
        );
    }

    #[test]
    fn machines_that_differ_are_told_apart() {
        let facts = || {
            let one = |boot: &str| Facts::look(&fixture(boot).root(), &[], None).unwrap();
            vec![one("a"), one("b")]
        };
        let hosts = ["n1", "n2"].map(String::from);
        let why = |facts: &[Facts]| {
            let checked = check_alike(&hosts, facts, &[Workload::Minicg]);
            checked.err().unwrap_or_default()
        };
        assert_eq!(why(&facts()), "");
        let mut other = facts();
        other[1].boot = "a".into();
        assert_eq!(why(&other), "n1 and n2 are the same machine");
        let mut other = facts();
        other[1].nodes = vec![vec![0, 1], vec![2, 3]];
        let want = "n2 has 4 CPUs (0-3) in 2 nodes, n1 has 1 (0) in 1";
        assert_eq!(why(&other), want);
        let mut other = facts();
        other[1].versions.insert("module".into(), "0.0.9".into());
        assert_eq!(why(&other), "n2 has module '0.0.9', n1 has 'none'");
        let mut other = facts();
        other[1].allowed_cpus = Some(0);
        let want = "n2: only 0 of its 1 CPUs may be used: have the whole machine";
        assert_eq!(why(&other), want);
        let mut other = facts();
        for (one, path) in other.iter_mut().zip(["/a/minicg", "/b/minicg"]) {
            let program = super::super::local_host::Program {
                path: path.into(),
                version: "1".into(),
            };
            one.programs.insert(Workload::Minicg, Ok(program));
        }
        assert_eq!(why(&other), "n2 has minicg in /b/minicg, n1 in /a/minicg");
    }
}
