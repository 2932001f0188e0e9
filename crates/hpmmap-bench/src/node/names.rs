//! Names of hosts and users, which the file to send must not have.

use std::env;

use nix::unistd::gethostname;

/// Names in the order in which they are replaced, each with its replacement.
pub struct Names(Vec<(String, &'static str)>);

impl Names {
    /// Those of this host and of the caller.
    pub fn own() -> Self {
        let host = gethostname().unwrap_or_default();
        let host = host.to_string_lossy().into_owned();
        let short = host.split('.').next().unwrap_or_default().to_string();
        let of = |name| env::var(name).unwrap_or_default();
        let mut names = vec![(of("HOME"), "HOME"), (host, "HOST"), (short, "HOST")];
        names.extend(["USER", "LOGNAME", "SUDO_USER"].map(|name| (of(name), "USER")));
        Self(names)
    }

    /// The text without them, and without the marks `[HOST:PID]` of Open MPI's lines.
    pub fn without(&self, text: &str) -> String {
        let mut text = without_marks(text);
        for (name, with) in &self.0 {
            // That of root's directory may be `/`.
            if name.len() > 1 {
                text = replaced(&text, name, with);
            }
        }
        text
    }
}

/// Replaces whole words; of a host also the domain after it.
fn replaced(text: &str, name: &str, with: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let is_part =
            before.ends_with(char::is_alphanumeric) || after.starts_with(char::is_alphanumeric);
        result += before;
        result += if is_part { name } else { with };
        rest = after;
        while with == "HOST"
            && !is_part
            && let Some(label) = rest.strip_prefix('.')
            && label.starts_with(char::is_alphanumeric)
        {
            rest = label.trim_start_matches(|c: char| c.is_alphanumeric() || c == '-');
        }
    }
    result + rest
}

fn without_marks(text: &str) -> String {
    let is_mark = |inside: &str| {
        let mut words = inside.split(':');
        let name = words.next().unwrap_or_default();
        let numbers: Vec<&str> = words.collect();
        let is_number = |word: &&str| word.parse::<u64>().is_ok();
        !name.is_empty()
            && !name.contains(char::is_whitespace)
            && !numbers.is_empty()
            && numbers.iter().all(is_number)
    };
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        result += before;
        match after.split_once(']') {
            Some((inside, end)) if is_mark(inside) => rest = end.trim_start(),
            _ => {
                result.push('[');
                rest = after;
            }
        }
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_neither_host_nor_user() {
        let names = Names(vec![
            ("/home/ann".into(), "HOME"),
            ("n1.site.org".into(), "HOST"),
            ("n1".into(), "HOST"),
            ("ann".into(), "USER"),
            ("/".into(), "HOME"),
            (String::new(), "USER"),
        ]);
        for (text, without) in [
            (
                "exit status: 1: [n1:4711] PMIX ERROR",
                "exit status: 1: PMIX ERROR",
            ),
            ("[n1.site.org:12:0:13] Caught signal 11", "Caught signal 11"),
            ("a[3] and [n1] of [x y:3]", "a[3] and [HOST] of [x y:3]"),
            ("n1.site.org, n1.other.org. n1.", "HOST, HOST. HOST."),
            ("n12 annual n1-ib", "n12 annual HOST-ib"),
            (
                "/home/ann/bin/minicg: /scratch/ann",
                "HOME/bin/minicg: /scratch/USER",
            ),
            ("[", "["),
        ] {
            assert_eq!(names.without(text), without);
        }
        Names::own().without("[");
    }
}
