//! Carries connections of QEMU to the other runner.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use neonvm_types::runner_protocol::MigrationChannel;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::carrier::Guarded;
use super::connect::Connector;

/// Bytes on the way in the direction of the move: what QEMU writes at once.
pub(super) const FORTH: usize = 256 << 10;
/// In the other direction there are only acknowledgements.
pub(super) const BACK: usize = 64 << 10;
/// More connections than two QEMUs make: 255 channels, the main one, one that overtakes, disks.
const CONNECTIONS: usize = 400;

/// Listens for the source's QEMU, and connects each of its connections with the target: one after the other, because
/// QEMU tells them apart by the order in which they arrive. Ends when the guard is dropped.
pub(super) fn listen(
    carrier: &Handle,
    socket: &Path,
    connector: Connector,
    channel: MigrationChannel,
    troubles: mpsc::Sender<String>,
) -> std::io::Result<Guarded> {
    let _ = std::fs::remove_file(socket);
    let listener = std::os::unix::net::UnixListener::bind(socket)?;
    // The directory lets nobody in but QEMU.
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o777))?;
    listener.set_nonblocking(true)?;
    let task = carrier.spawn(async move {
        let Ok(listener) = UnixListener::from_std(listener) else { return };
        let mut open = JoinSet::new();
        loop {
            let Ok((mut qemu, _)) = listener.accept().await else { return };
            while open.try_join_next().is_some() {}
            if open.len() >= CONNECTIONS {
                continue;
            }
            match connector.open(channel).await {
                Ok(mut target) => drop(open.spawn(async move {
                    carry(&mut qemu, &mut target, FORTH, BACK).await;
                })),
                Err(why) => {
                    tracing::warn!(why, ?channel, "a connection of QEMU leads nowhere");
                    let _ = troubles.try_send(why);
                }
            }
        }
    });
    Ok(task.into())
}

/// Joins two connections until both have ended, or either has broken.
pub(super) async fn carry<A, B>(one: &mut A, other: &mut B, forth: usize, back: usize)
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    match copy_bidirectional_with_sizes(one, other, forth, back).await {
        Ok((forth, back)) => tracing::debug!(forth, back, "a connection ended"),
        Err(error) => tracing::debug!(%error, "a connection broke"),
    }
}
