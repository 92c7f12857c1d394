//! Laws that hold for every input.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, ToSpan};
use neonvm_core_pod_autoscaler::{
    Decision, Memory, Missing, MissingReason, Observation, Observed, decide,
    exposition::{self, Query},
    schedule::Schedules,
    stabilise::Stabiliser,
};
use proptest::prelude::*;
use serde_json::json;

use crate::world::{World, annotated, start};

#[derive(Clone, Debug)]
struct Case {
    strategy: &'static str,
    external: bool,
    up: f64,
    down: f64,
    tolerance: f64,
    cooldown: u32,
    min: i32,
    max: i32,
}

impl Case {
    fn object(&self) -> neonvm_api::PodAutoscaler {
        let kind = if self.external { "external" } else { "custom" };
        let texts = [
            self.up.to_string(),
            self.down.to_string(),
            self.tolerance.to_string(),
            format!("{}s", self.cooldown),
        ];
        annotated(
            &json!({"scalingStrategy": self.strategy, "minReplicas": self.min, "maxReplicas": self.max,
                "observeWindowSeconds": 60, "panicWindowSeconds": 20,
                "metricsSources": [{"metricSourceType": kind, "targetMetric": "m", "targetValue": "10"}]}),
            &[
                ("max-scale-up-rate", &texts[0]),
                ("max-scale-down-rate", &texts[1]),
                ("scale-up-tolerance", &texts[2]),
                ("scale-down-tolerance", &texts[2]),
                ("scale-down-cooldown-window", &texts[3]),
            ],
        )
    }
}

fn case() -> impl Strategy<Value = Case> {
    let numbers = (1.01..20.0f64, 1.01..20.0f64, 0.0..0.5f64, 0u32..120, 0..4i32, 4..60i32);
    (prop_oneof![Just("APA"), Just("KPA")], any::<bool>(), numbers).prop_map(
        |(strategy, external, (up, down, tolerance, cooldown, min, max))| Case {
            strategy,
            external,
            up,
            down,
            tolerance,
            cooldown,
            min,
            max,
        },
    )
}

/// A value for each moment, `None` for an outage; and how many of the pods are ready.
fn trace() -> impl Strategy<Value = Vec<(Option<f64>, u8)>> {
    prop::collection::vec((prop::option::weighted(0.85, 0.0..400.0f64), 0u8..=100), 1..30)
}

fn observe(case: &Case, current: i32, moment: (Option<f64>, u8)) -> Observation {
    let (value, share) = moment;
    let ready = (current * i32::from(share) + 99) / 100;
    let observed = match value {
        None => Observed::Missing(Missing::new(MissingReason::TimedOut, "no answer")),
        Some(value) if case.external => Observed::total(value),
        Some(value) => Observed::pods(&vec![value; usize::try_from(ready).unwrap()]),
    };
    Observation { current, ready: Some(ready), metrics: vec![observed] }
}

