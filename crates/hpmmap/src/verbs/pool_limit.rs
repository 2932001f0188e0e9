//! `hpmmap pool limit`

use std::process::ExitCode;

use hpmmap_sys::{Errno, uapi};
use nix::unistd::User;

use crate::cli::{Limit, PoolLimitArgs};
use crate::device;
use crate::error::{Error, Result};
use crate::output::print;
use crate::size::{Size, multiple_of};

pub fn perform(args: &PoolLimitArgs) -> Result<ExitCode> {
    let request = Request::new(args)?;
    device::open()?
        .limit_set(request.uid, request.bytes)
        .map_err(|errno| match errno {
            Errno::EPERM => Error::NoPermission {
                what: "to set limits".into(),
                hint: "only root may (CAP_SYS_ADMIN)".into(),
            },
            other => Error::Failed(format!("cannot set the limit: {}", other.desc())),
        })?;
    print(&request.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// A checked request.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    /// `None`: the default for every user.
    uid: Option<u32>,
    /// `None`: no limit.
    bytes: Option<u64>,
}

impl Request {
    fn new(args: &PoolLimitArgs) -> Result<Self> {
        let bytes = match args.size {
            Limit::None => None,
            Limit::Size(size) => {
                multiple_of(size, uapi::BLOCK_BYTES, "the unit")?;
                Some(size.0)
            }
        };
        let uid = args.user.as_deref().map(find_user).transpose()?;
        Ok(Self { uid, bytes })
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.uid {
            Some(uid) => write!(f, "limit of user {}: ", device::user_name(uid))?,
            None => write!(f, "default limit of every user: ")?,
        }
        match self.bytes {
            Some(bytes) => write!(f, "{}", Size(bytes)),
            None => write!(f, "none"),
        }
    }
}

/// A name goes before a number, as in chown(1).
fn find_user(text: &str) -> Result<u32> {
    if let Ok(Some(user)) = User::from_name(text) {
        return Ok(user.uid.as_raw());
    }
    text.parse().map_err(|_| {
        Error::Usage(format!(
            "there is no user '{text}': give a name or a number"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(user: Option<&str>, size: Limit) -> Result<Request> {
        Request::new(&PoolLimitArgs {
            user: user.map(str::to_string),
            default: user.is_none(),
            size,
        })
    }

    #[test]
    fn users_by_name_and_by_number() {
        assert_eq!(find_user("root").unwrap(), 0);
        assert_eq!(find_user("12345678").unwrap(), 12_345_678);
        let error = find_user("no such user").unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no user 'no such user': give a name or a number"
        );
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn limits_are_multiples_of_two_megabytes() {
        let limit = |text: &str| Limit::Size(text.parse().unwrap());
        let right = request(Some("root"), limit("4M")).unwrap();
        assert_eq!((right.uid, right.bytes), (Some(0), Some(4 << 20)));
        assert_eq!(right.to_string(), "limit of user root: 4M");
        let wrong = request(None, limit("3M")).unwrap_err();
        assert!(wrong.to_string().ends_with("use 2M or 4M"), "{wrong}");
    }

    #[test]
    fn no_limit_for_everybody() {
        let right = request(None, Limit::None).unwrap();
        assert_eq!((right.uid, right.bytes), (None, None));
        assert_eq!(right.to_string(), "default limit of every user: none");
    }
}
