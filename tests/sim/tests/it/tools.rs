//! Guarantees of the simulator: a repeated run is the same, a smaller run breaks the same invariant, lines are bounded.

use neonvm_sim::{Bug, FaultSet, Options, Record, Series, minimise, run};

use crate::common::{SMALL, scenario};

#[test]
fn the_same_seed_is_the_same_run() {
    for name in SMALL {
        let scenario = scenario(name);
        let options = Options { seed: 7, record: Record::NodesAndVms(3), ..Options::default() };
        let first = run(&scenario, &options);
        assert_eq!(first, run(&scenario, &options), "{name}");
        // A replay names the faults instead of drawing them.
        let named = Options { faults: Some(first.faults), ..options.clone() };
        assert_eq!(first, run(&scenario, &named), "{name}");
        let other = run(&scenario, &Options { seed: 8, ..options });
        assert_ne!(first.events, other.events, "{name}");
    }
}

#[test]
fn what_breaks_is_made_smaller() {
    let scenario = scenario("rush-hour");
    let options = Options { seed: 3, bug: Some(Bug::GrantEverything), ..Options::default() };
    let before = run(&scenario, &options).broken.unwrap();
    let (smaller, options, outcome) = minimise(&scenario, &options).unwrap();
    let after = outcome.broken.clone().unwrap();
    assert_eq!(after.invariant, before.invariant);
    assert!(smaller.vm_count() < scenario.vm_count() && smaller.duration < scenario.duration, "{smaller:?}");
    assert_eq!(outcome.faults, FaultSet::NONE, "this bug needs none");
    assert_eq!(run(&smaller, &options), outcome);
    assert!(after.notes.len() <= 50);
    let good = Options { faults: Some(FaultSet::NONE), ..Options::default() };
    assert!(minimise(&crate::common::scenario("quiet-fleet"), &good).is_none());
}

#[test]
fn lines_are_bounded_and_of_one_length() {
    let scenario = scenario("rush-hour");
    let outcome = run(&scenario, &Options { seed: 1, record: Record::NodesAndVms(5), ..Options::default() });
    let series = outcome.series.unwrap();
    let points = series.times.len();
    assert!(points > 100 && points <= Series::MOST_POINTS, "{points}");
    assert_eq!((series.nodes.len(), series.vms.len()), (4, 5));
    for node in &series.nodes {
        assert_eq!((node.reserved.len(), node.used.len()), (points, points), "{}", node.name);
        assert!(node.reserved.iter().all(|reserved| !reserved.any_greater(node.capacity)), "{}", node.name);
    }
    for vm in &series.vms {
        assert_eq!(
            (vm.demand.len(), vm.goal.len(), vm.size.len(), vm.permit.len()),
            (points, points, points, points)
        );
        assert!(vm.size.iter().any(|size| *size > 1.0), "{} never grew", vm.name);
    }
    let none = run(&scenario, &Options { seed: 1, ..Options::default() });
    assert!(none.series.is_none());
}

#[test]
fn every_scenario_file_is_sound() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios");
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(!scenario(&name).description.is_empty(), "{name}");
    }
}
