//! A big day: its first minutes here, all of it in the soak, which requires fresh seeds. `NEONVM_SIM_HOURS` chooses
//! another length: `NEONVM_SIM_HOURS=24 cargo test -p neonvm-sim big_day -- --nocapture`.

use std::time::{Duration, Instant};

use neonvm_sim::{Options, Record, run};

use crate::common::{report, scenario};

#[test]
fn big_day() {
    let scenario = scenario("big-day");
    let whole = if std::env::var_os("NEONVM_SIM_FRESH").is_some() { 24.0 } else { 0.25 };
    let hours =
        std::env::var("NEONVM_SIM_HOURS").ok().map_or(whole, |text| text.parse().expect("a number of hours"));
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
