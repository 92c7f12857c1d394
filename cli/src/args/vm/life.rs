//! Creating, changing and deleting VMs.

use crate::args::names::{self, Names};

use crate::args::Waiting;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm create pg --image pg16:1 --cpu 0.5..2 --memory 1Gi..4Gi --port 5432 --wait\n  \
                  neonctl vm create pg --image pg16:1 --cu 1..8 --start-cu 2 --disk data=10Gi:/var/lib/data\n  \
                  neonctl vm create pg --image pg16:1 --cu 1..8 --overlay --movable\n  \
                  neonctl vm create pg2 --image pg16:1 --cu 1..8 --from-snapshot before-upgrade\n  \
                  neonctl vm create once --image tool:1 --restart Never -- /bin/tool --once\n  \
                  neonctl vm create -f vm.yaml --dry-run server -o yaml\n\n\
                  Bounds are MIN..MAX, or one number for both. The VM starts at MIN unless a start size is given, and is then \
                  scaled by its load. One CU (compute unit) is 0.25 CPU and 1Gi."
)]
#[command(group = clap::ArgGroup::new("claimed").multiple(true))]
pub struct Create {
    /// Name of the virtual machine
    #[arg(required_unless_present = "file")]
    pub name: Option<String>,
    /// Manifest, YAML or JSON, of one or several VMs; a directory of them, or - for standard input; cannot be combined with flags that describe the VM
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["image", "cpu", "memory", "cu", "disk", "volume", "from_snapshot", "claim", "port", "overlay", "movable", "env", "command"])]
    pub file: Option<String>,
    /// Image that contains the disk: a name in the local store, a registry reference, or file:///PATH
    #[arg(long, value_name = "REF", required_unless_present = "file", add = Names::Images)]
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
    /// Initial CPU [default: the minimum]
    #[arg(long, value_name = "CPU")]
    pub start_cpu: Option<String>,
    /// Initial memory [default: the minimum]
    #[arg(long, value_name = "SIZE")]
    pub start_memory: Option<String>,
    /// Initial compute units [default: the minimum]
    #[arg(long, value_name = "N", requires = "cu")]
    pub start_cu: Option<u16>,
    /// Step of changes of memory, a multiple of 8Mi [default: 1Gi, or the minimum if that is smaller]
    #[arg(long, value_name = "SIZE")]
    pub memory_step: Option<String>,
    /// Empty disk: NAME=SIZE:PATH, mounted at PATH in the guest; can be repeated
    #[arg(long, value_name = "NAME=SIZE:PATH")]
    pub disk: Vec<String>,
    /// Disk on a persistent volume that outlives the VM: NAME=SIZE:PATH; its claim NAME-VM is made if it is missing; can be repeated
    #[arg(long, value_name = "NAME=SIZE:PATH", group = "claimed")]
    pub volume: Vec<String>,
    /// Snapshot of a VM's volumes, of neonctl vm snapshot create: for each of its disks a claim NAME-VM is made with what the snapshot has
    #[arg(long, value_name = "SNAPSHOT", group = "claimed")]
    pub from_snapshot: Option<String>,
    /// Storage class of the claims of --volume and --from-snapshot [default: that of the cluster, or of the claim that was snapshot]
    #[arg(long, value_name = "CLASS", requires = "claimed")]
    pub storage_class: Option<String>,
    /// Disk on an existing claim: NAME=CLAIM:PATH; can be repeated
    #[arg(long, value_name = "NAME=CLAIM:PATH")]
    pub claim: Vec<String>,
    /// ConfigMap mounted as files: NAME:PATH in the guest; can be repeated
    #[arg(long, value_name = "NAME:PATH")]
    pub config_map: Vec<String>,
    /// Secret mounted as files: NAME:PATH in the guest; can be repeated
    #[arg(long, value_name = "NAME:PATH")]
    pub secret: Vec<String>,
    /// Keep the initial size; without this flag, a VM whose bounds differ is scaled by its load
    #[arg(long)]
    pub no_autoscale: bool,
    /// Size of the swap space
    #[arg(long, value_name = "SIZE")]
    pub swap: Option<String>,
    /// Guest port to expose at the VM's address: PORT or PORT/udp; can be repeated
    #[arg(long, value_name = "PORT")]
    pub port: Vec<String>,
    /// Give the VM an address on the overlay network, which it keeps, together with its connections, when it is migrated
    #[arg(long)]
    pub overlay: bool,
    /// Allow the scheduler to migrate the VM to another node when its node is full
    #[arg(long)]
    pub movable: bool,
    /// Environment variable of the workload, NAME=VALUE; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Grow the root disk to this size
    #[arg(long, value_name = "SIZE")]
    pub root_size: Option<String>,
    /// Image that contains another kernel
    #[arg(long, value_name = "REF")]
    pub kernel: Option<String>,
    /// When to restart the VM after it ends
    #[arg(long, value_name = "WHEN", default_value = "Always", value_parser = ["Always", "OnFailure", "Never"])]
    pub restart: String,
    /// Suspend the VM whenever it was idle for so long, such as 5m; the first packet wakes it
    #[arg(long, value_name = "DURATION")]
    pub suspend_after: Option<String>,
    /// Grace period of the shutdown, such as 30s
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub grace: String,
    /// Streams of the workload that a client takes; set by `vm run`.
    #[arg(skip)]
    pub attach: Option<neonvm_api::virtual_machine::Attach>,
    /// Create no SSH keys and disable SSH logins
    #[arg(long)]
    pub no_ssh: bool,
    /// Pull secret in the namespace (type kubernetes.io/dockerconfigjson); can be repeated
    #[arg(long, value_name = "NAME")]
    pub pull_secret: Vec<String>,
    /// Label that nodes must have: KEY=VALUE; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub node_selector: Vec<String>,
    /// Label of the VM: KEY=VALUE; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
    /// Change nothing: client prints the object, server prints it as the API server would store it
    #[arg(long, value_name = "WHERE", value_parser = ["client", "server"], num_args = 0..=1, default_missing_value = "client")]
    pub dry_run: Option<String>,
    #[command(flatten)]
    pub waiting: Waiting,
    /// Program and arguments of the workload; replace those of the image
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm scale pg --min 2cu --max 10cu\n  neonctl vm scale pg --max 4,8Gi\n  \
                  neonctl vm scale pg --cu 4 --hold 30m --wait\n  neonctl vm scale pg --cu 2 --hold 1h --force --wait\n  neonctl vm scale pg --hold off\n  \
                  neonctl vm scale pg --auto off\n  neonctl vm scale pg --cpu 2 --memory 4Gi --wait\n\n\
                  A VM that is scaled by its load keeps a fixed size only during --hold. A busy guest denies to shrink: \
                  with --force its CPU is taken all the same. New bounds must lie within those of \
                  its object, which neonctl vm set changes. Nothing is restarted, and connections stay open.\n\n\
                  --wait waits for --timeout, also while a node denies a growth or the guest keeps memory, which are tried \
                  again; then the exit code is 6, and the message has the size that was reached and the reason. It ends at once \
                  with 5 if only another command helps, as for a paused VM. Memory counts as reached when the guest keeps less \
                  than one step of it (--memory-step of vm create); the result names how much."
)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub struct Scale {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
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
    /// Lower bound of automatic scaling: 2cu, or CPU,MEMORY such as 0.5,1Gi
    #[arg(long, group = "change", value_name = "SIZE")]
    pub min: Option<String>,
    /// Upper bound of automatic scaling, in the same form
    #[arg(long, group = "change", value_name = "SIZE")]
    pub max: Option<String>,
    /// Whether the VM is scaled by its load
    #[arg(long, group = "change", value_name = "WHEN", value_parser = ["on", "off"])]
    pub auto: Option<String>,
    /// Keep the requested size (or the current one) for this long, such as 30m; off ends the hold
    #[arg(long, group = "change", value_name = "DURATION", conflicts_with = "auto")]
    pub hold: Option<String>,
    /// Take CPU away without waiting for the consent of the guest, which becomes slower; memory still needs it
    #[arg(long, requires = "hold")]
    pub force: bool,
    #[command(flatten)]
    pub waiting: Waiting,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm delete pg\n  neonctl vm delete pg-1 pg-2 --no-wait\n  \
                  neonctl vm delete stuck --force -y")]
pub struct Delete {
    /// Names of the virtual machines
    #[arg(required = true, add = Names::Vms, value_parser = names::vm)]
    pub names: Vec<String>,
    /// Grace period of the shutdown, such as 1m [default: that of the VM]
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<String>,
    /// Kill the VM without shutting the guest down: data that is not on disk is lost
    #[arg(long, conflicts_with = "grace")]
    pub force: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    #[command(flatten)]
    pub waiting: Waiting,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm wait pg --for cu=2\n  neonctl vm wait pg --for 'cpu>=2' --timeout 30s\n\n\
                  Predicates: cpu>=N, memory>=SIZE, cu>=N (also =, <=). For other conditions: kubectl wait"
)]
pub struct Wait {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// Size to wait for
    #[arg(long = "for", value_name = "PREDICATE")]
    pub predicate: String,
    /// How long to wait, such as 30s or 5m; exit code 6 when it expires
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: String,
}
