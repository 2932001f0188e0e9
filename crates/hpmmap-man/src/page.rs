//! One manual page in roff, from the definition of a command and from [`MORE`].

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use hpmmap_base::VERSION;
use hpmmap_base::error::Result;

use crate::more::{Example, FILES, MORE};

/// Verbs for the administrator are in section 8.
pub fn section(page: &str) -> &'static str {
    match page {
        "hpmmap-pool" => "8",
        "hpmmap-partition" => "8",
        page if page.starts_with("hpmmap-pool-") || page.starts_with("hpmmap-partition-") => "8",
        _ => "1",
    }
}

pub fn title(page: &str, section: &str, date: &str) -> String {
    let page = page.to_uppercase();
    format!(".TH {page} {section} {date} \"hpmmap {VERSION}\" \"HPMMAP\"\n")
}

/// Escapes text for roff.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

/// The width of a line of text in a page.
const WIDTH: usize = 78;

fn fill(line: &str, out: &mut String) {
    let mut length = 0;
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        if length != 0 && length + 1 + word.len() > WIDTH {
            out.push('\n');
            length = 0;
        }
        if length != 0 {
            out.push(' ');
            length += 1;
        } else if word.starts_with(['.', '\'']) {
            out.push_str("\\&");
        }
        out.push_str(word);
        length += word.len();
    }
    out.push('\n');
}

/// Tidies the output of clap_mangen: no long lines, no blanks at ends of lines, no breaks beside
/// spaces, and the right sections in references.
fn tidied(roff: &str, pages: &[String]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in roff.lines().map(str::trim_end) {
        let last = lines.last().map_or(".", String::as_str);
        // An empty line ends a paragraph of an option's text.
        let line = match line {
            "" if !last.starts_with('.') => ".sp",
            "" => continue,
            line => line,
        };
        if line == ".br" && matches!(last, ".sp" | ".br") {
            continue;
        }
        if line.starts_with('.') && matches!((last, line), (".sp", _) | (".br", ".sp")) {
            lines.pop();
        }
        lines.push(line.to_string());
    }
    let mut out = String::new();
    let mut is_tag = false;
    for line in &lines {
        if line.starts_with('.') || line.starts_with('\'') || is_tag {
            out.push_str(line);
            out.push('\n');
        } else {
            fill(line, &mut out);
        }
        is_tag = line == ".TP";
    }
    for page in pages.iter().filter(|page| section(page) != "1") {
        let name = page.replace('-', "\\-");
        out = out.replace(&format!("{name}(1)"), &format!("{name}({})", section(page)));
    }
    out
}

fn value_names(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    names.join(" ")
}

/// An option with its values, as a user types it.
fn typed(arg: &Arg) -> String {
    let mut names = Vec::new();
    names.extend(arg.get_short().map(|short| format!("-{short}")));
    names.extend(arg.get_long().map(|long| format!("--{long}")));
    let mut text = format!("\\fB{}\\fR", escaped(&names.join("|")));
    let values = value_names(arg);
    if arg.get_action().takes_values() && !values.is_empty() {
        let value = format!("\\fI{}\\fR", escaped(&values));
        let may_lack = arg.get_num_args().is_some_and(|n| n.min_values() == 0);
        text += &match may_lack {
            true => format!(" [{value}]"),
            false => format!(" {value}"),
        };
    }
    text
}

/// The SYNOPSIS: the command with its options and their values.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut words = vec![format!("\\fB{}\\fR", escaped(name))];
    if command.has_subcommands() {
        words.push("\\fIVERB\\fR [\\fIOPTION\\fR ...]".into());
    }
    let is_shown = |arg: &&Arg| {
        let help = matches!(arg.get_id().as_str(), "help" | "version");
        !help && !arg.is_hide_set() && !arg.is_positional()
    };
    let groups = command.get_groups().filter(|group| group.is_required_set());
    let one_of: Vec<_> = groups.flat_map(|group| group.get_args().cloned()).collect();
    let of_group = |arg: &&Arg| one_of.contains(arg.get_id());
    let options: Vec<&Arg> = command.get_arguments().filter(is_shown).collect();
    if !one_of.is_empty() {
        let group = options.iter().copied().filter(of_group).map(typed);
        words.push(format!("{{{}}}", group.collect::<Vec<_>>().join(" | ")));
    }
    for arg in options.iter().copied().filter(|arg| !of_group(arg)) {
        let again = match arg.get_action() {
            ArgAction::Append => " ...",
            _ => "",
        };
        words.push(match arg.is_required_set() {
            true => typed(arg),
            false => format!("[{}]{again}", typed(arg)),
        });
    }
    for arg in command.get_positionals().filter(|arg| !arg.is_hide_set()) {
        let name = value_names(arg);
        let name = format!("\\fI{}\\fR", escaped(&name));
        words.push(match (arg.is_trailing_var_arg_set(), arg.get_action()) {
            (true, _) => format!("[\\-\\-] {name} [\\fIARGUMENT\\fR ...]"),
            (_, ArgAction::Append) => format!("{name} ..."),
            _ if arg.is_required_set() => name,
            _ => format!("[{name}]"),
        });
    }
    format!(".SH SYNOPSIS\n{}\n", words.join("\n"))
}

fn examples(examples: &[Example]) -> String {
    let mut out = ".SH EXAMPLES\n".to_string();
    for (n, (what, lines)) in examples.iter().enumerate() {
        if n != 0 {
            out += ".PP\n";
        }
        out += &format!("{}\n.PP\n.RS 4\n.nf\n", escaped(what));
        for line in *lines {
            let _ = writeln!(out, "{}", escaped(line));
        }
        out += ".fi\n.RE\n";
    }
    out
}

fn files(paths: &[&str]) -> String {
    let mut out = ".SH FILES\n".to_string();
    for (path, what) in FILES.iter().filter(|(path, _)| paths.contains(path)) {
        let _ = writeln!(out, ".TP\n.I {}\n{}", escaped(path), escaped(what));
    }
    out
}

fn see_also(pages: &[&str]) -> String {
    let mut out = ".SH SEE ALSO\n".to_string();
    for (n, page) in pages.iter().enumerate() {
        let (name, section) = page.split_once('(').unwrap_or((page, "1)"));
        let comma = if n + 1 < pages.len() { "," } else { "" };
        let _ = writeln!(out, ".BR {} ({section}{comma}", escaped(name));
    }
    out
}

pub fn page(name: &str, command: Command, pages: &[String], date: &str) -> Result<String> {
    let has_verbs = command.has_subcommands();
    let has_more = command.get_after_help().is_some();
    let synopsis = synopsis(&command);
    let man = Man::new(command).section(section(name));
    let mut roff = Vec::new();
    man.render_name_section(&mut roff)?;
    roff.extend_from_slice(synopsis.as_bytes());
    man.render_description_section(&mut roff)?;
    man.render_options_section(&mut roff)?;
    if has_verbs {
        man.render_subcommands_section(&mut roff)?;
    }
    if has_more {
        man.render_extra_section(&mut roff)?;
    }
    let roff = String::from_utf8_lossy(&roff);
    // clap_mangen repeats this definition in each piece.
    let roff: Vec<&str> = roff
        .lines()
        .filter(|line| !line.contains("\\n(.g .ds Aq") && !line.starts_with(".el .ds Aq"))
        .collect();
    let quote = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";
    let mut out = title(name, section(name), date) + quote + &tidied(&roff.join("\n"), pages);
    if let Some(more) = MORE.iter().find(|more| more.page == name) {
        out += &(examples(more.examples) + &files(more.files) + &see_also(more.see));
    }
    Ok(out)
}
