//! Tables and JSON on standard output, and JSON in files.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use comfy_table::{Cell, CellAlignment, Row, Table, presets};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::{escape, safe_files};

/// A report with the number of its schema, for readers that rely on the names.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// Messages are JSON, too. Set once, by the arguments.
static JSON_MESSAGES: AtomicBool = AtomicBool::new(false);

/// From here on each error and warning is one line of JSON.
pub fn messages_as_json() {
    JSON_MESSAGES.store(true, Ordering::Relaxed);
}

/// Prints an error as a line of JSON if messages are JSON; `false` if they are not.
pub fn complain_as_json(text: &str, status: u8) -> bool {
    told_as_json("error", text, Some(status))
}

/// Prints a message as a line of JSON if messages are JSON; `false` if they are not.
fn told_as_json(kind: &str, text: &str, status: Option<u8>) -> bool {
    if !JSON_MESSAGES.load(Ordering::Relaxed) {
        return false;
    }
    let mut message = serde_json::json!({ "schema": 1, kind: text });
    if let Some(status) = status {
        message["status"] = status.into();
    }
    tell(&escape::json(&message.to_string()));
    true
}

/// How a column is aligned.
#[derive(Clone, Copy)]
pub enum Column<'a> {
    /// Text, to the left.
    Text(&'a str),
    /// Numbers, to the right.
    Number(&'a str),
}

/// A plain table: a head and rows, columns two spaces apart.
pub fn table(columns: &[Column], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let cell = |column: Column, text: String| match column {
        Column::Text(_) => Cell::new(escape::line(&text)),
        Column::Number(_) => Cell::new(escape::line(&text)).set_alignment(CellAlignment::Right),
    };
    table.set_header(columns.iter().map(|&column| {
        let (Column::Text(title) | Column::Number(title)) = column;
        cell(column, title.to_string())
    }));
    for row in rows {
        table.add_row(Row::from(
            columns
                .iter()
                .zip(row)
                .map(|(&column, text)| cell(column, text)),
        ));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// Writes `value` as indented JSON into a file of a directory, which is made if it does not exist.
pub fn save_json(dir: &Path, file: &str, value: &impl Serialize) -> Result<()> {
    fs::create_dir_all(dir)
        .map_err(|error| Error::Failed(format!("cannot write to {}: {error}", dir.display())))?;
    let mut json = serde_json::to_vec_pretty(value).map_err(io::Error::from)?;
    json.push(b'\n');
    safe_files::write(&dir.join(file), json)
}

/// Prints `value` as indented JSON.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let mut out = io::stdout().lock();
    let json = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    writeln!(out, "{}", escape::json(&json))?;
    Ok(())
}

/// Prints `value`, an object, as indented JSON with the number of its schema.
pub fn print_versioned(schema: u32, value: &impl Serialize) -> Result<()> {
    print_json(&Versioned { schema, value })
}

/// The same as one line, which is flushed.
pub fn print_versioned_line(schema: u32, value: &impl Serialize) -> Result<()> {
    print_json_line(&Versioned { schema, value })
}

/// Prints `value` as one line of JSON and flushes it.
pub fn print_json_line(value: &impl Serialize) -> Result<()> {
    let mut out = io::stdout().lock();
    let json = serde_json::to_string(value).map_err(io::Error::from)?;
    writeln!(out, "{}", escape::json(&json))?;
    out.flush()?;
    Ok(())
}

/// Prints `text` and a line end. Characters that act on a terminal are made visible.
pub fn print(text: &str) -> Result<()> {
    writeln!(io::stdout().lock(), "{}", escape::lines(text))?;
    Ok(())
}

/// Prints text on standard error, with characters that act on a terminal made visible. A failure
/// is ignored: there is no place to report it.
pub fn tell(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", escape::lines(text));
}

/// Prints a line of this command on standard error.
pub fn say(text: &str) {
    tell(&format!("hpmmap: {text}"));
}

/// Prints an error on standard error.
pub fn complain(error: &Error) {
    complain_of(&error.to_string(), error.exit_code());
}

/// The same for a text that is not an [`Error`], with its exit status.
pub fn complain_of(text: &str, status: u8) {
    if !complain_as_json(text, status) {
        say(text);
    }
}

/// Prints a warning, which does not end the command, on standard error.
pub fn warn(text: &str) {
    if !told_as_json("warning", text, None) {
        say(&format!("warning: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_right_and_lines_have_no_tail() {
        let text = table(
            &[Column::Text("NAME"), Column::Number("SIZE")],
            [
                vec!["a".to_string(), "1".to_string()],
                vec!["long".to_string(), "1024".to_string()],
            ],
        );
        assert_eq!(text, "NAME  SIZE\na        1\nlong  1024");
    }
}
