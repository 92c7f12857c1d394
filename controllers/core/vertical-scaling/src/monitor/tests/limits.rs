//! The limits of the control group, alone and as part of the policy.

use proptest::prelude::*;

use super::*;

const V1: MonitorProtoVersion = MonitorProtoVersion::V1_0;
const V2: MonitorProtoVersion = MonitorProtoVersion::V2_0;

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn sized(mode: MemoryLimits, available: u64) -> Limits {
    let mut limits = Limits::new(mode);
    let change = limits.resize(available, 0, false);
    assert!(change.set.is_some() && !change.freeze && !change.thaw);
    limits
}

fn set(high: u64, max: Option<u64>) -> LimitChange {
    LimitChange { set: Some(LimitValues { high, max }), ..LimitChange::default() }
}

const FREEZE: LimitChange = LimitChange { set: None, lift: false, freeze: true, thaw: false };

#[test]
fn limits_are_those_of_the_versions() {
    let of = |mode, available| Limits::new(mode).resize(available, 0, false);
    assert_eq!(of(MemoryLimits::High, 924 * MIB), set(824 * MIB, None));
    assert_eq!(of(MemoryLimits::HighAndMax, 924 * MIB), set(824 * MIB, Some(924 * MIB)));
    // A small VM keeps half.
    assert_eq!(of(MemoryLimits::High, 120 * MIB), set(60 * MIB, None));
    assert_eq!(of(MemoryLimits::Off, 924 * MIB), LimitChange::default());
    // What is in use already is not killed.
    let change = Limits::new(MemoryLimits::HighAndMax).resize(100 * MIB, 300 * MIB, false);
    assert_eq!(change, set(50 * MIB, Some(310 * MIB)));
}

#[test]
fn a_group_at_its_limit_stands_still_and_is_then_slow() {
    let mut limits = sized(MemoryLimits::HighAndMax, 500 * MIB);
    assert_eq!(limits.press(at(0), 0, true), FREEZE);
    assert_eq!(limits.thaw_at(), Some(FREEZE_LONGEST));
    assert_eq!(limits.press(at(5), 0, true), LimitChange::default());
    assert!(!limits.elapse(at(19)) && limits.elapse(at(20)) && limits.thaw_at().is_none());
    assert_eq!(limits.press(at(21), 0, true), set(410 * MIB, Some(500 * MIB)));
    assert_eq!(limits.press(at(45), 0, true), LimitChange::default());
    for (step, time) in (42..).zip([46, 71, 96, 121]) {
        assert_eq!(limits.press(at(time), 0, true), set(step * 10 * MIB, Some(500 * MIB)));
    }
    // Half of the buffer is for the time until the answer.
    assert_eq!(limits.press(at(500), 0, true), LimitChange::default());
    assert_eq!(limits.press(at(1000), 0, true), FREEZE);
    assert!(limits.elapse(at(1020)));
    for second in 2..10 {
        assert_eq!(limits.press(at(second * 1000), 0, true), FREEZE);
        assert!(limits.elapse(at(second * 1000 + 20)));
    }
    // No answer came: it goes on to the end.
    assert_eq!(limits.press(at(10_000), 0, true), FREEZE);
    assert!(limits.elapse(at(10_020)));
    assert_eq!(limits.press(at(10_050), 0, true), set(460 * MIB, Some(500 * MIB)));
}

#[test]
fn memory_that_comes_thaws_and_leaves_no_lower_limit() {
    let mut limits = sized(MemoryLimits::High, 500 * MIB);
    limits.press(at(0), 0, true);
    limits.elapse(at(20));
    for time in [30, 60, 90] {
        limits.press(at(time), 0, true);
    }
    assert_eq!(limits.press(at(1000), 0, true), FREEZE);
    // 430 MiB are in force.
    let change = limits.resize(516 * MIB, 0, false);
    assert_eq!(change, LimitChange { thaw: true, ..set(430 * MIB, None) });
    assert_eq!(limits.resize(700 * MIB, 0, false), set(600 * MIB, None));
    assert_eq!(limits.resize(600 * MIB, 0, false), LimitChange::default());
    assert_eq!(limits.resize(600 * MIB, 0, true), set(500 * MIB, None));
}

#[test]
fn without_an_agent_nothing_stands_still() {
    let mut limits = sized(MemoryLimits::High, 500 * MIB);
    for step in 0..30 {
        assert_eq!(limits.press(at(step * 25), 0, false), set((410 + step * 10) * MIB, None));
    }
    limits.press(at(5000), 0, true);
    assert!(limits.release() && limits.thaw_at().is_none() && !limits.release());
}

