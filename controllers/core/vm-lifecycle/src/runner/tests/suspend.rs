//! The guest's memory in a file.

use neonvm_types::runner_protocol::{
    ROOM_PATIENCE, SuspendRequest, SuspendState, SuspendStatus, WakeRoom, WokenBy,
};

use super::*;
use crate::runner::suspend::{Activity, Stays};

const MINUTE: Duration = Duration::from_secs(60);

fn request(suspended: bool, request: i64) -> Event {
    Event::Suspend(SuspendRequest { suspended, request, ..SuspendRequest::default() })
}

fn idle_after(minutes: u64) -> Event {
    let idle_after_ms = Some(minutes * 60_000);
    Event::Suspend(SuspendRequest { request: 1, idle_after_ms, ..SuspendRequest::default() })
}

fn status(core: &Core) -> SuspendStatus {
    core.status().suspend.clone().unwrap_or_default()
}

fn stored() -> Event {
    Event::Suspended(Bytes::mib(160), Duration::from_millis(400))
}

fn suspended() -> Core {
    let mut core = running();
    assert_eq!(core.step(SECOND, request(true, 7)), [Action::Suspend]);
    assert_eq!(core.step(2 * SECOND, Event::Timer), [], "nothing cancels it");
    assert_eq!(core.step(2 * SECOND, stored()), []);
    core
}

#[test]
fn a_vm_is_suspended_and_a_packet_wakes_it_once() {
    let mut core = suspended();
    let seen = status(&core);
    assert_eq!((seen.state, seen.asked, seen.stored), (SuspendState::Suspended, true, Some(Bytes::mib(160))));
    assert_eq!(seen.stored_in_ms, Some(400));
    assert!(core.status().ready && core.is_suspended() && core.wake_at().is_none());
    assert_eq!(core.step(MINUTE, Event::Knock(WokenBy::Network)), [Action::Wake]);
    assert_eq!(core.step(MINUTE, Event::Knock(WokenBy::Command)), [], "it wakes already");
    assert_eq!(core.step(MINUTE, request(true, 7)), [], "and is not suspended by the old request");
    core.step(MINUTE + Duration::from_millis(230), Event::Woken);
    let seen = status(&core);
    assert_eq!((seen.state, seen.asked, seen.wakes), (SuspendState::Awake, false, 1));
    assert_eq!((seen.woken_by, seen.woke_in_ms, seen.stored), (Some(WokenBy::Network), Some(230), None));
    assert_eq!(core.step(2 * MINUTE, request(true, 7)), [], "the same request is carried out once");
    assert_eq!(core.step(2 * MINUTE, request(true, 8)), [Action::Suspend]);
}

#[test]
fn a_packet_on_the_way_to_sleep_cancels_it() {
    let mut core = running();
    core.step(SECOND, request(true, 1));
    assert_eq!(core.step(SECOND, Event::Knock(WokenBy::Command)), [Action::CancelSuspend]);
    assert_eq!(core.step(SECOND, Event::Timer), [], "cancelled once");
    core.step(SECOND, Event::NotSuspended(Stays::Needed));
    let seen = status(&core);
    assert_eq!((seen.state, seen.asked, seen.wakes), (SuspendState::Awake, false, 0));
    // It was too late to cancel: QEMU is gone, so it is woken.
    core.step(SECOND, request(true, 2));
    core.step(SECOND, Event::Knock(WokenBy::Command));
    assert_eq!(core.step(SECOND, stored()), [Action::Wake]);
}

#[test]
fn a_guest_that_works_is_queried_again_and_a_failure_is_a_problem() {
    let mut core = running();
    core.step(SECOND, request(true, 1));
    core.step(SECOND, Event::NotSuspended(Stays::Denied("PostgreSQL is not idle".into())));
    assert_eq!(status(&core).denied.as_deref(), Some("PostgreSQL is not idle"));
    assert!(problems(&core).is_empty());
    let again = core.wake_at().unwrap();
    assert_eq!(core.step(again, Event::Timer), [Action::Suspend]);
    core.step(again, Event::NotSuspended(Stays::Failed("no space left on device".into())));
    assert_eq!(problems(&core), [ProblemReason::SuspendFailed]);
    let later = core.wake_at().unwrap();
    assert!(later > again + 30 * SECOND);
    core.step(later, request(false, 2));
    assert!(problems(&core).is_empty() && core.wake_at().is_none(), "it is not wanted any more");
}

