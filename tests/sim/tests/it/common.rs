//! Scenarios and seeds.

use std::path::Path;

use neonvm_sim::{Outcome, Scenario};

/// Scenarios that are small enough for many seeds.
pub(crate) const SMALL: &[&str] =
    &["rush-hour", "noisy-neighbours", "scheduler-restarts", "stubborn-guests", "quiet-fleet", "moving-day"];

pub(crate) fn scenario(name: &str) -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/scenarios/{name}.yaml"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(scenario.name, name, "{}", file.display());
    scenario
}

/// All that is needed to see it again.
pub(crate) fn report(scenario: &str, outcome: &Outcome) -> Option<String> {
    let broken = outcome.broken.as_ref()?;
    Some(format!(
        "{scenario}, seed {}: {} {:?} broken at {:?}\n  {}\n  {}\n  replay: cargo run -p neonvm-sim -- {scenario} --seed {} --faults {} --minimise",
        outcome.seed,
        broken.invariant.id(),
        broken.invariant.name(),
        broken.at,
        broken.message,
        broken.notes.join("\n  "),
        outcome.seed,
        outcome.faults
    ))
}
