//! The arguments as they are parsed. Each verb turns them into its own checked type before it does
//! anything.

mod job;
mod partition;
mod pool;
mod vm;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use hpmmap_base::VERSION;
use hpmmap_host::Root;

pub use job::*;
pub use partition::*;
pub use pool::*;
pub use vm::*;

/// Give HPC jobs their own memory: pools of memory taken offline from Linux,
/// mapped eagerly with large pages.
#[derive(Debug, Parser)]
#[command(name = "hpmmap", version = VERSION, arg_required_else_help = true)]
#[command(after_help = "Exit status: 0 success, 1 failure, 2 wrong usage; \
    'run' passes on the status of the program.")]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Move memory between Linux and the pools, and limit its use
    #[command(subcommand)]
    Pool(PoolVerb),
    /// Give CPUs and pool memory to the programs of one job alone
    #[command(subcommand)]
    Partition(PartitionVerb),
    /// Run virtual machines on pool memory: options for QEMU and libvirt, a report, quiet vCPUs
    #[command(subcommand)]
    Vm(VmVerb),
    /// Run a program whose memory comes from the pools
    ///
    /// hpmmap makes a launch, registers its own process and then executes the program:
    /// process number, signals and exit status are those of the program. The programs that
    /// it starts are registered, too. With --report or --verbose the program is a child of
    /// hpmmap.
    ///
    /// If the pools are exhausted or a limit is reached, the program falls back to ordinary
    /// memory; --strict makes the call fail instead. The default limit of a user is half of
    /// the pools; hpmmap says so at the start where this is less than what is free.
    ///
    /// Exit status: 125 if hpmmap fails, 126 if the program cannot be executed, 127 if it
    /// was not found, otherwise the status of the program.
    Run(RunArgs),
    /// Show the pools and the processes that use them
    ///
    /// One line for each registered process: JOB is the number of the launch, PAGE the page
    /// size asked for, HELD the pool memory, 2M and 4K the part that page-table entries of
    /// this size map, LINUX the ordinary memory that it fell back to, FALLBACKS the calls
    /// that fell back, FAULTS the page faults in user mode, PINS the blocks that were given
    /// up and are still pinned by a device.
    Status(StatusArgs),
    /// Check whether this host can run hpmmap, and print what is missing
    ///
    /// Each line has ok, warn or FAIL, the name of the check, what was found, and after an
    /// arrow what to do. The exit status is 1 if a check failed; warnings do not count.
    Doctor(DoctorArgs),
    /// Print what container runtimes need to know of the device
    ///
    /// A specification of the Container Device Interface: with it in /etc/cdi (or
    /// /run/cdi), 'podman run --device hpmmap.io/pool=all' and other runtimes that know
    /// CDI give a container the device, and programs in it are run or marked as outside.
    /// The user in the container needs the device's group, as outside: --group-add and its
    /// number, in a container of an ordinary user's --group-add keep-groups.
    Cdi(CdiArgs),
    /// Mark programs, which then register themselves when they are executed
    ///
    /// A marked program runs as under 'hpmmap run' with the options of the mark, if its
    /// user may open /dev/hpmmap, the module is loaded and there are pools. Otherwise it
    /// runs with ordinary memory. Set-user-ID programs are never registered. Below 'hpmmap
    /// run' the options of that launch hold; the mark can only add the program image.
    ///
    /// The mark is four bytes in the ELF header (e_flags, unused on x86-64). 'hpmmap
    /// unmark' restores the file. strip, objcopy and patchelf keep the mark.
    ///
    /// A new file replaces the old one in one step, with its owner, mode, ACL and extended
    /// attributes; running processes keep the old file. A symbolic link is followed if it
    /// belongs to the caller or root. Files with several hard links are refused.
    ///
    /// The command prints the changed bytes and the SHA-256 of the file before and after.
    /// The package manager will report that the file has changed.
    Mark(MarkArgs),
    /// Remove the mark from programs
    ///
    /// The file is as it was before 'hpmmap mark'.
    Unmark(UnmarkArgs),
    /// Measure what memory costs, beside what Linux has (package hpmmap-bench)
    #[command(disable_help_flag = true)]
    Bench(OtherArgs),
    /// See the page faults of a program and everything it starts (package hpmmap-trace)
    #[command(disable_help_flag = true)]
    Trace(OtherArgs),
}

