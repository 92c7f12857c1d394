//! Known defects of upstream (§8.1, §8.2) and of its history (§8.4): none of them occurs here.

use neonvm_api::ScalingConfig;
use neonvm_core_vertical_scaling::agent::{
    Action, Event, LfcMetrics, PatchError, Settings, State, Verdict, Warning,
    action::{Change, Outcome},
    settings::Config,
};
use neonvm_types::{Bytes, MilliCpu, Resources, version::MonitorProtoVersion};

use crate::dsl::{Play, cu, load, res, secs, settings, vm};

const V1: MonitorProtoVersion = MonitorProtoVersion::V1_0;
const V2: MonitorProtoVersion = MonitorProtoVersion::V2_0;

/// The requested size is 2, but the observed size has not changed yet.
fn patched_but_not_seen() -> Play {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.vm.generation = Some(1);
    p.see();
    p.after(0.1).metrics(load(0.3));
    p.ask();
    p.after(0.1).permit(cu(2));
    p.patch();
    p.after(0.1).patched();
    p
}

#[test]
fn defect_6_a_patch_is_not_yet_a_resize() {
    let mut p = patched_but_not_seen();
    p.due("W4.8");
    let view = p.state.view(p.now);
    assert_eq!((view.asked, view.now), (cu(2), cu(1)));
    // CPU is there, memory still comes: the monitor is sent whole units only.
    p.vm.info.set_using(cu(2)).unwrap();
    p.vm.observed = Some(Resources::new(MilliCpu::new(500), Bytes::mib(1536)));
    p.see();
    let sent = p.next().monitor_upscale.unwrap().target;
    assert_eq!(sent, Resources::new(MilliCpu::new(500), Bytes::gib(1)));
    p.vm.observed = Some(cu(2));
    p.see();
    p.due("W4.8 M+1>2");
}

#[test]
fn defect_6_the_scheduler_is_sent_less_only_when_it_is_observed() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.0));
    p.ask_down();
    p.agrees();
    p.patch();
    p.patched();
    p.due("W4.9");
    p.after(5.0).due("P2>2");
    p.ask();
    p.permit(cu(2));
    p.vm.info.set_using(cu(1)).unwrap();
    p.vm.observed = Some(cu(1));
    p.see();
    p.due("P2>1");
}

#[test]
fn defect_6_a_change_from_outside_is_the_new_size() {
    let mut p = Play::cus(1, 8, 2, settings()).ready();
    p.metrics(load(0.3));
    p.due("W4.9");
    p.vm.info.set_using(cu(5)).unwrap();
    p.see();
    assert_eq!(p.state.view(p.now).asked, cu(5));
    // The scheduler is notified at once; the monitor is requested to keep its present size, for nothing has arrived
    // yet.
    p.due("P2>5 M-5>2");
}

/// An observation from before our own patch is no change from outside.
#[test]
fn an_observation_older_than_our_patch_changes_nothing() {
    let mut p = patched_but_not_seen();
    p.event(Event::PatchReply { id: 0, result: Ok(Some(7)) });
    p.see();
    assert_eq!(p.state.view(p.now).asked, cu(2), "without generations: what was before the patch is late");
    let mut p = Play::cus(1, 4, 1, settings());
    p.vm.generation = Some(3);
    p.see();
    let mut late = p.vm.clone();
    late.generation = Some(2);
    late.info.set_using(cu(4)).unwrap();
    p.event(Event::Vm(late));
    assert_eq!(p.state.view(p.now).asked, cu(1));
}

#[test]
fn defect_7_a_new_monitor_knows_what_is_there_not_what_was_asked() {
    let mut p = patched_but_not_seen();
    p.connect(V1);
    assert_eq!(p.state.view(p.now).approved, Some(cu(1)));
    // Back to 1: the guest may already use the second unit, so its consent is requested although the monitor was
    // notified of one only.
    p.metrics(load(0.0));
    p.due("W4.8 M-2>1");
}

#[test]
fn defect_8_a_request_before_the_monitor_is_active() {
    for wants in
        [None, Some(neonvm_types::monitor_protocol::Wants { mem: Some(Bytes::gib(2)), ..Default::default() })]
    {
        let mut p = Play::cus(1, 4, 1, settings());
        p.first_request();
        p.metrics(load(0.0));
        p.event(Event::UpscaleRequested { wants });
        p.due("W9.9 P1>2".replace("W9.9", "W10.0").as_str());
        p.connect(V1);
        p.due("W10.0 P1>2");
    }
}

