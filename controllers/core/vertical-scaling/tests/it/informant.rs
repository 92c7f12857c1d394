//! A registration with an informant: valid orders, violations, and what holds in any order.

use neonvm_core_vertical_scaling::agent::informant::{
    Call, Change, Confirmed, Effect, Failure, Mode, Pause, Registration,
};
use neonvm_core_vertical_scaling::agent::{Event, Warning};
use neonvm_types::informant_protocol::{
    AgentId, InformantDesc, MetricsMethod, MetricsMethodPrometheus, SUPPORTED,
};
use neonvm_types::version::{InformantProtoVersion as V, MonitorProtoVersion};
use neonvm_types::{MoreResources, Resources};
use proptest::prelude::*;

use crate::dsl::{Play, cu, load, settings};

const OWN: AgentId = AgentId::new(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8);
const OTHER: AgentId = AgentId::new(1);
const MEMORY: MoreResources = MoreResources { cpu: false, memory: true };
const NOTHING: MoreResources = MoreResources { cpu: false, memory: false };

fn informant(version: V) -> InformantDesc {
    let prometheus = Some(MetricsMethodPrometheus { port: 9100 });
    InformantDesc { proto_version: version, metrics_method: MetricsMethod { prometheus } }
}

fn call(registration: &mut Registration, call: Call) -> Result<Option<Effect>, u16> {
    registration.call(&call).map(|(_, effect)| effect).map_err(|refusal| refusal.status)
}

/// Registered, not resumed.
fn registered(version: V) -> Registration {
    let mut registration = Registration::new(OWN);
    assert_eq!(call(&mut registration, Call::Id), Ok(None));
    let confirmed = registration.registered(Ok(informant(version))).unwrap();
    assert_eq!(confirmed, Confirmed { version, metrics_port: 9100, running: false, wants: None });
    registration
}

fn running(version: V) -> Registration {
    let mut registration = registered(version);
    assert_eq!(call(&mut registration, Call::Resume(OWN)), Ok(Some(Effect::Resumed)));
    registration
}

fn pause(registration: &Registration) -> Option<Pause> {
    registration.end().map(|end| end.pause)
}

#[test]
fn a_registration_begins_suspended_and_is_resumed_and_suspended() {
    let mut registration = registered(V::V2_0);
    assert_eq!(registration.mode(), Mode::Suspended);
    assert!(registration.change(cu(2)).unwrap_err().contains("suspended"));
    assert_eq!(registration.health_check(), None);
    assert_eq!(call(&mut registration, Call::Resume(OWN)), Ok(Some(Effect::Resumed)));
    assert_eq!(call(&mut registration, Call::Id), Ok(Some(Effect::Alive)));
    assert!(registration.change(cu(2)).is_ok() && registration.health_check().is_some());
    assert_eq!(call(&mut registration, Call::TryUpscale(OWN, MEMORY)), Ok(Some(Effect::Wants(MEMORY))));
    assert_eq!(call(&mut registration, Call::TryUpscale(OWN, NOTHING)), Ok(None));
    assert_eq!(call(&mut registration, Call::Suspend(OWN)), Ok(Some(Effect::Suspended)));
    assert!(registration.change(cu(2)).is_err());
    assert_eq!(call(&mut registration, Call::Resume(OWN)), Ok(Some(Effect::Resumed)));
    assert_eq!(registration.end(), None);
}

/// One counter for answers and changes, from 1.
#[test]
fn sequence_numbers_grow_over_answers_and_changes() {
    let mut registration = Registration::new(OWN);
    let first = registration.call(&Call::Id).unwrap().0;
    assert_eq!((first.sequence_number, first.data.agent_id), (1, OWN));
    registration.registered(Ok(informant(V::V2_0))).unwrap();
    assert_eq!(registration.call(&Call::Resume(OWN)).unwrap().0.sequence_number, 2);
    let Change::Signed(message) = registration.change(cu(2)).unwrap() else { panic!("not signed") };
    assert_eq!((message.sequence_number, message.data.id.agent_id), (3, OWN));
    let Change::Signed(message) = registration.change(cu(1)).unwrap() else { panic!("not signed") };
    assert_eq!(message.sequence_number, 4);
    assert_eq!(registration.call(&Call::Id).unwrap().0.sequence_number, 5);
}

