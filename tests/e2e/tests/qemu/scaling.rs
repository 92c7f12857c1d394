//! VMs that follow their load: a real database, a real agent, scheduler and monitor, and nothing is lost on the way.

use std::process::{Command, Stdio};

use neonvm_e2e::client::Resource;
use neonvm_test_support::{Running, need};
use serde_json::{Value, json};

use crate::cluster::{Cluster, possible, possible_with_database, until};
use crate::database;

/// CPU in thousandths and memory in slots that a VM requests.
fn asked(vm: &Value) -> (String, u64) {
    let cpu = &vm["spec"]["guest"]["cpus"]["use"];
    let cpu = cpu.as_str().map_or_else(|| cpu.to_string(), str::to_owned);
    (cpu, vm["spec"]["guest"]["memorySlots"]["use"].as_u64().unwrap_or(0))
}

/// What it shows.
fn observed(vm: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    (text(&vm["status"]["cpus"]), text(&vm["status"]["memorySize"]))
}

/// A VM as upstream's scenario has it: more room in the spec than in the bounds.
fn manifest(scaling: bool, mode: &str, most: (&str, u64)) -> String {
    let bounds = r#"{"min":{"cpu":"250m","mem":"1Gi"},"max":{"cpu":1,"mem":"4Gi"}}"#;
    let object = json!({
        "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": { "name": "pg",
            "labels": { "autoscaling.neon.tech/enabled": scaling.to_string() },
            "annotations": { "autoscaling.neon.tech/bounds": bounds } },
        "spec": { "cpuScalingMode": mode, "guest": {
            "cpus": { "min": "250m", "max": most.0, "use": "500m" }, "memorySlotSize": "1Gi",
            "memorySlots": { "min": 1, "max": most.1, "use": 1 },
            "rootDisk": { "image": "pg:1" }, "ports": [{ "port": 5432 }] },
            "disks": [{ "name": "cache", "mountPath": "/cache", "tmpfs": { "size": "64Mi" } },
                { "name": "data", "mountPath": "/data", "emptyDisk": { "size": "64Mi" } }] } });
    object.to_string()
}

fn address(cluster: &Cluster) -> String {
    let address = cluster.vm("pg")["status"]["podIP"].as_str().unwrap().to_owned();
    database::answers(cluster, &address);
    address
}

/// Sessions that live as long as it is not dropped.
fn load_of(address: &str) -> Running {
    database::fill(address, "1");
    let child = Command::new("pgbench")
        .args(["-h", address, "-U", "postgres", "-S", "-c", "4", "-T", "600", "postgres"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Running(child.unwrap())
}

/// Upstream's scenario `autoscaling.cpu-sys-fs-state-scaling` with a database; `tests/e2e/scenarios` has both CPU modes.
#[test]
fn a_database_grows_under_load_and_shrinks_when_it_is_idle() {
    need!(possible_with_database());
    let cluster = Cluster::with(&["--nodes", "1", "--cpus", "4"]);
    database::build(&cluster);
    let path = cluster.write("pg.json", manifest(true, "SysfsScaling", ("3", 5)));
    cluster.good(&["vm", "create", "-f", &path, "--wait", "--timeout", "170s"]);
    cluster.becomes("pg", "is brought to its least by the agent", |vm| {
        observed(vm) == ("250m".into(), "1Gi".into())
    });
    let address = address(&cluster);
    let mut load = load_of(&address);
    // Whole compute units on the way, never beyond the bounds although the VM has room for more.
    cluster.becomes("pg", "grows to the most its bounds allow", |vm| {
        let (cpu, slots) = asked(vm);
        assert!(
            ["250m", "500m", "750m", "1"].contains(&cpu.as_str()) && (1..=4).contains(&slots),
            "{cpu} {slots}"
        );
        observed(vm) == ("1".into(), "4Gi".into())
    });
    assert!(load.goes_on(), "pgbench lost its connections");
    let output = cluster.good(&["agent", "inspect", "--vm", "pg", "--history", "50"]);
    assert!(output.contains("LAST DECISIONS") && output.contains("ask scheduler"), "{output}");
    // Events are delivered separately.
    let events = || cluster.good(&["vm", "history", "pg"]);
    until(|| events().contains("ScaledUp"), events);
    drop(load);
    let vm = cluster.becomes_within("pg", 330, "shrinks to the least", |vm| {
        observed(vm) == ("250m".into(), "1Gi".into())
    });
    assert_eq!(vm["status"]["restartCount"], 0);
    let (target, current) =
        (&vm["spec"]["targetRevision"]["revision"], &vm["status"]["currentRevision"]["revision"]);
    assert!(target == current && target["flags"] == 2, "{target} {current}");
    cluster.down();
}

/// Upstream's scenario `autoscaling.revisions`.
#[test]
fn revisions_are_followed_even_backwards_and_the_agent_counts_on_from_them() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "1", "--cpus", "4"]);
    cluster.image("busy:1", &["/bin/sh", "-c", "while [ ! -e /go ]; do sleep 1; done; while :; do :; done"]);
    cluster.good(&[
        "vm",
        "create",
        "r",
        "--image",
        "busy:1",
        "--cpu",
        "0.25..0.5",
        "--memory",
        "1Gi..2Gi",
        "--no-autoscale",
        "--wait",
        "--timeout",
        "170s",
    ]);
    let set = |value: i64, flags: u64| {
        let patch = json!({ "spec": { "targetRevision": { "revision": { "value": value, "flags": flags },
            "updatedAt": "2024-01-01T00:00:00Z" } } });
        cluster.client().merge(Resource::VM, "r", &patch).unwrap();
        cluster.becomes("r", "shows the revision", |vm| {
            vm["status"]["currentRevision"]["revision"] == json!({ "value": value, "flags": flags })
        });
    };
    set(123, 456);
    set(1, 123);
    set(123, 0);
    cluster.good(&["vm", "scale", "r", "--auto", "on"]);
    cluster.inside("r", "touch /go");
    let vm = cluster.becomes("r", "grows", |vm| observed(vm) == ("500m".into(), "2Gi".into()));
    let target = &vm["spec"]["targetRevision"]["revision"];
    assert_eq!(*target, json!({ "value": 124, "flags": 1 }));
    cluster.becomes("r", "shows the agent's revision", |vm| {
        vm["status"]["currentRevision"]["revision"] == json!({ "value": 124, "flags": 1 })
    });
    cluster.down();
}

