//! Additions to upstream: requests for amounts, pressure, holds, the user's metric; and the text of decisions.

use neonvm_api::UserMetric;
use neonvm_core_vertical_scaling::agent::{Event, State, SystemMetrics};
use neonvm_types::{Bytes, MilliCpu, monitor_protocol::Wants, version::MonitorProtoVersion};

use crate::dsl::{Play, cu, load, res, secs, settings, vm};

fn wants(milli: u32, mib: u32) -> Event {
    let wants = Wants {
        cpu: (milli > 0).then_some(MilliCpu::new(milli)),
        mem: (mib > 0).then_some(Bytes::mib(mib)),
        reason: "run queue".into(),
    };
    Event::UpscaleRequested { wants: Some(wants) }
}

fn idle() -> Play {
    let mut p = Play::cus(1, 8, 1, settings()).ready();
    p.connect(MonitorProtoVersion::V2_0);
    p.metrics(load(0.0));
    p
}

#[test]
fn a_request_is_rounded_up_to_units_and_clamped() {
    for (milli, mib, goal) in
        [(251, 0, 2), (0, 1025, 2), (750, 5000, 5), (u32::MAX, 0, 8), (0, u32::MAX, 8), (1, 1, 1), (0, 0, 1)]
    {
        let mut p = idle();
        p.event(wants(milli, mib));
        assert_eq!(p.state.view(p.now).goal, cu(goal), "{milli}m, {mib}Mi");
    }
}

#[test]
fn a_request_lasts_and_can_be_renewed() {
    let mut p = idle();
    p.event(wants(750, 0));
    p.after(6.0).metrics(load(0.0));
    p.event(wants(750, 0));
    // A smaller one does not end the larger one, and does not prolong it.
    p.after(6.0).event(wants(500, 0));
    assert_eq!(p.state.view(p.now).goal, cu(3));
    p.after(4.0);
    assert_eq!(p.state.view(p.now).goal, cu(1));
}

#[test]
fn no_thrash_after_a_request() {
    let mut p = idle();
    p.event(wants(1000, 0));
    p.due("W10.0 P1>4");
    p.ask();
    p.after(8.0).permit(cu(4));
    p.patch();
    p.patched_and_seen(cu(4));
    p.metrics(load(0.0));
    // The request has expired, but the VM grew by it a moment ago.
    p.after(3.0);
    assert_eq!(p.state.view(p.now).goal, cu(4));
    p.notify_up();
    p.confirms();
    assert!(p.next().monitor_downscale.is_none());
    p.after(7.0).metrics(load(0.0));
    assert_eq!(p.state.view(p.now).goal, cu(1));
    assert_eq!(p.next().monitor_downscale.unwrap().target, cu(1));
}

#[test]
fn memory_pressure_asks_for_one_unit_once() {
    let mut p = idle();
    let pressed = |memory_pressure| SystemMetrics { memory_pressure: Some(memory_pressure), ..load(0.0) };
    p.metrics(pressed(10.0));
    assert_eq!(p.state.view(p.now).goal, cu(1), "not above");
    p.metrics(pressed(10.1));
    p.due("P1>2");
    p.ask();
    p.permit(cu(2));
    p.patch();
    p.patched_and_seen(cu(2));
    assert_eq!(p.state.view(p.now).goal, cu(2), "the same measurement does not ask again");
    p.metrics(pressed(7.0));
    assert_eq!(p.state.view(p.now).goal, cu(2), "no shrinking yet");
    p.metrics(pressed(30.0));
    assert_eq!(p.state.view(p.now).goal, cu(3));
    p.metrics(pressed(1.0));
    assert_eq!(p.state.view(p.now).goal, cu(1));
}

