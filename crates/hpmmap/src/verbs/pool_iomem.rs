//! `hpmmap pool iomem`

use std::ops::RangeInclusive;
use std::process::ExitCode;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::print;
use hpmmap_host::Root;

use crate::device;

pub fn perform() -> Result<ExitCode> {
    let ranges = device::pool_ranges(&device::open()?)?;
    let pools: Vec<_> = ranges
        .iter()
        .map(|range| range.start..=range.start + range.length - 1)
        .collect();
    let iomem = Root::default().read_bytes("proc/iomem")?;
    print(without(&String::from_utf8_lossy(&iomem), &pools)?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Parses a line of /proc/iomem: its indentation, its addresses, and its name.
fn parse(line: &str) -> Option<(&str, RangeInclusive<u64>, &str)> {
    let (addresses, name) = line.split_once(" : ")?;
    let digits = addresses.trim_start();
    let (start, end) = digits.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let indent = &addresses[..addresses.len() - digits.len()];
    Some((indent, address(start)?..=address(end)?, name))
}

/// The lines of `iomem`, each without addresses that are in `pools`.
fn without(iomem: &str, pools: &[RangeInclusive<u64>]) -> Result<String> {
    let mut kept = String::new();
    let mut hidden = true;
    for line in iomem.lines() {
        let (indent, range, name) = parse(line)
            .ok_or_else(|| Error::Failed(format!("/proc/iomem: '{line}' is not understood")))?;
        hidden &= *range.end() == 0;
        for left in subtract(&range, pools) {
            kept += &format!("{indent}{:08x}-{:08x} : {name}\n", left.start(), left.end());
        }
    }
    if hidden {
        return Err(Error::NoPermission {
            what: "to see the addresses in /proc/iomem".into(),
            hint: "only root may".into(),
        });
    }
    Ok(kept)
}

/// The parts of `range` that are in none of `holes`.
fn subtract(
    range: &RangeInclusive<u64>,
    holes: &[RangeInclusive<u64>],
) -> Vec<RangeInclusive<u64>> {
    let mut left = vec![range.clone()];
    for hole in holes {
        left = left
            .into_iter()
            .flat_map(|part| {
                let below = (part.start() < hole.start())
                    .then(|| *part.start()..=*part.end().min(&(hole.start() - 1)));
                let above = (part.end() > hole.end())
                    .then(|| *part.start().max(&(hole.end() + 1))..=*part.end());
                [below, above].into_iter().flatten()
            })
            .collect();
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    const IOMEM: &str = "\
00000000-00000fff : Reserved
00001000-0009fbff : System RAM
00100000-3fffffff : System RAM
  01000000-0220bb07 : Kernel code
  20000000-2fffffff : Crash kernel
fec00000-fec003ff : IOAPIC 0
100000000-13fffffff : System RAM
";

    #[test]
    fn pools_are_cut_out_of_the_memory_they_are_in() {
        let pools = [
            0x1000_0000..=0x17ff_ffff,
            0x1800_0000..=0x1fff_ffff,
            0x1_3000_0000..=0x1_3fff_ffff,
        ];
        assert_eq!(
            without(IOMEM, &pools).unwrap(),
            "\
00000000-00000fff : Reserved
00001000-0009fbff : System RAM
00100000-0fffffff : System RAM
20000000-3fffffff : System RAM
  01000000-0220bb07 : Kernel code
  20000000-2fffffff : Crash kernel
fec00000-fec003ff : IOAPIC 0
100000000-12fffffff : System RAM
"
        );
    }

    #[test]
    fn without_pools_it_is_what_it_was() {
        assert_eq!(without(IOMEM, &[]).unwrap(), IOMEM);
    }

    #[test]
    fn memory_that_is_all_in_the_pools_is_not_named() {
        let text = without(IOMEM, &[0x1_0000_0000..=0x1_3fff_ffff]).unwrap();
        assert!(!text.contains("100000000"));
        assert_eq!(text.lines().count(), IOMEM.lines().count() - 1);
    }

    #[test]
    fn addresses_that_are_hidden_are_no_list() {
        let error = without("00000000-00000000 : System RAM\n", &[]).unwrap_err();
        assert!(error.to_string().contains("only root may"));
    }

    #[test]
    fn a_line_that_is_something_else_is_named() {
        let error = without("System RAM\n", &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/proc/iomem: 'System RAM' is not understood"
        );
    }
}
