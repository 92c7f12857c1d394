//! Names with a fixed meaning: API groups, labels, annotations, finalizers, object name patterns.

/// API group of VMs, migrations and address pools.
pub const VM_GROUP: &str = "vm.neon.tech";
/// `apiVersion` of that group's objects.
pub const VM_API_VERSION: &str = "vm.neon.tech/v1";
/// API group of pod autoscalers.
pub const POD_AUTOSCALER_GROUP: &str = "autoscaling.aibrix.ai";
/// `apiVersion` of that group's objects.
pub const POD_AUTOSCALER_API_VERSION: &str = "autoscaling.aibrix.ai/v1alpha1";

/// Namespace of an installation's services, if it is not named otherwise.
pub const SYSTEM_NAMESPACE: &str = "neonvm-system";

/// Service account of agents in that namespace.
pub const AGENT_ACCOUNT: &str = "neonvm-agent";
/// The same of the scheduler.
pub const SCHEDULER_ACCOUNT: &str = "neonvm-scheduler";
/// The same of the pod-autoscaler, and the Service of its webhooks.
pub const POD_AUTOSCALER_ACCOUNT: &str = "neonvm-pod-autoscaler";
/// The same of what forwards requests of upstream's agents. It is in [`UPSTREAM_NAMESPACE`].
pub const UPSTREAM_AGENTS_ACCOUNT: &str = "neonvm-upstream-agents";
/// Namespace in which upstream's agents look for the pod of their scheduler.
pub const UPSTREAM_NAMESPACE: &str = "kube-system";
/// Key of a user's extra values under which API servers (Kubernetes 1.30 and later) name the node of the pod that a token is bound to.
pub const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// Reason of `Degraded` of a VM whose pod would use more than a quota of its namespace leaves.
pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";

/// Finalizer of both `VirtualMachine` and `VirtualMachineMigration`.
pub const FINALIZER: &str = "vm.neon.tech/finalizer";

/// Value that switches a label on; nothing else does.
pub const TRUE: &str = "true";

/// Keys of labels.
pub mod label {
    /// Runner pod → name of its VM; on the source and on the target of a migration.
    pub const VM_NAME: &str = "vm.neon.tech/name";
    /// Always [`APP_NAME_VALUE`] on runner pods.
    pub const APP_NAME: &str = "app.kubernetes.io/name";
    /// Value of [`APP_NAME`].
    pub const APP_NAME_VALUE: &str = "NeonVM";
    /// Protocol version of old runners.
    pub const RUNNER_VERSION: &str = "vm.neon.tech/runner-version";
    /// VM and pod: the size is scaled automatically.
    pub const SCALING_ENABLED: &str = "autoscaling.neon.tech/enabled";
    /// VM and pod: the scheduler may start migrations, and so may the vm-controller when the node denies a growth.
    pub const AUTO_MIGRATION_ENABLED: &str = "autoscaling.neon.tech/auto-migration-enabled";
    /// VM and pod, for tests: migrate without end.
    pub const ALWAYS_MIGRATE: &str = "autoscaling.neon.tech/testing-only-always-migrate";
    /// Migration: the scheduler made it.
    pub const CREATED_BY_SCHEDULER: &str = "autoscaling.neon.tech/created-by-scheduler";
    /// Migration: made because of an eviction of the VM's pod, for example a drain of its node.
    pub const CREATED_BY_EVICTION: &str = "vm.neon.tech/created-by-eviction";
    /// Migration: it was made because the VM's node denied a growth.
    pub const CREATED_BY_DENIED_GROWTH: &str = "vm.neon.tech/created-by-denied-growth";
    /// VolumeSnapshot: the snapshot of a VM that it is a part of.
    pub const SNAPSHOT: &str = "vm.neon.tech/snapshot";
    /// VM: endpoint shown in metrics.
    pub const ENDPOINT_ID: &str = "neon/endpoint-id";
    /// VM: project shown in metrics.
    pub const PROJECT_ID: &str = "neon/project-id";
}

