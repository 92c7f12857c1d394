//! Restarts with pauses. The history is one condition, so that it survives the controller: its time is that of the first
//! end, its reason the last end's, its message begins with the number of ends in a row with that reason, and its observed
//! generation is that of the spec at the last end.
//!
//! The first restart is at once. After that the pause before a restart is as long as the crash loop has already lasted,
//! at least 10 s and at most 5 min, so each restart doubles it.

use neonvm_api::VirtualMachineStatus;
use neonvm_types::Timestamp;
use neonvm_types::runner_protocol::ExitReason;

use crate::condition::{self, AVAILABLE, CRASH_LOOP, Finding};
use crate::settings::Settings;

/// So many accelerator failures in a row, and the VM is not started again before its spec changes.
pub const ACCELERATOR_LIMIT: u32 = 3;

/// Exits that a user requested, or that Kubernetes caused.
const FROM_OUTSIDE: [ExitReason; 5] = [
    ExitReason::Stopped,
    ExitReason::StoppedByForce,
    ExitReason::Preempted,
    ExitReason::Evicted,
    ExitReason::NodeLost,
];

/// Records an exit, unless it was caused from outside, or by a reboot of a guest that was up for as long as the shortest pause. One
/// that reboots as soon as it is up has crashed, for whatever that does.
pub fn record(
    status: &mut VirtualMachineStatus,
    reason: ExitReason,
    now: Timestamp,
    generation: Option<i64>,
    settings: &Settings,
) {
    let served = condition::since(status, AVAILABLE).filter(|_| condition::holds(status, AVAILABLE));
    let served = served.map_or(0, |since| now.unix().saturating_sub(since.unix()));
    let rebooted = reason == ExitReason::Rebooted && served >= settings.restart_pause;
    if rebooted || FROM_OUTSIDE.contains(&reason) {
        return;
    }
    forget_if_stable(status, now, settings);
    let before = condition::find(status, CRASH_LOOP);
    let same = before
        .filter(|before| before.reason == reason.as_str() && before.observed_generation == generation)
        .map_or(0, |before| count(&before.message));
    let times = same.saturating_add(1);
    let finding = Finding::yes(reason.as_str(), message(times, reason));
    condition::set(status, CRASH_LOOP, &finding, now, generation);
}

fn message(times: u32, reason: ExitReason) -> String {
    let ends = if times == 1 { "end" } else { "ends" };
    format!("{times} {ends} in a row with {}", reason.as_str())
}

