//! Live migration: real guests, real copies, and the VM is always on exactly one node.

use std::process::{Command, Stdio};

use neonvm_e2e::client::Resource;
use neonvm_test_support::need;
use serde_json::{Value, json};

use crate::cluster::{Cluster, possible, possible_with_database, until};
use crate::database::{self, Session};
use crate::observe::{migration, node, recall, remember, settles, text};

/// There and back: memory, disks, processes and size are what they were.
#[test]
fn a_vm_is_migrated_there_and_back_and_is_the_same() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    cluster.run("m", &["--disk", "data=64Mi:/data"]);
    let before = remember(&cluster, "m");
    assert!(before.contains("alive"), "{before}");
    let (first, pod) = (node(&cluster, "m"), cluster.pod("m"));
    let plan = cluster.good(&["vm", "migrate", "m", "--dry-run"]);
    assert!(plan.contains("runs it now") && plan.contains("target"), "{plan}");
    let (code, output) = cluster.bad(&["vm", "migrate", "m", "--to", &first]);
    assert!(code == 5 && output.contains("already runs on"), "{output}");

    let output = cluster.good(&["vm", "migrate", "m", "--timeout", "170s"]);
    let second = node(&cluster, "m");
    assert!(output.contains(&format!("m runs on {second}")) && output.contains("downtime"), "{output}");
    assert_ne!(first, second);
    assert_ne!(pod, cluster.pod("m"));
    settles(&cluster, "m");
    assert_eq!(recall(&cluster, "m"), before);
    let migrated = migration(&cluster, "m-1");
    assert_eq!(text(&migrated, "/status/phase"), "Succeeded");
    assert_eq!(
        (text(&migrated, "/status/sourceNode"), text(&migrated, "/status/targetNode")),
        (&*first, &*second)
    );
    assert!(migrated["status"]["info"]["totalTimeMs"].as_i64() > Some(0), "{migrated}");
    assert!(migrated["status"]["info"]["ram"]["transferred"].as_i64() > Some(32 << 20), "{migrated}");

    // It grows and shrinks where it is now, and goes back as it is.
    cluster.good(&["vm", "scale", "m", "--cpu", "2", "--memory", "512Mi", "--wait", "--timeout", "170s"]);
    cluster.good(&["vm", "migrate", "m", "--to", &first, "--timeout", "170s"]);
    assert_eq!(node(&cluster, "m"), first);
    settles(&cluster, "m");
    assert_eq!(recall(&cluster, "m"), before);
    assert_eq!(cluster.inside("m", "nproc").trim(), "2");
    cluster.good(&["vm", "scale", "m", "--cpu", "1", "--memory", "256Mi", "--wait", "--timeout", "170s"]);
    let list = cluster.good(&["migration", "list", "--vm", "m"]);
    assert_eq!(list.matches("Succeeded").count(), 2, "{list}");
    let described = cluster.good(&["migration", "describe", "m-1"]);
    assert!(described.contains("tls") && described.contains("Result"), "{described}");
    cluster.down();
}

/// Waits until a migration copies memory.
fn copies(cluster: &Cluster, name: &str) {
    until(
        || text(&migration(cluster, name), "/status/reason") == "Copying",
        || format!("{}\n{}", migration(cluster, name), cluster.logs()),
    );
}

/// Slow enough to cancel it.
const SLOW: [&str; 6] = ["vm", "migrate", "m", "--no-wait", "--bandwidth", "1Mi"];

/// Cancelled, impossible, twice at a time, and deleted on the way: the VM stays, or ends, as it should.
#[test]
fn migrations_that_fail_leave_the_vm_alone() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    cluster.run("m", &["--disk", "data=64Mi:/data"]);
    let before = remember(&cluster, "m");
    let here = node(&cluster, "m");
    cluster.good(&SLOW);
    copies(&cluster, "m-1");
    let (code, output) = cluster.bad(&["vm", "migrate", "m"]);
    assert!(code == 5 && output.contains("m-1"), "{output}");
    // A second object is queued behind the first, and cancelling it has no other effect.
    let second = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration",
        "metadata": { "name": "second" }, "spec": { "vmName": "m" } });
    cluster.apply(second.to_string());
    until(
        || text(&migration(&cluster, "second"), "/status/reason") == "Queued",
        || format!("{}", migration(&cluster, "second")),
    );
    assert!(cluster.good(&["migration", "list", "--active"]).contains("second"));
    cluster.delete(Resource::MIGRATION, "second");
    assert_eq!(text(&migration(&cluster, "m-1"), "/status/phase"), "Running");
    let output = cluster.good(&["migration", "cancel", "m-1", "--timeout", "170s"]);
    assert!(output.contains(&format!("m stayed on {here}")), "{output}");
    settles(&cluster, "m");
    assert_eq!(recall(&cluster, "m"), before);
    let (code, _) = cluster.bad(&["migration", "cancel", "m-1"]);
    assert_eq!(code, 5);
    cannot_go(&cluster);
    loses_its_target(&cluster);
    assert_eq!(recall(&cluster, "m"), before);
    is_deleted_on_the_way(&cluster);
    cluster.down();
}

