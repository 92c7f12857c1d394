//! The flows of §7.4, with a v1.0 monitor as upstream has it.

use neonvm_core_vertical_scaling::agent::{Event, Warning, action::LatencyOf};
use neonvm_types::{RevisionFlags, version::MonitorProtoVersion};

use crate::dsl::{DOWN, Play, UP, cu, load, secs, settings};

#[test]
fn basic_up_and_down() {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.after(0.1).metrics(load(0.3));
    p.due("P1>2");
    p.revision(1, UP);
    p.ask();
    p.after(0.1).due("");
    p.permit(cu(2));
    p.latency(LatencyOf::Plugin, UP, 0.1);
    p.due("W4.9 N1>2");
    p.revision(1, UP);
    p.patch();
    p.after(0.1).due("W4.8");
    p.patched_and_seen(cu(2));
    p.reports(1, UP, 0.2);
    p.due("W4.8 M+1>2");
    p.notify_up();
    p.after(0.1).due("W4.7");
    p.confirms();
    p.due("W4.7");

    p.after(0.1).metrics(load(0.0));
    p.due("W4.6 M-2>1");
    p.revision(2, DOWN);
    p.ask_down();
    p.after(0.1).due("W4.5");
    p.agrees();
    p.due("W4.5 N2>1");
    p.revision(2, DOWN);
    p.patch();
    p.after(0.1).due("W4.4");
    p.patched_and_seen(cu(1));
    p.after(0.1).reports(2, DOWN, 0.3);
    p.due("P2>1");
    p.ask();
    p.after(0.1).due("");
    p.permit(cu(1));
    p.due("W4.9");
}

#[test]
fn periodic_requests() {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.metrics(load(0.0));
    p.due("W4.9");
    let mut left = 4.9;
    for _ in 0..4 {
        p.after(left / 2.0).due(&format!("W{:.1}", left / 2.0));
        p.after(left / 2.0).due("P1>1");
        p.ask();
        p.after(0.05).due("");
        p.permit(cu(1));
        left = 4.95;
    }
}

#[test]
fn partial_upscale_is_used_and_completed() {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.after(0.1);
    let mut metrics = load(1.0);
    metrics.memory_usage_bytes = 12_345_678.0;
    p.metrics(metrics);
    p.due("P1>4");
    p.revision(1, UP);
    p.ask();
    p.after(0.1).permit(cu(3));
    p.latency(LatencyOf::Plugin, UP, 0.1);
    p.due("W1.9 N1>3");
    p.warns(&Warning::PluginDeniedRecently);
    p.patch();
    p.after(0.1).patched_and_seen(cu(3));
    p.after(0.1).reports(1, UP, 0.3);
    p.after(1.7);
    p.due("P3>4 M+1>3");
    p.revision(2, UP);
    p.ask();
    p.notify_up();
    p.after(0.1).confirms();
    p.latencies.clear();
    p.permit(cu(4));
    p.latency(LatencyOf::Plugin, UP, 0.1);
    p.due("W4.9 N3>4");
    p.revision(2, UP);
    p.patch();
    p.after(0.1).patched_and_seen(cu(4));
    p.reports(2, UP, 0.2);
}

#[test]
fn denied_downscale_is_tried_again_after_the_cooldown() {
    let mut settings = settings();
    settings.plugin_request_tick = secs(7.0);
    settings.monitor_denied_downscale_cooldown = secs(4.0);
    let mut p = Play::cus(1, 8, 6, settings).ready();
    p.after(0.1).metrics(load(0.0));
    p.due("W6.8 M-6>5");
    p.ask_down();
    p.after(0.1).denies();
    p.due("W4.0");
    p.after(4.0).due("W2.7 M-6>5");
    p.ask_down();
    p.after(0.1).agrees();
    p.due("W2.6 N6>5 M-5>4");
    p.ask_down();
    p.after(0.1).agrees();
    p.due("W2.5 N6>4 M-4>3");
    p.ask_down();
    p.after(0.1).agrees();
    p.due("W2.4 N6>3 M-3>2");
    p.ask_down();
    p.after(0.1).denies();
    p.due("W2.3 N6>3");
    p.patch();
    p.after(0.1).patched_and_seen(cu(3));
    p.due("W3.9 P6>3");
    p.ask();
    p.after(0.1).permit(cu(3));
    p.due("W3.8");
    p.after(3.8).due("W3.1 M-3>2");
    p.ask_down();
    p.after(0.1).denies();
    p.due("W3.0");
    p.after(3.0).due("W1.0 P3>3");
    p.ask();
    p.after(0.1).permit(cu(3));
    p.due("W0.9");
    p.after(0.9).due("W6.0 M-3>2");
    p.ask_down();
    p.after(0.1).agrees();
    p.due("W5.9 N3>2 M-2>1");
    p.ask_down();
    p.after(0.1).agrees();
    p.due("W5.8 N3>1");
    p.patch();
    p.after(0.1).patched_and_seen(cu(1));
    p.due("P3>1");
    p.ask();
    p.after(0.1).due("");
    p.permit(cu(1));
    p.due("W6.9");
}

