//! All faults as CSV, for programs.

use std::io::{self, Write};

use hpmmap_base::error::Result;
use hpmmap_base::escape;

use super::super::format::Trace;
use super::figures::processes;

/// Writes all faults, one a line.
pub fn csv(trace: &Trace, after_ns: u64, out: &mut impl Write) -> Result<()> {
    let processes = processes(trace);
    let write = |out: &mut dyn Write| -> io::Result<()> {
        writeln!(
            out,
            "time_ns,cost_ns,cycles,wait_ns,reclaim_ns,compaction_ns,migration_ns,cpu,pid,tid,\
             process,rank,kind,stall,origin,write,exec,major,retries,page_level,address,\
             mapping_class,mapping,mapping_start,mapping_end"
        )?;
        let from = trace.header.start_ns + after_ns;
        for f in trace.faults.iter().filter(|one| one.start_ns >= from) {
            let process = processes.get(&f.pid);
            let mapping = trace.mappings.get(&f.mapping);
            let cycles = f.cost_ns as f64 * trace.header.tsc_hz as f64 / 1e9;
            write!(
                out,
                "{},{},{cycles:.0},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:#x},",
                f.start_ns.saturating_sub(trace.header.start_ns),
                f.cost_ns,
                f.wait_ns,
                f.reclaim_ns,
                f.compaction_ns,
                f.migration_ns,
                f.cpu,
                f.pid,
                f.tid,
                escape::csv(process.map_or("", |process| &process.comm)),
                process
                    .and_then(|process| process.rank)
                    .map_or(String::new(), |rank| rank.to_string()),
                f.kind.name(),
                f.stall.name(),
                f.origin.name(),
                u8::from(f.write),
                u8::from(f.exec),
                u8::from(f.major),
                f.retries,
                f.level,
                f.address,
            )?;
            match mapping {
                Some(m) => writeln!(
                    out,
                    "{},{},{:#x},{:#x}",
                    escape::csv(&m.class),
                    escape::csv(&m.name),
                    m.start,
                    m.end
                )?,
                None => writeln!(out, ",,,")?,
            }
        }
        Ok(())
    };
    write(out)?;
    Ok(())
}
