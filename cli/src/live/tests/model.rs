//! What the model makes of what it takes in.

use neonvm_types::agent_inspect::VmInspect;

use super::fixture::{START, fleet, key, units, vm, why};
use crate::live::input::{Change, Input, Load, Origin, VmFacts};
use crate::live::model::Fleet;
use crate::live::series::STEP;

#[test]
fn a_list_replaces_what_was_known_and_keeps_the_rest() {
    let mut fleet = fleet();
    let points = fleet.vms[&key("pg")].series.points().len();
    fleet.apply(START, Input::Vms(Change::All(vec![(key("pg"), vm("n3", 5))])));
    assert_eq!(fleet.vms.len(), 1);
    let pg = &fleet.vms[&key("pg")];
    assert_eq!((pg.facts.node.as_str(), pg.series.points().len()), ("n3", points));
    fleet.apply(START, Input::Vms(Change::Gone(key("pg"))));
    assert!(fleet.vms.is_empty());
}

/// What holds the guest back comes before the state of its agent, and after what is stuck.
#[test]
fn a_limit_of_a_disk_that_binds_is_the_state() {
    let mut fleet = Fleet::default();
    let limited = VmFacts { limited: "disk data is held".into(), ..vm("n1", 4) };
    fleet.apply(START, Input::Vms(Change::Set(key("pg"), limited)));
    fleet.apply(START, Input::Agents(vec![VmInspect { stuck: None, ..why("pg") }]));
    assert_eq!(fleet.vms[&key("pg")].state(), "disk data is held");
    fleet.apply(START, Input::Agents(vec![VmInspect { stuck: Some("denied".into()), ..why("pg") }]));
    assert_eq!(fleet.vms[&key("pg")].state(), "stuck: denied");
}

#[test]
fn points_are_added_at_their_distance() {
    let mut fleet = Fleet::default();
    fleet.apply(START, Input::Vms(Change::Set(key("pg"), vm("n1", 4))));
    fleet.apply(START, Input::Agents(vec![why("pg")]));
    for millis in [0, 100, STEP - 1, STEP, STEP + 1, 2 * STEP] {
        fleet.tick(START + millis);
    }
    let points: Vec<_> = fleet.vms[&key("pg")].series.points().collect();
    assert_eq!(points.len(), 3);
    let cpu = points[2].cpu;
    assert_eq!((cpu.load, cpu.goal, cpu.permit, cpu.size), (None, Some(2.0), Some(1.25), Some(1.0)));
    assert_eq!((points[2].memory.goal, points[2].memory.size), (Some(8.0), Some(4.0)));
}

#[test]
fn each_decision_is_shown_once() {
    let mut fleet = Fleet::default();
    fleet.apply(START, Input::Vms(Change::Set(key("pg"), vm("n1", 4))));
    for _ in 0..3 {
        fleet.apply(START, Input::Agents(vec![why("pg")]));
    }
    assert_eq!(fleet.stream.len(), 2);
    let mut later = why("pg");
    later.decisions.remove(0);
    later.decisions.push(neonvm_types::agent_inspect::Decision {
        at: "bad".into(),
        text: "x".into(),
        reason: None,
    });
    fleet.apply(START, Input::Agents(vec![later]));
    assert_eq!(fleet.stream.len(), 3);
    assert_eq!(fleet.stream.newest().next().unwrap().text, "requested 8, permitted 5 (node full)");
    fleet.apply(START, Input::Agents(Vec::new()));
    assert_eq!(fleet.vms[&key("pg")].why, None, "its agent is gone");
}

#[test]
fn a_node_without_account_is_shown_with_the_sizes_of_its_vms() {
    let mut fleet = fleet();
    let shares = |fleet: &Fleet| fleet.shares("n1", &fleet.nodes["n1"]);
    let (cpu, _) = shares(&fleet);
    assert_eq!((cpu.permitted, cpu.pressure, cpu.watermark), (3250.0, 750.0, Some(3600.0)));
    fleet.apply(START, Input::Accounts(Vec::new()));
    let (cpu, memory) = shares(&fleet);
    assert_eq!((cpu.permitted, cpu.watermark, cpu.total), (1500.0, None, 4000.0));
    assert_eq!(memory.permitted, 4.5 * f64::from(1 << 30));
}

#[test]
fn a_load_that_cannot_be_read_is_not_zero() {
    let mut fleet = fleet();
    fleet.apply(
        START,
        Input::Loads(vec![(key("pg"), Err("no".into())), (key("absent"), Ok(Load::default()))]),
    );
    let pg = &fleet.vms[&key("pg")];
    assert_eq!((pg.cpu_share(), pg.trouble.as_deref()), (None, Some("no")));
    assert!(!fleet.vms.contains_key(&key("absent")));
}

#[test]
fn problems_pass() {
    let mut fleet = Fleet::default();
    fleet.apply(START, Input::Trouble(Origin::Nodes, Some("denied".into())));
    assert_eq!(fleet.troubles.len(), 1);
    fleet.apply(START, Input::Trouble(Origin::Nodes, None));
    assert!(fleet.troubles.is_empty());
    assert_eq!(units(0), neonvm_types::Resources::default());
}
