//! Shows one run: `NEONVM_SIM_REPLAY="scenario seed faults" cargo test -p neonvm-sim replay -- --ignored --nocapture`.

use neonvm_sim::{Options, minimise, run};

use crate::common::{report, scenario};

#[test]
#[ignore = "looks at the run that NEONVM_SIM_REPLAY names"]
fn replay() {
    let line = std::env::var("NEONVM_SIM_REPLAY").expect("NEONVM_SIM_REPLAY names a run");
    let mut words = line.split_whitespace();
    let name = words.next().expect("a scenario");
    let seed = words.next().expect("a seed").parse().expect("a number");
    let faults = words.next().map(|text| text.parse().expect("faults"));
    let scenario = scenario(name);
    let options = Options { seed, faults, ..Options::default() };
    let outcome = run(&scenario, &options);
    println!(
        "{}",
        report(name, &outcome)
            .unwrap_or_else(|| format!("all holds with {}: {:?}", outcome.faults, outcome.stats))
    );
    if let Some((smaller, _, outcome)) = minimise(&scenario, &options) {
        println!("\n{smaller:#?}\n{}", report(name, &outcome).unwrap());
    }
}
