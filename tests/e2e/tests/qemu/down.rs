//! VMs are stopped with their cluster, in their own time, and start with it again.

use neonvm_test_support::need;

use crate::cluster::{Cluster, possible, until};

/// The user of a process.
fn user(pid: i32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The text of `local down`, which must succeed.
fn down(cluster: &Cluster, more: &[&str]) -> String {
    let arguments: Vec<&str> = ["local", "down"].iter().chain(more).copied().collect();
    let output = cluster.neonctl(&arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn vms_are_powered_off_and_start_again() {
    need!(possible());
    let cluster = Cluster::start();
    // Writes where it can be read from outside: that it was asked to end, and had the time for it.
    let script = "trap 'echo last words; sync; exit 0' TERM; echo up; while :; do sleep 1; done";
    cluster.image("words:1", &["/bin/sh", "-c", script]);
    let create = |name: &str| {
        let arguments = [
            "vm",
            "create",
            name,
            "--image",
            "words:1",
            "--cpu",
            "1..2",
            "--memory",
            "256Mi",
            "--no-autoscale",
        ];
        let more = ["--grace", "160s", "--wait", "--timeout", "170s"];
        let all: Vec<&str> = arguments.iter().chain(&more).copied().collect();
        cluster.good(&all);
        cluster.vm(name)["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let uids = [create("a"), create("b")];
    // M4 of the security review: neither QEMU may look into the other's memory. Who is not root has one user.
    let users = uids.each_ref().map(|uid| user(Cluster::qemus(uid)[0]));
    let own = user(i32::try_from(std::process::id()).unwrap());
    assert!(own != 0 || users[0] != users[1] && !users.contains(&0), "{users:?}");
    let pod = cluster.pod("a");
    let text = down(&cluster, &["--timeout", "170s"]);
    assert!(text.contains("stopping 2 machines (up to 160 s)"), "{text}");
    assert!(!text.contains("was killed"), "{text}");
    assert!(cluster.processes("neond").is_empty());
    for uid in &uids {
        assert_eq!(Cluster::qemus(uid), Vec::<i32>::new());
    }
    // Again: nothing runs.
    let text = down(&cluster, &[]);
    assert!(!text.contains("stopping"), "{text}");
    cluster.up();
    for name in ["a", "b"] {
        let vm = cluster.becomes(name, "runs again", |vm| {
            vm["status"]["phase"] == "Running" && vm["status"]["restartCount"] == 1
        });
        let exit = &vm["status"]["lastExit"];
        assert_eq!(exit["reason"], "Stopped", "{}\n{}", vm["status"], cluster.logs());
    }
    assert_ne!(cluster.pod("a"), pod, "another boot, another pod");
    cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", "a", "--", "true"]));
    cluster.down();
}

/// A guest that ignores the power button is killed when the time is up, which is reported.
#[test]
fn a_vm_that_does_not_stop_is_killed_in_time() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.image("deaf:1", &["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"]);
    let arguments = [
        "vm",
        "create",
        "deaf",
        "--image",
        "deaf:1",
        "--no-autoscale",
        "--memory",
        "256Mi",
        "--grace",
        "600s",
    ];
    let all: Vec<&str> = arguments.iter().chain(&["--wait", "--timeout", "170s"]).copied().collect();
    cluster.good(&all);
    // It is deaf from then on; before, it would end as asked.
    let logs = || cluster.good(&["vm", "logs", "deaf", "--source", "guest"]);
    until(|| logs().contains("up"), logs);
    let uid = cluster.vm("deaf")["metadata"]["uid"].as_str().unwrap().to_owned();
    let text = down(&cluster, &["--timeout", "3s"]);
    assert!(text.contains("stopping 1 machine (up to 3 s)"), "{text}");
    assert!(text.contains("did not end within 3 s and was killed"), "{text}");
    assert_eq!(Cluster::qemus(&uid), Vec::<i32>::new());
    cluster.up();
    cluster.becomes("deaf", "runs again", |vm| {
        vm["status"]["phase"] == "Running" && vm["status"]["restartCount"] == 1
    });
    cluster.down();
}
