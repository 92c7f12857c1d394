//! The network of a VM beside that of a plain pod: bytes per second into it, and the time that a small message takes there and
//! back. The same programs serve and send in pods and VMs.

mod pod;

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, ensure};
use kube::api::{Api, DynamicObject, PostParams};
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Phase;
use serde_json::json;

use self::pod::Pod;
use super::super::Setup;
use super::cluster::{Cluster, machines};
use super::watch::Watch;
use super::{NAME_NETWORK as NAME, missing};
use crate::report::Row;

/// Ports of the server: one sends everything back, the other reads it.
const ECHO: u16 = 7;
const SINK: u16 = 9;
/// MiB that are sent to a VM, and to a pod.
const SENT: (u32, u32) = (256, 8192);
/// Messages between pods and VMs, and pings between two VMs.
const MESSAGES: usize = 500;
const PINGS: u32 = 200;

/// All of it, in a cluster of its own.
pub(in super::super) async fn run(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    if let Some(missing) = missing()? {
        return Ok(vec![Row::plain(NAME, "skipped", 0.0, "").note(missing)]);
    }
    let cluster = Cluster::start(setup, &["--nodes", "2", "--cpus", "4"])?;
    cluster.image_of("net:1", &server("busybox"))?;
    let client = cluster.client().await?;
    let mut watch = Watch::open(&client).await?;
    let api = machines(&client);
    let (near, near_overlay) = start(&api, &mut watch, "a", "n1").await?;
    let (far, far_overlay) = start(&api, &mut watch, "b", "n2").await?;
    let busybox = cluster.busybox()?;
    let from = Pod::beside(near, 200, &busybox)?;
    let (mut same, mut other) = (Pod::beside(near, 201, &busybox)?, Pod::beside(far, 200, &busybox)?);
    for pod in [&mut same, &mut other] {
        pod.serve(&server(&busybox.display().to_string()))?;
    }
    let mut rows = Vec::new();
    for (place, plain, vm) in
        [("the same node", same.address(), near), ("another node", other.address(), far)]
    {
        rows.extend(to_vm(&from, place, (plain, vm)).await?);
    }
    ensure!(near_overlay != far_overlay, "two VMs with one overlay address");
    rows.extend(between_vms(&cluster, &from, (other.address(), far_overlay))?);
    drop((from, same, other));
    for name in ["a", "b"] {
        watch.delete(&client, name).await?;
    }
    cluster.down()?;
    Ok(rows)
}

/// The line of shell that serves both ports.
fn server(busybox: &str) -> String {
    format!(
        "{busybox} nc -ll -p {ECHO} -e {busybox} cat & exec {busybox} nc -ll -p {SINK} -e {busybox} dd of=/dev/null bs=64k"
    )
}

/// The line of shell that sends so many MiB, and whose last line has the time.
fn sender(busybox: &str, to: IpAddr, mebibytes: u32) -> String {
    let count = mebibytes * 16;
    format!("{busybox} time {busybox} nc {to} {SINK} -e {busybox} dd if=/dev/zero bs=64k count={count} 2>&1")
}

/// Starts a VM; its pod's address and the one on the overlay.
async fn start(
    api: &Api<DynamicObject>,
    watch: &mut Watch,
    name: &str,
    node: &str,
) -> anyhow::Result<(IpAddr, IpAddr)> {
    let object = serde_json::from_value(json!({
        "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
            "nodeSelector": {"kubernetes.io/hostname": node}, "extraNetwork": {"enable": true},
            "guest": {"cpus": {"min": 1, "max": 1, "use": 1},
                "memorySlotSize": "256Mi", "memorySlots": {"min": 1, "max": 1, "use": 1},
                "rootDisk": {"image": "net:1"}, "ports": [{"port": ECHO}, {"port": SINK}]}}
    }))?;
    api.create(&PostParams::default(), &object).await?;
    let mut addresses = None;
    let running = |vm: &VirtualMachine| {
        let Some(status) = vm.status.as_ref().filter(|status| status.phase == Some(Phase::Running)) else {
            return false;
        };
        let overlay = status.extra_net_ip.parse().ok();
        addresses = status.pod_ip.parse().ok().zip(overlay);
        addresses.is_some()
    };
    watch.machine(name, "Running", running).await?;
    addresses.context("a VM without addresses")
}

