//! Access to guests: console, SSH, TCP.

use std::path::PathBuf;

use crate::args::names::{self, Names};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm console pg\n  neonctl vm console pg --read-only --record boot.log\n\n\
                  Leave with Ctrl-] (or the key of --escape). The guest's output is passed to this terminal unfiltered and can \
                  control it; neonctl vm logs --source serial shows the same output with control characters escaped."
)]
pub struct Console {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
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
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm ssh pg\n  neonctl vm ssh pg -- df -h\n  \
                  neonctl vm ssh pg -l postgres -L 5432:localhost:5432\n  \
                  rsync -e 'neonctl vm ssh' -a data/ pg:/data/\n\n\
                  The exit code is that of the command, 255 if there was no connection.")]
pub struct Ssh {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
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
    /// Command to run in the guest, with everything that follows it
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  neonctl vm connect pg 5432 < request\n\nFor ssh, rsync and editors use: neonctl vm ssh-config"
)]
pub struct Connect {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// TCP port of the guest
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm cp dump.sql pg:/tmp/\n  neonctl vm cp -r pg:/var/log ./logs\n\n\
                  Files go over SFTP, with scp of this host. One side is NAME:PATH, the other a path here. The exit code is that \
                  of scp."
)]
pub struct Cp {
    /// Sources, then the target; each is PATH or NAME:PATH
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<String>,
    /// Copy directories with their content
    #[arg(short, long)]
    pub recursive: bool,
    /// User to log in as
    #[arg(short = 'l', long, default_value = "root")]
    pub login: String,
    /// Private key [default: the key that the cluster stores for the VM]
    #[arg(short, long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm port-forward pg 5432\n  neonctl vm port-forward pg 15432:5432 8080:80\n  \
                  neonctl vm port-forward pg :5432     # any free local port\n\n\
                  Each connection looks for the VM again, so forwarding goes on after a migration or a restart. Ctrl-C ends it."
)]
pub struct PortForward {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// TCP ports: [LOCAL:]REMOTE
    #[arg(required = true, value_name = "[LOCAL:]REMOTE")]
    pub ports: Vec<String>,
    /// Local address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub address: std::net::IpAddr,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm ssh-config pg >> ~/.ssh/config && ssh pg\n  \
                  rsync -e \"ssh -F <(neonctl vm ssh-config pg)\" -a data/ pg:/data/\n\n\
                  Writes the VM's private key to a file that only you can read, below $XDG_STATE_HOME/neonvm/ssh [default: \
                  ~/.local/state]. Call it again after the VM was deleted and created again.")]
pub struct SshConfig {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// User to log in as
    #[arg(short = 'l', long, default_value = "root")]
    pub login: String,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::Ssh;
    use crate::args::vm::Command as Vm;
    use crate::args::{Args, Command};

    fn ssh(line: &str) -> Ssh {
        match parsed(line).command {
            Command::Vm(Vm::Ssh(args)) => args,
            _ => panic!("not ssh"),
        }
    }

    fn parsed(line: &str) -> Args {
        Args::try_parse_from(line.split(' ')).unwrap()
    }

    /// As rsync, scp and people call ssh: options of ours before the command, and all that follows it for the guest.
    #[test]
    fn everything_after_the_command_is_the_guest_s() {
        let args = ssh("neonctl vm ssh -l bob pg rsync --server -vlogDtpre.iLsfxCIvu --delete . /a -n");
        assert_eq!((args.login.as_str(), args.name.as_str()), ("bob", "pg"));
        assert_eq!(args.command.join(" "), "rsync --server -vlogDtpre.iLsfxCIvu --delete . /a -n");
        let args = ssh("neonctl -n x vm ssh pg -l bob -L 1:a:2 -p 23 df -h -- /");
        assert_eq!((args.login.as_str(), args.port, args.local_forward.len()), ("bob", 23, 1));
        assert_eq!(args.command.join(" "), "df -h -- /");
        for line in
            ["neonctl -n x vm ssh pg ls -n", "neonctl vm ssh -n x pg ls -n", "neonctl vm -nx ssh pg -- -n y"]
        {
            assert_eq!(parsed(line).global.place.namespace.as_deref(), Some("x"), "{line}");
        }
        assert_eq!(ssh("neonctl vm ssh pg -l bob -- ls -l").command, ["ls", "-l"]);
        assert_eq!(ssh("neonctl vm ssh pg -- -x --y").command, ["-x", "--y"]);
        assert!(ssh("neonctl vm ssh pg").command.is_empty());
    }
}
