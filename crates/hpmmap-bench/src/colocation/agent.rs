//! The agent for a machine's part of a study that another machine runs. It reads requests and
//! answers with events, a line of JSON each. It restores everything and ends when it is told to,
//! when a signal comes, or when the other side is silent.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hpmmap_base::VERSION;
use hpmmap_base::error::{Error, Result};
use hpmmap_base::signals;
use hpmmap_host::Root;
use hpmmap_sys::child::adopt_orphans;
use serde::{Deserialize, Serialize};

use super::job::{LOOK, Machines, Nothing, Trouble};
use super::local_host::{Facts, LocalHost, Obstacle, clear, obstacles};
use super::plan::{Cell, Parameters, Workload};
use super::record::OnHost;
use super::workload::Start;

/// Interval at which each side shows that it is alive.
pub const BEAT: Duration = Duration::from_secs(1);
/// After this silence the other side counts as gone.
pub const SILENCE: Duration = Duration::from_secs(60);
/// Interval at which the end of the start-up is looked for.
const SOON: Duration = Duration::from_millis(20);
/// The longest result of a program that is passed on.
const MOST_ANSWER: u64 = 16 << 20;

/// A request of the machine that runs the study.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The other side is alive.
    Beat,
    /// Asks for the machine's properties, with these programs.
    Look {
        /// The programs.
        workloads: Vec<Workload>,
        /// Directory of the programs of bench/apps.
        apps: Option<PathBuf>,
    },
    /// A study begins.
    Study {
        /// Its options.
        parameters: Box<Parameters>,
        /// A new directory for the files of the runs.
        work: PathBuf,
        /// Directory for the file of neighbour D.
        cache: Option<PathBuf>,
    },
    /// A run begins.
    Begin {
        /// The combination.
        cell: Cell,
        /// The way to start its program.
        start: Box<Start>,
    },
    /// The start-up has ended on another machine.
    Started,
    /// The job has ended.
    Finish,
    /// The run has failed.
    Abandon,
    /// The study has ended.
    End,
}

/// An answer of the machine, or an event.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The agent is alive.
    Beat,
    /// The first event.
    Hello {
        /// Version of the command.
        version: String,
    },
    /// Answer to `Look`.
    Facts(Box<Facts>),
    /// Answer to `Study`.
    Obstacles(Vec<Obstacle>),
    /// Answer to `Begin`: settings are made, neighbours run.
    Ready,
    /// The start-up has ended on this machine.
    Started,
    /// Answer to `Finish`.
    Finished {
        /// The figures.
        on_host: Box<OnHost>,
        /// The file with the program's result, if it is on this machine.
        answer: Option<String>,
        /// Settings that could not be restored before the run.
        failed: Vec<String>,
    },
    /// Answer to `Abandon`.
    Abandoned,
    /// A request or a neighbour failed.
    Failed(String),
    /// Answer to `End`: all settings are restored except these.
    Restored(Vec<String>),
}

/// Writes one line.
pub fn write_line(to: &mut dyn Write, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// The directory for the files of a run.
pub fn run_dir(work: &Path) -> PathBuf {
    work.join("run")
}

/// The other side.
struct Other {
    requests: Receiver<Request>,
    heard: Arc<Mutex<Instant>>,
    gone: Arc<AtomicBool>,
    /// The current work is of no use any more and should end.
    hurry: Arc<AtomicBool>,
}

impl Other {
    fn listen(input: impl Read + Send + 'static) -> Self {
        let (put, requests) = channel();
        let heard = Arc::new(Mutex::new(Instant::now()));
        let gone = Arc::new(AtomicBool::new(false));
        let hurry = Arc::new(AtomicBool::new(false));
        let (now, end, soon) = (Arc::clone(&heard), Arc::clone(&gone), Arc::clone(&hurry));
        thread::spawn(move || {
            for line in BufReader::new(input).lines() {
                let Some(request) = line.ok().and_then(|line| serde_json::from_str(&line).ok())
                else {
                    break;
                };
                *now.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                if matches!(request, Request::Abandon | Request::End) {
                    soon.store(true, Ordering::Relaxed);
                }
                if put.send(request).is_err() {
                    break;
                }
            }
            end.store(true, Ordering::Relaxed);
        });
        Self {
            requests,
            heard,
            gone,
            hurry,
        }
    }

    fn is_gone(&self) -> bool {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        self.gone.load(Ordering::Relaxed) || heard.elapsed() > SILENCE
    }
}

/// Sends events, from any thread.
struct Voice<W>(Arc<Mutex<W>>);

impl<W: Write + Send + 'static> Voice<W> {
    fn say(&self, event: &Event) -> io::Result<()> {
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write_line(&mut *output, event)
    }

    /// Sends a beat regularly, until the reader or this is gone.
    fn beat(&self) {
        let output = Arc::downgrade(&self.0);
        thread::spawn(move || {
            while let Some(output) = output.upgrade() {
                if Self(output).say(&Event::Beat).is_err() {
                    return;
                }
                thread::sleep(BEAT);
            }
        });
    }
}

