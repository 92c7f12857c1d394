//! `local`

use std::path::PathBuf;

use clap_complete::engine::ArgValueCandidates;

use super::{Output, Showing};

/// Complete clusters on this machine.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Start a cluster; harmless if it runs
    Up(Up),
    /// Stop a cluster, and forget it with --delete
    Down(Down),
    /// Every cluster of this machine
    List(List),
    /// What a cluster has logged
    Logs(Logs),
    /// Health of one cluster
    Status(One),
    /// Path of a cluster's kubeconfig
    Kubeconfig(Kubeconfig),
    /// Verify the state of a cluster on disk, running or stopped
    Check(Check),
    /// Write the objects and keys of a cluster to a file, while it runs or when it is stopped
    Backup(Backup),
    /// Put a backup in the place of the state of a stopped cluster
    Restore(Restore),
}

impl Command {
    pub(super) fn output(&self) -> Option<&Output> {
        match self {
            Self::Up(args) => Some(&args.output),
            Self::Down(args) => Some(&args.output),
            Self::List(args) => Some(&args.output),
            Self::Status(args) => Some(&args.output),
            Self::Kubeconfig(args) => Some(&args.output),
            Self::Check(args) => Some(&args.output),
            Self::Backup(args) => Some(&args.output),
            Self::Restore(args) => Some(&args.output),
            Self::Logs(_) => None,
        }
    }
}

/// Where clusters are kept.
#[derive(Debug, Default, clap::Args)]
pub struct Root {
    /// Directory that holds local clusters, one below it for each [default: $XDG_STATE_HOME/neonctl/local]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// Which cluster.
#[derive(Debug, Default, clap::Args)]
pub struct Which {
    /// Name of the cluster [default: local]
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(crate::instance::candidates))]
    pub name: Option<String>,
    /// Where.
    #[command(flatten)]
    pub root: Root,
}

/// `local up`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl local up\n  eval \"$(neonctl local up --name dev)\"\n  neonctl local up --nodes 2 --cpus 2 --memory 8Gi\n  neonctl local up --foreground --port 6443"
)]
pub struct Up {
    /// Which.
    #[command(flatten)]
    pub which: Which,
    /// Port on 127.0.0.1 [default: that of the last start, or a free one]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Nodes; 0 for an API server alone. More than one needs root [default: 1]
    #[arg(long, value_name = "N")]
    pub nodes: Option<u8>,
    /// CPUs each node offers; a VM takes a little more than its own size [default: those of this machine]
    #[arg(long, value_name = "CPU")]
    pub cpus: Option<String>,
    /// Memory each node offers, such as 8Gi [default: that of this machine, less a reserve]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// What runs the guests' code: kvm where it works, else tcg
    #[arg(long, default_value = "auto", value_parser = ["auto", "kvm", "tcg"])]
    pub accel: String,
    /// Loopback addresses and user-mode networking even as root; one node
    #[arg(long)]
    pub user_network: bool,
    /// Configuration file of the agents that scale machines, JSON [default: what deployments ship]
    #[arg(long, value_name = "FILE")]
    pub agent_config: Option<std::path::PathBuf>,
    /// Speak to registries without TLS
    #[arg(long)]
    pub insecure_registries: bool,
    /// Stay in the foreground until stopped; for containers and CI
    #[arg(long)]
    pub foreground: bool,
    /// Do not install our custom resource definitions
    #[arg(long)]
    pub no_install: bool,
    /// Time for the cluster to become ready, such as 30s or 5m
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `local down`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl local down\n  neonctl local down --name dev --delete\n  neonctl local down --all"
)]
pub struct Down {
    /// Which.
    #[command(flatten)]
    pub which: Which,
    /// Remove its state too; nothing is left
    #[arg(long)]
    pub delete: bool,
    /// Every cluster
    #[arg(long, conflicts_with = "name")]
    pub all: bool,
    /// Time for its services, then for its machines, to stop before they are killed, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `local list`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl local list\n  neonctl local list --sort-by age -o wide")]
pub struct List {
    /// Where.
    #[command(flatten)]
    pub root: Root,
    /// Column, or a path such as .pid
    #[arg(long, value_name = "FIELD")]
    pub sort_by: Option<String>,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `local logs`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl local logs --tail 20\n  neonctl local logs --name dev -f --since 5m\n  neonctl local logs --service vm-controller -f"
)]
pub struct Logs {
    /// Which.
    #[command(flatten)]
    pub which: Which,
    /// Only this service: apiserver, vm-controller, scheduler, node-n1 or supervisor [default: all, by time]
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Keep printing what is added
    #[arg(short, long)]
    pub follow: bool,
    /// Only what is younger, such as 30s or 5m
    #[arg(long, value_name = "DURATION")]
    pub since: Option<String>,
    /// Only the last lines
    #[arg(long, value_name = "LINES")]
    pub tail: Option<usize>,
    /// Lines as they were written. Otherwise control characters are shown, such as \x1b: they would steer this terminal
    #[arg(long)]
    pub raw: bool,
}

/// `local status`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl local status --name dev")]
pub struct One {
    /// Which.
    #[command(flatten)]
    pub which: Which,
    /// Time for one request, such as 500ms or 30s
    #[arg(long, value_name = "DURATION")]
    pub request_timeout: Option<String>,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `local check`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl local check\n  neonctl local check --name dev -o json\n\nVerifies the checksum of every record, the keys, and that other users cannot open any file. Exit code 7 if anything is wrong."
)]
pub struct Check {
    /// Which.
    #[command(flatten)]
    pub which: Which,
    /// Time for the answer of a running cluster, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub request_timeout: Option<String>,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `local backup`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl local backup -O dev.backup\n  neonctl local backup --name dev -O \"dev-$(date +%F).backup\"\n\nThe file holds all Secrets and the keys of the cluster; only its owner can open it. Disks of VMs are not in it."
)]
pub struct Backup {
    /// Which.
    #[command(flatten)]
    pub which: Which,
    /// File to write
    #[arg(short = 'O', long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub out: PathBuf,
    /// Replace a file that exists
    #[arg(long)]
    pub force: bool,
    /// Time in which a running cluster must send something, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub request_timeout: Option<String>,
    /// How progress is shown.
    #[command(flatten)]
    pub showing: Showing,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `local restore`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl local restore dev.backup\n  neonctl local down --name dev && neonctl local restore --name dev --force dev.backup\n\nObjects keep their resource versions. What is written afterwards gets versions that no client has seen, and watches start again."
)]
pub struct Restore {
    /// A file that `local backup` wrote
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// Which.
    #[command(flatten)]
    pub which: Which,
    /// Replace the state that the cluster has
    #[arg(long)]
    pub force: bool,
    /// How progress is shown.
    #[command(flatten)]
    pub showing: Showing,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `local kubeconfig`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  kubectl --kubeconfig \"$(neonctl local kubeconfig)\" get nodes")]
pub struct Kubeconfig {
    /// Which.
    #[command(flatten)]
    pub which: Which,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}
