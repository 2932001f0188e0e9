//! A virtual machine whose first process is the worker, and the worker as a process of the host.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use hpmmap_base::error::{Error, Result};
use hpmmap_base::signals::{Means, Watched};
use hpmmap_sys::child::{Setup, Signal};
use serde::{Deserialize, Serialize};

use super::plan::Work;
use crate::plan::Method;
use crate::program::{content, memory_file};

/// With nothing that the worker does not use.
const MACHINE: &str = "q35,accel=kvm,smbus=off,sata=off,usb=off,mem-merge=off,memory-backend=ram";

/// Options of the kernel in the machine.
const APPEND: &str = "console=ttyS0 loglevel=1 panic=-1 nokaslr nowatchdog mitigations=off \
    no_timer_check tsc=reliable random.trust_cpu=on cryptomgr.notests pci=off \
    initcall_blacklist=i8042_init";

/// Mounts a file system of the pools for one machine, in a mount namespace that ends with it, however
/// it ends: $1 is the size of entries, $2 the directory, the rest the command.
const WITH_POOLS: &str = r#"
said=$(mount -t hpmmap -o "mode=700,pagesize=$1" hpmmap-bench-vm "$2" 2>&1) || {
	echo "'mount -t hpmmap' failed:" $said "('hpmmap doctor' tells what is missing)" >&2
	exit 1
}
shift 2
exec "$@"
"#;

/// All that machines have in common.
pub struct Image {
    /// The program of QEMU.
    pub qemu: PathBuf,
    /// The kernel.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initramfs: PathBuf,
    /// An empty directory, where a machine has the pools.
    pub pools: PathBuf,
    /// Time for the boot and for each workload.
    pub timeout: Duration,
}

/// An initramfs with the worker as its first process: a cpio archive of one file.
pub fn write_initramfs(path: &Path, worker: &Path) -> Result<()> {
    let program = fs::read(worker)
        .map_err(|error| Error::Failed(format!("{}: {error}", worker.display())))?;
    let mut archive = member("init", 0o100_755, &program);
    archive.extend(member("TRAILER!!!", 0, &[]));
    Ok(fs::write(path, archive)?)
}

fn member(name: &str, mode: u32, content: &[u8]) -> Vec<u8> {
    // inode, mode, user, group, links, time, size, four numbers of devices, length of the name
    // with its 0, and a checksum that this format does not have.
    let size = content.len() as u32;
    let fields = [
        1,
        mode,
        0,
        0,
        1,
        0,
        size,
        0,
        0,
        0,
        0,
        name.len() as u32 + 1,
        0,
    ];
    let mut bytes = b"070701".to_vec();
    for field in fields {
        bytes.extend(format!("{field:08X}").bytes());
    }
    let pad = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(name.bytes().chain([0]));
    pad(&mut bytes);
    bytes.extend(content);
    pad(&mut bytes);
    bytes
}

impl Image {
    /// QEMU's command for a machine with RAM of this size that comes by this method.
    fn command(&self, method: Method, size: u64) -> Command {
        let page_size = match method {
            Method::Hpmmap => Some("2M"),
            Method::Hpmmap1g => Some("1G"),
            _ => None,
        };
        let backend = match (method, page_size) {
            (Method::Hugetlb, _) => format!(
                "memory-backend-memfd,id=ram,size={size},prealloc=on,hugetlb=on,hugetlbsize=2M"
            ),
            (_, Some(_)) => format!(
                "memory-backend-file,id=ram,size={size},prealloc=on,share=on,mem-path={}",
                self.pools.display()
            ),
            _ => format!("memory-backend-ram,id=ram,size={size},prealloc=on"),
        };
        let mut command = match page_size {
            None => Command::new(&self.qemu),
            Some(page_size) => {
                let mut command = Command::new("unshare");
                command
                    .args(["--mount", "sh", "-c", WITH_POOLS, "sh", page_size])
                    .args([&self.pools, &self.qemu]);
                command
            }
        };
        command
            .args(["-nodefaults", "-no-user-config", "-no-reboot"])
            .args(["-display", "none", "-serial", "stdio"])
            .args(["-machine", MACHINE])
            .args(["-cpu", "host", "-smp", "1", "-object", &backend])
            .arg("-m")
            .arg(format!("{}M", size >> 20))
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initramfs)
            .args(["-append", APPEND]);
        command
    }

    /// Starts a machine, and waits until its worker is ready.
    pub fn start(&self, method: Method, size: u64) -> Result<Worker> {
        let mut command = self.command(method, size);
        let setup = Setup {
            dies_with_parent: Some(Signal::SIGKILL),
            no_thp: method == Method::Small,
            ..Setup::default()
        };
        setup.apply(&mut command)?;
        Worker::start(command, self.timeout)
    }
}

/// The worker's measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Cost of filling the memory.
    pub set_up: u64,
    /// Cost of the work.
    pub run: u64,
    /// Page tables of its process.
    pub table_bytes: u64,
    /// Transparent huge pages of its process.
    pub huge_bytes: u64,
    /// A digest of what was computed.
    pub result: String,
}

/// A worker that takes work; dropping it kills its process, and with it the machine.
pub struct Worker {
    child: Child,
    /// A signal that ends this process ends it, too.
    watched: Option<Watched>,
    lines: Receiver<String>,
    errors: File,
    timeout: Duration,
}

impl Worker {
    /// Starts it, and waits until it is ready.
    pub fn start(mut command: Command, timeout: Duration) -> Result<Self> {
        let errors = memory_file("errors")?;
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            .spawn()
            .map_err(|error| Error::Failed(format!("cannot run {program}: {error}")))?;
        let output = child.stdout.take().expect("it is piped");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output)
                .split(b'\n')
                .map_while(|line| line.ok())
            {
                let line = String::from_utf8_lossy(&line).trim().to_string();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut worker = Self {
            watched: Some(Watched::new(child.id(), Means::Kill)),
            child,
            lines,
            errors,
            timeout,
        };
        worker.expect("@r")?;
        Ok(worker)
    }

