//! Is a file a program for this machine, and which flags does its header have?

use std::fs::File;
use std::io::Read;

use hpmmap_base::error::describe;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{LittleEndian, ReadCache};

type Header = FileHeader64<LittleEndian>;

/// e_flags of the program, or what is wrong with the file.
pub fn program_flags(file: &File) -> Result<u32, String> {
    let mut start = Vec::new();
    file.take(16)
        .read_to_end(&mut start)
        .map_err(|error| describe(&error))?;
    check_ident(&start)?;
    // From here on a failed read means a damaged file.
    let data = ReadCache::new(file);
    let header = Header::parse(&data).map_err(|_| damaged())?;
    let endian = LittleEndian;
    let machine = header.e_machine(endian);
    if machine != elf::EM_X86_64 {
        return Err(format!(
            "is for another machine than x86-64 (ELF machine {machine})"
        ));
    }
    let is_program = match header.e_type(endian) {
        elf::ET_EXEC => header.program_headers(endian, &data).is_ok(),
        elf::ET_DYN => {
            return match is_pie(header, &data) {
                Ok(true) => Ok(header.e_flags(endian)),
                Ok(false) => Err("is a shared library, not a program".into()),
                Err(_) => Err(damaged()),
            };
        }
        elf::ET_REL => return Err("is an object file, not a program".into()),
        elf::ET_CORE => return Err("is a core dump, not a program".into()),
        _ => false,
    };
    if is_program {
        Ok(header.e_flags(endian))
    } else {
        Err(damaged())
    }
}

/// The page-aligned addresses that a program is linked to; none if Linux places it, and if the file is
/// no program.
pub fn fixed_segments(file: &File) -> Vec<(u64, u64)> {
    const PAGE: u64 = 4096;
    let data = ReadCache::new(file);
    let endian = LittleEndian;
    let headers = Header::parse(&data)
        .ok()
        .filter(|header| header.e_type(endian) == elf::ET_EXEC)
        .and_then(|header| header.program_headers(endian, &data).ok());
    let load = |segment: &&_| ProgramHeader::p_type(*segment, endian) == elf::PT_LOAD;
    let segments = headers.unwrap_or_default().iter().filter(load);
    segments
        .map(|segment| {
            let start = segment.p_vaddr(endian);
            let end = start.saturating_add(segment.p_memsz(endian));
            (start - start % PAGE, end.div_ceil(PAGE) * PAGE)
        })
        .collect()
}

fn damaged() -> String {
    "is a damaged ELF file".into()
}

fn check_ident(start: &[u8]) -> Result<(), String> {
    if start.starts_with(b"#!") {
        return Err("is a script: mark the program that runs it".into());
    }
    if !start.starts_with(&elf::ELFMAG) {
        return Err("is not an ELF program".into());
    }
    match (start.get(4), start.get(5)) {
        (Some(&elf::ELFCLASS32), _) => Err("is a 32-bit program: HPMMAP is for 64-bit ones".into()),
        (_, Some(&elf::ELFDATA2MSB)) => Err("is a big-endian program".into()),
        (Some(&elf::ELFCLASS64), Some(&elf::ELFDATA2LSB)) => Ok(()),
        _ => Err(damaged()),
    }
}

/// A position-independent program has the flag for it. An older one has an interpreter and no name
/// for others to link with: libc.so has both.
fn is_pie(header: &Header, data: &ReadCache<&File>) -> object::read::Result<bool> {
    let endian = LittleEndian;
    let (mut pie, mut interpreter, mut name) = (false, false, false);
    for segment in header.program_headers(endian, data)? {
        interpreter |= segment.p_type(endian) == elf::PT_INTERP;
        for entry in segment.dynamic(endian, data)?.unwrap_or_default() {
            match u32::try_from(entry.d_tag(endian)) {
                Ok(elf::DT_NULL) => break,
                Ok(elf::DT_SONAME) => name = true,
                Ok(elf::DT_FLAGS_1) => {
                    pie |= entry.d_val(endian) & u64::from(elf::DF_1_PIE) != 0;
                }
                _ => {}
            }
        }
    }
    Ok(pie || (interpreter && !name))
}
