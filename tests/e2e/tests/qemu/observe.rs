//! What tests of migrations look at.

use neonvm_e2e::client::Resource;
use neonvm_test_support::eventually_blocking_within;
use serde_json::Value;

use crate::cluster::{Cluster, LIMIT};

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn node(cluster: &Cluster, name: &str) -> String {
    text(&cluster.vm(name), "/status/node").to_owned()
}

pub(crate) fn migration(cluster: &Cluster, name: &str) -> Value {
    cluster.get(Resource::MIGRATION, name)
}

pub(crate) fn is_over(migration: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(migration, "/status/phase"))
}

/// How often a VM was restarted, if nothing of a migration is left: it has one pod, one QEMU and no lock.
fn restarts_when_settled(cluster: &Cluster, name: &str) -> Result<u64, String> {
    let vm = cluster.client().get(Resource::VM, name).map_err(|error| error.to_string())?;
    let pods = cluster.pods_of(name);
    let pods: Vec<&str> = pods.iter().map(|pod| text(pod, "/metadata/name")).collect();
    let qemus = Cluster::qemus(text(&vm, "/metadata/uid"));
    let good = text(&vm, "/status/phase") == "Running"
        && vm.pointer("/status/migration").is_none()
        && pods == [text(&vm, "/status/podName")]
        && qemus.len() == 1;
    match vm["status"]["restartCount"].as_u64() {
        Some(count) if good => Ok(count),
        _ => Err(format!("pods {pods:?}, QEMUs {qemus:?}, {}", vm["status"])),
    }
}

/// Waits until nothing of a migration is left of a VM that was never restarted.
pub(crate) fn settles(cluster: &Cluster, name: &str) {
    settles_after(cluster, name, |restarts| restarts == 0);
}

/// [`settles`], of a VM that was restarted as often as it may be; how often that was.
pub(crate) fn settles_after(cluster: &Cluster, name: &str, may_be: impl Fn(u64) -> bool) -> u64 {
    let last = std::cell::RefCell::new(String::new());
    let settled = || match restarts_when_settled(cluster, name) {
        Ok(restarts) if may_be(restarts) => Some(restarts),
        other => {
            *last.borrow_mut() = format!("{other:?}");
            None
        }
    };
    eventually_blocking_within(LIMIT, || format!("{}\n{}", last.borrow(), cluster.logs()), settled)
}

/// What a guest remembers only if it was never restarted: its boot, a process, memory and a disk.
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
