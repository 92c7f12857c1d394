//! Inspection of agents, the scheduler and the pressure on nodes.

use crate::args::names::{self, Names};

/// `agent`
#[derive(Debug, clap::Subcommand)]
pub enum Agent {
    /// Show the state of each node's agent: VMs, goals, permits and recent decisions
    Inspect(AgentInspect),
}

/// `agent inspect`
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

/// `scheduler`
#[derive(Debug, clap::Subcommand)]
pub enum Scheduler {
    /// Show how much of each node is reserved, and the scheduler's next actions
    Inspect(SchedulerInspect),
}

/// `scheduler inspect`
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

/// `debug`
#[derive(Debug, clap::Subcommand)]
pub enum Debug {
    /// Show the users, the free capacity and the pending actions of nodes
    NodePressure(NodePressure),
}

/// `debug node-pressure`
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
