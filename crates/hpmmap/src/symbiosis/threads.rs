//! What the agent does to vCPU threads of QEMU and to their CPUs, and to no others.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use hpmmap_host::{Root, vm};
use hpmmap_sys::Errno;
use hpmmap_sys::scheduling::Policy;

use super::page::{GuestPart, MOST_VCPUS};
use super::sections::Sections;

/// The latency in microseconds with which a CPU stays awake; no administrator chooses this one.
const AWAKE: &str = "1";

/// The operations on threads.
pub trait Threads {
    /// Lets no other thread of the CPU run until the thread sleeps.
    fn hold(&mut self, thread: u32) -> Result<(), Errno>;
    /// Undoes `hold`. Without that it does nothing.
    fn release(&mut self, thread: u32);
    /// Lets a CPU sleep only so lightly that a timer wakes it at once.
    fn keep_awake(&mut self, cpu: u16) -> Result<(), Errno>;
    /// Undoes `keep_awake` of all CPUs.
    fn let_sleep(&mut self);
}

/// The threads of a running QEMU.
pub struct Live {
    root: Root,
    pid: u32,
    policies: HashMap<u32, Policy>,
    /// The accepted latency of CPUs, from before.
    latencies: HashMap<u16, String>,
}

impl Live {
    pub fn new(root: &Root, pid: u32) -> Self {
        Self {
            root: root.clone(),
            pid,
            policies: HashMap::new(),
            latencies: HashMap::new(),
        }
    }

    pub fn has(&self, thread: u32) -> bool {
        vm::has_thread(&self.root, self.pid, thread)
    }

    /// Releases a thread that an agent held when it was killed.
    pub fn recover(&mut self, thread: u32) {
        if self.has(thread) && Policy::of(thread) == Ok(Policy::FIFO_ALONE) {
            self.policies.insert(thread, Policy::OTHER);
            self.release(thread);
        }
    }

    fn latency_file(&self, cpu: u16) -> PathBuf {
        let cpus = self.root.join("sys/devices/system/cpu");
        cpus.join(format!("cpu{cpu}/power/pm_qos_resume_latency_us"))
    }
}

impl Threads for Live {
    fn hold(&mut self, thread: u32) -> Result<(), Errno> {
        if !self.has(thread) {
            return Err(Errno::ESRCH);
        }
        let policy = Policy::of(thread)?;
        // A real-time thread is left alone.
        if policy.is_fair() {
            Policy::FIFO_ALONE.set(thread)?;
            self.policies.insert(thread, policy.alone());
        }
        Ok(())
    }

    fn release(&mut self, thread: u32) {
        let Some(policy) = self.policies.remove(&thread) else {
            return;
        };
        // The number may be another thread's by now.
        if self.has(thread) && Policy::of(thread) == Ok(Policy::FIFO_ALONE) {
            let _ = policy.alone().set(thread);
        }
    }

    fn keep_awake(&mut self, cpu: u16) -> Result<(), Errno> {
        let errno = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or_default());
        let file = self.latency_file(cpu);
        let before = fs::read_to_string(&file).map_err(errno)?;
        fs::write(&file, AWAKE).map_err(errno)?;
        // An agent that was killed has left its own value.
        let before = match before.trim() {
            AWAKE => "0",
            other => other,
        };
        self.latencies.insert(cpu, before.to_string());
        Ok(())
    }

    fn let_sleep(&mut self) {
        for (cpu, before) in std::mem::take(&mut self.latencies) {
            let _ = fs::write(self.latency_file(cpu), before);
        }
    }
}

/// A vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vcpu {
    pub thread: u32,
    /// The CPU of a partition that it is bound to: to hold it takes the CPU from nothing outside.
    /// Without one the agent does nothing for it.
    pub cpu: Option<u16>,
}

/// Does what the guest asks for, within bounds.
pub struct Actor<T> {
    pub threads: T,
    vcpus: Vec<Vcpu>,
    sections: Sections,
    /// vCPUs can be held.
    pub can_hold: bool,
    /// Timers can be made exact.
    pub can_be_exact: bool,
    is_exact: bool,
}

impl<T: Threads> Actor<T> {
    pub fn new(threads: T) -> Self {
        Self {
            threads,
            vcpus: Vec::new(),
            sections: Sections::new(Duration::ZERO, 0),
            can_hold: false,
            can_be_exact: false,
            is_exact: false,
        }
    }

