//! What holds whatever happens.

use std::collections::BTreeMap;

use neonvm_types::MilliCpu;
use neonvm_types::monitor_protocol::MessageIds;
use proptest::prelude::*;

use super::*;

fn sample() -> impl Strategy<Value = Sample> {
    let time = || proptest::option::of(any::<u64>().prop_map(Duration::from_nanos));
    let amount = || prop_oneof![0..16 * GIB, any::<u64>()];
    let count = || prop_oneof![0..10u32, any::<u32>()];
    let current = proptest::option::of(amount());
    (amount(), current, amount(), amount(), count(), count(), time(), time(), time()).prop_map(
        |(anonymous, current, total, available, runnable, online, idle, cpu_pressure, memory_pressure)| {
            Sample {
                anonymous,
                current,
                total,
                available,
                runnable,
                online,
                idle,
                cpu_pressure,
                memory_pressure,
            }
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let cpu = prop_oneof![0.0..10.0f64, any::<f64>()];
    let mem = prop_oneof![0..16 * GIB, any::<u64>()];
    let allocation = (cpu, mem).prop_map(|(cpu, mem)| Allocation { cpu, mem });
    let message = prop_oneof![
        allocation.clone().prop_map(|granted| AgentMessage::UpscaleNotification { granted }),
        allocation.prop_map(|target| AgentMessage::DownscaleRequest { target }),
        Just(AgentMessage::HealthCheck),
        Just(AgentMessage::InternalError { error: String::new() }),
    ];
    prop_oneof![
        6 => proptest::option::weighted(0.9, sample()).prop_map(Event::Sample),
        1 => (0..4u32, any::<u64>())
            .prop_map(|(version, total)| Event::Connected { version: MonitorProtoVersion(version), total }),
        1 => Just(Event::Disconnected),
        1 => any::<u64>().prop_map(|total| Event::Registered { total }),
        4 => (any::<u64>(), message).prop_map(|(id, message)| Event::Message { id, message }),
        1 => proptest::option::of(any::<u64>())
            .prop_map(|id| Event::Undecodable { id, reason: "x".into() }),
        2 => (0..20u64, prop_oneof![Just(Ok(0)), Just(Err("x".to_owned()))])
            .prop_map(|(token, result)| Event::FileCacheSet { token, result }),
        3 => Just(Event::MemoryHigh),
        1 => Just(Event::Elapsed),
    ]
}

proptest! {
    /// No event is too odd; every message has its place; requests keep their pace and their bounds; consent is never given
    /// below the threshold.
    #[test]
    fn any_events_are_answered(
        events in proptest::collection::vec((0..3000u64, event()), 0..80),
        file_cache: bool,
        most_cpus: u32,
        limits in super::limits::mode(),
    ) {
        let mut policy = Policy::new(Settings { file_cache, measures: true, most_cpus, limits });
        let mut frozen = None;
        let (mut now, mut connected) = (Duration::ZERO, false);
        let mut asked: [Vec<Duration>; 2] = Default::default();
        let mut ids = MessageIds::MONITOR;
        // What each downscale was about: with the consent to one, a change that waited for it may take effect already.
        let mut targets = BTreeMap::new();
        for ((pause, mut event), number) in events.into_iter().zip(0..) {
            now += Duration::from_millis(pause);
            match &mut event {
                Event::Connected { .. } | Event::Registered { .. } => (connected, ids) = (true, MessageIds::MONITOR),
                Event::Disconnected => connected = false,
                Event::Message { id, message } => {
                    *id = number;
                    if let AgentMessage::DownscaleRequest { target } = message {
                        targets.insert(number, target.mem);
                    }
                }
                _ => {}
            }
            let before = policy.clone();
            let outcome = policy.step(now, event.clone());
            prop_assert!(outcome.thaw_at.is_none_or(|at| now < at && at <= now + FREEZE_LONGEST));
            for action in &outcome.actions {
                let (id, message) = match action {
                    Action::Send { id, message } => (id, message),
                    Action::SetFileCache { .. } => {
                        prop_assert!(file_cache);
                        continue;
                    }
                    Action::SetLimits(values) => {
                        let informants = limits.is_off() && policy.informant;
                        match values {
                            Some(values) => {
                                let max = limits == MemoryLimits::HighAndMax || informants;
                                prop_assert_eq!(values.max.is_some(), max);
                            }
                            None => prop_assert!(limits.is_off() && before.informant),
                        }
                        continue;
                    }
                    Action::Freeze => {
                        prop_assert!(connected && frozen.replace(now).is_none());
                        continue;
                    }
                    Action::Thaw => {
                        prop_assert!(frozen.take().is_some());
                        continue;
                    }
                };
                // A late reply goes only to the agent that sent the request.
                prop_assert!(connected || before.version.is_some());
                match message {
                    MonitorMessage::UpscaleRequest { wants } => {
                        prop_assert_eq!(*id, ids.advance());
                        let wants = wants.clone().unwrap_or_default();
                        let online = policy.history.last().map_or(0, |sample| sample.online);
                        let most = u64::from(most_cpus.max(online)) * 1000;
                        prop_assert!(wants.cpu.is_none_or(|cpu| u64::from(cpu.milli()) <= most));
                        if wants.cpu.is_some() { asked[0].push(now); } else { asked[1].push(now); }
                    }
                    MonitorMessage::DownscaleResult { ok: true, .. } => {
                        let charged = policy.history.last().and_then(|sample| sample.current);
                        let usable = usable(targets[id]);
                        match charged.filter(|_| policy.informant) {
                            Some(charged) => prop_assert!(usable >= charged + LIMIT_BUFFER),
                            None => prop_assert!(threshold(usable) >= policy.history.average() + DOWNSCALE_BUFFER),
                        }
                        prop_assert!(policy.history.len() > 1 && !policy.history.is_stale(now));
                    }
                    _ => {}
                }
            }
            prop_assert!(policy.queue.len() <= 4);
            prop_assert_eq!(frozen.is_some(), outcome.thaw_at.is_some());
        }
        for times in asked {
            prop_assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= REQUEST_INTERVAL));
        }
    }

    #[test]
    fn what_is_needed_suffices_and_no_byte_less_does(used in 0..1u64 << 50, overhead in 0..1u64 << 40) {
        let needed = needed_total(used, overhead);
        prop_assert!(threshold(needed - overhead) > used);
        prop_assert!(needed == overhead || threshold(needed - overhead - 1) <= used);
    }

    #[test]
    fn the_file_cache_leaves_what_it_must(usable: u64) {
        let size = file_cache_size(usable);
        prop_assert!(size == 0 || usable - size >= 256 * MIB);
        prop_assert!(u128::from(size) * 4 <= u128::from(usable) * 3);
    }

    #[test]
    fn more_load_is_never_less_saturation(counts in proptest::collection::vec(0..20u32, 5), more in 0..20u32, cpu in 0..8000u32) {
        let history = |more: u32| {
            let mut history = History::default();
            for (number, runnable) in (0..).zip(&counts) {
                let sample = Sample { runnable: runnable + more, online: 8, ..Sample::default() };
                history.push(SAMPLE_INTERVAL * number, sample);
            }
            history
        };
        let cpu = MilliCpu::new(cpu);
        prop_assert!(history(0).saturation(cpu).is_none() || history(more).saturation(cpu).is_some());
    }
}
