//! Looking at virtual machines.

use clap_complete::engine::ArgValueCandidates;

use super::Place;
use crate::args::Output;

/// `vm list`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm list\n  neonctl vm list -A -o wide --sort-by restarts\n  neonctl vm list -l team=db -w"
)]
pub struct List {
    /// In every namespace
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Labels they must have, such as team=db,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Those that have no node yet
    #[arg(long)]
    pub pending: bool,
    /// Those that are being moved
    #[arg(long)]
    pub migrating: bool,
    /// Those on this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Column or path to sort by
    #[arg(long, value_name = "FIELD")]
    pub sort_by: Option<String>,
    /// Go on and show changes
    #[arg(short, long)]
    pub watch: bool,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `vm get`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm get pg\n  neonctl vm get pg -o wide -w\n  neonctl vm get pg -o jsonpath='{.status.node}'"
)]
pub struct Get {
    /// Which
    #[arg(required = true, add = ArgValueCandidates::new(crate::complete::machines))]
    pub names: Vec<String>,
    /// Go on and show changes
    #[arg(short, long)]
    pub watch: bool,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `vm describe`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm describe pg\n  neonctl vm describe pg --events 20")]
pub struct Describe {
    /// Which
    #[arg(add = ArgValueCandidates::new(crate::complete::machines))]
    pub name: String,
    /// How many of the last events are shown
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub events: usize,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `vm events`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm events pg\n  neonctl vm events --since 10m --types Warning")]
pub struct Events {
    /// Which [default: all of the namespace]
    #[arg(add = ArgValueCandidates::new(crate::complete::machines))]
    pub name: Option<String>,
    /// Not older than, such as 10m
    #[arg(long, value_name = "DURATION")]
    pub since: Option<String>,
    /// Kinds of events: Normal, Warning, Decision (of the agent that scales it)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ["Normal", "Warning", "Decision"])]
    pub types: Vec<String>,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `vm logs`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm logs pg -f\n  neonctl vm logs pg --source serial,qemu --tail 50 --timestamps\n  \
                  neonctl vm logs pg --previous\n  neonctl vm logs pg --source serial --raw > boot.log"
)]
pub struct Logs {
    /// Which
    #[arg(add = ArgValueCandidates::new(crate::complete::machines))]
    pub name: String,
    /// Whose lines: guest (the workload), serial (the console), qemu, runner, or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all",
          value_parser = ["all", "guest", "serial", "qemu", "runner"])]
    pub source: Vec<String>,
    /// Go on until stopped
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last so many lines
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
    /// Not older than, such as 10m
    #[arg(long, value_name = "DURATION")]
    pub since: Option<String>,
    /// The time in front of each line
    #[arg(long)]
    pub timestamps: bool,
    /// How the VM ended the last time, with the last lines of its console
    #[arg(long)]
    pub previous: bool,
    /// Lines as the guest wrote them. Otherwise control characters are shown, such as \x1b: they would steer this terminal
    #[arg(long)]
    pub raw: bool,
    /// Where.
    #[command(flatten)]
    pub place: Place,
}
