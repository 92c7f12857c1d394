//! The state of a pod, on disk: enough to continue after the node was killed.

use std::io;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use super::PodDirectory;
use crate::files;
use crate::process::{Identity, boot_id};
use neonvm_core_kubelet::Machine;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Saved {
    /// The start of the host in which it was written.
    pub(crate) boot: String,
    pub(crate) pod: Pod,
    pub(crate) machine: Machine,
    /// Address of the pod; empty if it has none yet.
    pub(crate) ip: String,
}

impl Saved {
    pub(crate) fn write(&self, directory: &PodDirectory) -> io::Result<()> {
        files::replace(&directory.state(), &serde_json::to_vec(self)?, 0o600)
    }

    /// What was written last; an error names the reason why it cannot be read.
    pub(crate) fn read(directory: &PodDirectory) -> Result<Self, String> {
        let bytes = std::fs::read(directory.state()).map_err(|error| error.to_string())?;
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    }

    /// Whether processes of that time can still run.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot == boot_id()
    }
}

/// All pods of earlier runs of the node. Directories without a readable state hold nothing that was started, and are
/// removed.
pub(crate) fn load_all(node: &Path) -> io::Result<Vec<(String, Saved)>> {
    let mut all = Vec::new();
    let entries = match std::fs::read_dir(node.join("pods")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
        Err(error) => return Err(error),
    };
    for entry in entries.flatten() {
        let Ok(uid) = entry.file_name().into_string() else { continue };
        match Saved::read(&PodDirectory::new(node, &uid)) {
            Ok(saved) => all.push((uid, saved)),
            Err(error) => {
                tracing::warn!(uid, error, "removing a pod of which nothing is known");
                kill_pod(&entry.path());
                files::remove(&entry.path())?;
            }
        }
    }
    Ok(all)
}

pub(crate) fn kill_pod(directory: &Path) {
    let containers = std::fs::read_dir(directory.join("containers")).into_iter().flatten().flatten();
    let files =
        containers.flat_map(|container| std::fs::read_dir(container.path()).into_iter().flatten().flatten());
    for file in files.filter(|file| file.path().extension().is_some_and(|extension| extension == "pid")) {
        let Some(identity) = Identity::read(&file.path()) else { continue };
        if Identity::from_pid(identity.pid) == Some(identity)
            && let Some(pid) = rustix::process::Pid::from_raw(identity.pid)
        {
            // It leads its group.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

/// The directories of all pods of all nodes below a directory.
pub(crate) fn pods(nodes: &Path) -> impl Iterator<Item = PodDirectory> {
    let nodes = std::fs::read_dir(nodes).into_iter().flatten().flatten();
    nodes.flat_map(|node| pods_of(&node.path()))
}

/// The directories of all pods of a node.
pub(crate) fn pods_of(node: &Path) -> impl Iterator<Item = PodDirectory> + use<> {
    let entries = std::fs::read_dir(node.join("pods")).into_iter().flatten().flatten();
    let node = node.to_path_buf();
    let uids = entries.filter_map(|pod| pod.file_name().into_string().ok());
    uids.map(move |uid| PodDirectory::new(&node, &uid))
}

/// Kills the processes of all pods of all nodes below a directory.
pub(crate) fn kill_all(nodes: &Path) {
    for pod in pods(nodes) {
        kill_pod(pod.path());
    }
}
