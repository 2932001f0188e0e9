//! Files of the kernel, and the switch of a module: the change, and the way back.

use std::fs;

use hpmmap_base::error::{Error, Result};
use hpmmap_host::{Root, chosen};

use super::Prepared;
use super::undo::{NotUndone, Setting, Undo, Undone};
use crate::machine::{THP, thp};
use crate::switch::Switch;

impl Setting {
    /// Can the change, a part of it, or an attempt to set it back have led to this value?
    fn explains(&self, now: &str) -> bool {
        match self.reached.as_ref().or(self.asked.as_ref()) {
            Some(to) => now == to || is_between(now, &self.old, to),
            None => true,
        }
    }
}

/// Is it a number on the way from one to the other, as a count that the kernel has not reached?
fn is_between(now: &str, from: &str, to: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    match (number(now), number(from), number(to)) {
        (Some(now), Some(from), Some(to)) => (from.min(to)..=from.max(to)).contains(&now),
        _ => false,
    }
}

/// The value of a file; of a choice between words that in brackets.
fn value(root: &Root, path: &str) -> Option<String> {
    let text = root.read(path).ok()?;
    Some(chosen(&text).unwrap_or(&text).to_string())
}

fn write(root: &Root, path: &str, text: &str) -> Result<()> {
    let path = root.join(path);
    let named = |error| Error::Failed(format!("cannot write to {}: {error}", path.display()));
    fs::write(&path, text).map_err(named)
}

impl Prepared {
    /// A file before a change.
    pub(super) fn setting(&self, path: &str, asked: Option<&str>) -> Option<Setting> {
        Some(Setting {
            path: path.into(),
            old: value(&self.root, path)?,
            asked: asked.map(str::to_string),
            reached: None,
        })
    }

    /// Records the files of a change that is made next.
    pub(super) fn remember_files(&mut self, files: &[Setting]) -> Result<()> {
        match files {
            [] => Ok(()),
            files => self.remember(Undo::Write(files.to_vec())),
        }
    }

    /// Records what the files of a change have become.
    pub(super) fn complete_files(&mut self, mut files: Vec<Setting>) {
        for file in &mut files {
            file.reached = value(&self.root, &file.path);
        }
        if !files.is_empty() {
            self.complete(Undo::Write(files));
        }
    }

    /// Changes a setting and remembers the old value.
    pub fn write(&mut self, path: &str, text: &str) -> Result<()> {
        self.write_with(path, text, Vec::new())
    }

    /// The same; the values of `others` follow from it. They are set back after it.
    pub(super) fn write_with(&mut self, path: &str, text: &str, others: Vec<String>) -> Result<()> {
        self.begin()?;
        let mut files: Vec<Setting> = self.setting(path, Some(text)).into_iter().collect();
        files.extend(others.iter().filter_map(|other| self.setting(other, None)));
        let known = self.undo.len();
        self.remember_files(&files)?;
        write(&self.root, path, text).inspect_err(|_| self.undo.truncate(known))?;
        self.complete_files(files);
        Ok(())
    }

    /// Sets transparent huge pages, if the kernel has them.
    pub fn set_thp(&mut self, want: &str) -> Result<()> {
        if thp(&self.root).is_some_and(|now| now != want) {
            self.write(THP, want)?;
        }
        Ok(())
    }

    /// Writes the old values, if all files that the change has altered are as it has left them.
    pub(super) fn write_back(&self, files: &[Setting]) -> Undone {
        let is_changed = |file: &&Setting| file.reached.as_ref() != Some(&file.old);
        let files: Vec<&Setting> = files.iter().filter(is_changed).collect();
        let differing = || {
            files.iter().filter_map(|file| {
                let now = value(&self.root, &file.path);
                (now.as_ref() != Some(&file.old)).then_some((file, now))
            })
        };
        if differing().next().is_none() {
            return Ok(());
        }
        for (file, now) in differing() {
            // One that cannot be read fails below.
            if let Some(now) = now
                && !file.explains(&now)
            {
                return Err(NotUndone::Changed(format!(
                    "/{}: it was changed meanwhile and stays '{now}'; before the benchmark it was \
                     '{}'",
                    file.path, file.old
                )));
            }
        }
        for Setting { path, old, .. } in files.iter().rev() {
            write(&self.root, path, old)?;
        }
        // Linux reports success where it has got fewer huge pages.
        match differing().next() {
            None => Ok(()),
            Some((Setting { path, old, .. }, now)) => Err(NotUndone::Failed(format!(
                "/{path}: it is '{}' after '{old}' was written",
                now.unwrap_or_default()
            ))),
        }
    }

    /// Loads a module with a switch on or off, and remembers whether it was loaded, and how.
    pub fn switch(&mut self, switch: &Switch, asked: bool) -> Result<()> {
        self.begin()?;
        let undo = |old| Undo::Switch {
            switch: switch.clone(),
            old,
            asked,
        };
        let now = undo(switch.is_on(&self.root));
        let first = self.undo.iter().find(|earlier| earlier.meets(&now));
        let old = match first {
            Some(Undo::Switch { old, .. }) => *old,
            _ => switch.is_on(&self.root),
        };
        self.remember(undo(old))?;
        switch.set(&self.root, Some(asked))
    }

