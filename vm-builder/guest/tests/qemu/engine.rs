//! What a container engine gives to a workload, a VM gives: in one boot, with the settings of a runner.

use std::path::Path;

use neonvm_test_support::{need, needs};
use neonvm_types::guest::{ImageConfig, Process, ReportKind};

use crate::lab::lab;
use crate::machine::{Disk, Machine, Plan};
use crate::runner::{key, ok};

const GIB: u64 = 1 << 30;

/// The workload opens its streams again, looks at the network and binds port 80, all before its first pause and without being root.
#[test]
fn the_first_line_of_a_workload_finds_what_an_engine_gives() {
    let lab = need!(lab());
    let directory = tempfile::tempdir().unwrap();
    let (key, public) = need!(key(directory.path()));
    need!(needs::root());
    let document = serde_json::json!({
        "command": ["/workload", "engine"],
        "maximumMemory": 8 * GIB,
        "sysctl": ["net.ipv4.tcp_max_orphans=5000", "kernel.pid_max=40000"],
        "network": {"address": "10.0.2.15", "prefix": 24, "gateway": "10.0.2.2", "nameServers": ["10.0.2.3"],
            "search": ["first.example"], "mtu": 1400},
        "mounts": [
            {"path": "/var/db", "kind": "disk", "label": "data"},
            {"path": "/cache", "kind": "tmpfs", "size": 1_048_576},
        ],
        "sshAuthorizedKeys": [public],
        "restartPolicy": "Always",
    });
    let process = Process { user: "65534:65534".into(), ..Process::default() };
    let plan = Plan {
        image: ImageConfig { process, ..ImageConfig::default() },
        command_line: "rw quiet hostname=vm-engine",
        files: vec![
            ("run/db/flag", "from the image\n"),
            ("dev/shm/flag", "in memory\n"),
            ("var/db/main/PG_VERSION", "15\n"),
            ("cache/warm", "x\n"),
            ("etc/hosts", "10.9.9.9 baked\n"),
            ("etc/hostname", "baked\n"),
        ],
        owners: vec![("run/db", 33, 0o2770), ("var/db", 65_534, 0o700), ("cache", 65_534, 0o750)],
        runtime: vec![("neonvm.json", serde_json::to_vec(&document).unwrap())],
        disks: vec![Disk::Empty("data", &[])],
        pluggable: 2 * GIB,
        slack: 128 << 20,
        ports: vec![22],
        ..Plan::default()
    };
    let mut machine = Machine::start(lab, &plan);
    machine.wait_text("log", "engine ends");
    let log = machine.read("log");
    for expected in [
        "opened /dev/stdout\n",
        "opened /dev/stderr\n",
        "bound port 80\n",
        "default route true\n",
        "resolver \"search first.example\nnameserver 10.0.2.3\"\n",
        "name vm-engine is 10.0.2.15\n",
        "files 1048576 1048576\n",
        "processes unlimited\n",
        // Size of the root file system: it has grown before the workload.
        "root has more than 100 MiB\n",
    ] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    machine.wait_report("the daemon", |kind| *kind == ReportKind::Ready);
    let failed = |kind: &ReportKind| matches!(kind, ReportKind::Failure { .. });
    assert!(!machine.reports().iter().any(|report| failed(&report.kind)), "{:?}", machine.reports());
    content_is_there(&mut machine, &key);
    limits_are_set(&mut machine, &key);
    tasks_follow_memory(&mut machine, &key);
    machine.ssh_to_end(&key, "/neonvm/bin/poweroff");
    machine.wait_end();
}

/// What the image has below mounts, the disk, and the own name.
fn content_is_there(machine: &mut Machine, key: &Path) {
    let run = |machine: &mut Machine, text: &str| ok(machine, key, text);
    let text =
        run(machine, "cat /run/db/flag /dev/shm/flag /var/db/main/PG_VERSION /cache/warm /etc/hostname");
    assert_eq!(text, "from the image\nin memory\n15\nx\nvm-engine\n");
    assert_eq!(run(machine, "ls /var/db"), "main\n", "no lost+found");
    assert!(!run(machine, "ls /").contains("lost+found"));
    let hosts = run(machine, "cat /etc/hosts");
    assert!(hosts.contains("10.9.9.9 baked\n") && hosts.contains("10.0.2.15\tvm-engine\n"), "{hosts}");
}

