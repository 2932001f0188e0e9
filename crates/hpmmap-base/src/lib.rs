//! Shared by all verbs of the command: errors and their exit statuses, text for people, sizes,
//! files that are replaced as a whole, and signals. Knows no verb and no argument.

pub mod error;
pub mod escape;
pub mod fuzz;
pub mod output;
pub mod safe_files;
pub mod signals;
pub mod size;

use nix::unistd::{Uid, User};

/// The version of the product, from the file VERSION.
pub const VERSION: &str = include_str!("../../../VERSION").trim_ascii();

/// Name of a user, or the number if it has no name.
pub fn user_name(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}
