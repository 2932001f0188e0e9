//! SIGPIPE as the caller of the command left it.
//!
//! The Rust runtime ignores SIGPIPE before `main`. A launcher must not pass that on to the program
//! it executes, and a reporter should end quietly when its reader does. So the disposition is
//! saved before the runtime starts.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigHandler, Signal, signal};

static WAS_IGNORED: AtomicBool = AtomicBool::new(false);

extern "C" fn note() {
    // SAFETY: runs once, before main, while there is one thread; swapping
    // between the default and the ignoring handler installs no code.
    if let Ok(old) = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) } {
        WAS_IGNORED.store(matches!(old, SigHandler::SigIgn), Ordering::Relaxed);
    }
}

// SAFETY: the section holds pointers to functions of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

/// Undoes what the runtime did to SIGPIPE. Called at the start of `main`.
pub fn restore() {
    let handler = if WAS_IGNORED.load(Ordering::Relaxed) {
        SigHandler::SigIgn
    } else {
        SigHandler::SigDfl
    };
    // SAFETY: neither handler is code of this program.
    unsafe { signal(Signal::SIGPIPE, handler) }.expect("SIGPIPE is a valid signal");
}
