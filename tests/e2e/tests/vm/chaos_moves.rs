//! A machine moves again and again while everything around it is killed at random moments. After each round it is the same
//! machine, it runs on exactly one node, its move has ended with a reason, and nothing is left of it.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::chaos::Random;
use crate::cluster::{Cluster, kill, possible, until};
use crate::migration::{migration, node, recall, remember, settles, text};

/// Rounds of a run; `NEONVM_MOVE_ROUNDS` asks for more.
const ROUNDS: u64 = 8;
/// What may die without harm to a machine.
const SERVICES: [&str; 7] =
    ["apiserver", "vm-controller", "scheduler", "node-n1", "node-n2", "agent-n1", "agent-n2"];

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// A move that is slow enough to be disturbed.
fn begin(cluster: &Cluster, round: u64) -> String {
    let name = format!("round-{round}");
    let object = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration",
        "metadata": { "name": name }, "spec": { "vmName": "m", "maxBandwidth": "48Mi", "completionTimeout": 120 } });
    let path = cluster.write("move.json", object.to_string());
    until(
        || {
            let output = cluster.kubectl(&["create", "-f", &path]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success() || said.contains("already exists")
        },
        || cluster.logs(),
    );
    name
}

/// Waits for the end of a move; the API server may be away for a moment.
fn ends(cluster: &Cluster, name: &str) -> String {
    let last = std::cell::RefCell::new(String::new());
    until(
        || {
            let output = cluster.kubectl(&["get", "vmm", name, "-o", "json"]).output().unwrap();
            let Ok(found) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else { return false };
            *last.borrow_mut() = found["status"].to_string();
            ["Succeeded", "Failed"].contains(&text(&found, "/status/phase"))
        },
        || format!("{name}: {}\n{}", last.borrow(), cluster.logs()),
    );
    text(&migration(cluster, name), "/status/phase").to_owned()
}

#[test]
fn moves_survive_the_death_of_everything_around_them() {
    if !possible("moves under faults") {
        return;
    }
    let seed = setting("NEONVM_MOVE_SEED", 7);
    let rounds = setting("NEONVM_MOVE_ROUNDS", ROUNDS);
    println!("seed {seed}, {rounds} rounds; again: NEONVM_MOVE_SEED={seed} NEONVM_MOVE_ROUNDS={rounds}");
    let mut random = Random(seed);
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    cluster.run("m", &["--disk", "data=64Mi:/data"]);
    let before = remember(&cluster, "m");
    let mut moved = 0;
    for round in 0..rounds {
        let from = node(&cluster, "m");
        let name = begin(&cluster, round);
        let pick = usize::try_from(random.below(SERVICES.len() as u64)).unwrap();
        let service = SERVICES[pick];
        let wait = Duration::from_millis(random.below(3500));
        let begun = Instant::now();
        // The moment is the test: nothing is waited for here.
        while begun.elapsed() < wait {
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = cluster.service(service);
        if let Some(pid) = pid {
            kill(pid, Signal::KILL);
        }
        println!("round {round}: {service} killed after {} ms", wait.as_millis());
        let phase = ends(&cluster, &name);
        // A move may have been over before: then the service is only now on its way back, and it may be the way to the guest.
        until(|| cluster.service(service).is_some_and(|now| Some(now) != pid), || cluster.logs());
        cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", "m", "--", "true"]));
        settles(&cluster, "m");
        let now = node(&cluster, "m");
        assert_eq!(now != from, phase == "Succeeded", "round {round}: {phase}, from {from} to {now}");
        moved += u64::from(phase == "Succeeded");
        assert_eq!(recall(&cluster, "m"), before, "round {round}");
        cluster.succeeds(|| cluster.kubectl(&["delete", "vmm", &name, "--ignore-not-found"]));
    }
    assert!(moved * 2 > rounds, "only {moved} of {rounds} moves succeeded");
    cluster.down();
}
