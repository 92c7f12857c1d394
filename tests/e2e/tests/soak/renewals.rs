//! Certificates that live for a minute and an authority that lives for ten, on a real clock: every service, runner and webhook renews its
//! own several times and takes up the next authority, and nothing that a user does fails meanwhile.

use std::process::Stdio;
use std::time::{Duration, Instant};

use neonvm_e2e::client::Resource;
use neonvm_test_support::{Running, need};

use crate::cluster::{Cluster, possible, until};
use crate::observe::{node, settles, text};

/// Lives of a certificate and of the authority, in seconds: the shortest that are allowed.
const LIVES: [(&str, &str); 2] =
    [("NEONVM_CERTIFICATE_LIFETIME", "60"), ("NEONVM_AUTHORITY_LIFETIME", "600")];
/// The next authority signs after 390 s. Each certificate of the one before has ended a minute later.
const LONGEST: Duration = Duration::from_secs(900);
/// Rounds between two evictions.
const EVICTION: usize = 6;
/// Lines of logs that no renewal may cause.
const BAD: [&str; 4] =
    ["could not be renewed", "has expired", "is of another authority", "CertificateExpired"];

/// A session in the guest that is open all the time.
fn session(cluster: &Cluster) -> Running {
    let mut command = cluster.neonctl(&["vm", "ssh", "m", "--", "while sleep 1; do echo; done"]);
    Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// Whether the next authority signs, and the one before is trusted.
fn is_handed_over(cluster: &Cluster) -> bool {
    let client = cluster.client().in_namespace("neonvm-system");
    client.get(Resource::SECRET, "neonvm-internal-ca").unwrap()["data"]["previous.crt"].is_string()
}

/// Everything that one service requests of another: a size by controller and runner, a dump by agent and scheduler.
fn round(cluster: &Cluster, number: usize) {
    let memory = if number.is_multiple_of(2) { "512Mi" } else { "256Mi" };
    cluster.good(&["vm", "scale", "m", "--memory", memory, "--wait", "--timeout", "60s"]);
    cluster.good(&["agent", "inspect"]);
    cluster.good(&["scheduler", "inspect"]);
    cluster.good(&["status"]);
}

/// An eviction, which a webhook makes a migration: runners of two nodes call each other.
fn evicted(cluster: &Cluster) {
    let before = node(cluster, "m");
    // The API server refuses it, because a migration is on its way instead.
    let _ = cluster.client().evict(&cluster.pod("m"));
    until(|| node(cluster, "m") != before, || cluster.logs());
    settles(cluster, "m");
}

#[test]
fn certificates_renew_and_an_authority_is_handed_over_while_everything_works() {
    need!(possible());
    let cluster = Cluster::with_variables(&LIVES, &["--nodes", "2"]);
    cluster.idle();
    cluster.run("m", &[]);
    let started = Instant::now();
    let mut opened = session(&cluster);
    let (mut number, mut handed_over) = (0, None);
    while handed_over.is_none_or(|at: Instant| at.elapsed() < Duration::from_secs(100)) {
        assert!(started.elapsed() < LONGEST, "the authority is not handed over\n{}", cluster.logs());
        round(&cluster, number);
        assert!(opened.goes_on(), "the session ended after {:?}", started.elapsed());
        if number % EVICTION == EVICTION - 1 {
            evicted(&cluster);
            opened = session(&cluster);
        }
        if handed_over.is_none() && is_handed_over(&cluster) {
            handed_over = Some(Instant::now());
        }
        number += 1;
    }
    println!("{number} rounds in {:?}", started.elapsed());
    let read = |name: &str| {
        std::fs::read_to_string(cluster.directory().join("log").join(format!("{name}.log"))).unwrap()
    };
    let signed = read("vm-controller");
    for subject in ["neonvm-agent:n1", "neonvm-agent:n2", "scheduler.neonvm"] {
        let of = |line: &&str| line.contains("a certificate was signed") && line.contains(subject);
        assert!(signed.lines().filter(of).count() > 3, "{subject} was not renewed three times\n{signed}");
    }
    for name in ["vm-controller", "scheduler", "agent-n1", "agent-n2", "node-n1", "node-n2", "apiserver"] {
        let bad: Vec<String> = read(name)
            .lines()
            .filter(|line| BAD.iter().any(|bad| line.contains(bad)))
            .map(str::to_owned)
            .collect();
        assert!(bad.is_empty(), "{name}: {bad:#?}");
    }
    assert_eq!(text(&cluster.vm("m"), "/status/phase"), "Running");
    drop(opened);
    cluster.down();
}
