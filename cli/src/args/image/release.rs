//! `image release`

use std::path::PathBuf;

use crate::args::{RegistryAccess, Showing};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the images of this release, and whether they match the version of this program
    #[command(visible_alias = "ls", after_help = "Example:\n  neonctl image release list -o wide")]
    List(Which),
    /// Push the images to a registry
    Push(Push),
    /// Write the images to one archive, for hosts without a registry
    Save(Save),
    /// Load the images into containerd on this host, for Kubernetes
    Load(Load),
}

#[derive(Clone, Debug, Default, clap::Args)]
pub struct Which {
    /// Directory with the images, as created by cargo xtask images [default: images next to this program, or in cargo's target
    /// directory]
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Architecture of the nodes: amd64 or arm64 [default: that of this host]
    #[arg(long, value_name = "ARCH", value_parser = ["amd64", "arm64"])]
    pub arch: Option<String>,
}

#[derive(Debug, Default, clap::Args)]
pub struct Copied {
    /// Name the images after this registry: HOST[:PORT][/PREFIX] [default: the names in the manifests]
    #[arg(long, value_name = "REGISTRY")]
    pub registry: Option<String>,
    /// Accept images of a version other than that of this program
    #[arg(long)]
    pub any_version: bool,
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub showing: Showing,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl image release push --registry registry.example/neonvm\n  \
                  neonctl image release push --registry localhost:5000")]
pub struct Push {
    /// Registry and prefix of the names: HOST[:PORT][/PREFIX]
    #[arg(long, value_name = "REGISTRY")]
    pub registry: String,
    /// Also push images of a version other than that of this program
    #[arg(long)]
    pub any_version: bool,
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub access: RegistryAccess,
    #[command(flatten)]
    pub showing: Showing,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl image release save -O neonvm.tar\n  \
                  neonctl image release save -O neonvm.tar --registry registry.example/neonvm\n\n\
                  Load it with one of:\n  ctr --namespace k8s.io images import neonvm.tar\n  docker load -i neonvm.tar")]
pub struct Save {
    /// Archive to write
    #[arg(short = 'O', long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    pub copied: Copied,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sudo neonctl image release load\n  \
                  sudo neonctl image release load --address /run/k3s/containerd/containerd.sock")]
pub struct Load {
    /// Socket of containerd [default: that of ctr]
    #[arg(long, value_name = "PATH")]
    pub address: Option<PathBuf>,
    #[command(flatten)]
    pub copied: Copied,
}
