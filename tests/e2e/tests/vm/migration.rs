//! Machines that move: real guests, real copies, and the machine is always on exactly one node.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::cluster::{Cluster, possible, until};
use crate::machine;
use crate::scaling::postgres;

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn node(cluster: &Cluster, name: &str) -> String {
    text(&cluster.vm(name), "/status/node").to_owned()
}

pub(crate) fn migration(cluster: &Cluster, name: &str) -> Value {
    cluster.json(&["vmm", name])
}

/// Nothing of a move is left: one pod, one QEMU, no lock, and the machine was never started again.
fn is_settled(cluster: &Cluster, name: &str) -> Result<(), String> {
    let vm = cluster.vm(name);
    let pods = cluster.json(&["pods", "-l", &format!("vm.neon.tech/name={name}")]);
    let pods: Vec<&str> =
        pods["items"].as_array().unwrap().iter().map(|pod| text(pod, "/metadata/name")).collect();
    let qemus = Cluster::qemus(text(&vm, "/metadata/uid"));
    let good = text(&vm, "/status/phase") == "Running"
        && vm.pointer("/status/migration").is_none()
        && pods == [text(&vm, "/status/podName")]
        && qemus.len() == 1
        && vm["status"]["restartCount"] == 0;
    if good { Ok(()) } else { Err(format!("pods {pods:?}, QEMUs {qemus:?}, {}", vm["status"])) }
}

pub(crate) fn settles(cluster: &Cluster, name: &str) {
    let last = std::cell::RefCell::new(String::new());
    until(
        || match is_settled(cluster, name) {
            Ok(()) => true,
            Err(why) => {
                *last.borrow_mut() = why;
                false
            }
        },
        || format!("{}\n{}", last.borrow(), cluster.logs()),
    );
}

/// What a guest remembers only if it was never started again: its boot, a process, memory and a disk.
pub(crate) fn remember(cluster: &Cluster, name: &str) -> String {
    cluster.inside(
        name,
        "mkdir -p /mem && mount -t tmpfs none /mem && dd if=/dev/urandom of=/mem/a bs=1M count=32 2>/dev/null; \
         dd if=/dev/urandom of=/data/a bs=1M count=16 2>/dev/null; cp /data/a /root-a; sync; \
         (while :; do date +%s > /mem/beat; sleep 0.2; done) >/dev/null 2>&1 & echo $! > /mem/pid",
    );
    recall(cluster, name)
}

pub(crate) fn recall(cluster: &Cluster, name: &str) -> String {
    cluster.inside(
        name,
        "cat /proc/sys/kernel/random/boot_id; kill -0 $(cat /mem/pid) && echo alive; \
         echo 3 > /proc/sys/vm/drop_caches; md5sum /mem/a /data/a /root-a",
    )
}

