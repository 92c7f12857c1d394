//! Idle VMs of any shape on a busy host: none of them grows.

use std::process::Command;
use std::time::{Duration, Instant};

use neonvm_test_support::{Running, need};
use serde_json::Value;

use crate::cluster::{Cluster, possible, until, until_within};
use crate::observe::text;

/// Bounds of CPU and of memory, on and off the grid of compute units.
const SHAPES: [(&str, &str); 10] = [
    ("1..4", "1Gi..4Gi"),
    ("1..1", "512Mi..4Gi"),
    ("0.5..2", "512Mi..2Gi"),
    ("0.5..1", "1Gi..2Gi"),
    ("0.5", "512Mi..2Gi"),
    ("1", "1Gi..8Gi"),
    ("0.75..1.5", "1Gi..4Gi"),
    ("0.25..2", "1Gi..8Gi"),
    ("0.1..0.4", "128Mi..512Mi"),
    ("0.25..4", "1Gi..1Gi"),
];

/// How long the VMs are idle after their first minute, unless `NEONVM_IDLE_SECONDS` is another number.
const IDLE: u64 = 600;
/// Time for the load of the boot to pass.
const FIRST: Duration = Duration::from_secs(60);

/// A process that uses a CPU until it is dropped.
fn busy() -> Running {
    Running(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
}

/// Lets time pass.
fn passes(time: Duration) {
    let begun = Instant::now();
    until_within(time * 2, || begun.elapsed() >= time, || "time stands still".into());
}

/// How often a VM grew, shrank, and was given a size by its agent, as its history has it.
fn resized(cluster: &Cluster, name: &str) -> Result<(usize, usize, usize), String> {
    let output = cluster.neonctl(&["vm", "history", name, "-o", "json"]).output().unwrap();
    let history: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let entries = history["entries"].as_array().cloned().unwrap_or_default();
    if !entries.iter().any(|entry| entry["kind"] == "Agent") {
        return Err(format!("no agent has begun to scale {name}: {history}"));
    }
    let texts: Vec<&str> = entries.iter().map(|entry| text(entry, "/text")).collect();
    let events = |reason: &str| -> usize { texts.iter().map(|text| times(text, reason)).sum() };
    let set = texts.iter().filter(|text| text.contains("set VM ")).count();
    Ok((events("ScaledUp"), events("ScaledDown"), set))
}

/// How often an event of this reason happened: the server counts equal ones.
fn times(entry: &str, reason: &str) -> usize {
    if !entry.starts_with(&format!("{reason}: ")) {
        return 0;
    }
    let count = entry.rsplit_once('(').and_then(|(_, rest)| rest.strip_suffix(" times)"));
    count.map_or(1, |count| count.parse().unwrap())
}

#[test]
fn ten_idle_shapes_stand_still() {
    need!(possible());
    let idle = std::env::var("NEONVM_IDLE_SECONDS").map_or(IDLE, |text| text.parse().unwrap());
    let cluster = Cluster::with(&["--nodes", "1", "--cpus", "16", "--memory", "32Gi"]);
    cluster.idle();
    let names: Vec<String> = (0..SHAPES.len()).map(|index| format!("s{index}")).collect();
    for (name, (cpu, memory)) in names.iter().zip(SHAPES) {
        let shape = ["vm", "create", name, "--image", "idle:1", "--cpu", cpu, "--memory", memory];
        cluster.good(&[&shape[..], &["--wait", "--timeout", "170s"]].concat());
    }
    let _busy = busy();
    let counts = || -> Result<Vec<_>, String> { names.iter().map(|name| resized(&cluster, name)).collect() };
    until(|| counts().is_ok(), || format!("{:?}\n{}", counts(), cluster.logs()));
    passes(FIRST);
    let before = counts().unwrap();
    passes(Duration::from_secs(idle));
    let after = counts().unwrap();
    for (index, (shape, (old, new))) in SHAPES.iter().zip(before.iter().zip(&after)).enumerate() {
        let (vm, more) = (cluster.vm(&names[index]), [new.0 - old.0, new.1 - old.1, new.2 - old.2]);
        println!(
            "{shape:?}: {old:?} in the first minute, then {more:?}; now {} CPU, {}",
            vm["status"]["cpus"], vm["status"]["memorySize"]
        );
        assert_eq!(vm["status"]["restartCount"], 0);
    }
    for (index, (old, new)) in before.iter().zip(&after).enumerate() {
        let history = || cluster.good(&["vm", "history", &names[index]]);
        assert_eq!(old.0, new.0, "{:?} grew while it was idle: {}", SHAPES[index], history());
    }
    cluster.down();
}
