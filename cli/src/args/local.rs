//! `local`

use std::path::PathBuf;

use crate::args::names::Names;

use super::Showing;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Start a cluster; does nothing if it is running
    Up(Up),
    /// Stop a cluster; --delete also removes its state
    Down(Down),
    /// List all clusters on this host
    #[command(visible_alias = "ls")]
    List(List),
    /// Print the logs of a cluster
    Logs(Logs),
    /// Show the health of one cluster
    Status(One),
    /// Print the path of a cluster's kubeconfig
    #[command(after_help = "Example:\n  kubectl --kubeconfig \"$(neonctl local kubeconfig)\" get nodes")]
    Kubeconfig(Which),
    /// Verify the on-disk state of a running or stopped cluster
    Check(Check),
    /// Write the objects and keys of a running or stopped cluster to a file
    Backup(Backup),
    /// Replace the state of a stopped cluster with a backup
    Restore(Restore),
}

#[derive(Debug, Default, clap::Args)]
pub struct Root {
    /// Directory of local clusters, with one subdirectory each [default: $XDG_STATE_HOME/neonctl/local]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

#[derive(Debug, Default, clap::Args)]
pub struct Which {
    /// Name of the cluster [default: local]
    #[arg(long, value_name = "NAME", add = Names::Clusters)]
    pub name: Option<String>,
    #[command(flatten)]
    pub root: Root,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl local up\n  eval \"$(neonctl local up --name dev)\"\n  \
                  neonctl local up --nodes 2 --cpus 2 --memory 8Gi\n  neonctl local up --foreground --port 6443")]
pub struct Up {
    #[command(flatten)]
    pub which: Which,
    /// Port on 127.0.0.1 [default: the port of the last start, or a free port]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Number of nodes; 0 starts only an API server, more than 1 requires root. Nodes beyond this number are removed, and their VMs
    /// start elsewhere [default: that of the last start, or 1]
    #[arg(long, value_name = "N")]
    pub nodes: Option<u8>,
    /// CPUs of each node; a VM takes slightly more than its own size [default: those of the last start, or of this host]
    #[arg(long, value_name = "CPU")]
    pub cpus: Option<String>,
    /// Memory of each node, such as 8Gi [default: that of the last start, or of this host, minus a reserve]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// QEMU accelerator; auto is kvm if it works, otherwise tcg
    #[arg(long, default_value = "auto", value_parser = ["auto", "kvm", "tcg"])]
    pub accel: String,
    /// Use loopback addresses and user-mode networking even as root; limited to one node
    #[arg(long)]
    pub user_network: bool,
    /// JSON configuration file of the agents that scale VMs [default: that of regular deployments]
    #[arg(long, value_name = "FILE")]
    pub agent_config: Option<std::path::PathBuf>,
    /// Serve the metrics of all services on 127.0.0.1, to any user of this host; metrics.json in the directory of the cluster lists
    /// the addresses for Prometheus
    #[arg(long)]
    pub metrics: bool,
    /// Connect to registries without TLS
    #[arg(long)]
    pub insecure_registries: bool,
    /// Certificate authority (PEM) of registries to trust in addition to those of the system
    #[arg(long, value_name = "FILE")]
    pub registry_ca_file: Option<PathBuf>,
    /// Directory of files that VMs may name as images, file://PATH, in namespaces with the label allow.vm.neon.tech/node-files=true; may
    /// be repeated
    #[arg(long, value_name = "DIR")]
    pub image_files: Vec<PathBuf>,
    /// Stay in the foreground until stopped; for containers and CI
    #[arg(long)]
    pub foreground: bool,
    /// Do not install our custom resource definitions
    #[arg(long)]
    pub no_install: bool,
    /// Time to wait for the cluster to become ready, such as 30s or 5m
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl local down\n  neonctl local down --name dev --delete\n  neonctl local down --all"
)]
pub struct Down {
    #[command(flatten)]
    pub which: Which,
    /// Also remove all state of the cluster
    #[arg(long)]
    pub delete: bool,
    /// All clusters
    #[arg(long, conflicts_with = "name")]
    pub all: bool,
    /// Time for the services, and then for the VMs, to stop before they are killed, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl local list\n  neonctl local list --sort-by age -o wide")]
pub struct List {
    #[command(flatten)]
    pub root: Root,
    /// Sort by a column or a path such as .pid
    #[arg(long, value_name = "FIELD")]
    pub sort_by: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl local logs --tail 20\n  neonctl local logs --name dev -f --since 5m\n  \
                  neonctl local logs --service vm-controller -f"
)]
pub struct Logs {
    #[command(flatten)]
    pub which: Which,
    /// Show only this service: apiserver, vm-controller, scheduler, node-n1 or supervisor [default: all, by time]
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Keep printing new lines
    #[arg(short, long)]
    pub follow: bool,
    /// Show only lines newer than this duration, such as 30s or 5m
    #[arg(long, value_name = "DURATION")]
    pub since: Option<String>,
    /// Show only this many of the last lines
    #[arg(long, value_name = "LINES")]
    pub tail: Option<usize>,
    /// Print lines unchanged; otherwise control characters, which could control this terminal, are escaped, such as \x1b
    #[arg(long)]
    pub raw: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl local status --name dev")]
pub struct One {
    #[command(flatten)]
    pub which: Which,
    /// Timeout of one request, such as 500ms or 30s
    #[arg(long, value_name = "DURATION")]
    pub request_timeout: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl local check\n  neonctl local check --name dev -o json\n\n\
                  Verifies the pages of the database, every record, the keys, and that other users cannot open any file. Exit code 7: a \
                  problem was found.")]
pub struct Check {
    #[command(flatten)]
    pub which: Which,
    /// Timeout for the response of a running cluster, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub request_timeout: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl local backup -O dev.backup\n  \
                  neonctl local backup --name dev -O \"dev-$(date +%F).backup\"\n\n\
                  The file contains all Secrets and the keys of the cluster; only its owner can open it. It does not contain \
                  disks of VMs.")]
pub struct Backup {
    #[command(flatten)]
    pub which: Which,
    /// File to write
    #[arg(short = 'O', long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub out: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    /// Longest time without data from a running cluster, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub request_timeout: Option<String>,
    #[command(flatten)]
    pub showing: Showing,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl local restore dev.backup\n  \
                  neonctl local down --name dev && neonctl local restore --name dev --force dev.backup\n\n\
                  VMs that ran start again from their images. Objects keep their resource versions, except pods, nodes, VMs and others \
                  that are started again; later writes get resource versions that no client has seen before, and watches restart.\n\n\
                  Under another name or in another --data-dir the cluster is a new one, with its own keys, nodes and addresses; it can \
                  run beside its source.")]
pub struct Restore {
    /// Backup file, written by `local backup`
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    #[command(flatten)]
    pub which: Which,
    /// Replace the existing state of the cluster
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub showing: Showing,
}
