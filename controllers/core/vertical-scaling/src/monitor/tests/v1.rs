//! With an agent of protocol v1.0.

use super::*;

const V1: MonitorProtoVersion = MonitorProtoVersion::V1_0;

fn asked(actions: &[Action]) -> Vec<u64> {
    let of = |action: &Action| match action {
        Action::Send { id, message: MonitorMessage::UpscaleRequest { wants: None } } => Some(*id),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

#[test]
fn the_largest_average_that_allows_a_downscale_is_that_of_the_table() {
    for (target, average) in [(1, 718_693_990), (2, 1_631_374_540), (4, 3_456_735_641)] {
        for (anonymous, agreed) in [(average, true), (average + 1, false)] {
            let mut guest = Guest::new(16 * GIB, 2);
            guest.sample.anonymous = anonymous;
            guest.connect(V1);
            guest.ticks(2);
            let (ok, status) = verdict(&guest.down(0.25, target * GIB));
            assert_eq!(ok, agreed, "{target} {anonymous}: {status}");
        }
    }
}

#[test]
fn memory_is_asked_for_at_the_threshold_once_a_second_with_odd_numbers() {
    let mut guest = Guest::new(924 * MIB + SYSTEM_BUFFER, 1);
    guest.connect(V1);
    guest.sample.anonymous = 823_551_589;
    assert!(guest.ticks(5).is_empty());
    guest.sample.anonymous += 5;
    // The average of the last five reaches the threshold with the first of the larger samples.
    assert_eq!(asked(&guest.tick()), [3]);
    assert!(guest.ticks(9).is_empty());
    assert_eq!(asked(&guest.tick()), [5]);
    guest.up(1.0, 4 * GIB);
    guest.sample.total = 4 * GIB;
    assert!(guest.ticks(20).is_empty());
}

#[test]
fn cpu_is_never_asked_for_and_never_refused() {
    let mut guest = Guest::new(4 * GIB, 4);
    guest.sample.runnable = 30;
    guest.connect(V1);
    assert!(guest.ticks(30).is_empty());
    assert!(verdict(&guest.down(0.25, 2 * GIB)).0);
}

#[test]
fn without_two_fresh_samples_nothing_is_agreed_to() {
    let mut guest = Guest::new(4 * GIB, 1);
    guest.connect(V1);
    assert!(!verdict(&guest.down(0.25, GIB)).0);
    guest.tick();
    assert!(!verdict(&guest.down(0.25, GIB)).0);
    guest.tick();
    guest.now += STALE_AFTER;
    assert!(verdict(&guest.down(0.25, GIB)).0);
    guest.now += Duration::from_millis(1);
    let answer = guest.down(0.25, GIB);
    assert!(matches!(
        answer.as_slice(),
        [Action::Send { id: 4, message: MonitorMessage::InternalError { .. } }]
    ));
}

/// Upstream's limit was higher right after the connection than after the first notification of the same size.
#[test]
fn the_system_buffer_counts_from_the_connection_on() {
    let mut guest = Guest::new(GIB, 1);
    guest.connect(V1);
    guest.sample.anonymous = threshold(GIB - SYSTEM_BUFFER);
    assert_eq!(asked(&guest.tick()), [3]);
}

/// Upstream forgot its samples with the connection: every reconnect of an agent cost a refused downscale.
#[test]
fn samples_outlive_connections_and_so_does_the_pace_of_requests() {
    let mut guest = Guest::new(4 * GIB, 1);
    guest.connect(V1);
    guest.ticks(3);
    guest.step(Event::Disconnected);
    assert!(guest.down(0.25, GIB).is_empty());
    guest.connect(V1);
    assert!(verdict(&guest.down(0.25, GIB)).0);
    guest.sample.anonymous = 4 * GIB;
    guest.ticks(5);
    guest.step(Event::Disconnected);
    guest.connect(V1);
    assert!(guest.tick().is_empty());
    assert_eq!(asked(&guest.ticks(10)).len(), 1);
}

#[test]
fn memory_that_has_not_arrived_is_not_counted_on() {
    let mut guest = Guest::new(GIB, 1);
    guest.connect(V1);
    guest.up(1.0, 8 * GIB);
    guest.sample.anonymous = 900 * MIB;
    assert_eq!(asked(&guest.ticks(5)).len(), 1);
    guest.sample.total = 8 * GIB;
    assert!(guest.ticks(20).is_empty());
}

#[test]
fn where_nothing_can_be_measured_everything_is_agreed_to() {
    let mut guest = Guest::new(GIB, 1);
    guest.policy =
        Policy::new(Settings { file_cache: false, measures: false, most_cpus: 8, limits: MemoryLimits::Off });
    guest.connect(V1);
    assert!(verdict(&guest.down(0.25, 1)).0);
}

#[test]
fn messages_are_answered_in_kind() {
    let mut guest = Guest::new(GIB, 1);
    guest.connect(V1);
    let send = |id, message| vec![Action::Send { id, message }];
    let health = Event::Message { id: 6, message: AgentMessage::HealthCheck };
    assert_eq!(guest.step(health), send(6, MonitorMessage::HealthCheck));
    let error = "type \"X\" is not known".to_owned();
    let wrong = Event::Undecodable { id: Some(9), reason: error.clone() };
    assert_eq!(guest.step(wrong), send(9, MonitorMessage::InvalidMessage { error }));
    for message in [
        AgentMessage::InvalidMessage { error: "x".into() },
        AgentMessage::InternalError { error: "x".into() },
    ] {
        assert!(guest.step(Event::Message { id: 3, message }).is_empty());
    }
    assert_eq!(guest.up(1.0, GIB), send(2, MonitorMessage::UpscaleConfirmation));
    let nonsense = guest.up(-1.0, GIB);
    assert!(matches!(
        nonsense.as_slice(),
        [Action::Send { id: 2, message: MonitorMessage::InvalidMessage { .. } }]
    ));
}

#[test]
fn the_file_cache_shrinks_before_consent_and_grows_before_confirmation() {
    let mut guest = Guest::with(4 * GIB, 1, true);
    let settle = guest.connect(V1);
    assert_eq!(settle, [Action::SetFileCache { token: 1, size: 2997 * MIB }]);
    guest.step(Event::FileCacheSet { token: 1, result: Ok(2997 * MIB) });
    guest.ticks(2);
    assert_eq!(guest.down(0.25, GIB), [Action::SetFileCache { token: 2, size: 607 * MIB }]);
    // A second change waits; health checks do not.
    assert!(guest.up(0.5, 2 * GIB).is_empty());
    assert_eq!(guest.step(Event::Message { id: 6, message: AgentMessage::HealthCheck }).len(), 1);
    let answers = guest.step(Event::FileCacheSet { token: 2, result: Ok(607 * MIB) });
    let [first, second] = answers.as_slice() else { panic!("{answers:?}") };
    assert!(verdict(std::slice::from_ref(first)).1.contains("file cache"));
    assert_eq!(*second, Action::SetFileCache { token: 3, size: 1461 * MIB });
    let confirmed = guest.step(Event::FileCacheSet { token: 3, result: Ok(1461 * MIB) });
    assert_eq!(confirmed, [Action::Send { id: 2, message: MonitorMessage::UpscaleConfirmation }]);
}

#[test]
fn a_file_cache_that_fails_or_hangs_is_an_internal_error() {
    let mut guest = Guest::with(4 * GIB, 1, true);
    guest.connect(V1);
    guest.step(Event::FileCacheSet { token: 1, result: Ok(0) });
    guest.ticks(2);
    guest.down(0.25, GIB);
    let failed = guest.step(Event::FileCacheSet { token: 2, result: Err("no PostgreSQL".into()) });
    let error = "file cache: no PostgreSQL".to_owned();
    assert_eq!(failed, [Action::Send { id: 4, message: MonitorMessage::InternalError { error } }]);
    guest.down(0.25, GIB);
    let late = guest.ticks(40);
    assert!(matches!(
        late.as_slice(),
        [Action::Send { id: 4, message: MonitorMessage::InternalError { .. } }]
    ));
    assert!(guest.step(Event::FileCacheSet { token: 3, result: Ok(0) }).is_empty());
}

#[test]
fn memory_taken_while_the_file_cache_shrank_withdraws_the_consent() {
    let mut guest = Guest::with(4 * GIB, 1, true);
    guest.connect(V1);
    guest.step(Event::FileCacheSet { token: 1, result: Ok(0) });
    guest.ticks(2);
    guest.down(0.25, GIB);
    guest.sample.anonymous = 2 * GIB;
    guest.ticks(5);
    let answers = guest.step(Event::FileCacheSet { token: 2, result: Ok(607 * MIB) });
    let [refusal, restore] = answers.as_slice() else { panic!("{answers:?}") };
    assert!(!verdict(std::slice::from_ref(refusal)).0);
    assert_eq!(*restore, Action::SetFileCache { token: 3, size: 2997 * MIB });
}
