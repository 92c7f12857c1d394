//! What each node has: container runtime, KVM, kernel. Pure.

use neonvm_deploy::release;
use serde_json::Value;

use crate::commands::doctor::check::{Check, ok, warn};
use crate::commands::health::Part;
use crate::commands::object::{is_true, text};

/// Oldest containerd with image volumes.
const CONTAINERD: (u64, u64) = (2, 1);
/// Oldest CRI-O with image volumes.
const CRIO: (u64, u64) = (1, 33);
/// Oldest kernel with what runners use of cgroups.
const KERNEL: (u64, u64) = (5, 10);
/// Resources by which a device plugin hands out KVM end so.
const KVM: &str = "/kvm";
/// Our device plugin hands this out on every node that can run VMs.
const TUN: &str = "/tun";

/// All nodes; `copies`: root disks are copied out of their images.
pub(super) fn all(nodes: &Part, copies: bool) -> Vec<Check> {
    if let Some(missing) = nodes.missing() {
        return vec![
            warn("nodes", missing, "request permission to list nodes, so that they can be checked")
                .at("cluster"),
        ];
    }
    let nodes = nodes.objects();
    let mut checks = vec![ready(nodes)];
    for node in nodes {
        let name = text(node, "/metadata/name");
        checks.extend([runtime(node, copies), kvm(node), platform(node)].map(|check| check.at(name)));
    }
    checks
}

fn ready(nodes: &[Value]) -> Check {
    let down = nodes.iter().filter(|node| !is_true(node, "Ready"));
    let down: Vec<&str> = down.map(|node| text(node, "/metadata/name")).collect();
    let check = if down.len() == nodes.len() {
        warn("nodes", "no node is Ready", "services start when a node is Ready; see: kubectl get nodes")
    } else if down.is_empty() {
        ok("nodes", format!("{} Ready", nodes.len()))
    } else {
        warn("nodes", format!("not Ready: {}", down.join(", ")), "see: kubectl describe node")
    };
    check.at("cluster")
}

/// Oldest version with image volumes of the container runtime with this name.
fn oldest(name: &str) -> Option<(u64, u64)> {
    match name {
        "containerd" => Some(CONTAINERD),
        "cri-o" => Some(CRIO),
        _ => None,
    }
}

/// Name and version of a node's container runtime.
fn runtime_of(node: &Value) -> (&str, &str) {
    let shown = text(node, "/status/nodeInfo/containerRuntimeVersion");
    shown.split_once("://").unwrap_or((shown, ""))
}

/// Whether the container runtime of a node is known to have no image volumes.
pub(super) fn lacks_image_volumes(node: &Value) -> bool {
    let (name, version) = runtime_of(node);
    let found = release(version).map(|found| (found.0, found.1));
    oldest(name).zip(found).is_some_and(|(oldest, found)| found < oldest)
}

/// The container runtime: without image volumes VMs whose disk comes in an image do not start, unless it is copied.
fn runtime(node: &Value, copies: bool) -> Check {
    let (name, version) = runtime_of(node);
    let detail = format!("{name} {version}").trim_end().to_owned();
    match oldest(name) {
        Some((major, minor)) if lacks_image_volumes(node) => {
            let detail = format!("{detail} has no image volumes; {major}.{minor} has");
            if copies {
                return ok("runtime", detail);
            }
            warn(
                "runtime",
                detail,
                "VMs whose root disk is in an image do not start there; upgrade it, or install with --root-disk auto",
            )
        }
        Some(_) if release(version).is_some() => ok("runtime", detail),
        _ => warn(
            "runtime",
            format!("unknown runtime {:?}", text(node, "/status/nodeInfo/containerRuntimeVersion")),
            "containerd 2.1 and CRI-O 1.33 have image volumes",
        ),
    }
}

/// A Node does not report whether it has KVM; the resources of a device plugin do.
fn kvm(node: &Value) -> Check {
    let allocatable = node.pointer("/status/allocatable").and_then(Value::as_object);
    let found = allocatable.and_then(|all| all.keys().find(|name| name.ends_with(KVM)));
    let has_none =
        |resource: &str| allocatable.and_then(|all| all.get(resource)).and_then(Value::as_str) == Some("0");
    match found {
        Some(name) if !has_none(name) => ok("kvm", format!("available to pods as {name}")),
        // A kubelet keeps the resources of a device plugin that has gone, with 0 of each.
        Some(name) if has_none(&name.replace(KVM, TUN)) => ok("kvm", "unknown: no device plugin runs"),
        Some(name) => warn(
            "kvm",
            format!("{name} is 0: VMs are emulated"),
            "check it on that node: neonctl doctor --local; virtualisation must be enabled and the module kvm loaded",
        ),
        None => ok("kvm", "unknown until the installation"),
    }
}

/// Architecture, operating system, kernel.
fn platform(node: &Value) -> Check {
    let info = |key: &str| text(node, &format!("/status/nodeInfo/{key}"));
    let (architecture, system, kernel) =
        (info("architecture"), info("operatingSystem"), info("kernelVersion"));
    let detail = format!("{architecture}, {}, Linux {kernel}", info("osImage"));
    if system != "linux" && !system.is_empty() {
        return warn(
            "platform",
            format!("{system}: VMs do not run there"),
            "exclude it with nodeSelector values",
        );
    }
    if architecture == "arm64" {
        return warn(
            "platform",
            detail,
            "this requires images of that architecture in the registry, or nodeSelector values that exclude the node",
        );
    }
    match kernel_release(kernel) {
        Some(found) if found < KERNEL => {
            warn("platform", format!("{detail} is old"), "upgrade to Linux 5.10 or later")
        }
        _ => ok("platform", detail),
    }
}

/// Of `6.1.0-28-amd64` and the like.
fn kernel_release(text: &str) -> Option<(u64, u64)> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
