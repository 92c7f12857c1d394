//! What each node has: container runtime, KVM, kernel. Pure.

use neonvm_deploy::release;
use serde_json::Value;

use super::facts::{Facts, Source};
use super::finding::{Finding, fail, ok, warn};
use crate::commands::object::{is_true, text};

/// Oldest containerd with image volumes.
const CONTAINERD: (u64, u64) = (2, 1);
/// Oldest CRI-O with image volumes.
const CRIO: (u64, u64) = (1, 33);
/// Oldest kubelet that mounts images and resizes pods as VMs need it, without a feature gate.
const KUBELET: (u64, u64) = (1, 35);
/// Oldest kernel with what runners use of cgroups.
const KERNEL: (u64, u64) = (5, 10);
/// Resources by which a device plugin hands out KVM end so.
const KVM: &str = "/kvm";
/// Ours hands this out on every node that can run VMs.
const NODE: &str = "/node";

/// Name of the pods of the node service, and the resource that it hands out on every node that can run VMs.
const PLUGIN: &str = "neonvm-node";
const DEVICE: &str = neonvm_types::node_protocol::RESOURCE;
/// What a node has none of that has no tap devices.
const TUN: &str = "neonvm/tun";

/// All nodes, before an installation.
pub(super) fn all(facts: &Facts) -> Vec<Finding> {
    if facts.is_local() {
        return Vec::new();
    }
    if let Some(missing) = facts.missing(Source::Nodes) {
        let remedy = "request permission to list nodes, so that they can be checked";
        return vec![warn("nodes", missing, remedy).at("cluster")];
    }
    let nodes = facts.all(Source::Nodes);
    let mut checks = vec![ready(nodes)];
    for node in nodes {
        let name = text(node, "/metadata/name");
        let found = [runtime(node, facts.wanted.copies_root_disks), kvm(node, facts), platform(node)];
        checks.extend(old_kubelet(node, &facts.version).into_iter().chain(found).map(|check| check.at(name)));
    }
    checks
}

/// Nodes without devices although the pod of the node service is ready there, or which have lost that pod: no VM can be placed on them.
pub(super) fn devices(facts: &Facts) -> Vec<Finding> {
    let nodes = facts.all(Source::Nodes).iter();
    let without =
        nodes.filter(|node| !offers_devices(node) && (has_plugin(facts, node) || is_left(facts, node)));
    let check = |node: &Value| {
        let name = text(node, "/metadata/name");
        if is_left(facts, node) {
            let away = "the node service does not run there any more: no VM is placed there, and none grows";
            let remedy = format!("see its pods: kubectl describe daemonset -n {} {PLUGIN}", facts.namespace);
            return fail("devices", away, remedy).at(name);
        }
        if resource(node, TUN) == Some("0") {
            let lacks =
                "the node has no /dev/net/tun, so no network of a VM can be made: no VM is placed there";
            return fail("devices", lacks, "load the module on that node: modprobe tun").at(name);
        }
        fail(
            "devices",
            "the node service is ready, but the kubelet offers no neonvm/node: no VM can be placed there",
            format!(
                "see its log and that of the kubelet: kubectl logs -n {} -l app.kubernetes.io/name={PLUGIN}; it \
                 must reach the kubelet in /var/lib/kubelet/device-plugins of its node",
                facts.namespace
            ),
        )
        .at(name)
    };
    without.map(check).collect()
}

fn has_plugin(facts: &Facts, node: &Value) -> bool {
    plugin(facts, node).is_some_and(|pod| is_true(pod, "Ready"))
}

/// Whether no pod of the node service is on a ready node of an installation that has had one: the kubelet keeps its resource, with 0 of it.
fn is_left(facts: &Facts, node: &Value) -> bool {
    let named = |object: &Value| text(object, "/metadata/name") == PLUGIN;
    facts.all(Source::Workloads).iter().any(named)
        && facts.missing(Source::Pods).is_none()
        && is_true(node, "Ready")
        && resource(node, DEVICE) == Some("0")
        && plugin(facts, node).is_none()
}

fn plugin<'a>(facts: &'a Facts, node: &Value) -> Option<&'a Value> {
    let name = text(node, "/metadata/name");
    facts.all(Source::Pods).iter().find(|pod| {
        text(pod, "/metadata/labels/app.kubernetes.io~1name") == PLUGIN && text(pod, "/spec/nodeName") == name
    })
}

fn offers_devices(node: &Value) -> bool {
    resource(node, DEVICE).is_some_and(|count| count != "0")
}

fn resource<'a>(node: &'a Value, name: &str) -> Option<&'a str> {
    node.pointer("/status/allocatable").and_then(|all| all.get(name)).and_then(Value::as_str)
}

fn ready(nodes: &[Value]) -> Finding {
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

impl Facts {
    /// Whether API server and nodes have image volumes; none: it cannot be found out.
    pub(crate) fn image_volumes(&self) -> Option<bool> {
        let lacks = |node: &Value| lacks_image_volumes(node) || old_kubelet(node, &self.version).is_some();
        if self.all(Source::Nodes).iter().any(lacks) { Some(false) } else { self.keeps_image_volumes }
    }
}

/// Whether the container runtime of a node is known to have no image volumes.
fn lacks_image_volumes(node: &Value) -> bool {
    let (name, version) = runtime_of(node);
    let found = release(version).map(|found| (found.0, found.1));
    oldest(name).zip(found).is_some_and(|(oldest, found)| found < oldest)
}

/// A kubelet that is older than what its API server lets expect. An older API server has the finding of [`super::cluster::version`].
fn old_kubelet(node: &Value, server: &str) -> Option<Finding> {
    let version = text(node, "/status/nodeInfo/kubeletVersion");
    let is_old = |text: &str| release(text).map(|found| (found.0, found.1) < KUBELET);
    if is_old(server) != Some(false) || is_old(version) != Some(true) {
        return None;
    }
    let (major, minor) = KUBELET;
    Some(warn(
        "kubelet",
        format!(
            "{version} is older than the API server: before {major}.{minor} it mounts no images, and may not resize pods"
        ),
        "upgrade the kubelet; with --root-disk auto VMs copy their root disks until then, with image-volume they do not start there",
    ))
}

/// The container runtime: without image volumes VMs whose disk comes in an image do not start, unless it is copied.
fn runtime(node: &Value, copies: bool) -> Finding {
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
fn kvm(node: &Value, facts: &Facts) -> Finding {
    let allocatable = node.pointer("/status/allocatable").and_then(Value::as_object);
    let found = allocatable.and_then(|all| all.keys().find(|name| name.ends_with(KVM)));
    let has_none =
        |resource: &str| allocatable.and_then(|all| all.get(resource)).and_then(Value::as_str) == Some("0");
    match found {
        Some(name) if !has_none(name) => ok("kvm", format!("available to pods as {name}")),
        // A kubelet keeps the resources of a device plugin that has gone, with 0 of each.
        Some(name) if has_none(&name.replace(KVM, NODE)) => ok("kvm", "unknown: no device plugin runs"),
        Some(name) => warn(
            "kvm",
            format!("{name} is 0: VMs are emulated"),
            "check it on that node: neonctl doctor --local; virtualisation must be enabled and the module kvm loaded",
        ),
        None if has_plugin(facts, node) => ok("kvm", "unknown: the node offers no devices"),
        None => ok("kvm", "unknown until a device plugin runs"),
    }
}

fn platform(node: &Value) -> Finding {
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