#[test]
fn size_pause_and_power_wait_for_the_guest() {
    let mut core = suspended();
    core.step(3 * SECOND, Event::Silent("no answer".into()));
    core.step(3 * SECOND, Event::FilesFailed("no answer".into()));
    assert_eq!(core.step(900 * SECOND, Event::Timer), []);
    assert!(problems(&core).is_empty());
    assert_eq!(core.step(900 * SECOND, Event::Pause(true)), [], "there is nothing to pause");
    let stop = core.step(900 * SECOND, Event::Stop { grace: MINUTE });
    assert_eq!(stop, [Action::Wake], "a guest shuts down by itself");
    assert_eq!(core.step(901 * SECOND, Event::Woken), [Action::PressPowerButton]);
    assert_eq!(status(&core).woken_by, Some(WokenBy::Stop));
}

fn room(wake: u64, granted: bool) -> Event {
    let room = Some(WakeRoom { wake, granted });
    Event::Suspend(SuspendRequest { request: 7, asks: true, room, ..SuspendRequest::default() })
}

/// A suspended VM that asks before it wakes, and that a packet has arrived for.
fn needed() -> Core {
    let mut core = suspended();
    let asks = SuspendRequest { suspended: true, request: 7, asks: true, ..SuspendRequest::default() };
    assert_eq!(core.step(3 * SECOND, Event::Suspend(asks)), []);
    assert_eq!(core.step(MINUTE, Event::Knock(WokenBy::Network)), []);
    assert!(status(&core).waits_for_room() && core.is_suspended());
    core
}

#[test]
fn a_vm_wakes_when_its_node_has_room() {
    let mut core = needed();
    assert_eq!(core.step(MINUTE, room(1, true)), [], "that is another wake");
    assert_eq!(core.step(MINUTE, room(0, true)), [Action::Wake]);
    core.step(MINUTE + SECOND, Event::Woken);
    assert_eq!((status(&core).wakes, status(&core).woken_by), (1, Some(WokenBy::Network)));
    assert_eq!(status(&core).room(), None, "the next wake needs another answer");
}

#[test]
fn a_vm_without_room_waits_for_it_and_one_without_an_answer_does_not() {
    let mut core = needed();
    assert_eq!(core.wake_at(), Some(MINUTE + ROOM_PATIENCE));
    assert_eq!(core.step(MINUTE, room(0, false)), []);
    assert_eq!((core.wake_at(), core.step(60 * MINUTE, Event::Timer)), (None, vec![]));
    assert_eq!(core.step(60 * MINUTE, room(0, true)), [Action::Wake]);
    let mut core = needed();
    assert_eq!(core.step(MINUTE + ROOM_PATIENCE, Event::Timer), [Action::Wake]);
    // One that is to shut down runs in any case, and so does one that nothing is asked for any more: it is migrated.
    let mut core = needed();
    core.step(MINUTE, room(0, false));
    assert_eq!(core.step(MINUTE, Event::Stop { grace: MINUTE }), [Action::Wake]);
    let mut core = needed();
    core.step(MINUTE, room(0, false));
    assert_eq!(core.step(MINUTE, request(false, 7)), [Action::Wake]);
}

/// A VM that is looked at as often as it wants; until this time, or until it is to be suspended.
fn look(
    core: &mut Core,
    until: Duration,
    mut activity: impl FnMut(Duration) -> Activity,
) -> Option<Duration> {
    while let Some(at) = core.wake_at().filter(|at| *at <= until) {
        for action in core.step(at, Event::Timer) {
            assert_eq!(action, Action::LookAtActivity);
            if core.step(at, Event::Activity(activity(at))).contains(&Action::Suspend) {
                return Some(at);
            }
        }
    }
    None
}

