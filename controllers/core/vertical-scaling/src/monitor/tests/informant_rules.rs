//! What differs while an agent with the informant's protocol is the current one.

use super::*;

/// 4 GiB, with so many MiB charged to the workload's group; an agent registers.
fn registered(charged: u64, file_cache: bool) -> (Guest, Vec<Action>) {
    let mut guest = Guest::with(4 * GIB, 2, file_cache);
    guest.sample.current = Some(charged * MIB);
    guest.ticks(2);
    let actions = register(&mut guest);
    (guest, actions)
}

fn register(guest: &mut Guest) -> Vec<Action> {
    let total = guest.sample.total;
    guest.step(Event::Registered { total })
}

fn limits(high: u64, max: u64) -> Action {
    Action::SetLimits(Some(LimitValues { high: high * MIB, max: Some(max * MIB) }))
}

const LIFT: Action = Action::SetLimits(None);

#[test]
fn the_file_cache_leaves_more() {
    for (usable, size) in [(512, 0), (640, 0), (1024, 349), (1948, 1189), (3996, 2997)] {
        assert_eq!(informant_file_cache_size(usable * MIB), size * MIB, "{usable}");
    }
    for usable in (0..20_000).step_by(7) {
        assert!(informant_file_cache_size(usable * MIB) <= file_cache_size(usable * MIB), "{usable}");
    }
}

#[test]
fn the_group_is_limited_from_registration_to_the_end() {
    let (mut guest, actions) = registered(1000, false);
    // 100 MiB are the system's, 100 MiB lie between the two limits.
    assert_eq!(actions, [limits(3896, 3996)]);
    guest.up(0.5, 8 * GIB);
    guest.sample.total = 8 * GIB;
    assert_eq!(guest.tick(), [limits(7992, 8092)]);
    assert_eq!(guest.step(Event::Disconnected), [LIFT]);
    assert!(guest.tick().is_empty());
    assert_eq!(register(&mut guest), [limits(7992, 8092)]);
    assert_eq!(guest.connect(MonitorProtoVersion::V2_0), [LIFT], "a monitor's agent takes over");
    assert!(guest.ticks(3).is_empty());
}

#[test]
fn configured_limits_stay_as_they_are() {
    let mut guest = Guest::new(4 * GIB, 2);
    let limits = MemoryLimits::High;
    guest.policy = Policy::new(Settings { file_cache: false, measures: true, most_cpus: 8, limits });
    guest.sample.current = Some(0);
    let values = LimitValues { high: 3896 * MIB, max: None };
    assert_eq!(guest.tick(), [Action::SetLimits(Some(values))]);
    assert!(register(&mut guest).is_empty() && guest.ticks(3).is_empty());
    assert!(guest.step(Event::Disconnected).is_empty());
}

#[test]
fn consent_depends_on_what_is_charged() {
    // 2 GiB: memory.high would be 1848 MiB. What is anonymous does not count.
    let (mut guest, _) = registered(1748, false);
    guest.sample.anonymous = 3 * GIB;
    guest.ticks(5);
    let actions = guest.down(0.5, 2 * GIB);
    let [set, Action::Send { message: MonitorMessage::DownscaleResult { ok: true, status }, .. }] =
        &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!((set, status.as_str()), (&limits(1848, 1948), "memory: the control group uses 1748 MiB"));
    let (mut guest, _) = registered(1749, false);
    let (ok, status) = verdict(&guest.down(0.5, 2 * GIB));
    assert!(!ok && status.contains("the control group uses 1749 MiB"), "{status}");
    // With a monitor the page cache in it does not count.
    guest.step(Event::Disconnected);
    guest.connect(MonitorProtoVersion::V1_0);
    assert!(verdict(&guest.down(0.5, 2 * GIB)).0);
}

#[test]
fn the_file_cache_is_no_part_of_the_group() {
    let (mut guest, actions) = registered(100, true);
    let [Action::SetFileCache { token, size }, set] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(*size, informant_file_cache_size(usable(4 * GIB)));
    assert_eq!(*set, limits(3996 - 2997 - 100, 3996 - 2997));
    let (token, size) = (*token, *size);
    assert!(guest.step(Event::FileCacheSet { token, result: Ok(size) }).is_empty());
}

/// From the registration on, before the first sample after it; the request has no amounts.
#[test]
fn at_memory_high_the_workload_is_frozen_and_memory_requested() {
    let (mut guest, _) = registered(1000, false);
    let pressed = guest.step(Event::MemoryHigh);
    assert!(
        matches!(
            pressed[..],
            [Action::Freeze, Action::Send { message: MonitorMessage::UpscaleRequest { wants: None }, .. }]
        ),
        "{pressed:?}"
    );
    assert_eq!(guest.step(Event::Disconnected), [Action::Thaw, LIFT]);
    // A second has not passed.
    register(&mut guest);
    let pressed = guest.step(Event::MemoryHigh);
    assert!(!pressed.contains(&Action::Freeze), "{pressed:?}");
}

/// Without a group of its own the workload cannot be limited; the monitor's rule decides.
#[test]
fn without_a_group_the_monitors_rule_holds() {
    let mut guest = Guest::new(4 * GIB, 2);
    guest.sample.anonymous = 3 * GIB;
    guest.ticks(3);
    assert!(register(&mut guest).is_empty());
    guest.ticks(3);
    let (ok, status) = verdict(&guest.down(0.5, 2 * GIB));
    assert!(!ok && status.contains("in use"), "{status}");
    // The group is made late, and is removed.
    guest.sample.current = Some(0);
    assert_eq!(guest.tick(), [limits(3896, 3996)]);
    guest.sample.current = None;
    assert_eq!(guest.tick(), [LIFT]);
}
