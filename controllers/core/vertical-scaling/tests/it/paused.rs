//! A paused VM: nothing is expected of the guest, its size stays, and that is shown.

use neonvm_core_vertical_scaling::agent::{Event, MetricsSource, Settings, Vm, Warning};
use neonvm_types::Resources;
use neonvm_types::runner_protocol::ASLEEP;
use neonvm_types::version::MonitorProtoVersion;

use crate::dsl::{Play, cu, load, settings};

impl Play {
    fn pause(&mut self, paused: bool) {
        self.vm = Vm { paused, ..self.vm.clone() };
        self.event(Event::Vm(self.vm.clone()));
    }

    fn texts(&self) -> String {
        let view = self.state.view(self.now);
        view.decisions.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

#[test]
fn the_size_of_a_paused_vm_stays_and_is_reported() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.5));
    p.due("P2>4");
    p.pause(true);
    p.due("W4.9");
    p.warns(&Warning::Paused);
    // The scheduler keeps the permit by the usual report.
    p.after(5.0).due("P2>2");
    p.ask();
    p.permit(cu(2));
    let view = p.state.view(p.now);
    assert_eq!((view.state.as_str(), view.stuck, view.approved), ("paused", None, None));
    assert_eq!(view.limit.as_deref(), Some("the VM is paused: the size stays until it is resumed"));
    // A size that another client requests is not taken back, and reserved.
    p.vm.info.set_using(cu(3)).unwrap();
    p.see();
    let set = p.next();
    assert_eq!((set.plugin.map(|request| request.target), set.neonvm), (Some(cu(3)), None));
}

#[test]
fn the_permit_of_a_suspended_vm_is_given_back_and_taken_again() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.1));
    p.pause(true);
    let suspended = Some("since 12:00, wakes on network".to_owned());
    p.vm.suspended = suspended;
    p.see();
    assert_eq!(p.state.view(p.now).state, "suspended since 12:00, wakes on network");
    let asleep = Resources::new(ASLEEP.cpu, ASLEEP.memory);
    assert_eq!(p.next().plugin.map(|request| request.target), Some(asleep));
    p.ask();
    p.permit(asleep);
    assert_eq!((p.next().plugin, p.state.view(p.now).stuck), (None, None));
    p.after(5.0);
    let set = p.next();
    assert_eq!((set.plugin.map(|request| request.target), set.neonvm), (Some(asleep), None));
    p.vm.suspended = None;
    p.pause(false);
    let set = p.next();
    let request = set.plugin.map(|request| (request.target, request.last_permit));
    assert_eq!((request, set.neonvm), (Some((cu(2), Some(asleep))), None));
    p.ask();
    p.permit(cu(2));
    assert_eq!((p.next().plugin, p.state.view(p.now).stuck), (None, None));
}

#[test]
fn silence_is_no_failure_until_the_guest_runs_again() {
    let mut p =
        Play::cus(1, 4, 2, Settings { monitor_unhealthy: crate::dsl::secs(5.0), ..settings() }).ready();
    p.metrics(load(0.5));
    p.pause(true);
    for _ in 0..20 {
        p.after(600.0);
        let reason = "no answer".to_owned();
        let source = MetricsSource::System;
        for event in [Event::MetricsFailed { source, reason: reason.clone() }, Event::MonitorLost { reason }]
        {
            assert_eq!(p.event(event).notes, []);
        }
        assert_eq!(p.state.view(p.now).stuck, None);
    }
    p.pause(false);
    assert_eq!(p.state.view(p.now).stuck, None, "the time for its metrics begins now");
    p.connect(MonitorProtoVersion::V2_0);
    p.metrics(load(0.5));
    assert_eq!(p.next().plugin.map(|request| request.target), Some(cu(4)));
    assert!(
        p.texts().contains("the VM is paused") && p.texts().contains("the VM is resumed"),
        "{}",
        p.texts()
    );
}

/// What was measured before a long pause is no reason to shrink.
#[test]
fn a_resumed_vm_does_not_shrink_by_old_metrics() {
    let mut p = Play::cus(1, 4, 4, settings()).ready();
    p.metrics(load(0.5));
    p.pause(true);
    p.after(3600.0).pause(false);
    p.connect(MonitorProtoVersion::V2_0);
    p.ask();
    p.permit(cu(4));
    assert_eq!(p.next().monitor_downscale, None);
    p.metrics(load(0.1));
    assert_eq!(p.next().monitor_downscale.map(|change| change.target), Some(cu(1)));
}

#[test]
fn a_resumed_guest_that_does_not_answer_is_reported() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.5));
    p.pause(true);
    p.after(3600.0).pause(false);
    p.after(3600.0);
    assert!(p.state.view(p.now).stuck.is_some());
}
