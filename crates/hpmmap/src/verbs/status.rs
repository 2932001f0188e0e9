//! `hpmmap status`

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{self, ClearType};
use crossterm::{cursor, execute, queue};
use hpmmap_host::pool::{self, Context, NodePool};
use hpmmap_host::{Root, process};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::pool_list::nodes_table;
use crate::cli::StatusArgs;
use crate::device::{require_module, user_name};
use crate::error::{Error, Result};
use crate::output::Column::{Number, Text};
use crate::output::{print, print_json, print_json_line, table};
use crate::size::{Size, short};

/// How long a signal may go unnoticed.
const SLICE: Duration = Duration::from_millis(200);

pub fn perform(args: &StatusArgs) -> Result<ExitCode> {
    let interval = checked_interval(args)?;
    let root = Root::default();
    match interval {
        None if args.json => print_json(&Status::read(&root)?)?,
        None => print(&Status::read(&root)?.text())?,
        Some(interval) => watch(&root, args.json, interval)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The time between two reports; `None` for a single one.
fn checked_interval(args: &StatusArgs) -> Result<Option<Duration>> {
    if !args.watch {
        return Ok(None);
    }
    match Duration::try_from_secs_f64(args.interval) {
        Ok(interval) if (0.1..=86400.0).contains(&interval.as_secs_f64()) => Ok(Some(interval)),
        _ => Err(Error::Usage(format!(
            "--interval {} is not between 0.1 and 86400 seconds",
            args.interval
        ))),
    }
}

/// One registered process.
#[derive(Debug, Serialize)]
struct Job {
    #[serde(flatten)]
    context: Context,
    /// `None` once the process has ended.
    command: Option<String>,
    user: String,
}

/// Everything there is to see.
#[derive(Debug, Serialize)]
struct Status {
    module_version: String,
    hooks_active: bool,
    user_limit_bytes: Option<u64>,
    nodes: Vec<NodePool>,
    contexts: Vec<Job>,
}

impl Status {
    fn read(root: &Root) -> Result<Self> {
        require_module(root)?;
        let contexts = pool::contexts(root)?
            .into_iter()
            .map(|context| {
                Ok(Job {
                    command: process::command(root, context.pid)?,
                    user: user_name(context.uid),
                    context,
                })
            })
            .collect::<Result<Vec<Job>>>()?;
        Ok(Self {
            module_version: pool::version(root)?,
            hooks_active: pool::hooks_active(root)?,
            user_limit_bytes: pool::user_limit_bytes(root)?,
            nodes: pool::nodes(root)?,
            contexts,
        })
    }

    fn text(&self) -> String {
        let jobs = if self.contexts.is_empty() {
            "No jobs.".to_string()
        } else {
            jobs_table(&self.contexts)
        };
        format!("{}\n\n{jobs}", nodes_table(&self.nodes))
    }
}

fn jobs_table(jobs: &[Job]) -> String {
    table(
        &[
            Number("JOB"),
            Number("PID"),
            Text("USER"),
            Text("COMMAND"),
            Text("POLICY"),
            Number("PAGE"),
            Number("HELD"),
            Number("2M"),
            Number("4K"),
            Number("LINUX"),
            Number("FALLBACKS"),
            Number("FAULTS"),
            Number("PINS"),
        ],
        jobs.iter().map(|job| {
            let context = &job.context;
            vec![
                context.job.to_string(),
                context.pid.to_string(),
                job.user.clone(),
                printable(job.command.as_deref().unwrap_or("-")),
                if context.strict { "strict" } else { "fallback" }.to_string(),
                Size(context.page_size).to_string(),
                short(context.held_bytes),
                short(context.mapped_2m_bytes),
                short(context.mapped_4k_bytes),
                short(context.linux_bytes),
                context.fallbacks.to_string(),
                context.faults.to_string(),
                context.pins_waiting.to_string(),
            ]
        }),
    )
}

/// A process may give itself any name; none may drive the terminal.
fn printable(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

fn watch(root: &Root, json: bool, interval: Duration) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    if json {
        return every(interval, &stop, || print_json_line(&Status::read(root)?));
    }
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        return every(interval, &stop, || {
            print(&format!("{}\n", Status::read(root)?.text()))
        });
    }
    watch_screen(root, interval, &stop)
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

/// The terminal as a screen; as it was before when dropped.
struct Screen;

impl Screen {
    fn new() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self;
        execute!(
            io::stdout(),
            terminal::EnterAlternateScreen,
            terminal::DisableLineWrap,
            cursor::Hide
        )?;
        Ok(screen)
    }

    fn draw(&self, text: &str) -> io::Result<()> {
        let (_, rows) = terminal::size()?;
        let mut out = io::stdout().lock();
        queue!(out, cursor::MoveTo(0, 0))?;
        for line in fit(text, usize::from(rows)) {
            queue!(
                out,
                Print(line),
                terminal::Clear(ClearType::UntilNewLine),
                cursor::MoveToNextLine(1)
            )?;
        }
        queue!(out, terminal::Clear(ClearType::FromCursorDown))?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone; then there is nothing to restore.
        let _ = execute!(
            io::stdout(),
            cursor::Show,
            terminal::EnableLineWrap,
            terminal::LeaveAlternateScreen
        );
        let _ = terminal::disable_raw_mode();
    }
}

/// The lines of `text` that fit above the last row of the terminal.
fn fit(text: &str, rows: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let room = rows.saturating_sub(1).max(1);
    if lines.len() <= room {
        return lines.into_iter().map(str::to_string).collect();
    }
    let shown = room - 1;
    let mut fitting: Vec<String> = lines[..shown].iter().map(|l| l.to_string()).collect();
    fitting.push(format!("({} more lines)", lines.len() - shown));
    fitting
}

fn watch_screen(root: &Root, interval: Duration, stop: &AtomicBool) -> Result<()> {
    let screen = Screen::new()?;
    while !stop.load(Ordering::Relaxed) {
        let head = format!("Every {} s; 'q' ends.\n\n", interval.as_secs_f64());
        screen.draw(&(head + &Status::read(root)?.text()))?;
        let until = Instant::now() + interval;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || stop.load(Ordering::Relaxed) {
                break;
            }
            if !event::poll(left.min(SLICE))? {
                continue;
            }
            match event::read()? {
                Event::Key(key) if is_end(key.code, key.modifiers) => return Ok(()),
                Event::Resize(..) => break,
                _ => (),
            }
        }
    }
    Ok(())
}

