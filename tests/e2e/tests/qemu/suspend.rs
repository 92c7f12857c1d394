//! A VM that is suspended: no QEMU, the same addresses and connections, and the first packet brings it back.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use neonvm_e2e::client::Resource;
use neonvm_test_support::need;
use serde_json::{Value, json};

use crate::cluster::{Cluster, possible, until};

/// Time in which something that wakes the guest by mistake would have done so: agents read metrics each five seconds.
const WHILE: Duration = Duration::from_secs(12);

/// A connection to a server in the guest that sends back what it gets.
struct Echo(TcpStream);

impl Echo {
    fn open(cluster: &Cluster, vm: &str) -> Self {
        cluster.inside(vm, "busybox nc -ll -p 8080 -e cat >/dev/null 2>&1 &");
        let address = cluster.vm(vm)["status"]["podIP"].as_str().unwrap().to_owned();
        let connect = || TcpStream::connect((address.as_str(), 8080)).ok();
        let mut stream = None;
        until(
            || {
                stream = connect();
                stream.is_some()
            },
            || format!("port 8080 of {vm} at {address} does not answer"),
        );
        let stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(stream)
    }

    fn repeats(&mut self, word: &str) {
        self.0.write_all(word.as_bytes()).unwrap();
        let mut answer = vec![0; word.len()];
        self.0.read_exact(&mut answer).unwrap();
        assert_eq!(answer, word.as_bytes());
    }
}

fn uid(cluster: &Cluster, vm: &str) -> String {
    cluster.vm(vm)["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn is_suspended(vm: &Value) -> bool {
    vm["status"]["phase"] == "Suspended" && vm["status"]["powerState"] == "Suspended"
}

fn is_awake(vm: &Value) -> bool {
    vm["status"]["phase"] == "Running" && vm["status"]["powerState"] == Value::Null
}

#[test]
fn a_packet_wakes_a_suspended_vm_and_its_connections_continue() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    // Scaled, so that its agent reads its metrics and is connected to its monitor.
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
        "--port",
        "8080",
        "--wait",
        "--timeout",
        "170s",
    ]);
    let mut echo = Echo::open(&cluster, "web");
    echo.repeats("before\n");
    let (uid, pod) = (uid(&cluster, "web"), cluster.pod("web"));
    let boot = cluster.inside("web", "cat /proc/sys/kernel/random/boot_id");

    cluster.good(&["vm", "suspend", "web", "--timeout", "170s"]);
    assert!(Cluster::qemus(&uid).is_empty(), "no QEMU runs");
    assert!(cluster.good(&["vm", "list"]).contains("Suspended"));
    let vm = cluster.vm("web");
    assert!(is_suspended(&vm), "{}", vm["status"]);
    std::thread::sleep(WHILE);
    let vm = cluster.vm("web");
    assert!(is_suspended(&vm) && Cluster::qemus(&uid).is_empty(), "{}\n{}", vm["status"], cluster.logs());

    echo.repeats("after\n");
    let vm = cluster.becomes("web", "is awake", is_awake);
    assert_eq!(Cluster::qemus(&uid).len(), 1);
    assert_eq!((cluster.pod("web"), &vm["status"]["restartCount"]), (pod.clone(), &json!(0)));
    cluster.becomes("web", "is not suspended again", |vm| vm["spec"]["powerState"] == "Running");
    let inside = cluster.inside("web", "cat /proc/sys/kernel/random/boot_id; date +%s");
    let (same, time) = inside.trim().split_once('\n').unwrap();
    assert_eq!(same, boot.trim(), "it was not booted");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let behind = now.abs_diff(time.parse().unwrap());
    assert!(behind <= 3, "its clock is off by {behind} s");

    // A command wakes it as well, and so does a request.
    cluster.good(&["vm", "suspend", "web", "--timeout", "170s"]);
    assert_eq!(cluster.inside("web", "cat /proc/sys/kernel/random/boot_id"), boot);
    cluster.becomes("web", "is awake", is_awake);
    cluster.good(&["vm", "suspend", "web", "--timeout", "170s"]);
    cluster.good(&["vm", "resume", "web", "--timeout", "170s"]);
    assert_eq!(Cluster::qemus(&uid).len(), 1);
    echo.repeats("again\n");
    let events = || cluster.good(&["vm", "history", "web"]);
    until(|| events().contains("Suspended") && events().contains("Woken"), events);

    // A size that is requested while it sleeps comes when it is awake.
    cluster.good(&["vm", "suspend", "web", "--timeout", "170s"]);
    cluster.good(&["vm", "scale", "web", "--cpu", "1", "--memory", "512Mi", "--hold", "10m"]);
    echo.repeats("and again\n");
    cluster.becomes("web", "has the size that waited", |vm| {
        vm["status"]["cpus"] == 1 && vm["status"]["memorySize"] == "512Mi"
    });

    // It shuts down as a VM that runs does.
    cluster.good(&["vm", "suspend", "web", "--timeout", "170s"]);
    cluster.good(&["vm", "stop", "web"]);
    assert_eq!(cluster.vm("web")["status"]["lastExit"]["reason"], "Stopped");
    cluster.good(&["vm", "delete", "web"]);
    cluster.down();
}

