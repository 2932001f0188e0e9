//! Decides which vCPUs are in a critical section that the host honours. Pure: time and the guest's
//! words are arguments, and any words are allowed.

use std::time::Duration;

/// A vCPU.
#[derive(Debug, Clone)]
struct Slot {
    held: bool,
    /// How long it may still be held: it falls while the vCPU is held, and grows to the deadline
    /// while it is not. So a vCPU is held at most half of the time.
    budget: Duration,
    /// The number of the section that was held until the budget was used up.
    spent: Option<u16>,
}

/// All vCPUs.
#[derive(Debug)]
pub struct Sections {
    deadline: Duration,
    last: Duration,
    slots: Vec<Slot>,
}

impl Sections {
    pub fn new(deadline: Duration, vcpus: usize) -> Self {
        let slot = Slot {
            held: false,
            budget: deadline,
            spent: None,
        };
        Self {
            deadline,
            last: Duration::ZERO,
            slots: vec![slot; vcpus],
        }
    }

    /// The vCPUs whose state changes at the time `now`, and whether each is held from now on. A vCPU
    /// without a word is not held.
    pub fn step(&mut self, now: Duration, words: &[u32]) -> Vec<(usize, bool)> {
        let passed = now.saturating_sub(self.last);
        self.last = now.max(self.last);
        let mut changed = Vec::new();
        for (vcpu, slot) in self.slots.iter_mut().enumerate() {
            slot.budget = match slot.held {
                true => slot.budget.saturating_sub(passed),
                false => slot.budget.saturating_add(passed).min(self.deadline),
            };
            let word = words.get(vcpu).copied().unwrap_or(0);
            let number = (word >> 16) as u16;
            let is_inside = word & 0xffff != 0 && slot.spent != Some(number);
            let enough = match slot.held {
                true => Duration::from_nanos(1),
                false => self.deadline / 2,
            };
            let held = is_inside && slot.budget >= enough;
            if slot.held && is_inside && !held {
                slot.spent = Some(number);
            }
            if slot.held != held {
                slot.held = held;
                changed.push((vcpu, held));
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn word(number: u32, depth: u32) -> u32 {
        number << 16 | depth
    }

    #[test]
    fn a_section_is_held_from_its_begin_to_its_end() {
        let mut sections = Sections::new(50 * MS, 2);
        assert_eq!(sections.step(MS, &[0, 0]), []);
        assert_eq!(sections.step(2 * MS, &[0, word(1, 1)]), [(1, true)]);
        assert_eq!(sections.step(3 * MS, &[0, word(2, 2)]), []);
        assert_eq!(sections.step(4 * MS, &[0, word(2, 1)]), []);
        assert_eq!(sections.step(5 * MS, &[0, word(2, 0)]), [(1, false)]);
        assert_eq!(sections.step(6 * MS, &[0, word(3, 1)]), [(1, true)]);
        // Words that are missing end it.
        assert_eq!(sections.step(7 * MS, &[]), [(1, false)]);
    }

    #[test]
    fn a_section_ends_at_the_deadline_and_is_not_held_again() {
        let mut sections = Sections::new(50 * MS, 1);
        assert_eq!(sections.step(MS, &[word(7, 1)]), [(0, true)]);
        assert_eq!(sections.step(50 * MS, &[word(7, 1)]), []);
        assert_eq!(sections.step(51 * MS, &[word(7, 1)]), [(0, false)]);
        assert_eq!(sections.step(1000 * MS, &[word(7, 1)]), []);
        assert_eq!(sections.step(1001 * MS, &[word(8, 1)]), [(0, true)]);
    }

    #[test]
    fn the_next_section_waits_for_half_of_the_budget() {
        let mut sections = Sections::new(50 * MS, 1);
        sections.step(Duration::ZERO, &[word(1, 1)]);
        assert_eq!(sections.step(50 * MS, &[word(1, 1)]), [(0, false)]);
        assert_eq!(sections.step(74 * MS, &[word(2, 1)]), []);
        assert_eq!(sections.step(75 * MS, &[word(2, 1)]), [(0, true)]);
    }
}
