//! `dashboard`

use super::top::Live;

/// `dashboard`
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl dashboard\n  neonctl dashboard -A --port 8080\n  \
                  ssh -L 8080:127.0.0.1:8080 host neonctl dashboard --port 8080\n\n\
                  Prints a URL with a random token and serves the page on 127.0.0.1 until Ctrl-C, with the rights of this user. \
                  Only requests with the token are answered with data. The page requests nothing from elsewhere.")]
pub struct Dashboard {
    /// TCP port on 127.0.0.1 [default: one that is free]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// What is shown, and how often it is read.
    #[command(flatten)]
    pub live: Live,
}
