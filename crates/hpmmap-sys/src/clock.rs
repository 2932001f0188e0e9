//! The time stamp counter.

/// Its value now. In a guest that counts instructions it grows by one with
/// each.
pub fn ticks() -> u64 {
    let mut processor = 0;
    // SAFETY: every x86-64 processor this runs on has the instruction, and it
    // only writes the variable.
    unsafe { core::arch::x86_64::__rdtscp(&mut processor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows() {
        let before = ticks();
        assert!(ticks() > before);
    }
}
