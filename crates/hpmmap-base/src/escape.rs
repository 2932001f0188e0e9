//! Makes text from others harmless for the place where it is printed.
//!
//! A program may give itself any name, and a file may have any contents. On a terminal control
//! characters move and erase text, and some characters of Unicode change the order of others. XML
//! does not allow control characters at all. A spreadsheet executes fields that begin like
//! formulas.

use std::borrow::Cow;
use std::fmt::Write;

/// Does the character have an effect other than being shown?
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}')
}

fn replaced(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_bad = |c: char| acts(c) && !stays(c);
    if !text.chars().any(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' if is_bad(c) => out.push_str("\\n"),
            '\t' if is_bad(c) => out.push_str("\\t"),
            _ if is_bad(c) && (c as u32) < 0x100 => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            _ if is_bad(c) => {
                let _ = write!(out, "\\u{{{:x}}}", c as u32);
            }
            _ => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// For one line: a name, a cell of a table.
pub fn line(text: &str) -> Cow<'_, str> {
    replaced(text, |_| false)
}

/// For a terminal; line ends are kept.
pub fn lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| c == '\n' || c == '\t')
}

/// For the text and the attributes of HTML and XML.
pub fn xml(text: &str) -> String {
    line(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// For a terminal that shows JSON. A character with an effect can only be in a string, and gets
/// JSON's own escape there.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_bad = |c: char| acts(c) && c != '\n';
    if !text.chars().any(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if !is_bad(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    Cow::Owned(out)
}

/// For a field of CSV that holds text.
pub fn csv(text: &str) -> String {
    let text = line(text);
    let guard = if text.starts_with(['=', '+', '-', '@']) {
        "'"
    } else {
        ""
    };
    if text.contains([',', '"']) {
        format!("\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        format!("{guard}{text}")
    }
}

/// For the value of a label of Prometheus.
pub fn label(text: &str) -> String {
    // For a line end the format has an escape; the other characters get backslashes.
    let kept = replaced(text, |c| c == '\n');
    let kept = match &kept {
        Cow::Borrowed(text) => text.replace('\\', "\\\\"),
        Cow::Owned(_) => text
            .chars()
            .map(|c| match c {
                '\\' => "\\\\".to_string(),
                '\n' => "\n".to_string(),
                c => line(c.encode_utf8(&mut [0; 4])).replace('\\', "\\\\"),
            })
            .collect(),
    };
    kept.replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NASTY: &str = "\x1b]0;x\x07\x1b[2J\u{9b}31m\r\nspoof\u{202e}\u{feff}\0\u{7f}";

    #[test]
    fn nothing_that_acts_gets_through() {
        for text in [
            line(NASTY).into_owned(),
            xml(NASTY),
            csv(NASTY),
            label(NASTY),
        ] {
            assert!(!text.chars().any(acts), "{text:?}");
        }
        assert_eq!(lines("a\n\tb\x1b[2J"), "a\n\tb\\x1b[2J");
        assert_eq!(line("a\nb\u{202e}"), "a\\nb\\u{202e}");
        assert_eq!(line("plain ü"), "plain ü");
    }

    #[test]
    fn json_stays_what_it_is() {
        let text = serde_json::to_string(NASTY).unwrap();
        let shown = json(&text);
        assert!(!shown.chars().any(acts), "{shown:?}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), NASTY);
    }

    #[test]
    fn each_output_has_its_own_rules() {
        assert_eq!(
            xml("<a href='\"'>&"),
            "&lt;a href=&#39;&quot;&#39;&gt;&amp;"
        );
        for (text, field) in [
            ("plain", "plain"),
            ("a,\"b", "\"a,\"\"b\""),
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("+1,2", "\"'+1,2\""),
            ("-x", "'-x"),
            ("@x", "'@x"),
            ("\tx", "\\tx"),
        ] {
            assert_eq!(csv(text), field);
        }
        assert_eq!(label("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
        assert_eq!(label("a\\\x1b"), "a\\\\\\\\x1b");
    }
}
