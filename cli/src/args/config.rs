//! `config`

use super::names::Names;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the effective settings
    View(View),
    /// Write a setting to the configuration file
    Set(Set),
    /// Remove a setting from the configuration file
    Unset(Unset),
    /// Print the path of the configuration file
    #[command(after_help = "Example:\n  cat \"$(neonctl config path)\"")]
    Path,
    /// Convert a configuration file of the agent or the scheduler, of any version, to today's form
    #[command(
        after_help = "Example:\n  neonctl config convert --kind agent -f config_map.yaml > agent.json\n\n\
                  Reads the files of upstream's releases from v0.10 on. Services read them as they are; a converted file also \
                  shows the defaults of what was missing."
    )]
    Convert(ServiceFile),
    /// Explain what each key of a configuration file of the agent or the scheduler means
    #[command(
        after_help = "Example:\n  neonctl config explain --kind scheduler -f autoscale-enforcer-config.json"
    )]
    Explain(ServiceFile),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl config view --show-origin")]
pub struct View {
    /// Show where each value comes from
    #[arg(long)]
    pub show_origin: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl config set output wide")]
pub struct Set {
    /// Name of the setting, which is the name of its flag
    #[arg(add = Names::Settings)]
    pub key: String,
    /// Value of the setting
    pub value: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl config unset output\n\n\
                  Afterwards the environment or the built-in value applies: neonctl config view --show-origin shows it.")]
pub struct Unset {
    /// Name of the setting, which is the name of its flag
    #[arg(add = Names::Settings)]
    pub key: String,
}

#[derive(Debug, clap::Args)]
pub struct ServiceFile {
    /// Service that reads the file
    #[arg(long)]
    pub kind: Service,
    /// JSON file, or YAML file with the ConfigMap of an installation; - is standard input
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Service {
    /// The agent of each node
    Agent,
    /// The scheduler
    Scheduler,
}