/// A study, as far as this machine takes part in it.
struct Part<'a> {
    root: &'a Root,
    site: Option<LocalHost<'a>>,
    work: Option<PathBuf>,
    /// The file that shows the end of the start-up, while it is looked for.
    marker: Option<PathBuf>,
    /// The file with the result.
    answer: Option<PathBuf>,
    looked: Instant,
    runs: bool,
    /// End everything that a run leaves; only for a process of its own.
    sweeps: bool,
}

impl<'a> Part<'a> {
    fn new(root: &'a Root, sweeps: bool) -> Self {
        Self {
            root,
            site: None,
            work: None,
            marker: None,
            answer: None,
            looked: Instant::now(),
            runs: false,
            sweeps,
        }
    }

    fn study(
        &mut self,
        parameters: &Parameters,
        work: PathBuf,
        cache: Option<PathBuf>,
        stop: &'a dyn Fn() -> bool,
    ) -> std::result::Result<Event, String> {
        let work = self.root.join(work.strip_prefix("/").unwrap_or(&work));
        let made = DirBuilder::new().mode(0o700).create(&work);
        made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => format!(
                "{} is there already: it seems to be on a file system that hosts share; name a \
                 directory that is each one's own with --work",
                work.display()
            ),
            _ => format!(
                "{}: {error} (--work names another directory)",
                work.display()
            ),
        })?;
        self.work = Some(work);
        self.site = Some(LocalHost::new(self.root, parameters, cache, stop));
        Ok(Event::Obstacles(obstacles(self.root, parameters)))
    }

    fn dir(&self) -> std::result::Result<PathBuf, String> {
        let work = self.work.as_deref().ok_or("there is no study")?;
        Ok(run_dir(work))
    }

    fn begin(&mut self, cell: &Cell, start: &Start) -> std::result::Result<Event, Trouble> {
        let dir = self.dir()?;
        clear(self.root, &dir);
        let wrap = |error: io::Error| format!("{}: {error}", dir.display());
        fs::create_dir(&dir).map_err(wrap)?;
        self.answer = start.marker.as_ref().map(|name| dir.join(name));
        self.marker = self.answer.clone();
        let site = self.site.as_mut().ok_or("there is no study".to_string())?;
        site.begin(cell, start, &dir)?;
        self.runs = true;
        Ok(Event::Ready)
    }

    fn finish(&mut self) -> std::result::Result<Event, Trouble> {
        let dir = self.dir()?;
        let site = self.site.as_mut().ok_or("there is no study".to_string())?;
        let on_host = site
            .finish(&dir)?
            .pop()
            .ok_or("there is no run".to_string())?;
        let answer = self.answer.as_ref().and_then(|file| {
            let mut text = Vec::new();
            let opened = fs::File::open(file).ok()?;
            opened.take(MOST_ANSWER).read_to_end(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text).into_owned())
        });
        let failed = site.failed();
        self.clear();
        Ok(Event::Finished {
            on_host: Box::new(on_host),
            answer,
            failed,
        })
    }

    /// Ends all that is left of the run.
    fn clear(&mut self) {
        if let Some(site) = &mut self.site {
            // It fails only if another machine takes part.
            let _ = site.abandon();
        }
        (self.runs, self.marker) = (false, None);
        if let Ok(dir) = self.dir() {
            clear(self.root, &dir);
        }
        if self.sweeps {
            drop(Nothing::default());
        }
    }

    /// Restores the settings; returns those that could not be restored, and why.
    fn set_back(&mut self) -> Vec<String> {
        self.clear();
        let mut site = self.site.take();
        site.as_mut()
            .map(LocalHost::set_all_back)
            .unwrap_or_default()
    }

    /// Looks for events while there is no request.
    fn look(&mut self) -> Option<Event> {
        if !self.runs {
            return None;
        }
        if self.marker.as_ref().is_some_and(|file| file.exists()) {
            self.marker = None;
            return Some(Event::Started);
        }
        if self.looked.elapsed() < LOOK {
            return None;
        }
        self.looked = Instant::now();
        match self.site.as_mut()?.look() {
            Err(Trouble::Failed(why) | Trouble::Lost(why)) => {
                self.runs = false;
                Some(Event::Failed(why))
            }
            Ok(()) | Err(Trouble::Interrupted) => None,
        }
    }

    /// The program on another machine has finished its start-up.
    fn started(&mut self) {
        if let Some(file) = self.marker.take() {
            // If this fails the rank here only counts late faults later.
            let _ = fs::OpenOptions::new().append(true).create(true).open(file);
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.clear();
        // Dropping it restores the settings.
        self.site = None;
        if let Some(work) = &self.work {
            let _ = fs::remove_dir_all(work);
        }
    }
}

