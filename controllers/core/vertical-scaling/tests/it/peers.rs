//! Peers that do not answer, answer twice or late, or send invalid replies.

use std::time::Duration;

use neonvm_core_vertical_scaling::agent::{Action, Event, Outcome, PatchError, State, Verdict, Warning};
use neonvm_types::{Resources, version::MonitorProtoVersion};

use crate::dsl::{Play, cu, load, res, secs, settings, vm};

/// Permitted four units, at one; then the load fell, and the scheduler is notified that one is enough.
fn giving_back() -> Play {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.metrics(load(0.5));
    p.ask();
    p.permit(cu(4));
    p.metrics(load(0.0));
    p.due("P4>1");
    p.ask();
    p
}

/// From the moment in which less is requested, the rest of the permit may be given to another VM.
#[test]
fn a_permit_on_its_way_back_is_not_used() {
    let mut p = giving_back();
    assert_eq!(p.state.view(p.now).permit, Some(cu(1)));
    p.metrics(load(0.5));
    assert_eq!(p.next().neonvm, None);
    // The reply never comes: the request is assumed to have been granted, and is the next `lastPermit`.
    p.after(5.0);
    let outcome = p.state.step(p.now, Event::Timer);
    assert!(outcome.actions.is_empty());
    assert!(outcome.notes.iter().any(|note| note.to_string().contains("scheduler failed: no reply")));
    p.after(3.0).due("P1>4");
}

/// The same for a refusal: it may have come from something in between.
#[test]
fn a_refused_return_is_a_return() {
    let mut p = giving_back();
    p.plugin_fails();
    p.metrics(load(0.5));
    p.due("W3.0");
    p.after(3.0).due("P1>4");
}

/// Each field on its own: more CPU is wanted and less memory.
#[test]
fn a_request_for_less_of_one_field_gives_back_that_field() {
    let mut vm = vm(cu(1), cu(4), res(250, 1));
    vm.info.set_using(res(250, 1)).unwrap();
    let mut p = Play::new(vm, settings()).ready();
    p.vm.hold = Some((res(500, 4), secs(600.0)));
    p.see();
    p.ask();
    p.permit(res(500, 4));
    p.vm.hold = Some((res(1000, 2), secs(600.0)));
    p.see();
    assert_eq!(p.next().plugin.map(|request| request.target), Some(res(1000, 2)));
    p.ask();
    assert_eq!(p.state.view(p.now).permit, Some(res(500, 2)));
}

/// Requests four units at two, permitted three, and repeats the request; the reply is `reply`.
fn answered(reply: Resources) -> (Play, Outcome) {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.5));
    p.ask();
    p.permit(cu(3));
    p.after(2.0).ask();
    let id = serde_json::to_value(&p.state).unwrap()["plugin"]["asking"]["id"].as_u64().unwrap();
    let outcome = p.state.step(p.now, Event::PluginReply { id, result: Ok(reply.into()) });
    (p, outcome)
}