#[test]
fn defect_9_nothing_is_started_without_a_monitor() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.0));
    p.ask_down();
    p.event(Event::MonitorLost { reason: "reset".into() });
    p.due("W4.9");
    p.warns(&Warning::NoMonitor);
    // The reply of the lost connection changes nothing.
    p.agrees();
    p.due("W4.9");
    assert_eq!(p.state.view(p.now).stale_replies, 1);
}

#[test]
fn defect_10_a_lost_connection_ends_its_request_at_once() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.0));
    p.ask_down();
    p.event(Event::MonitorLost { reason: "reset".into() });
    p.connect(V1);
    p.due("W4.9 M-2>1");
}

#[test]
fn defect_11_a_reply_of_the_wrong_kind_is_a_failure() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.0));
    p.ask_down();
    p.confirms();
    p.due("W3.0");
    p.warns(&Warning::MonitorFailedRecently);
    assert_eq!(p.state.view(p.now).approved, Some(cu(2)));
    p.after(3.0).ask_down();
    p.agrees();
    assert_eq!(p.state.view(p.now).approved, Some(cu(1)));
}

/// From v2.0 on both directions go in one step; v1.0 is led down unit by unit, as ever.
#[test]
fn defect_13_large_steps_in_one_go() {
    for (version, down) in [(V2, "W4.9 M-6>1"), (V1, "W4.9 M-6>5")] {
        let mut p = Play::cus(1, 8, 6, settings()).ready();
        p.connect(version);
        p.metrics(load(0.0));
        p.due(down);
    }
}

#[test]
fn after_a_denial_the_middle_is_tried() {
    let mut p = Play::cus(1, 8, 8, settings()).ready();
    p.connect(V2);
    p.metrics(load(0.0));
    p.due("W4.9 M-8>1");
    p.ask_down();
    p.denies();
    p.due("W4.9 M-8>5");
    p.ask_down();
    p.agrees();
    p.due("W4.9 N8>5 M-5>3");
    p.ask_down();
    p.denies();
    p.due("W4.9 N8>5 M-5>4");
    p.ask_down();
    p.agrees();
    // 4 is one more than was denied: no further until the cooldown is over.
    p.due("W4.9 N8>4");
}

#[test]
fn defect_14_a_request_ends_and_counts_from_what_the_monitor_knows() {
    let mut p = Play::cus(1, 8, 1, settings()).ready();
    p.metrics(load(0.0));
    p.request_upscale();
    p.ask();
    p.permit(cu(2));
    p.patch();
    p.patched_and_seen(cu(2));
    // A second request before the notification: still the same unit.
    p.request_upscale();
    assert!(p.next().plugin.is_none());
    p.notify_up();
    p.confirms();
    p.request_upscale();
    assert_eq!(p.next().plugin.unwrap().target, cu(3));
    p.ask();
    p.permit(cu(3));
    p.after(10.0).due("P3>2 M-2>1");
}

#[test]
fn defect_15_more_than_65535_units() {
    let mut settings = settings();
    settings.compute_unit = Resources::new(MilliCpu::new(1), Bytes::mib(1));
    let mut p = Play::cus(1, 1000, 1, settings);
    p.metrics(load(70.0));
    let goal = p.state.view(p.now).goal;
    // 140,000 units; memory in whole slots.
    assert_eq!(goal, Resources::new(MilliCpu::new(140_000), Bytes::gib(137)));
}

#[test]
fn defect_16_a_vm_above_its_maximum_is_asked_again_ever_more_rarely() {
    let mut p = Play::cus(1, 8, 6, settings()).ready();
    p.metrics(load(3.0));
    p.bounds(1, 4);
    let mut waits = Vec::new();
    for _ in 0..9 {
        p.ask_down();
        p.denies();
        let limit = p.state.view(p.now).limit.unwrap();
        assert!(limit.starts_with("monitor denies 5"), "{limit}");
        let from = p.now;
        while p.next().monitor_downscale.is_none() {
            if p.next().plugin.is_some() {
                p.ask();
                p.permit(cu(6));
            }
            p.after(0.5);
            p.metrics(load(3.0));
        }
        waits.push((p.now - from).as_secs());
    }
    assert_eq!(waits, [5, 5, 10, 20, 40, 80, 80, 80, 80]);
    p.ask_down();
    p.agrees();
    assert_eq!(p.next().neonvm.unwrap().target, cu(5));
}

