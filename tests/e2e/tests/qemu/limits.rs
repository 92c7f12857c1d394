//! Limits of disks hold a running guest back: at once, on the node that it is migrated to, and after a suspension; no longer after
//! `--none`. Rates are counts of requests by the guest's clock, so a slow host can only make them smaller.

use neonvm_test_support::need;
use serde_json::Value;

use crate::cluster::{Cluster, possible};

const IOPS: u64 = 20;

/// Requests that the disk of `/data` has done in some seconds of direct writes, and hundredths of a second that have passed.
fn work(cluster: &Cluster) -> (u64, u64) {
    let script = "disk=/sys/block/$(df /data | tail -n 1 | sed 's,^/dev/\\([a-z]*\\).*,\\1,')/stat; \
                  look() { awk '{print $1 + $5}' $disk; cut -d' ' -f1 /proc/uptime | tr -d .; }; \
                  look; (while :; do dd if=/dev/zero of=/data/f bs=4k count=1 oflag=direct conv=notrunc; done) >/dev/null 2>&1 & \
                  sleep 6; kill $!; look";
    let text = cluster.inside("pg", script);
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 4, "{text}");
    (numbers[2] - numbers[0], numbers[3] - numbers[1])
}

/// The most that the limit lets pass, with what an empty bucket and a burst of a second take.
fn most(hundredths: u64) -> u64 {
    IOPS * hundredths / 100 + 3 * IOPS
}

fn is_held_back(cluster: &Cluster, when: &str) {
    let (requests, time) = work(cluster);
    assert!(requests <= most(time) && requests > 0, "{when}: {requests} requests in {time} hundredths");
}

fn runs_free(cluster: &Cluster, when: &str) {
    let (requests, time) = work(cluster);
    assert!(requests > 2 * most(time), "{when}: {requests} requests in {time} hundredths");
}

fn binds(vm: &Value) -> bool {
    let conditions = vm.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "DiskLimited" && one["status"] == "True")
}

#[test]
fn a_limit_holds_the_guest_back_where_it_runs_and_where_it_goes() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    cluster.run("pg", &["--volume", "data=256Mi:/data"]);
    let pod = cluster.pod("pg");
    runs_free(&cluster, "before");
    let limit = ["vm", "disk", "limit", "pg", "data", "--timeout", "170s"];
    let iops = IOPS.to_string();
    let done = cluster.good(&[&limit[..], &["--iops", &iops]].concat());
    assert!(done.contains("limit of 20 IOPS in force"), "{done}");
    is_held_back(&cluster, "limited");
    assert!(cluster.good(&["vm", "disk", "list", "pg"]).contains("20 IOPS"));

    // It is shown while the guest is held back.
    cluster.inside(
        "pg",
        "(while :; do dd if=/dev/zero of=/data/g bs=4k count=1 oflag=direct conv=notrunc; done) >/dev/null 2>&1 &",
    );
    cluster.becomes("pg", "is held back", binds);
    let text = "disk data is held to its limit of 20 IOPS";
    let top = cluster.neonctl(&["top", "vms"]).output().unwrap();
    let top = String::from_utf8_lossy(&[top.stdout, top.stderr].concat()).into_owned();
    assert!(top.contains(text), "{top}");
    for command in [["vm", "describe", "pg"], ["vm", "history", "pg"]] {
        let shown = cluster.good(&command);
        assert!(shown.contains(text), "{shown}");
    }

    // Both migration and spec limit the disk of a guest that writes meanwhile.
    cluster.good(&["vm", "migrate", "pg", "--timeout", "170s"]);
    assert_ne!(cluster.pod("pg"), pod);
    is_held_back(&cluster, "on the other node");

    cluster.good(&[&limit[..], &["--none"]].concat());
    cluster.inside("pg", "kill $(ps | grep '/data/[g]' | awk '{print $1}') || true");
    runs_free(&cluster, "afterwards");
    cluster.becomes("pg", "has no limits", |vm| vm["status"]["diskLimits"].is_null() && !binds(vm));
    cluster.down();
}

/// The QEMU that has the memory of a suspended guest has the limits as well, and a VM that is stopped has them at its next start.
#[test]
fn a_limit_outlives_suspension_and_restart() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    cluster.run("pg", &["--disk", "data=256Mi:/data"]);
    let limit =
        ["vm", "disk", "limit", "pg", "data", "--iops", "20", "--burst-iops", "25", "--timeout", "170s"];
    cluster.good(&limit);
    cluster.good(&["vm", "suspend", "pg", "--timeout", "170s"]);
    cluster.good(&["vm", "resume", "pg", "--timeout", "170s"]);
    is_held_back(&cluster, "after a wake");
    cluster.good(&["vm", "restart", "pg", "--timeout", "170s"]);
    is_held_back(&cluster, "after a restart");
    cluster.down();
}