/// The event for a run's trouble.
fn told(outcome: std::result::Result<Event, Trouble>) -> Event {
    match outcome {
        Ok(event) => event,
        Err(Trouble::Failed(why) | Trouble::Lost(why)) => Event::Failed(why),
        Err(Trouble::Interrupted) => Event::Failed("it was interrupted".into()),
    }
}

/// Serves requests until `stop` or the other side is gone.
pub fn serve(
    root: &Root,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    stop: &dyn Fn() -> bool,
    sweeps: bool,
) -> Result<()> {
    let other = Other::listen(input);
    let voice = Voice(Arc::new(Mutex::new(output)));
    voice.say(&Event::Hello {
        version: VERSION.into(),
    })?;
    voice.beat();
    let ends = || stop() || other.is_gone();
    let hurries = || ends() || other.hurry.load(Ordering::Relaxed);
    let mut part = Part::new(root, sweeps);
    while !ends() {
        let wait = if part.runs { SOON } else { LOOK };
        let event = match other.requests.recv_timeout(wait) {
            Err(RecvTimeoutError::Disconnected) | Ok(Request::End) => break,
            Err(RecvTimeoutError::Timeout) | Ok(Request::Beat) => part.look(),
            Ok(Request::Look { workloads, apps }) => {
                let facts = Facts::look_at_host(root, &workloads, apps.as_deref());
                Some(match facts {
                    Ok(facts) => Event::Facts(Box::new(facts)),
                    Err(error) => Event::Failed(error.to_string()),
                })
            }
            Ok(Request::Study {
                parameters,
                work,
                cache,
            }) => {
                let begun = part.study(&parameters, work, cache, &hurries);
                Some(begun.unwrap_or_else(Event::Failed))
            }
            Ok(Request::Begin { cell, start }) => Some(told(part.begin(&cell, &start))),
            Ok(Request::Started) => {
                part.started();
                None
            }
            Ok(Request::Finish) => Some(told(part.finish())),
            Ok(Request::Abandon) => {
                part.clear();
                other.hurry.store(false, Ordering::Relaxed);
                Some(Event::Abandoned)
            }
        };
        if let Some(event) = event {
            voice.say(&event)?;
        }
    }
    let failed = part.set_back();
    drop(part);
    voice.say(&Event::Restored(failed))?;
    Ok(())
}

