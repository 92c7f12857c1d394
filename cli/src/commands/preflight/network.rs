//! What the network of pods carries. Pure.

use serde_json::Value;

use crate::commands::doctor::check::{Check, fail, ok, warn};
use crate::commands::object::text;

/// Smallest MTU that an overlay of ours fits into: 1280, as IPv6 has it, and the tunnel's own 50.
const SMALLEST: u64 = 1330;

/// The MTU of the network, where it is written down.
pub(super) fn mtu(networks: &[Value]) -> Check {
    let found = networks.iter().find_map(|map| Some((text(map, "/metadata/name"), of_map(map)?)));
    let check = match found {
        None => ok("mtu", "not recorded by the network plugin: compare it with ip link on a node"),
        Some((name, mtu)) if mtu < SMALLEST => warn(
            "mtu",
            format!("{mtu} in {name}: too small for the overlay's packets"),
            format!("raise it to {SMALLEST} or more, or omit --overlay"),
        ),
        Some((name, mtu)) => ok("mtu", format!("{mtu} in {name}")),
    };
    check.at("cluster")
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

pub(super) fn multus(is_wanted: bool, is_there: bool) -> Option<Check> {
    (is_wanted && !is_there).then(|| {
        fail(
            "multus",
            "--overlay multus: the cluster has no Multus",
            "install Multus, or choose --overlay none: VMs then have the network of their pods",
        )
        .at("cluster")
    })
}

/// A port without authentication is reported each time that it is chosen.
pub(super) fn upstream_agents(is_wanted: bool) -> Option<Check> {
    is_wanted.then(|| {
        warn(
            "upstream-agents",
            "every client that reaches port 10299 of the pods neonvm-upstream-agents in kube-system may request sizes for VMs",
            "when all nodes have the agents of this release: neonctl install --upstream-agents=false",
        )
        .at("cluster")
    })
}
