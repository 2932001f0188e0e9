//! Regions: memory that a program finds mapped at an address, on a NUMA node.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::size::Size;
use hpmmap_sys::{RegionRequest, uapi};

use crate::mark::elf;

/// Name of the variable that tells a program of its regions.
pub const VARIABLE: &str = "HPMMAP_REGIONS";

/// The first address of a region that names none. libhpmmap has it, too.
const FIRST: u64 = 0x1200_0000_0000;
/// End of a program's addresses (TASK_SIZE_MAX).
const END: u64 = 0x7fff_ffff_f000;
/// The most that Linux adds to an address at random: vm.mmap_rnd_bits is 32 at most.
const RANDOM: u64 = 1 << 44;
/// Room for what is placed behind a random address: the program with its first break; the dynamic
/// linker and the vDSO.
const ROOM: u64 = 4 << 30;
/// Where a position-independent program is (ELF_ET_DYN_BASE).
const PROGRAM: u64 = 0x5555_5555_4000;
/// Where mappings begin if the stack has no limit (TASK_UNMAPPED_BASE).
const LEGACY: u64 = 0x2aaa_aaaa_a000;

/// A region as it is written: `SIZE[@ADDR][,node=N][,page-size=1G]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    text: String,
    bytes: u64,
    address: Option<u64>,
    node: Option<u32>,
    /// Whether the launch has to have pages of 1 GB.
    pub gigabytes: bool,
}

impl FromStr for Region {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut parts = text.split(',');
        let place = parts.next().unwrap_or_default();
        let (size, address) = match place.split_once('@') {
            Some((size, address)) => (size, Some(parse_address(address)?)),
            None => (place, None),
        };
        let Size(bytes) = size.parse().map_err(|error| format!("'{size}': {error}"))?;
        let (mut node, mut gigabytes) = (None, false);
        for part in parts {
            match part.split_once('=') {
                Some(("node", number)) => {
                    let number = number.parse();
                    node = Some(number.map_err(|_| format!("'{part}' names no NUMA node"))?);
                }
                Some(("page-size", "1G" | "1g" | "1GiB")) => gigabytes = true,
                Some(("page-size", "2M" | "2m" | "2MiB")) => gigabytes = false,
                _ => {
                    return Err(format!(
                        "'{part}' is none of node=N, page-size=2M, page-size=1G"
                    ));
                }
            }
        }
        let region = Self {
            text: text.into(),
            bytes,
            address,
            node,
            gigabytes,
        };
        region.check()?;
        Ok(region)
    }
}

fn parse_address(text: &str) -> std::result::Result<u64, String> {
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X"));
    digits
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or_else(|| format!("'{text}' is not an address such as {FIRST:#x}"))
}

impl Region {
    fn unit(&self) -> u64 {
        match self.gigabytes {
            true => uapi::LARGE_BYTES,
            false => uapi::BLOCK_BYTES,
        }
    }

    fn check(&self) -> std::result::Result<(), String> {
        let unit = self.unit();
        if self.bytes == 0 || self.bytes % unit != 0 {
            return Err(format!(
                "the size {} is not a multiple of {}",
                Size(self.bytes),
                Size(unit)
            ));
        }
        let start = self.address.unwrap_or(FIRST);
        if start == 0 || start % unit != 0 {
            let (below, above) = (
                start - start % unit,
                (start / unit + 1).saturating_mul(unit),
            );
            return Err(match below {
                0 => format!(
                    "the address {start:#x} is not a multiple of {}: use {above:#x}",
                    Size(unit)
                ),
                _ => format!(
                    "the address {start:#x} is not a multiple of {}: use {below:#x} or {above:#x}",
                    Size(unit)
                ),
            });
        }
        match start.checked_add(self.bytes) {
            Some(end) if end <= END => Ok(()),
            _ => Err(format!(
                "{} from {start:#x} on do not fit below {END:#x}",
                Size(self.bytes)
            )),
        }
    }
}

/// Addresses that are taken, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Taken {
    start: u64,
    end: u64,
    what: String,
}

impl Taken {
    fn overlaps(&self, start: u64, bytes: u64) -> bool {
        start < self.end && self.start < start + bytes
    }
}

