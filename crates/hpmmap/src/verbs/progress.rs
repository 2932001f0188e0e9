//! A bar on standard error, if that is a terminal.

use hpmmap_base::size::short;
use indicatif::{ProgressBar, ProgressStyle};

/// Memory blocks done and failed.
pub struct Progress {
    bar: ProgressBar,
    block_bytes: u64,
}

impl Progress {
    /// A bar for `blocks` memory blocks.
    pub fn new(what: &'static str, blocks: u64, block_bytes: u64) -> Self {
        let style = ProgressStyle::with_template("{prefix} [{bar:32}] {msg} {eta} left")
            .expect("the template is sound")
            .progress_chars("=> ");
        let bar = ProgressBar::new(blocks).with_style(style).with_prefix(what);
        let progress = Self { bar, block_bytes };
        progress.set(0, 0);
        progress
    }

    /// Shows the progress.
    pub fn set(&self, done: usize, failed: usize) {
        let total = self.bar.length().unwrap_or(0) * self.block_bytes;
        let mut text = format!(
            "{} of {}",
            short(done as u64 * self.block_bytes),
            short(total)
        );
        if failed > 0 {
            text += &format!(", {failed} blocks failed");
        }
        self.bar.set_message(text);
        self.bar.set_position(done as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
