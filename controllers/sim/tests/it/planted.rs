//! Planted bugs: a simulator that finds none of them is decoration.

use neonvm_sim::{Bug, Options, Scenario, run};

/// Seeds within which each bug must be found.
const SEEDS: u64 = 200;

/// Full nodes, pods that end, moves, people: where bugs have consequences.
const WORLD: &str = "
name: planted
description: Small and crowded.
duration: 10m
nodes: [{count: 3, cpu: 4, memory: 16Gi, pods: [{count: 3, cpu: 250m, memory: 512Mi, lasts: 2m}]}]
vms:
  - {name: a, count: 5, min: 1, max: 10, demand: {bursts: {low: 1, high: 9, every: 3m, length: 90s}}, movable: true}
  - {name: b, count: 5, min: 1, max: 6, demand: {walk: {low: 0.5, high: 5.5, step: 2, every: 30s}}, movable: true}
people: {creates: 12, deletes: 12, bounds: 30, holds: 30}
settings: {standby: true}
";

#[test]
fn each_planted_bug_is_found() {
    let scenario = Scenario::parse(WORLD).unwrap();
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        let found = (0..SEEDS).find_map(|seed| {
            let outcome = run(&scenario, &Options { seed, bug: Some(*bug), ..Options::default() });
            let broken = outcome.broken?;
            // What breaks without the bug proves nothing about it.
            let without = run(&scenario, &Options { seed, ..Options::default() });
            without.broken.is_none().then_some((seed, broken))
        });
        match found {
            Some((seed, broken)) => {
                println!("{bug:?}: seed {seed}, {}: {}", broken.invariant.id(), broken.message);
            }
            None => missed.push(*bug),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
