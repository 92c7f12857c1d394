//! `vm build`

use std::path::PathBuf;

use crate::args::{Registry, Showing};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm build --from docker.io/library/postgres:16 -O pg16.qcow2\n  \
                  neonctl vm build --from ./rootfs -f image.yaml -O disk.raw --format raw --size 10Gi -- /usr/bin/server --port 80\n  \
                  neonctl vm build --from nginx -t registry.example/nginx-vm:1 --push\n  \
                  neonctl vm build --from ./Dockerfile --build-arg VERSION=2 -t web:2\n\n\
                  Sources: a registry reference, oci:DIR[:NAME], oci-archive:FILE[:NAME], docker-archive:FILE[:NAME], dir:DIR, \
                  tar:FILE (plain, gzip, bzip2, xz or zstd), dockerfile:FILE, or a path whose type is detected from its content; a directory with a Dockerfile is built by \
                  it, dir:DIR takes the directory as it is. A Dockerfile is built by buildah, podman or docker, the first of \
                  them that is installed; its directory is the context."
)]
pub struct Build {
    /// Source: an image reference, an archive, a directory or a Dockerfile
    #[arg(long, value_name = "SOURCE")]
    pub from: String,
    /// Image specification: commands, shutdownHook, build, merge, files
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Disk file to write
    #[arg(short = 'O', long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Format of the disk file: qcow2, raw, or oci for an archive of an image that contains the disk
    #[arg(long, default_value = "qcow2", value_parser = ["qcow2", "raw", "oci"])]
    pub format: String,
    /// Store the image in the local image store under this name
    #[arg(short, long, value_name = "NAME")]
    pub tag: Option<String>,
    /// Push the image to the registry in its name
    #[arg(long, requires = "tag")]
    pub push: bool,
    /// Size of the disk, such as 10Gi [default: the size of the image plus 1Gi]
    #[arg(long)]
    pub size: Option<String>,
    /// Architecture: amd64 or arm64; with the highest variant that your nodes run, such as amd64/v2 [default: that of this host]
    #[arg(long)]
    pub arch: Option<String>,
    /// Value for an ARG of a Dockerfile, or of the fragments of the specification, as NAME=VALUE; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub build_arg: Vec<String>,
    /// Write a bill of materials in SPDX 2.3 (JSON) to this file
    #[arg(long, value_name = "FILE")]
    pub sbom: Option<PathBuf>,
    /// Program of the workload; replaces that of the image and drops the arguments of the image
    #[arg(long, value_name = "PROGRAM")]
    pub entrypoint: Option<String>,
    /// Environment variable of the workload, NAME=VALUE; overrides that of the image; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// User of the workload: name, number, or either with :GROUP [default: the image's]
    #[arg(long)]
    pub user: Option<String>,
    /// Working directory of the workload [default: the image's]
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Signal that stops the workload [default: the image's, or SIGTERM]
    #[arg(long, value_name = "SIGNAL")]
    pub stop_signal: Option<String>,
    /// File with a public key that may log in as root, for disks booted without a runner; can be repeated
    #[arg(long, value_name = "FILE")]
    pub ssh_key: Vec<PathBuf>,
    /// Guest program to put on the disk [default: neonvm-guest-ARCH next to this program or in PATH]
    #[arg(long, value_name = "FILE")]
    pub guest: Option<PathBuf>,
    /// Owners of the files of a directory: keep, or root for a tree that was created without privileges
    #[arg(long, default_value = "keep", value_parser = ["keep", "root"])]
    pub owner: String,
    /// Verify the digests of cached layers before use
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub registry: Registry,
    #[command(flatten)]
    pub showing: Showing,
    /// Arguments of the workload; replace those of the image; for a directory: program and arguments
    #[arg(last = true, value_name = "ARGUMENT")]
    pub command: Vec<String>,
}
