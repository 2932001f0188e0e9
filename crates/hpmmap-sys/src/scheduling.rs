//! Scheduling policies of threads, by number.

use nix::errno::Errno;
use nix::libc;

/// A policy (SCHED_*, with SCHED_RESET_ON_FORK) and its priority, 0 for those without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The policy, and the flag.
    pub number: i32,
    /// The priority.
    pub priority: i32,
}

impl Policy {
    /// The policy of a thread without demands.
    pub const OTHER: Self = Self {
        number: libc::SCHED_OTHER,
        priority: 0,
    };
    /// Runs until it sleeps; its children do not.
    pub const FIFO_ALONE: Self = Self::fifo_alone(1);

    /// The same with another priority, 1 to 99.
    pub const fn fifo_alone(priority: i32) -> Self {
        Self {
            number: libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            priority,
        }
    }

    /// The same, with the flag. Only CAP_SYS_NICE may take the flag away from a thread.
    pub fn alone(self) -> Self {
        Self {
            number: self.number | libc::SCHED_RESET_ON_FORK,
            ..self
        }
    }

    /// Is it one of the policies that share a CPU by time?
    pub fn is_fair(self) -> bool {
        let number = self.number & !libc::SCHED_RESET_ON_FORK;
        [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&number)
    }

    /// Returns that of a thread.
    pub fn of(thread: u32) -> Result<Self, Errno> {
        let mut priority: libc::c_int = 0;
        // SAFETY: the call reads no memory of this process. Not by the C library: musl's refuses.
        let number = unsafe { libc::syscall(libc::SYS_sched_getscheduler, thread) };
        let number = Errno::result(number)? as i32;
        // SAFETY: the kernel writes a struct sched_param, which is one int.
        Errno::result(unsafe {
            libc::syscall(libc::SYS_sched_getparam, thread, &raw mut priority)
        })?;
        Ok(Self { number, priority })
    }

    /// Gives it to a thread. Real-time priorities need CAP_SYS_NICE or RLIMIT_RTPRIO.
    pub fn set(self, thread: u32) -> Result<(), Errno> {
        let priority: libc::c_int = self.priority;
        // SAFETY: the kernel reads a struct sched_param, which is one int.
        Errno::result(unsafe {
            libc::syscall(
                libc::SYS_sched_setscheduler,
                thread,
                self.number,
                &raw const priority,
            )
        })
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_it_was_given() {
        let thread = nix::unistd::gettid().as_raw() as u32;
        let before = Policy::of(thread).unwrap();
        assert!(before.is_fair());
        let batch = Policy {
            number: libc::SCHED_BATCH,
            priority: 0,
        };
        batch.set(thread).unwrap();
        assert_eq!(Policy::of(thread), Ok(batch));
        batch.alone().set(thread).unwrap();
        let now = Policy::of(thread).unwrap();
        assert!(now.is_fair() && now != batch);
        assert!(!Policy::FIFO_ALONE.is_fair());
        assert_eq!(Policy::of(u32::MAX >> 1), Err(Errno::ESRCH));
    }
}