#[test]
fn cpu_pressure_forbids_to_shrink() {
    let mut p = Play::cus(1, 8, 4, settings()).ready();
    for (pressure, goal) in [(51.0, 4), (50.0, 1)] {
        p.metrics(SystemMetrics { cpu_pressure: Some(pressure), ..load(0.0) });
        assert_eq!(p.state.view(p.now).goal, cu(goal), "{pressure}");
    }
    // It does not keep the VM above its bounds.
    p.metrics(SystemMetrics { cpu_pressure: Some(90.0), ..load(0.0) });
    p.bounds(1, 2);
    assert_eq!(p.state.view(p.now).goal, cu(2));
}

#[test]
fn steal_is_only_shown() {
    let mut p = idle();
    for (at, seconds) in [(0.0, 10.0), (5.0, 12.0)] {
        p.after(at);
        p.metrics(SystemMetrics { steal_seconds: Some(seconds), ..load(0.5) });
    }
    let outcome =
        p.state.step(p.now, Event::SystemMetrics(SystemMetrics { steal_seconds: None, ..load(0.5) }));
    assert!(!outcome.notes[0].to_string().contains("steal"), "no second measurement");
    let mut p = idle();
    p.metrics(SystemMetrics { steal_seconds: Some(10.0), ..load(0.0) });
    p.after(5.0);
    let outcome =
        p.state.step(p.now, Event::SystemMetrics(SystemMetrics { steal_seconds: Some(12.0), ..load(0.5) }));
    let note = outcome.notes[0].to_string();
    assert_eq!(note, "load 0.50, goal 4 (cpu 4, mem 0), steal 0.40 cpu; ask scheduler 1 -> 4");
}

#[test]
fn the_users_metric_counts() {
    let mut p = Play::cus(1, 8, 2, settings()).ready();
    p.vm.info.config.metric = Some(UserMetric { name: "queue_depth".into(), target: 8.0 });
    p.see();
    p.metrics(SystemMetrics { user: Some(33.0), ..load(0.0) });
    assert_eq!(p.state.view(p.now).goal, cu(5));
    p.metrics(SystemMetrics { user: None, ..load(0.0) });
    assert_eq!(p.state.view(p.now).goal, cu(2), "missing: no shrinking");
}

#[test]
fn a_hold_fixes_the_size_and_ends() {
    let mut p = idle();
    p.vm.hold = Some((cu(5), secs(60.0)));
    p.see();
    p.due("P1>5");
    p.event(wants(2000, 0));
    p.metrics(load(3.0));
    assert_eq!(p.state.view(p.now).goal, cu(5), "neither load nor requests count");
    p.vm.hold = Some((res(9000, 99), secs(60.0)));
    p.see();
    assert_eq!(p.state.view(p.now).goal, cu(8), "bounds hold");
    let outcome = p.state.step(secs(59.0), Event::SystemMetrics(load(0.0)));
    assert!(outcome.wake_at.unwrap() <= secs(60.0));
    let outcome = p.state.step(secs(60.0), Event::Timer);
    assert!(
        outcome.notes.iter().any(|note| note.to_string().starts_with("hold is over")),
        "{:?}",
        outcome.notes
    );
    assert_eq!(p.state.view(secs(60.0)).goal, cu(1));
    // A VM object that still carries it is no news.
    assert!(p.state.step(secs(61.0), Event::Vm(p.vm.clone())).notes.is_empty());
}