    /// A module that is not loaded was unloaded by the change.
    pub(super) fn switch_back(&self, switch: &Switch, old: Option<bool>, asked: bool) -> Undone {
        match switch.is_on(&self.root) {
            Some(now) if old != Some(now) && now != asked => Err(NotUndone::Changed(format!(
                "{}: it was loaded meanwhile and stays",
                switch.module
            ))),
            _ => Ok(switch.set(&self.root, old)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::journal::text;
    use super::super::tests::{assert_no_journal, undone};
    use super::super::undo::tests::setting;
    use super::*;
    use crate::machine::nr_hugepages;
    use crate::machine::tests::fixture;
    use crate::plan::LARGE_PAGE;

    #[test]
    fn what_others_have_changed_since_stays_and_is_said() {
        let fixture = fixture();
        let pages = nr_hugepages(LARGE_PAGE, None);
        fixture.write(THP, "[always] madvise never\n");
        fixture.write(&pages, "4\n");
        let read = |path: &str| value(&fixture.root(), path).unwrap();
        let mut prepared = Prepared::new(&fixture.root());
        prepared.set_thp("madvise").unwrap();
        // Written by the benchmark twice: the older change goes with the newer one, without a word.
        prepared.write(THP, "never").unwrap();
        prepared.write(&pages, "9").unwrap();
        fixture.write(THP, "always [defer] madvise never\n");
        let said = prepared.set_back();
        assert_eq!(
            said,
            [format!(
                "/{THP}: it was changed meanwhile and stays 'defer'; before the benchmark it was \
                 'madvise'"
            )]
        );
        assert_eq!((read(THP), read(&pages)), ("defer".into(), "4".into()));
        assert!(prepared.set_back().is_empty());
        assert_no_journal(&fixture);
    }

    #[test]
    fn a_benchmark_that_was_killed_in_a_change_has_made_a_part_of_it() {
        let fixture = fixture();
        let pages = nr_hugepages(LARGE_PAGE, None);
        let open = || {
            let mut open = setting(&pages, "4", "9");
            open.reached = None;
            vec![Undo::Write(vec![open])]
        };
        fixture.write(&pages, "7\n");
        assert!(undone(&fixture, open()).is_empty());
        assert_eq!(fixture.root().read(&pages).unwrap(), "4");
        fixture.write(&pages, "20\n");
        assert_eq!(undone(&fixture, open()).len(), 1);
        assert_eq!(fixture.root().read(&pages).unwrap(), "20");
    }

    #[test]
    fn a_value_is_explained_by_the_result_or_by_a_part_of_the_change() {
        let mut file = setting("sys/a", "4", "9");
        file.reached = None;
        assert!(["4", "6", "9"].iter().all(|now| file.explains(now)));
        assert!(["3", "10", "x"].iter().all(|now| !file.explains(now)));
        file.reached = Some("7".into());
        assert!(file.explains("7") && !file.explains("9"));
    }

    #[test]
    fn huge_pages_that_linux_has_not_got_are_said() {
        let fixture = fixture();
        // It takes any value, and keeps its own.
        let nothing = "sys/nr_hugepages";
        symlink("/dev/null", fixture.path().join(nothing)).unwrap();
        let said = undone(&fixture, vec![Undo::Write(vec![setting(nothing, "9", "")])]);
        assert_eq!(
            said,
            [format!("/{nothing}: it is '' after '9' was written")]
        );
    }

    #[test]
    fn paging_that_a_killed_benchmark_changed_comes_back_when_no_machine_uses_it() {
        let fixture = fixture();
        let left = "run/hpmmap/bench/1-0";
        let changed = |old, asked| Undo::Switch {
            switch: Switch::npt(),
            old,
            asked,
        };
        let parameter = "sys/module/kvm_amd/parameters/npt";
        fixture.write(parameter, "N\n");
        fixture.write("sys/module/kvm_amd/refcnt", "1\n");
        // Two changes of one benchmark are one.
        let two = [changed(Some(true), true), changed(Some(true), false)];
        fixture.write(left, &text(&two).unwrap());
        Prepared::new(&fixture.root()).begin().unwrap();
        let kept = fixture.root().read(left).unwrap();
        assert_eq!(kept, text(&two[1..]).unwrap().trim());
        let said = undone(&fixture, vec![changed(Some(true), false)]);
        assert!(
            said[0].starts_with("kvm_amd is in use (refcnt 1): paging"),
            "{said:?}"
        );
        // It is as it was.
        fixture.write(parameter, "Y\n");
        assert!(undone(&fixture, vec![changed(Some(true), false)]).is_empty());
        // It was not loaded before, and others have loaded it.
        let said = undone(&fixture, vec![changed(None, false)]);
        assert_eq!(said, ["kvm_amd: it was loaded meanwhile and stays"]);
    }
}
