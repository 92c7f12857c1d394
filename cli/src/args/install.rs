//! `install`, `upgrade` and `uninstall`

use std::path::PathBuf;

use super::Showing;

#[derive(Debug, Default, clap::Args)]
pub struct Choices {
    /// Registry and path of the images, such as registry.example/neonvm [default: images that are present on the nodes]
    #[arg(long, value_name = "REGISTRY")]
    pub registry: Option<String>,
    /// Version of the images [default: that of this program]
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// YAML file with values; later files take precedence. All values: values.yaml of the Helm chart, in deploy/chart
    #[arg(long, value_name = "FILE")]
    pub values: Vec<PathBuf>,
    /// One value, such as image.pullPolicy=Always; takes precedence over files
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Discard the values of the last installation; without this flag they are kept unless another flag overrides them
    #[arg(long)]
    pub reset_values: bool,
    /// Namespace of the services, which must not contain anything else [default: neonvm-system]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Services to install, comma separated [default: vm-controller,scheduler,agent,pod-autoscaler]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub components: Vec<String>,
    /// Accelerator of VMs: auto (KVM on nodes where it works, otherwise emulation), require (VMs run only on nodes with KVM) or
    /// never (emulation)
    #[arg(long, value_name = "HOW", value_parser = ["auto", "require", "never"])]
    pub kvm: Option<String>,
    /// How root disks are read from their images: auto (depends on the cluster), image-volume (nodes mount the image) or copy
    /// (each pod
    /// copies the file, for Kubernetes before 1.35 and older container runtimes)
    #[arg(long, value_name = "HOW", value_parser = ["auto", "image-volume", "copy"])]
    pub root_disk: Option<String>,
    /// Overlay network between the VMs of all nodes: none, or multus, which requires Multus
    #[arg(long, value_name = "HOW", value_parser = ["none", "multus"])]
    pub overlay: Option<String>,
    /// Encryption of the overlay; wireguard requires the wireguard module in the kernel of each node
    #[arg(long, value_name = "HOW", value_parser = ["none", "wireguard"])]
    pub encryption: Option<String>,
    /// Scheduling: extender (a separate kube-scheduler with ours as its extender) or none (the cluster's own; kubelets permit
    /// growth)
    #[arg(long, value_name = "HOW", value_parser = ["extender", "none"])]
    pub scheduler: Option<String>,
    /// Let agents of upstream's releases find the scheduler, by a pod in kube-system with plain HTTP and without authentication, while
    /// nodes are changed over to the agents of this release; =false removes it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub upstream_agents: Option<bool>,
    /// Replicas of vm-controller, scheduler and pod-autoscaler, 1 to 9
    #[arg(long, value_name = "N")]
    pub replicas: Option<u16>,
}

#[derive(Debug, Default, clap::Args)]
pub struct Carrying {
    /// Return as soon as the objects are applied
    #[arg(long, conflicts_with = "wait")]
    pub no_wait: bool,
    /// Wait until every service is ready (the default)
    #[arg(long)]
    pub wait: bool,
    /// Time to wait for the services to become ready, such as 90s or 5m
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: String,
    #[command(flatten)]
    pub showing: Showing,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl install --registry registry.example/neonvm\n  neonctl install --dry-run=server\n  \
                  neonctl install --dry-run=client -o yaml | kubectl apply --server-side -f -\n  \
                  neonctl install --set agent.nodeSelector='{pool: vm}' --replicas 2\n\n\
                  Run it again to change an installation or to complete an interrupted one: it applies only differences, and \
                  reports when there are none."
)]
pub struct Install {
    #[command(flatten)]
    pub choices: Choices,
    /// Apply nothing: client prints the objects, server has the API server validate them
    #[arg(long, value_name = "WHERE", value_parser = ["client", "server"], num_args = 0..=1, default_missing_value = "client")]
    pub dry_run: Option<String>,
    #[command(flatten)]
    pub carrying: Carrying,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl upgrade\n  neonctl upgrade --runners migrate\n  neonctl upgrade --version 0.2.1\n\n\
                  VMs keep running: their runners keep the old version, which is supported, until the VMs restart or migrate."
)]
pub struct Upgrade {
    #[command(flatten)]
    pub choices: Choices,
    /// Allow a version older than the installed one
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Runners of the old version: keep does not replace them, migrate replaces them by live migration, one at a time
    #[arg(long, value_name = "HOW", default_value = "keep", value_parser = ["keep", "migrate"])]
    pub runners: String,
    #[command(flatten)]
    pub carrying: Carrying,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl uninstall\n  neonctl uninstall --purge production\n\n\
                  Custom resource definitions and certificate authorities are kept, so that a later installation can use them. \
                  --purge removes them, and thereby every migration, address pool and autoscaler.")]
pub struct Uninstall {
    /// Namespace of the services [default: neonvm-system]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Also remove definitions, authorities and the namespace; the name of the cluster in the kubeconfig confirms it
    #[arg(long, value_name = "CLUSTER-NAME")]
    pub purge: Option<String>,
    /// Time to wait for the services to end, such as 90s or 5m
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    pub timeout: String,
    #[command(flatten)]
    pub showing: Showing,
}
