//! The programs of a study: their start, and the check of their results.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::plan::{Parameters, Workload};
use crate::machine::package_version;
use crate::program::in_path;

const LAMMPS_INPUT: &str = include_str!("lammps.in");
const HPCC_INPUT: &str = include_str!("hpccinf.txt");

/// Paths of the programs of bench/apps relative to the command: in the build tree, installed.
const APPS: [&str; 2] = ["bench/apps", "../lib/hpmmap/apps"];

/// Bytes of the melt for an atom, neighbour lists included.
const ATOM_BYTES: u64 = 700;
/// Memory of small problems of LAMMPS and hpcc.
const SMALL_BYTES: u64 = 64 << 20;
/// The part of a job's memory for its data; the rest is for the C library, MPI and partly used
/// pages.
const DATA_PART: f64 = 0.75;
/// Phases has little memory besides its data.
const PHASES_PART: f64 = 0.94;
/// The file that programs of bench/apps make when their start-up ends.
const APP_STARTED: &str = "started";
/// hpcc accepts its matrix product below this residual.
const DGEMM_LIMIT: f64 = 16.0;

/// A program's output about its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Hash of everything that must be the same in all runs.
    pub digest: String,
    /// Time of its main loop.
    pub loop_seconds: Option<f64>,
    /// Minor faults after its start-up, if it counts them itself.
    pub late_faults: Option<u64>,
    /// Figures of its memory, if it prints them.
    pub memory: Option<Memory>,
    /// CPU time that these figures took.
    pub aside_seconds: f64,
}

/// The stalls of a program at one kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// Number of operations.
    pub count: u64,
    /// 99 of 100 take less, in nanoseconds.
    pub p99_ns: u64,
    /// The longest stall.
    pub worst_ns: u64,
    /// Their total.
    pub total_ns: u64,
}

/// Memory of all ranks at its peak by the size of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// Resident bytes, without hugetlbfs.
    pub rss_bytes: u64,
    /// Bytes of these in transparent huge pages.
    pub thp_bytes: u64,
    /// Bytes of these mapped by large entries from files, which Linux counts HPMMAP's memory as.
    pub file_bytes: u64,
    /// Bytes of hugetlbfs.
    pub hugetlb_bytes: u64,
}

/// A program's figures of its memory after its start-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// At the first touch of each page.
    pub touches: Stalls,
    /// In calls of malloc and free.
    pub calls: Stalls,
    /// Memory by page size.
    pub pages: Pages,
}

impl Pages {
    /// Bytes in pages of 4 KB.
    pub fn small_bytes(&self) -> u64 {
        let large = self.thp_bytes.saturating_add(self.file_bytes);
        self.rss_bytes.saturating_sub(large)
    }
}

impl Memory {
    /// All its numbers.
    pub fn numbers(&self) -> [u64; 12] {
        let (touches, calls, pages) = (&self.touches, &self.calls, &self.pages);
        [
            touches.count,
            touches.p99_ns,
            touches.worst_ns,
            touches.total_ns,
            calls.count,
            calls.p99_ns,
            calls.worst_ns,
            calls.total_ns,
            pages.rss_bytes,
            pages.thp_bytes,
            pages.file_bytes,
            pages.hugetlb_bytes,
        ]
    }
}

/// The start of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Files that it needs in its directory.
    pub files: Vec<(String, String)>,
    /// A file that it makes there when its start-up ends.
    pub marker: Option<String>,
}

/// The last line of `text` that is a JSON object of the agreed form.
#[derive(Deserialize)]
struct AppLine {
    verified: bool,
    checksum: String,
    seconds: f64,
    minflt: u64,
    touches: Option<Stalls>,
    calls: Option<Stalls>,
    pages: Option<Pages>,
    #[serde(default)]
    aside_ns: u64,
}

impl Workload {
    fn is_app(self) -> bool {
        !matches!(self, Self::Lammps | Self::Hpcc)
    }

    /// Finds the program, or says what is missing.
    pub fn find(self, apps: Option<&Path>) -> Result<PathBuf, String> {
        if self.is_app() {
            let own = env::current_exe().unwrap_or_default();
            let beside = own.parent().unwrap_or(Path::new("/"));
            let places = match apps {
                Some(dir) => vec![dir.to_path_buf()],
                None => APPS.iter().map(|place| beside.join(place)).collect(),
            };
            return places
                .iter()
                .map(|dir| dir.join(self.name()))
                .find(|path| path.is_file())
                .ok_or_else(|| format!("there is no {}", places[0].join(self.name()).display()));
        }
        let (name, package) = match self {
            Self::Lammps => ("lmp", "lammps"),
            _ => ("hpcc", "hpcc"),
        };
        in_path(name).ok_or_else(|| format!("'{name}' is not installed (package {package})"))
    }

