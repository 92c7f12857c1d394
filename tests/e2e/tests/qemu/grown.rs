//! A VM that grew is as large as it looks, and its guest gives what a container engine gives.

use neonvm_test_support::need;

use crate::cluster::{Cluster, possible};

/// From 128Mi to 8Gi: limits that Linux derives from memory at boot follow the maximum; a workload without bounds leaves the guest
/// program alive.
#[test]
fn a_grown_vm_has_the_limits_of_its_size() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    let sized = ["--cpu", "1", "--memory", "128Mi..8Gi", "--memory-step", "128Mi"];
    cluster.run("tiny", &sized);
    let small: u64 = number(&cluster, "cat /sys/fs/cgroup/workload/pids.max");
    cluster.good(&["vm", "scale", "tiny", "--memory", "8Gi", "--wait", "--timeout", "170s"]);
    assert_eq!(number(&cluster, "cat /proc/sys/kernel/threads-max"), 65_536);
    assert!(number(&cluster, "cat /sys/fs/cgroup/workload/pids.max") > small * 20);
    // Pages that TCP takes before it slows down: 1/16 of the memory, where 667 were the value.
    assert_eq!(number(&cluster, "cut -f2 /proc/sys/net/ipv4/tcp_mem"), 131_072);
    // 4,000 processes, where 343 were the limit.
    let text = "for i in $(seq 4000); do sleep 1000 & done; ls -d /proc/[0-9]* | wc -l; killall sleep";
    assert!(number(&cluster, text) > 4_000);
    // A file of 4 GiB less a page, in memory.
    let text = "dd if=/dev/zero of=/dev/shm/file bs=1M count=4095 2>/dev/null; stat -c %s /dev/shm/file; rm /dev/shm/file";
    assert_eq!(number(&cluster, text), 4_095 << 20);
    // The name of the guest has its address.
    let address = cluster.inside("tiny", "hostname -i");
    assert_eq!(address.trim(), "169.254.254.254");
    cluster.down();
}

fn number(cluster: &Cluster, text: &str) -> u64 {
    cluster.inside("tiny", text).trim().parse().unwrap()
}

/// No such file, not executable, no such user, a disk that is not mounted: in `Degraded`, in `vm list`, and `create --wait` ends.
#[test]
fn a_workload_that_cannot_start_is_named_where_people_look() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    let create = |name: &str, more: &[&str]| {
        let words = ["vm", "create", name, "--image", "idle:1", "--wait", "--timeout", "170s"];
        cluster.bad(&[&words, more].concat()).1
    };
    let text = create("missing", &["--", "/no/such/program"]);
    assert!(text.contains("workload: start /no/such/program: No such file"), "{text}");
    let text = create("locked", &["--", "/etc/passwd"]);
    assert!(text.contains("workload: start /etc/passwd: Permission denied"), "{text}");
    let text = create("mount", &["--disk", "data=64Mi:/etc/passwd"]);
    assert!(text.contains("/etc/passwd"), "{text}");
    for name in ["missing", "locked", "mount"] {
        let seen = cluster.becomes(name, "a reason", |vm| {
            let conditions = vm.pointer("/status/conditions").and_then(serde_json::Value::as_array);
            let is_it =
                |one: &serde_json::Value| one["type"] == "Degraded" && one["reason"] == "WorkloadNotStarted";
            conditions.into_iter().flatten().any(is_it)
        });
        assert_eq!(seen["status"]["phase"], "Running");
    }
    assert!(cluster.good(&["vm", "list"]).matches("NotStarted").count() == 3);
    // With a policy that ends the VM its end has the reason.
    let (code, text) = cluster.bad(&["vm", "run", "--image", "idle:1", "--rm", "--", "/no/such/program"]);
    assert_eq!(code, 127, "{text}");
    cluster.down();
}