/// Words for the program of a verb.
#[derive(Debug, Args)]
pub struct OtherArgs {
    /// Verb and options: 'hpmmap help bench' and 'hpmmap help trace' list them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORDS"
    )]
    pub words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Repeat every SECONDS seconds, by default 2; 'q', Esc or Ctrl-C ends it
    ///
    /// A terminal shows the pools as bars and one line for each launch, in red after a
    /// fallback or a refused call; NO_COLOR turns colours off. Columns that do not fit are
    /// left out. Without a terminal the plain report is repeated.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        allow_negative_numbers = true,
        value_parser = parse_seconds
    )]
    pub watch: Option<f64>,
    /// Report as JSON; with --watch one line each time
    #[arg(long)]
    pub json: bool,
    /// Print metrics in the text format of Prometheus, such as for the textfile
    /// collector of node_exporter
    ///
    /// Launches are added up by batch job (Slurm's cgroup of the job), or else by the
    /// cgroup of the service, container or user: about 15 series for each, for at most 64
    /// of them; the rest is cgroup="other". Without the module the only series is
    /// hpmmap_up 0.
    #[arg(long, conflicts_with_all = ["watch", "json"])]
    pub prometheus: bool,
    /// Also print the metrics of each launch, about 120 series each
    #[arg(long, requires = "prometheus")]
    pub per_launch: bool,
    /// Replace this file by the metrics, in one step
    ///
    /// The file keeps its owner, mode and attributes. A symbolic link is followed if it
    /// belongs to the caller or root.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    pub output: Option<PathBuf>,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .map_err(|_| "expected a number of seconds, such as 2 or 0.5".into())
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
    /// Read /sys, /proc, /boot and /lib/modules below this directory, such as
    /// a copy from another machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

impl DoctorArgs {
    /// The machine to look at.
    pub fn root(&self) -> Root {
        Root::new(&self.root)
    }
}

