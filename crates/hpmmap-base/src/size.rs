//! Sizes: `4G` on the command line and in messages.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// A number of bytes. It prints exactly, in the form that is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    /// Parses a number of bytes, or a number with a binary unit: `4G`, `4g`, `4GB`, `4GiB`,
    /// `1.5G`. A fraction of a byte is dropped.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let upper = text.to_ascii_uppercase();
        let bare = upper.strip_suffix("IB").or(upper.strip_suffix('B'));
        let bare = bare.unwrap_or(&upper);
        let unit = UNITS.iter().find(|(letter, _)| bare.ends_with(*letter));
        let (number, shift) = match unit {
            Some((_, shift)) => (&bare[..bare.len() - 1], *shift),
            // "1iB" and "1B" have no unit.
            None => (upper.as_str(), 0),
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let are_digits =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !are_digits(whole)
            || !are_digits(part)
            || part.len() > 9
            || (shift == 0 && number.contains('.'))
        {
            return Err(
                "expected bytes, or a number with K, M, G or T, such as 4G, 4GiB or 1.5G".into(),
            );
        }
        let scale = 10u128.pow(part.len() as u32);
        let part: u128 = part.parse().unwrap_or(0);
        whole
            .parse::<u64>()
            .ok()
            .and_then(|n| u64::try_from((u128::from(n) << shift) + ((part << shift) / scale)).ok())
            .map(Size)
            .ok_or_else(|| "larger than any memory".into())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (letter, shift) in UNITS {
            if self.0 != 0 && self.0 % (1 << shift) == 0 {
                return write!(f, "{}{letter}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A size for tables: at most one decimal, rounded down.
pub fn short(bytes: u64) -> String {
    for (letter, shift) in UNITS {
        let unit = 1u64 << shift;
        if bytes >= unit {
            let tenths = (u128::from(bytes) * 10) >> shift;
            return if tenths % 10 == 0 {
                format!("{}{letter}", tenths / 10)
            } else {
                format!("{}.{}{letter}", tenths / 10, tenths % 10)
            };
        }
    }
    bytes.to_string()
}

/// `1 memory block`, `2 memory blocks`.
pub fn memory_blocks(count: usize) -> String {
    counted(count, "memory block")
}

/// `1 process`, `2 processes`.
pub fn counted(count: usize, what: &str) -> String {
    let plural = match (count, what.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{count} {what}{plural}")
}

/// `size` as a whole number (at least one) of `unit`s, which `unit_name`
/// names in the message.
pub fn multiple_of(size: Size, unit: u64, unit_name: &str) -> Result<u64> {
    if size.0 != 0 && size.0 % unit == 0 {
        return Ok(size.0 / unit);
    }
    // So few bytes are a forgotten unit.
    if (1..1024).contains(&size.0) {
        return Err(Error::Usage(format!(
            "{size} is {size} bytes: did you mean {size}G?"
        )));
    }
    let below = Size(size.0 - size.0 % unit);
    let nearest = match below.0.checked_add(unit) {
        Some(above) if below.0 > 0 => format!("{below} or {}", Size(above)),
        Some(above) => Size(above).to_string(),
        None => below.to_string(),
    };
    Err(Error::Usage(format!(
        "{size} is not a multiple of {unit_name} {}: use {nearest}",
        Size(unit)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_binary_and_of_either_case() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1K", 1 << 10),
            ("3m", 3 << 20),
            ("4G", 4 << 30),
            ("2t", 2 << 40),
            ("1GiB", 1 << 30),
            ("16GB", 16 << 30),
            ("16gb", 16 << 30),
            ("1g", 1 << 30),
            ("1gib", 1 << 30),
            ("1.5G", 3 << 29),
            ("0.25GiB", 1 << 28),
            ("1.0000001K", 1024),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for bad in [
            "",
            "G",
            "-1",
            "+1",
            "1.5",
            "1.G",
            ".5G",
            "1.5.0G",
            "1iB",
            "GiB",
            "1B",
            "GB",
            "4 G",
            "0x10",
            "1é",
            "1éiB",
            "1.0000000001G",
        ] {
            assert!(bad.parse::<Size>().is_err(), "{bad:?}");
        }
        for huge in ["18446744073709551616", "16777216T"] {
            assert_eq!(
                huge.parse::<Size>(),
                Err("larger than any memory".to_string())
            );
        }
    }

    #[test]
    fn printing_is_exact_and_parses_back() {
        for bytes in [
            0,
            1,
            1023,
            1 << 10,
            1152 << 20,
            4 << 30,
            (4 << 30) + 1,
            3 << 40,
        ] {
            let text = Size(bytes).to_string();
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        assert_eq!(Size(1152 << 20).to_string(), "1152M");
    }

    #[test]
    fn short_sizes_round_down() {
        assert_eq!(short(0), "0");
        assert_eq!(short(1023), "1023");
        assert_eq!(short(1 << 30), "1G");
        assert_eq!(short((1 << 30) + (512 << 20)), "1.5G");
        assert_eq!(short((1 << 30) - 1), "1023.9M");
        assert_eq!(short(u64::MAX), "16777215.9T");
    }

    #[test]
    fn one_of_something_is_singular() {
        assert_eq!(counted(1, "process"), "1 process");
        assert_eq!(counted(0, "process"), "0 processes");
        assert_eq!(memory_blocks(2), "2 memory blocks");
    }

    #[test]
    fn a_wrong_multiple_names_the_nearest_right_ones() {
        let block = 128 << 20;
        assert_eq!(multiple_of(Size(4 << 30), block, "x").unwrap(), 32);
        let message = |bytes| {
            let error = multiple_of(Size(bytes), block, "the memory block size").unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        assert_eq!(
            message(200 << 20),
            "200M is not a multiple of the memory block size 128M: use 128M or 256M"
        );
        assert!(message(1 << 20).ends_with(": use 128M"));
        assert!(message(0).ends_with(": use 128M"));
        assert_eq!(message(16), "16 is 16 bytes: did you mean 16G?");
        assert!(
            message(u64::MAX).ends_with("use 17592186044288M"),
            "{}",
            message(u64::MAX)
        );
    }
}
