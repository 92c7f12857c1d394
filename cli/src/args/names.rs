//! Which names an argument takes: completion reads it.

use clap::builder::ArgExt;

/// What is listed when a shell completes the argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// VMs of the namespace.
    Vms,
    /// Migrations of the namespace.
    Migrations,
    /// Pod autoscalers of the namespace.
    PodAutoscalers,
    /// Local clusters of this host.
    Clusters,
    /// Built-in scenarios of the simulator.
    Scenarios,
    /// Nodes of the cluster.
    Nodes,
    /// Namespaces of the cluster.
    Namespaces,
    /// Contexts of the kubeconfig.
    Contexts,
    /// Images of the local store.
    Images,
    /// Settings of this program.
    Settings,
}

impl ArgExt for Names {}