fn is_end(code: KeyCode, modifiers: KeyModifiers) -> bool {
    match code {
        KeyCode::Char('c') => modifiers.contains(KeyModifiers::CONTROL),
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => true,
        _ => false,
    }
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
            ("linux_bytes", 0),
            ("fallbacks", 2),
            ("faults", 11),
            ("faults_kernel", 1),
            ("pins_waiting", 0),
        ] {
            assert_eq!(context[name], value, "{name}");
        }
        assert_eq!(context["strict"], true);
        assert_eq!(context["user"], "root");
        assert_eq!(context["command"], "lmp\u{1b}[2J");
    }

    #[test]
    fn a_process_that_ended_has_no_command() {
        let fixture = fixture();
        fixture.remove("proc/1234/comm");
        let status = Status::read(&fixture.root()).unwrap();
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["contexts"][0]["command"], serde_json::Value::Null);
        assert!(status.text().contains(" - "), "{}", status.text());
    }

    #[test]
    fn the_table_names_the_job_and_hides_control_characters() {
        let text = Status::read(&fixture().root()).unwrap().text();
        let row = text.lines().last().unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "3", "1234", "root", "lmp?[2J", "strict", "2M", "8M", "6M", "4K", "0", "2", "11",
                "0"
            ]
        );
    }

    #[test]
    fn no_jobs_is_said() {
        let fixture = Fixture::new();
        fixture.module();
        let text = Status::read(&fixture.root()).unwrap().text();
        assert!(text.ends_with("No jobs."), "{text}");
    }

    #[test]
    fn intervals_are_checked() {
        let interval = |watch, interval| {
            checked_interval(&StatusArgs {
                watch,
                interval,
                json: false,
            })
        };
        assert_eq!(interval(false, 2.0).unwrap(), None);
        assert_eq!(
            interval(true, 0.5).unwrap(),
            Some(Duration::from_millis(500))
        );
        for wrong in [0.0, -1.0, 1e9, f64::NAN, f64::INFINITY] {
            assert_eq!(interval(true, wrong).unwrap_err().exit_code(), 2);
        }
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        assert_eq!(fit("a\nb\nc", 4), ["a", "b", "c"]);
        assert_eq!(fit("a\nb\nc", 3), ["a", "(2 more lines)"]);
        assert_eq!(fit("a\nb\nc", 0), ["(3 more lines)"]);
    }

    #[test]
    fn q_and_control_c_end_the_screen() {
        assert!(is_end(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(is_end(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!is_end(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(!is_end(KeyCode::Enter, KeyModifiers::NONE));
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
