//! Storms.

use crate::common::{SMALL, go, report, scenario};

#[test]
fn one_of_each() {
    for name in SMALL {
        let scenario = scenario(name);
        for seed in 0..20 {
            let start = std::time::Instant::now();
            let outcome = go(&scenario, seed);
            println!("{name} {seed} {:?} {} events {:?} {:?}", outcome.faults.to_string(), outcome.events, outcome.stats, start.elapsed());
            if let Some(text) = report(name, &outcome) {
                println!("{text}");
                break;
            }
        }
    }
}