fn count(message: &str) -> u32 {
    message.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// When the VM may be started again; `None`: at once.
#[must_use]
pub fn next_start(status: &VirtualMachineStatus, settings: &Settings) -> Option<Timestamp> {
    let first = condition::since(status, CRASH_LOOP)?;
    let last = status.last_exit.as_ref()?;
    if FROM_OUTSIDE.iter().any(|reason| reason.as_str() == last.reason) {
        return None;
    }
    let last = last.time;
    let lasted = last.unix().saturating_sub(first.unix());
    // The end that opened the history; several within its second count as one.
    if lasted <= 0 && condition::find(status, CRASH_LOOP).is_none_or(|loops| count(&loops.message) <= 1) {
        return None;
    }
    let pause = lasted.clamp(settings.restart_pause, settings.restart_pause_max.max(settings.restart_pause));
    Timestamp::from_unix(last.unix().saturating_add(pause))
}

/// Whether the accelerator failed so often that another start of the same spec is pointless.
#[must_use]
pub fn given_up(status: &VirtualMachineStatus, generation: Option<i64>) -> bool {
    condition::find(status, CRASH_LOOP).is_some_and(|loops| {
        loops.reason == ExitReason::AcceleratorFailure.as_str()
            && count(&loops.message) >= ACCELERATOR_LIMIT
            && loops.observed_generation == generation
    })
}

/// Forgets the history of a VM that has been available long enough. Returns when to look again, if that is yet to come.
pub fn forget_if_stable(
    status: &mut VirtualMachineStatus,
    now: Timestamp,
    settings: &Settings,
) -> Option<Timestamp> {
    condition::find(status, CRASH_LOOP)?;
    if !condition::holds(status, AVAILABLE) {
        return None;
    }
    let ready = condition::since(status, AVAILABLE)?;
    let at = Timestamp::from_unix(ready.unix().saturating_add(settings.stable_after))?;
    if now < at {
        return Some(at);
    }
    condition::remove(status, CRASH_LOOP);
    None
}

#[cfg(test)]
mod tests {
    use neonvm_api::virtual_machine::Phase;

    use super::*;

    fn end(status: &mut VirtualMachineStatus, reason: ExitReason, at: i64) {
        let now = Timestamp::from_unix(at).unwrap();
        record(status, reason, now, Some(1), &Settings::default());
        status.phase = Some(Phase::Failed);
        status.last_exit = Some(neonvm_api::virtual_machine::LastExit {
            reason: reason.as_str().to_owned(),
            message: String::new(),
            exit_code: None,
            pod_name: "p".to_owned(),
            time: now,
            console: Vec::new(),
        });
    }

    #[test]
    fn pauses_double_from_ten_seconds_to_five_minutes() {
        let mut status = VirtualMachineStatus::default();
        let mut now = 1000;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            end(&mut status, ExitReason::GuestPanic, now);
            let start = next_start(&status, &Settings::default()).map_or(now, Timestamp::unix);
            pauses.push(start - now);
            // Each run lasts a second.
            now = start + 1;
        }
        assert_eq!(pauses, [0, 10, 12, 25, 51, 103, 207, 300, 300]);
        assert_eq!(condition::find(&status, CRASH_LOOP).unwrap().message, "9 ends in a row with GuestPanic");
    }

    #[test]
    fn ten_minutes_of_service_wipe_the_slate() {
        let mut status = VirtualMachineStatus::default();
        let at = |seconds| Timestamp::from_unix(seconds).unwrap();
        end(&mut status, ExitReason::GuestPanic, 1000);
        end(&mut status, ExitReason::GuestPanic, 1001);
        condition::set(&mut status, AVAILABLE, &Finding::yes("Ready", ""), at(1100), Some(1));
        assert_eq!(forget_if_stable(&mut status, at(1200), &Settings::default()), Some(at(1700)));
        end(&mut status, ExitReason::GuestPanic, 1701);
        assert_eq!(next_start(&status, &Settings::default()), None);
    }

    #[test]
    fn who_is_asked_to_stop_has_not_crashed() {
        let mut status = VirtualMachineStatus::default();
        for at in 1000..1010 {
            end(&mut status, ExitReason::Stopped, at);
            assert_eq!(next_start(&status, &Settings::default()), None);
        }
    }

    #[test]
    fn a_reboot_of_a_guest_that_was_up_is_no_crash() {
        let at = |seconds| Timestamp::from_unix(seconds).unwrap();
        let mut status = VirtualMachineStatus::default();
        condition::set(&mut status, AVAILABLE, &Finding::yes("Ready", ""), at(1000), Some(1));
        end(&mut status, ExitReason::Rebooted, 1010);
        assert!(condition::find(&status, CRASH_LOOP).is_none());
        assert_eq!(next_start(&status, &Settings::default()), None);
        // One that reboots whenever it is up has pauses.
        for now in [1020, 1021] {
            condition::set(&mut status, AVAILABLE, &Finding::no("Booting", ""), at(now - 5), Some(1));
            condition::set(&mut status, AVAILABLE, &Finding::yes("Ready", ""), at(now - 1), Some(1));
            end(&mut status, ExitReason::Rebooted, now);
        }
        assert!(next_start(&status, &Settings::default()).is_some());
    }

    #[test]
    fn three_accelerator_failures_are_enough_until_the_spec_changes() {
        let mut status = VirtualMachineStatus::default();
        for (at, done) in [(1, false), (2, false), (3, true)] {
            end(&mut status, ExitReason::AcceleratorFailure, at);
            assert_eq!(given_up(&status, Some(1)), done);
        }
        assert!(!given_up(&status, Some(2)));
        end(&mut status, ExitReason::GuestPanic, 4);
        assert!(!given_up(&status, Some(1)));
    }
}
