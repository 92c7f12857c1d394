//! Looking into what scales and places: agents, the scheduler, the pressure on nodes.

use clap_complete::engine::ArgValueCandidates;

use super::Output;
use super::cluster::Access;

/// Where the services are.
#[derive(Clone, Debug, clap::Args)]
pub struct Services {
    /// Namespace of the services
    #[arg(long, value_name = "NAME", default_value = "neonvm-system")]
    pub system_namespace: String,
    /// Which cluster.
    #[command(flatten)]
    pub access: Access,
}

/// `agent`
#[derive(Debug, clap::Subcommand)]
pub enum Agent {
    /// What the agent of a node knows and wants, and its last decisions
    Inspect(AgentInspect),
}

/// `agent inspect`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl agent inspect\n  neonctl agent inspect --vm pg --history 20\n  neonctl agent inspect --node n1 -o json\n\n\
                        NOW is what the VM shows, GOAL what its load wants, PERMIT what the scheduler allows, APPROVED what the guest agreed to."
)]
pub struct AgentInspect {
    /// Only this node's agent
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Only this VM, and its decisions
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(crate::complete::machines))]
    pub vm: Option<String>,
    /// Namespace of the VM
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Decisions shown of a VM
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub history: usize,
    /// Sizes as CPU and memory instead of compute units
    #[arg(long)]
    pub raw: bool,
    /// Where.
    #[command(flatten)]
    pub services: Services,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `scheduler`
#[derive(Debug, clap::Subcommand)]
pub enum Scheduler {
    /// What of each node is reserved, and what the scheduler would do next
    Inspect(SchedulerInspect),
}

/// `scheduler inspect`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl scheduler inspect\n  neonctl scheduler inspect --node n1 --explain\n  neonctl scheduler inspect --pod pg-x7k2f -o json"
)]
pub struct SchedulerInspect {
    /// Only this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Only pods of this name
    #[arg(long, value_name = "NAME")]
    pub pod: Option<String>,
    /// Each pod with what it has reserved, and each node with its reasons
    #[arg(long)]
    pub explain: bool,
    /// Where.
    #[command(flatten)]
    pub services: Services,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `debug`
#[derive(Debug, clap::Subcommand)]
pub enum Debug {
    /// Who uses a node, how much is left, what happens next
    NodePressure(NodePressure),
}

/// `debug node-pressure`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl debug node-pressure\n  neonctl debug node-pressure n1 --what-if pg=12cu\n  \
                  neonctl debug node-pressure n1 --what-if pg=2.5,8Gi\n  neonctl debug node-pressure --watermark 0.8\n  \
                  neonctl debug node-pressure --check   (exit code 7 if a node is over its watermark or short of room)\n\n\
                  Logical pressure is what is reserved above the watermark; capacity pressure is what agents asked for and the node does not have."
)]
pub struct NodePressure {
    /// Nodes [default: all]
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    /// What would be answered if this VM asked for this size: NAME=12cu or NAME=CPU,MEMORY
    #[arg(long, value_name = "VM=SIZE")]
    pub what_if: Option<String>,
    /// As if the watermark were this share of a node, such as 0.8
    #[arg(long, value_name = "SHARE")]
    pub watermark: Option<f64>,
    /// What each line means, and the sums behind it
    #[arg(long)]
    pub explain: bool,
    /// Exit code 7 if a node is under pressure
    #[arg(long)]
    pub check: bool,
    /// Show it again whenever something changed
    #[arg(long, conflicts_with = "check")]
    pub watch: bool,
    /// Namespace of the VM
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Where.
    #[command(flatten)]
    pub services: Services,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}