#[test]
fn defect_17_the_monitor_can_ask_for_cpu() {
    let mut p = Play::cus(1, 8, 1, settings()).ready();
    p.metrics(load(0.0));
    let wants = neonvm_types::monitor_protocol::Wants { cpu: Some(MilliCpu::new(900)), ..Default::default() };
    p.event(Event::UpscaleRequested { wants: Some(wants) });
    p.due("W10.0 P1>4");
}

#[test]
fn defect_18_a_partial_permit_is_used_in_whole_units() {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.metrics(load(0.5));
    p.due("P1>4");
    p.ask();
    p.permit(Resources::new(MilliCpu::new(1000), Bytes::gib(2)));
    p.due("W2.0 N1>2");
}

#[test]
fn defect_21_values_that_crash_upstream() {
    let wild = ScalingConfig {
        load_average_fraction_target: Some(0.0),
        memory_usage_fraction_target: Some(f64::NAN),
        memory_total_fraction_target: Some(0.0),
        enable_lfc_metrics: Some(true),
        lfc_use_largest_window: None,
        lfc_to_memory_ratio: Some(0.0),
        lfc_window_size_minutes: Some(1),
        lfc_min_wait_before_downscale_minutes: Some(0),
        cpu_stable_zone_ratio: Some(-1.0),
        cpu_mixed_zone_ratio: Some(f64::INFINITY),
    };
    let mut settings = settings();
    settings.defaults.lfc_use_largest_window = None;
    let mut vm = vm(cu(1), cu(4), cu(1));
    vm.info.config.scaling_config = Some(wild);
    let Config { load_target, lfc_window, lfc_min_wait, lfc_largest_window, .. } = settings.config_for(&vm);
    assert_eq!((load_target, lfc_window, lfc_min_wait, lfc_largest_window), (0.5, 5, 5, false));
    let mut p = Play::new(vm, settings);
    p.metrics(load(0.3));
    for length in [0, 1, 4, 9, 60] {
        p.event(Event::LfcMetrics(LfcMetrics { windows: vec![1e5; length], ..LfcMetrics::default() }));
        let goal = p.state.view(p.now).goal;
        assert!(goal == cu(2), "{goal:?}");
    }
    // The configuration's own window is above the default wait: the wait follows it.
    p.vm.info.config.scaling_config =
        Some(ScalingConfig { lfc_window_size_minutes: Some(30), ..ScalingConfig::default() });
    assert_eq!(settings.config_for(&p.vm).lfc_min_wait, 30);
}

#[test]
fn issue_573_a_failed_downscale_does_not_block_the_next() {
    let mut p = Play::cus(1, 4, 3, settings()).ready();
    p.metrics(load(0.0));
    p.ask_down();
    let result = Err("timeout".into());
    p.event(Event::MonitorReply { id: monitor_id(&p), result });
    p.due("W3.0");
    p.after(3.0).due("W1.9 M-3>2");
}

/// The number of the monitor's request under way: the last that was given out.
fn monitor_id(p: &Play) -> u64 {
    let state = serde_json::to_value(&p.state).unwrap();
    state["monitor"]["asking"]["id"].as_u64().unwrap()
}

#[test]
fn issue_574_a_denied_downscale_is_not_repeated_without_pause() {
    let mut p = Play::cus(1, 4, 3, settings()).ready();
    p.metrics(load(0.0));
    p.ask_down();
    p.denies();
    for _ in 0..49 {
        p.metrics(load(0.0));
        assert!(p.next().monitor_downscale.is_none(), "at {:?}", p.now);
        if p.next().plugin.is_some() {
            p.ask();
            p.permit(cu(3));
        }
        p.after(0.1);
    }
    p.after(0.1);
    assert!(p.next().monitor_downscale.is_some());
}