/// Replies of the scheduler to a VM at two units with a permit of three that requests four: the resulting permit, the
/// size that the VM is set to, and the note.
#[test]
fn invalid_replies_of_the_scheduler() {
    for (reply, permit, set, note) in [
        // More than requested: none of it is used.
        (cu(9), cu(3), Some(cu(3)), "scheduler failed: the permit is above the request: 9"),
        // Less than the permit before, but what the VM has: that is how it is now.
        (cu(2), cu(2), None, "scheduler permits 2"),
        // Less than the VM has: it keeps what it has, and no more than that.
        (cu(1), cu(2), None, "scheduler failed: the permit is below what the VM has: 1"),
        (cu(0), cu(2), None, "scheduler failed: a field of the permit is 0: 0"),
        (res(0, 4), res(500, 3), None, "scheduler failed: a field of the permit is 0"),
        // More of one, less of the other.
        (res(2000, 1), res(750, 2), None, "scheduler failed: the permit is above the request"),
        // Half units are used in whole ones.
        (res(875, 3), res(875, 3), Some(cu(3)), "scheduler permits 875m/3Gi"),
        (res(1000, 3), res(1000, 3), Some(cu(3)), "scheduler permits 1/3Gi"),
        (res(625, 4), res(625, 4), None, "scheduler permits 625m/4Gi"),
    ] {
        let (mut p, outcome) = answered(reply);
        let view = p.state.view(p.now);
        assert_eq!(view.permit, Some(permit), "{reply:?}");
        let patched = outcome.actions.iter().find_map(|action| match action {
            Action::PatchVm { to, .. } => Some(*to),
            _ => None,
        });
        assert_eq!(patched, set, "{reply:?}");
        let notes: Vec<String> = outcome.notes.iter().map(ToString::to_string).collect();
        assert!(notes.iter().any(|text| text.starts_with(note)), "{reply:?}: {notes:?}");
        // The request is repeated, and a valid reply ends it.
        p.after(8.0);
        let outcome = p.state.step(p.now, Event::Timer);
        let asked = outcome.actions.iter().find_map(|action| match action {
            Action::AskScheduler { id, request } => Some((*id, request.last_permit, request.target)),
            _ => None,
        });
        let (id, last, target) = asked.expect("asks again");
        assert_eq!((last, target), (Some(permit), cu(4)), "{reply:?}");
        let _ = p.state.step(p.now, Event::PluginReply { id, result: Ok(cu(4).into()) });
        assert_eq!(p.state.view(p.now).permit, Some(cu(4)), "{reply:?}");
    }
}

/// Steps at each `wake_at` until `end`; `answer` returns the immediate replies. Returns the actions with their times.
fn run(
    state: &mut State,
    end: f64,
    first: Event,
    answer: impl Fn(&Action) -> Option<Event>,
) -> Vec<(Duration, Action)> {
    let (mut now, mut event) = (state_time(state), first);
    let mut all = Vec::new();
    loop {
        let mut outcome = state.step(now, event);
        let mut wake_at = outcome.wake_at;
        let mut todo = std::mem::take(&mut outcome.actions);
        while let Some(action) = todo.pop() {
            let back = answer(&action);
            all.push((now, action));
            if let Some(back) = back {
                let outcome = state.step(now, back);
                todo.extend(outcome.actions);
                wake_at = outcome.wake_at;
            }
        }
        now = wake_at.expect("there is always a next tick");
        event = Event::Timer;
        if now > secs(end) {
            return all;
        }
    }
}

fn state_time(state: &State) -> Duration {
    let clock = &serde_json::to_value(state).unwrap()["clock"];
    Duration::new(clock["secs"].as_u64().unwrap(), u32::try_from(clock["nanos"].as_u64().unwrap()).unwrap())
}

/// No peer ever replies: requests to each are repeated, ever more rarely; the size stays; the view shows which peer
/// fails.
#[test]
fn replies_that_never_come() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.connect(MonitorProtoVersion::V2_0);
    let metrics = Event::SystemMetrics(load(0.5));
    let actions = run(&mut p.state, 600.0, metrics, |_| None);
    let count = |wanted: fn(&Action) -> bool| actions.iter().filter(|(_, action)| wanted(action)).count();
    let asked = count(|action| matches!(action, Action::AskScheduler { .. }));
    // 5 s until it failed, then 3, 6, 12 and from then on 24 s.
    assert!((18..=26).contains(&asked), "{asked}");
    assert_eq!(count(|action| matches!(action, Action::PatchVm { .. })), 0);
    let view = p.state.view(secs(600.0));
    assert_eq!((view.asked, view.permit), (cu(2), Some(cu(2))));
    assert!(view.stuck.is_some(), "{view:?}");
    assert!(view.state.contains("scheduler"), "{}", view.state);
}

/// Only the scheduler is silent: the VM still shrinks, because that needs no permit.
#[test]
fn without_the_scheduler_a_vm_still_shrinks() {
    let mut p = Play::cus(1, 4, 3, settings()).ready();
    p.connect(MonitorProtoVersion::V2_0);
    let agrees = |action: &Action| match *action {
        Action::PatchVm { id, .. } => Some(Event::PatchReply { id, result: Ok(None) }),
        Action::AskMonitorDownscale { id, .. } => {
            let result = Ok(Verdict::Agreed { status: String::new() });
            Some(Event::MonitorReply { id, result })
        }
        _ => None,
    };
    let actions = run(&mut p.state, 15.0, Event::SystemMetrics(load(0.0)), agrees);
    assert_eq!(p.state.view(secs(15.0)).asked, cu(1));
    // Until the VM is observed to be smaller, requests to the scheduler still contain all of it.
    for (_, action) in &actions {
        if let Action::AskScheduler { request, .. } = action {
            assert_eq!(request.target, cu(3));
        }
    }
}

