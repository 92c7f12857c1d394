//! What the guest's daemon does for its disks on request: it reports how full they are, freezes their file systems and thaws them.

use neonvm_api::runner_pod::RunnerConfig;
use neonvm_types::guest::{DiskReport, FreezeRequest, Frozen, Thawed, disks_in_use};

use super::daemon::{Daemon, Error};

/// The disks of the VM.
#[derive(Debug)]
pub(crate) struct Disks {
    daemon: Daemon,
    /// Names and places of those whose use is shown.
    mounted: Vec<(String, String)>,
    /// Names of those on claims that are written.
    claims: Vec<String>,
}

impl Disks {
    pub(crate) fn new(daemon: Daemon, config: &RunnerConfig) -> Self {
        let claims = config.spec.claims(&config.name).filter(|(disk, _)| !disk.read_only);
        let claims = claims.map(|(disk, _)| disk.name.clone()).collect();
        Self { daemon, mounted: config.spec.mounted_disks(), claims }
    }

    /// How full they are, and whether they are frozen. A guest of an earlier version freezes none.
    pub(crate) async fn report(&self) -> Result<DiskReport, Error> {
        let (page, state) = tokio::join!(self.daemon.metrics(), self.daemon.freeze_state());
        let disks = disks_in_use(&page?, &self.mounted);
        Ok(DiskReport { disks, frozen_left_ms: state.unwrap_or_default().left_ms })
    }

    /// Freezes what is requested: without names all disks on claims that are written.
    pub(crate) async fn freeze(&self, mut request: FreezeRequest) -> Result<Frozen, Error> {
        if request.disks.is_empty() {
            request.disks.clone_from(&self.claims);
        }
        let frozen = self.daemon.freeze(&request).await;
        if matches!(frozen, Err(Error::Timeout(_) | Error::Http(_))) {
            // The client does not know of it, so it would not end it before its time.
            let _ = self.daemon.thaw().await;
        }
        frozen
    }

    pub(crate) async fn thaw(&self) -> Result<Thawed, Error> {
        self.daemon.thaw().await
    }
}
