//! A client of the Kubernetes API from a kubeconfig file, or from the service account of the pod.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

mod proxy;
mod transport;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig file.
    #[error("cannot use the kubeconfig {path}")]
    Kubeconfig {
        path: String,
        /// Why it could not be read.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// Neither a file was named nor does this run in a pod.
    #[error("no --kubeconfig was given and this does not run in a pod of a cluster")]
    NotInCluster(#[source] kube::config::InClusterError),
    /// TLS settings.
    #[error("cannot prepare the connection to the API server")]
    Client(#[source] kube::Error),
}

/// Connects by the kubeconfig, or as the pod's service account. Nothing is sent yet.
///
/// # Errors
/// If file or service account cannot be used.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    from_config(configuration(kubeconfig).await?).map_err(Error::Client)
}

/// As [`connect`], for callers that need an error at once when the server is overloaded or something behind it does not
/// answer (429, 503, 504): the default client repeats the request, for longer than any deadline.
///
/// # Errors
/// As [`connect`].
pub async fn connect_without_retries(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    let mut config = configuration(kubeconfig).await?;
    config.default_retry = false;
    from_config(config).map_err(Error::Client)
}

/// A client as `kube` makes it, but its connections fail when the server is gone without a word for 40 s, and its proxy is
/// chosen as kubectl does: the one that the kubeconfig names; else that of `HTTPS_PROXY`, but not to this machine itself
/// nor to what `NO_PROXY` lists.
///
/// # Errors
/// If the credentials or the proxy cannot be used.
pub fn from_config(config: Config) -> Result<Client, kube::Error> {
    through_proxy(config, transport::REQUESTS)
}

/// As [`of`], for connections that carry input to a program (`exec`, `portforward`): the program may leave it unread
/// for as long as it likes. A server that is gone is detected as soon while nothing is sent to it; while data is sent,
/// only when the kernel closes the connection (about 15 minutes).
///
/// # Errors
/// As [`of`].
pub fn for_streams(config: Config) -> Result<Client, kube::Error> {
    through_proxy(config, transport::STREAMS)
}

fn through_proxy(config: Config, silence: transport::Silence) -> Result<Client, kube::Error> {
    let proxy = proxy::chosen(&config, &|name| std::env::var(name).ok());
    transport::client(config, proxy, silence)
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<Config, Error> {
    let mut config = match kubeconfig {
        Some(path) => {
            let failed = |source| Error::Kubeconfig { path: path.display().to_string(), source };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)?
        }
        None => Config::incluster().map_err(Error::NotInCluster)?,
    };
    config.connect_timeout = Some(Duration::from_secs(5));
    // A watch lives for minutes without a byte; requests have separate deadlines.
    config.read_timeout = None;
    config.write_timeout = Some(Duration::from_secs(30));
    Ok(config)
}
