//! Tests with pages and monitors that are hostile.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;
use hpmmap_base::escape;
use hpmmap_base::fuzz::{ROUNDS, broken, in_time, is_quiet};
use hpmmap_sys::Errno;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::page::{GUEST_MAGIC, GuestPart, HostPart, MOST_VCPUS, PAGE_BYTES, PART_BYTES, VERSION};
use super::threads::{Actor, Threads, Vcpu};
use super::{guest, qmp};

const DEADLINE: Duration = Duration::from_millis(50);
const LONGEST_STEP: Duration = Duration::from_millis(20);

/// Threads that note what is done to them.
#[derive(Default)]
struct Noted {
    now: Duration,
    held: HashMap<u32, Duration>,
    /// How long each was held, in all.
    total: HashMap<u32, Duration>,
    exact: bool,
    changes: usize,
}

impl Threads for Noted {
    fn hold(&mut self, thread: u32) -> Result<(), Errno> {
        assert!((100..104).contains(&thread), "{thread} is not the VM's");
        assert!(thread % 2 == 0, "{thread} is not alone on its CPU");
        assert!(self.held.insert(thread, self.now).is_none());
        Ok(())
    }

    fn release(&mut self, thread: u32) {
        if let Some(since) = self.held.remove(&thread) {
            let time = self.now - since;
            assert!(time <= DEADLINE + LONGEST_STEP, "{time:?}");
            *self.total.entry(thread).or_default() += time;
        }
    }

    fn keep_awake(&mut self, cpu: u16) -> Result<(), Errno> {
        assert!([100, 102].contains(&cpu), "{cpu} is not the VM's");
        self.exact = true;
        self.changes += 1;
        Ok(())
    }

    fn let_sleep(&mut self) {
        self.exact = false;
    }
}

/// A part that a hostile guest may write: any bytes, or what is nearly right.
fn any_part(rng: &mut Rng, last: &GuestPart) -> GuestPart {
    let mut part = *last;
    if rng.u8(0..4) == 0 {
        rng.fill(part.as_mut_bytes());
    }
    if rng.u8(0..8) != 0 {
        (part.magic, part.version) = (GUEST_MAGIC, VERSION);
    }
    for word in part.critical.iter_mut().take(6) {
        *word = match rng.u8(0..5) {
            0 => 0,
            1 => rng.u32(..),
            // Sections one after the other, without an end.
            2 => word.wrapping_add(0x1_0001),
            _ => *word,
        };
    }
    part
}

#[test]
fn no_guest_makes_the_agent_act_beyond_its_bounds() {
    in_time(|| {
        for round in 0..ROUNDS as u64 {
            let mut rng = Rng::with_seed(round);
            let mut actor = Actor::new(Noted::default());
            let vcpus = (100..104).map(|thread| Vcpu {
                thread,
                cpu: (thread % 2 == 0).then_some(thread as u16),
            });
            actor.begin(vcpus.collect(), DEADLINE);
            let mut part = GuestPart::new_zeroed();
            for second in 0..4 {
                for _ in 0..100 {
                    part = any_part(&mut rng, &part);
                    actor.threads.now += LONGEST_STEP.mul_f64(rng.f64());
                    actor.act(actor.threads.now, &part);
                }
                actor.act_on_timers(&part);
                assert!(actor.threads.changes <= 2 * second + 3);
            }
            actor.release();
            // QEMU may not answer for a while.
            actor.act(actor.threads.now, &part);
            actor.act_on_timers(&part);
            let noted = &actor.threads;
            assert!(noted.held.is_empty() && !noted.exact);
            for time in noted.total.values() {
                // A step may be late each time: at most 20 of 70 ms.
                assert!(*time <= noted.now.mul_f64(0.6) + 2 * DEADLINE, "{time:?}");
            }
        }
    });
}

#[test]
fn any_host_part_is_shown_or_refused() {
    in_time(|| {
        let mut rng = Rng::with_seed(1);
        let mut shown = 0;
        for _ in 0..ROUNDS {
            let mut page = [0; PAGE_BYTES];
            page[..PART_BYTES].copy_from_slice(HostPart::new().as_bytes());
            if rng.bool() {
                rng.fill(&mut page[32..]);
            } else {
                let mut bytes = broken(&page, &mut rng);
                bytes.resize(PAGE_BYTES, 0xa5);
                page.copy_from_slice(&bytes);
            }
            // The host writes while the guest reads.
            let mut copies = 0;
            let part = guest::consistent(|| {
                copies += 1;
                if copies % 2 == 0 && rng.u8(0..3) == 0 {
                    page[12] = rng.u8(..);
                }
                page
            });
            if let Ok(Some(part)) = part {
                let told = guest::Told::new(&part, rng.u64(..));
                assert!(is_quiet(&escape::lines(&told.line())));
                assert!(told.small_bytes() <= told.bytes());
                told.nested_bytes(rng.u64(..));
                serde_json::to_string(&told).unwrap();
                shown += 1;
            }
        }
        assert!(shown > 10, "{shown}");
    });
}

#[test]
fn any_answer_of_the_monitor_is_read() {
    in_time(|| {
        let mut rng = Rng::with_seed(2);
        for _ in 0..ROUNDS {
            let bytes = broken(qmp::tests::TREE.as_bytes(), &mut rng);
            for (_, start, bytes) in qmp::regions(&String::from_utf8_lossy(&bytes)) {
                assert!(start.checked_add(bytes - 1).is_some());
            }
        }
    });
}

#[test]
fn a_part_is_never_more_than_its_page() {
    let mut rng = Rng::with_seed(3);
    let mut bytes = [0; PART_BYTES];
    for _ in 0..ROUNDS {
        rng.fill(&mut bytes);
        let host = HostPart::read_from_bytes(&bytes).unwrap();
        assert!(host.ranges().len() <= 20 && host.devices().len() <= 8);
        assert!(host.vcpus().len() <= MOST_VCPUS);
    }
}