/// Performs the verb.
pub fn run() -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    signals::catch(&stop)?;
    adopt_orphans()?;
    let root = Root::default();
    let stops = || signals::has_come(&stop);
    match serve(&root, io::stdin(), io::stdout(), &stops, true) {
        // The other side is gone, so there is no place to report it.
        Err(Error::Output(_)) | Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
pub mod tests {
    use std::fs::File;

    use hpmmap_host::fixture::Fixture;
    use nix::unistd::pipe;

    use super::*;
    use crate::colocation::plan::tests::parameters;
    use crate::colocation::plan::{Manager, Profile};
    use crate::machine::{HUGETLB, THP};

    /// A machine of this boot with two CPUs, of which ranks may use one.
    pub fn fixture(boot: &str) -> Fixture {
        let fixture = Fixture::new();
        fixture.write("proc/meminfo", "MemTotal: 2097152 kB\n");
        fixture.write("proc/sys/kernel/random/boot_id", boot);
        fixture.write("sys/devices/system/cpu/online", "0\n");
        fixture.write("proc/vmstat", "pgfault 7\n");
        fixture.write(THP, "always [madvise] never\n");
        fixture.write(&format!("{HUGETLB}/nr_hugepages"), "0\n");
        fixture.write(&format!("{HUGETLB}/free_hugepages"), "512\n");
        fixture
    }

    /// Two connected ends.
    pub fn stream() -> (File, File) {
        let (read, write) = pipe().unwrap();
        (File::from(read), File::from(write))
    }

    pub fn thp(fixture: &Fixture) -> String {
        fixture.root().read(THP).unwrap()
    }

    pub fn cell(nodes: u32) -> Cell {
        Cell {
            workload: Workload::Minicg,
            manager: Manager::Thp,
            neighbour: Profile::None,
            nodes,
        }
    }

    /// A program with an input file, and a file that it makes.
    pub fn start() -> Start {
        Start {
            program: "/p".into(),
            arguments: Vec::new(),
            files: vec![("input".into(), "x".into())],
            marker: Some("started".into()),
        }
    }

    /// The other side goes without a message: settings are restored all the same.
    #[test]
    fn who_is_left_alone_sets_everything_back() {
        let fixture = fixture("a");
        let (input, mut requests) = stream();
        let (events, output) = stream();
        let root = fixture.root();
        let agent = thread::spawn(move || serve(&root, input, output, &|| false, false));
        let mut lines = BufReader::new(events).lines();
        let mut next = || loop {
            match serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() {
                Event::Beat => (),
                event => return event,
            }
        };
        assert!(matches!(next(), Event::Hello { version } if version == VERSION));
        let mut parameters = parameters();
        parameters.prepare = true;
        let study = Request::Study {
            parameters: Box::new(parameters),
            work: "/study".into(),
            cache: None,
        };
        write_line(&mut requests, &study).unwrap();
        assert!(matches!(next(), Event::Obstacles(_)));
        let begin = Request::Begin {
            cell: cell(1),
            start: Box::new(start()),
        };
        write_line(&mut requests, &begin).unwrap();
        assert!(matches!(next(), Event::Ready));
        assert_eq!(thp(&fixture), "always");
        let work = fixture.path().join("study");
        assert!(run_dir(&work).join("input").exists());
        drop(requests);
        assert!(matches!(next(), Event::Restored(failed) if failed.is_empty()));
        agent.join().unwrap().unwrap();
        assert_eq!(thp(&fixture), "madvise");
        assert!(!work.exists());
    }

    #[test]
    fn what_makes_no_sense_ends_it() {
        let fixture = fixture("a");
        let (input, mut requests) = stream();
        let (_events, output) = stream();
        let root = fixture.root();
        let agent = thread::spawn(move || serve(&root, input, output, &|| false, false));
        requests.write_all(b"hello\n").unwrap();
        agent.join().unwrap().unwrap();
    }
}
