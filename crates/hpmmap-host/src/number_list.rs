//! The kernel's list format for sets of numbers: `0,2-3`.

use std::fmt::Write;

/// An error: the text is not a list of numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a list of numbers such as 0,2-3")]
pub struct ListError(pub String);

/// Most members a parsed list may have.
const MAX_MEMBERS: usize = 65536;

/// Parses `0,2-3` into its members, ascending and each once.
pub fn parse(text: &str) -> Result<Vec<u32>, ListError> {
    let error = || ListError(text.to_string());
    let number = |part: &str| -> Result<u32, ListError> {
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return Err(error());
        }
        part.parse().map_err(|_| error())
    };
    let mut members = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last || members.len() + (last - first) as usize >= MAX_MEMBERS {
            return Err(error());
        }
        members.extend(first..=last);
    }
    members.sort_unstable();
    members.dedup();
    Ok(members)
}

/// Writes numbers (in any order) as `0,2-3`.
pub fn format<T: Into<u64> + Copy>(members: &[T]) -> String {
    let mut sorted: Vec<u64> = members.iter().map(|&m| m.into()).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut text = String::new();
    for run in sorted.chunk_by(|a, b| a + 1 == *b) {
        if !text.is_empty() {
            text.push(',');
        }
        let (first, last) = (run[0], run[run.len() - 1]);
        let written = if first == last {
            write!(text, "{first}")
        } else {
            write!(text, "{first}-{last}")
        };
        written.expect("writing to a String cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_numbers_and_ranges() {
        assert_eq!(parse("0"), Ok(vec![0]));
        assert_eq!(parse("0,2-3"), Ok(vec![0, 2, 3]));
        assert_eq!(parse("3,1-2,2"), Ok(vec![1, 2, 3]));
    }

    #[test]
    fn what_is_no_list_is_named() {
        for bad in [
            "",
            ",",
            "1-",
            "-1",
            "3-2",
            "a",
            "1,,2",
            "0-4294967295",
            "+1",
        ] {
            assert_eq!(parse(bad), Err(ListError(bad.to_string())), "{bad:?}");
        }
    }

    #[test]
    fn format_joins_neighbours() {
        assert_eq!(format::<u32>(&[]), "");
        assert_eq!(format(&[3u32, 1, 2, 7]), "1-3,7");
    }
}
