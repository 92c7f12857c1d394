//! Namespaces of nodes and pods.

use std::io;
use std::net::Ipv4Addr;

use super::command::{Link, ask, ip, links};
use super::{Peer, namespace_path, open_namespace};
use neonvm_api::overlay::{BRIDGE, OVERHEAD_V4};

use crate::naming;
use crate::{NamespaceNetwork, sys};

fn gateway(net: &NamespaceNetwork) -> io::Result<Ipv4Addr> {
    net.pods.nth(1).ok_or_else(|| io::Error::other(format!("{} is too small for pods", net.pods)))
}

/// The node's own interfaces and routes.
pub(super) async fn set_up_node(cluster: &str, node: &str, net: &NamespaceNetwork) -> io::Result<()> {
    let namespace = naming::node_namespace(cluster, node);
    let there = links(Some(&namespace)).await?;
    let gateway = gateway(net)?;
    let host = net.underlay.nth(u32::try_from(net.underlay.size()).unwrap_or(u32::MAX).saturating_sub(2));
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("addr replace {}/{} dev up0", net.address, net.underlay.length()),
        "link set up0 up".to_owned(),
    ];
    if !there.iter().any(|link| link.name == "br0") {
        lines.push("link add br0 type bridge forward_delay 0".into());
    }
    lines.push(format!("addr replace {gateway}/{} dev br0", net.pods.length()));
    lines.push("link set br0 up".into());
    if let Some(host) = host {
        lines.push(format!("route replace default via {host} dev up0"));
    }
    ip(Some(&namespace), &lines).await?;
    let namespace = open_namespace(&namespace)?;
    let switch = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    tokio::task::spawn_blocking(move || sys::in_network(namespace, switch)).await.map_err(io::Error::other)?
}

/// Connects a pod to its node's bridge, and by these interfaces to the overlay; what is there already is kept.
pub(super) async fn attach(
    cluster: &str,
    node: &str,
    net: &NamespaceNetwork,
    uid: &str,
    (address, interfaces): (Ipv4Addr, &[String]),
) -> io::Result<()> {
    let (own, pod) = (naming::node_namespace(cluster, node), naming::pod_namespace(cluster, node, uid));
    let (link, gateway) = (naming::pod_link(uid), gateway(net)?);
    if namespace_path(&pod).exists() {
        let routes = ask(Some(&pod), &["-4", "route", "show", "default"]).await.unwrap_or_default();
        // The default route is what is set up last.
        if routes.contains(&format!("via {gateway} dev eth0")) {
            return Ok(());
        }
        detach(cluster, node, uid).await?;
    }
    let mut make = vec![
        format!("netns add {pod}"),
        format!("link add {link} netns {own} type veth peer name eth0 netns {pod}"),
    ];
    let mut outside = vec![format!("link set {link} master br0 up")];
    let mut inside = vec![
        "link set lo up".to_owned(),
        format!("addr add {address}/{} dev eth0", net.pods.length()),
        "link set eth0 up".to_owned(),
    ];
    if !interfaces.is_empty() {
        let mtu = overlay(&own).await?;
        for (index, interface) in interfaces.iter().enumerate() {
            let link = naming::overlay_link(uid, index);
            let ends = format!("type veth peer name {interface} mtu {mtu} netns {pod}");
            make.push(format!("link add {link} mtu {mtu} netns {own} {ends}"));
            outside.push(format!("link set {link} master {BRIDGE} up"));
            inside.push(format!("link set {interface} up"));
        }
        outside.push(format!("link set {BRIDGE} up"));
    }
    inside.push(format!("route add default via {gateway} dev eth0"));
    ip(None, &make).await?;
    ip(Some(&own), &outside).await?;
    ip(Some(&pod), &inside).await
}

/// Greatest packet of the overlay's bridge in a node's namespace. Either this or the overlay makes the bridge.
async fn overlay(namespace: &str) -> io::Result<u32> {
    let mtu = |links: &[Link], name: &str| links.iter().find(|link| link.name == name).map(|link| link.mtu);
    let there = links(Some(namespace)).await?;
    if let Some(mtu) = mtu(&there, BRIDGE) {
        return Ok(mtu);
    }
    let missing = |name: &str| io::Error::other(format!("the node has no interface {name}"));
    let size = mtu(&there, "up0").ok_or_else(|| missing("up0"))?.saturating_sub(OVERHEAD_V4);
    let make = [format!("link add {BRIDGE} mtu {size} type bridge forward_delay 0")];
    // Another process may be faster.
    let made = ip(Some(namespace), &make).await;
    match mtu(&links(Some(namespace)).await?, BRIDGE) {
        Some(mtu) => Ok(mtu),
        None => made.and(Err(missing(BRIDGE))),
    }
}

/// Removes the namespace of a pod; its interfaces go with it.
pub(super) async fn detach(cluster: &str, node: &str, uid: &str) -> io::Result<()> {
    remove(&naming::pod_namespace(cluster, node, uid)).await?;
    // A process that still holds the namespace would keep the link alive.
    let (own, link) = (naming::node_namespace(cluster, node), naming::pod_link(uid));
    let overlay = naming::overlay_link_prefix(uid);
    let is_left = |name: &str| name == link || name.starts_with(&overlay);
    let left = async || {
        let links = links(Some(&own)).await?;
        Ok::<_, io::Error>(
            links.into_iter().map(|link| link.name).filter(|name| is_left(name)).collect::<Vec<_>>(),
        )
    };
    for name in left().await? {
        // It may be gone by now: the kernel removes it after its namespace.
        if let Err(error) = ip(Some(&own), &[format!("link del {name}")]).await
            && left().await?.contains(&name)
        {
            return Err(error);
        }
    }
    Ok(())
}

async fn remove(name: &str) -> io::Result<()> {
    if !namespace_path(name).exists() {
        return Ok(());
    }
    match ip(None, &[format!("netns del {name}")]).await {
        // What `ip` cannot unmount is a file that a killed set-up left behind.
        Err(_) if std::fs::remove_file(namespace_path(name)).is_ok() => Ok(()),
        done => done,
    }
}

/// Removes all namespaces with a prefix, except some.
pub(super) async fn sweep(prefix: &str, keep: &[String]) -> io::Result<()> {
    for name in names(prefix)? {
        if !keep.contains(&name) {
            tracing::info!(name, "removing a network namespace that was left behind");
            remove(&name).await?;
        }
    }
    Ok(())
}

pub(super) fn names(prefix: &str) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(namespace_path("")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| name.starts_with(prefix)).collect())
}

/// Makes the routes to other nodes' pods what they should be.
pub(super) async fn set_peers(
    cluster: &str,
    node: &str,
    net: &NamespaceNetwork,
    peers: &[Peer],
) -> io::Result<()> {
    let namespace = naming::node_namespace(cluster, node);
    let routes = ask(Some(&namespace), &["-4", "route", "show", "dev", "up0"]).await?;
    let wanted = |peer: &&Peer| peer.via != net.address && net.underlay.contains(peer.via);
    let mut lines: Vec<String> = peers
        .iter()
        .filter(wanted)
        .map(|peer| format!("route replace {} via {} dev up0", peer.pods, peer.via))
        .collect();
    for line in routes.lines() {
        let destination = line.split_whitespace().next().unwrap_or("");
        let is_ours = peers.iter().any(|peer| peer.pods.to_string() == destination);
        if line.contains(" via ") && destination != "default" && !is_ours {
            lines.push(format!("route del {destination} dev up0"));
        }
    }
    ip(Some(&namespace), &lines).await
}