/// Nowhere to go.
fn cannot_go(cluster: &Cluster) {
    let other = if node(cluster, "m") == "n1" { "n2" } else { "n1" };
    cluster.cordon(other);
    let (code, output) = cluster.bad(&["vm", "migrate", "m", "--dry-run"]);
    assert!(code == 5 && output.contains("can go nowhere"), "{output}");
    cluster.good(&["vm", "migrate", "m", "--no-wait"]);
    until(
        || text(&migration(cluster, "m-2"), "/status/message").contains("cordoned"),
        || format!("{}\n{}", migration(cluster, "m-2"), cluster.logs()),
    );
    cluster.delete(Resource::MIGRATION, "m-2");
    settles(cluster, "m");
    cluster.uncordon(other);
}

/// The target dies in the middle.
fn loses_its_target(cluster: &Cluster) {
    cluster.good(&SLOW);
    copies(cluster, "m-2");
    let target = text(&migration(cluster, "m-2"), "/status/targetPodName").to_owned();
    cluster.client().delete(Resource::POD, &target, Some(0)).unwrap();
    let (code, output) = cluster.bad(&["migration", "wait", "m-2", "--timeout", "170s"]);
    assert!(code == 1 && output.contains("was not migrated"), "{output}");
    settles(cluster, "m");
}

/// The VM itself is deleted.
fn is_deleted_on_the_way(cluster: &Cluster) {
    cluster.good(&SLOW);
    copies(cluster, "m-3");
    let uid = text(&cluster.vm("m"), "/metadata/uid").to_owned();
    cluster.good(&["vm", "delete", "m", "--timeout", "170s"]);
    until(|| Cluster::qemus(&uid).is_empty(), || cluster.logs());
    until(
        || {
            cluster
                .list(Resource::MIGRATION)
                .iter()
                .all(|one| !text(one, "/status/phase").is_empty() && text(one, "/status/phase") != "Running")
        },
        || format!("{:?}\n{}", cluster.list(Resource::MIGRATION), cluster.logs()),
    );
}