#[test]
fn requested_upscale_lasts_its_time() {
    let mut settings = settings();
    settings.monitor_requested_upscale_valid_period = secs(6.0);
    let mut p = Play::cus(1, 4, 1, settings).ready();
    p.after(0.1).metrics(load(0.0));
    p.request_upscale();
    p.due("W6.0 P1>2");
    p.revision(1, UP);
    p.ask();
    p.after(0.1).due("W5.9");
    p.permit(cu(2));
    p.due("W4.9 N1>2");
    p.patch();
    p.after(0.1).patched_and_seen(cu(2));
    p.reports(1, UP, 0.2);
    p.due("W4.8 M+1>2");
    p.notify_up();
    p.after(0.1).confirms();
    p.due("W4.7");
    p.after(4.7).due("W1.0 P2>2");
    p.ask();
    p.after(0.1).permit(cu(2));
    p.due("W0.9");
    p.after(0.9).due("W4.0 M-2>1");
    p.revision(2, DOWN);
}

/// The downscale of the pivot flow, done up to `steps` and left in the middle of the last one.
fn pivot(steps: u32) -> Play {
    let mut p = Play::cus(1, 3, 2, settings()).ready();
    p.after(0.1).metrics(load(0.0));
    p.due("W4.8 M-2>1");
    p.revision(1, DOWN);
    p.ask_down();
    if steps == 1 {
        return p;
    }
    p.after(0.1).agrees();
    p.due("W4.7 N2>1");
    p.patch();
    if steps == 2 {
        return p;
    }
    p.after(0.1).patched_and_seen(cu(1));
    p.reports(1, DOWN, 0.2);
    p.due("P2>1");
    p.ask();
    p
}

#[test]
fn pivot_in_the_first_step() {
    let mut p = pivot(1);
    p.after(0.1).metrics(load(0.3));
    p.due("W4.7");
    p.agrees();
    p.due("W4.7 M+1>2");
    p.revision(2, UP);
    p.notify_up();
    p.after(0.1).confirms();
    p.due("W4.6");
}

#[test]
fn pivot_in_the_second_step() {
    let mut p = pivot(2);
    p.after(0.1).metrics(load(0.3));
    // The monitor gets no notification that it keeps what is about to go.
    p.due("W4.6");
    p.patched_and_seen(cu(1));
    p.due("W4.6 N1>2");
    p.revision(2, UP);
    p.patch();
    p.after(0.1).patched_and_seen(cu(2));
    p.due("W4.5 M+1>2");
    p.notify_up();
    p.after(0.1).confirms();
    p.due("W4.4");
}

#[test]
fn pivot_in_the_last_step() {
    let mut p = pivot(3);
    p.after(0.1).metrics(load(0.3));
    p.due("");
    p.permit(cu(1));
    p.due("P1>2");
    p.revision(2, UP);
    p.ask();
    p.after(0.1).permit(cu(2));
    p.due("W4.9 N1>2");
    p.patch();
    p.after(0.1).patched_and_seen(cu(2));
    p.due("W4.8 M+1>2");
    p.notify_up();
    p.after(0.1).confirms();
    p.due("W4.7");
}

#[test]
fn bounds_shrink_and_grow() {
    for grow in [false, true] {
        let mut p = Play::cus(1, 3, 2, settings()).ready();
        p.after(0.1).metrics(load(0.3));
        p.due("W4.8");
        p.after(0.1);
        if grow {
            p.bounds(3, 3);
            p.due("P2>3");
            p.ask();
            p.after(0.1).permit(cu(3));
            p.due("W4.9 N2>3");
            p.patch();
            p.after(0.1).patched_and_seen(cu(3));
            p.due("W4.8 M+2>3");
            p.notify_up();
            p.after(0.1).confirms();
            p.due("W4.7");
        } else {
            p.bounds(1, 1);
            p.due("W4.7 M-2>1");
            p.revision(1, DOWN);
            p.ask_down();
            p.after(0.1).agrees();
            p.due("W4.6 N2>1");
            p.patch();
            p.after(0.1).patched_and_seen(cu(1));
            p.due("P2>1");
            p.ask();
            p.after(0.1).permit(cu(1));
            p.after(0.1).reports(1, DOWN, 0.4);
            p.due("W4.8");
        }
    }
}

#[test]
fn failures_are_retried() {
    let mut settings = settings();
    settings.plugin_retry_wait = secs(2.0);
    settings.neonvm_retry_wait = secs(3.0);
    let mut p = Play::cus(1, 2, 1, settings).ready();
    p.after(0.1).metrics(load(0.3));
    p.due("P1>2");
    p.ask();
    p.after(0.1).plugin_fails();
    p.due("W2.0");
    p.warns(&Warning::PluginFailedRecently);
    p.after(2.0).due("P1>2");
    p.ask();
    p.after(0.1).permit(cu(2));
    p.due("W4.9 N1>2");
    p.patch();
    p.after(0.1).patch_fails();
    p.due("W3.0");
    p.warns(&Warning::NeonVmFailedRecently);
    p.after(3.0).due("W1.8 N1>2");
    p.patch();
    p.after(0.1).patched_and_seen(cu(2));
    p.due("W1.7 M+1>2");
}

