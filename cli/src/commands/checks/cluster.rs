//! API server, version, rights, image volumes, Pod Security and network of a cluster. Pure.

use std::time::Duration;

use neonvm_deploy::release;
use serde_json::Value;

use super::facts::{Facts, Source};
use super::finding::{Finding, fail, ok, warn};
use crate::commands::object::text;

/// An answer that takes longer is slow.
const SLOW: Duration = Duration::from_secs(1);
/// Clocks that differ by more, in milliseconds, lead to wrong conclusions: the server's has whole seconds.
const SKEW: i64 = 2000;
/// Oldest Kubernetes: it names the node in tokens and decides by CEL.
const OLDEST: (u64, u64) = (1, 31);
/// From here pods are resized in place and image volumes are on by default.
const WHOLE: (u64, u64) = (1, 35);
const NAMED: usize = 5;
/// Label of a namespace with the level of Pod Security that is enforced.
const LEVEL: &str = "/metadata/labels/pod-security.kubernetes.io~1enforce";

pub(super) fn latency(facts: &Facts) -> Vec<Finding> {
    let detail = format!("{} ms", facts.clock.latency.as_millis());
    let check = if facts.clock.latency > SLOW {
        let remedy = "check the load of the API server and the network to it";
        warn("api", format!("reachable, but slow: {detail}"), remedy)
    } else {
        ok("api", detail)
    };
    vec![check.at("cluster")]
}

pub(super) fn skew(facts: &Facts) -> Vec<Finding> {
    let Some(server) = facts.clock.server else {
        return vec![ok("clock", "the server does not report its time").at("cluster")];
    };
    // The server's time has been cut to whole seconds: on average half a one is missing.
    let server = server.as_millisecond().saturating_add(500);
    let difference = server.saturating_sub(facts.clock.own.as_millisecond());
    if difference.abs() <= SKEW {
        return vec![ok("clock", "the clocks of server and client agree").at("cluster")];
    }
    let way = if difference < 0 { "behind" } else { "ahead of" };
    let (seconds, tenths) = (difference.abs() / 1000, difference.abs() % 1000 / 100);
    let check = warn(
        "clock",
        format!("the server's clock is {seconds}.{tenths} s {way} this host's clock"),
        "synchronise the clocks, for example with chrony or systemd-timesyncd",
    );
    vec![check.at("cluster")]
}

pub(super) fn version(facts: &Facts) -> Vec<Finding> {
    let text = facts.version.as_str();
    let check = match release(text) {
        Some((major, minor, _)) if (major, minor) < OLDEST => fail(
            "kubernetes",
            format!("Kubernetes {text} is too old: 1.31 is the oldest supported version"),
            "upgrade the cluster",
        ),
        Some((major, minor, _)) if (major, minor) < WHOLE => warn(
            "kubernetes",
            format!(
                "Kubernetes {text}: before 1.35 pods of VMs request nothing, and image volumes are off by default"
            ),
            "upgrade to 1.35; until then other schedulers do not see what a VM uses, whatever feature gates are on, and each \
             pod copies the root disk of its VM unless API server and kubelets have the feature gate ImageVolume",
        ),
        Some(_) => ok("kubernetes", text),
        None => warn(
            "kubernetes",
            format!("the server reports version {text:?}, which cannot be parsed"),
            "set scheduler.kubeSchedulerImage, whose default depends on the version",
        ),
    };
    vec![check.at("cluster")]
}

pub(super) fn rights(facts: &Facts) -> Vec<Finding> {
    let missing = &facts.wanted.missing;
    if missing.is_empty() {
        return vec![ok("rights", "all objects of an installation may be applied").at("client")];
    }
    let shown: Vec<String> = missing.iter().take(NAMED).map(ToString::to_string).collect();
    let more = missing.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let detail = format!("you lack permission to {}{more}", shown.join(", "));
    let remedy = "install with the context of an administrator (cluster role cluster-admin): --context";
    vec![fail("rights", detail, remedy).at("client")]
}