/// Limits of a VM of at most 8 GiB, but for those of its settings.
fn limits_are_set(machine: &mut Machine, key: &Path) {
    let run = |machine: &mut Machine, text: &str| ok(machine, key, text);
    for (name, value) in [
        ("kernel/threads-max", "65536"),
        ("kernel/pid_max", "40000"),
        ("net/ipv4/tcp_max_orphans", "5000"),
        ("net/ipv4/tcp_mem", "98304\t131072\t196608"),
        ("net/ipv4/ip_unprivileged_port_start", "0"),
        ("net/ipv4/ping_group_range", "0\t2147483647"),
        ("fs/inotify/max_user_instances", "1024"),
    ] {
        assert_eq!(run(machine, &format!("cat /proc/sys/{name}")).trim(), value, "{name}");
    }
    let mounts = run(machine, "cat /proc/mounts");
    for place in ["/dev/shm", "/run"] {
        let line = mounts.lines().find(|line| line.contains(&format!(" {place} "))).unwrap();
        assert!(line.contains("size=4194304k"), "{line}");
    }
}

/// Tasks follow the memory that is there; people's programs are apart.
fn tasks_follow_memory(machine: &mut Machine, key: &Path) {
    let run = |machine: &mut Machine, text: &str| ok(machine, key, text);
    // Commands of another user own their streams as well.
    let text = "/neonvm/bin/neonvm-guest ssh --login 65534 65534 65534 - / /workload workload streams";
    assert_eq!(run(machine, text), "opened /dev/stdout\nopened /dev/stderr\n");
    // Tasks follow the memory that is there; the guest program's own processes are apart, and so are people's.
    let most = |machine: &mut Machine| -> u64 {
        run(machine, "cat /sys/fs/cgroup/workload/pids.max").trim().parse().unwrap()
    };
    let small = most(machine);
    assert!((2_000..3_500).contains(&small), "{small}");
    assert_eq!(run(machine, "cat /proc/self/cgroup"), "0::/sessions\n");
    machine.request_memory(GIB);
    machine.wait("more tasks", |machine| (most(machine) > small * 2).then_some(()));
}

/// A workload that starts processes without end, as root, leaves SSH, daemon and monitor alive, and the VM ends in order.
#[test]
fn a_fork_bomb_leaves_room_for_the_guest_program() {
    let lab = need!(lab());
    let directory = tempfile::tempdir().unwrap();
    let (key, public) = need!(key(directory.path()));
    let document = serde_json::json!({"command": ["/workload", "bomb"], "sshAuthorizedKeys": [public]});
    let plan = Plan {
        command_line: "rw quiet neonvm.stop_timeout=2",
        runtime: vec![("neonvm.json", serde_json::to_vec(&document).unwrap())],
        ports: vec![22, 25_183],
        processors: 2,
        ..Plan::default()
    };
    let mut machine = Machine::start(lab, &plan);
    machine.wait_report("the daemon", |kind| *kind == ReportKind::Ready);
    let count = |machine: &mut Machine, file: &str| -> u64 {
        let text = ok(machine, &key, &format!("cat /sys/fs/cgroup/workload/{file}"));
        text.split_whitespace().next_back().unwrap().parse().unwrap()
    };
    // The limit is reached: the kernel has refused a process.
    machine.wait("the limit", |machine| (count(machine, "pids.events") > 0).then_some(()));
    // Both are read one after the other while processes come and go.
    assert!(count(&mut machine, "pids.current") <= count(&mut machine, "pids.max"));
    assert_eq!(machine.http("GET", "/healthz", "").0, 200);
    assert_eq!(ok(&mut machine, &key, "echo in"), "in\n");
    let failed = |kind: &ReportKind| matches!(kind, ReportKind::Failure { .. });
    assert!(!machine.reports().iter().any(|report| failed(&report.kind)), "{:?}", machine.reports());
    machine.press_power();
    machine.wait_end();
}
