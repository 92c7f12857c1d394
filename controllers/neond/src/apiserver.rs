//! `neond apiserver`: the embedded API server with its state on disk.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use neonvm_apiserver::{Config, Server};
use neonvm_kit::private;
use neonvm_kit::reserve::Reserve;
use tokio::task::JoinSet;

/// Flags.
#[derive(clap::Args, Debug)]
#[group(id = "apiserver", multiple = true)]
pub(crate) struct Args {
    /// Name of the cluster, for its kubeconfig
    #[arg(long, default_value = "local")]
    pub(crate) name: String,
    /// Directory of state, keys and kubeconfig
    #[arg(long)]
    pub(crate) data_dir: PathBuf,
    /// Address to listen on; port 0: a free port
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Further DNS names or addresses for the server's certificate
    #[arg(long = "tls-name")]
    pub(crate) tls_names: Vec<String>,
    /// Serve fault switches for tests under /chaos/
    #[arg(long)]
    pub(crate) chaos: bool,
    /// Refuse PodAutoscalers with strategy HPA: no controller scales by HorizontalPodAutoscaler objects
    #[arg(long)]
    pub(crate) without_hpa: bool,
}

/// How often the age of the kubeconfig's certificate is looked at.
const LOOK: Duration = Duration::from_secs(3600);

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::service::close_files();
    crate::service::take_open_files();
    crate::service::run(serve(args))
}

async fn serve(args: &Args) -> anyhow::Result<()> {
    let config = Config {
        directory: args.data_dir.clone(),
        listen: args.listen,
        names: args.tls_names.clone(),
        faults: args.chaos,
        has_hpa_controller: !args.without_hpa,
    };
    let server = Server::start(&config).await?;
    let kubeconfig = serde_json::to_string_pretty(&server.kubeconfig(&args.name))?;
    // Written last and in one step: once the file exists, the server answers.
    let path = args.data_dir.join("kubeconfig");
    Reserve::from_directory(&args.data_dir)
        .lend(|| private::replace(&path, kubeconfig.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    tracing::info!(server = server.url(), "ready");
    // Ended with the server.
    let mut renewal = JoinSet::new();
    renewal.spawn(keep_kubeconfig(args.data_dir.clone()));
    server.run(neonvm_kit::termination::requested()?).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Renews the administrator's certificate in the kubeconfig, for as long as the server runs.
async fn keep_kubeconfig(directory: PathBuf) {
    loop {
        tokio::time::sleep(LOOK).await;
        match neonvm_kit::administrator::renew(&directory) {
            Ok(true) => tracing::info!("the certificate of the kubeconfig is renewed"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the certificate of the kubeconfig cannot be renewed"),
        }
    }
}