/// The example of the command line: what a person reads.
#[test]
fn decisions_in_words() {
    let mut state = State::new(vm(cu(1), cu(16), cu(10)), settings(), secs(0.0));
    let mut text = Vec::new();
    let mut ids = Vec::new();
    let mut step = |state: &mut State, at: f64, event: Event| {
        let outcome = state.step(secs(at), event);
        text.extend(outcome.notes.iter().map(ToString::to_string));
        let json = serde_json::to_value(&outcome.actions).unwrap();
        let of =
            |action: &serde_json::Value| action.as_object().unwrap().values().next().unwrap()["id"].as_u64();
        ids = json.as_array().unwrap().iter().filter_map(of).collect();
        ids.clone()
    };
    let ids = step(&mut state, 0.0, Event::MonitorConnected { version: MonitorProtoVersion::V2_0 });
    let confirmed = || Ok(neonvm_core_vertical_scaling::agent::Verdict::Confirmed);
    step(&mut state, 0.05, Event::MonitorReply { id: ids[1], result: confirmed() });
    step(&mut state, 0.1, Event::PluginReply { id: ids[0], result: Ok(cu(10).into()) });
    let ids = step(&mut state, 0.2, Event::SystemMetrics(load(1.5)));
    let ids = step(&mut state, 0.3, Event::PluginReply { id: ids[0], result: Ok(cu(11).into()) });
    step(&mut state, 0.4, Event::PatchReply { id: ids[0], result: Ok(None) });
    let ids = step(&mut state, 0.5, Event::Vm(vm(cu(1), cu(16), cu(11))));
    step(&mut state, 0.6, Event::MonitorReply { id: ids[0], result: confirmed() });
    assert_eq!(
        text,
        [
            // The monitor is notified of the size it has.
            "monitor connected (v2.0); report 10 to scheduler; notify monitor 10",
            "monitor accepts 10",
            "scheduler permits 10",
            "load 1.50, goal 12 (cpu 12, mem 0); ask scheduler 10 -> 12",
            "scheduler permits 11; set VM 10 -> 11",
            "VM reports 11; notify monitor 11",
            "monitor accepts 11",
        ]
    );
    let view = state.view(secs(0.7));
    assert_eq!(view.state, "waiting: scheduler (next try 1.5s)");
    assert_eq!(view.limit.as_deref(), Some("scheduler permits 11 of 12"));
    let shown = view.to_inspect(1_719_831_600_000);
    assert_eq!(shown.decisions[4].at, "2024-07-01T11:00:00.300Z");
    assert_eq!((shown.asked, shown.permit, shown.approved), (Some(cu(11)), Some(cu(11)), Some(cu(11))));
}

/// Repetition is counted, not listed.
#[test]
fn repeated_decisions_are_counted() {
    let mut state = State::new(vm(cu(1), cu(16), cu(10)), settings(), secs(0.0));
    let mut notes = 0;
    let mut now = secs(0.0);
    for _ in 0..500 {
        let outcome = state.step(now, Event::Timer);
        notes += outcome.notes.len();
        now = outcome.wake_at.unwrap();
    }
    let view = state.view(now);
    assert!(notes <= 4 && view.decisions.len() <= 4, "{notes}, {:?}", view.decisions);
    assert!(view.decisions.iter().any(|note| note.to_string().contains("times)")));
}

/// Metrics want three units, the guest wants four as soon as it has three: it gets four ever longer, not three and four
/// in turns for ever.
#[test]
fn requests_against_the_metrics_swing_ever_more_slowly() {
    let mut p = idle();
    let mut lasted = Vec::new();
    for _ in 0..7 {
        p.event(wants(1000, 0));
        p.ask();
        p.permit(cu(4));
        p.patch();
        let grown = p.now;
        p.patched_and_seen(cu(4));
        p.notify_up();
        p.confirms();
        while p.state.view(p.now).goal == cu(4) {
            p.after(0.5).metrics(load(0.375));
        }
        lasted.push((p.now - grown).as_secs());
        p.ask_down();
        p.agrees();
        p.patch();
        p.patched_and_seen(cu(3));
        p.ask();
        p.permit(cu(3));
        p.after(2.0);
    }
    assert_eq!(lasted, [10, 20, 40, 80, 160, 160, 160]);
    // A guest that was content for a minute is believed at once again.
    p.after(60.0).event(wants(1000, 0));
    p.ask();
    p.permit(cu(4));
    p.patch();
    p.patched_and_seen(cu(4));
    p.after(10.0).metrics(load(0.375));
    assert_eq!(p.state.view(p.now).goal, cu(3));
}
