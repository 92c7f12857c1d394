//! `kernel`

use std::path::PathBuf;

use super::Showing;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Download a distribution's cloud kernel and add a small initramfs; takes seconds
    Fetch(Fetch),
    /// Build a kernel from source with the options that VMs require; takes minutes
    Build(Build),
    /// Store a kernel as an image, for the kernelImage of VMs
    Image(Image),
    /// List the kernels on this host
    #[command(visible_alias = "ls")]
    List(List),
    /// Remove kernels
    #[command(visible_alias = "rm", alias = "delete")]
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl kernel fetch\n  neonctl kernel fetch --version 6.12\n  \
                  neonctl kernel fetch --mirror http://mirror.example.com/debian\n  \
                  neonctl kernel fetch --package linux-image-6.1.0-9-cloud-amd64.deb\n\n\
                  Without --mirror, --version and --package it takes the newest kernel of the package sources of this host, by apt. On \
                  distributions other than Debian, which have none, and with --mirror or --version it takes a Debian kernel whose version and \
                  SHA-256 are built into this program. A proxy is taken from http_proxy.")]
pub struct Fetch {
    /// Use this kernel package file (.deb) instead of downloading one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mirror", "version"])]
    pub package: Option<PathBuf>,
    /// SHA-256 that the package file must have, in hexadecimal
    #[arg(long, value_name = "HASH", requires = "package")]
    pub sha256: Option<String>,
    /// Mirror of Debian to download from [default: http://deb.debian.org/debian]
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Version of the Debian kernel, or a prefix of it such as 6.12
    #[arg(long)]
    pub version: Option<String>,
    /// Additional module for the initramfs; can be repeated
    #[arg(long, value_name = "NAME")]
    pub module: Vec<String>,
    /// Name of the kernel [default: its version]
    #[arg(long, value_name = "NAME")]
    pub kernel_name: Option<String>,
    /// Do not make this kernel the default
    #[arg(long)]
    pub no_default: bool,
    /// Guest program, used as init of the initramfs [default: neonvm-guest-ARCH next to this program or in PATH]
    #[arg(long, value_name = "FILE")]
    pub guest: Option<PathBuf>,
    #[command(flatten)]
    pub showing: Showing,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl kernel build\n  neonctl kernel build --check-config\n  \
                  neonctl kernel build --source linux-6.12.26.tar.xz --version 6.12.26 --config mine.config")]
pub struct Build {
    /// Tarball or directory of the source [default: the distribution's package linux-source-6.1]
    #[arg(long, value_name = "PATH")]
    pub source: Option<PathBuf>,
    /// Required version of the source, or a prefix of it [default: 6.1]
    #[arg(long)]
    pub version: Option<String>,
    /// Additional configuration fragment; can be repeated
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// Number of parallel compiler processes [default: one per processor]
    #[arg(short, long, default_value_t = 0, hide_default_value = true)]
    pub jobs: usize,
    /// Only configure, and check that no requested option was dropped
    #[arg(long)]
    pub check_config: bool,
    /// Also copy the kernel image (bzImage) to this file
    #[arg(short = 'O', long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Also store the kernel as this image, for the kernelImage of VMs; push it with neonctl image push
    #[arg(long, value_name = "REF", conflicts_with = "check_config")]
    pub image: Option<String>,
    /// Name of the kernel [default: its version with the suffix -neonvm]
    #[arg(long, value_name = "NAME")]
    pub kernel_name: Option<String>,
    /// Do not make this kernel the default
    #[arg(long)]
    pub no_default: bool,
    #[command(flatten)]
    pub showing: Showing,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl kernel image 6.1.119-neonvm --tag registry.example.com/kernel:6.1.119\n  neonctl image push \
                  registry.example.com/kernel:6.1.119\n  neonctl vm create pg --image pg16:1 --kernel \
                  registry.example.com/kernel:6.1.119 --cu 1..4\n\n\
                  The image has one file, /vmlinuz. A VM boots it without an initramfs, so a kernel of kernel fetch, which needs one, \
                  cannot be used."
)]
pub struct Image {
    /// Name of the kernel [default: the default kernel]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Name of the image in the local store
    #[arg(short, long, value_name = "REF")]
    pub tag: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl kernel list")]
pub struct List {
    /// Sort by a column or a path such as .version
    #[arg(long, value_name = "FIELD")]
    pub sort_by: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl kernel remove 6.1.0-9-cloud-amd64")]
pub struct Remove {
    /// Names of the kernels
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
}