#[test]
fn a_vm_is_suspended_when_it_was_idle_for_the_whole_time() {
    let (mut core, start) = (running(), 10 * SECOND);
    core.step(start, idle_after(5));
    // An emulated guest that does nothing, and a packet after two minutes.
    let activity = |at: Duration| Activity { packets: u64::from(at > 2 * MINUTE), cpu: at / 20 };
    let at = look(&mut core, 60 * MINUTE, activity).unwrap();
    assert!((7 * MINUTE..8 * MINUTE).contains(&at), "{at:?}");
    core.step(at, stored());
    assert!(status(&core).idle && status(&core).asked);
    assert_eq!(core.step(at, idle_after(5)), [], "the same settings do not wake it");
    assert_eq!(core.step(at + MINUTE, Event::Knock(WokenBy::Network)), [Action::Wake]);
    core.step(at + MINUTE, Event::Woken);
    let again = look(&mut core, 120 * MINUTE, |_| Activity::default()).unwrap();
    assert!(again >= at + 6 * MINUTE, "it stays awake for the whole time: {again:?}");
}

#[test]
fn a_vm_with_work_or_packets_stays_awake() {
    for activity in [
        |at: Duration| Activity { packets: at.as_secs() / 10, cpu: Duration::ZERO },
        |at: Duration| Activity { packets: 0, cpu: at / 4 },
    ] {
        let mut core = running();
        core.step(SECOND, idle_after(1));
        assert_eq!(look(&mut core, 60 * MINUTE, activity), None);
    }
}

/// What clients, packets and time can do.
fn turn() -> impl Strategy<Value = Event> {
    let room = (0_u64..4, any::<bool>()).prop_map(|(wake, granted)| WakeRoom { wake, granted });
    let ask = (any::<bool>(), 0_i64..6, proptest::option::of(1_u64..4), any::<bool>());
    prop_oneof![
        4 => (ask, any::<bool>(), proptest::option::of(room)).prop_map(|(ask, asks, room)| {
            let (suspended, request, minutes, deaf) = ask;
            let idle_after_ms = minutes.map(|minutes| minutes * 60_000);
            Event::Suspend(SuspendRequest { suspended, request, idle_after_ms, deaf, asks, room })
        }),
        2 => Just(Event::Knock(WokenBy::Command)),
        2 => any::<bool>().prop_map(Event::Pause),
        1 => (250_u32..4000, 1_u32..8).prop_map(|(cpu, gib)| Event::Resize(size(cpu, gib))),
        1 => Just(Event::DiskRoom),
        3 => Just(Event::Timer),
        1 => (2_u64..40).prop_map(|s| Event::Stop { grace: Duration::from_secs(s) }),
    ]
}

/// The runner and QEMU as a model: one order of each kind is under way; packets come at any time.
#[derive(Default)]
struct World {
    /// Whether the guest's CPUs run.
    paused: bool,
    gone: bool,
    order: Option<Action>,
    cancelled: bool,
    pausing: Option<Action>,
    /// A packet that waits for the guest.
    waits: bool,
    killed: bool,
    suspensions: u64,
    wakes: u64,
}

impl World {
    fn take(&mut self, actions: Vec<Action>) -> Result<Vec<Event>, TestCaseError> {
        let mut events = Vec::new();
        for action in actions {
            match action {
                Action::SetCpus(_) | Action::AskGuest(_) | Action::PressPowerButton => {
                    let stands = self.paused || self.gone || self.order.is_some();
                    prop_assert!(!stands, "{:?} goes to a guest that does not run", action);
                }
                Action::SetMemory(_) | Action::GrowDisk(_) | Action::LimitDisks(_) | Action::LookAtDisks => {
                    prop_assert!(!self.gone, "{:?}", action);
                }
                Action::Pause | Action::Continue => {
                    prop_assert!(
                        self.pausing.is_none() && self.order.is_none() && !self.gone,
                        "{:?}",
                        action
                    );
                    self.pausing = Some(action);
                }
                Action::Suspend => {
                    prop_assert!(
                        self.order.is_none() && !self.gone && !self.paused && self.pausing.is_none()
                    );
                    (self.order, self.cancelled) = (Some(action), false);
                }
                Action::CancelSuspend => {
                    prop_assert!(self.order == Some(Action::Suspend) && !self.cancelled);
                    self.cancelled = true;
                }
                Action::Wake => {
                    prop_assert!(self.order.is_none() && self.gone, "two QEMUs");
                    self.order = Some(action);
                }
                Action::LookAtActivity => {
                    events.push(Event::Activity(Activity { packets: 0, cpu: Duration::ZERO }));
                }
                Action::Kill => self.killed = true,
                Action::SetQuota(_) => {}
            }
        }
        Ok(events)
    }

