//! Binds pods to nodes on clusters without a scheduler of their own.
//!
//! It is the only scheduler there, so that it binds every pod, whatever scheduler it names. It looks at pods and nodes
//! through watches and acts when one of them changes; nothing is polled.

mod shell;
mod world;

use std::path::PathBuf;

/// Settings of the scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// How to reach the API server; none: as the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
}

/// Why the scheduler cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server.
    #[error("cannot use the API server")]
    Client(#[from] neonvm_kit::client::Error),
}

/// Binds pods until `stop` ends.
///
/// # Errors
/// If there is no way to reach the API server. That it does not answer is no error: it is tried again.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let client = neonvm_kit::client::connect(config.kubeconfig.as_deref()).await?;
    tokio::select! {
        () = shell::serve(client) => {}
        () = stop => {}
    }
    Ok(())
}
