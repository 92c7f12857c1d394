//! `neond`: one binary that carries every service; each is a subcommand.

mod local;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "neond",
    version,
    about = "Services of the VM autoscaling system; started by neonctl or by pods"
)]
struct Args {
    #[command(subcommand)]
    service: Service,
}

#[derive(Debug, Subcommand)]
enum Service {
    /// The embedded cluster: API server with its state on disk
    Local(local::Args),
}

fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match Args::parse().service {
        Service::Local(args) => local::run(&args),
    }
}