    /// Releases all, and begins with these vCPUs. Tries what the caller may do.
    pub fn begin(&mut self, vcpus: Vec<Vcpu>, deadline: Duration) {
        self.release();
        self.sections = Sections::new(deadline, vcpus.len().min(MOST_VCPUS));
        let first = vcpus.iter().find_map(|vcpu| Some((vcpu.thread, vcpu.cpu?)));
        self.can_hold = first.is_some_and(|(thread, _)| self.threads.hold(thread).is_ok());
        self.can_be_exact = first.is_some_and(|(_, cpu)| self.threads.keep_awake(cpu).is_ok());
        self.threads.let_sleep();
        if let Some((thread, _)) = first {
            self.threads.release(thread);
        }
        self.vcpus = vcpus;
    }

    /// Holds and releases vCPUs.
    pub fn act(&mut self, now: Duration, part: &GuestPart) {
        let mut words = [0; MOST_VCPUS];
        if let Some(demands) = part.demands().filter(|_| self.can_hold) {
            for ((word, vcpu), asked) in words.iter_mut().zip(&self.vcpus).zip(demands.critical) {
                *word = vcpu.cpu.map_or(0, |_| *asked);
            }
        }
        for (vcpu, held) in self.sections.step(now, &words) {
            let thread = self.vcpus[vcpu].thread;
            if !held {
                self.threads.release(thread);
            } else if self.threads.hold(thread) == Err(Errno::EPERM) {
                self.can_hold = false;
            }
        }
    }

    /// Makes timers exact, or not. Called each second: a guest cannot make it happen more often.
    pub fn act_on_timers(&mut self, part: &GuestPart) {
        let wanted = part.demands().is_some_and(|demands| demands.timer) && self.can_be_exact;
        if wanted == self.is_exact {
            return;
        }
        self.is_exact = wanted;
        self.threads.let_sleep();
        if wanted {
            let mut cpus = self.vcpus.iter().filter_map(|vcpu| vcpu.cpu);
            self.can_be_exact = cpus.all(|cpu| self.threads.keep_awake(cpu).is_ok());
        }
    }

    /// Undoes everything, and does nothing until the next begin.
    pub fn release(&mut self) {
        self.sections = Sections::new(Duration::ZERO, 0);
        (self.can_hold, self.can_be_exact) = (false, false);
        for vcpu in std::mem::take(&mut self.vcpus) {
            self.threads.release(vcpu.thread);
        }
        self.is_exact = false;
        self.threads.let_sleep();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_of_another_process_is_left_alone() {
        let mut live = Live::new(&Root::default(), std::process::id());
        assert_eq!(live.hold(1), Err(Errno::ESRCH));
        live.release(1);
        live.recover(1);
    }

    #[test]
    fn a_cpu_gets_back_its_latency_also_from_the_next_agent() {
        let fixture = hpmmap_host::fixture::Fixture::new();
        let file = "sys/devices/system/cpu/cpu3/power/pm_qos_resume_latency_us";
        fixture.write(file, "20\n");
        let latency = || fixture.root().read(file).unwrap();
        let mut live = Live::new(&fixture.root(), 7);
        assert_eq!(live.keep_awake(2), Err(Errno::ENOENT));
        live.keep_awake(3).unwrap();
        assert_eq!(latency(), AWAKE);
        live.let_sleep();
        assert_eq!(latency(), "20");
        fixture.write(file, AWAKE);
        live.keep_awake(3).unwrap();
        live.let_sleep();
        assert_eq!(latency(), "0");
    }

    #[test]
    fn a_held_thread_is_released_also_by_the_next_agent() {
        let (told, number) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let waiting = thread::spawn(move || {
            told.send(nix::unistd::gettid().as_raw() as u32).unwrap();
            ends.recv().unwrap_err();
        });
        let thread = number.recv().unwrap();
        let mut live = Live::new(&Root::default(), std::process::id());
        // Without CAP_SYS_NICE there is nothing to undo.
        if live.hold(thread).is_ok() {
            assert_eq!(Policy::of(thread), Ok(Policy::FIFO_ALONE));
            live.release(thread);
            assert!(Policy::of(thread).unwrap().is_fair());
            live.hold(thread).unwrap();
            let mut next = Live::new(&Root::default(), std::process::id());
            next.recover(thread);
            assert!(Policy::of(thread).unwrap().is_fair());
        }
        drop(end);
        waiting.join().unwrap();
    }
}