    /// The approximate memory that the job needs.
    pub fn memory_bytes(self, parameters: &Parameters) -> u64 {
        match self {
            Self::Lammps | Self::Hpcc if parameters.quick => {
                SMALL_BYTES.min(parameters.memory_bytes)
            }
            _ => parameters.memory_bytes,
        }
    }

    /// Does it make a given number of steps? The others run until their result can be verified.
    pub fn goes_in_steps(self) -> bool {
        matches!(self, Self::Lammps | Self::Minimd | Self::Miniamr)
    }

    /// Its start on this many machines; the problem on each is of the same size.
    pub fn start(self, program: &Path, parameters: &Parameters, nodes: u32) -> Start {
        let part = match self {
            Self::Phases => PHASES_PART,
            _ => DATA_PART,
        };
        let data = (parameters.memory_bytes as f64 * part) as u64;
        let mut start = Start {
            program: program.to_path_buf(),
            arguments: Vec::new(),
            files: Vec::new(),
            marker: None,
        };
        match self {
            Self::Lammps => {
                // Four atoms in each cell of the crystal.
                let cells = data as f64 / (4 * ATOM_BYTES) as f64;
                let (edge, steps) = match parameters.quick {
                    true => (20, 6),
                    false => ((cells.cbrt() as u64).max(10), 100),
                };
                let steps = parameters.iterations.unwrap_or(steps);
                start.arguments = ["-in", "in.melt", "-var", "edge"].map(String::from).into();
                let values = [&edge.to_string(), "-var", "steps", &steps.to_string()];
                start.arguments.extend(values.map(String::from));
                if nodes > 1 {
                    let nodes = ["-var", "nodes", &nodes.to_string()];
                    start.arguments.extend(nodes.map(String::from));
                }
                start
                    .files
                    .push(("in.melt".into(), LAMMPS_INPUT.to_string()));
                start.marker = Some("started.log".into());
            }
            Self::Hpcc => {
                // The matrices of the largest tests take three times N squared.
                let all = f64::from(nodes);
                let order = match parameters.quick {
                    true => (500.0 * all.sqrt()) as u64,
                    false => ((data as f64 * all / 24.0).sqrt() as u64 / 80 * 80).max(500),
                };
                let ranks = parameters.ranks * nodes;
                let rows = (1..=ranks)
                    .rfind(|p| ranks % p == 0 && p * p <= ranks)
                    .unwrap_or(1);
                let input = hpcc_input(order, rows, ranks / rows);
                start.files.push(("hpccinf.txt".into(), input));
                start.marker = Some("hpccoutf.txt".into());
            }
            _ => {
                let each = data / u64::from(parameters.ranks);
                start.arguments = [
                    "--json",
                    "--started",
                    APP_STARTED,
                    "--memory",
                    &each.to_string(),
                ]
                .map(String::from)
                .into();
                start.marker = Some(APP_STARTED.into());
                if let Some(n) = parameters.iterations.filter(|_| self.goes_in_steps()) {
                    start
                        .arguments
                        .extend(["--iterations".into(), n.to_string()]);
                }
            }
        }
        start
    }

    /// Reads the result that a run has left in its directory; its standard output is in the file
    /// `output`.
    pub fn answer(self, dir: &Path) -> Result<Answer, String> {
        let read = |name: &str| {
            let bytes = fs::read(dir.join(name)).map_err(|error| format!("{name}: {error}"))?;
            Ok::<String, String>(String::from_utf8_lossy(&bytes).into_owned())
        };
        match self {
            Self::Lammps => lammps(&read("started.log")?),
            Self::Hpcc => hpcc(&read("hpccoutf.txt")?),
            _ => app(&read("output")?),
        }
    }
}

