//! An agent on another machine, as seen by the study: the process that reaches it, and its
//! messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hpmmap_base::escape;
use hpmmap_sys::child::{Setup, Signal};
use nix::sys::signal::{SigSet, kill, killpg};
use nix::unistd::Pid;

use super::agent::{BEAT, Event, Request, SILENCE, write_line};

/// Messages on another stream may arrive this much later.
const LATER: Duration = Duration::from_millis(100);
/// Time that the process which reaches it may take to end.
const END: Duration = Duration::from_secs(5);

/// Input from an agent.
pub(super) enum Heard {
    Event(Event),
    /// Other text, such as the output of a shell.
    Words(Vec<u8>),
    /// The end of the stream.
    End,
}

/// The longest answer: a result of 16 MiB in which each byte may take six.
const MOST_LINE: u64 = 128 << 20;
/// The longest line that is shown.
const MOST_SHOWN: u64 = 4096;
/// Number of the first and of the last messages that are kept.
const KEPT: usize = 100;

/// The next line, or its first `most` bytes.
fn next_line(from: &mut impl BufRead, most: u64) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let n = from.take(most).read_until(b'\n', &mut line).ok()?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    (n > 0).then_some(line)
}

pub(super) fn keep(said: &mut Vec<String>, line: &[u8]) {
    if said.len() == 2 * KEPT {
        said.remove(KEPT);
    }
    let most = line.len().min(MOST_SHOWN as usize);
    said.push(String::from_utf8_lossy(&line[..most]).into_owned());
}

type Shared<T> = Arc<Mutex<T>>;

pub(super) fn locked<T>(shared: &Shared<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A machine.
pub(super) struct RemoteAgent {
    pub(super) host: String,
    /// The process that reaches it.
    pub(super) child: Option<Child>,
    /// That process is the agent itself.
    pub(super) is_agent: bool,
    /// Requests for the thread that writes; `None` once the agent is told to end.
    pub(super) requests: Option<Sender<Request>>,
    pub(super) heard: Shared<Instant>,
    /// Messages of the agent and of the process that reaches it, besides events.
    pub(super) said: Shared<Vec<String>>,
    pub(super) is_greeted: bool,
    /// The reason, if it is lost.
    pub(super) lost: Option<String>,
    /// Has it reported that everything is restored?
    pub(super) is_restored: bool,
}

/// Writes requests, and beats while there are none.
fn write_all(mut input: impl Write + Send + 'static, requests: Receiver<Request>) {
    thread::spawn(move || {
        // This process must not end because an agent's pipe is closed.
        let mut pipe = SigSet::empty();
        pipe.add(Signal::SIGPIPE);
        if pipe.thread_block().is_err() {
            return;
        }
        loop {
            let request = match requests.recv_timeout(BEAT) {
                Ok(request) => request,
                Err(RecvTimeoutError::Timeout) => Request::Beat,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // The reading side reports why it is gone.
            if write_line(&mut input, &request).is_err() {
                return;
            }
        }
    });
}

fn read_all(
    n: usize,
    output: impl Read + Send + 'static,
    put: Sender<(usize, Heard)>,
    heard: Shared<Instant>,
) {
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        while let Some(line) = next_line(&mut output, MOST_LINE) {
            *locked(&heard) = Instant::now();
            let what = match serde_json::from_slice(&line) {
                Ok(Event::Beat) => continue,
                Ok(event) => Heard::Event(event),
                Err(_) => Heard::Words(line),
            };
            if put.send((n, what)).is_err() {
                return;
            }
        }
        // The receiver may be gone.
        let _ = put.send((n, Heard::End));
    });
}

fn listen(errors: impl Read + Send + 'static, said: Shared<Vec<String>>) {
    thread::spawn(move || {
        let mut errors = BufReader::new(errors);
        while let Some(line) = next_line(&mut errors, MOST_SHOWN) {
            keep(&mut locked(&said), &line);
        }
    });
}

impl RemoteAgent {
    pub(super) fn new(
        n: usize,
        host: &str,
        input: impl Write + Send + 'static,
        output: impl Read + Send + 'static,
        put: Sender<(usize, Heard)>,
    ) -> Self {
        let (requests, wanted) = channel();
        let heard = Arc::new(Mutex::new(Instant::now()));
        write_all(input, wanted);
        read_all(n, output, put, Arc::clone(&heard));
        Self {
            host: host.to_string(),
            child: None,
            is_agent: false,
            requests: Some(requests),
            heard,
            said: Shared::default(),
            is_greeted: false,
            lost: None,
            is_restored: false,
        }
    }