fn patch_id(p: &Play) -> u64 {
    serde_json::to_value(&p.state).unwrap()["machine"]["patching"]["id"].as_u64().unwrap()
}

/// A patch whose reply was lost, and whose result was not observed, is not dropped after some time. Requests to the scheduler
/// contain it until a patch that changes nothing proves the size.
#[test]
fn a_patch_without_reply_counts_until_it_is_known_to_be_undone() {
    for undone in [true, false] {
        let mut p = Play::cus(1, 4, 1, settings()).ready();
        p.metrics(load(0.25));
        p.ask();
        p.permit(cu(2));
        p.patch();
        // It is not needed any more, so that it is not tried again for its own sake.
        p.metrics(load(0.0));
        p.after(15.0);
        let outcome = p.state.step(p.now, Event::Timer);
        let target = |outcome: &Outcome| {
            outcome.actions.iter().find_map(|action| match action {
                Action::AskScheduler { id, request } => Some((*id, request.target)),
                _ => None,
            })
        };
        let (id, sent) = target(&outcome).expect("the tick is long over");
        assert_eq!(sent, cu(2));
        let _ = p.state.step(p.now, Event::PluginReply { id, result: Ok(cu(2).into()) });
        assert_eq!(p.next().neonvm, None, "it may still be under way");
        p.after(15.0);
        let outcome = p.state.step(p.now, Event::Timer);
        assert_eq!(target(&outcome).map(|(_, target)| target), Some(cu(2)));
        let confirms = outcome.actions.iter().any(
            |action| matches!(action, Action::PatchVm { from, to, .. } if (*from, *to) == (cu(1), cu(1))),
        );
        assert!(confirms, "{outcome:?}");
        assert!(outcome.notes.iter().any(|note| note.to_string().contains("confirm VM at 1")));
        assert_eq!(outcome.scaling, []);
        let (id, (ask, _)) = (patch_id(&p), target(&outcome).unwrap());
        let _ = p.state.step(p.now, Event::PluginReply { id: ask, result: Ok(cu(2).into()) });
        if undone {
            let outcome = p.state.step(p.now, Event::PatchReply { id, result: Ok(None) });
            assert_eq!(target(&outcome).map(|(_, target)| target), Some(cu(1)), "gives back the rest");
        } else {
            let _ = p.state.step(p.now, Event::PatchReply { id, result: Err(PatchError::Conflict) });
            p.vm.info.set_using(cu(2)).unwrap();
            p.vm.observed = Some(cu(2));
            let _ = p.state.step(p.now, Event::Vm(p.vm.clone()));
            assert_eq!(p.state.view(p.now).asked, cu(2));
            assert!(serde_json::to_value(&p.state).unwrap()["machine"]["doubt"].is_null());
        }
    }
}

/// Two patches whose replies were lost: each may have been made.
#[test]
fn a_second_patch_without_reply_does_not_hide_the_first() {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.metrics(load(0.5));
    p.ask();
    p.permit(cu(4));
    p.patch();
    p.patch_fails();
    p.metrics(load(0.25));
    p.after(5.0);
    p.patch();
    p.patch_fails();
    p.metrics(load(0.0));
    assert_eq!(p.next().plugin.map(|request| request.target), Some(cu(4)));
}

/// A patch that the API server rejected, and that is no longer needed, does not block the VM.
#[test]
fn refused_patches_that_are_not_needed_any_more_are_not_stuck() {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.metrics(load(0.25));
    p.ask();
    p.permit(cu(2));
    for _ in 0..3 {
        p.patch();
        let id = patch_id(&p);
        p.event(Event::PatchReply { id, result: Err(PatchError::Conflict) });
        p.after(20.0);
    }
    assert!(p.state.stuck(p.now).is_some_and(|why| why.contains("3 times in a row")));
    // Another client sets what is wanted.
    p.vm.info.set_using(cu(2)).unwrap();
    p.vm.observed = Some(cu(2));
    p.see();
    p.after(120.0);
    p.metrics(load(0.25));
    assert_eq!(p.state.stuck(p.now), None);
}