/// There and back: memory, disks, processes and size are what they were.
#[test]
fn a_machine_moves_there_and_back_and_is_the_same() {
    if !possible("live migration") {
        return;
    }
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    cluster.run("m", &["--disk", "data=64Mi:/data"]);
    let before = remember(&cluster, "m");
    assert!(before.contains("alive"), "{before}");
    let (first, pod) = (node(&cluster, "m"), cluster.pod("m"));
    let plan = cluster.good(&["vm", "migrate", "m", "--dry-run"]);
    assert!(plan.contains("runs it now") && plan.contains("target"), "{plan}");
    let (code, said) = cluster.bad(&["vm", "migrate", "m", "--to", &first]);
    assert!(code == 5 && said.contains("already runs on"), "{said}");

    let said = cluster.good(&["vm", "migrate", "m", "--timeout", "170s"]);
    let second = node(&cluster, "m");
    assert!(said.contains(&format!("m runs on {second}")) && said.contains("downtime"), "{said}");
    assert_ne!(first, second);
    assert_ne!(pod, cluster.pod("m"));
    settles(&cluster, "m");
    assert_eq!(recall(&cluster, "m"), before);
    let moved = migration(&cluster, "m-1");
    assert_eq!(text(&moved, "/status/phase"), "Succeeded");
    assert_eq!((text(&moved, "/status/sourceNode"), text(&moved, "/status/targetNode")), (&*first, &*second));
    assert!(moved["status"]["info"]["totalTimeMs"].as_i64() > Some(0), "{moved}");
    assert!(moved["status"]["info"]["ram"]["transferred"].as_i64() > Some(32 << 20), "{moved}");

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

/// Waits until memory of a move is copied.
fn copies(cluster: &Cluster, name: &str) {
    until(
        || text(&migration(cluster, name), "/status/reason") == "Copying",
        || format!("{}\n{}", migration(cluster, name), cluster.logs()),
    );
}

/// Slow enough that somebody can change their mind.
const SLOW: [&str; 6] = ["vm", "migrate", "m", "--no-wait", "--bandwidth", "1Mi"];

/// Called off, impossible, twice at a time, and deleted on the way: the machine stays, or ends, as it should.
#[test]
fn moves_that_do_not_happen_leave_the_machine_alone() {
    if !possible("moves that fail") {
        return;
    }
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    cluster.run("m", &["--disk", "data=64Mi:/data"]);
    let before = remember(&cluster, "m");
    let here = node(&cluster, "m");
    cluster.good(&SLOW);
    copies(&cluster, "m-1");
    let (code, said) = cluster.bad(&["vm", "migrate", "m"]);
    assert!(code == 5 && said.contains("m-1"), "{said}");
    // A second object waits behind the first, and calling it off disturbs nobody.
    let second = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration",
        "metadata": { "name": "second" }, "spec": { "vmName": "m" } });
    let path = cluster.write("second.json", second.to_string());
    cluster.kube(&["apply", "-f", &path]);
    until(
        || text(&migration(&cluster, "second"), "/status/reason") == "Queued",
        || format!("{}", migration(&cluster, "second")),
    );
    assert!(cluster.good(&["migration", "list", "--active"]).contains("second"));
    cluster.kube(&["delete", "vmm", "second"]);
    assert_eq!(text(&migration(&cluster, "m-1"), "/status/phase"), "Running");
    let said = cluster.good(&["migration", "cancel", "m-1", "--timeout", "170s"]);
    assert!(said.contains(&format!("m stayed on {here}")), "{said}");
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
    let (code, said) = cluster.bad(&["vm", "migrate", "m", "--dry-run"]);
    assert!(code == 5 && said.contains("can go nowhere"), "{said}");
    cluster.good(&["vm", "migrate", "m", "--no-wait"]);
    until(
        || text(&migration(cluster, "m-2"), "/status/message").contains("cordoned"),
        || format!("{}\n{}", migration(cluster, "m-2"), cluster.logs()),
    );
    cluster.kube(&["delete", "vmm", "m-2"]);
    settles(cluster, "m");
    cluster.kube(&["uncordon", other]);
}

/// The target dies in the middle.
fn loses_its_target(cluster: &Cluster) {
    cluster.good(&SLOW);
    copies(cluster, "m-2");
    let target = text(&migration(cluster, "m-2"), "/status/targetPodName").to_owned();
    cluster.kube(&["delete", "pod", &target, "--grace-period=0", "--force"]);
    let (code, said) = cluster.bad(&["migration", "wait", "m-2", "--timeout", "170s"]);
    assert!(code == 1 && said.contains("has not moved"), "{said}");
    settles(cluster, "m");
}

/// The machine itself is deleted.
fn is_deleted_on_the_way(cluster: &Cluster) {
    cluster.good(&SLOW);
    copies(cluster, "m-3");
    let uid = text(&cluster.vm("m"), "/metadata/uid").to_owned();
    cluster.good(&["vm", "delete", "m", "--timeout", "170s"]);
    until(|| Cluster::qemus(&uid).is_empty(), || cluster.logs());
    until(
        || {
            let left = cluster.json(&["vmm"]);
            let left = left["items"].as_array().unwrap();
            left.iter()
                .all(|one| !text(one, "/status/phase").is_empty() && text(one, "/status/phase") != "Running")
        },
        || format!("{}\n{}", cluster.json(&["vmm"]), cluster.logs()),
    );
}

