//! `image`

pub mod release;

use std::path::PathBuf;

use super::{Registry, RegistryAccess, Showing, names};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the images of the local store
    #[command(visible_alias = "ls")]
    List(List),
    /// Show the format and contents of a disk file or a stored image
    Inspect(Inspect),
    /// Write the disk of an image to a file
    Export(Export),
    /// Pull an image with a VM disk from a registry into the local store
    Pull(Pull),
    /// Push an image of the local store to a registry
    Push(Push),
    /// Remove images from the local store
    #[command(visible_alias = "rm", alias = "delete")]
    Remove(Remove),
    /// Free space: remove unnamed images and cached layers
    Prune(Prune),
    /// Container images of this release: services and runner
    #[command(subcommand)]
    Release(release::Command),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl image list\n  neonctl image list --sort-by created\n  \
                  neonctl image list -o jsonpath='{.items[*].usedBy}'\n\n\
                  CREATED is the time in the image's own record, or that of storing for an image without one. USED BY has the \
                  VMs of the cluster whose root disk is the image; of the local cluster, if no kubeconfig is found.")]
pub struct List {
    /// Sort by a column or a path such as .size
    #[arg(long, value_name = "FIELD")]
    pub sort_by: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl image inspect pg16.qcow2 --verify\n  \
                  sh -c \"$(neonctl image inspect pg16.qcow2 --boot-command)\"\n  \
                  neonctl image inspect registry.example/pg16:1 -o json")]
pub struct Inspect {
    /// Disk file, or name or digest of an image in the local store
    #[arg(value_name = "IMAGE", value_parser = names::image)]
    pub image: String,
    /// Check all tables of the disk; fail if any is damaged
    #[arg(long)]
    pub verify: bool,
    /// Print only the command that boots the disk in plain QEMU
    #[arg(long)]
    pub boot_command: bool,
    /// Kernel for the boot command: a name from `kernel list` or a file [default: the default kernel]
    #[arg(long, requires = "boot_command")]
    pub kernel: Option<String>,
    /// Accelerator for the boot command; auto is kvm where a test guest runs with it, else tcg
    #[arg(long, default_value = "auto", value_parser = ["auto", "tcg", "kvm"], requires = "boot_command")]
    pub accel: String,
    /// Forwarded ports for the boot command, HOST:GUEST; can be repeated [default: 2222:22 and 19100:9100]
    #[arg(long, value_name = "HOST:GUEST", requires = "boot_command")]
    pub forward: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl image export registry.example/pg16:1 -O pg16.qcow2")]
pub struct Export {
    /// Image of the local store, or a source as accepted by `vm build --from`
    #[arg(value_name = "IMAGE", value_parser = names::image)]
    pub image: String,
    /// Disk file to write
    #[arg(short = 'O', long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    pub registry: Registry,
    #[command(flatten)]
    pub showing: Showing,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl image pull registry.example/pg16:1\n  \
                  neonctl image pull registry.example/pg16@sha256:…\n\n\
                  VMs of the local cluster use images of the local store without asking their registry. An image of a container is made \
                  into one with a VM disk by `neonctl vm build --from`.")]
pub struct Pull {
    /// Name of the image in its registry
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Architecture: amd64 or arm64 [default: that of this host]
    #[arg(long)]
    pub arch: Option<String>,
    #[command(flatten)]
    pub registry: Registry,
    #[command(flatten)]
    pub showing: Showing,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl image push registry.example/pg16:1\n  \
                  neonctl image push pg16:1 --to registry.example/pg16:1")]
pub struct Push {
    /// Name or digest of an image in the local store
    #[arg(value_name = "IMAGE", value_parser = names::image)]
    pub image: String,
    /// Name in the registry [default: that in the local store]
    #[arg(long, value_name = "REF")]
    pub to: Option<String>,
    #[command(flatten)]
    pub access: RegistryAccess,
    #[command(flatten)]
    pub showing: Showing,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl image remove registry.example/pg16:1\n  neonctl image remove pg16:1 --force"
)]
pub struct Remove {
    /// Remove images that VMs use, too; these VMs do not start again without them
    #[arg(long)]
    pub force: bool,
    /// Names or digests of the images
    #[arg(value_name = "IMAGE", required = true, value_parser = names::image)]
    pub images: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl image prune\n  neonctl image prune --unused-for 24h")]
pub struct Prune {
    /// Keep cached layers that were used within this time, such as 24h
    #[arg(long, value_name = "DURATION")]
    pub unused_for: Option<String>,
}
