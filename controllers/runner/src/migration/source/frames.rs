//! Frames for the guest on the overlay: the target claims them, and those that are here already follow it.

use std::time::Duration;

use neonvm_types::runner_protocol::MigrationOrder;

use super::{Guarded, Work};

/// Time for the target to take frames.
const CLAIM: Duration = Duration::from_secs(1);

impl Work {
    /// Keeps copies of frames for the guest, on the threads that carry bytes: QEMU drops some as it stops.
    pub(super) fn copy_frames(&self) -> Option<Guarded> {
        let (frames, handle) = self.frames.clone().zip(self.carrier.handle())?;
        let copied = async move {
            if let Err(error) = frames.follow().await {
                tracing::info!(%error, "frames for the guest are not copied");
            }
        };
        Some(handle.spawn(copied).into())
    }

    /// The guest is paused: the target gets its frames.
    pub(super) async fn give_up_frames(&self) {
        if let Err(why) = self.order(MigrationOrder::Claim, CLAIM).await {
            tracing::info!(why, "frames for the guest are lost until it runs on the target");
        } else {
            self.pass_on();
        }
    }

    /// Frames that have arrived here since the guest was paused, and those that QEMU took as it stopped.
    pub(super) fn pass_on(&self) {
        match self.frames.as_ref().map(|frames| frames.pass_on()) {
            Some(Ok(passed)) => tracing::debug!(passed, "frames for the guest went after it"),
            Some(Err(error)) => tracing::info!(%error, "frames for the guest are lost"),
            None => {}
        }
    }

    /// The guest stays here, and reads its frames itself.
    pub(super) fn keep_frames(&self) {
        if let Some(Err(error)) = self.frames.as_ref().map(|frames| frames.forget()) {
            tracing::warn!(%error, "frames for the guest are still copied");
        }
    }
}