#[test]
fn consent_keeps_the_buffer_below_the_limit() {
    let limits = sized(MemoryLimits::High, GIB);
    assert!(limits.consent(500 * MIB, Some(300 * MIB)).is_ok());
    let refused = limits.consent(500 * MIB, Some(300 * MIB + 1)).unwrap_err();
    assert_eq!(
        refused,
        "memory: the control group uses 300 MiB; with 100 MiB to spare that exceeds its limit of 400 MiB"
    );
    assert!(limits.consent(500 * MIB, None).is_err());
    assert!(Limits::new(MemoryLimits::Off).consent(0, Some(GIB)).is_ok());
}

fn guest(mode: MemoryLimits, total: u64) -> Guest {
    let mut guest = Guest::new(total, 1);
    let settings = Settings { file_cache: false, measures: true, most_cpus: 8, limits: mode };
    guest.policy = Policy::new(settings);
    guest.sample.current = Some(0);
    guest
}

fn limits_of(actions: &[Action]) -> Vec<LimitValues> {
    let of = |action: &Action| match action {
        Action::SetLimits(values) => *values,
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

#[test]
fn the_policy_requests_at_the_limit_and_thaws_with_the_grant() {
    for (version, wants) in [(V1, false), (V2, true)] {
        let mut guest = guest(MemoryLimits::HighAndMax, 600 * MIB);
        guest.connect(version);
        let first = guest.tick();
        assert_eq!(limits_of(&first), [LimitValues { high: 400 * MIB, max: Some(500 * MIB) }]);
        let pressed = guest.step(Event::MemoryHigh);
        let [Action::Freeze, Action::Send { message: MonitorMessage::UpscaleRequest { wants: amounts }, .. }] =
            &pressed[..]
        else {
            panic!("{pressed:?}")
        };
        assert_eq!(amounts.is_some(), wants);
        // More than there is, although the threshold is not reached.
        let mem = amounts.as_ref().and_then(|wants| wants.mem);
        assert!(mem.is_none_or(|mem| mem.get() > 600 * MIB), "{amounts:?}");
        guest.sample.total = 900 * MIB;
        let granted = guest.up(1.0, 900 * MIB);
        assert!(matches!(granted.last(), Some(Action::Send { .. })), "{granted:?}");
        let seen = [granted, guest.tick()].concat();
        assert!(seen.contains(&Action::Thaw), "{seen:?}");
        assert_eq!(limits_of(&seen).last().unwrap().high, 700 * MIB);
    }
}

#[test]
fn the_policy_lowers_the_limit_before_it_consents() {
    let mut guest = guest(MemoryLimits::High, 2 * GIB);
    guest.connect(V2);
    guest.ticks(3);
    guest.sample.current = Some(800 * MIB);
    guest.tick();
    let (ok, status) = verdict(&guest.down(1.0, GIB));
    assert!(!ok && status.contains("control group"), "{status}");
    guest.sample.current = Some(100 * MIB);
    guest.tick();
    let actions = guest.down(1.0, GIB);
    let [Action::SetLimits(Some(values)), Action::Send { message, .. }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(values.high, 824 * MIB);
    assert!(matches!(message, MonitorMessage::DownscaleResult { ok: true, .. }));
    // The kernel still has the memory; the limit stays.
    assert!(limits_of(&guest.ticks(3)).is_empty());
    // It came to nothing: the VM got its memory back.
    guest.sample.total = GIB;
    guest.tick();
    guest.sample.total = 2 * GIB;
    assert_eq!(limits_of(&guest.tick()), [LimitValues { high: 2 * GIB - 200 * MIB, max: None }]);
}

/// A VM of 1 GiB of which the kernel reports 960 MiB: what it keeps for itself is not for the group, before and after a change.
#[test]
fn what_the_kernel_keeps_for_itself_is_not_for_the_group() {
    let mut guest = guest(MemoryLimits::HighAndMax, 960 * MIB);
    guest.connect(V1);
    guest.tick();
    guest.up(1.0, GIB);
    assert!(limits_of(&guest.ticks(3)).is_empty());
    assert_eq!(guest.policy.limits.available(), Some(860 * MIB));
    guest.sample.current = Some(300 * MIB);
    guest.tick();
    // 600 MiB less 64, 100 and 100 are 36 too few.
    assert!(!verdict(&guest.down(1.0, 600 * MIB)).0);
    let consented = guest.down(1.0, 700 * MIB);
    assert_eq!(limits_of(&consented), [LimitValues { high: 500 * MIB, max: Some(600 * MIB) }]);
    guest.sample.total = 636 * MIB;
    let narrowed = limits_of(&guest.tick());
    assert_eq!(narrowed, [LimitValues { high: 436 * MIB, max: Some(536 * MIB) }]);
}

#[test]
fn an_agent_that_leaves_a_frozen_workload_behind_thaws_it() {
    let mut guest = guest(MemoryLimits::High, 600 * MIB);
    guest.connect(V1);
    guest.tick();
    assert!(guest.step(Event::MemoryHigh).contains(&Action::Freeze));
    assert_eq!(guest.step(Event::Disconnected), [Action::Thaw]);
}

#[derive(Clone, Debug)]
enum Step {
    Resize { available: u64, current: u64, may_shrink: bool },
    Press { current: u64, connected: bool },
    Elapse,
    Release,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let amount = || prop_oneof![0..16 * GIB, any::<u64>()];
    let step = prop_oneof![
        2 => (amount(), amount(), any::<bool>())
            .prop_map(|(available, current, may_shrink)| Step::Resize { available, current, may_shrink }),
        5 => (amount(), any::<bool>()).prop_map(|(current, connected)| Step::Press { current, connected }),
        2 => Just(Step::Elapse),
        1 => Just(Step::Release),
    ];
    proptest::collection::vec((0..1200u64, step), 0..120)
}

pub(super) fn mode() -> impl Strategy<Value = MemoryLimits> {
    prop_oneof![Just(MemoryLimits::Off), Just(MemoryLimits::High), Just(MemoryLimits::HighAndMax)]
}

proptest! {
    /// Every freeze has its end 20 ms later at the latest, freezes are a second apart, and no limit is below what is in use.
    #[test]
    fn every_freeze_ends(steps in steps(), mode in mode()) {
        let mut limits = Limits::new(mode);
        let (mut now, mut frozen): (Duration, Option<Duration>) = (Duration::ZERO, None);
        let mut last_freeze: Option<Duration> = None;
        for (pause, step) in steps {
            now += at(pause);
            if limits.elapse(now) {
                prop_assert!(frozen.take().is_some());
            }
            // A caller that is in time has no group that is frozen longer.
            prop_assert!(frozen.is_none_or(|since| now < since + FREEZE_LONGEST));
            let (change, current) = match step {
                Step::Resize { available, current, may_shrink } =>
                    (limits.resize(available, current, may_shrink), current),
                Step::Press { current, connected } => (limits.press(now, current, connected), current),
                Step::Elapse => (LimitChange { thaw: limits.elapse(now), ..LimitChange::default() }, 0),
                Step::Release => (LimitChange { thaw: limits.release(), ..LimitChange::default() }, 0),
            };
            prop_assert!(!(change.freeze && change.thaw));
            if change.thaw {
                prop_assert!(frozen.take().is_some());
            }
            if change.freeze {
                prop_assert!(mode != MemoryLimits::Off && frozen.is_none());
                prop_assert!(last_freeze.is_none_or(|last| now - last >= FREEZE_INTERVAL));
                (frozen, last_freeze) = (Some(now), Some(now));
            }
            prop_assert_eq!(limits.thaw_at().is_some(), frozen.is_some());
            prop_assert!(limits.thaw_at().is_none_or(|thaw| thaw <= now + FREEZE_LONGEST));
            if let Some(values) = change.set {
                prop_assert!(values.max.is_none_or(|max| max >= current.min(u64::MAX - (1 << 20)) && max >= values.high));
                prop_assert_eq!(values.max.is_some(), mode == MemoryLimits::HighAndMax);
            }
        }
    }

    #[test]
    fn a_larger_size_has_no_lower_limit(first in 0..1u64 << 50, more in 0..1u64 << 50, current in 0..1u64 << 50, mode in mode()) {
        let of = |available| Limits::new(mode).resize(available, current, false).set;
        let (small, large) = (of(first), of(first + more));
        prop_assert_eq!(small.is_some(), mode != MemoryLimits::Off);
        if let (Some(small), Some(large)) = (small, large) {
            prop_assert!(small.high <= large.high && small.max <= large.max);
        }
    }

    /// After a consent the limits in force leave the buffer above what is in use.
    #[test]
    fn consent_is_never_below_what_is_in_use(available in 0..1u64 << 50, target in 0..1u64 << 50, current in 0..1u64 << 40, mode in mode()) {
        let mut limits = Limits::new(mode);
        limits.resize(available.max(target), current, false);
        if mode != MemoryLimits::Off
            && limits.consent(target, Some(current)).is_ok()
            && let Some(values) = limits.resize(target, current, true).set
        {
            prop_assert!(values.high >= current + LIMIT_BUFFER);
            prop_assert!(values.max.is_none_or(|max| max >= current + LIMIT_BUFFER));
        }
    }
}
