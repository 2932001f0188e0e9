//! The name of a report, with fields that differ between the processes of a launch.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use hpmmap_base::error::{Error, Result};
use nix::unistd::gethostname;

/// Variables with the rank of a process, of MPI libraries and Slurm.
const RANK: [&str; 6] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "PALS_RANKID",
    "SLURM_PROCID",
];
/// Variables with the number of a batch job.
const JOB: [&str; 6] = [
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "OAR_JOB_ID",
    "JOB_ID",
];

/// Values for the fields, of this process.
pub struct Known<'a> {
    pub host: Option<OsString>,
    pub pid: u32,
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
}

/// Replaces %h, %r, %p, %j and %% in `name`, for this process.
pub fn expand(name: &Path) -> Result<PathBuf> {
    let known = Known {
        host: gethostname().ok(),
        pid: std::process::id(),
        variable: &|name| std::env::var_os(name),
    };
    expand_with(name, &known)
}

/// Is this process rank 0, or not a rank? Then it prints messages that are the same for all ranks.
pub fn is_first_rank() -> bool {
    let mut ranks = RANK.iter().filter_map(std::env::var_os);
    ranks.next().is_none_or(|rank| rank == "0")
}

fn expand_with(name: &Path, known: &Known) -> Result<PathBuf> {
    let wrong = |why: String| Error::Usage(format!("--report {}: {why}", name.display()));
    let mut out = Vec::new();
    let mut bytes = name.as_os_str().as_bytes().iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (what, value) = match bytes.next() {
            Some(b'%') => ("", Some("%".into())),
            Some(b'h') => ("the name of this host", known.host.clone()),
            Some(b'p') => ("", Some(known.pid.to_string().into())),
            Some(b'r') => ("the rank", first(known, &RANK)),
            Some(b'j') => ("the number of the job", first(known, &JOB)),
            Some(&other) => {
                return Err(wrong(format!(
                    "there is no %{}: use %h, %r, %p, %j or %%",
                    other.escape_ascii()
                )));
            }
            None => return Err(wrong("a % at the end: use %% for one".into())),
        };
        let value = value.ok_or_else(|| {
            let names = match what {
                "the rank" => format!(", which is in {}", RANK.join(", ")),
                "the number of the job" => format!(", which is in {}", JOB.join(", ")),
                _ => String::new(),
            };
            wrong(format!("{what} is not known{names}"))
        })?;
        if value.is_empty() || value.as_bytes().contains(&b'/') {
            let value = Path::new(&value).display();
            return Err(wrong(format!("{what} is '{value}', which is no name")));
        }
        out.extend_from_slice(value.as_bytes());
    }
    Ok(OsString::from_vec(out).into())
}

fn first(known: &Known, names: &[&str]) -> Option<OsString> {
    names.iter().find_map(|name| (known.variable)(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, variables: &[(&str, &str)]) -> std::result::Result<String, String> {
        let known = Known {
            host: Some("n17".into()),
            pid: 42,
            variable: &|name| {
                let mut all = variables.iter();
                all.find(|(key, _)| *key == name)
                    .map(|(_, value)| value.into())
            },
        };
        expand_with(Path::new(name), &known)
            .map(|path| path.display().to_string())
            .map_err(|error| {
                assert_eq!(error.exit_code(), 2);
                error.to_string()
            })
    }

    #[test]
    fn host_rank_process_and_job_tell_reports_apart() {
        let variables = [
            ("PMIX_RANK", "3"),
            ("SLURM_PROCID", "9"),
            ("PBS_JOBID", "7.head"),
        ];
        assert_eq!(
            of("d/r-%h-%r-%p-%j-100%%.json", &variables),
            Ok("d/r-n17-3-42-7.head-100%.json".into())
        );
        assert_eq!(of("plain.json", &[]), Ok("plain.json".into()));
        assert_eq!(of("%r", &[("SLURM_PROCID", "9")]), Ok("9".into()));
    }

    #[test]
    fn what_is_not_known_and_what_is_no_letter_is_an_error() {
        let error = of("r-%r.json", &[]).unwrap_err();
        assert!(error.starts_with("--report r-%r.json: the rank is not known, which is in OMPI"));
        assert!(of("%j", &[]).unwrap_err().contains("SLURM_JOB_ID"));
        assert!(
            of("%x", &[])
                .unwrap_err()
                .ends_with("use %h, %r, %p, %j or %%")
        );
        assert!(of("100%", &[]).unwrap_err().contains("a % at the end"));
        for bad in ["", "../../etc/passwd"] {
            assert!(
                of("%r", &[("PMI_RANK", bad)])
                    .unwrap_err()
                    .contains("no name")
            );
        }
    }
}
