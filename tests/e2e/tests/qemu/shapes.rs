//! Sizes off the grid of compute units and memory blocks: each is reached exactly, and left again.

use neonvm_test_support::need;
use serde_json::Value;

use crate::cluster::{Cluster, possible, until};

/// CPU and memory that a VM shows.
fn observed(vm: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    (text(&vm["status"]["cpus"]), text(&vm["status"]["memorySize"]))
}

/// A VM that is scaled by its load, running.
fn create(cluster: &Cluster, name: &str, more: &[&str]) {
    let new = ["vm", "create", name, "--wait", "--timeout", "170s"];
    cluster.good(&[&new[..], more].concat());
}

/// What the agent reports of a VM.
fn inspected(cluster: &Cluster, name: &str) -> String {
    cluster.good(&["agent", "inspect", "--vm", name])
}

/// Holds a VM at a size, which must be reached exactly, in the guest as well.
fn hold(cluster: &Cluster, name: &str, cpu: &str, memory: &str, shown: (&str, &str)) {
    let size = ["vm", "scale", name, "--cpu", cpu, "--memory", memory, "--hold", "1h"];
    cluster.good(&[&size[..], &["--wait", "--timeout", "170s"]].concat());
    let (has_cpu, has_memory) = observed(&cluster.vm(name));
    assert_eq!((has_cpu.as_str(), has_memory.as_str()), shown, "{name}");
}

#[test]
fn odd_sizes_are_reached_and_left() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    let image = ["--image", "idle:1"];
    // The kernel of a smaller `c` would keep a part for itself, which it may not give back: of what is added it takes a fifth that is
    // not movable, once that is more than four times what it has for itself at its boot.
    let shapes = [
        ("a", ["--cpu", "0.3..1.7", "--memory", "1000Mi..3000Mi", "--memory-step", "8Mi"]),
        ("b", ["--cpu", "0.5", "--memory", "2Gi..4032Mi", "--memory-step", "64Mi"]),
        ("c", ["--cpu", "0.2..0.9", "--memory", "392Mi..1192Mi", "--memory-step", "8Mi"]),
    ];
    for (name, shape) in shapes {
        create(&cluster, name, &[&image[..], &shape[..]].concat());
    }
    let steps = [
        ("a", "1.7", "3000Mi", ("1700m", "3000Mi")),
        ("b", "0.5", "4032Mi", ("500m", "4032Mi")),
        ("c", "0.9", "1192Mi", ("900m", "1192Mi")),
        ("a", "0.31", "1008Mi", ("310m", "1008Mi")),
        ("b", "0.5", "2112Mi", ("500m", "2112Mi")),
        ("c", "0.333", "904Mi", ("333m", "904Mi")),
        ("a", "1.234", "2920Mi", ("1234m", "2920Mi")),
        ("b", "0.5", "3Gi", ("500m", "3Gi")),
        ("c", "0.201", "600Mi", ("201m", "600Mi")),
        ("a", "1.699", "2992Mi", ("1699m", "2992Mi")),
        ("b", "0.5", "4032Mi", ("500m", "4032Mi")),
        ("c", "0.2", "1000Mi", ("200m", "1000Mi")),
    ];
    for (name, cpu, memory, shown) in steps {
        hold(&cluster, name, cpu, memory, shown);
    }
    for (name, least) in [("a", ("300m", "1000Mi")), ("b", ("500m", "2Gi")), ("c", ("200m", "392Mi"))] {
        cluster.good(&["vm", "scale", name, "--hold", "off"]);
        cluster.becomes(name, "shrinks to its lower bounds", |vm| {
            let (cpu, memory) = observed(vm);
            (cpu.as_str(), memory.as_str()) == least
        });
    }
    grown_by_load_it_shrinks_again(&cluster);
    for (name, _) in shapes {
        assert_eq!(cluster.vm(name)["status"]["restartCount"], 0);
    }
    cluster.down();
}

/// Memory that files take and give back.
fn grown_by_load_it_shrinks_again(cluster: &Cluster) {
    let take = "mount -t tmpfs -o size=2g none /mnt; n=0; for i in $(seq 14); do \
                while [ $(awk '/MemAvailable/ { print $2 }' /proc/meminfo) -lt 98304 ]; do \
                n=$((n + 1)); [ $n -lt 1000 ] || exit 1; sleep 0.1; done; \
                dd if=/dev/zero of=/mnt/$i bs=64M count=1 2>/dev/null || exit 1; done";
    cluster.inside("c", take);
    cluster.becomes("c", "grows to the most of its memory", |vm| observed(vm).1 == "1192Mi");
    cluster.inside("c", "rm /mnt/*");
    cluster.becomes("c", "shrinks to its lower bounds", |vm| observed(vm) == ("200m".into(), "392Mi".into()));
    for name in ["a", "b", "c"] {
        let found = inspected(cluster, name);
        assert!(!found.contains("stuck"), "{found}");
    }
}

/// What a node has is given, and no resource takes the other one with it where it cannot grow itself.
#[test]
fn a_part_of_a_size_is_given() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "1", "--cpus", "3"]);
    cluster.idle();
    create(&cluster, "part", &["--image", "idle:1", "--cpu", "0.25..6", "--memory", "1Gi..1Gi"]);
    cluster.good(&["vm", "scale", "part", "--cpu", "6", "--hold", "1h"]);
    // Of 3 CPUs the runner takes some; the rest holds 11 whole compute units.
    cluster.becomes("part", "gets what the node has", |vm| observed(vm) == ("2750m".into(), "1Gi".into()));
    let found = inspected(&cluster, "part");
    assert!(found.contains("scheduler"), "{found}");
    cluster.good(&["vm", "scale", "part", "--hold", "off"]);
    cluster
        .becomes("part", "shrinks to its lower bounds", |vm| observed(vm) == ("250m".into(), "1Gi".into()));
    // Its CPU is at its bound: load on it is no reason for memory.
    cluster.image("busy:1", &["/bin/sh", "-c", "while :; do :; done"]);
    create(&cluster, "fixed", &["--image", "busy:1", "--cpu", "0.5", "--memory", "1Gi..4Gi"]);
    let load = || -> Value {
        let output = cluster.good(&["vm", "history", "fixed", "-o", "json"]);
        let history: Value = serde_json::from_str(&output).unwrap();
        history["samples"].as_array().and_then(|all| all.last().cloned()).unwrap_or_default()
    };
    until(|| load()["load1"].as_f64().is_some_and(|load| load > 0.5), || load().to_string());
    let output = cluster.good(&["vm", "history", "fixed", "-o", "json"]);
    assert!(!output.contains("ScaledUp") && !output.contains("set VM "), "{output}");
    assert_eq!(observed(&cluster.vm("fixed")), ("500m".into(), "1Gi".into()));
    cluster.down();
}