/// #512, #515: after a denial nothing at or below the denied size is asked for, also above the maximum.
#[test]
fn issue_512_515_nothing_below_what_was_denied() {
    let mut p = Play::cus(1, 8, 6, settings()).ready();
    p.metrics(load(0.0));
    p.ask_down();
    p.denies();
    for max in [5, 4, 1] {
        p.bounds(1, max);
        assert!(p.next().monitor_downscale.is_none());
        assert_eq!(p.state.view(p.now).goal, cu(6));
        p.warns(&Warning::AboveMaximumByDenial);
    }
}

#[test]
fn issue_614_the_notification_names_what_the_monitor_knew_and_what_there_is() {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.metrics(load(0.5));
    p.ask();
    p.permit(cu(3));
    p.patch();
    p.patched_and_seen(cu(3));
    let Change { current, target, .. } = p.next().monitor_upscale.unwrap();
    assert_eq!((current, target), (cu(1), cu(3)));
}

#[test]
fn issue_909_910_no_metrics_are_no_metrics() {
    let mut p = Play::cus(1, 4, 1, settings());
    let request = p.next().plugin.unwrap();
    assert_eq!(request.metrics, None);
    p.ask();
    p.permit(cu(1));
    p.metrics(load(0.3));
    let metrics = p.next().plugin.unwrap().metrics.unwrap();
    assert_eq!((metrics.load_avg_1m, metrics.load_avg_5m), (0.3, None));
}

fn step(state: &mut State, at: f64, event: Event) -> Outcome {
    state.step(secs(at), event)
}

/// #770, #855, #927, defect 33: what "stuck" means. A denial is an answer; silence, failures and delay are not, and each
/// is recovered from.
#[test]
fn issue_770_855_927_stuck_and_recovered() {
    let mut p = Play::cus(1, 8, 6, settings()).ready();
    p.metrics(load(0.0));
    for _ in 0..5 {
        p.ask_down();
        p.denies();
        while p.next().monitor_downscale.is_none() {
            if p.next().plugin.is_some() {
                p.ask();
                p.permit(cu(6));
            }
            p.after(0.5);
            p.metrics(load(0.0));
        }
    }
    assert_eq!(p.state.stuck(p.now), None, "denials");

    let mut state = State::new(vm(cu(1), cu(4), cu(1)), settings(), secs(0.0));
    assert_eq!(state.stuck(secs(20.0)), None, "grace");
    assert!(state.stuck(secs(21.0)).unwrap().starts_with("no monitor for 21.0s"));
    // No reply is a failure, and the next request follows.
    let mut asked = 0;
    let mut now = secs(0.0);
    for _ in 0..40 {
        let outcome = state.step(now, Event::Timer);
        asked += outcome.actions.iter().filter(|a| matches!(a, Action::AskScheduler { .. })).count();
        now = outcome.wake_at.unwrap();
    }
    assert!(asked >= 6, "{asked}");
    step(&mut state, now.as_secs_f64(), Event::MonitorConnected { version: V1 });
    assert!(state.stuck(now).unwrap().starts_with("scheduler failed"));
}

#[test]
fn a_silent_monitor_is_connected_again() {
    let monitor_unhealthy = Settings::SHIPPED.monitor_unhealthy;
    let settings = Settings { monitor_unhealthy, ..settings() };
    let mut state = State::new(vm(cu(1), cu(4), cu(1)), settings, secs(0.0));
    step(&mut state, 0.0, Event::MonitorConnected { version: V1 });
    step(&mut state, 15.0, Event::MonitorAlive);
    // It is reported before the connection is given up: the monitor may be blocked on its database.
    assert_eq!(state.stuck(secs(35.0)), None);
    assert_eq!(state.stuck(secs(35.1)).as_deref(), Some("monitor silent for 20.1s"));
    let reset = |outcome: &Outcome| outcome.actions.iter().any(|a| matches!(a, Action::ResetMonitor { .. }));
    let outcome = step(&mut state, 44.9, Event::Timer);
    assert!(!reset(&outcome), "{outcome:?}");
    assert!(reset(&step(&mut state, 45.0, Event::Timer)));
    assert!(!reset(&step(&mut state, 46.0, Event::Timer)), "once");
    assert_eq!(state.view(secs(46.0)).approved, None);
}