/// Where Linux may place what execve maps: its choice is random. `stack`: RLIMIT_STACK, or none.
fn places_of_linux(stack: Option<u64>) -> Vec<Taken> {
    let taken = |start, end, what: &str| Taken {
        start,
        end,
        what: what.into(),
    };
    // mmap_base() leaves this below the end of the address space, and a random part.
    let gap = stack
        .unwrap_or(0)
        .clamp(128 << 20, END / 6 * 5)
        .saturating_add(1 << 35);
    let mut all = vec![
        taken(
            PROGRAM,
            PROGRAM + RANDOM + ROOM,
            "Linux may place the program at",
        ),
        taken(
            END.saturating_sub(gap + RANDOM + ROOM),
            END,
            "Linux may place the stack, the dynamic linker and the vDSO at",
        ),
    ];
    if stack.is_none() {
        let what = "without a limit of the stack (ulimit -s) Linux may place the dynamic linker at";
        all.push(taken(LEGACY, LEGACY + RANDOM + ROOM, what));
    }
    all
}

/// The addresses that a program is linked to, if it is not position-independent.
fn places_of_program(command: &OsStr) -> Vec<Taken> {
    let Some(path) = find_program(command, env::var_os("PATH").as_deref()) else {
        return Vec::new();
    };
    // execve reports a file that cannot be read.
    let fixed = File::open(&path).map(|file| elf::fixed_segments(&file));
    let fixed = fixed.unwrap_or_default().into_iter();
    fixed
        .map(|(start, end)| Taken {
            start,
            end,
            what: format!("{} is linked to", path.display()),
        })
        .collect()
}

fn find_program(command: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(Path::new(command).into());
    }
    env::split_paths(path?)
        .map(|dir| dir.join(command))
        .find(|file| file.is_file())
}

/// The regions with their addresses, in the order of the arguments. `stack`: RLIMIT_STACK, or
/// `None` without a limit.
pub fn place(
    regions: &[Region],
    command: &OsStr,
    stack: Option<u64>,
) -> Result<Vec<RegionRequest>> {
    let most = uapi::LAUNCH_MAX_REGIONS as usize;
    if regions.len() > most {
        return Err(Error::Usage(format!(
            "--region is given {} times, {most} at most are possible",
            regions.len()
        )));
    }
    let mut taken = places_of_linux(stack);
    taken.extend(places_of_program(command));
    let mut starts = vec![0; regions.len()];
    // First those that have an address.
    let mut order: Vec<usize> = (0..regions.len()).collect();
    order.sort_by_key(|&i| regions[i].address.is_none());
    for i in order {
        let region = &regions[i];
        let start = match region.address {
            Some(start) => start,
            None => free(&taken, region)?,
        };
        if let Some(other) = taken.iter().find(|one| one.overlaps(start, region.bytes)) {
            return Err(Error::Usage(format!(
                "--region {}: {} {:#x}-{:#x}: use another address, or none",
                region.text, other.what, other.start, other.end
            )));
        }
        starts[i] = start;
        taken.push(Taken {
            start,
            end: start + region.bytes,
            what: format!("--region {} has", region.text),
        });
    }
    let request = |(region, start): (&Region, u64)| RegionRequest {
        start,
        bytes: region.bytes,
        node: region.node,
    };
    Ok(regions.iter().zip(starts).map(request).collect())
}

/// The lowest free address from `FIRST` on.
fn free(taken: &[Taken], region: &Region) -> Result<u64> {
    let mut start = FIRST;
    loop {
        match start.checked_add(region.bytes) {
            Some(end) if end <= END => (),
            _ => {
                return Err(Error::Usage(format!(
                    "--region {}: {} from {FIRST:#x} on are not free: name an address",
                    region.text,
                    Size(region.bytes)
                )));
            }
        }
        match taken.iter().find(|one| one.overlaps(start, region.bytes)) {
            Some(other) => start = other.end.next_multiple_of(region.unit()),
            None => return Ok(start),
        }
    }
}

