//! `migration`, and `vm migrate`, which makes one.

use clap_complete::engine::ArgValueCandidates;

use super::vm::{Place, Waiting};
use super::{Output, Showing};

/// `migration`
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Moves of virtual machines, those that go on and those that are over
    List(List),
    /// Moves by name
    Get(Get),
    /// One move in words: why, how, how far, how it ended
    Describe(Describe),
    /// Call moves off; their virtual machines stay where they are
    Cancel(Cancel),
    /// Wait until moves are over
    Wait(Wait),
}

impl Command {
    pub(super) fn output(&self) -> Option<&Output> {
        match self {
            Self::List(args) => Some(&args.output),
            Self::Get(args) => Some(&args.output),
            Self::Describe(args) => Some(&args.output),
            Self::Cancel(args) => Some(&args.output),
            Self::Wait(args) => Some(&args.output),
        }
    }
}

/// `vm migrate`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm migrate pg\n  neonctl vm migrate pg --to n3\n  neonctl vm migrate pg --avoid n2 --dry-run\n  \
                  neonctl vm migrate pg --max-downtime 100ms --postcopy on-timeout --completion-timeout 10m --on-timeout post-copy\n\n\
                  Connections to the virtual machine's own address stay. Ctrl-C stops the waiting, not the move: \
                  neonctl migration cancel calls it off."
)]
pub struct Migrate {
    /// Which
    #[arg(add = ArgValueCandidates::new(crate::complete::machines))]
    pub name: String,
    /// Only to this node; can be repeated
    #[arg(long, value_name = "NODE")]
    pub to: Vec<String>,
    /// Not to this node; can be repeated
    #[arg(long, value_name = "NODE")]
    pub avoid: Vec<String>,
    /// Longest pause of the guest, such as 100ms; an emulated machine (TCG) moves by one pass and does not keep to it [default: that
    /// of the policy, else 300ms]
    #[arg(long, value_name = "DURATION")]
    pub max_downtime: Option<String>,
    /// Most bytes in a second, such as 512Mi [default: 1Gi]
    #[arg(long, value_name = "SIZE")]
    pub bandwidth: Option<String>,
    /// Connections for memory [default: that of the policy, else 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub channels: Option<u8>,
    /// Compression of memory on the way [default: that of the policy, else zstd]
    #[arg(long, value_name = "HOW", value_parser = ["none", "zstd"])]
    pub compress: Option<String>,
    /// Do not slow the guest down: when it changes memory faster than it is sent, or while its disks are copied
    #[arg(long)]
    pub no_auto_converge: bool,
    /// When the guest may run there before all its memory is there [default: that of the policy, else never]
    #[arg(long, value_name = "WHEN", value_parser = ["never", "on-timeout", "after-first-pass"])]
    pub postcopy: Option<String>,
    /// Time for all of it, such as 10m [default: 1h, or that of the policy if it is shorter]
    #[arg(long, value_name = "DURATION")]
    pub completion_timeout: Option<String>,
    /// What happens when that time is up [default: that of the policy, else abort]
    #[arg(long, value_name = "WHAT", value_parser = ["abort", "post-copy", "continue"])]
    pub on_timeout: Option<String>,
    /// Policy to go by [default: the one that matches the virtual machine best]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Among moves that wait, those with a higher number go first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Change nothing: print for each node whether it could go there, and where it would go
    #[arg(long)]
    pub dry_run: bool,
    /// Namespace of the services, for --dry-run
    #[arg(long, value_name = "NAME", default_value = "neonvm-system")]
    pub system_namespace: String,
    /// How progress is shown.
    #[command(flatten)]
    pub showing: Showing,
    /// Waiting.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `migration list`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl migration list\n  neonctl migration list -A --active -w\n  neonctl migration list --vm pg --last"
)]
pub struct List {
    /// In every namespace
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Labels they must have
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Those that are not over
    #[arg(long)]
    pub active: bool,
    /// Those of this virtual machine
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(crate::complete::machines))]
    pub vm: Option<String>,
    /// Only the newest
    #[arg(long, conflicts_with = "watch")]
    pub last: bool,
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

/// `migration get`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl migration get pg-1 -o wide\n  neonctl migration get pg-1 -w")]
pub struct Get {
    /// Which
    #[arg(required = true, add = ArgValueCandidates::new(crate::complete::migrations))]
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

/// `migration describe`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl migration describe pg-1")]
pub struct Describe {
    /// Which
    #[arg(add = ArgValueCandidates::new(crate::complete::migrations))]
    pub name: String,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `migration cancel`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl migration cancel pg-1\n  neonctl migration cancel pg-1 --no-wait\n\n\
                  Until the virtual machine runs on the other node nothing is lost; after that there is nothing to call off (exit code 5)."
)]
pub struct Cancel {
    /// Which
    #[arg(required = true, add = ArgValueCandidates::new(crate::complete::migrations))]
    pub names: Vec<String>,
    /// Waiting.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `migration wait`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  neonctl migration wait pg-1 --timeout 10m\n\nExit code 0 if the virtual machine has moved, 1 if it stayed where it was."
)]
pub struct Wait {
    /// Which
    #[arg(required = true, add = ArgValueCandidates::new(crate::complete::migrations))]
    pub names: Vec<String>,
    /// How long to wait, such as 30s or 5m; then exit with 6
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: String,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}
