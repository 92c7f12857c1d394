//! Sizes that a person holds by force: CPU goes without the guest's consent, memory never.

use neonvm_core_vertical_scaling::agent::Event;
use neonvm_types::{Resources, version::MonitorProtoVersion};

use crate::dsl::{Play, cu, load, secs, settings};

/// Four units, held at less against the guest, which has denied it.
fn denied(size: Resources) -> Play {
    let mut p = Play::cus(1, 4, 4, settings()).ready();
    p.connect(MonitorProtoVersion::V2_0);
    p.metrics(load(4.0));
    p.vm.hold = Some((size, secs(600.0)));
    p.see();
    p.ask_down();
    p.denies();
    p
}

fn less_cpu() -> Resources {
    Resources::new(cu(2).vcpus, cu(4).mem)
}

#[test]
fn cpu_goes_although_the_guest_denies() {
    let mut p = denied(less_cpu());
    assert_eq!(p.next().neonvm, None, "without force the guest keeps all");
    p.vm.forced = true;
    p.see();
    assert_eq!(p.state.view(p.now).goal, less_cpu());
    assert_eq!(p.next().neonvm.map(|change| change.target), Some(less_cpu()));
    p.patch();
    p.patched_and_seen(less_cpu());
    assert_eq!(p.state.view(p.now).approved, Some(less_cpu()));
    // Whatever the monitor knew is over: it is notified of what it has.
    p.ask();
    p.permit(less_cpu());
    assert_eq!(p.next().monitor_upscale.map(|change| change.target), Some(less_cpu()));
    p.notify_up();
    p.confirms();
    assert!(p.next().monitor_upscale.is_none() && p.next().neonvm.is_none());
}

#[test]
fn memory_is_asked_for_once_the_cpu_is_gone() {
    let mut p = denied(cu(2));
    p.vm.forced = true;
    p.see();
    p.after(600.0 - 1.0);
    p.metrics(load(4.0));
    assert_eq!(p.next().monitor_downscale, None, "the CPU goes first");
    p.patch();
    p.patched_and_seen(less_cpu());
    let question = p.next().monitor_downscale.unwrap();
    assert_eq!((question.current, question.target), (less_cpu(), cu(2)));
    p.ask_down();
    p.agrees();
    p.ask();
    p.permit(less_cpu());
    assert_eq!(p.next().neonvm.map(|change| change.target), Some(cu(2)));
}

#[test]
fn a_vm_without_a_monitor_loses_cpu_only() {
    let mut p = Play::cus(1, 4, 4, settings()).ready();
    p.event(Event::MonitorLost { reason: "gone".into() });
    p.metrics(load(4.0));
    p.vm.hold = Some((cu(2), secs(600.0)));
    p.see();
    assert_eq!(p.next().neonvm, None);
    p.vm.forced = true;
    p.see();
    assert_eq!(p.next().neonvm.map(|change| change.target), Some(less_cpu()));
}

#[test]
fn a_hold_that_grows_needs_no_force() {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.connect(MonitorProtoVersion::V2_0);
    p.metrics(load(0.0));
    (p.vm.hold, p.vm.forced) = (Some((cu(3), secs(600.0))), true);
    p.see();
    p.due("P1>3");
}
