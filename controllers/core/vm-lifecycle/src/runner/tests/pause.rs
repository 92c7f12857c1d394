//! The guest's CPUs stand still on request.

use super::*;

fn pause(core: &Core) -> (bool, bool) {
    (core.status().pause.asked, core.status().pause.applied)
}

fn paused() -> Core {
    let mut core = running();
    assert_eq!(core.step(SECOND, Event::Pause(true)), [Action::Pause]);
    assert_eq!(pause(&core), (true, false));
    assert_eq!(core.step(SECOND, Event::Paused(true)), []);
    assert_eq!(pause(&core), (true, true));
    core
}

#[test]
fn a_guest_is_paused_and_continued_and_stays_ready() {
    let mut core = paused();
    assert!(core.status().ready && core.is_paused() && core.wake_at().is_none());
    assert_eq!(core.step(SECOND, Event::Pause(true)), [], "it is already");
    assert_eq!(core.step(900 * SECOND, Event::Pause(false)), [Action::Continue]);
    assert_eq!(pause(&core), (false, true), "QEMU has not answered");
    assert_eq!(core.step(900 * SECOND, Event::Paused(false)), []);
    assert_eq!(pause(&core), (false, false));
    assert!(core.status().ready && !core.is_paused() && core.wake_at().is_none());
}

#[test]
fn a_guest_that_boots_is_paused_when_it_is_up() {
    let mut core = started();
    assert_eq!(core.step(SECOND, Event::Pause(true)), []);
    assert_eq!(pause(&core), (true, false));
    assert_eq!(core.step(2 * SECOND, Event::Answered { online: 1 }), [Action::Pause]);
    assert!(core.status().ready);
}

#[test]
fn a_request_that_is_taken_back_meanwhile_is_undone() {
    let mut core = running();
    core.step(SECOND, Event::Pause(true));
    assert_eq!(core.step(SECOND, Event::Pause(false)), [], "one order at a time");
    assert_eq!(core.step(SECOND, Event::Paused(true)), [Action::Continue]);
    core.step(SECOND, Event::Paused(false));
    assert_eq!((pause(&core), core.wake_at()), ((false, false), None));
}

#[test]
fn a_paused_guest_is_continued_before_the_power_button_is_pressed() {
    let mut core = paused();
    assert_eq!(core.step(SECOND, Event::Stop { grace: 30 * SECOND }), [Action::Continue]);
    assert_eq!(core.wake_at(), Some(30 * SECOND), "the button waits for QEMU, not for a time");
    assert_eq!(core.step(SECOND, Event::Paused(false)), [Action::PressPowerButton]);
    assert_eq!(core.status().state, RunnerState::Stopping);
    assert_eq!(pause(&core), (true, false), "it is not paused again");
}

#[test]
fn a_guest_that_cannot_be_continued_is_killed_at_once() {
    let mut core = paused();
    core.step(SECOND, Event::Stop { grace: 3600 * SECOND });
    assert_eq!(core.step(2 * SECOND, Event::PauseFailed("the monitor is gone".into())), [Action::Kill]);
    assert_eq!(core.step(3600 * SECOND, Event::Timer), [Action::Continue], "and not killed twice");
}

#[test]
fn a_refused_pause_is_a_problem_and_is_tried_again() {
    let mut core = running();
    core.step(SECOND, Event::Pause(true));
    core.step(SECOND, Event::PauseFailed("no".into()));
    assert_eq!(problems(&core), [ProblemReason::PauseFailed]);
    assert_eq!(core.status().problems[0].message, "QEMU does not pause the guest: no");
    let again = core.wake_at().unwrap();
    assert!(again > SECOND);
    assert_eq!(core.step(again, Event::Timer), [Action::Pause]);
    core.step(again, Event::Paused(true));
    assert!(problems(&core).is_empty() && core.wake_at().is_none());
    // One that is not wanted any more is no problem.
    core.step(again, Event::Pause(false));
    core.step(again, Event::PauseFailed("no".into()));
    assert_eq!(core.status().problems[0].message, "QEMU does not continue the guest: no");
    core.step(again, Event::Pause(true));
    assert!(problems(&core).is_empty());
}

#[test]
fn disk_space_does_not_continue_a_paused_guest() {
    assert_eq!(paused().step(SECOND, Event::DiskRoom), []);
    let mut core = running();
    assert_eq!(core.step(SECOND, Event::DiskRoom), [Action::Continue]);
    assert_eq!(core.step(SECOND, Event::Pause(true)), [], "one order at a time");
    assert_eq!(core.step(SECOND, Event::Paused(false)), [Action::Pause]);
}

