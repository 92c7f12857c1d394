//! `services.json`: the running processes, for programs that show or end them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use neonvm_kit::private;
use neonvm_kit::reserve::Reserve;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Error;

/// Name of the file in the directory of the cluster.
const FILE: &str = "services.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceState {
    pub(crate) name: String,
    /// Process; none while it waits to be started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    /// When the process was started, in clock ticks since the host's start (field 22 of `/proc/PID/stat`): together
    /// with the number it names a process for good, until the host is restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_time: Option<u64>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<String>,
    /// How often it was started again.
    pub(crate) restarts: u64,
}

/// The file with the running services.
#[derive(Debug)]
pub(crate) struct Record {
    path: PathBuf,
    /// The running services are recorded on a full disk, too: stopping the cluster depends on it.
    reserve: Reserve,
    services: Mutex<BTreeMap<String, ServiceState>>,
}

/// When a process was started, in clock ticks since the host's start.
fn start_time(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may hold anything.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

impl Record {
    /// Reads the states that a supervisor wrote; nothing if there is none.
    ///
    /// # Errors
    /// If the file is there and cannot be read.
    #[cfg(test)]
    pub(crate) fn read(directory: &Path) -> std::io::Result<Vec<ServiceState>> {
        match std::fs::read(directory.join(FILE)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(std::io::Error::other),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn create(directory: &Path) -> Result<Self, Error> {
        let record = Self {
            path: directory.join(FILE),
            reserve: Reserve::from_directory(directory),
            services: Mutex::default(),
        };
        let failed = |source| Error::File { path: record.path.display().to_string(), source };
        private::directory(directory).map_err(failed)?;
        record.write(&BTreeMap::new()).map_err(failed)?;
        Ok(record)
    }

    pub(super) fn started(&self, name: &str, pid: u32, restarts: u64) {
        self.change(ServiceState {
            name: name.to_owned(),
            pid: Some(pid),
            start_time: start_time(pid),
            started_at: Some(jiff::Timestamp::now().to_string()),
            restarts,
        });
    }

    pub(super) fn ended(&self, name: &str, restarts: u64) {
        let name = name.to_owned();
        self.change(ServiceState { name, pid: None, start_time: None, started_at: None, restarts });
    }

    pub(super) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    fn change(&self, state: ServiceState) {
        let mut services = self.services.lock();
        services.insert(state.name.clone(), state);
        if let Err(error) = self.write(&services) {
            tracing::error!(%error, path = %self.path.display(), "cannot write what runs");
        }
    }

    /// Readers see the old or the new content, never a part.
    fn write(&self, services: &BTreeMap<String, ServiceState>) -> std::io::Result<()> {
        let all: Vec<&ServiceState> = services.values().collect();
        let bytes = serde_json::to_vec_pretty(&all).map_err(std::io::Error::other)?;
        self.reserve.lend(|| private::replace(&self.path, &bytes))
    }
}