/// Memory that is taken fast: it grows ahead of the need, and nothing is killed.
#[test]
fn memory_grows_before_it_is_missing() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    cluster.good(&[
        "vm",
        "create",
        "m",
        "--image",
        "idle:1",
        "--cpu",
        "0.25..1",
        "--memory",
        "1Gi..4Gi",
        "--start-cpu",
        "1",
        "--start-memory",
        "1Gi",
        "--wait",
        "--timeout",
        "170s",
    ]);
    // 64 MiB at a time, as fast as an emulated guest can; but services that get no processor for seconds are not outrun.
    let take = "mount -t tmpfs -o size=8g none /mnt; n=0; for i in $(seq 32); do \
                while [ $(awk '/MemAvailable/ { print $2 }' /proc/meminfo) -lt 131072 ]; do \
                n=$((n + 1)); [ $n -lt 1000 ] || exit 1; sleep 0.1; done; \
                dd if=/dev/zero of=/mnt/$i bs=64M count=1 2>/dev/null || exit 1; done; ls /mnt | wc -l";
    assert_eq!(cluster.inside("m", take).trim(), "32");
    let vm = cluster.vm("m");
    assert!(asked(&vm).1 >= 3, "2 GiB are in use at {:?}", observed(&vm));
    assert_eq!(cluster.inside("m", "dmesg | grep -ci 'out of memory' || true").trim(), "0");
    // What is in use is not taken away, what is free is.
    cluster.inside("m", "rm /mnt/*");
    cluster.becomes("m", "gives back", |vm| observed(vm).1 == "1Gi");
    assert_eq!(cluster.vm("m")["status"]["restartCount"], 0);
    cluster.down();
}

/// What two emulated VMs of at most 3 compute units take beside guests of 4 GiB together, in MiB; and 20m of CPU each.
const OVERHEAD_MIB: u64 = 650;