#[test]
fn an_idle_vm_is_suspended_by_itself_and_one_that_works_is_not() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    cluster.run("web", &["--suspend-after", "10s", "--port", "8080"]);
    let uid = uid(&cluster, "web");
    let boot = cluster.inside("web", "cat /proc/sys/kernel/random/boot_id");
    let vm = cluster.becomes("web", "is suspended", is_suspended);
    assert_eq!(vm["spec"]["powerState"], Value::Null, "nobody requested it");
    assert!(Cluster::qemus(&uid).is_empty());
    cluster.good(&["vm", "resume", "web", "--timeout", "170s"]);
    cluster.becomes("web", "is awake", is_awake);
    // Work in the guest.
    cluster.inside("web", "(while :; do :; done) >/dev/null 2>&1 & echo $! > /tmp/work");
    std::thread::sleep(3 * WHILE);
    assert!(is_awake(&cluster.vm("web")), "{}", cluster.vm("web")["status"]);
    let (code, text) = cluster.bad(&["vm", "suspend", "web", "--timeout", "8s"]);
    assert!(code != 0 && text.contains("of its tasks run"), "{code}: {text}");
    cluster.good(&["vm", "resume", "web", "--timeout", "170s"]);
    cluster.inside("web", "kill $(cat /tmp/work)");
    cluster.becomes("web", "is suspended again", is_suspended);

    // Its node is lost with what it had in memory: it boots.
    cluster.good(&["vm", "set", "web", "--suspend-after", "never"]);
    cluster.becomes("web", "is awake without its policy", is_awake);
    assert_eq!(cluster.inside("web", "cat /proc/sys/kernel/random/boot_id"), boot);
    cluster.down();
}

/// It wakes, moves, and is idle again afterwards. Its node has its room for others meanwhile, and it wakes where there is room for it.
#[test]
fn a_suspended_vm_is_migrated_awake_and_wakes_where_there_is_room() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    cluster.run("web", &["--suspend-after", "10s", "--port", "8080"]);
    let boot = cluster.inside("web", "cat /proc/sys/kernel/random/boot_id");
    let vm = cluster.becomes("web", "is suspended", is_suspended);
    let before = vm["status"]["node"].as_str().unwrap().to_owned();
    cluster.good(&["vm", "migrate", "web", "--timeout", "170s"]);
    let vm = cluster.becomes("web", "is suspended again", is_suspended);
    let here = vm["status"]["node"].as_str().unwrap().to_owned();
    assert_ne!(here, before);
    assert_eq!(cluster.inside("web", "cat /proc/sys/kernel/random/boot_id"), boot, "it was not booted");

    let mut echo = Echo::open(&cluster, "web");
    echo.repeats("awake\n");
    cluster.becomes("web", "sleeps", is_suspended);
    cluster.cordon(&before);
    // All CPUs of the node but those that the VM had.
    cluster.run("other", &["--cpu", "3.5..4"]);
    assert_eq!(cluster.vm("other")["status"]["node"], json!(here));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| echo.repeats("there is room\n"));
        cluster.becomes("web", "has no room", |vm| {
            vm["status"]["conditions"].to_string().contains("it is needed, and waits: node")
        });
        let (code, text) = cluster.bad(&["vm", "ssh", "web", "--", "true"]);
        assert!(code != 0 && text.contains("no room"), "{code}: {text}");
        assert!(is_suspended(&cluster.vm("web")) && !waits.is_finished());
        cluster.uncordon(&before);
        let movable =
            json!({"metadata": {"labels": {"autoscaling.neon.tech/auto-migration-enabled": "true"}}});
        cluster.client().merge(Resource::VM, "web", &movable).unwrap();
        cluster.becomes("web", "is where there is room", |vm| vm["status"]["node"] == json!(before));
        waits.join().unwrap();
    });
    assert_eq!(cluster.inside("web", "cat /proc/sys/kernel/random/boot_id"), boot, "it was not booted");
    cluster.down();
}
