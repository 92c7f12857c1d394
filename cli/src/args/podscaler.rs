//! `podscaler`

use clap_complete::engine::ArgValueCandidates;

use super::Output;
use super::vm::Place;

/// `podscaler`
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Pod autoscalers of a namespace, or of all
    List(List),
    /// Pod autoscalers by name
    Get(Get),
    /// One pod autoscaler in words: target, metrics, bounds, what is wrong, what happened last
    Describe(Describe),
    /// How its number of replicas came about, and what would change it
    Explain(Explain),
    /// Changes of replicas, failures and events, newest first
    History(History),
    /// Wait until something is true of it
    Wait(Wait),
    /// Stop scaling; metrics are still read
    Pause(Switch),
    /// Scale again
    Resume(Switch),
}

impl Command {
    pub(super) fn output(&self) -> Option<&Output> {
        match self {
            Self::List(args) => Some(&args.output),
            Self::Get(args) => Some(&args.output),
            Self::Describe(args) => Some(&args.output),
            Self::Explain(args) => Some(&args.output),
            Self::History(args) => Some(&args.output),
            Self::Wait(args) => Some(&args.output),
            Self::Pause(args) | Self::Resume(args) => Some(&args.output),
        }
    }
}

/// `podscaler list`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl podscaler list\n  neonctl podscaler list -A -o wide --sort-by status\n  neonctl podscaler list -l team=search -w\n\n\
                  STATUS is one of Ready, Scaling (replicas are on their way), Limited (something holds the recommendation back), Blind (a metric is \
                  missing), Conflict (another autoscaler has the target), Invalid, Failed, Paused, Recommend (nothing is written), New, Deleting."
)]
pub struct List {
    /// In every namespace
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Labels they must have, such as team=search,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
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

/// `podscaler get`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl podscaler get web\n  neonctl podscaler get web -o wide -w\n  neonctl podscaler get web -o jsonpath='{.status.desiredScale}'"
)]
pub struct Get {
    /// Which
    #[arg(required = true, add = ArgValueCandidates::new(crate::complete::podscalers))]
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

/// `podscaler describe`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl podscaler describe web\n  neonctl podscaler describe web --events 20"
)]
pub struct Describe {
    /// Which
    #[arg(add = ArgValueCandidates::new(crate::complete::podscalers))]
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

/// `podscaler explain`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl podscaler explain web\n  neonctl podscaler explain web -w\n  neonctl podscaler explain web -o json\n\n\
                  Read from top to bottom: what was read of each metric, the result of its window, the replicas it calls for, the limits, the outcome; \
                  then the loads from which there would be more or fewer replicas. The service writes its numbers whenever something changes, \
                  otherwise every 15 seconds."
)]
pub struct Explain {
    /// Which
    #[arg(add = ArgValueCandidates::new(crate::complete::podscalers))]
    pub name: String,
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

/// `podscaler history`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl podscaler history web\n  neonctl podscaler history web -o json\n\n\
                  The object keeps its last five changes; older ones are known by their events, which a cluster keeps for about an hour."
)]
pub struct History {
    /// Which
    #[arg(add = ArgValueCandidates::new(crate::complete::podscalers))]
    pub name: String,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `podscaler wait`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl podscaler wait web --for ready\n  neonctl podscaler wait web --for 'replicas>=3' --timeout 2m\n  \
                  neonctl podscaler wait web --for condition=MetricsAvailable=False\n  neonctl podscaler wait web --for deleted"
)]
pub struct Wait {
    /// Which
    #[arg(add = ArgValueCandidates::new(crate::complete::podscalers))]
    pub name: String,
    /// ready, replicas=N, replicas>=N, replicas<=N, condition=TYPE[=STATUS], jsonpath=EXPR[=VALUE] or deleted
    #[arg(long = "for", value_name = "WHAT")]
    pub predicate: String,
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

/// `podscaler pause`, `podscaler resume`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl podscaler pause web api\n  neonctl podscaler resume web\n  neonctl podscaler pause web --dry-run server -o yaml\n\n\
                  This is the field spec.paused. While it is true nothing is written to the target; the recommendation is still made and shown."
)]
pub struct Switch {
    /// Which
    #[arg(required = true, add = ArgValueCandidates::new(crate::complete::podscalers))]
    pub names: Vec<String>,
    /// Change nothing: client shows what would change, server has it checked, too
    #[arg(long, value_name = "WHERE", value_parser = ["client", "server"], num_args = 0..=1, default_missing_value = "client")]
    pub dry_run: Option<String>,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}
