//! `config`

use super::names::Names;

/// Settings of this program.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the effective settings
    View(View),
    /// Write a setting to the configuration file
    Set(Set),
    /// Remove a setting from the configuration file
    Unset(Unset),
    /// Print the path of the configuration file
    Path(Path),
    /// Convert a configuration file of the agent or the scheduler, of any version, to today's form
    Convert(Convert),
    /// Explain what each key of a configuration file of the agent or the scheduler means
    Explain(Explain),
}

/// `config view`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl config view --show-origin")]
pub struct View {
    /// Show where each value comes from
    #[arg(long)]
    pub show_origin: bool,
}

/// `config set`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl config set output wide")]
pub struct Set {
    /// Name of the setting, which is the name of its flag
    #[arg(add = Names::Settings)]
    pub key: String,
    /// Value of the setting
    pub value: String,
}

/// `config unset`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl config unset output\n\n\
                  Afterwards the environment or the built-in value applies: neonctl config view --show-origin shows it.")]
pub struct Unset {
    /// Name of the setting, which is the name of its flag
    #[arg(add = Names::Settings)]
    pub key: String,
}

/// `config path`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cat \"$(neonctl config path)\"")]
pub struct Path {}

/// A configuration file of a service.
#[derive(Debug, clap::Args)]
pub struct ServiceFile {
    /// Service that reads the file
    #[arg(long)]
    pub kind: Service,
    /// JSON file, or YAML file with the ConfigMap of an installation; - is standard input
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: String,
}

/// A service that has a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Service {
    /// The agent of each node
    Agent,
    /// The scheduler
    Scheduler,
}

/// `config convert`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl config convert --kind agent -f config_map.yaml > agent.json\n\n\
                  Reads the files of upstream's releases from v0.10 on. Services read them as they are; a converted file also \
                  shows the defaults of what was missing.")]
pub struct Convert {
    /// The file.
    #[command(flatten)]
    pub input: ServiceFile,
}

/// `config explain`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  neonctl config explain --kind scheduler -f autoscale-enforcer-config.json"
)]
pub struct Explain {
    /// The file.
    #[command(flatten)]
    pub input: ServiceFile,
}