#[test]
fn nothing_is_expected_of_a_guest_while_it_stands_still() {
    let mut core = running();
    let grow = core.step(SECOND, Event::Resize(size(4000, 4)));
    assert!(grow.contains(&Action::SetCpus(MilliCpu::new(4000))));
    core.step(SECOND, Event::QuotaSet(MilliCpu::new(4000)));
    core.step(SECOND, Event::Pause(true));
    core.step(SECOND, Event::Paused(true));
    assert_eq!(core.wake_at(), None, "neither CPUs nor memory are looked for");
    core.step(11 * SECOND, Event::Silent("no answer".into()));
    core.step(12 * SECOND, Event::FilesFailed("no answer".into()));
    assert_eq!(core.step(500 * SECOND, Event::Timer), []);
    assert!(problems(&core).is_empty());
    core.step(500 * SECOND, Event::Pause(false));
    let now = 501 * SECOND;
    assert_eq!(core.step(now, Event::Paused(false)), [Action::SetCpus(MilliCpu::new(4000))]);
    core.step(now, Event::Silent("it is not that fast".into()));
    assert!(problems(&core).is_empty(), "its patience begins when it runs: {:?}", problems(&core));
    assert!(core.wake_at().unwrap() > now);
}

#[test]
fn a_pause_waits_for_the_end_of_a_migration() {
    use neonvm_types::runner_protocol::MigrationState;
    let moved = |state| Event::Moved(Box::new(MigrationStatus { state, ..MigrationStatus::default() }));
    let mut core = running();
    core.step(SECOND, moved(MigrationState::Copying));
    assert!(core.is_held());
    assert_eq!(core.step(SECOND, Event::Pause(true)), []);
    assert_eq!(core.step(2 * SECOND, moved(MigrationState::Cancelled)), [Action::Pause]);
}

/// What a client, the guest and time can do.
fn turn() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => any::<bool>().prop_map(Event::Pause),
        2 => (250_u32..4000, 1_u32..8).prop_map(|(cpu, gib)| Event::Resize(size(cpu, gib))),
        1 => Just(Event::Silent("no".into())),
        1 => Just(Event::FilesFailed("no".into())),
        1 => Just(Event::DiskRoom),
        3 => Just(Event::Timer),
        1 => (2_u64..40).prop_map(|s| Event::Stop { grace: Duration::from_secs(s) }),
    ]
}

/// QEMU as a model: orders are carried out in turn, some are refused.
struct Qemu {
    still: bool,
    orders: Vec<Action>,
    killed: bool,
}

impl Qemu {
    fn take(&mut self, actions: Vec<Action>) -> Result<(), TestCaseError> {
        for action in actions {
            match action {
                Action::SetCpus(_) | Action::AskGuest(_) | Action::PressPowerButton => {
                    prop_assert!(!self.still, "{:?} goes to a guest that stands still", action);
                }
                Action::Pause | Action::Continue => {
                    prop_assert!(self.orders.is_empty(), "two orders at once");
                    self.orders.push(action);
                }
                Action::Kill => self.killed = true,
                Action::SetMemory(_)
                | Action::SetQuota(_)
                | Action::GrowDisk(_)
                | Action::LimitDisks(_)
                | Action::LookAtDisks
                | Action::LookAtActivity
                | Action::Suspend
                | Action::CancelSuspend
                | Action::Wake => {}
            }
        }
        Ok(())
    }

    fn answer(&mut self, refuses: bool) -> Option<Event> {
        let order = self.orders.pop()?;
        if refuses {
            return Some(Event::PauseFailed("no".into()));
        }
        self.still = order == Action::Pause;
        Some(Event::Paused(self.still))
    }
}

proptest! {
    /// Whatever is requested in whatever order: the last request holds in the end, the guest gets nothing while it stands still,
    /// and no timer is due at once again and again.
    #[test]
    fn the_last_request_holds(turns in proptest::collection::vec((turn(), 0_u64..4000, any::<bool>()), 0..60)) {
        let (mut core, mut now) = (running(), SECOND);
        let mut qemu = Qemu { still: false, orders: Vec::new(), killed: false };
        for (event, wait, refuses) in turns {
            now += Duration::from_millis(wait);
            qemu.take(core.step(now, event))?;
            if wait % 3 > 0 && let Some(answer) = qemu.answer(refuses) {
                qemu.take(core.step(now, answer))?;
            }
            qemu.take(core.step(now, Event::Timer))?;
            prop_assert!(core.wake_at().is_none_or(|at| at > now));
            prop_assert_eq!(core.status().pause.applied, qemu.still);
        }
        for _ in 0..8 {
            while let Some(answer) = qemu.answer(false) {
                qemu.take(core.step(now, answer))?;
            }
            now += 10 * SECOND;
            qemu.take(core.step(now, Event::Timer))?;
        }
        let wanted = core.status().pause.asked && core.status().state == RunnerState::Running;
        prop_assert_eq!(qemu.still, wanted);
        prop_assert!(qemu.killed || !problems(&core).contains(&ProblemReason::PauseFailed));
    }
}