    /// The process: QEMU's, or the worker's.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that begins like this; lines of a kernel are passed over.
    fn expect(&mut self, begin: &str) -> Result<String> {
        let deadline = Instant::now() + self.timeout;
        let mut last = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.starts_with(begin) => return Ok(line),
                Ok(line) if line.is_empty() => (),
                Ok(line) => last = line,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::Failed(format!(
                        "no answer in {} s; last line: '{last}' (--timeout allows more)",
                        self.timeout.as_secs()
                    )));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.watched = None;
                    let status = self.child.wait()?;
                    let said = content(self.errors.try_clone()?)?;
                    let why = said.lines().last().unwrap_or(match &last[..] {
                        "" => "it said nothing",
                        last => last,
                    });
                    return Err(Error::Failed(format!("it ended with {status}: {why}")));
                }
            }
        }
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().expect("it is piped");
        Ok(input.write_all(format!("{line}\n").as_bytes())?)
    }

    /// Does the work; `observe` is called before it fills its memory, between that and the work,
    /// and after it.
    pub fn perform(
        &mut self,
        work: &Work,
        mut observe: impl FnMut() -> Result<()>,
    ) -> Result<Figures> {
        observe()?;
        self.tell(&format!(
            "{} {} {} {}",
            work.workload.name(),
            work.pages.name(),
            work.bytes,
            work.rounds
        ))?;
        for begin in ["@s", "@w"] {
            self.expect(begin)?;
            observe()?;
            self.tell("")?;
        }
        let line = self.expect("@{")?;
        serde_json::from_str(&line[1..])
            .map_err(|_| Error::Failed(format!("the worker printed '{line}'")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.watched = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::plan::tests::parameters;

    fn image() -> Image {
        Image {
            qemu: "/q".into(),
            kernel: "/k".into(),
            initramfs: "/i".into(),
            pools: "/p".into(),
            timeout: Duration::from_secs(5),
        }
    }

    fn words(method: Method) -> String {
        let command = image().command(method, 256 << 20);
        std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn memory_is_asked_for_as_each_method_has_it() {
        let small = words(Method::Small);
        assert!(small.starts_with("/q -nodefaults "), "{small}");
        assert!(small.contains("-object memory-backend-ram,id=ram,size=268435456,"));
        assert!(words(Method::Hugetlb).contains("hugetlb=on,hugetlbsize=2M"));
        assert!(words(Method::Hpmmap).contains("share=on,mem-path=/p "));
        let pools = words(Method::Hpmmap1g);
        assert!(pools.starts_with("unshare --mount sh -c "), "{pools}");
        assert!(pools.contains(" sh 1G /p /q -nodefaults "), "{pools}");
    }

    #[test]
    fn a_machine_has_the_mount_and_a_mount_that_fails_is_said_in_one_line() {
        let run = |mount: &str| {
            let script = format!("mount() {{ {mount}; }}\n{WITH_POOLS}");
            let words = ["-c", &script, "sh", "2M", "/p", "echo", "a b"];
            let output = Command::new("sh").args(words).output().unwrap();
            let text = |bytes| String::from_utf8(bytes).unwrap();
            (text(output.stdout), text(output.stderr))
        };
        let right = r#"[ "$*" = "-t hpmmap -o mode=700,pagesize=2M hpmmap-bench-vm /p" ]"#;
        assert_eq!(run(right), ("a b\n".into(), String::new()));
        let (machine, said) = run("echo 'mount: unknown type'; echo 'see dmesg'; return 32");
        assert_eq!(machine, "");
        assert_eq!(
            said,
            "'mount -t hpmmap' failed: mount: unknown type see dmesg ('hpmmap doctor' tells what is \
             missing)\n"
        );
    }

    #[test]
    fn the_archive_is_a_cpio() {
        let bytes = member("init", 0o100_755, b"12345");
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.starts_with(b"07070100000001000081ED"));
        assert_eq!(&bytes[110..116], b"init\0\0");
        assert_eq!(&bytes[116..], b"12345\0\0\0");
    }

    /// A worker by a shell.
    fn worker(script: &str) -> Result<Worker> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        Worker::start(command, Duration::from_millis(500))
    }

    #[test]
    fn work_is_done_in_steps_between_lines_of_a_kernel() {
        let figures =
            r#"{"set_up": 1, "run": 2, "table_bytes": 3, "huge_bytes": 4, "result": "5"}"#;
        let mut worker = worker(&format!(
            "echo '[ 0.1] hello'; echo @r; read a; echo @s; read b; echo '[ 1] x'; echo @w; read b; \
             echo '@{figures}'; read b"
        ))
        .unwrap();
        let mut seen = 0;
        let work = parameters().works()[0];
        let found = worker.perform(&work, || {
            seen += 1;
            Ok(())
        });
        assert_eq!(found.unwrap().run, 2);
        assert_eq!(seen, 3);
    }

    #[test]
    fn one_that_ends_or_is_silent_is_an_error_with_its_last_words() {
        let said = |script: &str| match worker(script) {
            Ok(_) => panic!(),
            Err(error) => error.to_string(),
        };
        assert_eq!(
            said("echo no KVM >&2; exit 3"),
            "it ended with exit status: 3: no KVM"
        );
        assert_eq!(
            said("echo Kernel panic; sleep 9"),
            "no answer in 0 s; last line: 'Kernel panic' (--timeout allows more)"
        );
    }
}
