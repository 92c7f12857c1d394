//! Commands about a whole cluster or host, and about its services.

use super::Showing;
use crate::args::names::{self, Names};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl status\n  neonctl status --context staging -o json\n\n\
                  The status of a service follows from its pods, its lease and its recent work. Data that this user may not \
                  read is reported with the missing permission. Exit code 7: a component is unhealthy, or no service is installed.")]
pub struct Status {
    /// Namespace of the services [default: where they are installed]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl doctor\n  neonctl doctor --local\n  neonctl doctor --local --cluster -o json\n  \
                  neonctl doctor --node n2"
)]
pub struct Doctor {
    /// Check this host, as a host of local clusters
    #[arg(long)]
    pub local: bool,
    /// Check the cluster of the kubeconfig; this is the default without --local
    #[arg(long)]
    pub cluster: bool,
    /// Check only this node of the cluster and the objects on it
    #[arg(long, value_name = "NAME", add = Names::Nodes)]
    pub node: Option<String>,
    /// Namespace of the services [default: where they are installed]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
pub enum Agent {
    /// Show the state of each node's agent: VMs, goals, permits and recent decisions
    Inspect(AgentInspect),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl agent inspect\n  neonctl agent inspect --vm pg --history 20\n  \
                  neonctl agent inspect --node n1 -o json\n\n\
                  NOW is the applied size of the VM, GOAL the size its metrics call for, PERMIT the size that the scheduler \
                  permits, APPROVED the size that the guest monitor consented to, GUEST the protocol that the guest speaks: \
                  monitor, or informant (guests up to upstream's v0.17)."
)]
pub struct AgentInspect {
    /// Show only the agent of this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Show only this VM, and its decisions
    #[arg(long, value_name = "NAME", add = Names::Vms, value_parser = names::vm)]
    pub vm: Option<String>,
    /// Number of decisions to show for a VM
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub history: usize,
    /// Show sizes as CPU and memory instead of compute units
    #[arg(long)]
    pub raw: bool,
    /// Namespace of the services
    #[arg(long, value_name = "NAME", default_value = "neonvm-system")]
    pub system_namespace: String,
}

#[derive(Debug, clap::Subcommand)]
pub enum Scheduler {
    /// Show how much of each node is reserved, and the scheduler's next actions
    Inspect(SchedulerInspect),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl scheduler inspect\n  neonctl scheduler inspect --node n1 --explain\n  \
                  neonctl scheduler inspect --pod pg-x7k2f -o json"
)]
pub struct SchedulerInspect {
    /// Show only this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Show only pods of this name
    #[arg(long, value_name = "NAME")]
    pub pod: Option<String>,
    /// Show the reservation of each pod, and the reasons for each node
    #[arg(long)]
    pub explain: bool,
    /// Namespace of the services
    #[arg(long, value_name = "NAME", default_value = "neonvm-system")]
    pub system_namespace: String,
}

#[derive(Debug, clap::Subcommand)]
pub enum Debug {
    /// Show the users, the free capacity and the pending actions of nodes
    NodePressure(NodePressure),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl debug node-pressure\n  neonctl debug node-pressure n1 --what-if pg=12cu\n  \
                  neonctl debug node-pressure n1 --what-if pg=2.5,8Gi\n  neonctl debug node-pressure --watermark 0.8\n  \
                  neonctl debug node-pressure --check   (exit code 7 if a node is above its watermark or out of capacity)\n\n\
                  Logical pressure is the amount reserved above the watermark; capacity pressure is the amount that agents \
                  requested and the node lacks."
)]
pub struct NodePressure {
    /// Nodes [default: all]
    #[arg(value_name = "NODE", add = Names::Nodes)]
    pub nodes: Vec<String>,
    /// Show the permit that this VM would get if it requested this size: NAME=12cu or NAME=CPU,MEMORY
    #[arg(long, value_name = "VM=SIZE")]
    pub what_if: Option<String>,
    /// Assume this watermark, as a fraction of a node, such as 0.8
    #[arg(long, value_name = "SHARE")]
    pub watermark: Option<f64>,
    /// Explain each line and the sums behind it
    #[arg(long)]
    pub explain: bool,
    /// Exit with code 7 if a node is under pressure
    #[arg(long)]
    pub check: bool,
    /// Print again after every change
    #[arg(long, conflicts_with = "check")]
    pub watch: bool,
    /// Namespace of the services
    #[arg(long, value_name = "NAME", default_value = "neonvm-system")]
    pub system_namespace: String,
}

#[derive(Debug, clap::Subcommand)]
pub enum Test {
    /// Run a VM through its whole lifecycle on a cluster: create, scale, migrate, drain, delete
    Cluster(Box<Cluster>),
}

#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:\n  neonctl test cluster --image registry.example/vm/postgres:16\n  \
                  neonctl test cluster --registry registry.example/vm --push-image\n  \
                  neonctl test cluster --only load,migrate\n  neonctl test cluster --namespace trial --keep\n\n\
                  Steps: checks (of the services, as doctor has them), create, scale (by hand), load (a busy loop in the guest), \
                  migrate, drain, database, delete. drain cordons the VM's node, evicts only the VM's own pod, and \
                  uncordons the node. A step that cannot run is \
                  reported as not run, with the reason. All created objects are removed at the end, also after Ctrl-C. Exit \
                  code 7: a step failed.")]
pub struct Cluster {
    /// Image with the disk of the VM [default: neonvm-test of --registry; on a local cluster, a small image that is built]
    #[arg(long, value_name = "REF")]
    pub image: Option<String>,
    /// Registry and path with the image neonvm-test [default: the registry that the services were installed from]
    #[arg(long, value_name = "REGISTRY", conflicts_with = "image")]
    pub registry: Option<String>,
    /// Build and push the image neonvm-test first, with the credentials of docker login or skopeo login; requires apt-get,
    /// dpkg-deb
    #[arg(long, conflicts_with = "image")]
    pub push_image: bool,
    /// With --push-image: allow plain HTTP for a registry that is not on this host
    #[arg(long, requires = "push_image")]
    pub insecure: bool,
    /// Pull secret of type kubernetes.io/dockerconfigjson: NAME in --namespace, or NAMESPACE/NAME, copied to the new namespace
    #[arg(long, value_name = "SECRET")]
    pub pull_secret: Option<String>,
    /// Namespace for the test; an existing one is kept [default: a new one, which is removed]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Steps to run, comma separated; create and delete always run
    #[arg(long, value_name = "STEP", value_delimiter = ',',
        value_parser = ["checks", "create", "scale", "load", "migrate", "drain", "database", "delete"])]
    pub only: Vec<String>,
    /// Timeout of each step, such as 90s or 5m
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: String,
    /// Keep the VM and the namespace for inspection
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub showing: Showing,
}
