//! What a cluster must have for an installation, and what it costs where it has less. Read once, judged by pure functions; `install`
//! and `upgrade` refuse what fails, `doctor` reports all of it.

mod cluster;
mod leftovers;
mod nodes;
mod read;

use neonvm_deploy::{Network, Values};
use serde_json::Value;

pub(super) use self::read::{image_volumes, read};
use super::doctor::check::Check;
use super::health::Part;
use super::rights::Right;
use crate::connect::Connection;
use crate::error::Result;

/// What was read of a cluster. Lists that may not be read are marked.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Version of the API server, such as `v1.36.2`.
    pub(super) version: String,
    pub(super) namespace: String,
    /// That namespace, if it exists and may be read.
    pub(super) space: Option<Value>,
    pub(super) nodes: Part,
    /// Whether the API server keeps volumes of images; none: something else was in the way.
    pub(super) has_image_volumes: Option<bool>,
    /// Rights that the caller lacks.
    pub(super) missing: Vec<Right>,
    /// Deployments of a vm-controller, in all namespaces.
    pub(super) controllers: Part,
    pub(super) hooks: Part,
    /// Whether the service that the webhooks are registered at exists; none: there are no webhooks, or it may not be read.
    pub(super) has_hook_service: Option<bool>,
    pub(super) definitions: Part,
    /// Config maps in which networks write down their MTU.
    pub(super) networks: Vec<Value>,
    /// Whether Multus is there.
    pub(super) has_multus: bool,
    /// Whether VMs are to be joined by it.
    pub(super) wants_multus: bool,
    /// Whether upstream's agents are to find the scheduler.
    pub(super) wants_upstream_agents: bool,
    /// Whether root disks are copied out of their images.
    pub(super) copies_root_disks: bool,
}

impl Facts {
    /// A cluster of `neonctl local`, whose nodes are processes of one host.
    pub(super) fn is_local(&self) -> bool {
        self.version.contains("+neonvm")
    }
}

/// Every check. Pure.
pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut all = vec![cluster::version(&facts.version)];
    all.extend(cluster::rights(&facts.missing));
    if !facts.is_local() {
        all.extend(cluster::image_volumes(facts.has_image_volumes, facts.copies_root_disks));
        all.extend(nodes::all(&facts.nodes, facts.copies_root_disks));
        all.push(cluster::mtu(&facts.networks));
    }
    all.extend(cluster::multus(facts.wants_multus, facts.has_multus));
    all.extend(cluster::upstream_agents(facts.wants_upstream_agents));
    all.extend(cluster::pod_security(&facts.namespace, facts.space.as_ref()));
    all.extend(leftovers::all(facts));
    all.into_iter().map(|check| check.in_group("preflight")).collect()
}

/// Reads and judges.
pub(super) async fn run(
    connection: &Connection,
    cluster: &neonvm_deploy::Facts,
    values: &Values,
    objects: &[Value],
) -> Result<Vec<Check>> {
    let version = cluster.kubernetes.as_deref().unwrap_or_default();
    let mut facts = read(connection, version, &values.namespace, objects).await?;
    facts.copies_root_disks = neonvm_deploy::copies_root_disks(values, cluster);
    facts.wants_upstream_agents = values.scheduler.upstream_agents;
    facts.wants_multus = values.overlay.network == Network::Multus;
    Ok(checks(&facts))
}

#[cfg(test)]
mod tests;