/// Version of a program: that of its package, or a hash of the file.
pub fn version(program: &Path) -> String {
    let file = fs::canonicalize(program).unwrap_or_else(|_| program.to_path_buf());
    package_version(&file).unwrap_or_else(|| match fs::read(&file) {
        Ok(bytes) => format!("sha256:{}", hex(&Sha256::digest(bytes))),
        Err(error) => format!("unknown: {error}"),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        hash.update(words.join(" "));
        hash.update("\n");
    }
    hex(&hash.finalize())
}

/// The input for hpcc with other sizes.
fn hpcc_input(order: u64, rows: u32, columns: u32) -> String {
    let line = |line: &str| match line.split_whitespace().nth(1) {
        Some("Ns") => format!("{order}          Ns"),
        Some("Ps") => format!("{rows}            Ps"),
        Some("Qs") => format!("{columns}            Qs"),
        _ => line.to_string(),
    };
    let lines: Vec<String> = HPCC_INPUT.lines().map(line).collect();
    lines.join("\n") + "\n"
}

/// The thermodynamic output: step, temperature, energies, pressure.
fn lammps(log: &str) -> Result<Answer, String> {
    let lines: Vec<&str> = log.lines().collect();
    let head = lines
        .iter()
        .rposition(|line| line.split_whitespace().take(2).eq(["Step", "Temp"]));
    let end = lines
        .iter()
        .rposition(|line| line.starts_with("Loop time of"));
    let (head, end) = match (head, end) {
        (Some(head), Some(end)) if end > head + 1 => (head, end),
        _ => return Err("LAMMPS: no complete thermodynamic output in its log".into()),
    };
    Ok(Answer {
        digest: digest(lines[head..end].iter().copied()),
        loop_seconds: lines[end]
            .split_whitespace()
            .nth(3)
            .and_then(|word| word.parse().ok()),
        late_faults: None,
        memory: None,
        aside_seconds: 0.0,
    })
}

/// The residual checks of all tests of hpcc. DGEMM is seeded with the clock, so its residual is
/// compared with hpcc's own limit only.
fn hpcc(output: &str) -> Result<Answer, String> {
    type Kind = (&'static str, fn(&str) -> bool);
    let same: [Kind; 10] = [
        ("||Ax-b||", |line| {
            line.starts_with("||Ax-b||") && line.ends_with("PASSED")
        }),
        ("Found", |line| {
            line.starts_with("Found ") && line.contains(" errors in ")
        }),
        ("residual checks", |line| line.contains("residual checks")),
        ("PTRANS_residual", |line| {
            line.starts_with("PTRANS_residual=")
        }),
        ("MPIFFT_maxErr", |line| line.starts_with("MPIFFT_maxErr=")),
        ("MPIRandomAccess_Errors", |line| {
            line.starts_with("MPIRandomAccess") && line.contains("_Errors=")
        }),
        ("HPL_N", |line| line.starts_with("HPL_N=")),
        ("HPL_RnormI", |line| line.starts_with("HPL_RnormI=")),
        ("HPL_XnormI", |line| line.starts_with("HPL_XnormI=")),
        ("Success", |line| line.starts_with("Success=")),
    ];
    let lines = || output.lines().map(str::trim_end);
    let number = |line: &str, before: &str, after: &str| -> Option<u64> {
        let rest = line.trim_start().strip_prefix(before)?;
        rest.split_once(after)?.0.trim().parse().ok()
    };
    for line in lines() {
        let wrong = line.contains("FAILED")
            || line.starts_with("Success=0")
            || number(line, "Found ", " errors in").is_some_and(|n| n > 0)
            || number(line, "", "tests completed and failed").is_some_and(|n| n > 0)
            || line
                .strip_prefix("Node(s) with error ")
                .is_some_and(|rest| rest.trim() != "0");
        if wrong {
            return Err(format!("hpcc: {}", line.trim()));
        }
    }
    let residuals: Vec<f64> = lines()
        .filter_map(|line| line.strip_prefix("Scaled residual: "))
        .map(|rest| {
            let word = rest.split([' ', ';']).next().unwrap_or("");
            word.parse().unwrap_or(f64::INFINITY)
        })
        .collect();
    if residuals.is_empty() || residuals.iter().any(|&value| value >= DGEMM_LIMIT) {
        return Err(format!(
            "hpcc: DGEMM residuals {residuals:?}, all must be below {DGEMM_LIMIT}"
        ));
    }
    let mut found = Vec::new();
    for (name, is) in same {
        let before = found.len();
        found.extend(lines().filter(|line| is(line)));
        if found.len() == before {
            return Err(format!("hpcc: its output has no line with {name}"));
        }
    }
    Ok(Answer {
        digest: digest(found),
        loop_seconds: None,
        late_faults: None,
        memory: None,
        aside_seconds: 0.0,
    })
}

fn app(output: &str) -> Result<Answer, String> {
    let line = output
        .lines()
        .rev()
        .find(|line| line.starts_with('{'))
        .ok_or("it printed no line of JSON")?;
    let line: AppLine = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
    if !line.verified {
        return Err("it found its own result wrong".into());
    }
    let said = line.touches.zip(line.calls).zip(line.pages);
    Ok(Answer {
        digest: line.checksum,
        loop_seconds: Some(line.seconds),
        late_faults: Some(line.minflt),
        memory: said.map(|((touches, calls), pages)| Memory {
            touches,
            calls,
            pages,
        }),
        aside_seconds: line.aside_ns as f64 / 1e9,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colocation::plan::tests::parameters;

    const LOG: &str = "run 6\nStep Temp E_pair\n 0   1.44 -6.7\n 2   1.40 -6.6\n\
        Loop time of 1.234 on 1 procs for 6 steps with 32000 atoms\n";

    #[test]
    fn the_thermodynamics_of_lammps_are_its_answer() {
        let answer = lammps(LOG).unwrap();
        assert_eq!(answer.loop_seconds, Some(1.234));
        let spaced = LOG.replace("   ", " ").replace("1.234", "9.9");
        assert_eq!(lammps(&spaced).unwrap().digest, answer.digest);
        let other = LOG.replace("1.40", "1.41");
        assert_ne!(lammps(&other).unwrap().digest, answer.digest);
        assert!(lammps("Step Temp\nLoop time of 1 on\n").is_err());
    }

    const HPCC: &str = "||Ax-b||_oo/(eps*(||A||)) = 0.005 ...... PASSED\n\
        Found 0 errors in 1024 locations (passed).\n  1 tests completed and passed residual checks,\n\
        \x20 0 tests completed and failed residual checks,\nScaled residual: 0.016; node\n\
        PTRANS_residual=0\nMPIFFT_maxErr=1.1e-15\nMPIRandomAccess_Errors=0\nHPL_N=500\n\
        HPL_RnormI=1e-12\nHPL_XnormI=3\nSuccess=1\n";

    #[test]
    fn hpcc_has_to_pass_all_its_checks() {
        let answer = hpcc(HPCC).unwrap();
        let seeded = HPCC.replace("0.016", "0.021");
        assert_eq!(hpcc(&seeded).unwrap().digest, answer.digest);
        for (from, to) in [
            ("PASSED", "FAILED"),
            ("Found 0", "Found 3"),
            ("  0 tests", "  2 tests"),
            ("0.016", "17.0"),
            ("Success=1", "Success=0"),
            ("MPIFFT_maxErr", "x"),
        ] {
            assert!(hpcc(&HPCC.replace(from, to)).is_err(), "{from}");
        }
        let other = HPCC.replace("1e-12", "2e-12");
        assert_ne!(hpcc(&other).unwrap().digest, answer.digest);
    }

    #[test]
    fn an_app_says_itself_whether_it_is_right() {
        let line = r#"{"app":"minicg","ranks":1,"seconds":1.5,"verified":true,"checksum":"ab","minflt":7}"#;
        let answer = app(&format!("hello\n{line}\n")).unwrap();
        assert_eq!(
            (answer.digest.as_str(), answer.late_faults),
            ("ab", Some(7))
        );
        assert!(app(&line.replace("true", "false")).is_err());
        assert!(app("").is_err());
    }

    #[test]
    fn problems_grow_with_the_memory() {
        let mut parameters = parameters();
        let arguments = |workload: Workload, parameters: &Parameters| {
            workload
                .start(Path::new("/p"), parameters, 1)
                .arguments
                .join(" ")
        };
        assert_eq!(
            arguments(Workload::Lammps, &parameters),
            "-in in.melt -var edge 20 -var steps 6"
        );
        parameters.quick = false;
        parameters.memory_bytes = 12 << 30;
        parameters.ranks = 8;
        parameters.iterations = Some(5);
        assert_eq!(
            arguments(Workload::Lammps, &parameters),
            "-in in.melt -var edge 151 -var steps 5"
        );
        assert_eq!(
            arguments(Workload::Minimd, &parameters),
            "--json --started started --memory 1207959552 --iterations 5"
        );
        assert_eq!(
            arguments(Workload::Minicg, &parameters),
            "--json --started started --memory 1207959552"
        );
        let files = Workload::Hpcc.start(Path::new("/p"), &parameters, 1).files;
        for line in ["20000          Ns", "2            Ps", "4            Qs"] {
            assert!(files[0].1.contains(line), "{}", files[0].1);
        }
        assert_eq!(files[0].1.lines().count(), HPCC_INPUT.lines().count());
    }

    #[test]
    fn each_node_has_a_problem_of_the_same_size() {
        let mut parameters = parameters();
        parameters.ranks = 2;
        let start = |one: Workload, nodes| one.start(Path::new("/p"), &parameters, nodes);
        let lammps = start(Workload::Lammps, 4).arguments.join(" ");
        assert_eq!(lammps, "-in in.melt -var edge 20 -var steps 6 -var nodes 4");
        assert_eq!(start(Workload::Minicg, 1), start(Workload::Minicg, 4));
        let hpcc = &start(Workload::Hpcc, 4).files[0].1;
        for line in ["1000          Ns", "2            Ps", "4            Qs"] {
            assert!(hpcc.contains(line), "{hpcc}");
        }
    }
}
