//! `upgrade`

use super::install::{Carrying, Choices};

/// `upgrade`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl upgrade\n  neonctl upgrade --runners migrate\n  neonctl upgrade --version 0.2.1\n\n\
                  VMs run on meanwhile: their runners are of the old version until they start again or migrate, and are served."
)]
pub struct Upgrade {
    /// New choices; settings without a flag stay as they were chosen before.
    #[command(flatten)]
    pub choices: Choices,
    /// Go to a version that is older than what is installed
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Runners of the old version: keep leaves them, migrate replaces them by live migration, one at a time
    #[arg(long, value_name = "HOW", default_value = "keep", value_parser = ["keep", "migrate"])]
    pub runners: String,
    /// The rest.
    #[command(flatten)]
    pub carrying: Carrying,
}
