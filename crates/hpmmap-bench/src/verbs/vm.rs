//! `hpmmap bench vm`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::ValueEnum;
use hpmmap_base::error::{Error, Result};
use hpmmap_host::{Root, process};
use hpmmap_sys::child::{Setup, Signal};
use hpmmap_sys::sigpipe;
use nix::unistd::geteuid;

use super::session::{self, Progress, Session, worker_program};
use crate::cli::BenchVmArgs;
use crate::machine;
use crate::plan::{Method, PAGE_METHODS};
use crate::prepared::Prepared;
use crate::vm::kvm::{Entries, Exits, Kvm, between};
use crate::vm::machine::{Figures, Image, Worker, write_initramfs};
use crate::vm::plan::{Pages, Paging, Parameters, Work, Workload};
use crate::vm::report;
use crate::vm::result::{LeftOut, Measured, Native, Record, SCHEMA, disagreement, recommendation};

const MIB: u64 = 1 << 20;
/// Paths of the worker relative to the command: in the build tree, installed.
const WORKERS: [&str; 2] = ["bench/bench-vm", "../lib/hpmmap/bench-vm"];

pub fn perform(args: &BenchVmArgs) -> Result<ExitCode> {
    let root = Root::default();
    let parameters = parameters(args);
    parameters.check()?;
    if !geteuid().is_root() {
        return Err(Error::NoPermission {
            what: "to count exits of virtual machines".into(),
            hint: "run it as root".into(),
        });
    }
    let session = Session::new(&root, &args.session)?;
    let worker = worker_program(args.session.worker.as_deref(), &WORKERS)?;
    let files = tempfile::tempdir()?;
    let image = image(args, &root, files.path())?;
    write_initramfs(&image.initramfs, &worker)?;
    fs::create_dir(&image.pools)?;
    let mut kvm = Kvm::new(&root)?;
    if args.session.prepare {
        kvm.begin()?;
    }
    let run = Run {
        session,
        parameters,
        worker,
        image,
        kvm,
        left_out: Vec::new(),
        native: Vec::new(),
        results: Vec::new(),
    };
    let record = run.finish()?;
    // Nothing is left to be restored.
    sigpipe::restore();
    session::report(&args.session, "vm", &record, report::text)?;
    Ok(ExitCode::SUCCESS)
}

fn or_all<T: Copy + PartialEq>(asked: &[T], all: &[T]) -> Vec<T> {
    let wanted = all
        .iter()
        .copied()
        .filter(|one| asked.is_empty() || asked.contains(one));
    wanted.collect()
}

fn parameters(args: &BenchVmArgs) -> Parameters {
    let (size, memory) = match args.quick {
        true => (MIB, 256 * MIB),
        false => (256 * MIB, 1024 * MIB),
    };
    // One that is not for this benchmark stays, and is refused.
    let methods = match &args.methods.method[..] {
        [] => PAGE_METHODS.to_vec(),
        asked => asked.to_vec(),
    };
    Parameters {
        workloads: or_all(&args.workload, Workload::value_variants()),
        pagings: or_all(&args.paging, Paging::value_variants()),
        methods,
        pages: or_all(&args.pages, Pages::value_variants()),
        size_bytes: args.size.map_or(size, |size| size.0),
        memory_bytes: args.memory.map_or(memory, |size| size.0),
    }
}

/// The program, kernel and files that machines need.
fn image(args: &BenchVmArgs, root: &Root, files: &Path) -> Result<Image> {
    let kernel = match &args.kernel {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("/boot/vmlinuz-{}", process::kernel_release(root)?)),
    };
    if !kernel.is_file() {
        return Err(Error::Failed(format!(
            "there is no kernel {} for the virtual machine: name one with --kernel FILE",
            kernel.display()
        )));
    }
    Ok(Image {
        qemu: args.qemu.clone(),
        kernel,
        initramfs: files.join("initramfs"),
        pools: files.join("pools"),
        timeout: Duration::from_secs(args.timeout),
    })
}

