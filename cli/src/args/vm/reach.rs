//! Access to guests: console, SSH, TCP.

use std::path::PathBuf;

use crate::args::names::Names;

use crate::args::resource::NamespaceArgs;

/// `vm console`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm console pg\n  neonctl vm console pg --read-only --record boot.log\n\n\
                  Leave with Ctrl-] (or the key of --escape). The guest's output is passed to this terminal unfiltered and can \
                  control it; neonctl vm logs --source serial shows the same output with control characters escaped."
)]
pub struct Console {
    /// Name of the virtual machine
    #[arg(add = Names::Vms)]
    pub name: String,
    /// How long to wait for the VM to start, such as 2m
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    pub boot_timeout: String,
    /// Key that ends the session: ^ and a letter or one of ]\^_
    #[arg(long, value_name = "KEY", default_value = "^]")]
    pub escape: String,
    /// Send no input to the guest
    #[arg(long)]
    pub read_only: bool,
    /// Also write the output to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Namespace and cluster.
    #[command(flatten)]
    pub place: NamespaceArgs,
}

/// `vm ssh`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm ssh pg\n  neonctl vm ssh pg -- df -h\n  \
                  neonctl vm ssh pg -l postgres -L 5432:localhost:5432\n\n\
                  The exit code is that of the command, 255 if there was no connection.")]
pub struct Ssh {
    /// Name of the virtual machine
    #[arg(add = Names::Vms)]
    pub name: String,
    /// User to log in as
    #[arg(short = 'l', long, default_value = "root")]
    pub login: String,
    /// Private key [default: the key that the cluster stores for the VM]
    #[arg(short, long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Port of the SSH server in the guest
    #[arg(short, long, default_value_t = 22)]
    pub port: u16,
    /// Forward a local port: [ADDRESS:]PORT:HOST:PORT, as ssh -L; can be repeated
    #[arg(short = 'L', long, value_name = "SPEC")]
    pub local_forward: Vec<String>,
    /// Namespace and cluster.
    #[command(flatten)]
    pub place: NamespaceArgs,
    /// Command to run in the guest
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `vm connect`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ssh -o ProxyCommand='neonctl vm connect pg 22' root@pg")]
pub struct Connect {
    /// Name of the virtual machine
    #[arg(add = Names::Vms)]
    pub name: String,
    /// TCP port of the guest
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Namespace and cluster.
    #[command(flatten)]
    pub place: NamespaceArgs,
}
