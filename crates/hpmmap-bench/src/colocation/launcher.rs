//! Starts agents on the hosts of a study.

use std::env;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use hpmmap_base::error::{Error, Result as CommandResult};
use hpmmap_base::escape;
use nix::unistd::gethostname;

/// Never asks for anything; fails instead.
const SSH: [&str; 11] = [
    "ssh",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=20",
    "-o",
    "LogLevel=ERROR",
    // A shared connection would outlive this one, as a child that was not started on purpose.
    "-o",
    "ControlMaster=no",
    "-o",
    "ControlPath=none",
];

/// The way to other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// By ssh.
    Ssh,
    /// By srun, in the current allocation of Slurm.
    Srun,
}

impl Launcher {
    /// The way to these hosts.
    pub fn choose(hosts: &[String]) -> CommandResult<Self> {
        let Ok(nodes) = env::var("SLURM_JOB_NODELIST") else {
            return Ok(Self::Ssh);
        };
        let output = Command::new("scontrol")
            .args(["show", "hostnames", &nodes])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Error::Failed(format!("scontrol: {error}")))?;
        let text = scontrol_text(&output)?;
        let allocated: Vec<&str> = text.lines().map(str::trim).collect();
        match outside(hosts, &allocated) {
            None => Ok(Self::Srun),
            Some(host) => Err(Error::Usage(format!(
                "--hosts: {host} is not in this allocation of Slurm, which has {}",
                allocated.join(", ")
            ))),
        }
    }

    /// Is a host's agent a child of this process?
    pub(super) fn is_child(self, host: &str) -> bool {
        self == Self::Ssh && is_here(host)
    }

    /// The command that starts the agent on a host; `command` is this program's path there.
    pub(super) fn agent(self, host: &str, command: &Path) -> Result<Command, String> {
        let mut all = match self {
            Self::Ssh if self.is_child(host) => Command::new(command),
            Self::Ssh => {
                let mut ssh = Command::new(SSH[0]);
                // A shell on the host splits the words.
                let path = command
                    .to_str()
                    .and_then(|path| shlex::try_quote(path).ok());
                let path = path.ok_or("the path of this command cannot be passed on")?;
                ssh.args(&SSH[1..]).args(["-T", "--", host, &path]);
                ssh
            }
            Self::Srun => {
                let mut srun = Command::new("srun");
                srun.args(["--overlap", "--nodes=1", "--ntasks=1", "--unbuffered"])
                    .args(["--cpu-bind=none", "--mpi=none", "--quit-on-interrupt"])
                    .arg(format!("--nodelist={host}"))
                    .arg(command)
                    // The agent itself must not run under HPMMAP, whatever the allocation's steps
                    // do.
                    .env("SLURM_HPMMAP", "no");
                srun
            }
        };
        all.arg("colocation-agent");
        Ok(all)
    }

    /// mpirun's options for the same way.
    pub(super) fn mpirun(self) -> Vec<String> {
        let mca = |name: &str, value: &str| ["--mca", name, value].map(String::from);
        match self {
            Self::Srun => mca("plm", "slurm").into(),
            Self::Ssh => [
                mca("plm", "rsh"),
                mca("plm_rsh_agent", &SSH.join(" ")),
                // All from this machine, which is known to reach them.
                mca("plm_rsh_no_tree_spawn", "1"),
            ]
            .concat(),
        }
    }
}

/// The output of scontrol, unless it failed.
fn scontrol_text(output: &Output) -> CommandResult<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = escape::line(said.trim());
    Err(Error::Failed(format!(
        "scontrol: {}: {said}",
        output.status
    )))
}

/// The first of these hosts outside of the allocation.
fn outside<'a>(hosts: &'a [String], allocated: &[&str]) -> Option<&'a String> {
    hosts
        .iter()
        .find(|host| !allocated.contains(&host.as_str()))
}

fn is_here(host: &str) -> bool {
    let name = gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    let first = |name: &str| name.split('.').next().unwrap_or("").to_string();
    host == "localhost" || host == name || host == first(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> String {
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        let all: Vec<_> = all.map(|word| word.to_string_lossy()).collect();
        all.join(" ")
    }

    #[test]
    fn agents_are_started_by_ssh_or_srun() {
        let path = Path::new("/opt/my tools/hpmmap-bench");
        let agent = |launcher: Launcher, host| words(&launcher.agent(host, path).unwrap());
        let ssh = agent(Launcher::Ssh, "n7");
        let want = " -T -- n7 '/opt/my tools/hpmmap-bench' colocation-agent";
        assert!(
            ssh.starts_with("ssh -o BatchMode=yes") && ssh.ends_with(want),
            "{ssh}"
        );
        let here = agent(Launcher::Ssh, "localhost");
        assert_eq!(here, "/opt/my tools/hpmmap-bench colocation-agent");
        let srun = agent(Launcher::Srun, "n7");
        assert!(
            srun.starts_with("srun --overlap --nodes=1 --ntasks=1"),
            "{srun}"
        );
        assert!(srun.contains(" --nodelist=n7 /opt"), "{srun}");
        assert!(Launcher::Srun.mpirun().contains(&"slurm".to_string()));
        assert!(Launcher::Ssh.mpirun().contains(&SSH.join(" ")));
        assert!(ssh.contains(" ControlPath=none "), "{ssh}");
        let hosts = ["n1", "n3"].map(String::from);
        assert_eq!(outside(&hosts, &["n1", "n2"]), Some(&hosts[1]));
        assert_eq!(outside(&hosts, &["n3", "n1"]), None);
    }

    #[test]
    fn what_scontrol_says_counts_unless_it_failed() {
        let run = |script: &str| Command::new("sh").args(["-c", script]).output().unwrap();
        let text = scontrol_text(&run("echo n1")).unwrap();
        assert_eq!(text, "n1\n");
        let why = scontrol_text(&run("echo n1; echo no hosts >&2; exit 3")).unwrap_err();
        assert_eq!(why.to_string(), "scontrol: exit status: 3: no hosts");
    }
}