/// Keys of annotations.
pub mod annotation {
    /// Claim of a persistent volume: the node that has its volume, as Kubernetes writes it; the claim's pods are placed there.
    pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
    /// Claim of a persistent volume: it is a copy that a migration makes or made, JSON of [`crate::virtual_machine::CopyOf`].
    pub const COPY_OF: &str = "vm.neon.tech/copy-of";
    /// Claim of a persistent volume: the claim that has had its content since a migration; no VM starts from this one any more.
    pub const REPLACED_BY: &str = "vm.neon.tech/replaced-by";
    /// VolumeSnapshot: what the disk of the VM is, JSON, for a VM that is made from it.
    pub const SNAPSHOT_DISK: &str = "vm.neon.tech/snapshot-disk";
    /// Pod: `{"cpu":"500m","memory":"2Gi"}`, what the VM uses by its spec.
    pub const USAGE: &str = "vm.neon.tech/usage";
    /// Pod: what QEMU and the runner take beside the VM, as [`USAGE`].
    pub const OVERHEAD: &str = "vm.neon.tech/overhead";
    /// Pod: what its VM is made of, JSON of [`neonvm_types::runner_protocol::MachineInfo`]; present while that is known.
    pub const MACHINE: &str = "vm.neon.tech/machine";
    /// Node: what it offers to VMs, JSON of [`neonvm_types::runner_protocol::HostFacts`]; written by the node.
    pub const HOST_FACTS: &str = "vm.neon.tech/host-facts";
    /// Pod: the nodes that its VM may be on by its spec, JSON of [`crate::pod_annotation::Placement`].
    pub const PLACEMENT: &str = "vm.neon.tech/placement";
    /// Migration: the size that the VM is to have room for on its target, as [`USAGE`].
    pub const GROWTH: &str = "vm.neon.tech/growth";
    /// Pod: bounds and use, as the spec has them.
    pub const RESOURCES: &str = "vm.neon.tech/resources";
    /// Pod: factors by which the scheduler may overcommit.
    pub const OVERCOMMIT: &str = "vm.neon.tech/overcommit";
    /// VM and pod: scaling bounds, JSON.
    pub const BOUNDS: &str = "autoscaling.neon.tech/bounds";
    /// VM and pod: overrides of the scaling configuration, JSON.
    pub const CONFIG: &str = "autoscaling.neon.tech/config";
    /// VM: the size is fixed for a while, JSON.
    pub const HOLD: &str = "autoscaling.neon.tech/hold";
    /// VM: a merge patch of its spec, JSON, which takes effect when it starts the next time.
    pub const AT_NEXT_START: &str = "vm.neon.tech/at-next-start";
    /// VM: a metric of the user's own that scales it, JSON.
    pub const METRIC: &str = "autoscaling.neon.tech/metric";
    /// Lease: address of the service that holds it, `HOST:PORT`, always with TLS.
    pub const SERVICE_ADDRESS: &str = "vm.neon.tech/service-address";
    /// VM: endpoint to bill; its presence turns billing on.
    pub const BILLING_ENDPOINT_ID: &str = "autoscaling.neon.tech/billing-endpoint-id";
    /// VM and pod: the agent's compute unit, JSON.
    pub const SCALING_UNIT: &str = "autoscaling.neon.tech/scaling-unit";
    /// VM and pod: the agent's last request, JSON.
    pub const REQUESTED: &str = "internal.autoscaling.neon.tech/resources-requested";
    /// VM and pod: what the scheduler granted, JSON.
    pub const APPROVED: &str = "internal.autoscaling.neon.tech/resources-approved";
    /// Pod: the container that clients pick.
    pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
    /// Pod, and VM where its author decides otherwise: whether the cluster autoscaler may evict it to empty a node.
    pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    /// Pod: further networks.
    pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
}

/// Lease of the scheduler that leads; in the namespace of the services.
pub const SCHEDULER_LEASE: &str = "neonvm-scheduler";

/// Lease of the agent of a node; in the namespace of the services. Only its holder scales the node's VMs.
#[must_use]
pub fn agent_lease(node: &str) -> String {
    format!("neonvm-agent-{node}")
}

/// Container of a runner pod in which the VM lives.
pub const RUNNER_CONTAINER: &str = "neonvm-runner";

/// Name of the secret with the SSH keys of the VM with this UID: another one for each VM of a name, because the secret cannot change,
/// and kubelets do not read such a secret a second time.
#[must_use]
pub fn ssh_secret_name(vm: &str, uid: &str) -> String {
    let short: String = uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("ssh-neonvm-{vm}-{short}")
}

/// Name of the secret with a VM's TLS certificate.
#[must_use]
pub fn tls_secret_name(vm: &str) -> String {
    format!("tls-neonvm-{vm}")
}

/// Name of the pool for a range (`/` becomes `-`), with the network's name in front if there is one.
#[must_use]
pub fn ip_pool_name(network: Option<&str>, range: &str) -> String {
    let range = range.replace('/', "-");
    match network {
        Some(network) => format!("{network}-{range}"),
        None => range,
    }
}

/// DNS domains in which the services have the names of their certificates: schedulers and agents in the first, runners in the second.
pub const RESERVED_DOMAINS: [&str; 2] = ["neonvm", "vm.neon.tech"];

/// Disk names that the runner needs for itself. `tls-keys` is used upstream without being reserved.
pub const RESERVED_DISK_NAMES: [&str; 10] = [
    "virtualmachineimages",
    "rootdisk",
    "runtime",
    "swapdisk",
    "sysfscgroup",
    "ssh-privatekey",
    "ssh-publickey",
    "ssh-authorized-keys",
    "tls",
    "tls-keys",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert_eq!(ssh_secret_name("vm-a", "0a1b2c-3d4e5f"), "ssh-neonvm-vm-a-0a1b2c3d");
        assert_eq!(tls_secret_name("vm-a"), "tls-neonvm-vm-a");
        assert_eq!(ip_pool_name(Some("neonvm"), "10.100.0.0/16"), "neonvm-10.100.0.0-16");
        assert_eq!(ip_pool_name(None, "10.100.0.0/16"), "10.100.0.0-16");
    }
}