/// History #560: the scheduler was sent the goal instead of what the VM has.
#[test]
fn issue_560_metrics_change_in_mid_downscale() {
    let mut p = Play::cus(1, 2, 3, settings());
    p.due("Pnone>3");
    p.warns(&Warning::IncompleteMetrics);
    p.warns(&Warning::NoMonitor);
    p.ask();
    p.after(0.1).permit(cu(3));
    p.after(0.1).connect(MonitorProtoVersion::V1_0);
    p.due("W4.8 M-3>2");
    p.warns(&Warning::IncompleteMetrics);
    p.ask_down();
    p.after(0.1);
    let mut metrics = load(0.0);
    metrics.memory_usage_bytes = 150_589_570.0;
    p.metrics(metrics);
    p.due("W4.7");
    p.after(0.1).agrees();
    p.due("W4.6 N3>2 M-2>1");
    p.patch();
    p.ask_down();
    p.after(0.1).agrees();
    p.due("W4.5");
    p.warns(&Warning::NeonVmBusy);
    p.after(0.1).patched_and_seen(cu(2));
    p.due("P3>2 N2>1");
    p.ask();
    p.patch();
    p.after(0.1).permit(cu(2));
    p.due("W4.9");
    p.patched_and_seen(cu(1));
    p.due("P2>1");
    p.ask();
    p.after(0.1).permit(cu(1));
    p.due("W4.9");
}

#[test]
fn revision_source() {
    use neonvm_core_vertical_scaling::agent::revision::{RevisionSource, UnknownRevision};
    let at = |seconds: f64| secs(seconds);
    assert_eq!(RevisionSource::new(5).advance(at(0.0), UP).value, 6);
    let mut source = RevisionSource::new(0);
    assert_eq!(source.advance(at(0.0), UP).value, 1);
    assert_eq!(source.observe(at(5.0), 1), Ok(Some((at(5.0), UP))));
    let (first, second) = (source.advance(at(5.0), UP), source.advance(at(10.0), DOWN));
    assert_eq!(source.observe(at(15.0), first.value), Ok(Some((at(10.0), UP))));
    assert_eq!(source.observe(at(17.0), second.value), Ok(Some((at(7.0), DOWN))));
    assert_eq!(source.observe(at(18.0), second.value), Ok(None));
    assert_eq!(source.observe(at(18.0), 4), Err(UnknownRevision(4)));
    for _ in 0..200 {
        let _ = source.advance(at(20.0), RevisionFlags::NONE);
    }
    assert_eq!(source.observe(at(21.0), 4), Ok(None), "older than the window");
}

#[test]
fn recent_counter() {
    use neonvm_core_vertical_scaling::agent::counter::RecentCounter;
    let mut counter = RecentCounter::new(secs(4.0), 10);
    for _ in 0..2 {
        counter.increment(secs(0.0));
    }
    assert_eq!(counter.count(secs(0.0)), 2);
    counter.increment(secs(2.0));
    assert_eq!(counter.count(secs(2.0)), 3);
    assert_eq!(counter.count(secs(5.0)), 1);
    assert_eq!(counter.count(secs(7.0)), 0);
}

/// A node without room: the VM is set back to its observed size, and more is requested again after a growing pause.
#[test]
fn a_node_that_denies_is_asked_again_later() {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    for pause in [30.0, 60.0] {
        p.metrics(load(0.5));
        p.after(5.0);
        p.ask();
        p.permit(cu(4));
        p.patch();
        p.patched();
        p.vm.info.set_using(cu(4)).unwrap();
        p.vm.denied = Some("denied by node n1: no memory".into());
        p.see();
        // It may have had more for a moment: the guest's consent is requested first, as for any smaller size.
        p.ask_down();
        p.agrees();
        p.patch();
        p.vm.denied = None;
        p.patched_and_seen(cu(1));
        assert_eq!(p.state.view(p.now).asked, cu(1), "it is set back");
        p.after(5.0);
        p.ask();
        p.permit(cu(1));
        p.after(pause - 6.0).metrics(load(0.5));
        assert_ne!(p.next().plugin.map(|request| request.target), Some(cu(4)), "within {pause} s");
        p.after(2.0).metrics(load(0.5));
    }
    p.ask();
    p.permit(cu(4));
    p.patch();
    p.patched_and_seen(cu(4));
    assert_eq!(p.state.view(p.now).asked, cu(4), "there is room now");
}

#[test]
fn the_reason_of_a_node_that_denies_is_reported() {
    let mut p = Play::cus(1, 4, 2, settings());
    p.vm.observed = Some(cu(1));
    p.vm.denied = Some("denied by node n1: no memory".into());
    let outcome = p.state.step(p.now, Event::Vm(p.vm.clone()));
    let notes: Vec<String> = outcome.notes.iter().map(ToString::to_string).collect();
    assert!(notes.iter().any(|note| note.contains(": denied by node n1: no memory")), "{notes:?}");
}
