//! Building, creating and attaching in one command.

use crate::args::names::Names;

/// `vm run`
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm run --rm --from docker.io/library/alpine:3 -- uname -a\n  \
                  neonctl vm run web --from ./rootfs --owner root --cu 1..4 --port 80 --detach -- /bin/server\n  \
                  neonctl vm run --rm --image pg16:1 --console\n  \
                  gzip -dc dump.sql.gz | neonctl vm run -i --rm --image pg16:1 -- psql -h db > result.txt\n\n\
                  Builds a disk if --from is given, creates the VM and prints what its workload writes: into a file or a pipe its bytes as they are, \
                  standard error apart from standard output; on a terminal without what steers it. Standard input is empty without -i. The VM is not restarted when \
                  the workload ends, and the exit code is that of the workload, or 128 and the number of the signal that ended it. Ctrl-C detaches; with --rm it deletes the VM.")]
#[command(group = clap::ArgGroup::new("disk-source").required(true))]
pub struct Run {
    /// Name of the virtual machine [default: run- and five characters]
    pub name: Option<String>,
    /// Source to build a disk from: an image reference, an archive or a directory, as in vm build
    #[arg(long, value_name = "SOURCE", group = "disk-source")]
    pub from: Option<String>,
    /// Image that contains a disk, as in vm create
    #[arg(long, value_name = "REF", group = "disk-source", add = Names::Images)]
    pub image: Option<String>,
    /// Owners of the files of a directory: keep, or root for a tree that was created without privileges
    #[arg(long, default_value = "keep", value_parser = ["keep", "root"])]
    pub owner: String,
    /// Name of the built image; with --push it is pushed to the registry in its name [default: NAME:run in the local store]
    #[arg(short, long, value_name = "NAME", requires = "from")]
    pub tag: Option<String>,
    /// Push the built image, for a cluster that cannot read the local image store
    #[arg(long, requires = "tag")]
    pub push: bool,
    /// CPU bounds, such as 0.25..4 or 2
    #[arg(long, value_name = "MIN..MAX")]
    pub cpu: Option<String>,
    /// Memory bounds, such as 1Gi..16Gi or 512Mi
    #[arg(long, value_name = "MIN..MAX")]
    pub memory: Option<String>,
    /// Both bounds in compute units, such as 1..12
    #[arg(long, value_name = "MIN..MAX", conflicts_with_all = ["cpu", "memory"])]
    pub cu: Option<String>,
    /// Guest port to expose at the VM's address: PORT or PORT/udp; can be repeated
    #[arg(long, value_name = "PORT")]
    pub port: Vec<String>,
    /// Empty disk: NAME=SIZE:PATH, mounted at PATH in the guest; can be repeated
    #[arg(long, value_name = "NAME=SIZE:PATH")]
    pub disk: Vec<String>,
    /// Environment variable of the workload, NAME=VALUE; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Delete the VM when its workload has ended, or at Ctrl-C
    #[arg(long)]
    pub rm: bool,
    /// Return when the VM runs; it is restarted when it ends
    #[arg(short, long, conflicts_with_all = ["rm", "console"])]
    pub detach: bool,
    /// Pass standard input to the workload, to its end; for a terminal in the guest use --console, or vm ssh
    #[arg(short, long, conflicts_with_all = ["detach", "console"])]
    pub interactive: bool,
    /// Attach to the serial console instead of printing the workload's output
    #[arg(long)]
    pub console: bool,
    /// Program and arguments of the workload; replace those of the image
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
