//! The time stamp counter.

use std::thread;
use std::time::{Duration, Instant};

/// The counter's value now. In a guest that counts instructions it grows by one with each.
pub fn ticks() -> u64 {
    let mut processor = 0;
    // SAFETY: every x86-64 processor this runs on has the instruction, and it
    // only writes the variable.
    unsafe { core::arch::x86_64::__rdtscp(&mut processor) }
}

/// Its ticks per second; measuring them takes a tenth of a second.
pub fn hertz() -> u64 {
    let (start, from) = (Instant::now(), ticks());
    thread::sleep(Duration::from_millis(100));
    let cycles = u128::from(ticks() - from);
    (cycles * 1_000_000_000 / start.elapsed().as_nanos().max(1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_a_processor() {
        let hz = hertz();
        assert!((10_000_000..100_000_000_000).contains(&hz), "{hz}");
    }

    #[test]
    fn it_grows() {
        let before = ticks();
        assert!(ticks() > before);
    }
}
