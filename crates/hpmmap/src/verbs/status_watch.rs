//! `hpmmap status --watch` on a terminal.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::style::{Color, Print, ResetColor, SetForegroundColor};
use crossterm::terminal::{self, ClearType};
use crossterm::{cursor, execute, queue};
use hpmmap_base::error::Result;
use hpmmap_base::output::Column::{self, Number, Text};
use hpmmap_base::output::table;
use hpmmap_base::size::{Size, short};
use hpmmap_host::Root;
use hpmmap_host::pool::{Context, NodePool};

use crate::status::{Status, or_unknown};

/// A signal is noticed after at most this time.
pub const SLICE: Duration = Duration::from_millis(200);

/// Shows the state repeatedly until a key or a signal ends it.
pub fn watch(root: &Root, interval: Duration, stop: &AtomicBool) -> Result<()> {
    // See https://no-color.org.
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let screen = Screen::new(colour)?;
    // From here on a resize of the terminal is noticed.
    event::poll(Duration::ZERO)?;
    while !stop.load(Ordering::Relaxed) {
        let status = Status::read(root)?;
        screen.draw(&status, interval)?;
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
                Event::Resize(..) => screen.draw(&status, interval)?,
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

/// A piece of a line in one colour.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    text: String,
    colour: Option<Color>,
}

type Line = Vec<Span>;

fn span(text: impl Into<String>, colour: Option<Color>) -> Span {
    Span {
        text: text.into(),
        colour,
    }
}

/// The terminal as a screen; dropping it restores the terminal.
struct Screen {
    colour: bool,
}

impl Screen {
    fn new(colour: bool) -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self { colour };
        execute!(
            io::stdout(),
            terminal::EnterAlternateScreen,
            terminal::DisableLineWrap,
            cursor::Hide
        )?;
        Ok(screen)
    }

    fn draw(&self, status: &Status, interval: Duration) -> io::Result<()> {
        let (columns, rows) = terminal::size()?;
        let lines = view(status, interval, columns.into());
        let mut out = io::stdout().lock();
        queue!(out, cursor::MoveTo(0, 0))?;
        for line in fit(lines, usize::from(rows)) {
            for span in line {
                match span.colour.filter(|_| self.colour) {
                    Some(colour) => queue!(
                        out,
                        SetForegroundColor(colour),
                        Print(span.text),
                        ResetColor
                    )?,
                    None => queue!(out, Print(span.text))?,
                }
            }
            queue!(
                out,
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
        // If the terminal is gone there is nothing to restore.
        let _ = execute!(
            io::stdout(),
            cursor::Show,
            terminal::EnableLineWrap,
            terminal::LeaveAlternateScreen
        );
        let _ = terminal::disable_raw_mode();
    }
}

/// The lines that fit above the last row of the terminal.
fn fit(mut lines: Vec<Line>, rows: usize) -> Vec<Line> {
    let room = rows.saturating_sub(1).max(1);
    if lines.len() > room {
        let hidden = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push(vec![span(format!("({hidden} more lines)"), None)]);
    }
    lines
}

const USED: Color = Color::Yellow;
const FREE: Color = Color::Blue;
const CLEAN: Color = Color::Green;
const DISTURBED: Color = Color::Red;

/// All lines, for a terminal of this width.
fn view(status: &Status, interval: Duration, columns: usize) -> Vec<Line> {
    let mut lines = vec![
        vec![span(
            format!(
                "hpmmap {}, every {} s; q ends",
                status.module_version,
                interval.as_secs_f64()
            ),
            None,
        )],
        vec![],
    ];
    let pools: Vec<&NodePool> = status.nodes.iter().filter(|n| n.total_bytes != 0).collect();
    if pools.is_empty() {
        lines.push(vec![span("The pools are empty.", None)]);
    } else {
        lines.push(vec![
            span("POOLS   ", None),
            span("# used", Some(USED)),
            span("   ", None),
            span("= free", Some(FREE)),
            span("   ", None),
            span("- free and zero", Some(CLEAN)),
        ]);
        lines.extend(pools.into_iter().map(|node| pool(node, columns)));
    }
    lines.push(vec![]);
    let rows = jobs(status);
    if rows.is_empty() {
        lines.push(vec![span(status.none(), None)]);
        lines.extend(status.hidden().map(|text| vec![span(text, None)]));
        return lines;
    }
    let mut table = jobs_table(&rows, columns).into_iter();
    lines.extend(table.next().map(|head| vec![span(head, None)]));
    lines.extend(table.zip(&rows).map(|(text, row)| {
        let colour = row.is_disturbed().then_some(DISTURBED);
        vec![span(text, colour)]
    }));
    lines.extend(status.hidden().map(|text| vec![span(text, None)]));
    lines
}

/// The pool of a node: a bar and its numbers.
fn pool(node: &NodePool, columns: usize) -> Line {
    let head = format!("node {:<3}[", node.node);
    let mut tail = format!(
        "] {} of {} used, {} clean",
        short(node.used_bytes() + node.pinned_bytes),
        short(node.total_bytes),
        short(node.clean_bytes)
    );
    if node.bad_bytes != 0 {
        tail += &format!(", {} bad", short(node.bad_bytes));
    }
    if node.pinned_bytes != 0 {
        tail += &format!(", {} pinned", short(node.pinned_bytes));
    }
    let width = columns
        .saturating_sub(head.len() + tail.len())
        .clamp(10, 60);
    let (used, free, clean) = shares(node, width);
    vec![
        span(head, None),
        span("#".repeat(used), Some(USED)),
        span("=".repeat(free), Some(FREE)),
        span("-".repeat(clean), Some(CLEAN)),
        span(tail, None),
    ]
}

/// Used, free and clean parts of a bar. A part that is not 0 is visible.
fn shares(node: &NodePool, width: usize) -> (usize, usize, usize) {
    let total = node.total_bytes.max(1) as u128;
    let part = |bytes: u64| {
        let exact = (u128::from(bytes) * width as u128).div_ceil(total);
        (exact as usize).min(width)
    };
    let used = part(node.total_bytes - node.free_bytes);
    let soiled = part(node.free_bytes.saturating_sub(node.clean_bytes)).min(width - used);
    (used, soiled, width - used - soiled)
}

/// A launch as a row.
#[derive(Debug)]
struct Row {
    id: u64,
    user: String,
    command: String,
    processes: u64,
    strict: bool,
    page_size: u64,
    held: u64,
    peak: Option<u64>,
    made_1g: u64,
    mapped_2m: Option<u64>,
    mapped_4k: Option<u64>,
    linux: Option<u64>,
    fallbacks: u64,
    faults: u64,
    refusals: Option<u64>,
    pins: u64,
}

impl Row {
    fn is_disturbed(&self) -> bool {
        self.fallbacks != 0
            || self.linux.is_some_and(|n| n != 0)
            || self.refusals.is_some_and(|n| n != 0)
    }
}

/// The launches that have processes, by number.
fn jobs(status: &Status) -> Vec<Row> {
    let mut ids: Vec<u64> = status.contexts.iter().map(|one| one.context.job).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().map(|id| row(status, id)).collect()
}

fn row(status: &Status, id: u64) -> Row {
    let processes: Vec<_> = status
        .contexts
        .iter()
        .filter(|one| one.context.job == id)
        .collect();
    let first = &processes[0];
    let sum = |value: fn(&hpmmap_host::pool::Context) -> u64| -> u64 {
        processes.iter().map(|one| value(&one.context)).sum()
    };
    // If one value is not known, the sum is not known either.
    let known = |value: fn(&hpmmap_host::pool::Context) -> Option<u64>| -> Option<u64> {
        processes.iter().map(|one| value(&one.context)).sum()
    };
    // Only the launch has the counts of processes that have ended.
    let job = status
        .jobs
        .as_ref()
        .and_then(|jobs| jobs.iter().find(|job| job.id == id));
    Row {
        id,
        user: first.user.clone(),
        command: first.printable_command(),
        processes: processes.len() as u64,
        strict: first.context.strict,
        page_size: first.context.page_size,
        held: job.map_or_else(|| sum(|context| context.held_bytes), |job| job.held_bytes),
        peak: job.map(|job| job.peak_bytes),
        made_1g: job.map_or_else(|| sum(|one| one.entries_1g), |job| job.entries_1g),
        mapped_2m: known(|context| context.mapped_2m_bytes),
        mapped_4k: known(|context| context.mapped_4k_bytes),
        linux: known(Context::stands_in_bytes),
        fallbacks: job.map_or_else(|| sum(|one| one.fallbacks), |job| job.fallbacks.total()),
        faults: job.map_or_else(
            || sum(|one| one.faults + one.faults_kernel),
            |job| job.faults + job.faults_kernel,
        ),
        refusals: job.map(|job| job.refusals),
        pins: sum(|context| context.pins_waiting),
    }
}

fn unless_unknown(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_string())
}

/// A column, and its rank for being left out if there is no room; 0: never.
type Shown = (Column<'static>, u32, fn(&Row) -> String);

const COLUMNS: [Shown; 16] = [
    (Number("JOB"), 0, |row| row.id.to_string()),
    (Text("USER"), 2, |row| row.user.clone()),
    (Text("COMMAND"), 0, |row| row.command.clone()),
    (Number("PROCS"), 0, |row| row.processes.to_string()),
    (Text("POLICY"), 5, |row| {
        if row.strict { "strict" } else { "fallback" }.to_string()
    }),
    (Number("PAGE"), 5, |row| Size(row.page_size).to_string()),
    (Number("HELD"), 0, |row| short(row.held)),
    (Number("PEAK"), 4, |row| unless_unknown(row.peak.map(short))),
    (Number("1G MADE"), 4, |row| row.made_1g.to_string()),
    (Number("2M"), 0, |row| or_unknown(row.mapped_2m)),
    (Number("4K"), 0, |row| or_unknown(row.mapped_4k)),
    (Number("LINUX"), 1, |row| or_unknown(row.linux)),
    (Number("FALLBACKS"), 0, |row| row.fallbacks.to_string()),
    (Number("REFUSED"), 3, |row| {
        unless_unknown(row.refusals.map(|count| count.to_string()))
    }),
    (Number("FAULTS"), 0, |row| row.faults.to_string()),
    (Number("PINS"), 1, |row| row.pins.to_string()),
];

/// Head and rows, without the columns that do not fit.
fn jobs_table(rows: &[Row], columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for dispensable in (1..=6).rev() {
        let shown: Vec<&Shown> = COLUMNS.iter().filter(|one| one.1 < dispensable).collect();
        let heads: Vec<Column> = shown.iter().map(|one| one.0).collect();
        let cells = rows
            .iter()
            .map(|row| shown.iter().map(|one| (one.2)(row)).collect());
        lines = table(&heads, cells).lines().map(str::to_string).collect();
        if lines
            .iter()
            .all(|line: &String| line.chars().count() <= columns)
        {
            break;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    fn fixture() -> Fixture {
        let fixture = Fixture::new();
        fixture.module();
        fixture.node_pool(0, 4 << 30, 3 << 30, 1 << 30, 0);
        fixture.node_pool(1, 0, 0, 0, 0);
        fixture.context(7, 1234, 0);
        fixture.context(8, 1235, 0);
        fixture.write("proc/1234/comm", "lmp\u{1b}[2J\n");
        fixture
    }

    fn plain(line: &Line) -> String {
        line.iter().map(|span| span.text.as_str()).collect()
    }

    fn shown(fixture: &Fixture, columns: usize) -> Vec<String> {
        let status = Status::read(&fixture.root()).unwrap();
        view(&status, Duration::from_secs(2), columns)
            .iter()
            .map(plain)
            .collect()
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    #[test]
    fn pools_and_jobs_are_shown_as_they_are() {
        let fixture = fixture();
        fixture.job(3, 0);
        let lines = shown(&fixture, 130);
        assert_eq!(lines[0], "hpmmap 1.2.3, every 2 s; q ends");
        assert_eq!(
            lines[3],
            format!(
                "node 0  [{}{}{}] 1G of 4G used, 1G clean",
                "#".repeat(15),
                "=".repeat(30),
                "-".repeat(15)
            )
        );
        assert_eq!(
            words(&lines[5]),
            [
                "JOB",
                "USER",
                "COMMAND",
                "PROCS",
                "POLICY",
                "PAGE",
                "HELD",
                "PEAK",
                "1G",
                "MADE",
                "2M",
                "4K",
                "LINUX",
                "FALLBACKS",
                "REFUSED",
                "FAULTS",
                "PINS"
            ]
        );
        assert_eq!(
            words(&lines[6]),
            [
                "3", "root", "lmp?[2J", "2", "strict", "2M", "8M", "40M", "3", "12M", "8K", "136K",
                "4", "3", "12", "0"
            ]
        );
        assert_eq!(lines.len(), 7);
    }

    #[test]
    fn an_older_module_counts_only_for_what_is_there() {
        let fixture = fixture();
        fixture.remove("sys/kernel/hpmmap/jobs");
        let lines = shown(&fixture, 130);
        assert_eq!(
            words(lines.last().unwrap()),
            [
                "3", "root", "lmp?[2J", "2", "strict", "2M", "16M", "-", "0", "12M", "8K", "136K",
                "4", "-", "24", "0"
            ]
        );
    }

    #[test]
    fn columns_go_where_there_is_no_room() {
        let fixture = fixture();
        fixture.job(3, 0);
        for columns in [80, 70, 60] {
            let lines = shown(&fixture, columns);
            assert!(
                lines.iter().all(|line| line.chars().count() <= columns),
                "{lines:?}"
            );
            assert!(lines[5].contains("FALLBACKS") && lines[5].contains("FAULTS"));
        }
        assert!(!shown(&fixture, 80)[5].contains("POLICY"));
    }

    #[test]
    fn a_job_with_fallbacks_stands_out() {
        let fixture = fixture();
        fixture.job(3, 0);
        let status = Status::read(&fixture.root()).unwrap();
        let lines = view(&status, Duration::from_secs(1), 100);
        assert_eq!(lines.last().unwrap()[0].colour, Some(DISTURBED));
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        let fixture = Fixture::new();
        fixture.module();
        let lines = shown(&fixture, 80);
        assert_eq!(lines[2..], ["The pools are empty.", "", "No jobs."]);
    }

    #[test]
    fn a_bar_shows_what_little_there_is() {
        let pool = |free: u64, clean: u64| NodePool {
            node: 0,
            total_bytes: 1000,
            free_bytes: free,
            clean_bytes: clean,
            largest_free_bytes: 0,
            pinned_bytes: 0,
            bad_bytes: 0,
            promised_bytes: 0,
            broken_bytes: 0,
        };
        assert_eq!(shares(&pool(1000, 1000), 10), (0, 0, 10));
        assert_eq!(shares(&pool(999, 999), 10), (1, 0, 9));
        assert_eq!(shares(&pool(0, 0), 10), (10, 0, 0));
        assert_eq!(shares(&pool(500, 0), 10), (5, 5, 0));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let lines = |texts: &[&str]| -> Vec<Line> {
            texts.iter().map(|text| vec![span(*text, None)]).collect()
        };
        let fitted = |rows| -> Vec<String> {
            fit(lines(&["a", "b", "c"]), rows)
                .iter()
                .map(plain)
                .collect()
        };
        assert_eq!(fitted(4), ["a", "b", "c"]);
        assert_eq!(fitted(3), ["a", "(2 more lines)"]);
        assert_eq!(fitted(0), ["(3 more lines)"]);
    }

    #[test]
    fn q_and_control_c_end_the_screen() {
        assert!(is_end(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(is_end(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!is_end(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(!is_end(KeyCode::Enter, KeyModifiers::NONE));
    }
}
