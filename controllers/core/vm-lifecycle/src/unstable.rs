//! A VM whose size turns again and again: it grows after it has shrunk, and shrinks again. The history is one condition, as that of
//! [`crate::crash_loop`]: its reason is the direction of the last change, its message begins with the number of turns in a row and
//! ends with the time of the last one. It is true from [`TURNS`] turns on, none of which came more than [`WINDOW`] after the one before,
//! and goes when the size has not changed for as long.

use neonvm_api::VirtualMachineStatus;
use neonvm_types::Timestamp;

use crate::condition::{self, Finding, UNSTABLE};

/// So many turns in a row.
pub const TURNS: u32 = 6;
/// Seconds between two turns that belong together.
pub const WINDOW: i64 = 300;

/// Reasons: the last change.
const SHRANK: &str = "Shrank";
const GREW: &str = "Grew";
/// What comes before the time in the message.
const LAST: &str = ", the last change at ";

/// What is known of a VM's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct History {
    turns: u32,
    shrank: bool,
    last: Timestamp,
}

impl History {
    fn read(status: &VirtualMachineStatus) -> Option<Self> {
        let condition = condition::find(status, UNSTABLE)?;
        let (turns, last) = condition.message.split_once(LAST)?;
        let turns = turns.split(' ').next()?.parse().ok()?;
        let last = last.split(';').next()?.parse().ok()?;
        Some(Self { turns, shrank: condition.reason == SHRANK, last })
    }

    fn ends(&self) -> Option<Timestamp> {
        Timestamp::from_unix(self.last.unix().saturating_add(WINDOW))
    }
}

/// Records that the size changed. Nothing is kept of a VM that has only grown.
pub(crate) fn record(status: &mut VirtualMachineStatus, grew: bool, now: Timestamp, generation: Option<i64>) {
    let recent = History::read(status).filter(|before| before.ends().is_some_and(|end| now <= end));
    let turns = match recent {
        None if grew => return condition::remove(status, UNSTABLE),
        None => 0,
        Some(before) => before.turns.saturating_add(u32::from(grew && before.shrank)),
    };
    let reason = if grew { GREW } else { SHRANK };
    let times = if turns == 1 { "turn" } else { "turns" };
    let mut message = format!("{turns} {times} of the size{LAST}{now}");
    let is_unstable = turns >= TURNS;
    if is_unstable {
        message.push_str("; if the load comes in bursts, a larger lower bound keeps the size");
    }
    let finding = if is_unstable { Finding::yes(reason, message) } else { Finding::no(reason, message) };
    condition::set(status, UNSTABLE, &finding, now, generation);
}

/// Forgets the history of a VM whose size has not changed for a while. Returns when to look again, if that is yet to come.
pub(crate) fn forget_if_still(status: &mut VirtualMachineStatus, now: Timestamp) -> Option<Timestamp> {
    condition::find(status, UNSTABLE)?;
    let end = History::read(status).and_then(|history| history.ends());
    if let Some(end) = end.filter(|end| now < *end) {
        return Some(end);
    }
    condition::remove(status, UNSTABLE);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_unix(1_000_000 + second).unwrap()
    }

    fn is_unstable(status: &VirtualMachineStatus) -> bool {
        condition::holds(status, UNSTABLE)
    }

    #[test]
    fn a_size_that_swings_is_unstable_and_one_that_follows_its_load_is_not() {
        for (seconds, swings) in [(4, true), (120, true), (400, false)] {
            let mut status = VirtualMachineStatus::default();
            for turn in 0..20 {
                record(&mut status, turn % 2 == 1, at(turn * seconds), Some(1));
            }
            assert_eq!(is_unstable(&status), swings, "{seconds}");
        }
        let mut status = VirtualMachineStatus::default();
        for step in 0..30 {
            record(&mut status, step < 15, at(step), Some(1));
        }
        assert!(!is_unstable(&status), "one way up and one way down");
    }

    #[test]
    fn the_sixth_turn_decides_and_calm_ends_it() {
        let mut status = VirtualMachineStatus::default();
        record(&mut status, true, at(0), Some(1));
        assert!(status.conditions.is_empty(), "nothing is kept of a growth");
        for turn in 1..=6 {
            record(&mut status, false, at(turn * 10), Some(1));
            record(&mut status, true, at(turn * 10 + 5), Some(1));
            assert_eq!(is_unstable(&status), turn >= 6, "{turn}");
        }
        let message = &condition::find(&status, UNSTABLE).unwrap().message;
        assert!(message.starts_with("6 turns of the size, the last change at "), "{message}");
        assert_eq!(forget_if_still(&mut status, at(100)), Some(at(365)));
        assert_eq!(forget_if_still(&mut status, at(365)), None);
        assert!(status.conditions.is_empty());
    }

    #[test]
    fn any_message_is_survived() {
        for message in
            ["", "6", "6 turns, the last change at never", "x, the last change at 2026-01-01T00:00:00Z"]
        {
            let mut status = VirtualMachineStatus::default();
            condition::set(&mut status, UNSTABLE, &Finding::yes(SHRANK, message), at(0), None);
            record(&mut status, true, at(1), None);
            assert!(status.conditions.is_empty(), "{message}");
        }
    }
}
