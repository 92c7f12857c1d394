//! A pair of schedulers, of which the one that leads ends or loses its lease again and again while full nodes are fought over.

use neonvm_sim::{Invariant, Options, run};

use crate::common::{report, scenario};

/// Faults of schedulers and of their messages.
const FAULTS: &str = "scheduler-crash,handover,loss,delay,duplicate,note-loss,watch-lag,pod-lag";
const SEEDS: u64 = 20;

/// With any leader, permits on a node never exceed it: S1 is checked after every event, against what the node really offers.
#[test]
fn nothing_is_permitted_twice() {
    let scenario = scenario("scheduler-restarts");
    assert!(scenario.settings.standby);
    let (mut denials, mut checks) = (0, 0);
    for seed in 0..SEEDS {
        let options = Options { seed, faults: Some(FAULTS.parse().unwrap()), ..Options::default() };
        let outcome = run(&scenario, &options);
        assert_eq!(report("scheduler-restarts", &outcome), None);
        // The run proves nothing without takeovers, or without denials.
        assert!(outcome.stats.scheduler_starts >= 3, "seed {seed}: {}", outcome.stats.scheduler_starts);
        denials += outcome.stats.denials;
        checks += outcome.checked.get(&Invariant::Capacity).copied().unwrap_or(0);
    }
    assert!(
        denials > 0 && checks > 100 * SEEDS,
        "{denials} permits were denied, S1 was checked {checks} times"
    );
}
