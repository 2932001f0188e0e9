//! The recorded file: items of postcard, one after the other, as one stream of zstd.
//! `docs/trace.md` describes it.

mod read;
mod record;
mod write;

pub use read::Trace;
pub use record::*;
pub use write::Writer;

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use hpmmap_bpf::{Kind, Origin, Stall};

    use super::*;

    /// A fault of process 10 that took this long.
    pub fn fault(start_ns: u64, cost_ns: u64, kind: Kind) -> Fault {
        Fault {
            start_ns,
            cost_ns,
            address: 0x1000,
            wait_ns: 1,
            reclaim_ns: 2,
            compaction_ns: 3,
            migration_ns: 4,
            pid: 10,
            tid: 11,
            mapping: 1,
            cpu: 5,
            retries: 6,
            kind,
            stall: Stall::None,
            origin: Origin::User,
            write: true,
            exec: false,
            major: true,
            level: 2,
        }
    }

    fn header() -> Header {
        Header {
            kernel: "6.12".into(),
            command: vec!["prog".into()],
            start_ns: 5,
            ..Header::default()
        }
    }

    pub fn written(path: &Path) -> Trace {
        let mut writer = Writer::create(path, &header()).unwrap();
        let mapping = Mapping {
            id: 1,
            pid: 10,
            class: "heap".into(),
            name: "heap".into(),
            start: 0x1000,
            end: 0x2000,
        };
        writer.mapping(mapping.clone()).unwrap();
        let grown = Mapping {
            end: 0x3000,
            ..mapping
        };
        writer.mapping(grown.clone()).unwrap();
        let fault = fault(10, 20, Kind::Large);
        writer.fault(fault.clone()).unwrap();
        let task = Task {
            event: Happened::Exec,
            pid: 10,
            tid: 10,
            parent: None,
            time_ns: 9,
            comm: "prog".into(),
            rank: Some(3),
        };
        writer.task(task.clone()).unwrap();
        let time = Time {
            cause: "reclaim".into(),
            pid: 10,
            tid: 11,
            start_ns: 12,
            ns: 2,
        };
        writer.time(time.clone()).unwrap();
        let summary = Summary {
            end_ns: 100,
            recorded: Counts { minor: 1, major: 2 },
            ..Summary::default()
        };
        writer.summary(summary.clone()).unwrap();
        Trace {
            header: header(),
            faults: vec![fault],
            mappings: BTreeMap::from([(1, grown)]),
            tasks: vec![task],
            times: vec![time],
            summary: Some(summary),
        }
    }

    #[test]
    fn what_was_recorded_is_one_line() {
        let mut header = header();
        header.command = vec!["sh".into(), "-c".into(), "\n a\n\tb".into()];
        assert_eq!(header.what(), "sh -c a b");
        header.pid = Some(7);
        assert_eq!(header.what(), "process 7");
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let trace = written(&path);
        assert_eq!(Trace::read(&path).unwrap(), trace);
        assert_eq!(trace.run_ns(), 95);
    }

    #[test]
    fn a_file_that_is_cut_off_is_read_up_to_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        written(&path);
        let whole = fs::read(&path).unwrap();
        let mut read = 0;
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            if let Ok(trace) = Trace::read(&path) {
                read += 1;
                assert_eq!(trace.header, header());
                assert!(trace.faults.len() <= 1);
            }
        }
        // The header is flushed separately; everything after it can be read as far as it goes.
        assert!(read > whole.len() / 3, "{read} of {}", whole.len());
    }

    #[test]
    fn what_was_flushed_is_read_before_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let mut writer = Writer::create(&path, &header()).unwrap();
        assert_eq!(Trace::read(&path).unwrap().header, header());
        for at in 1..=3 {
            writer.fault(fault(at, 20, Kind::Small)).unwrap();
            writer.flush().unwrap();
            let trace = Trace::read(&path).unwrap();
            assert_eq!((trace.faults.len() as u64, trace.summary), (at, None));
        }
    }

    /// Makes a file of these items.
    fn compressed(path: &Path, items: &[Vec<u8>]) {
        fs::write(path, zstd::encode_all(&items.concat()[..], 1).unwrap()).unwrap();
    }

    fn item(value: &impl serde::Serialize) -> Vec<u8> {
        postcard::to_allocvec(value).unwrap()
    }

    #[test]
    fn other_versions_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        compressed(&path, &[item(&(NAME, VERSION + 1)), vec![1, 2, 3]]);
        let message = Trace::read(&path).unwrap_err().to_string();
        assert!(message.contains("has version 3 of the format"), "{message}");
        fs::write(&path, b"HPMMAPT\n\x01\0\0\0\x02\0\0\0{}").unwrap();
        let message = Trace::read(&path).unwrap_err().to_string();
        assert!(message.contains("has version 1 of the format"), "{message}");
    }

    #[test]
    fn another_file_is_none_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        fs::write(&path, "{\"json\": \"and so on\"}").unwrap();
        let message = Trace::read(&path).unwrap_err().to_string();
        assert!(message.contains("not a file of 'hpmmap trace record'"));
        fs::write(&path, "").unwrap();
        assert!(Trace::read(&path).is_err());
        assert!(Trace::read(&dir.path().join("none")).is_err());
    }

    #[test]
    fn broken_records_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let head = [item(&(NAME, VERSION)), item(&header())].concat();
        // A record of an unknown type, and an impossible length.
        let endless = [vec![1, 1, 1], vec![0xff; 9], vec![1], vec![0; 17 << 20]].concat();
        for record in [vec![99, 1], endless] {
            compressed(&path, &[head.clone(), record]);
            let message = Trace::read(&path).unwrap_err().to_string();
            assert!(message.contains("a record is broken"), "{message}");
        }
    }
}