#[test]
fn a_vm_that_does_not_get_there_is_reported_once() {
    let mut p = patched_but_not_seen();
    let mut notes = Vec::new();
    for _ in 0..100 {
        let scraped = p.state.step(p.now, Event::SystemMetrics(load(0.3)));
        let alive = p.state.step(p.now, Event::MonitorAlive);
        for action in scraped.actions.into_iter().chain(alive.actions) {
            if let Action::AskScheduler { id, request } = action {
                let _ = p.state.step(p.now, Event::PluginReply { id, result: Ok(request.target.into()) });
            }
        }
        notes.extend(alive.notes.into_iter().chain(scraped.notes).map(|note| note.to_string()));
        p.after(1.0);
    }
    notes.retain(|note| note.contains("still"));
    assert_eq!(notes, ["VM still reports 1 although 2 was asked"]);
    let stuck = p.state.stuck(p.now).unwrap();
    assert!(stuck.starts_with("VM reports 1 although 2 was asked"), "{stuck}");
    // It gets there after all.
    p.vm.info.set_using(cu(2)).unwrap();
    p.vm.observed = Some(cu(2));
    p.see();
    assert_eq!(p.state.stuck(p.now), None);
}

#[test]
fn metrics_that_vanish_never_shrink_the_vm_and_are_reported_after_five_minutes() {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.metrics(load(0.3));
    p.vm.info.set_using(cu(3)).unwrap();
    p.vm.observed = Some(cu(3));
    p.after(100.0).see();
    assert!(p.next().monitor_downscale.is_none(), "old metrics do not justify shrinking");
    assert_eq!(p.state.view(p.now).goal, cu(3));
    assert_eq!(p.state.stuck(secs(299.0)), None);
    assert!(p.state.stuck(secs(301.0)).unwrap().starts_with("no metrics for"));
}

#[test]
fn metrics_that_lie_are_refused() {
    for lie in [f64::NAN, f64::INFINITY, -1.0] {
        let mut p = Play::cus(1, 4, 2, settings()).ready();
        p.metrics(load(0.5));
        let before = p.state.view(p.now).goal;
        p.metrics(load(lie));
        assert_eq!(p.state.view(p.now).goal, before, "{lie}");
    }
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(1e300));
    assert_eq!(p.state.view(p.now).goal, cu(4), "absurd: the upper bound");
}

#[test]
fn a_conflict_is_tried_again_once_the_object_was_seen() {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.metrics(load(0.3));
    p.ask();
    p.permit(cu(2));
    p.patch();
    let id = serde_json::to_value(&p.state).unwrap()["machine"]["patching"]["id"].as_u64().unwrap();
    p.event(Event::PatchReply { id, result: Err(PatchError::Conflict) });
    p.due("W5.0");
    p.see();
    p.due("W5.0 N1>2");
    assert_eq!(p.state.stuck(p.now), None);
}

/// The scheduler may have accepted the smaller size, so a new permit is requested before the VM grows again.
#[test]
fn a_permit_whose_return_failed_is_not_used() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.0));
    p.ask_down();
    p.agrees();
    p.patch();
    p.patched_and_seen(cu(1));
    p.ask();
    p.plugin_fails();
    assert_eq!(p.state.view(p.now).permit, Some(cu(1)));
    p.metrics(load(0.3));
    p.due("W3.0 M+1>2".trim_end_matches(" M+1>2"));
    p.after(3.0).due("P1>2");
}

#[test]
fn verdicts_do_not_cross_requests() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.0));
    p.ask_down();
    let old = monitor_id(&p);
    p.denies();
    p.after(5.0).metrics(load(0.0));
    p.ask_down();
    p.event(Event::MonitorReply { id: old, result: Ok(Verdict::Agreed { status: String::new() }) });
    assert_eq!(p.state.view(p.now).approved, Some(cu(2)));
}

/// Another client took memory away without notice to the monitor: a notification of more CPU does not repeat the old memory.
#[test]
fn a_notification_names_what_is_there_in_both_fields() {
    let mut p = Play::cus(1, 8, 4, settings()).ready();
    p.metrics(load(1.0));
    p.vm.info.set_using(res(1500, 3)).unwrap();
    p.vm.observed = Some(res(1500, 3));
    p.see();
    let sent = p.next().monitor_upscale.unwrap();
    // The load wants 8 units, so all the CPU that is there counts.
    assert_eq!((sent.current, sent.target), (cu(4), res(1500, 3)));
}