/// A run in which what is decided is what is there next.
fn run(case: &Case, trace: &[(Option<f64>, u8)], world: &mut World, mut current: i32) -> Vec<Decision> {
    let mut all = Vec::new();
    for moment in trace {
        world.wait(10);
        let observation = observe(case, current, *moment);
        let decision = decide(&world.settings, &mut world.memory, &observation, world.now);
        current = decision.desired;
        all.push(decision);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn more_load_never_gives_fewer_replicas(case in case(), current in 1..40i32, share in 0u8..=100,
        values in (0.0..400.0f64, 0.0..400.0f64)) {
        let (low, high) = (values.0.min(values.1), values.0.max(values.1));
        let decide = |value: f64| {
            let mut world = World::warm(&case.object());
            world.settings.stable_window = 10;
            run(&case, &[(Some(value), share)], &mut world, current).remove(0).recommendation
        };
        prop_assert!(decide(low) <= decide(high), "{low} {} {high} {}", decide(low), decide(high));
    }

    #[test]
    fn a_step_stays_within_bounds_and_rates(case in case(), current in 0..80i32, trace in trace()) {
        let mut world = World::warm(&case.object());
        let mut before = current;
        for decision in run(&case, &trace, &mut world, current) {
            let (desired, bounds) = (decision.desired, &decision.bounds);
            let by_hand = before == 0 && bounds.min > 0;
            prop_assert!(by_hand || (bounds.min..=bounds.max).contains(&desired));
            if (bounds.min..=bounds.max).contains(&before) {
                prop_assert!(desired <= decision.ceiling.max(before), "{decision:?}");
                // The last replica may stay for longer; never may more go than the rate allows.
                prop_assert!(desired >= decision.floor, "{decision:?}");
            }
            before = desired;
        }
    }

    #[test]
    fn nothing_is_taken_away_while_something_is_missing_or_in_panic(case in case(), trace in trace()) {
        let mut world = World::fresh(&case.object());
        for decision in run(&case, &trace, &mut world, 7) {
            let metric = &decision.metrics[0];
            let held = metric.reading.is_err() || metric.answer.is_some_and(|answer| answer.panicking);
            let fewest = decision.fleet.current.min(decision.bounds.max);
            prop_assert!(!held || decision.desired >= fewest, "{decision:?}");
        }
    }

    #[test]
    fn a_restart_does_not_take_away(case in case(), trace in trace(), load in 0.0..400.0f64) {
        let mut world = World::fresh(&case.object());
        let last = run(&case, &trace, &mut world, 7).pop().map_or(7, |decision| decision.desired);
        world.memory = Memory::default();
        let after = run(&case, &[(Some(load), 100); 5], &mut world, last);
        for decision in after {
            prop_assert!(decision.desired >= decision.fleet.current.min(decision.bounds.max), "{decision:?}");
        }
    }

    #[test]
    fn a_memory_that_was_stored_decides_the_same(case in case(), first in trace(), second in trace()) {
        let mut world = World::fresh(&case.object());
        let current = run(&case, &first, &mut world, 7).pop().map_or(7, |decision| decision.desired);
        let mut restored = world.clone();
        restored.memory = serde_json::from_str(&serde_json::to_string(&world.memory).unwrap()).unwrap();
        prop_assert_eq!(run(&case, &second, &mut world, current), run(&case, &second, &mut restored, current));
        prop_assert!(serde_json::to_string(&world.memory).unwrap().len() < 16 * 1024);
    }

    #[test]
    fn a_steady_load_comes_to_rest(case in case(), load in 0.0..400.0f64, current in 1..40i32) {
        let external = Case { external: true, min: 1, ..case };
        let mut world = World::warm(&external.object());
        let decisions = run(&external, &[(Some(load), 100); 500], &mut world, current);
        let last: Vec<i32> = decisions.iter().rev().take(20).map(|decision| decision.desired).collect();
        prop_assert!(last.iter().all(|replicas| *replicas == last[0]), "{last:?}");
    }

    /// The bounded history gives the same result as the whole list.
    #[test]
    fn stabilising_is_the_extremes_of_the_last_while(trace in prop::collection::vec((0i64..20, 0i32..10), 1..60),
        up in 0u64..60, down in 0u64..60, current in 0i32..10) {
        let (up, down) = (Duration::from_secs(up), Duration::from_secs(down));
        let (mut memory, mut list, mut now) = (Stabiliser::default(), Vec::new(), start());
        for (seconds, wanted) in trace {
            now = now.checked_add(seconds.seconds()).unwrap();
            let young = |window: Duration| list.iter().filter(move |(at, _): &&(Timestamp, i32)| {
                now.duration_since(*at) < SignedDuration::try_from(window).unwrap()
            }).map(|(_, wanted)| *wanted);
            let least = young(up).chain([wanted]).min().unwrap();
            let most = young(down).chain([wanted]).max().unwrap();
            prop_assert_eq!(memory.step(now, wanted, current, up, down), current.max(least).min(most));
            // The same again changes nothing.
            let again = memory.clone().step(now, wanted, current.max(least).min(most), up, down);
            prop_assert_eq!(again, current.max(least).min(most));
            list.push((now, wanted));
        }
    }

    #[test]
    fn the_parser_takes_any_text(text in ".{0,400}", lines in prop::collection::vec("[a-c_]{1,3}(\\{[a-c=\",\\\\n}]{0,12}\\}?)? ?[0-9NaInf+.eE-]{0,6}( [0-9]{0,3})?", 0..20)) {
        let queries = [Query::parse("a").unwrap(), Query::parse("b{c=\"a\"}").unwrap()];
        for text in [text.as_str(), lines.join("\n").as_str()] {
            let scrape = exposition::read(text, &queries);
            for (query, extract) in queries.iter().zip(&scrape.extracts) {
                let _ = query.evaluate(extract, None);
                let before = exposition::Before { extract, seconds: 10.0 };
                let _ = query.evaluate(extract, Some(before));
            }
        }
        let _ = Query::parse(&text);
    }

    #[test]
    fn any_observation_is_decided(current in any::<i32>(), ready in any::<Option<i32>>(),
        values in prop::collection::vec(any::<f64>(), 0..6), whole in any::<f64>(), seconds in any::<i32>()) {
        let spec = json!({"scalingStrategy": "KPA", "forecast": {"horizonSeconds": 900}, "metricsSources": [
            {"metricSourceType": "custom", "targetMetric": "a", "targetValue": "1e-300"},
            {"metricSourceType": "external", "targetMetric": "b", "targetValue": "1e300", "targetType": "Value"},
        ]});
        let mut world = World::fresh(&annotated(&spec, &[]));
        for _ in 0..3 {
            world.now = world.now.checked_add(i64::from(seconds).seconds()).unwrap_or(world.now);
            let metrics = vec![Observed::pods(&values), Observed::total(whole)];
            let observation = Observation { current, ready, metrics };
            let decision = decide(&world.settings, &mut world.memory, &observation, world.now);
            prop_assert!(decision.desired >= 0);
            let text = serde_json::to_string(&decision).unwrap();
            prop_assert_eq!(serde_json::from_str::<Decision>(&text).unwrap().desired, decision.desired);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Looking minute by minute finds no change before the one that is announced, around both days on which clocks change.
    #[test]
    fn the_next_transition_is_the_first(autumn in any::<bool>(), hour in 0i64..60, from in 0u16..1440, length in 1u16..1440,
        day in 0usize..7) {
        // Some end on the next day.
        let end = (from + length) % 1440;
        let time = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let window = serde_json::from_value(json!({"name": "a", "timezone": "Europe/Berlin", "minReplicas": 2,
            "daysOfWeek": [days[day], "sun", "sat"], "startTime": time(from), "endTime": time(end)})).unwrap();
        let schedules = Schedules::read(&[window]).unwrap();
        let begin: Timestamp = if autumn { "2026-10-24T00:00:00Z" } else { "2026-03-28T00:00:00Z" }.parse().unwrap();
        let now = begin.checked_add(hour.hours()).unwrap();
        let active = |at: Timestamp| schedules.bounds(at, 1, 9).schedule.is_some();
        let limit = now.checked_add((8 * 24).hours()).unwrap();
        let mut minute = now;
        while active(minute) == active(now) && minute < limit {
            minute = minute.checked_add(1.minute()).unwrap();
        }
        prop_assert_eq!(schedules.next_transition(now), (minute < limit).then_some(minute));
    }

    /// Whether a window is active follows from when it began: so long ago at most, on one of its days.
    #[test]
    fn a_window_belongs_to_the_day_it_starts_on(from in 0i64..1440, length in 1i64..1440, days in 1u8..128,
        at in 0i64..14 * 1440) {
        let time = |minute: i64| format!("{:02}:{:02}", minute / 60 % 24, minute % 60);
        let names = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let names: Vec<&str> = names.into_iter().enumerate().filter(|(day, _)| days >> day & 1 == 1).map(|(_, name)| name).collect();
        let window = serde_json::from_value(json!({"name": "a", "minReplicas": 2, "daysOfWeek": names,
            "startTime": time(from), "endTime": time(from + length)})).unwrap();
        let schedules = Schedules::read(&[window]).unwrap();
        let monday: Timestamp = "2026-08-03T00:00:00Z".parse().unwrap();
        let active = schedules.bounds(monday.checked_add(at.minutes()).unwrap(), 1, 9).schedule.is_some();
        // One that began before that Monday belongs to the Sunday before.
        let began = |day: i64| (days >> day.rem_euclid(7)) & 1 == 1 && (0..length).contains(&(at - day * 1440 - from));
        prop_assert_eq!(active, (-1..14).any(began));
    }
}
