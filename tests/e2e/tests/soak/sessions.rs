//! Ordinary sessions on a local cluster with real guests: the same sessions and the same model as those of the gate, which has fake
//! guests (`cli/tests/services`).
//!
//! `NEONVM_SESSION_SEED=N` runs that session alone, `NEONVM_SESSION_LENGTH` another number of commands, `NEONVM_SESSIONS` another
//! number of sessions.

use std::time::Duration;

use neonvm_e2e::sessions::{Limits, Player, Range, Session, fresh_seed};
use neonvm_test_support::need;

use crate::cluster::{Cluster, possible};

/// Sessions of a run.
const SESSIONS: u64 = 5;
/// Commands of a session.
const LENGTH: usize = 12;
/// Time for anything that a command orders; emulated guests are slow.
const PATIENCE: Duration = Duration::from_secs(300);

/// What emulated VMs of two nodes with 4 CPUs may be.
fn limits() -> Limits {
    Limits {
        cpu: Range { min: 200, max: 1500 },
        memory: Range { min: 256, max: 1536 },
        images: vec!["idle:1".into(), "idle:2".into()],
        vms: 2,
        removes_images: true,
    }
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn fresh_sessions_follow_the_model() {
    need!(possible());
    let length = variable("NEONVM_SESSION_LENGTH").unwrap_or(LENGTH);
    let first = variable("NEONVM_SESSION_SEED");
    let count = if first.is_some() { 1 } else { variable("NEONVM_SESSIONS").unwrap_or(SESSIONS) };
    let first = first.unwrap_or_else(fresh_seed);
    let cluster = Cluster::with(&["--nodes", "2", "--memory", "8Gi"]);
    cluster.idle();
    cluster.image("idle:2", &["/bin/sh", "-c", "echo up; exec sleep 1000000"]);
    let neonctl = |words: &[String]| cluster.neonctl(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let player = Player {
        neonctl: Box::new(neonctl),
        client: cluster.client(),
        patience: PATIENCE,
        idle: false,
        ends_in_boot: false,
    };
    for seed in first..first + count {
        println!("again: NEONVM_SESSION_SEED={seed} NEONVM_SESSION_LENGTH={length}");
        if let Err(failure) = player.play(&Session::new(seed, &limits(), length)) {
            panic!("{failure}\n{}", cluster.logs());
        }
    }
    drop(player);
    cluster.down();
}
