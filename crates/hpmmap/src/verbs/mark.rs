//! `hpmmap mark` and `hpmmap unmark`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hpmmap_base::error::Result;
use hpmmap_base::escape;
use hpmmap_base::output::{complain, print, print_versioned};
use hpmmap_base::safe_files::Links;
use serde::Serialize;

use crate::cli::{MarkArgs, UnmarkArgs};
use crate::launch::Options;
use crate::mark::{Change, LENGTH, OFFSET, Program, hex};

pub fn mark(args: &MarkArgs) -> Result<ExitCode> {
    if args.show {
        return for_each(&args.files, Links::All, args.json, |program| {
            Ok((program.mark()?, None))
        });
    }
    let options = args.launch.options(!args.no_image)?;
    for_each(&args.files, Links::Trusted, args.json, |program| {
        Ok((Some(options), Some(program.change(Some(options))?)))
    })
}

pub fn unmark(args: &UnmarkArgs) -> Result<ExitCode> {
    for_each(&args.files, Links::Trusted, args.json, |program| {
        Ok((None, Some(program.change(None)?)))
    })
}

/// The mark before, and the change if one was requested.
type Outcome = (Option<Options>, Option<Option<Change>>);

/// Handles each file; a failure does not stop the others.
fn for_each(
    files: &[PathBuf],
    links: Links,
    json: bool,
    act: impl Fn(&Program) -> Result<Outcome>,
) -> Result<ExitCode> {
    let mut reports = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for name in files {
        let done =
            Program::open(name, links).and_then(|program| Ok((act(&program)?, program.path)));
        match done {
            Ok(((mark, change), path)) => {
                let report = Report::new(name, path, mark, change);
                if json {
                    reports.push(report);
                } else {
                    print(&report.text())?;
                }
            }
            Err(error) => {
                complain(&error);
                code = ExitCode::FAILURE;
            }
        }
    }
    if json {
        print_versioned(1, &Marked { files: &reports })?;
    }
    Ok(code)
}

/// The printed form.
#[derive(Debug, Serialize)]
struct Marked<'a> {
    files: &'a [Report],
}

#[derive(Debug, Serialize)]
struct ChangeReport {
    offset: u64,
    length: usize,
    bytes_before: String,
    bytes_after: String,
    sha256_before: String,
    sha256_after: String,
}

#[derive(Debug, Serialize)]
struct Report {
    /// The name that the user gave.
    file: PathBuf,
    /// The path after symbolic links.
    path: PathBuf,
    marked: bool,
    options: Option<Options>,
    #[serde(skip)]
    was_to_change: bool,
    /// The change; absent if the mark was as requested already.
    change: Option<ChangeReport>,
}

impl Report {
    fn new(
        name: &Path,
        path: PathBuf,
        mark: Option<Options>,
        change: Option<Option<Change>>,
    ) -> Self {
        Self {
            file: name.to_path_buf(),
            path,
            marked: mark.is_some(),
            options: mark,
            was_to_change: change.is_some(),
            change: change.flatten().map(|change| ChangeReport {
                offset: OFFSET,
                length: LENGTH,
                bytes_before: hex(&change.before),
                bytes_after: hex(&change.after),
                sha256_before: change.digests.before,
                sha256_after: change.digests.after,
            }),
        }
    }

    fn text(&self) -> String {
        let name = self.file.to_string_lossy();
        let mut text = format!("{}: ", escape::line(&name));
        if self.was_to_change && self.change.is_none() {
            text += "already ";
        }
        match &self.options {
            Some(options) => text += &format!("marked ({options})"),
            None if self.was_to_change => text += "unmarked",
            None => text += "not marked",
        }
        if self.file.is_symlink() {
            text += &format!(
                "\n  the file is {}",
                escape::line(&self.path.to_string_lossy())
            );
        }
        if let Some(change) = &self.change {
            let last = change.offset + change.length as u64 - 1;
            text += &format!(
                "\n  bytes {}-{last}: {} -> {}\n  SHA-256 before: {}\n  SHA-256 after:  {}",
                change.offset,
                change.bytes_before,
                change.bytes_after,
                change.sha256_before,
                change.sha256_after
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use hpmmap_sys::uapi;

    use super::*;
    use crate::launch::{Placement, Shared, Stacks};
    use crate::mark::Digests;

    const OPTIONS: Options = Options {
        image: true,
        strict: false,
        no_inherit: false,
        stacks: Stacks::Grow,
        shared: Shared::Pools,
        placement: Placement::Local,
        page_size: uapi::BLOCK_BYTES,
        static_bytes: 0,
    };

    fn report(mark: Option<Options>, change: Option<Option<Change>>) -> Report {
        Report::new(Path::new("app"), PathBuf::from("/x/app"), mark, change)
    }

    #[test]
    fn a_change_is_told_in_full() {
        let change = Change {
            before: [0; 4],
            after: [8, 0, 0x4d, 0x48],
            digests: Digests {
                before: "aa".into(),
                after: "bb".into(),
            },
        };
        let report = report(Some(OPTIONS), Some(Some(change)));
        assert_eq!(
            report.text(),
            "app: marked (page size 2M, image)\n  bytes 48-51: 00000000 -> 08004d48\n  \
             SHA-256 before: aa\n  SHA-256 after:  bb"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["options"]["image"], true);
        assert_eq!(json["change"]["offset"], 48);
    }

    #[test]
    fn what_is_so_already_is_told() {
        assert_eq!(
            report(Some(OPTIONS), Some(None)).text(),
            "app: already marked (page size 2M, image)"
        );
        assert_eq!(report(None, Some(None)).text(), "app: already unmarked");
        assert_eq!(report(None, None).text(), "app: not marked");
        assert_eq!(
            report(Some(OPTIONS), None).text(),
            "app: marked (page size 2M, image)"
        );
    }
}