    pub(super) fn start(
        n: usize,
        host: &str,
        mut command: Command,
        put: Sender<(usize, Heard)>,
    ) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        Setup {
            // The terminal's keys are for this command, which then tells the agents. No signal is
            // sent when this command ends, since srun would kill the agent for it: the end of its
            // input tells each agent to restore everything.
            own_group: true,
            ..Setup::default()
        }
        .apply(&mut command)
        .map_err(|error| format!("{name}: {error}"))?;
        let started = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = started.map_err(|error| format!("cannot run {name}: {error}"))?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(errors)) = streams else {
            return Err(format!("{name} has no streams"));
        };
        let mut peer = Self::new(n, host, input, output, put);
        listen(errors, Arc::clone(&peer.said));
        peer.child = Some(child);
        Ok(peer)
    }

    pub(super) fn ask(&self, request: Request) {
        if let Some(requests) = &self.requests {
            // The reading side reports why it is gone.
            let _ = requests.send(request);
        }
    }

    /// Its last message, or the first one if it never started.
    pub(super) fn words(&self) -> String {
        thread::sleep(LATER);
        let said = locked(&self.said);
        let is_word = |line: &&String| line.chars().any(char::is_alphanumeric);
        let line = match self.is_greeted {
            true => said.iter().rev().find(is_word),
            false => said.iter().find(is_word),
        };
        line.map_or("it said nothing".into(), |line| {
            escape::line(line.trim()).into_owned()
        })
    }

    /// Marks it as lost.
    pub(super) fn lose(&mut self, why: &str) {
        let what = match self.is_greeted {
            true => "lost",
            false => "cannot be used",
        };
        let host = &self.host;
        self.lost.get_or_insert(format!("{host} {what}: {why}"));
    }

    pub(super) fn is_silent(&self) -> bool {
        locked(&self.heard).elapsed() > SILENCE
    }
}

impl Drop for RemoteAgent {
    fn drop(&mut self) {
        self.requests = None;
        let Some(child) = &mut self.child else {
            return;
        };
        let deadline = Instant::now() + END;
        let waits = self.lost.is_none();
        while waits && Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(20));
        }
        let pid = Pid::from_raw(child.id() as i32);
        // An error means that it is gone.
        if !self.is_agent {
            let _ = killpg(pid, Signal::SIGKILL);
            let _ = child.wait();
        } else if matches!(child.try_wait(), Ok(None)) {
            // It may still be restoring settings, and ends by itself.
            let _ = kill(pid, Signal::SIGTERM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_words_the_first_and_the_last_are_kept() {
        let text = "a\nbcde\n\nf";
        let mut from = BufReader::new(text.as_bytes());
        let lines = std::iter::from_fn(|| next_line(&mut from, 3));
        let lines: Vec<String> = lines.map(|line| String::from_utf8(line).unwrap()).collect();
        assert_eq!(lines, ["a", "bcd", "e", "", "f"]);
        let mut said = Vec::new();
        for n in 0..1000 {
            keep(&mut said, format!("{n}").as_bytes());
        }
        assert_eq!(said.len(), 2 * KEPT);
        assert_eq!(
            (said[KEPT - 1].as_str(), said[KEPT].as_str()),
            ("99", "900")
        );
        keep(&mut said, &[b'x'; 1 << 20]);
        assert_eq!(said.last().unwrap().len() as u64, MOST_SHOWN);
    }

    #[test]
    fn an_agent_here_is_asked_to_end_and_not_killed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("set-back");
        let mut command = Command::new("sh");
        let script = "trap 'sleep 1; echo > \"$1\"; exit' TERM; echo; while :; do sleep 0.1; done";
        command.args(["-c", script, "sh"]).arg(&file);
        let (put, heard) = channel();
        let mut peer = RemoteAgent::start(0, "localhost", command, put).unwrap();
        peer.is_agent = true;
        // The trap is set.
        assert!(matches!(heard.recv().unwrap(), (0, Heard::Words(_))));
        peer.lose("it is stuck");
        drop(peer);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !file.exists() {
            assert!(Instant::now() < deadline);
            thread::sleep(LATER);
        }
    }
}
