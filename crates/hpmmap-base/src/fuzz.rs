//! For tests of readers of files that any user may have written: the result must be an error or a
//! report, soon, and nothing in it may act on a terminal or a browser.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

/// Files that a test makes.
pub const ROUNDS: usize = 400;
/// Much longer than all rounds together take.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a test, and fails if it hangs.
pub fn in_time(test: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        done.send(())
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(LIMIT) {
        panic!("it does not end");
    }
    thread.join().expect("no panic").expect("the test waits");
}

/// Returns `bytes` with some bytes changed, removed, doubled or inserted.
pub fn broken(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(0..=bytes.len());
        match rng.u8(0..6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.u8(..)),
            2 => bytes.extend_from_within(at..),
            3 => {
                bytes.drain(at..(at + rng.usize(0..9)).min(bytes.len()));
            }
            4 if at + 8 <= bytes.len() => {
                let value = [0, 1, u64::MAX, 1 << 63, 1 << 59][rng.usize(0..5)];
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.u8(0..8);
                }
            }
        }
    }
    bytes
}

/// A text with characters that act on terminals, browsers and spreadsheets.
pub const NASTY: &str = "=\u{1b}]0;<script>&\"'\u{7}\n\u{202e}\u{9b}2J";

/// Replaces one JSON value in `one_in`.
fn odd(value: &mut Value, rng: &mut Rng, one_in: u32) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| odd(one, rng, one_in)),
        Value::Object(all) => all.values_mut().for_each(|one| odd(one, rng, one_in)),
        _ if rng.u32(0..one_in) != 0 => (),
        Value::String(_) => *value = json!(NASTY),
        Value::Number(_) => {
            let numbers = [
                json!(1.7e308),
                json!(-1.0),
                json!(0),
                json!(1e-308),
                json!(3.1e9),
                json!(u64::MAX),
                json!(1_u64 << 47),
                json!(7),
                Value::Null,
            ];
            *value = rng.choice(numbers).expect("there are some");
        }
        _ => *value = json!(rng.bool()),
    }
}

/// Returns JSON in which some values are replaced by others.
///
/// # Panics
///
/// If `bytes` is not JSON.
pub fn odd_json(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut value: Value = serde_json::from_slice(bytes).unwrap();
    let one_in = rng.u32(1..60);
    odd(&mut value, rng, one_in);
    serde_json::to_vec(&value).unwrap()
}

/// Is the file, which a browser shows, free of control characters?
pub fn is_quiet(text: &str) -> bool {
    text.chars()
        .all(|c| c == '\n' || c == '\r' || c == '\t' || !c.is_control())
}
