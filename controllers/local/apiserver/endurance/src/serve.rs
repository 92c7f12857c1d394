//! The server itself, as `neond local` runs it, so that tests need no other binary.

use std::net::SocketAddr;
use std::path::PathBuf;

use neonvm_apiserver::{Config, Server};

/// Flags, the same as those of `neond local`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory of state, keys and kubeconfig
    #[arg(long)]
    data_dir: PathBuf,
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    chaos: bool,
}

/// Serves until killed.
///
/// # Errors
/// If the server cannot start.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let config = Config {
        directory: args.data_dir.clone(),
        listen: args.listen,
        names: Vec::new(),
        faults: args.chaos,
        has_hpa_controller: true,
    };
    let server = Server::start(&config).await?;
    let text = serde_json::to_string(&server.kubeconfig("endurance"))?;
    // In one step: a process that waits for the file never reads half of it.
    let fresh = args.data_dir.join("kubeconfig.new");
    std::fs::write(&fresh, text)?;
    std::fs::rename(&fresh, args.data_dir.join("kubeconfig"))?;
    server.run(std::future::pending()).await?;
    Ok(())
}