/// A VM that another client made smaller does not grow back on a permit that the scheduler no longer holds.
#[test]
fn what_is_taken_away_is_gone_however_much_the_vm_seemed_to_have() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.0));
    p.ask_down();
    p.agrees();
    // Made, but the reply is lost.
    p.patch();
    p.after(5.0).ask();
    p.permit(res(100, 1));
    p.after(10.0);
    let outcome = p.state.step(p.now, Event::Timer);
    assert!(outcome.notes.iter().any(|note| note.to_string().contains("patch failed: no reply")));
    p.vm.info.set_using(cu(1)).unwrap();
    p.vm.observed = Some(cu(1));
    p.metrics(load(0.25));
    let _ = p.state.step(p.now, Event::Vm(p.vm.clone()));
    let view = p.state.view(p.now);
    assert_eq!((view.asked, view.goal, view.permit), (cu(1), cu(2), Some(cu(1))));
}

/// A VM object as an API server shows it: generation, spec, and a status about an older generation.
fn shows(p: &mut Play, generation: i64, asked: u16, status_generation: i64, has: u16) -> Outcome {
    p.vm.generation = Some(generation);
    p.vm.info.set_using(cu(asked)).unwrap();
    p.vm.observed = Some(cu(has));
    p.event(Event::VmSeen { vm: p.vm.clone(), status_generation: Some(status_generation) })
}

/// The VM grew from four to five and was set back to four before anything was seen of either: it may have five.
#[test]
fn a_growth_that_was_not_seen_counts_until_the_status_is_about_what_came_after() {
    let mut p = Play::cus(1, 8, 4, settings()).ready();
    p.connect(MonitorProtoVersion::V2_0);
    p.metrics(load(0.625));
    p.ask();
    p.permit(cu(5));
    p.patch();
    p.event(Event::PatchReply { id: patch_id(&p), result: Ok(Some(2)) });
    p.metrics(load(0.5));
    p.ask_down();
    p.agrees();
    p.patch();
    p.event(Event::PatchReply { id: patch_id(&p), result: Ok(Some(3)) });
    p.after(5.0);
    assert_eq!(p.next().plugin.map(|request| request.target), Some(cu(5)), "nothing was seen");
    shows(&mut p, 3, 4, 2, 4);
    assert_eq!(
        p.next().plugin.map(|request| request.target),
        Some(cu(5)),
        "the status is about the growth at most"
    );
    shows(&mut p, 3, 4, 3, 5);
    assert_eq!(p.next().plugin.map(|request| request.target), Some(cu(5)), "it is going down");
    shows(&mut p, 3, 4, 3, 4);
    assert_eq!(p.next().plugin.map(|request| request.target), Some(cu(4)));
}

/// On the way from five to three a user fixes the size at five again. The status still shows the five of before.
#[test]
fn the_monitor_is_not_notified_of_what_an_old_status_shows() {
    let mut p = Play::cus(1, 8, 5, settings()).ready();
    p.connect(MonitorProtoVersion::V2_0);
    p.metrics(load(0.375));
    p.ask_down();
    p.agrees();
    p.patch();
    p.event(Event::PatchReply { id: patch_id(&p), result: Ok(Some(2)) });
    p.vm.hold = Some((cu(5), secs(600.0)));
    shows(&mut p, 2, 3, 1, 5);
    p.patch();
    p.event(Event::PatchReply { id: patch_id(&p), result: Ok(Some(3)) });
    shows(&mut p, 3, 5, 2, 5);
    assert_eq!(p.next().monitor_upscale, None, "the VM may be on its way down");
    shows(&mut p, 3, 5, 3, 4);
    assert_eq!(p.next().monitor_upscale.map(|change| change.target), Some(cu(4)));
    shows(&mut p, 3, 5, 3, 5);
    assert_eq!(p.next().monitor_upscale.map(|change| change.target), Some(cu(5)));
}

