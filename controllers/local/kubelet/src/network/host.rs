//! What the nodes of a cluster share in the host's namespace: the bridge of the underlay, routes to the pods, and the
//! table that hides pods behind the host's address. Several nodes may set it up at a time.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::command::{ask, ip, links, nft};
use crate::NamespaceNetwork;
use crate::files;
use crate::naming::{self, Subnet};

/// Directory for the lock of a cluster and what was changed of the host.
pub(super) fn directory(cluster: &str) -> PathBuf {
    Path::new("/run/neonvm").join(naming::cluster_hash(cluster))
}

/// File that names the interface on which forwarding was switched on.
pub(super) const FORWARDING: &str = "forwarding";

fn lock(cluster: &str) -> io::Result<File> {
    let directory = directory(cluster);
    std::fs::create_dir_all(&directory)?;
    let file = File::options().write(true).create(true).truncate(false).open(directory.join("lock"))?;
    files::lock(&file, true)?;
    Ok(file)
}

fn host_address(underlay: Subnet) -> io::Result<std::net::Ipv4Addr> {
    let last = u32::try_from(underlay.size()).unwrap_or(u32::MAX).saturating_sub(2);
    underlay.nth(last).ok_or_else(|| io::Error::other(format!("{underlay} is too small for an underlay")))
}

/// Refuses addresses that lead elsewhere already.
async fn check_free(subnet: Subnet, bridge: &str) -> io::Result<()> {
    let text = ask(None, &["-4", "route", "show", "table", "all"]).await?;
    for line in text.lines() {
        let mut words =
            line.split_whitespace().skip_while(|word| matches!(*word, "unicast" | "local" | "broadcast"));
        let (Some(destination), true) = (words.next(), !line.contains(&format!("dev {bridge}"))) else {
            continue;
        };
        if destination != "default"
            && let Ok(other) = destination.parse::<Subnet>()
            && other.length() > 0
            && other.overlaps(subnet)
        {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!(
                    "the addresses {subnet} are in use on this machine (route \"{}\"); choose others",
                    line.trim()
                ),
            ));
        }
    }
    Ok(())
}

pub(super) async fn set_up(cluster: &str, node: &str, net: &NamespaceNetwork) -> io::Result<()> {
    let owned = cluster.to_owned();
    // Waits for other nodes at most as long as their batches take.
    let _lock = tokio::task::spawn_blocking(move || lock(&owned)).await.map_err(io::Error::other)??;
    let (bridge, link) = (naming::bridge(cluster), naming::node_link(cluster, node));
    check_free(net.underlay, &bridge).await?;
    check_free(net.pods, &bridge).await?;
    let there: Vec<String> = links(None).await?.into_iter().map(|link| link.name).collect();
    let mut lines = Vec::new();
    if !there.contains(&bridge) {
        lines.push(format!("link add {bridge} type bridge forward_delay 0"));
    }
    let (host, length) = (host_address(net.underlay)?, net.underlay.length());
    lines.push(format!("addr replace {host}/{length} dev {bridge}"));
    lines.push(format!("link set {bridge} up"));
    let namespace = naming::node_namespace(cluster, node);
    if !super::namespace_path(&namespace).exists() {
        lines.push(format!("netns add {namespace}"));
    }
    if !there.contains(&link) {
        lines.push(format!("link add {link} type veth peer name up0 netns {namespace}"));
    }
    lines.push(format!("link set {link} master {bridge}"));
    lines.push(format!("link set {link} up"));
    lines.push(format!("route replace {} via {} dev {bridge}", net.pods, net.address));
    ip(None, &lines).await?;
    overlay(&bridge, net).await;
    masquerade(cluster, &bridge, net).await
}

/// The way to the overlay: by the first node, which has an address on it. It may lead elsewhere; then machines are reached
/// from each other and from pods only.
async fn overlay(bridge: &str, net: &NamespaceNetwork) {
    if net.underlay.nth(1) != Some(net.address) {
        return;
    }
    let range = net.overlay;
    let way = format!("{range} via {} dev {bridge}", net.address);
    let there = ask(None, &["-4", "route", "show", &range.to_string()]).await.unwrap_or_default();
    if there.trim_start().starts_with(&way) {
        return;
    }
    if let Err(error) = ip(None, &[format!("route add {way}")]).await {
        tracing::warn!(%error, %range, "the overlay is not reached from this computer: the addresses lead elsewhere");
    }
}

/// Lets pods out by the host's default route, if it has one.
async fn masquerade(cluster: &str, bridge: &str, net: &NamespaceNetwork) -> io::Result<()> {
    let routes = ask(None, &["-4", "route", "show", "default"]).await?;
    let device = routes.split_whitespace().skip_while(|word| *word != "dev").nth(1);
    let Some(device) = device else { return Ok(()) };
    let (table, pods) = (naming::table(cluster), net.pods);
    let script = format!(
        "add table ip {table}\n\
         add set ip {table} pods {{ type ipv4_addr; flags interval; }}\n\
         add chain ip {table} out {{ type nat hook postrouting priority srcnat; }}\n\
         flush chain ip {table} out\n\
         add rule ip {table} out ip saddr @pods oifname != \"{bridge}\" masquerade\n\
         add element ip {table} pods {{ {pods} }}\n"
    );
    if let Err(error) = nft(&script).await {
        tracing::warn!(%error, "pods cannot reach networks beyond this machine");
        return Ok(());
    }
    forward(cluster, bridge, device)
}

/// Forwarding between the bridge and the outer interface, unless the host forwards anyway.
fn forward(cluster: &str, bridge: &str, device: &str) -> io::Result<()> {
    let switch = |device: &str| Path::new("/proc/sys/net/ipv4/conf").join(device).join("forwarding");
    std::fs::write(switch(bridge), "1")?;
    let outer = switch(device);
    if std::fs::read_to_string(&outer)?.trim() == "0" {
        // Noted first: what is noted is undone when the cluster is removed.
        std::fs::write(directory(cluster).join(FORWARDING), device)?;
        std::fs::write(outer, "1")?;
    }
    Ok(())
}
