//! `upgrade`

use super::install::{Carrying, Choices};

/// `upgrade`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl upgrade\n  neonctl upgrade --runners migrate\n  neonctl upgrade --version 0.2.1\n\n\
                  VMs keep running: their runners keep the old version, which is supported, until the VMs restart or migrate."
)]
pub struct Upgrade {
    /// New options; options without a flag keep their previous values.
    #[command(flatten)]
    pub choices: Choices,
    /// Allow a version older than the installed one
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Runners of the old version: keep does not replace them, migrate replaces them by live migration, one at a time
    #[arg(long, value_name = "HOW", default_value = "keep", value_parser = ["keep", "migrate"])]
    pub runners: String,
    /// Other arguments.
    #[command(flatten)]
    pub carrying: Carrying,
}