/// Upstream's scenario `vm-migration`: a database under load, reached at its own address, is migrated twice.
#[test]
fn a_database_is_migrated_under_load_and_keeps_its_sessions() {
    need!(possible_with_database());
    let cluster = Cluster::with(&["--nodes", "2", "--cpus", "4"]);
    database::build(&cluster);
    let object = json!({
        "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": { "name": "pg" },
        "spec": { "cpuScalingMode": "SysfsScaling", "extraNetwork": { "enable": true }, "guest": {
            "cpus": { "min": 1, "max": 2, "use": 2 }, "memorySlotSize": "1Gi",
            "memorySlots": { "min": 1, "max": 2, "use": 2 },
            "rootDisk": { "image": "pg:1" }, "ports": [{ "port": 5432 }] },
            "disks": [{ "name": "cache", "mountPath": "/cache", "tmpfs": { "size": "64Mi" } },
                { "name": "data", "mountPath": "/data", "emptyDisk": { "size": "64Mi" } }] } });
    let path = cluster.write("pg.json", object.to_string());
    cluster.good(&["vm", "create", "-f", &path, "--wait", "--timeout", "170s"]);
    let address = text(&cluster.vm("pg"), "/status/extraNetIP").to_owned();
    assert!(address.starts_with("10."), "{address}");
    database::answers(&cluster, &address);
    database::fill(&address, "2");
    let mut session = Session::open(&address);
    let backend = session.query("select pg_backend_pid()");
    let bench = Command::new("pgbench")
        .args(["-h", &address, "-U", "postgres", "-n", "-c", "2", "-T", "60", "postgres"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let first = node(&cluster, "pg");
    for _ in 0..2 {
        let before = node(&cluster, "pg");
        cluster.good(&["vm", "migrate", "pg", "--timeout", "170s"]);
        assert_ne!(before, node(&cluster, "pg"));
        assert_eq!(session.query("select pg_backend_pid()"), backend, "the session is another one");
    }
    assert_eq!(node(&cluster, "pg"), first);
    let output = bench.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("number of failed transactions: 0"), "{out}{err}");
    settles(&cluster, "pg");
    assert_eq!(text(&cluster.vm("pg"), "/status/extraNetIP"), address);
    cluster.down();
}

/// A node that is fuller than its watermark: the scheduler migrates a VM away, and its numbers show it before, during and after.
#[test]
fn the_scheduler_migrates_a_vm_off_a_node_under_pressure() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2", "--cpus", "1.1", "--memory", "6Gi"]);
    cluster.idle();
    // Slow enough to be seen on the way.
    let slow = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "MigrationPolicy", "metadata": { "name": "slow" },
        "spec": { "maxBandwidth": "4Mi" } });
    cluster.apply(slow.to_string());
    cluster.cordon("n2");
    for name in ["a", "b"] {
        let create = ["vm", "create", name, "--image", "idle:1", "--cu", "2", "--movable"];
        cluster.good(&[&create[..], &["--wait", "--timeout", "170s"]].concat());
    }
    let pressure = |node: &str| -> Value {
        let dump = cluster.good(&["debug", "node-pressure", node, "-o", "json"]);
        serde_json::from_str::<Value>(&dump).unwrap()["items"][0].clone()
    };
    // Before: two VMs with 500m and 20m of overhead each are reserved, 0.9 of 1.1 is the watermark, and there is nowhere to go.
    let before = pressure("n1");
    assert_eq!(
        (&before["cpu"]["reserved"], &before["cpu"]["watermark"]),
        (&json!(1040), &json!(990)),
        "{before}"
    );
    assert_eq!(before["tooMuchPressure"], true);
    let output = cluster.good(&["debug", "node-pressure", "n1"]);
    assert!(output.contains("next: "), "{output}");
    assert_eq!(cluster.list(Resource::MIGRATION), [] as [Value; 0]);
    cluster.uncordon("n2");
    // During: one of them leaves, and is accounted for.
    let during = std::cell::RefCell::new(Value::Null);
    until(
        || {
            let now = pressure("n1");
            let leaving = now["cpu"]["migrating"] == 520;
            *during.borrow_mut() = now;
            leaving
        },
        || format!("{}\n{}", during.borrow(), cluster.logs()),
    );
    assert_eq!(during.borrow()["cpu"]["pressureAccountedFor"], 520, "{}", during.borrow());
    // After: each has a node, and nothing more happens.
    until(
        || pressure("n1")["cpu"]["reserved"] == 520 && pressure("n2")["cpu"]["reserved"] == 520,
        || format!("{}\n{}\n{}", pressure("n1"), pressure("n2"), cluster.logs()),
    );
    assert_eq!(pressure("n1")["tooMuchPressure"], false);
    for name in ["a", "b"] {
        settles(&cluster, name);
    }
    assert_ne!(node(&cluster, "a"), node(&cluster, "b"));
    // The scheduler cleans up after itself.
    until(
        || cluster.list(Resource::MIGRATION).is_empty(),
        || format!("{:?}", cluster.list(Resource::MIGRATION)),
    );
    cluster.good(&["debug", "node-pressure", "--check"]);
    cluster.down();
}

/// Its node has no room for what a VM is scaled to by hand: the first component that notices migrates it, once.
#[test]
fn a_vm_that_is_scaled_beyond_its_node_is_migrated_once_and_grows() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2", "--memory", "3Gi"]);
    cluster.idle();
    cluster.cordon("n2");
    cluster.run("stays", &["--memory", "1Gi"]);
    cluster.run("m", &["--memory", "256Mi..2Gi", "--movable"]);
    cluster.uncordon("n2");
    cluster.good(&["vm", "scale", "m", "--memory", "2Gi"]);
    cluster.becomes("m", "grows on the other node", |vm| {
        text(vm, "/status/node") == "n2" && text(vm, "/status/memorySize") == "2Gi"
    });
    settles(&cluster, "m");
    let migrations = || cluster.list(Resource::MIGRATION);
    until(|| migrations().iter().all(crate::observe::is_over), || format!("{:?}", migrations()));
    assert!(migrations().len() <= 1, "the scheduler deletes its own: {:?}", migrations());
    assert_eq!((node(&cluster, "m"), node(&cluster, "stays")), ("n2".into(), "n1".into()));
    cluster.down();
}
