//! Making, changing and ending virtual machines.

use clap_complete::engine::ArgValueCandidates;

use super::{Place, Waiting};
use crate::args::Output;

/// `vm create`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm create pg --image pg16:1 --cpu 0.5..2 --memory 1Gi..4Gi --port 5432 --wait\n  \
                  neonctl vm create pg --image pg16:1 --cu 1..8 --start-cu 2 --disk data=10Gi:/var/lib/data\n  \
                  neonctl vm create pg --image pg16:1 --cu 1..8 --overlay --movable\n  \
                  neonctl vm create once --image tool:1 --restart Never -- /bin/tool --once\n  \
                  neonctl vm create -f vm.yaml --dry-run server -o yaml\n\n\
                  Bounds are MIN..MAX or one number for both; it starts at MIN unless a start size is given, and then follows its load. \
                  One CU (compute unit) is 0.25 CPU and 1Gi."
)]
pub struct Create {
    /// Its name
    #[arg(required_unless_present = "file")]
    pub name: Option<String>,
    /// Manifest, YAML or JSON, - for standard input; flags of the machine cannot be combined with it
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["image", "cpu", "memory", "cu", "disk", "port", "overlay", "movable", "env", "command"])]
    pub file: Option<String>,
    /// Image that holds the disk: a name in the local store, a registry reference, or file:///PATH
    #[arg(long, value_name = "REF", required_unless_present = "file")]
    pub image: Option<String>,
    /// CPU bounds, such as 0.25..4 or 2
    #[arg(long, value_name = "MIN..MAX")]
    pub cpu: Option<String>,
    /// Memory bounds, such as 1Gi..16Gi or 512Mi
    #[arg(long, value_name = "MIN..MAX")]
    pub memory: Option<String>,
    /// Both bounds in compute units, such as 1..12
    #[arg(long, value_name = "MIN..MAX", conflicts_with_all = ["cpu", "memory"])]
    pub cu: Option<String>,
    /// CPU at the start [default: the least]
    #[arg(long, value_name = "CPU")]
    pub start_cpu: Option<String>,
    /// Memory at the start [default: the least]
    #[arg(long, value_name = "SIZE")]
    pub start_memory: Option<String>,
    /// Compute units at the start [default: the least]
    #[arg(long, value_name = "N", requires = "cu")]
    pub start_cu: Option<u16>,
    /// Memory changes in steps of this, a multiple of 8Mi [default: 1Gi, or the least if that is smaller]
    #[arg(long, value_name = "SIZE")]
    pub memory_step: Option<String>,
    /// An empty disk: NAME=SIZE:PATH in the guest; can be repeated
    #[arg(long, value_name = "NAME=SIZE:PATH")]
    pub disk: Vec<String>,
    /// A config map as files: NAME:PATH in the guest; can be repeated
    #[arg(long, value_name = "NAME:PATH")]
    pub config_map: Vec<String>,
    /// A secret as files: NAME:PATH in the guest; can be repeated
    #[arg(long, value_name = "NAME:PATH")]
    pub secret: Vec<String>,
    /// Keep the size it starts with; without this a machine whose bounds differ is scaled by its load
    #[arg(long)]
    pub no_autoscale: bool,
    /// Swap space
    #[arg(long, value_name = "SIZE")]
    pub swap: Option<String>,
    /// Port of the guest that is reached at the VM's address: PORT or PORT/udp; can be repeated
    #[arg(long, value_name = "PORT")]
    pub port: Vec<String>,
    /// An address of its own on the overlay network, which stays when it moves, and so do connections to it
    #[arg(long)]
    pub overlay: bool,
    /// The scheduler may move it to another node when its node is full
    #[arg(long)]
    pub movable: bool,
    /// NAME=VALUE for the workload; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Grow the root disk to this size
    #[arg(long, value_name = "SIZE")]
    pub root_size: Option<String>,
    /// Image that holds another kernel
    #[arg(long, value_name = "REF")]
    pub kernel: Option<String>,
    /// What happens when it ends
    #[arg(long, value_name = "WHEN", default_value = "Always", value_parser = ["Always", "OnFailure", "Never"])]
    pub restart: String,
    /// Time to shut down, such as 30s
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub grace: String,
    /// No SSH keys, no log-in
    #[arg(long)]
    pub no_ssh: bool,
    /// Secret of the namespace with the password of the registry (type kubernetes.io/dockerconfigjson); can be repeated
    #[arg(long, value_name = "NAME")]
    pub pull_secret: Vec<String>,
    /// Label a node must have: KEY=VALUE; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub node_selector: Vec<String>,
    /// Label of the virtual machine: KEY=VALUE; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
    /// Change nothing: client prints the object, server has it checked and printed as it would be stored
    #[arg(long, value_name = "WHERE", value_parser = ["client", "server"])]
    pub dry_run: Option<String>,
    /// Waiting.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
    /// Program and arguments of the workload, in place of the image's
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `vm scale`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm scale pg --min 2cu --max 10cu\n  neonctl vm scale pg --max 4,8Gi\n  \
                  neonctl vm scale pg --cu 4 --hold 30m --wait\n  neonctl vm scale pg --hold off\n  neonctl vm scale pg --auto off\n  \
                  neonctl vm scale pg --cpu 2 --memory 4Gi --wait\n\n\
                  A machine that is scaled by its load keeps a fixed size only while it is held. Bounds lie within those it was made with. \
                  Nothing restarts, no connection is lost."
)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub struct Scale {
    /// Which
    #[arg(add = ArgValueCandidates::new(crate::complete::machines))]
    pub name: String,
    /// CPU, such as 1.5
    #[arg(long, group = "change")]
    pub cpu: Option<String>,
    /// Memory, such as 4Gi
    #[arg(long, group = "change")]
    pub memory: Option<String>,
    /// Compute units: 0.25 CPU and 1Gi each
    #[arg(long, group = "change", conflicts_with_all = ["cpu", "memory"])]
    pub cu: Option<u16>,
    /// The least it shrinks to by itself: 2cu, or CPU,MEMORY such as 0.5,1Gi
    #[arg(long, group = "change", value_name = "SIZE")]
    pub min: Option<String>,
    /// The most it grows to by itself
    #[arg(long, group = "change", value_name = "SIZE")]
    pub max: Option<String>,
    /// Whether it is scaled by its load
    #[arg(long, group = "change", value_name = "WHEN", value_parser = ["on", "off"])]
    pub auto: Option<String>,
    /// Keep the size that is asked for (or the present one) for this long, such as 30m; off ends it
    #[arg(long, group = "change", value_name = "DURATION", conflicts_with = "auto")]
    pub hold: Option<String>,
    /// Waiting.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `vm delete`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm delete pg\n  neonctl vm delete pg-1 pg-2 --no-wait\n  neonctl vm delete stuck --force -y"
)]
pub struct Delete {
    /// Which
    #[arg(required = true, add = ArgValueCandidates::new(crate::complete::machines))]
    pub names: Vec<String>,
    /// Time to shut down, such as 1m [default: the machine's own]
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<String>,
    /// Do not wait for the guest: data that is not on disk is lost
    #[arg(long, conflicts_with = "grace")]
    pub force: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Waiting.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `vm wait`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm wait pg --for phase=Running\n  neonctl vm wait pg --for 'cpu>=2' --timeout 30s\n  \
                  neonctl vm wait pg --for deleted\n\n\
                  Predicates: phase=P, condition=C, ip, deleted, cpu>=N, memory>=SIZE, cu>=N, jsonpath=EXPR (also =, <=)"
)]
pub struct Wait {
    /// Which
    #[arg(add = ArgValueCandidates::new(crate::complete::machines))]
    pub name: String,
    /// What must be true
    #[arg(long = "for", value_name = "PREDICATE")]
    pub predicate: String,
    /// How long to wait, such as 30s or 5m; then exit with 6
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: String,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}