    /// The order under way ends in one of its ways.
    fn answer(&mut self, way: u8) -> Option<Event> {
        if let Some(order) = self.pausing.take() {
            self.paused = order == Action::Pause;
            return Some(Event::Paused(self.paused));
        }
        match (self.order.take()?, way) {
            (Action::Suspend, _) if self.cancelled || self.waits => {
                self.waits = false;
                Some(Event::NotSuspended(Stays::Needed))
            }
            (Action::Suspend, 0) => Some(Event::NotSuspended(Stays::Denied("busy".into()))),
            (Action::Suspend, 1) => Some(Event::NotSuspended(Stays::Failed("full".into()))),
            (Action::Suspend, _) => {
                (self.gone, self.suspensions) = (true, self.suspensions + 1);
                Some(stored())
            }
            _ => {
                (self.gone, self.waits, self.wakes) = (false, false, self.wakes + 1);
                Some(Event::Woken)
            }
        }
    }
}

fn carry(core: &mut Core, world: &mut World, now: Duration, event: Event) -> Result<(), TestCaseError> {
    let mut events = vec![event];
    while let Some(event) = events.pop() {
        events.extend(world.take(core.step(now, event))?);
    }
    prop_assert!(core.wake_at().is_none_or(|at| at > now), "a timer that is due again and again");
    Ok(())
}

proptest! {
    /// Whatever is requested in whatever order, and whenever packets come: there is one QEMU, nothing goes to a guest that does not run, and in the end
    /// no packet waits for a guest that sleeps, unless packets do not wake it or its node has no room.
    #[test]
    fn no_packet_waits_for_ever(
        turns in proptest::collection::vec((turn(), 0_u64..90_000, any::<bool>(), 0_u8..4), 0..60),
    ) {
        let (mut core, mut world, mut now) = (running(), World::default(), SECOND);
        for (event, wait, packet, way) in turns {
            now += Duration::from_millis(wait);
            // The shell refuses a size for a guest that stands still.
            if !matches!(event, Event::Resize(_)) || !core.is_suspended() && !core.is_paused() {
                carry(&mut core, &mut world, now, event)?;
            }
            // A guest that runs takes it.
            world.waits |= packet && (world.gone || world.order.is_some());
            if world.waits && !status(&core).deaf && status(&core).state == SuspendState::Suspended {
                carry(&mut core, &mut world, now, Event::Knock(WokenBy::Network))?;
            }
            if wait % 3 > 0 && let Some(answer) = world.answer(way) {
                carry(&mut core, &mut world, now, answer)?;
            }
            carry(&mut core, &mut world, now, Event::Timer)?;
            prop_assert_eq!(world.gone, matches!(status(&core).state, SuspendState::Suspended | SuspendState::Waking));
        }
        let has_no_room = |core: &Core| status(core).asks && status(core).room() == Some(false);
        for _ in 0..8 {
            now += 2 * ROOM_PATIENCE;
            carry(&mut core, &mut world, now, Event::Timer)?;
            while let Some(answer) = world.answer(3) {
                carry(&mut core, &mut world, now, answer)?;
            }
            if world.waits && !status(&core).deaf && status(&core).state == SuspendState::Suspended {
                carry(&mut core, &mut world, now, Event::Knock(WokenBy::Network))?;
            }
        }
        prop_assert!(!world.waits || status(&core).deaf || has_no_room(&core), "a packet waits: {:?}", status(&core));
        prop_assert_eq!(world.wakes, status(&core).wakes);
        prop_assert!(world.suspensions - world.wakes <= 1);
        let stops = core.status().state == RunnerState::Stopping;
        prop_assert!(!stops || !world.gone, "a guest that is to stop runs");
    }
}
