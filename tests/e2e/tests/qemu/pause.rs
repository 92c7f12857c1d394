//! A VM that is paused and resumed: its guest stands still, and nothing is lost or started again.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use neonvm_test_support::need;

use crate::cluster::{Cluster, possible, until};

/// Time in which a guest that runs would have counted several times.
const WHILE: Duration = Duration::from_secs(3);

/// Numbers that a guest prints over a connection that stays open.
struct Counter {
    session: std::process::Child,
    last: Arc<AtomicU64>,
}

impl Counter {
    fn start(cluster: &Cluster, vm: &str) -> Self {
        let count = "n=0; while :; do n=$((n+1)); echo $n; sleep 1; done";
        let mut command = cluster.neonctl(&["vm", "ssh", vm, "--", count]);
        let mut session = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(session.stdout.take().unwrap()).lines();
        let last = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&last);
        std::thread::spawn(move || {
            for (expected, line) in (1..).zip(lines.map_while(Result::ok)) {
                assert_eq!(line.trim(), expected.to_string(), "a number is lost");
                seen.store(expected, Ordering::SeqCst);
            }
        });
        Self { session, last }
    }

    fn read(&self) -> u64 {
        self.last.load(Ordering::SeqCst)
    }

    fn counts_on(&self) {
        let before = self.read();
        until(|| self.read() > before + 1, || format!("the counter stays at {before}"));
    }

    /// Waits until what was under way has arrived.
    fn stands_still(&self) {
        let still = || {
            let before = self.read();
            std::thread::sleep(WHILE);
            self.read() == before
        };
        until(still, || format!("the counter goes on: {}", self.read()));
        let before = self.read();
        std::thread::sleep(WHILE);
        assert_eq!(self.read(), before, "the guest counts although it is paused");
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = self.session.kill();
        let _ = self.session.wait();
    }
}

#[test]
fn a_paused_guest_stands_still_and_continues_where_it_was() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    cluster.good(&[
        "vm",
        "create",
        "web",
        "--image",
        "idle:1",
        "--cpu",
        "0.5..1",
        "--memory",
        "256Mi..512Mi",
        "--wait",
    ]);
    // Its boot may have made it larger.
    let hold = ["vm", "scale", "web", "--memory", "256Mi", "--hold", "10m"];
    cluster.good(&[&hold[..], &["--cpu", "0.5", "--wait", "--timeout", "170s"]].concat());
    let pod = cluster.pod("web");
    let uid = cluster.vm("web")["metadata"]["uid"].as_str().unwrap().to_owned();
    let qemu = Cluster::qemus(&uid);
    let counter = Counter::start(&cluster, "web");
    counter.counts_on();

    cluster.good(&["vm", "pause", "web"]);
    assert!(cluster.good(&["vm", "list"]).contains("Paused"));
    assert!(cluster.good(&["vm", "describe", "web"]).contains("Paused True (Paused)"));
    counter.stands_still();
    let agent = || cluster.good(&["agent", "inspect", "--vm", "web"]);
    until(|| agent().contains("paused"), agent);
    // A size that a person fixes waits.
    cluster.good(&[&hold[..], &["--cpu", "1"]].concat());
    std::thread::sleep(WHILE);
    let vm = cluster.vm("web");
    assert_eq!(vm["status"]["cpus"], "500m", "{}", vm["status"]);
    let scaled =
        |condition: &&serde_json::Value| condition["type"] == "Degraded" && condition["status"] == "True";
    let degraded = vm["status"]["conditions"].as_array().unwrap().iter().find(scaled).cloned();
    assert_eq!(degraded, None, "silence is no problem");

    cluster.good(&["vm", "resume", "web"]);
    counter.counts_on();
    cluster.becomes("web", "has the size that waited", |vm| vm["status"]["cpus"] == 1);
    let vm = cluster.vm("web");
    assert_eq!((cluster.pod("web"), &vm["status"]["restartCount"]), (pod, &0.into()));
    assert_eq!(Cluster::qemus(&uid), qemu, "the same QEMU");
    let events = || cluster.good(&["vm", "history", "web"]);
    until(|| events().contains("Paused") && events().contains("Resumed"), events);
    drop(counter);

    // A paused guest is continued for its shutdown.
    cluster.good(&["vm", "pause", "web"]);
    cluster.good(&["vm", "stop", "web"]);
    assert_eq!(cluster.vm("web")["status"]["lastExit"]["reason"], "Stopped");
    let (code, text) = cluster.bad(&["vm", "pause", "web"]);
    assert!(code == 5 && text.contains("it is stopped") && text.contains("neonctl vm start web"), "{text}");
    cluster.good(&["vm", "delete", "web"]);
    cluster.down();
}