/// The shape of changes, `/try-upscale` and `/health-check` depend on the version.
#[test]
fn each_version_has_its_features() {
    for (version, tries, checks, signs) in [
        (V::V1_0, false, false, false),
        (V::V1_1, true, false, false),
        (V::V1_2, true, true, false),
        (V::V2_0, true, true, true),
    ] {
        let mut registration = running(version);
        assert_eq!(call(&mut registration, Call::TryUpscale(OWN, MEMORY)).is_ok(), tries, "{version}");
        assert_eq!(registration.end(), None, "{version}: a refusal is no violation");
        assert_eq!(registration.health_check().is_some(), checks, "{version}");
        let json = serde_json::to_string(&registration.change(cu(1)).unwrap()).unwrap();
        assert_eq!(json.contains("sequenceNumber"), signs, "{version}: {json}");
        if !signs {
            assert_eq!(json, r#"{"cpu":"250m","memory":"1Gi"}"#);
        }
    }
}

#[test]
fn another_agents_identity_is_unknown_and_changes_nothing() {
    let mut registration = running(V::V2_0);
    for wrong in [Call::Resume(OTHER), Call::Suspend(OTHER), Call::TryUpscale(OTHER, MEMORY)] {
        assert_eq!(call(&mut registration, wrong), Err(404));
    }
    assert_eq!((registration.mode(), registration.end()), (Mode::Running, None));
}

/// Each ends the registration, and the agent registers again at once.
#[test]
fn violations_end_the_registration() {
    for (before, wrong) in [
        (running(V::V2_0), Call::Resume(OWN)),
        (registered(V::V2_0), Call::Suspend(OWN)),
        (registered(V::V2_0), Call::TryUpscale(OWN, MEMORY)),
        (Registration::new(OWN), Call::Resume(OWN)),
        (Registration::new(OWN), Call::Suspend(OWN)),
        (Registration::new(OWN), Call::TryUpscale(OWN, MEMORY)),
    ] {
        let mut registration = before;
        assert_eq!(call(&mut registration, wrong), Err(400), "{wrong:?}");
        assert_eq!(pause(&registration), Some(Pause::AtOnce), "{wrong:?}");
        assert_eq!(call(&mut registration, Call::Id), Err(404), "{wrong:?}: it has ended");
        assert!(registration.change(cu(1)).is_err());
    }
}

/// The informant resumes the new agent before it answers `/register`: its request may overtake the answer.
#[test]
fn a_resume_may_overtake_the_answer_to_register() {
    let mut registration = Registration::new(OWN);
    for early in [Call::Id, Call::Resume(OWN), Call::TryUpscale(OWN, MEMORY)] {
        assert_eq!(call(&mut registration, early), Ok(None), "{early:?}");
    }
    assert!(registration.change(cu(1)).is_err(), "nothing is changed before the answer");
    let confirmed = registration.registered(Ok(informant(V::V2_0))).unwrap();
    assert_eq!((confirmed.running, confirmed.wants), (true, Some(MEMORY)));
    assert_eq!(registration.mode(), Mode::Running);
    // Twice is a violation here too.
    let mut registration = Registration::new(OWN);
    for early in [Call::Id, Call::Resume(OWN), Call::Suspend(OWN)] {
        assert_eq!(call(&mut registration, early), Ok(None), "{early:?}");
    }
    assert_eq!(call(&mut registration, Call::Suspend(OWN)), Err(400));
    let end = registration.registered(Ok(informant(V::V2_0))).unwrap_err();
    assert_eq!(end.pause, Pause::AtOnce);
}

#[test]
fn invalid_answers_to_register_are_named() {
    let without_port = InformantDesc { metrics_method: MetricsMethod::default(), ..informant(V::V2_0) };
    let mut port_zero = informant(V::V2_0);
    port_zero.metrics_method.prometheus = Some(MetricsMethodPrometheus { port: 0 });
    for (answer, identified, pause, part) in [
        (Ok(informant(V(5))), true, Pause::Normal, "protoVersion <unknown = v2.0 + 1> was not offered"),
        (Ok(informant(V(0))), true, Pause::Normal, "was not offered; offered: v1.0 to v2.0"),
        (Ok(without_port), true, Pause::Normal, "metricsMethod.prometheus.port is missing"),
        (Ok(port_zero), true, Pause::Normal, "metricsMethod.prometheus.port is missing"),
        (Ok(informant(V::V2_0)), false, Pause::Normal, "did not request /id"),
        (Err(Failure::Status(409, "known".into())), true, Pause::Normal, "answers 409: known"),
        (Err(Failure::Status(404, String::new())), true, Pause::Normal, "answers 404"),
        (Err(Failure::Invalid("x".into())), true, Pause::Normal, "invalid answer: x"),
        (Err(Failure::Transport("refused".into())), false, Pause::Register, "/register: refused"),
    ] {
        let mut registration = Registration::new(OWN);
        if identified {
            call(&mut registration, Call::Id).unwrap();
        }
        let end = registration.registered(answer).unwrap_err();
        assert!(end.reason.contains(part), "{end:?}");
        assert_eq!((end.pause, registration.end()), (pause, Some(&end)));
    }
}

/// A 404 means that the informant was restarted; what did not arrive means nothing.
#[test]
fn answers_with_errors_end_the_registration() {
    for (failure, expected) in [
        (Failure::Status(404, String::new()), Some(Pause::AtOnce)),
        (Failure::Status(400, String::new()), Some(Pause::Normal)),
        (Failure::Status(500, String::new()), Some(Pause::Normal)),
        (Failure::Transport("late".into()), None),
        (Failure::Invalid("no JSON".into()), None),
    ] {
        let mut registration = running(V::V2_0);
        registration.failed("/downscale", &failure);
        assert_eq!(pause(&registration), expected, "{failure}");
    }
}

/// Another agent acts for the VM: no request to scheduler, VM or guest, until this one is resumed.
#[test]
fn a_suspended_agent_changes_nothing() {
    let mut p = Play::cus(1, 4, 1, settings()).ready();
    p.event(Event::MonitorSuspended);
    p.metrics(load(0.5));
    let set = p.next();
    assert!(set.is_idle() && set.warnings == [Warning::Suspended], "{set:?}");
    let view = p.state.view(p.now);
    assert_eq!((view.approved, view.state.as_str()), (None, "suspended: the informant has another agent"));
    p.after(60.0);
    let stuck = p.state.stuck(p.now).unwrap();
    assert!(stuck.starts_with("suspended by the informant for"), "{stuck}");
    p.event(Event::MonitorConnected { version: MonitorProtoVersion::V1_0 });
    p.metrics(load(0.5));
    assert!(p.next().plugin.is_some(), "it goes on where it was");
    p.event(Event::MonitorSuspended);
    p.event(Event::MonitorLost { reason: "the registration ended".into() });
    assert!(p.next().plugin.is_some(), "without the informant no other agent is known");
}

#[derive(Clone, Debug)]
enum Step {
    Call(Call),
    Register(Result<u32, u16>),
    Change,
    Fail(Option<u16>),
}

fn steps() -> impl Strategy<Value = Step> {
    let id = prop_oneof![4 => Just(OWN), 1 => Just(OTHER)];
    let more = (any::<bool>(), any::<bool>()).prop_map(|(cpu, memory)| MoreResources { cpu, memory });
    prop_oneof![
        4 => Just(Step::Call(Call::Id)),
        3 => id.clone().prop_map(|id| Step::Call(Call::Resume(id))),
        3 => id.clone().prop_map(|id| Step::Call(Call::Suspend(id))),
        2 => (id, more).prop_map(|(id, more)| Step::Call(Call::TryUpscale(id, more))),
        2 => (0_u32..6).prop_map(|version| Step::Register(Ok(version))),
        1 => (400_u16..600).prop_map(|status| Step::Register(Err(status))),
        3 => Just(Step::Change),
        1 => prop::option::of(400_u16..600).prop_map(Step::Fail),
    ]
}

proptest! {
    /// Whatever an informant sends, in whatever order: one counter, no change without consent, and no way back after the end.
    #[test]
    fn any_order_is_handled(steps in prop::collection::vec(steps(), 0..40)) {
        let mut registration = Registration::new(OWN);
        let (mut sequence, mut ended, mut answered) = (0, false, false);
        // What an honest model has for current: the last of /resume and /suspend that was accepted.
        let mut current = false;
        for step in steps {
            match step {
                Step::Call(call) => match registration.call(&call) {
                    Ok((message, effect)) => {
                        prop_assert!(!ended && message.sequence_number > sequence);
                        sequence = message.sequence_number;
                        prop_assert_eq!(message.data.agent_id, OWN);
                        match call {
                            Call::Resume(_) => current = true,
                            Call::Suspend(_) => current = false,
                            Call::Id | Call::TryUpscale(..) => {}
                        }
                        prop_assert!(effect.is_none() || answered, "no effect before the answer to /register");
                    }
                    Err(refusal) => prop_assert!([400, 404].contains(&refusal.status)),
                },
                Step::Register(answer) if !answered => {
                    answered = true;
                    let answer = answer.map(|version| informant(V(version)));
                    let answer = answer.map_err(|status| Failure::Status(status, String::new()));
                    if let Ok(confirmed) = registration.registered(answer) {
                        prop_assert!(confirmed.version >= SUPPORTED.min && confirmed.version <= SUPPORTED.max);
                        prop_assert_eq!(confirmed.running, current);
                    }
                }
                Step::Register(_) => {}
                Step::Change => {
                    let change = registration.change(Resources::default());
                    prop_assert_eq!(change.is_ok(), answered && current && registration.end().is_none());
                    if let Ok(Change::Signed(message)) = change {
                        prop_assert!(message.sequence_number > sequence);
                        sequence = message.sequence_number;
                    }
                }
                Step::Fail(status) => {
                    let failure = status.map_or(Failure::Transport(String::new()), |status| {
                        Failure::Status(status, String::new())
                    });
                    registration.failed("/x", &failure);
                }
            }
            prop_assert!(!ended || registration.end().is_some(), "an end is final");
            ended = registration.end().is_some();
            if answered && !ended {
                prop_assert_eq!(registration.mode() == Mode::Running, current);
            }
        }
    }
}
