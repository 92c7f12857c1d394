//! `install`

use std::path::PathBuf;

use super::cluster::Access;
use super::{Output, Showing};

/// What is chosen about an installation.
#[derive(Debug, Default, clap::Args)]
pub struct Choices {
    /// Registry and path of the images, such as registry.example/neonvm [default: images that the nodes have]
    #[arg(long, value_name = "REGISTRY")]
    pub registry: Option<String>,
    /// Version of the images [default: that of this program]
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// File with values, YAML; later ones win. What there is: values.yaml of the Helm chart, in deploy/chart
    #[arg(long, value_name = "FILE")]
    pub values: Vec<PathBuf>,
    /// One value, such as image.pullPolicy=Always; wins over files
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Forget what was chosen at the last installation; without this it stays unless a flag overrides it
    #[arg(long)]
    pub reset_values: bool,
    /// Namespace of the services, which have it for themselves [default: neonvm-system]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Services, comma separated [default: vm-controller,scheduler,agent,pod-autoscaler]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub components: Vec<String>,
    /// What VMs run on: auto (KVM where the node has it and it runs guest code, else emulation), require (only nodes that have KVM
    /// run VMs) or never (emulation)
    #[arg(long, value_name = "HOW", value_parser = ["auto", "require", "never"])]
    pub kvm: Option<String>,
    /// How root disks get out of their images: auto (by what the cluster has), image-volume (nodes mount the image) or copy (each pod
    /// copies the file, for Kubernetes before 1.35 and older container runtimes)
    #[arg(long, value_name = "HOW", value_parser = ["auto", "image-volume", "copy"])]
    pub root_disk: Option<String>,
    /// Network between VMs of all nodes: none, or multus, which needs Multus
    #[arg(long, value_name = "HOW", value_parser = ["none", "multus"])]
    pub overlay: Option<String>,
    /// Encryption of the overlay; wireguard needs that module in the kernel of each node
    #[arg(long, value_name = "HOW", value_parser = ["none", "wireguard"])]
    pub encryption: Option<String>,
    /// extender: a stock kube-scheduler that asks ours. none: the cluster's own; each kubelet permits growth
    #[arg(long, value_name = "HOW", value_parser = ["extender", "none"])]
    pub scheduler: Option<String>,
    /// Replicas of vm-controller, scheduler and pod-autoscaler, 1 to 9
    #[arg(long, value_name = "N")]
    pub replicas: Option<u16>,
}

/// What `install` and `upgrade` have in common besides.
#[derive(Debug, Default, clap::Args)]
pub struct Carrying {
    /// Return when the objects are applied
    #[arg(long, conflicts_with = "wait")]
    pub no_wait: bool,
    /// Wait until every service works; so it is anyhow
    #[arg(long)]
    pub wait: bool,
    /// Time for the services to work, such as 90s or 5m
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: String,
    /// Which cluster.
    #[command(flatten)]
    pub access: Access,
    /// How progress is shown.
    #[command(flatten)]
    pub showing: Showing,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `install`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl install --registry registry.example/neonvm\n  neonctl install --dry-run=server\n  \
                  neonctl install --dry-run=client -o yaml | kubectl apply --server-side -f -\n  \
                  neonctl install --set agent.nodeSelector='{pool: vm}' --replicas 2\n\n\
                  Run it again to change something or to complete what was interrupted: it applies what differs, and reports if \
                  nothing differs."
)]
pub struct Install {
    /// What is chosen.
    #[command(flatten)]
    pub choices: Choices,
    /// Apply nothing: client prints the objects, server lets the API server judge them
    #[arg(long, value_name = "WHERE", value_parser = ["client", "server"])]
    pub dry_run: Option<String>,
    /// The rest.
    #[command(flatten)]
    pub carrying: Carrying,
}
