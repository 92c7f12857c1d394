//! `podautoscaler`

use crate::args::names::{self, Names};

use super::ListArgs;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the pod autoscalers of one namespace or of all
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  neonctl podautoscaler list\n  neonctl podautoscaler list -A -o wide --sort-by status\n  \
                  neonctl podautoscaler list -l team=search -w\n\n\
                  STATUS is one of Ready, Scaling (the number of replicas is changing), Limited (a rule limits the \
                  recommendation), Blind (a metric is missing), Disabled (the target was set to 0 replicas), Conflict (another \
                  autoscaler scales the target), Invalid, Failed, Paused, Recommend (recommendations only), New, Deleting."
    )]
    List(ListArgs),
    /// Show pod autoscalers by name
    Get(Get),
    /// Show one pod autoscaler in detail: target, metrics, bounds, problems, events
    Describe(Describe),
    /// Explain the current number of replicas, and which loads would change it
    Explain(Explain),
    /// Show changes of the number of replicas, failures and events, newest first
    History(History),
    /// Wait until a pod autoscaler meets a condition
    Wait(Wait),
    /// Pause scaling; metrics are still read
    Pause(Switch),
    /// Resume scaling
    Resume(Switch),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl podautoscaler get web\n  neonctl podautoscaler get web -o wide -w\n  \
                  neonctl podautoscaler get web -o jsonpath='{.status.desiredScale}'"
)]
pub struct Get {
    /// Names of the pod autoscalers
    #[arg(required = true, add = Names::PodAutoscalers, value_parser = names::podautoscaler)]
    pub names: Vec<String>,
    /// Keep running and show changes
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl podautoscaler describe web\n  neonctl podautoscaler describe web --events 20"
)]
pub struct Describe {
    /// Name of the pod autoscaler
    #[arg(add = Names::PodAutoscalers, value_parser = names::podautoscaler)]
    pub name: String,
    /// Number of recent events to show
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub events: usize,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl podautoscaler explain web\n  neonctl podautoscaler explain web -w\n  \
                  neonctl podautoscaler explain web -o json\n\n\
                  From top to bottom: the value read for each metric, the average over its window, the replicas it calls for, \
                  the limits, the result; then the loads at which the number of replicas would rise or fall. The service \
                  updates the numbers on every change, and at least every 15 seconds."
)]
pub struct Explain {
    /// Name of the pod autoscaler
    #[arg(add = Names::PodAutoscalers, value_parser = names::podautoscaler)]
    pub name: String,
    /// Keep running and show changes
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl podautoscaler history web\n  neonctl podautoscaler history web -o json\n\n\
                  The object keeps its last five changes; older changes are read from events, which a cluster keeps for about \
                  an hour."
)]
pub struct History {
    /// Name of the pod autoscaler
    #[arg(add = Names::PodAutoscalers, value_parser = names::podautoscaler)]
    pub name: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl podautoscaler wait web --for ready\n  \
                  neonctl podautoscaler wait web --for 'replicas>=3' --timeout 2m\n\n\
                  For other conditions: kubectl wait")]
pub struct Wait {
    /// Name of the pod autoscaler
    #[arg(add = Names::PodAutoscalers, value_parser = names::podautoscaler)]
    pub name: String,
    /// Condition: ready, replicas=N, replicas>=N or replicas<=N
    #[arg(long = "for", value_name = "WHAT")]
    pub predicate: String,
    /// How long to wait, such as 30s or 5m; exit code 6 when it expires
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: String,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl podautoscaler pause web api\n  neonctl podautoscaler resume web\n  \
                  neonctl podautoscaler pause web --dry-run server -o yaml\n\n\
                  This sets the field spec.paused. While it is true the target is not scaled; the recommendation is still \
                  computed and shown."
)]
pub struct Switch {
    /// Names of the pod autoscalers
    #[arg(required = true, add = Names::PodAutoscalers, value_parser = names::podautoscaler)]
    pub names: Vec<String>,
    /// Change nothing: client shows the change, server also has the API server validate it
    #[arg(long, value_name = "WHERE", value_parser = ["client", "server"], num_args = 0..=1, default_missing_value = "client")]
    pub dry_run: Option<String>,
}
