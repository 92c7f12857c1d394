//! What a container engine gives to a workload, a VM gives: in one boot, with the settings of a runner.

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
    let run = |machine: &mut Machine, text: &str| ok(machine, &key, text);
    let text =
        run(&mut machine, "cat /run/db/flag /dev/shm/flag /var/db/main/PG_VERSION /cache/warm /etc/hostname");
    assert_eq!(text, "from the image\nin memory\n15\nx\nvm-engine\n");
    assert_eq!(run(&mut machine, "ls /var/db"), "main\n", "no lost+found");
    assert!(!run(&mut machine, "ls /").contains("lost+found"));
    let hosts = run(&mut machine, "cat /etc/hosts");
    assert!(hosts.contains("10.9.9.9 baked\n") && hosts.contains("10.0.2.15\tvm-engine\n"), "{hosts}");
    for (name, value) in [
        ("kernel/threads-max", "65536"),
        ("kernel/pid_max", "40000"),
        ("net/ipv4/tcp_max_orphans", "5000"),
        ("net/ipv4/tcp_mem", "98304\t131072\t196608"),
        ("net/ipv4/ip_unprivileged_port_start", "0"),
        ("net/ipv4/ping_group_range", "0\t2147483647"),
        ("fs/inotify/max_user_instances", "1024"),
    ] {
        assert_eq!(run(&mut machine, &format!("cat /proc/sys/{name}")).trim(), value, "{name}");
    }
    let mounts = run(&mut machine, "cat /proc/mounts");
    for place in ["/dev/shm", "/run"] {
        let line = mounts.lines().find(|line| line.contains(&format!(" {place} "))).unwrap();
        assert!(line.contains("size=4194304k"), "{line}");
    }
    // Tasks follow the memory that is there; the guest program's own processes are apart, and so are people's.
    let most = |machine: &mut Machine| -> u64 {
        run(machine, "cat /sys/fs/cgroup/workload/pids.max").trim().parse().unwrap()
    };
    let small = most(&mut machine);
    assert!((3_000..5_000).contains(&small), "{small}");
    assert_eq!(run(&mut machine, "cat /proc/self/cgroup"), "0::/sessions\n");
    machine.request_memory(GIB);
    machine.wait("more tasks", |machine| (most(machine) > small * 2).then_some(()));
    machine.ssh_to_end(&key, "/neonvm/bin/poweroff");
    machine.wait_end();
}
