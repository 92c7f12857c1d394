//! The plugin's process: checks the devices and keeps all resources registered.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use neonvm_kit::supervise::panic_of;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::devices::offer::{Device, Kvm, Offer};
use crate::devices::plugin::Plugin;
use crate::devices::{files, probes, registration};

/// How often the node's devices are checked: a module may be loaded later.
const LOOK: Duration = Duration::from_secs(5);

/// Settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// The kubelet's directory of sockets, usually `/var/lib/kubelet/device-plugins`.
    pub directory: PathBuf,
    /// Where the node's `/dev` is.
    pub devices: PathBuf,
    /// Directory on the node with the socket of the node service.
    pub sockets: PathBuf,
    /// How VMs get `/dev/kvm`.
    pub kvm: Kvm,
    /// Where probes are answered; `None`: nowhere.
    pub probes: Option<SocketAddr>,
}

/// Why the plugin ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubelet's directory cannot be read.
    #[error("{path}: {source}; give the kubelet's directory with --kubelet-directory")]
    Directory {
        path: String,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The address of the probes is not free.
    #[error("cannot listen on {address}: {source}; give another address with --health-probe-bind-address")]
    Listen {
        address: SocketAddr,
        /// Error of the socket.
        #[source]
        source: std::io::Error,
    },
    /// A task ended.
    #[error("a task of the device plugin ended unexpectedly: {0}")]
    Task(String),
}

/// Runs until `stop` ends; the sockets are removed then.
///
/// # Errors
/// If the kubelet's directory is not there, the address of the probes is not free, or a task ends by itself. A kubelet that does not answer is no error: it may
/// start later.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    if let Err(source) = std::fs::read_dir(&config.directory) {
        return Err(Error::Directory { path: config.directory.display().to_string(), source });
    }
    // Before any registration with the kubelet: an address that is taken ends the process with nothing begun.
    let listener = match config.probes {
        Some(address) => {
            let listener = TcpListener::bind(address).await;
            Some(listener.map_err(|source| Error::Listen { address, source })?)
        }
        None => None,
    };
    let mut tasks = JoinSet::new();
    let mut plugins = Vec::new();
    for device in Device::ALL {
        let (first, problem) = look(device, &config.devices, config.kvm);
        announce(device, first, config.kvm, problem);
        let (sender, offer) = watch::channel(first);
        let plugin = Arc::new(Plugin::new(device, offer, config.sockets.clone()));
        plugins.push(Arc::clone(&plugin));
        let directory = config.directory.clone();
        tasks.spawn(async move { registration::keep(plugin, &directory).await });
        tasks.spawn(observe(device, config.devices.clone(), config.kvm, sender));
    }
    if let Some(listener) = listener {
        tasks.spawn(neonvm_kit::http::probes(listener, move |path| probes::answer(path, &plugins)));
    }
    let ended = tokio::select! {
        () = stop => None,
        Some(ended) = tasks.join_next() => Some(ended.err().map_or_else(|| "it returned".to_owned(), panic_of)),
    };
    tasks.shutdown().await;
    ended.map_or(Ok(()), |why| Err(Error::Task(why)))
}

async fn observe(device: Device, devices: PathBuf, kvm: Kvm, offer: watch::Sender<Offer>) {
    loop {
        sleep(LOOK).await;
        let (now, problem) = look(device, &devices, kvm);
        let changed = offer.send_if_modified(|before| std::mem::replace(before, now) != now);
        if changed {
            announce(device, now, kvm, problem);
        }
    }
}

/// What the node offers, and why not all users may open it.
fn look(device: Device, devices: &Path, kvm: Kvm) -> (Offer, Option<std::io::Error>) {
    use std::os::unix::fs::FileTypeExt as _;
    let needed = device.needs().below(devices);
    let is_there = std::fs::metadata(&needed).is_ok_and(|found| found.file_type().is_char_device());
    let offer = device.offer(is_there, kvm);
    let made = match device {
        // Its socket is there before the plugin starts, and ends with this process.
        Device::Node => files::make(devices, &devices.join(files::FAULTS), files::FAULTS),
        _ => {
            // For runners of versions that are root while they prepare a VM.
            let is_root_only = device == Device::Tun || !offer.given;
            if is_root_only { Ok(false) } else { files::make(devices, &needed, device.short()) }
        }
    };
    match made {
        Ok(open) => (Offer { open, ..offer }, None),
        Err(error) => (offer, Some(error)),
    }
}

fn announce(device: Device, offer: Offer, kvm: Kvm, problem: Option<std::io::Error>) {
    let resource = device.resource();
    if let Some(error) = problem {
        let what = "runners may not open the device: no file of it can be made in the node's /dev/neonvm";
        tracing::warn!(resource, %error, what);
    }
    match (offer.given, offer.healthy) {
        (true, _) => tracing::info!(resource, "this node has the device"),
        (false, true) if device == Device::Kvm => {
            let why = if kvm == Kvm::Never { "by configuration" } else { "this node has no /dev/kvm" };
            tracing::warn!(resource, why, "the code of guests is emulated");
        }
        (false, true) => tracing::warn!(resource, "this node lacks the device: packets pass through QEMU"),
        (false, false) => {
            tracing::error!(resource, "this node lacks the device: it runs no VMs that request it");
        }
    }
}

#[cfg(test)]
mod tests;
