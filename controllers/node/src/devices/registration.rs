//! Keeps one resource registered. A kubelet that starts removes all sockets of its directory and forgets every plugin.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::time::{sleep, timeout};

use crate::devices::api::{self, Empty, RegisterRequest};
use crate::devices::connection::{self, Client};
use crate::devices::plugin::{self, Plugin};

const KUBELET: &str = "kubelet.sock";
/// How often the sockets are checked.
const LOOK: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(10);
/// First and longest pause after a registration that failed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// Device and inode of a socket: they distinguish it from another of the same name.
type Identity = (u64, u64);

/// Serves and registers `plugin` until the task is ended. Failures are logged and tried again.
pub(crate) async fn keep(plugin: Arc<Plugin>, directory: &Path) {
    let resource = plugin.device.resource();
    let mut pause = PAUSES.0;
    loop {
        let ended = once(&plugin, directory).await;
        plugin.set_registered(false);
        match ended {
            Ok(()) => {
                tracing::info!(resource, "the kubelet started again: registering again");
                pause = PAUSES.0;
            }
            Err(error) => {
                tracing::warn!(resource, %error, "cannot register with the kubelet, trying again");
                sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }
}

/// Serves and registers once; returns when the kubelet has forgotten it.
async fn once(plugin: &Arc<Plugin>, directory: &Path) -> Result<(), tonic::Status> {
    let kubelet = directory.join(KUBELET);
    let known = identity(&kubelet)
        .map_err(|error| tonic::Status::unavailable(format!("{}: {error}", kubelet.display())))?;
    let socket = Socket::bind(directory.join(plugin.endpoint()))?;
    let serving = {
        let plugin = Arc::clone(plugin);
        connection::serve(socket.listener, move |request| plugin::answer(Arc::clone(&plugin), request))
    };
    let registered = async {
        let register = register(&kubelet, plugin);
        timeout(DEADLINE, register).await.map_err(|_| tonic::Status::deadline_exceeded("no response"))??;
        plugin.set_registered(true);
        tracing::info!(resource = plugin.device.resource(), "registered with the kubelet");
        while identity(&kubelet).is_ok_and(|now| now == known) && socket.file.is_there() {
            sleep(LOOK).await;
        }
        Ok(())
    };
    tokio::select! {
        error = serving => Err(tonic::Status::unavailable(error.to_string())),
        result = registered => result,
    }
}

async fn register(kubelet: &Path, plugin: &Plugin) -> Result<(), tonic::Status> {
    let request = RegisterRequest {
        version: api::VERSION.to_owned(),
        endpoint: plugin.endpoint().display().to_string(),
        resource_name: plugin.device.resource().to_owned(),
        options: None,
    };
    let Empty {} = Client::connect(kubelet).await?.unary(api::REGISTER, request).await?;
    Ok(())
}

fn identity(path: &Path) -> io::Result<Identity> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// A listening socket and its file.
struct Socket {
    listener: UnixListener,
    file: File,
}

impl Socket {
    fn bind(path: PathBuf) -> Result<Self, tonic::Status> {
        let failed = |error: io::Error| tonic::Status::unavailable(format!("{}: {error}", path.display()));
        // Left by an earlier process that no longer listens.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let identity = identity(&path).map_err(failed)?;
        Ok(Self { listener, file: File { path, identity } })
    }
}

/// The file of a socket; it is removed with this value if it is still the same.
struct File {
    path: PathBuf,
    identity: Identity,
}

impl File {
    fn is_there(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.is_there() {
            // Otherwise the process that binds the name next removes it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
