//! What is known of a change, so that it can be undone, and which changes concern the same.

use hpmmap_base::error::Error;
use serde::{Deserialize, Serialize};

use crate::switch::Switch;

/// How a change is undone, unless others have made another one since. Each can be undone twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Undo {
    /// Files that a change concerns: the one that is written, then those that follow from it. The
    /// last is set back first.
    Write(Vec<Setting>),
    /// Removes memory from the pool of a node, but none that it had before.
    PoolRemove(Growth),
    /// Loads KVM's module with the old state of a switch, or unloads it.
    Switch {
        /// The switch.
        switch: Switch,
        /// Its state before; `None` if the module was not loaded.
        old: Option<bool>,
        /// Its state afterwards.
        asked: bool,
    },
}

/// A file of the kernel that a change concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its path below the root.
    pub path: String,
    /// Its value before.
    pub old: String,
    /// The value to be written; `None` if it follows from that of another file.
    pub asked: Option<String>,
    /// The value that the change has led to; `None` until that is known.
    pub reached: Option<String>,
}

/// Memory that is added to the pool of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// The node.
    pub node: u32,
    /// Size of the pool before.
    pub before: u64,
    /// The most to be added.
    pub bytes: u64,
    /// What was added; `None` until that is known.
    pub added: Option<u64>,
}

impl Undo {
    /// Do both concern the same file, pool or switch?
    pub fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Write(own), Self::Write(others)) => {
                let is_there = |file: &Setting| others.iter().any(|one| one.path == file.path);
                own.iter().any(is_there)
            }
            (Self::PoolRemove(own), Self::PoolRemove(other)) => own.node == other.node,
            (Self::Switch { switch, .. }, Self::Switch { switch: other, .. }) => switch == other,
            _ => false,
        }
    }

    /// Is it known what the change has led to? A switch is as it was asked to be.
    fn is_complete(&self) -> bool {
        match self {
            Self::Switch { .. } => true,
            Self::Write(files) => files.iter().all(|file| file.reached.is_some()),
            Self::PoolRemove(growth) => growth.added.is_some(),
        }
    }

    /// Adds it to a list of changes, in the place of the same one whose result was not known. A
    /// switch has one change, which goes from its first state to its last one.
    pub fn put(self, list: &mut Vec<Self>) {
        let is_open = |one: &Self| !one.is_complete() || matches!(one, Self::Switch { .. });
        let same = |one: &Self| is_open(one) && self.is_complete() && one.meets(&self);
        match list.iter().rposition(same) {
            Some(place) => list[place] = self,
            None => list.push(self),
        }
    }
}

/// Why a change is not undone.
#[derive(Debug, PartialEq, Eq)]
pub enum NotUndone {
    /// Others have made another change since, which stays.
    Changed(String),
    /// It failed, and is tried again.
    Failed(String),
}

impl From<Error> for NotUndone {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The result of undoing a change.
pub type Undone = std::result::Result<(), NotUndone>;

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A setting that is as a benchmark has left it.
    pub fn setting(path: &str, old: &str, reached: &str) -> Setting {
        Setting {
            path: path.into(),
            old: old.into(),
            asked: Some(reached.into()),
            reached: Some(reached.into()),
        }
    }

    /// Memory that a benchmark has added to the pool of node 0.
    pub fn growth(before: u64, bytes: u64, added: Option<u64>) -> Growth {
        Growth {
            node: 0,
            before,
            bytes,
            added,
        }
    }

    #[test]
    fn a_result_belongs_to_the_last_change_without_one() {
        let file = |reached: Option<&str>| {
            let reached = reached.map(str::to_string);
            let file = setting("sys/a", "1", "9");
            Undo::Write(vec![Setting { reached, ..file }])
        };
        let pool = |node, added| {
            Undo::PoolRemove(Growth {
                node,
                ..growth(2, 3, added)
            })
        };
        let mut list = Vec::new();
        for undo in [
            file(None),
            pool(0, None),
            file(Some("7")),
            pool(1, None),
            pool(0, Some(3)),
            file(None),
        ] {
            undo.put(&mut list);
        }
        let expected = [file(Some("7")), pool(0, Some(3)), pool(1, None), file(None)];
        assert_eq!(list, expected);
    }
}
