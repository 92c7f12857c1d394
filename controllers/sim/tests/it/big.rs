//! A big day: `cargo test -p neonvm-sim big_day -- --ignored --nocapture`. `NEONVM_SIM_HOURS` makes it shorter.

use std::time::{Duration, Instant};

use neonvm_sim::{Options, Record, run};

use crate::common::{report, scenario};

#[test]
#[ignore = "takes minutes"]
fn big_day() {
    let scenario = scenario("big-day");
    let hours = std::env::var("NEONVM_SIM_HOURS").ok().and_then(|text| text.parse().ok()).unwrap_or(24.0);
    let until = Some(Duration::from_secs_f64(hours * 3600.0));
    let start = Instant::now();
    let outcome =
        run(&scenario, &Options { seed: 1, until, record: Record::NodesAndVms(10), ..Options::default() });
    let took = start.elapsed().as_secs_f64();
    let rate = outcome.events as f64 / took;
    println!(
        "{:?} in {took:.1} s: {} events, {rate:.0} a second\n{:?}",
        outcome.simulated, outcome.events, outcome.stats
    );
    println!("{:?}", outcome.checked);
    assert_eq!(report("big-day", &outcome), None);
}