/// The guest agrees to less while a patch to more is in doubt, which is then made after all: what it brings is not taken
/// away on that word.
#[test]
fn a_guest_is_asked_again_about_what_a_patch_in_doubt_brought() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.connect(MonitorProtoVersion::V2_0);
    p.metrics(load(0.375));
    p.ask();
    p.permit(cu(3));
    p.patch();
    p.patch_fails();
    p.metrics(load(0.0));
    p.ask_down();
    p.agrees();
    p.vm.info.set_using(cu(3)).unwrap();
    p.see();
    let set = p.next();
    assert_eq!(set.neonvm, None);
    assert_eq!(set.monitor_downscale.map(|change| (change.current, change.target)), Some((cu(3), cu(1))));
    p.ask_down();
    p.agrees();
    p.after(5.0);
    assert_eq!(p.next().neonvm.map(|change| change.target), Some(cu(1)));
}

/// A full node is no fault of the scheduler: the VM is limited, not stuck.
#[test]
fn denials_do_not_make_a_vm_stuck() {
    let mut p = Play::cus(1, 4, 2, settings()).ready();
    p.metrics(load(0.5));
    for _ in 0..20 {
        p.ask();
        p.permit(cu(2));
        p.after(8.0);
    }
    p.metrics(load(0.5));
    let view = p.state.view(p.now);
    assert_eq!((view.stuck, view.limit.as_deref()), (None, Some("scheduler permits 2 of 4")));
}

/// The guest denies to give back what a failed patch might have brought. It has three, and keeps three.
#[test]
fn a_denial_does_not_make_a_vm_grow_above_its_maximum_or_a_hold() {
    for held in [false, true] {
        let mut p = Play::cus(1, 4, 3, settings()).ready();
        p.connect(MonitorProtoVersion::V2_0);
        p.metrics(load(0.5));
        p.ask();
        p.permit(cu(4));
        p.patch();
        p.patch_fails();
        if held {
            p.vm.hold = Some((cu(3), secs(600.0)));
            p.see();
        } else {
            p.bounds(1, 3);
        }
        p.ask_down();
        p.denies();
        assert_eq!(p.state.view(p.now).goal, cu(3));
        p.after(8.0);
        assert_eq!(p.next().neonvm.map(|change| change.target).filter(|target| *target != cu(3)), None);
    }
}

/// The agent sets five to four, its reply is lost, and another client sets five again before the next observation: a
/// new consent of the guest is required.
#[test]
fn a_shrinking_that_was_undone_needs_a_new_consent() {
    let mut p = Play::cus(1, 8, 5, settings());
    p.vm.generation = Some(1);
    let mut p = Play::new(p.vm, settings()).ready();
    p.connect(MonitorProtoVersion::V2_0);
    p.metrics(load(0.5));
    p.ask_down();
    p.agrees();
    p.patch();
    shows(&mut p, 3, 5, 1, 5);
    p.event(Event::PatchReply { id: patch_id(&p), result: Err(PatchError::Failed("no reply".into())) });
    p.after(5.0);
    let set = p.next();
    assert_eq!(set.neonvm, None);
    assert_eq!(set.monitor_downscale.map(|change| change.target), Some(cu(4)));
}

/// An agent that starts while the VM goes from five to four, before the status shows that, sends nothing to the scheduler
/// until it does.
#[test]
fn an_agent_that_starts_in_a_change_waits_for_the_status() {
    let mut vm = vm(cu(1), cu(8), cu(4));
    (vm.generation, vm.observed) = (Some(3), Some(cu(4)));
    let mut p = Play::new(vm.clone(), settings());
    p.state = State::found(vm, Some(2), settings(), Duration::ZERO);
    p.connect(MonitorProtoVersion::V2_0);
    p.due("");
    p.warns(&Warning::NowUnknown);
    assert_eq!(p.state.view(p.now).state, "waiting: VM status older than its spec");
    shows(&mut p, 3, 4, 3, 5);
    assert_eq!(p.next().plugin.map(|request| request.target), Some(cu(5)));
    // It may use five, and its consent is requested for each of them.
    p.metrics(load(0.5));
    assert_eq!(p.next().monitor_downscale.map(|change| change.current), Some(cu(5)));
}
