//! Files of a pod.
//!
//! ```text
//! state.json                      see `state_file`
//! root/                           what containers without a root of their own take for their file system
//! exec/                           empty; where containers and commands have their root, each in mounts of its own
//! volumes/<name>/                 content of volumes
//! volumes/.host/                  copies of files of the host that other users may not read
//! mounts.json                     where the volumes appear in a root of the pod's own
//! etc/                            hosts, resolv.conf, ssh_config: in place of the host's
//! containers/<name>/<n>.pid       line of /proc/PID/stat that the process wrote before its program ran
//! containers/<name>/<n>.message   termination log
//! logs/<name>/<n>.log             output; the runner moves it to <n>.log.1 when it is long
//! ```

use std::path::{Path, PathBuf};

/// Path to which a long log is renamed.
pub(crate) fn aside(log: &Path) -> PathBuf {
    let mut aside = log.as_os_str().to_owned();
    aside.push(".1");
    aside.into()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodDirectory(PathBuf);

impl PodDirectory {
    /// The directory of a pod below the directory of its node.
    pub(crate) fn new(node: &Path, uid: &str) -> Self {
        Self(node.join("pods").join(uid))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    pub(crate) fn exec(&self) -> PathBuf {
        self.0.join("exec")
    }

    pub(crate) fn spare(&self) -> PathBuf {
        self.0.join("volumes/.host")
    }

    pub(crate) fn mounts(&self) -> PathBuf {
        self.0.join("mounts.json")
    }

    pub(crate) fn etc(&self) -> PathBuf {
        self.0.join("etc")
    }

    pub(crate) fn pid(&self, container: &str, restarts: u32) -> PathBuf {
        self.0.join("containers").join(container).join(format!("{restarts}.pid"))
    }

    pub(crate) fn message(&self, container: &str, restarts: u32) -> PathBuf {
        self.0.join("containers").join(container).join(format!("{restarts}.message"))
    }

    pub(crate) fn log(&self, container: &str, restarts: u32) -> PathBuf {
        self.0.join("logs").join(container).join(format!("{restarts}.log"))
    }
}