/// The first line of what QEMU says of its version.
fn qemu_version(qemu: &Path) -> Result<String> {
    let output = Command::new(qemu).arg("--version").output();
    let output = output.map_err(|error| {
        Error::Failed(format!(
            "{}: {error} (Debian's package qemu-system-x86 has it, --qemu names another)",
            qemu.display()
        ))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().next().unwrap_or_default();
    let version = version.split(" version ").nth(1).unwrap_or("unknown");
    Ok(version.split(' ').next().unwrap_or_default().into())
}

/// A benchmark in progress and its results so far.
struct Run<'a> {
    session: Session<'a>,
    parameters: Parameters,
    worker: PathBuf,
    image: Image,
    kvm: Kvm,
    left_out: Vec<LeftOut>,
    native: Vec<Native>,
    results: Vec<Measured>,
}

impl Run<'_> {
    fn finish(mut self) -> Result<Record> {
        let qemu = qemu_version(&self.image.qemu)?;
        let provenance = self.session.provenance("vm", SCHEMA, "tsc cycles", &[]);
        let all = self.parameters.pagings.len() * self.parameters.methods.len() + 1;
        let mut progress = Progress::new(all, self.session.args.output.verbose);
        let mut prepared = self.kvm.beside();
        progress.next("native");
        self.natively(&mut prepared)?;
        let (pagings, methods) = (
            self.parameters.pagings.clone(),
            self.parameters.methods.clone(),
        );
        for paging in pagings {
            if let Some(reason) = self.kvm.obstacle(paging, self.session.args.prepare) {
                self.leave_out(Some(paging), None, reason);
                continue;
            }
            self.kvm.set(paging)?;
            for &method in &methods {
                progress.next(&format!("{} {}", paging.name(), method.name()));
                self.machine(paging, method, &mut prepared)?;
            }
        }
        drop(prepared);
        if let Some(why) = disagreement(&self.native, &self.results) {
            return Err(Error::Failed(why));
        }
        let workloads = self.parameters.workloads.iter();
        let recommendations = workloads
            .filter_map(|&workload| recommendation(workload, &self.results))
            .collect();
        Ok(Record {
            provenance,
            parameters: self.parameters,
            kernel: self.image.kernel.display().to_string(),
            qemu,
            left_out: self.left_out,
            native: self.native,
            results: self.results,
            recommendations,
        })
    }

    fn leave_out(&mut self, paging: Option<Paging>, method: Option<Method>, reason: String) {
        self.left_out.push(LeftOut {
            paging,
            method,
            reason,
        });
    }

    /// The same work by a process of the host.
    fn natively(&mut self, prepared: &mut Prepared) -> Result<()> {
        if self.session.args.prepare {
            prepared.set_thp("madvise")?;
        }
        let mut command = Command::new(&self.worker);
        let setup = Setup {
            dies_with_parent: Some(Signal::SIGKILL),
            ..Setup::default()
        };
        setup.apply(&mut command)?;
        let mut worker = Worker::start(command, self.image.timeout)?;
        for work in self.parameters.works() {
            let figures = worker.perform(&work, || self.session.go_on())?;
            self.native.push(Native { work, figures });
        }
        Ok(())
    }

    /// All work in one machine.
    fn machine(&mut self, paging: Paging, method: Method, prepared: &mut Prepared) -> Result<()> {
        let root = self.session.root;
        let size = self.parameters.ram_bytes(method);
        let lacking = || machine::lacking(root, method, size, false, None);
        if self.session.args.prepare && lacking().is_some() {
            prepared.provide(method.provider(), size)?;
            prepared.set_thp("madvise")?;
        }
        if let Some(reason) = lacking() {
            self.leave_out(Some(paging), Some(method), reason);
            return Ok(());
        }
        let name = format!("{} paging, {} memory", paging.name(), method.name());
        let failed = |error: Error| Error::Failed(format!("{name}: {error}"));
        let counters = self.kvm.counters()?;
        let tables = counters.table_bytes();
        let mut worker = self.image.start(method, size).map_err(failed)?;
        let pid = worker.pid();
        for work in self.parameters.works() {
            let mut seen: Vec<Seen> = Vec::new();
            let figures = worker.perform(&work, || {
                self.session.go_on()?;
                seen.push(Seen {
                    exits: counters.exits()?,
                    table_bytes: counters.table_bytes(),
                    entries: counters.entries(pid),
                });
                Ok(())
            });
            let figures = figures.map_err(|error| {
                failed(Error::Failed(format!("{}: {error}", work.workload.name())))
            })?;
            self.results
                .push(self.measured(paging, method, work, figures, &seen, tables));
        }
        Ok(())
    }

    /// `tables`: memory of KVM's page tables before the machine was started.
    fn measured(
        &self,
        paging: Paging,
        method: Method,
        work: Work,
        figures: Figures,
        seen: &[Seen],
        tables: Option<u64>,
    ) -> Measured {
        let host = self.native.iter().find(|one| one.work == work);
        let last = &seen[2];
        Measured {
            paging,
            method,
            work,
            exits_of_set_up: between(&seen[0].exits, &seen[1].exits),
            exits: between(&seen[1].exits, &last.exits),
            kvm_table_bytes: last
                .table_bytes
                .zip(tables)
                .map(|(now, before)| now.saturating_sub(before)),
            entries: last.entries,
            ratio: host.map(|host| figures.run as f64 / host.figures.run.max(1) as f64),
            figures,
        }
    }
}

/// Counters at a time.
struct Seen {
    exits: Exits,
    table_bytes: Option<u64>,
    entries: Option<Entries>,
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;
    use crate::cli::{BenchVerb, tests::parse};

    fn args(words: &[&str]) -> BenchVmArgs {
        match parse(&[&["vm"], words].concat()) {
            BenchVerb::Vm(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_is_measured_by_default_and_a_choice_keeps_its_order() {
        let all = parameters(&args(&[]));
        assert_eq!((all.workloads.len(), all.pagings.len()), (5, 2));
        assert_eq!((all.methods.len(), all.pages.len()), (5, 2));
        all.check().unwrap();
        let words = [
            "--quick",
            "--workload",
            "switches,random",
            "--paging",
            "shadow",
            "--method",
            "hpmmap",
            "--pages",
            "2m",
        ];
        let some = parameters(&args(&words));
        assert_eq!(some.workloads, [Workload::Random, Workload::Switches]);
        assert_eq!(
            (some.pagings, some.pages),
            (vec![Paging::Shadow], vec![Pages::Large])
        );
        assert_eq!((some.size_bytes, some.memory_bytes), (MIB, 256 * MIB));
    }

    #[test]
    fn what_is_missing_is_named() {
        let fixture = Fixture::new();
        fixture.write("proc/sys/kernel/osrelease", "6.12.0-none\n");
        let Err(error) = image(&args(&[]), &fixture.root(), Path::new("/")) else {
            panic!();
        };
        assert_eq!(
            error.to_string(),
            "there is no kernel /boot/vmlinuz-6.12.0-none for the virtual machine: name one with --kernel FILE"
        );
        let error = qemu_version(Path::new("/none/qemu"))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("/none/qemu: No such file"), "{error}");
    }
}
