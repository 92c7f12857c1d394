//! Carries connections of QEMU to the other runner.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use neonvm_types::runner_protocol::MigrationChannel;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::carrier::Guarded;
use super::connect::Connector;

/// Bytes on the way in the direction of the migration. More would count as sent for QEMU without having arrived.
pub(super) const FORTH: usize = 64 << 10;
/// In the other direction there are only acknowledgements.
pub(super) const BACK: usize = 64 << 10;
/// More connections than two QEMUs make: 255 channels, the main one, one that overtakes, disks.
const CONNECTIONS: usize = 400;

/// Time for the main connection to end by itself after a helper of it broke.
const GRACE: Duration = Duration::from_millis(100);

/// Whether QEMU makes connections that help the first one (`multifd`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Helpers {
    /// None do.
    Absent,
    /// All but the first.
    Present,
}

/// Listens for the source's QEMU, and connects each of its connections with the target: one after the other, because
/// QEMU distinguishes them by the order in which they arrive. Ends when the guard is dropped.
pub(super) fn listen(
    carrier: &Handle,
    socket: &Path,
    connector: Connector,
    (channel, helpers): (MigrationChannel, Helpers),
    troubles: mpsc::Sender<String>,
) -> std::io::Result<Guarded> {
    let _ = std::fs::remove_file(socket);
    let listener = std::os::unix::net::UnixListener::bind(socket)?;
    // The directory is accessible to QEMU only.
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o777))?;
    listener.set_nonblocking(true)?;
    let task = carrier.spawn(async move {
        let Ok(listener) = UnixListener::from_std(listener) else { return };
        let mut open = JoinSet::new();
        let broken = Arc::new(watch::Sender::new(false));
        let mut is_main = true;
        loop {
            let Ok((qemu, _)) = listener.accept().await else { return };
            while open.try_join_next().is_some() {}
            if open.len() >= CONNECTIONS {
                continue;
            }
            match connector.open(channel).await {
                Ok(target) => {
                    let broken = Arc::clone(&broken);
                    if is_main || helpers == Helpers::Absent {
                        open.spawn(async move { carry_main(qemu, target, &broken).await });
                    } else {
                        open.spawn(async move { carry_helper(qemu, target, &broken).await });
                    }
                    is_main = false;
                }
                Err(why) => {
                    tracing::warn!(why, ?channel, "a connection of QEMU leads nowhere");
                    let _ = troubles.try_send(why);
                }
            }
        }
    });
    Ok(task.into())
}

/// The first connection: ends, too, when a helper has broken.
async fn carry_main<A, B>(mut qemu: A, mut target: B, broken: &watch::Sender<bool>)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let mut broken = broken.subscribe();
    let cut = async {
        let _ = broken.wait_for(|broken| *broken).await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        _ = carry(&mut qemu, &mut target, FORTH, BACK) => {}
        () = cut => tracing::debug!("a helper broke"),
    }
}

/// An extra connection (multifd). QEMU must notice a failure on its main connection: if it notices it on this one while the
/// last of the guest is sent, QEMU 7.2 lets the guest continue with disks that it has given up, and aborts when the guest writes
/// (`multifd_send_terminate_threads` hides from `migration_completion` what it has to take back). So this one is kept open.
async fn carry_helper<A, B>(mut qemu: A, mut target: B, broken: &watch::Sender<bool>)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    if !carry(&mut qemu, &mut target, FORTH, BACK).await {
        drop(target);
        broken.send_replace(true);
        let _ = tokio::io::copy(&mut qemu, &mut tokio::io::sink()).await;
    }
}

/// Joins two connections until both have ended, or either has broken; true: they have ended.
pub(super) async fn carry<A, B>(one: &mut A, other: &mut B, forth: usize, back: usize) -> bool
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    let ended = copy_bidirectional_with_sizes(one, other, forth, back).await;
    match &ended {
        Ok((forth, back)) => tracing::debug!(forth, back, "a connection ended"),
        Err(error) => tracing::debug!(%error, "a connection broke"),
    }
    ended.is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Error, Result};
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadBuf, duplex};

    use super::*;

    /// A connection that was reset.
    struct Reset;

    impl AsyncRead for Reset {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<Result<()>> {
            Poll::Ready(Err(Error::other("reset")))
        }
    }

    impl AsyncWrite for Reset {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<Result<usize>> {
            Poll::Ready(Err(Error::other("reset")))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn qemu_notices_a_broken_helper_on_the_main_connection() {
        let broken = Arc::new(watch::Sender::new(false));
        let (mut main, near) = duplex(16);
        let (far, _target) = duplex(16);
        let (mut helper, helped) = duplex(16);
        let (one, other) = (Arc::clone(&broken), Arc::clone(&broken));
        let carried = tokio::spawn(async move { carry_main(near, far, &one).await });
        let helps = tokio::spawn(async move { carry_helper(helped, Reset, &other).await });
        let mut nothing = Vec::new();
        assert_eq!(main.read_to_end(&mut nothing).await.unwrap(), 0, "the main connection ends");
        carried.await.unwrap();
        // More than fits into any buffer: it is read, and QEMU never waits.
        helper.write_all(&[0; 4096]).await.unwrap();
        assert!(!helps.is_finished());
        drop(helper);
        helps.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_helper_that_ends_leaves_the_main_connection_alone() {
        let broken = Arc::new(watch::Sender::new(false));
        let (mut main, near) = duplex(16);
        let (far, mut target) = duplex(16);
        let (helper, helped) = duplex(16);
        let (end, ended) = duplex(16);
        drop((helper, ended));
        carry_helper(helped, end, &broken).await;
        let task = tokio::spawn(async move { carry_main(near, far, &broken).await });
        tokio::time::sleep(GRACE * 3).await;
        main.write_all(b"devices").await.unwrap();
        let mut received = [0; 7];
        target.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"devices");
        drop((main, target));
        task.await.unwrap();
    }
}