/// From a pod to a VM, beside a plain pod in its place.
async fn to_vm(from: &Pod, place: &str, (plain, vm): (IpAddr, IpAddr)) -> anyhow::Result<Vec<Row>> {
    let (plain_time, vm_time) = (latency(from, plain).await?, latency(from, vm).await?);
    let (plain_rate, vm_rate) = (rate(from, plain, SENT.1)?, rate(from, vm, SENT.0)?);
    let what = |what: &str| format!("pod → VM on {place}: {what}");
    Ok(vec![
        Row::plain(NAME, &what("a message there and back"), vm_time, "µs")
            .note(format!("median of {MESSAGES}; a plain pod {plain_time:.0} µs")),
        Row::plain(NAME, &what("throughput"), vm_rate, "Mbit/s")
            .note(format!("{} MiB; a plain pod {plain_rate:.0} Mbit/s", SENT.0)),
    ])
}

/// From one VM to another over the overlay, beside two plain pods of the same nodes.
fn between_vms(cluster: &Cluster, from: &Pod, (plain, vm): (IpAddr, IpAddr)) -> anyhow::Result<Vec<Row>> {
    let inside = |line: &str| cluster.neonctl(&["vm", "ssh", "a", "--", line]);
    let ping = |busybox: &str, to: IpAddr| format!("{busybox} ping -q -i 0.02 -c {PINGS} {to}");
    let vm_time = average(&inside(&ping("busybox", vm))?)?;
    let plain_time = average(&from.shell(&ping(&from.busybox(), plain))?)?;
    let vm_rate = megabits(&inside(&sender("busybox", vm, SENT.0))?, SENT.0)?;
    let plain_rate = rate(from, plain, SENT.1)?;
    Ok(vec![
        Row::plain(NAME, "VM → VM of another node, overlay: a ping", vm_time, "µs")
            .note(format!("average of {PINGS}; two plain pods {plain_time:.0} µs")),
        Row::plain(NAME, "VM → VM of another node, overlay: throughput", vm_rate, "Mbit/s")
            .note(format!("{} MiB; two plain pods {plain_rate:.0} Mbit/s", SENT.0)),
    ])
}

/// Median time of a message there and back, in microseconds.
async fn latency(from: &Pod, to: IpAddr) -> anyhow::Result<f64> {
    from.messages(SocketAddr::new(to, ECHO), MESSAGES).await
}

fn rate(from: &Pod, to: IpAddr, mebibytes: u32) -> anyhow::Result<f64> {
    megabits(&from.shell(&sender(&from.busybox(), to, mebibytes))?, mebibytes)
}

/// Mbit/s from the line of `time` for the elapsed time: `real 1m 2.34s` after a tab.
fn megabits(text: &str, mebibytes: u32) -> anyhow::Result<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("real"))
        .with_context(|| format!("time wrote {text:?}"))?;
    let (minutes, seconds) = line.trim().trim_end_matches('s').split_once("m ").context("no minutes")?;
    let seconds = minutes.parse::<f64>()? * 60.0 + seconds.parse::<f64>()?;
    Ok(f64::from(mebibytes) * 1_048_576.0 * 8.0 / 1e6 / seconds.max(0.01))
}

/// Microseconds from the last line of `ping`: `round-trip min/avg/max = 0.034/0.056/0.101 ms`.
fn average(text: &str) -> anyhow::Result<f64> {
    let numbers = text.split("min/avg/max = ").nth(1).with_context(|| format!("ping wrote {text:?}"))?;
    let average: f64 = numbers.split('/').nth(1).context("no average")?.parse()?;
    Ok(average * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_the_programs_is_read() {
        let time = "4096+0 records out\nreal\t0m 2.00s\nuser\t0m 0.01s\nsys\t0m 0.09s\n";
        assert!((megabits(time, 256).unwrap() - 1_073.741_824).abs() < 1e-6);
        assert!(megabits("nc: timed out\n", 256).is_err());
        let ping = "3 packets transmitted, 3 packets received, 0% packet loss\nround-trip min/avg/max = 0.034/0.056/0.101 ms\n";
        assert!((average(ping).unwrap() - 56.0).abs() < 1e-9);
    }
}
