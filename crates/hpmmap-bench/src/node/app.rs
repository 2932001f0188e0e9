//! Mini-applications, each rank bound to a CPU.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::colocation::job::{HUGETLB, Nothing, Trouble, attend, mpirun};
use crate::colocation::plan::Workload;
use crate::colocation::workload::Answer;
use crate::machine::THP as SETTING;
use crate::plan::{Method, Provider};

/// Makes glibc's malloc advise the kernel to use transparent huge pages.
const THP: &str = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";
/// The first version of glibc that does.
const THP_GLIBC: (u32, u32) = (2, 35);
const LOOK: Duration = Duration::from_millis(20);

/// A run of a program.
pub struct App<'a> {
    /// The program.
    pub workload: Workload,
    /// Its path.
    pub program: PathBuf,
    /// This program's path.
    pub own: &'a Path,
    /// How it gets memory.
    pub method: Method,
    /// Memory of a rank.
    pub size_bytes: u64,
    /// A CPU for each rank.
    pub cpus: &'a [u32],
}

/// Why a program gets no transparent huge pages from malloc; `glibc` is its version as getconf(1)
/// says it.
pub fn no_thp(setting: Option<&str>, glibc: &str) -> Option<String> {
    let numbers = glibc.strip_prefix("glibc ")?.split_once('.')?;
    let version = (numbers.0.parse().ok()?, numbers.1.parse().ok()?);
    (setting != Some("always") && version < THP_GLIBC).then(|| {
        format!("malloc of {glibc} gets huge pages only with 'always' in /{SETTING}: 2.35 does not need it")
    })
}

impl App<'_> {
    fn command(&self, dir: &Path) -> Command {
        let rank = |command: &mut Command| {
            let cpus: Vec<String> = self.cpus.iter().map(u32::to_string).collect();
            command.arg("colocation-rank").arg("--record").arg(dir);
            command.args(["--cpus", &cpus.join(",")]);
        };
        let mut command = match self.cpus.len() {
            1 => Command::new(self.own),
            ranks => {
                let mut mpirun = mpirun(ranks as u32, true);
                mpirun.arg(self.own);
                mpirun
            }
        };
        rank(&mut command);
        if self.method == Method::Small {
            command.arg("--no-thp");
        }
        command.arg("--");
        match self.method {
            Method::Thp => {
                command.args(["env", THP]);
            }
            Method::Hugetlb => {
                command.args(["env", HUGETLB]);
            }
            _ => (),
        }
        if self.method.provider() == Provider::Pools {
            command.arg(self.own.with_file_name("hpmmap"));
            command.args(["run", "--strict"]);
            if self.method == Method::Hpmmap1g {
                command.args(["--page-size", "1G", "--malloc-tune"]);
            }
            command.arg("--");
        }
        command.arg(&self.program).args(["--json", "--memory"]);
        command.arg(self.size_bytes.to_string());
        // The others run to the solution.
        let steps = match self.workload {
            Workload::Minimd => Some("20"),
            Workload::Miniamr => Some("25"),
            _ => None,
        };
        steps.map(|steps| command.args(["--iterations", steps]));
        // mpirun keeps files there, which other users' must not disturb.
        command.env("TMPDIR", dir);
        command
    }

    /// Runs it within the time that is left; its files are in `dir`.
    pub fn run(
        &self,
        dir: &Path,
        limit: Duration,
        stop: impl Fn() -> bool,
    ) -> Result<Answer, Trouble> {
        // Dropped last.
        let _nothing = Nothing::default();
        attend(self.command(dir), dir, limit, || {
            if stop() {
                return Err(Trouble::Interrupted);
            }
            thread::sleep(LOOK);
            Ok(())
        })?;
        Ok(self.workload.answer(dir)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malloc_of_an_old_glibc_does_not_advise() {
        assert_eq!(no_thp(Some("madvise"), "glibc 2.35"), None);
        assert_eq!(no_thp(Some("always"), "glibc 2.31"), None);
        assert_eq!(no_thp(Some("madvise"), "none"), None);
        let why = no_thp(Some("madvise"), "glibc 2.31").unwrap();
        assert!(why.starts_with("malloc of glibc 2.31 gets"), "{why}");
    }

    fn words(method: Method, cpus: &[u32]) -> String {
        let app = App {
            workload: Workload::Minimd,
            program: "/a/minimd".into(),
            own: Path::new("/b/hpmmap-bench"),
            method,
            size_bytes: 4096,
            cpus,
        };
        let command = app.command(Path::new("/d"));
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn one_rank_needs_no_mpirun_and_each_has_its_cpu() {
        assert_eq!(
            words(Method::Small, &[3]),
            "/b/hpmmap-bench colocation-rank --record /d --cpus 3 --no-thp -- \
             /a/minimd --json --memory 4096 --iterations 20"
        );
        let two = words(Method::Hpmmap1g, &[3, 5]);
        assert!(two.starts_with("mpirun -n 2 --oversubscribe "), "{two}");
        assert!(
            two.contains(
                " --cpus 3,5 -- /b/hpmmap run --strict --page-size 1G --malloc-tune -- /a/minimd "
            ),
            "{two}"
        );
        assert!(words(Method::Thp, &[0]).contains(&format!("-- env {THP} /a/minimd")));
    }
}