pub(super) fn image_volumes(facts: &Facts) -> Vec<Finding> {
    let Some(has) = facts.keeps_image_volumes.filter(|_| !facts.is_local()) else { return Vec::new() };
    let check = match (has, facts.wanted.copies_root_disks) {
        (true, _) => ok("image-volumes", "supported by the API server"),
        (false, true) => ok("image-volumes", "none: each pod copies the root disk of its VM"),
        (false, false) => warn(
            "image-volumes",
            "image volumes are disabled in the API server (feature gate ImageVolume)",
            "VMs whose root disk is in an image do not start; enable it for API server and kubelets, or install with \
             --root-disk auto",
        ),
    };
    vec![check.at("cluster")]
}

/// Services need what Pod Security calls privileged. The namespace that an installation makes has that level.
pub(super) fn pod_security(facts: &Facts) -> Vec<Finding> {
    let (name, [space, ..]) = (&facts.namespace, facts.all(Source::Space)) else { return Vec::new() };
    let level = text(space, LEVEL);
    let check = match level {
        "" | "privileged" => ok("pod-security", if level.is_empty() { "not set by a label" } else { level }),
        _ => warn(
            "pod-security",
            format!("{level} is enforced: pods of the overlay's controller are rejected"),
            format!(
                "kubectl label namespace {name} pod-security.kubernetes.io/enforce=privileged --overwrite"
            ),
        ),
    };
    vec![check.at(name.as_str())]
}

/// Smallest MTU that an overlay of ours fits into: 1280, as IPv6 has it, and the tunnel's own 50.
const SMALLEST: u64 = 1330;

/// The MTU of the network, where it is written down.
pub(super) fn mtu(facts: &Facts) -> Vec<Finding> {
    if facts.is_local() {
        return Vec::new();
    }
    let found =
        facts.all(Source::Networks).iter().find_map(|map| Some((text(map, "/metadata/name"), of_map(map)?)));
    let check = match found {
        None => ok("mtu", "not recorded by the network plugin: compare it with ip link on a node"),
        Some((name, mtu)) if mtu < SMALLEST => warn(
            "mtu",
            format!("{mtu} in {name}: too small for the overlay's packets"),
            format!("raise it to {SMALLEST} or more, or omit --overlay"),
        ),
        Some((name, mtu)) => ok("mtu", format!("{mtu} in {name}")),
    };
    vec![check.at("cluster")]
}

/// The MTU in a config map: of Cilium, Calico, or within flannel's JSON. 0 means: it is detected.
fn of_map(map: &Value) -> Option<u64> {
    let direct =
        ["mtu", "veth_mtu"].iter().find_map(|key| text(map, &format!("/data/{key}")).parse::<u64>().ok());
    let flannel = || {
        let config: Value = serde_json::from_str(text(map, "/data/net-conf.json")).ok()?;
        config.pointer("/Backend/MTU").and_then(Value::as_u64)
    };
    direct.or_else(flannel).filter(|mtu| *mtu > 0)
}

pub(super) fn multus(facts: &Facts) -> Vec<Finding> {
    if !facts.wanted.multus || !facts.all(Source::Multus).is_empty() {
        return Vec::new();
    }
    let check = fail(
        "multus",
        "--overlay multus: the cluster has no Multus",
        "install Multus, or choose --overlay none: VMs then have the network of their pods",
    );
    vec![check.at("cluster")]
}

/// A port without authentication is reported each time that it is chosen.
pub(super) fn upstream_agents(facts: &Facts) -> Vec<Finding> {
    if !facts.wanted.upstream_agents {
        return Vec::new();
    }
    let check = warn(
        "upstream-agents",
        "every client that reaches port 10299 of the pods neonvm-upstream-agents in kube-system may request sizes for VMs",
        "when all nodes have the agents of this release: neonctl install --upstream-agents=false",
    );
    vec![check.at("cluster")]
}
