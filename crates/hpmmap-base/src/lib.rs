//! What all verbs of the command share: errors and their exit statuses, text
//! that goes to people, sizes, files that are replaced as a whole, and
//! signals. Knows no verb and no argument.

pub mod error;
pub mod escape;
pub mod fuzz;
pub mod output;
pub mod safe_files;
pub mod signals;
pub mod size;

use nix::unistd::{Uid, User};

/// The version of the product; the file VERSION is the only place.
pub const VERSION: &str = include_str!("../../../VERSION").trim_ascii();

/// Name of a user, or the number where there is none.
pub fn user_name(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}
