//! `test`

use super::Showing;

/// Tests of a cluster.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Run a VM through its whole lifecycle on a cluster: create, scale, migrate, drain, delete
    Cluster(Box<Cluster>),
}

/// `test cluster`
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:\n  neonctl test cluster --image registry.example/vm/postgres:16\n  \
                  neonctl test cluster --registry registry.example/vm --push-image\n  \
                  neonctl test cluster --only load,migrate\n  neonctl test cluster --namespace trial --keep\n\n\
                  Steps: create, scale (by hand), load (a busy loop in the guest), migrate, drain, database, delete. drain \
                  cordons the VM's node, evicts only the VM's own pod, and uncordons the node. A step that cannot run is \
                  reported as not run, with the reason. All created objects are removed at the end, also after Ctrl-C. Exit \
                  code 7: a step failed.")]
pub struct Cluster {
    /// Image with the disk of the VM [default: neonvm-test of --registry; on a local cluster, a small image that is built]
    #[arg(long, value_name = "REF")]
    pub image: Option<String>,
    /// Registry and path with the image neonvm-test [default: the registry that the services were installed from]
    #[arg(long, value_name = "REGISTRY", conflicts_with = "image")]
    pub registry: Option<String>,
    /// Build and push the image neonvm-test first, with the credentials of docker login or skopeo login; requires apt-get,
    /// dpkg-deb
    #[arg(long, conflicts_with = "image")]
    pub push_image: bool,
    /// With --push-image: allow plain HTTP for a registry that is not on this host
    #[arg(long, requires = "push_image")]
    pub insecure: bool,
    /// Pull secret of type kubernetes.io/dockerconfigjson: NAME in --namespace, or NAMESPACE/NAME, copied to the new namespace
    #[arg(long, value_name = "SECRET")]
    pub pull_secret: Option<String>,
    /// Namespace for the test; an existing one is kept [default: a new one, which is removed]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Steps to run, comma separated; create and delete always run
    #[arg(long, value_name = "STEP", value_delimiter = ',',
        value_parser = ["create", "scale", "load", "migrate", "drain", "database", "delete"])]
    pub only: Vec<String>,
    /// Timeout of each step, such as 90s or 5m
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: String,
    /// Keep the VM and the namespace for inspection
    #[arg(long)]
    pub keep: bool,
    /// Progress output.
    #[command(flatten)]
    pub showing: Showing,
}