/// A node that is full: the permit is refused, every command shows the reason, and the numbers agree.
#[test]
fn a_full_node_refuses_and_reports_it() {
    need!(possible());
    let memory = format!("{}Mi", 4096 + OVERHEAD_MIB);
    let cluster = Cluster::with(&["--nodes", "2", "--cpus", "1.04", "--memory", &memory]);
    cluster.image("busy:1", &["/bin/sh", "-c", "while :; do :; done"]);
    for name in ["a", "b"] {
        cluster.good(&[
            "vm",
            "create",
            name,
            "--image",
            "busy:1",
            "--cu",
            "1..3",
            "--node-selector",
            "kubernetes.io/hostname=n1",
            "--wait",
            "--timeout",
            "170s",
        ]);
    }
    // Both want 3 compute units of a node that has 4, and what both take beside their guests.
    let sum = || -> u64 { ["a", "b"].iter().map(|name| asked(&cluster.vm(name)).1).sum() };
    until(|| sum() == 4, || format!("{}\n{}", sum(), cluster.logs()));
    // An agent that was refused asks again after a pause: what it asked for last is what counts.
    let last = std::cell::RefCell::new(String::new());
    until(
        || {
            let found = numbers_of_a_full_node(&cluster);
            let agree = found.is_ok();
            *last.borrow_mut() = found.err().unwrap_or_default();
            agree
        },
        || format!("{}\n{}", last.borrow(), cluster.logs()),
    );
    let text = cluster.good(&["debug", "node-pressure", "n1", "--what-if", "a=4cu"]);
    assert!(text.contains("what if a=4cu: ") && !text.contains("what if a=4cu: granted"), "{text}");
    let (code, _) = cluster.bad(&["debug", "node-pressure", "--check"]);
    assert_eq!(code, 7);
    let short = ["a", "b"].map(|name| cluster.good(&["agent", "inspect", "--vm", name])).concat();
    assert!(short.contains("scheduler"), "{short}");
    // One goes, the other gets what it wants.
    cluster.good(&["vm", "delete", "a"]);
    cluster.becomes("b", "gets what was refused", |vm| observed(vm) == ("750m".into(), "3Gi".into()));
    cluster.down();
}

/// The numbers of `node-pressure`, those of the scheduler's dump, and those computed by hand.
fn numbers_of_a_full_node(cluster: &Cluster) -> Result<(), String> {
    let output: Value =
        serde_json::from_str(&cluster.good(&["debug", "node-pressure", "n1", "-o", "json"])).unwrap();
    let dump: Value = serde_json::from_str(&cluster.good(&["scheduler", "inspect", "-o", "json"])).unwrap();
    let node = &output["items"][0];
    let dumped = dump["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "n1").unwrap();
    for (resource, total, refused) in
        [("cpu", 1040_u64, 500_u64), ("mem", (4096 + OVERHEAD_MIB) << 20, 2 << 30)]
    {
        // Two machines want 3 compute units each, 6 in all, of which 4 are there: all is permitted, and not more.
        let by_hand = [
            ("total", total),
            ("reserved", total),
            ("watermark", total * 9 / 10),
            ("capacityPressure", refused),
            ("pressureAccountedFor", 0),
            ("buffer", 0),
        ];
        for (field, value) in by_hand {
            if node[resource][field] != value || dumped[resource][field] != value {
                return Err(format!("{resource} {field}: {value} by hand, {node}, {dumped}"));
            }
        }
    }
    Ok(())
}

/// A person decides for a while.
#[test]
fn a_hold_keeps_a_size_until_it_ends() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "1", "--cpus", "4"]);
    cluster.idle();
    cluster.good(&["vm", "create", "h", "--image", "idle:1", "--cu", "1..3", "--wait", "--timeout", "170s"]);
    let (code, text) = cluster.bad(&["vm", "scale", "h", "--cu", "2"]);
    assert!(code == 5 && text.contains("--hold"), "{text}");
    cluster.good(&["vm", "scale", "h", "--cu", "2", "--hold", "1h", "--wait", "--timeout", "120s"]);
    assert_eq!(observed(&cluster.vm("h")), ("500m".into(), "2Gi".into()));
    assert!(cluster.good(&["agent", "inspect", "--vm", "h"]).contains("held"));
    // A guest that is busy denies to shrink. Its CPU can be taken all the same.
    let busy = "setsid sh -c 'while [ ! -e /stop ]; do :; done' >/dev/null 2>&1 </dev/null &";
    cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", "h", "--", busy]));
    let less = ["vm", "scale", "h", "--cu", "1", "--hold", "1h"];
    let (code, text) = cluster.bad(&[&less[..], &["--wait", "--timeout", "15s"]].concat());
    assert!(code == 6 && text.contains("--cu 1 --hold 1h --force"), "{text}");
    cluster.good(&[&less[..], &["--force", "--wait", "--timeout", "120s"]].concat());
    assert_eq!(observed(&cluster.vm("h")), ("250m".into(), "1Gi".into()));
    cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", "h", "--", "touch /stop"]));
    cluster.good(&["vm", "scale", "h", "--hold", "off"]);
    cluster.becomes("h", "follows its load again", |vm| observed(vm) == ("250m".into(), "1Gi".into()));
    cluster.good(&["vm", "scale", "h", "--min", "2cu"]);
    cluster.becomes("h", "keeps to its new bounds", |vm| observed(vm) == ("500m".into(), "2Gi".into()));
    cluster.down();
}
