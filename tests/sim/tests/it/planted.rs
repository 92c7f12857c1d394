//! Planted bugs: a simulator that finds none of them is decoration.

use std::collections::BTreeSet;

use neonvm_sim::{Broken, Bug, Invariant, Options, Scenario, run};

/// Seeds within which each bug must be found.
const SEEDS: u64 = 200;

/// Full nodes, pods that end, migrations, users: where bugs have consequences.
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

/// VMs in constant migration, and users that cancel and change them: where bugs of migrations have consequences.
const MOVES: &str = "
name: planted-moves
description: Small and restless.
duration: 10m
nodes: [{count: 4, cpu: 4, memory: 16Gi}]
vms:
  - {name: a, count: 5, min: 1, max: 6, demand: {walk: {low: 0.5, high: 4, step: 2, every: 60s}}, movable: true, address: true}
  - {name: b, count: 3, min: 1, max: 2, demand: {constant: {level: 1}}, address: true}
people: {creates: 20, deletes: 30, drains: 20, moves: 120, cancels: 120}
settings: {migrationTakes: 8s}
";

/// What bugs of migrations break, among other things.
const OF_MOVES: &[Invariant] = &[
    Invariant::OneGuest,
    Invariant::OneMigration,
    Invariant::Address,
    Invariant::Intact,
    Invariant::PodSize,
    Invariant::MigrationEnds,
    Invariant::Settled,
];

/// What a bug breaks first in a scenario with a seed, if nothing breaks without the bug.
fn broken(scenario: &Scenario, bug: Bug, seed: u64) -> Option<Broken> {
    let outcome = run(scenario, &Options { seed, bug: Some(bug), ..Options::default() });
    let broken = outcome.broken?;
    // What breaks without the bug proves nothing about it.
    let without = run(scenario, &Options { seed, ..Options::default() });
    without.broken.is_none().then_some(broken)
}

#[test]
fn each_planted_bug_is_found() {
    let [world, moves] = [WORLD, MOVES].map(|text| Scenario::parse(text).unwrap());
    let mut missed = Vec::new();
    let mut broken_by = BTreeSet::new();
    for bug in Bug::ALL {
        let found = (0..SEEDS)
            .flat_map(|seed| [(&world, seed), (&moves, seed)])
            .find_map(|(scenario, seed)| Some((seed, broken(scenario, *bug, seed)?)));
        match found {
            Some((seed, broken)) => {
                broken_by.insert(broken.invariant);
                println!("{bug:?}: seed {seed}, {}: {}", broken.invariant.id(), broken.message);
            }
            None => missed.push(*bug),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
    // A bug can break several; which of them breaks first depends on the seed.
    let mut more = (0..SEEDS).flat_map(|seed| Bug::ALL.iter().map(move |bug| (*bug, seed)));
    while let Some(missing) = OF_MOVES.iter().find(|one| !broken_by.contains(one)) {
        let (bug, seed) = more.next().unwrap_or_else(|| panic!("no planted bug breaks {missing}"));
        broken_by.extend(broken(&moves, bug, seed).map(|broken| broken.invariant));
    }
}