#[derive(Debug, Args)]
pub struct CdiArgs {
    /// Replace this file by it, in one step; its directory is made
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// "help bench alloc" as "bench help alloc": the program of the verb knows its help.
pub fn with_help_last(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_other = words
        .get(2)
        .is_some_and(|verb| verb == "bench" || verb == "trace");
    if is_other && words[1] == "help" {
        words.swap(1, 2);
    }
    words
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;
    use crate::launch::Placement;

    fn parse(args: &[&str]) -> Result<Verb, ErrorKind> {
        Cli::try_parse_from([&["hpmmap"], args].concat())
            .map(|cli| cli.verb)
            .map_err(|error| error.kind())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_version_is_the_one_of_the_file() {
        assert!(!VERSION.is_empty());
        assert!(
            VERSION.split('.').all(|n| n.parse::<u32>().is_ok()),
            "{VERSION}"
        );
    }

    #[test]
    fn options_behind_the_program_are_the_programs() {
        for args in [
            &["run", "--strict", "--", "prog", "--json", "-x"][..],
            &["run", "--strict", "prog", "--json", "-x"],
        ] {
            let Ok(Verb::Run(run)) = parse(args) else {
                panic!("{args:?}");
            };
            assert!(run.launch.strict && run.launch.placement == Placement::Local);
            assert_eq!(run.command, ["prog", "--json", "-x"]);
        }
        assert_eq!(
            parse(&["run"]).unwrap_err(),
            ErrorKind::MissingRequiredArgument
        );
    }

    #[test]
    fn words_of_other_programs_are_left_to_them() {
        let Ok(Verb::Trace(trace)) = parse(&["trace", "record", "-o", "x", "--help"]) else {
            panic!();
        };
        assert_eq!(trace.words, ["record", "-o", "x", "--help"]);
        assert!(matches!(parse(&["bench"]), Ok(Verb::Bench(bench)) if bench.words.is_empty()));
        let help = |line: &str| with_help_last(line.split(' ').map(OsString::from).collect());
        assert_eq!(
            help("hpmmap help bench alloc"),
            ["hpmmap", "bench", "help", "alloc"]
        );
        assert_eq!(help("hpmmap help run"), ["hpmmap", "help", "run"]);
    }

    #[test]
    fn an_option_in_front_of_the_program_is_one_of_run() {
        for args in [
            &["--strcit", "prog"][..],
            &["--strcit", "--", "prog"],
            &["-x"],
        ] {
            let error = Cli::try_parse_from([&["hpmmap", "run"], args].concat()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{args:?}");
            assert_eq!(
                error.to_string().contains("'--strict'"),
                args[0] == "--strcit"
            );
        }
        let Ok(Verb::Run(run)) = parse(&["run", "--", "--strange", "-x"]) else {
            panic!();
        };
        assert_eq!(run.command, ["--strange", "-x"]);
    }

    #[test]
    fn page_sizes_are_two() {
        for size in ["1g", "1GiB"] {
            let Ok(Verb::Run(run)) = parse(&["run", "--page-size", size, "x"]) else {
                panic!("{size}");
            };
            assert_eq!(run.launch.page_size, PageSize::OneGiga);
        }
        assert_eq!(
            parse(&["run", "--page-size", "4K", "x"]).unwrap_err(),
            ErrorKind::InvalidValue
        );
    }

    #[test]
    fn remove_wants_either_a_size_or_everything() {
        assert!(parse(&["pool", "remove", "--all"]).is_ok());
        assert!(parse(&["pool", "remove", "--size", "1G"]).is_ok());
        assert_eq!(
            parse(&["pool", "remove"]).unwrap_err(),
            ErrorKind::MissingRequiredArgument
        );
        assert_eq!(
            parse(&["pool", "remove", "--all", "--size", "1G"]).unwrap_err(),
            ErrorKind::ArgumentConflict
        );
    }

    #[test]
    fn a_limit_is_for_a_user_or_for_all() {
        let Ok(Verb::Pool(PoolVerb::Limit(limit))) =
            parse(&["pool", "limit", "--default", "--size", "none"])
        else {
            panic!();
        };
        assert_eq!(limit.size, Some(Limit::None));
        assert_eq!(
            parse(&["pool", "limit", "--size", "1G"]).unwrap_err(),
            ErrorKind::MissingRequiredArgument
        );
        assert_eq!(
            parse(&["pool", "limit", "--default", "--user", "a", "--size", "1G"]).unwrap_err(),
            ErrorKind::ArgumentConflict
        );
        for wrong in [
            ["--list", "--size", "1G"].as_slice(),
            &["--load", "--size", "1G"],
            &["--user", "a", "--cgroup", "/a", "--size", "1G"],
        ] {
            assert_eq!(
                parse(&[&["pool", "limit"], wrong].concat()).unwrap_err(),
                ErrorKind::ArgumentConflict
            );
        }
        assert_eq!(
            parse(&["pool", "limit", "--default"]).unwrap_err(),
            ErrorKind::MissingRequiredArgument
        );
        assert!(parse(&["pool", "limit", "--list", "--json"]).is_ok());
        assert!(parse(&["pool", "limit", "--load"]).is_ok());
        assert_eq!(
            parse(&["pool", "limit", "--default", "--size", "101%"]).unwrap_err(),
            ErrorKind::ValueValidation
        );
        assert_eq!(
            parse(&["pool", "limit", "--default", "--size", "much"]).unwrap_err(),
            ErrorKind::ValueValidation
        );
    }

    #[test]
    fn what_is_no_number_of_seconds_is_told_so() {
        let error = Cli::try_parse_from(["hpmmap", "status", "--watch", "abc"]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("'abc'") && text.contains("expected a number of seconds"),
            "{text}"
        );
    }
}
