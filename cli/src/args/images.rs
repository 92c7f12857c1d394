//! `images`

use std::path::PathBuf;

use super::{Output, RegistryAccess, Showing};

/// Container images of this release: services and runner.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// The images of this release, and whether they fit this program
    List(List),
    /// Push the images to a registry
    Push(Push),
    /// Write the images to one archive, for computers without a registry
    Save(Save),
    /// Load the images into containerd of this machine, for Kubernetes
    Load(Load),
}

impl Command {
    pub(super) fn output(&self) -> Option<&Output> {
        match self {
            Self::List(args) => Some(&args.output),
            Self::Push(args) => Some(&args.output),
            Self::Save(args) => Some(&args.copied.output),
            Self::Load(args) => Some(&args.copied.output),
        }
    }
}

/// Which images.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Which {
    /// Directory with the images, as cargo xtask images makes it [default: images beside this program, or in cargo's target
    /// directory]
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Architecture of the nodes: amd64 or arm64 [default: that of this machine]
    #[arg(long, value_name = "ARCH", value_parser = ["amd64", "arm64"])]
    pub arch: Option<String>,
}

/// What is done with images outside of a registry: which, and named how.
#[derive(Debug, Default, clap::Args)]
pub struct Copied {
    /// Name the images as in this registry: HOST[:PORT][/PREFIX] [default: as the manifests name them]
    #[arg(long, value_name = "REGISTRY")]
    pub registry: Option<String>,
    /// Take images of another version than this program's as well
    #[arg(long)]
    pub any_version: bool,
    /// Which.
    #[command(flatten)]
    pub which: Which,
    /// How progress is shown.
    #[command(flatten)]
    pub showing: Showing,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `images list`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl images list -o wide")]
pub struct List {
    /// Which.
    #[command(flatten)]
    pub which: Which,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `images push`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl images push --registry registry.example/neonvm\n  \
                  neonctl images push --registry localhost:5000")]
pub struct Push {
    /// Registry, and a prefix for the names: HOST[:PORT][/PREFIX]
    #[arg(long, value_name = "REGISTRY")]
    pub registry: String,
    /// Push images of another version than this program's as well
    #[arg(long)]
    pub any_version: bool,
    /// Which.
    #[command(flatten)]
    pub which: Which,
    /// The registry.
    #[command(flatten)]
    pub access: RegistryAccess,
    /// How progress is shown.
    #[command(flatten)]
    pub showing: Showing,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `images save`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl images save -O neonvm.tar\n  \
                  neonctl images save -O neonvm.tar --registry registry.example/neonvm\n\n\
                  Load it with one of:\n  ctr --namespace k8s.io images import neonvm.tar\n  docker load -i neonvm.tar")]
pub struct Save {
    /// Archive to write
    #[arg(short = 'O', long, value_name = "FILE")]
    pub out: PathBuf,
    /// What they have in common.
    #[command(flatten)]
    pub copied: Copied,
}

/// `images load`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sudo neonctl images load\n  \
                  sudo neonctl images load --address /run/k3s/containerd/containerd.sock")]
pub struct Load {
    /// Socket of containerd [default: that of ctr]
    #[arg(long, value_name = "PATH")]
    pub address: Option<PathBuf>,
    /// What they have in common.
    #[command(flatten)]
    pub copied: Copied,
}
