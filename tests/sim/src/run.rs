//! One run.

use crate::world::{build, duration};
use crate::{Options, Outcome, Scenario};

/// Runs a scenario: faults, calm, audit. The same arguments always give the same outcome.
///
/// A scenario that was not made by [`Scenario::parse`] should have passed [`Scenario::check`].
pub fn run(scenario: &Scenario, options: &Options) -> Outcome {
    let mut world = build(scenario, options);
    world.run();
    let series = world.series();
    Outcome {
        seed: options.seed,
        faults: world.faults,
        simulated: duration(world.now),
        events: world.events,
        checked: world.checked,
        broken: world.broken,
        stats: world.stats,
        series,
    }
}
