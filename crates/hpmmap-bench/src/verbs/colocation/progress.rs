//! The progress of a study.

use std::io::{self, IsTerminal};
use std::time::Duration;

use hpmmap_base::output::say;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::colocation::plan::Planned;
use crate::colocation::record::Run;

/// A bar on a terminal, otherwise on request a line for each run.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    verbose: bool,
    icount: bool,
}

impl Progress {
    pub(super) fn new(done: usize, all: usize, verbose: bool, icount: bool) -> Self {
        let style = ProgressStyle::with_template("[{bar:24}] {pos}/{len} {msg}, {eta} left")
            .expect("the template is sound")
            .progress_chars("=> ");
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(all as u64).with_style(style);
            bar.set_position(done as u64);
            bar.reset_eta();
            bar.enable_steady_tick(Duration::from_secs(1));
            bar
        });
        Self {
            bar,
            verbose,
            icount,
        }
    }

    pub(super) fn say(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_string()),
            None if self.verbose => say(what),
            None => (),
        }
    }

    pub(super) fn next(&self, done: usize, all: usize, planned: &Planned) {
        let cell = planned.cell;
        match &self.bar {
            Some(_) => self.say(&cell.to_string()),
            None => self.say(&format!("{} of {all}: {cell}", done + 1)),
        }
    }

    pub(super) fn ended(&self, run: &Run, left: Option<Duration>) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
            return;
        }
        if !self.verbose {
            return;
        }
        let result = match (&run.figures, &run.error) {
            (Some(figures), _) if self.icount => {
                format!("{:.3} thousand million instructions", figures.cost(true))
            }
            (Some(figures), _) => format!("{:.2} s", figures.seconds),
            (None, Some(error)) => format!("failed: {error}"),
            (None, None) => String::new(),
        };
        let left = left.map_or(String::new(), |left| {
            format!(", about {} left", HumanDuration(left))
        });
        say(&format!("  {result}{left}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
