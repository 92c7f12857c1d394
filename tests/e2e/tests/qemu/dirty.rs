//! A guest that has written all of its memory: the limit of its pod is in force, and nothing is ever killed by it, at rest and while
//! the VM is migrated.

use std::fmt::Write as _;

use neonvm_e2e::client::Resource;
use neonvm_test_support::need;
use serde_json::Value;

use crate::cgroup::{Group, limits_memory};
use crate::cluster::{Cluster, possible};
use crate::observe::{node, settles};

/// Memory of the guest in MiB, unless `NEONVM_DIRTY_MIB` sets another: more takes longer than a test may.
const GUEST: u64 = 512;
/// What is left to the guest's own needs, in MiB.
const SPARE: u64 = 64;
/// A time that is long enough for 4 GiB on a busy computer.
const LONG: &str = "900s";

/// The limit of memory that a VM's pod has by its spec.
fn limit_of(cluster: &Cluster, vm: &str) -> u64 {
    let pod = cluster.get(Resource::POD, &cluster.pod(vm));
    let text = pod["spec"]["containers"][0]["resources"]["limits"]["memory"].as_str().unwrap();
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        other => panic!("{other} in {text}"),
    };
    digits.parse::<u64>().unwrap() * unit
}

/// The guest has its memory, the pod is held to its limit, and nothing was killed.
fn lives(cluster: &Cluster, vm: &str, guest: u64, report: &mut String) {
    let object = cluster.vm(vm);
    let uid = object["metadata"]["uid"].as_str().unwrap();
    assert_eq!(object["status"]["restartCount"], Value::from(0), "{}", object["status"]);
    let qemus = Cluster::qemus(uid);
    assert_eq!(qemus.len(), 1, "{qemus:?}");
    let group = Group::from_process(qemus[0], "memory");
    let limit = limit_of(cluster, vm);
    assert_eq!(group.memory_limit(), Some(limit), "{} is not limited", group.directory.display());
    assert_eq!(group.kills(), 0);
    let resident = group.resident();
    assert!(resident > (guest - 2 * SPARE) << 20, "only {resident} bytes are resident: not all was written");
    assert!(resident < limit, "{resident} of {limit}");
    let _ = write!(report, " {} of {} MiB on {};", resident >> 20, limit >> 20, node(cluster, vm));
}

#[test]
fn a_guest_with_all_of_its_memory_written_is_never_killed() {
    need!(possible());
    need!(limits_memory());
    let guest = std::env::var("NEONVM_DIRTY_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(GUEST);
    let room = format!("{}Mi", guest + 1024);
    let cluster = Cluster::with(&["--nodes", "2", "--cpus", "4", "--memory", &room]);
    cluster.idle();
    cluster.run("m", &["--memory", &format!("{guest}Mi")]);
    // Not zeros: pages of zeros are not sent, and the target's stay untouched.
    let fill = format!(
        "mount -t tmpfs -o size={guest}m none /mnt; \
         k=$(($(awk '/MemAvailable/ {{ print $2 }}' /proc/meminfo) - {SPARE} * 1024)); \
         tr '\\0' x < /dev/zero | head -c $(($k * 1024)) > /mnt/all; md5sum < /mnt/all"
    );
    let sum = cluster.inside("m", &fill);
    let mut report = String::from("resident:");
    lives(&cluster, "m", guest, &mut report);
    // It is written again all the time that it is copied.
    let again = "(while :; do tr '\\0' x < /dev/zero | head -c 67108864 | dd of=/mnt/all bs=1M conv=notrunc; done) >/dev/null 2>&1 &";
    cluster.inside("m", again);
    let first = node(&cluster, "m");
    cluster.good(&["vm", "migrate", "m", "--timeout", LONG]);
    assert_ne!(node(&cluster, "m"), first);
    settles(&cluster, "m");
    assert_eq!(cluster.inside("m", "md5sum < /mnt/all"), sum, "the guest's memory is another");
    lives(&cluster, "m", guest, &mut report);
    assert_eq!(cluster.inside("m", "dmesg | grep -ci 'out of memory' || true").trim(), "0");
    println!("{guest} MiB, {report}");
    cluster.down();
}
