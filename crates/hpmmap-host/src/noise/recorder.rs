//! The process that counts: `hpmmap-trace noise --beside`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hpmmap_sys::child::Setup;

use super::Noise;
use crate::number_list;

/// Its line once it can begin.
pub const READY: &str = "ready";
/// The line that makes it begin, and its answer.
pub const BEGIN: &str = "begin";

/// A process that counts what disturbs the children of this process.
pub struct Recorder {
    child: Child,
    stream: BufReader<UnixStream>,
}

impl Recorder {
    /// Starts it. The children of this process from now on are the job. With `cpus` these are counted
    /// for the whole time, otherwise all that this process may use.
    pub fn start(program: &Path, cpus: Option<&[u32]>) -> Result<Self, String> {
        let said = |error: io::Error| format!("{}: {error}", program.display());
        let (ours, theirs) = UnixStream::pair().map_err(said)?;
        let mut command = Command::new(program);
        command.args(["noise", "--beside"]);
        if let Some(cpus) = cpus {
            command.args(["--cpu", &number_list::format(cpus)]);
        }
        let setup = Setup {
            // The terminal's signals are for the job; this ends when its stream does.
            own_group: true,
            ..Setup::default()
        };
        setup.apply(&mut command).map_err(said)?;
        let end = |stream: &UnixStream| stream.try_clone().map(OwnedFd::from).map(Stdio::from);
        let child = command
            .stdin(end(&theirs).map_err(said)?)
            .stdout(end(&theirs).map_err(said)?)
            .spawn();
        let child = child.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!(
                "there is no {}: install the package hpmmap-trace",
                program.display()
            ),
            _ => said(error),
        })?;
        // It has ends of the stream, too.
        drop((command, theirs));
        let mut recorder = Self {
            child,
            stream: BufReader::new(ours),
        };
        recorder.wait_for(READY)?;
        Ok(recorder)
    }

    fn wait_for(&mut self, word: &str) -> Result<(), String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(_) if line.trim_end() == word => Ok(()),
            Ok(_) => Err("hpmmap-trace ended before it counted".into()),
            Err(error) => Err(format!("hpmmap-trace: {error}")),
        }
    }

    /// Begins to count.
    pub fn begin(&mut self) -> Result<(), String> {
        let told = writeln!(self.stream.get_mut(), "{BEGIN}");
        told.map_err(|error| format!("hpmmap-trace: {error}"))?;
        self.wait_for(BEGIN)
    }

    /// Ends counting.
    pub fn finish(mut self) -> Result<Noise, String> {
        let said = |error: io::Error| format!("hpmmap-trace: {error}");
        self.stream
            .get_ref()
            .shutdown(Shutdown::Write)
            .map_err(said)?;
        let mut text = String::new();
        self.stream.read_to_string(&mut text).map_err(said)?;
        self.child.wait().map_err(said)?;
        serde_json::from_str(&text).map_err(|_| "hpmmap-trace ended without its counts".into())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;
    use crate::fixture::Fixture;

    fn program(fixture: &Fixture, script: &str) -> PathBuf {
        fixture.write("program", &format!("#!/bin/sh\n{script}\n"));
        let path = fixture.root().join("program");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        path
    }

    #[test]
    fn it_is_told_when_to_begin_and_to_end() {
        let fixture = Fixture::new();
        let json = serde_json::to_string(&Noise {
            seconds: 3.0,
            ..Noise::default()
        })
        .unwrap();
        let path = program(
            &fixture,
            &format!("echo ready; read word; echo $word; cat; echo '{json}'"),
        );
        let mut recorder = Recorder::start(&path, Some(&[2, 3])).unwrap();
        recorder.begin().unwrap();
        assert_eq!(recorder.finish().unwrap().seconds, 3.0);
    }

    #[test]
    fn one_that_fails_is_no_end_of_this_process() {
        let fixture = Fixture::new();
        let missing = Recorder::start(Path::new("/nonexistent"), None);
        let missing = missing.err().unwrap();
        assert!(missing.contains("install the package"), "{missing}");
        let path = program(&fixture, "exit 1");
        assert_eq!(
            Recorder::start(&path, None).err().unwrap(),
            "hpmmap-trace ended before it counted"
        );
        let path = program(&fixture, "echo ready");
        let mut gone = Recorder::start(&path, None).unwrap();
        gone.child.wait().unwrap();
        assert!(gone.begin().is_err());
        let path = program(&fixture, "echo ready; read word; echo $word");
        let mut silent = Recorder::start(&path, None).unwrap();
        silent.begin().unwrap();
        assert_eq!(
            silent.finish().unwrap_err(),
            "hpmmap-trace ended without its counts"
        );
    }
}