/// The value of the variable: `0x120000000000+0x40000000@1,...`.
pub fn variable(regions: &[RegionRequest]) -> String {
    let text = |region: &RegionRequest| {
        let node = region.node.map(|node| format!("@{node}"));
        format!(
            "{:#x}+{:#x}{}",
            region.start,
            region.bytes,
            node.unwrap_or_default()
        )
    };
    regions.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn placed(texts: &[&str]) -> std::result::Result<String, String> {
        let regions: std::result::Result<Vec<Region>, String> =
            texts.iter().map(|text| text.parse()).collect();
        place(&regions?, OsStr::new("./no-such-program"), Some(8 * MB))
            .map(|regions| variable(&regions))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_region_is_a_size_and_a_place() {
        let region: Region = "1G@0x40000000,node=1,page-size=1G".parse().unwrap();
        assert_eq!((region.bytes, region.address), (1 << 30, Some(1 << 30)));
        assert_eq!((region.node, region.gigabytes), (Some(1), true));
        let plain: Region = "4m".parse().unwrap();
        assert_eq!(
            (plain.bytes, plain.address, plain.node),
            (4 * MB, None, None)
        );
        for (text, why) in [
            (
                "",
                "'': expected bytes, or a number with K, M, G or T, such as 4G, 4GiB or 1.5G",
            ),
            ("0", "the size 0 is not a multiple of 2M"),
            ("3M", "the size 3M is not a multiple of 2M"),
            ("2M,page-size=1G", "the size 2M is not a multiple of 1G"),
            ("2M@4096", "'4096' is not an address such as 0x120000000000"),
            ("2M@0x+1", "'0x+1' is not an address such as 0x120000000000"),
            (
                "2M@0x0",
                "the address 0x0 is not a multiple of 2M: use 0x200000",
            ),
            (
                "2M@0x300000",
                "the address 0x300000 is not a multiple of 2M: use 0x200000 or 0x400000",
            ),
            (
                "1G@0x40200000,page-size=1G",
                "the address 0x40200000 is not a multiple of 1G: use 0x40000000 or 0x80000000",
            ),
            (
                "2M@0x7fffffe00000",
                "2M from 0x7fffffe00000 on do not fit below 0x7ffffffff000",
            ),
            ("2M,node=x", "'node=x' names no NUMA node"),
            (
                "2M,nodes=1",
                "'nodes=1' is none of node=N, page-size=2M, page-size=1G",
            ),
        ] {
            assert_eq!(text.parse::<Region>().unwrap_err(), why, "{text}");
        }
    }

    #[test]
    fn regions_get_addresses_in_order_around_those_that_have_one() {
        assert_eq!(
            placed(&[
                "2M,node=0",
                "2M@0x120000200000",
                "4M,node=1",
                "1G,page-size=1G"
            ])
            .unwrap(),
            "0x120000000000+0x200000@0,0x120000200000+0x200000,0x120000400000+0x400000@1,\
             0x120040000000+0x40000000"
        );
        assert_eq!(placed(&[]).unwrap(), "");
        assert!(placed(&["70T"]).unwrap_err().contains("are not free"));
        assert!(
            placed(&["2M"; 17])
                .unwrap_err()
                .contains("17 times, 16 at most")
        );
    }

    #[test]
    fn what_is_taken_is_named() {
        assert_eq!(
            placed(&["4M@0x40000000", "2M@0x40200000"]).unwrap_err(),
            "--region 2M@0x40200000: --region 4M@0x40000000 has 0x40000000-0x40400000: use another \
             address, or none"
        );
        let wrong = placed(&["2M@0x555555600000"]).unwrap_err();
        assert!(
            wrong.contains("Linux may place the program at 0x555555554000-"),
            "{wrong}"
        );
        let wrong = placed(&["2M@0x7fff00000000"]).unwrap_err();
        assert!(
            wrong.contains("the stack, the dynamic linker and the vDSO"),
            "{wrong}"
        );
        assert!(placed(&["2M@0x680000000000"]).is_ok());
        let region: Region = "2M@0x2aaaaac00000".parse().unwrap();
        assert!(place(std::slice::from_ref(&region), OsStr::new("x"), Some(8 * MB)).is_ok());
        let wrong = place(&[region], OsStr::new("x"), None).unwrap_err();
        assert!(wrong.to_string().contains("ulimit -s"), "{wrong}");
    }

    #[test]
    fn a_program_is_looked_for_as_execvp_does() {
        let path = Some(OsStr::new("/nowhere:/bin"));
        assert_eq!(find_program(OsStr::new("sh"), path), Some("/bin/sh".into()));
        assert_eq!(find_program(OsStr::new("no-such-program"), path), None);
        assert_eq!(find_program(OsStr::new("./x"), path), Some("./x".into()));
    }
}
