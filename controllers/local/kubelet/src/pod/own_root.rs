//! The root of a pod's own in which its runner starts, as a user of the pod's own, where the node can make roots ([`crate::confined`]).

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Handle, PodDirectory};
use crate::confined::{Host, LOG, Root, TERMINATION_LOG};
use crate::mount::Mount;
use crate::node::Node;
use crate::sys::{self, User};
use crate::{files, naming, runner_service};

/// The user of a pod with this address; `None`: its processes are the node's user.
pub(crate) fn user(ip: &str) -> Option<u32> {
    let ip: Ipv4Addr = ip.parse().ok()?;
    sys::can_make_roots().then(|| naming::pod_user(ip))
}

/// What a process of the runner becomes.
pub(crate) fn becomes(user: u32) -> User {
    User { id: user, groups: vec![naming::VOLUMES_GROUP], most_processes: None }
}

/// Where the volumes of a pod are, for all roots that are made later.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// Whether its containers have a root and a user of their own. Those that an earlier version has started go on without.
    pub(crate) own_root: bool,
    pub(crate) mounts: Vec<Mount>,
}

impl Layout {
    /// Writes it down.
    ///
    /// # Errors
    /// If that is not possible.
    pub(crate) fn write(&self, directory: &PodDirectory) -> io::Result<()> {
        files::replace(&directory.mounts(), &serde_json::to_vec(self)?, 0o600)
    }

    /// What was written last.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn read(directory: &PodDirectory) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(directory.mounts())?)?)
    }
}

/// The root of a command in a pod that is not ours.
///
/// # Errors
/// If the pod is not prepared.
pub(crate) fn of_command(handle: &Handle, user: u32) -> io::Result<Root> {
    let directory = &handle.directory;
    let mounts = Layout::read(directory)?.mounts;
    Ok(Root { base: directory.exec(), mounts, etc: directory.etc(), user, host: None })
}

/// Files of a container that are the runner's own.
pub(super) struct Own<'a> {
    pub(super) log: &'a Path,
    pub(super) message: &'a fs::File,
    pub(super) message_path: &'a Path,
}

/// The root of a container, whose files are given to its user.
///
/// # Errors
/// If the pod is not prepared, or a file cannot be given away.
pub(super) fn of_container(node: &Node, handle: &Handle, user: u32, own: &Own<'_>) -> io::Result<Root> {
    let directory = &handle.directory;
    let logs = own.log.parent().unwrap_or(own.log);
    std::os::unix::fs::lchown(logs, Some(user), Some(user))?;
    fchown(own.message, Some(user), Some(user))?;
    let spare = directory.spare();
    files::directory(&spare, 0o700)?;
    let (config, service) = (&node.config, runner_service::directory(&node.config.data));
    let mut host = Host::new(&node.executable, &config.machine, &service, &spare)?;
    host.add(logs.to_owned(), LOG, true);
    host.add(own.message_path.to_owned(), TERMINATION_LOG, true);
    let mounts = Layout::read(directory)?.mounts;
    Ok(Root { base: directory.exec(), mounts, etc: directory.etc(), user, host: Some(host) })
}

/// Path of a log in a container's root.
pub(super) fn log(path: &Path) -> PathBuf {
    Path::new(LOG).join(path.file_name().unwrap_or_default())
}
