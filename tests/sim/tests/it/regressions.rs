//! Runs that broke something once.

use std::path::Path;

use neonvm_sim::{Options, run};

use crate::common::{report, scenario};

/// Each line: scenario, seed, faults, `#`, why.
#[test]
fn what_was_mended_stays_mended() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions.txt");
    let text = std::fs::read_to_string(file).unwrap();
    let mut runs = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (run_line, why) = line.split_once('#').expect("a reason after #");
        assert!(!why.trim().is_empty(), "{line}");
        let words: Vec<&str> = run_line.split_whitespace().collect();
        let [name, seed, faults] = words[..] else { panic!("not `scenario seed faults # why`: {line}") };
        let options = Options {
            seed: seed.parse().unwrap(),
            faults: Some(faults.parse().unwrap()),
            ..Options::default()
        };
        assert_eq!(report(name, &run(&scenario(name), &options)), None, "{why}");
        runs += 1;
    }
    assert!(runs > 0);
}