/// A psql session that is asked now and then.
struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn open(address: &str) -> Self {
        let mut child = Command::new("psql")
            .args(["-h", address, "-U", "postgres", "-qAt"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    fn ask(&mut self, query: &str) -> String {
        writeln!(self.input, "{query};").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Upstream's scenario `vm-migration`: a database under load, reached at its own address, moves twice.
#[test]
fn a_database_moves_under_load_and_keeps_its_sessions() {
    let what = "a database that moves";
    if !possible(what) || !machine::has(&["psql", "pgbench", "debootstrap"], what) {
        return;
    }
    let cluster = Cluster::with(&["--nodes", "2", "--cpus", "4"]);
    postgres(&cluster);
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
    cluster.succeeds(|| {
        let mut command = Command::new("psql");
        command.args(["-h", &address, "-U", "postgres", "-qAtc", "select 1"]).env("PGCONNECT_TIMEOUT", "20");
        command
    });
    let filled = Command::new("pgbench")
        .args(["-h", &address, "-U", "postgres", "-i", "-s", "2", "-q", "postgres"])
        .output()
        .unwrap();
    assert!(filled.status.success(), "{}", String::from_utf8_lossy(&filled.stderr));
    let mut session = Session::open(&address);
    let backend = session.ask("select pg_backend_pid()");
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
        assert_eq!(session.ask("select pg_backend_pid()"), backend, "the session is another one");
    }
    assert_eq!(node(&cluster, "pg"), first);
    let said = bench.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success() && out.contains("number of failed transactions: 0"), "{out}{err}");
    settles(&cluster, "pg");
    assert_eq!(text(&cluster.vm("pg"), "/status/extraNetIP"), address);
    cluster.down();
}

/// A node that is fuller than its watermark: the scheduler moves somebody away, and says so before, during and after.
#[test]
fn the_scheduler_moves_a_machine_off_a_pressed_node() {
    if !possible("moves off a pressed node") {
        return;
    }
    let cluster = Cluster::with(&["--nodes", "2", "--cpus", "1", "--memory", "4Gi"]);
    cluster.idle();
    // Slow enough to be seen on the way.
    let slow = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "MigrationPolicy", "metadata": { "name": "slow" },
        "spec": { "maxBandwidth": "4Mi" } });
    let path = cluster.write("slow.json", slow.to_string());
    cluster.kube(&["apply", "-f", &path]);
    cluster.cordon("n2");
    for name in ["a", "b"] {
        let create = ["vm", "create", name, "--image", "idle:1", "--cu", "2", "--movable"];
        cluster.good(&[&create[..], &["--wait", "--timeout", "170s"]].concat());
    }
    let pressure = |node: &str| -> Value {
        let dump = cluster.good(&["debug", "node-pressure", node, "-o", "json"]);
        serde_json::from_str::<Value>(&dump).unwrap()["items"][0].clone()
    };
    // Before: 1 CPU of 1 is reserved, 0.9 is the watermark, and there is nowhere to go.
    let before = pressure("n1");
    assert_eq!(
        (&before["cpu"]["reserved"], &before["cpu"]["watermark"]),
        (&json!(1000), &json!(900)),
        "{before}"
    );
    assert_eq!(before["tooMuchPressure"], true);
    let said = cluster.good(&["debug", "node-pressure", "n1"]);
    assert!(said.contains("next: "), "{said}");
    assert_eq!(cluster.json(&["vmm"])["items"].as_array().unwrap().len(), 0);
    cluster.kube(&["uncordon", "n2"]);
    // During: one of them leaves, and is accounted for.
    let during = std::cell::RefCell::new(Value::Null);
    until(
        || {
            let now = pressure("n1");
            let leaving = now["cpu"]["migrating"] == 500;
            *during.borrow_mut() = now;
            leaving
        },
        || format!("{}\n{}", during.borrow(), cluster.logs()),
    );
    assert_eq!(during.borrow()["cpu"]["pressureAccountedFor"], 500, "{}", during.borrow());
    // After: each has a node, and nothing more happens.
    until(
        || pressure("n1")["cpu"]["reserved"] == 500 && pressure("n2")["cpu"]["reserved"] == 500,
        || format!("{}\n{}\n{}", pressure("n1"), pressure("n2"), cluster.logs()),
    );
    assert_eq!(pressure("n1")["tooMuchPressure"], false);
    for name in ["a", "b"] {
        settles(&cluster, name);
    }
    assert_ne!(node(&cluster, "a"), node(&cluster, "b"));
    // The scheduler cleans up after itself.
    until(
        || cluster.json(&["vmm"])["items"].as_array().unwrap().is_empty(),
        || format!("{}", cluster.json(&["vmm"])),
    );
    cluster.good(&["debug", "node-pressure", "--check"]);
    cluster.down();
}
