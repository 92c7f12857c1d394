//! Joins two connections: bytes of each go to the other.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Bytes carried at a time.
const CHUNK: usize = 16 << 10;

/// Carries bytes both ways until both sides have ended, or one that has ended is gone.
///
/// However a side ends (it closes its direction, its TLS session stops without a word, it is reset), all that was read from it
/// goes to the other, which may be slow, and then the other's direction is closed: an end is never passed on before what preceded
/// it, and does not take away what goes the other way.
pub async fn join<A, B>(one: A, other: B)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (from_one, to_one) = tokio::io::split(one);
    let (from_other, to_other) = tokio::io::split(other);
    tokio::join!(carry(from_one, to_other), carry(from_other, to_one));
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let bytes = buffer.get(..count).unwrap_or_default();
        if to.write_all(bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{BufWriter, ReadBuf, duplex};

    use super::*;

    /// A connection that fails at its end instead of closing.
    struct Cut<T>(T);

    impl<T: AsyncRead + Unpin> AsyncRead for Cut<T> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let before = into.filled().len();
            let read = Pin::new(&mut self.0).poll_read(context, into);
            match read {
                Poll::Ready(Ok(())) if into.filled().len() == before => {
                    Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
                }
                read => read,
            }
        }
    }

    impl<T: AsyncWrite + Unpin> AsyncWrite for Cut<T> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(context)
        }
    }

    /// As a TLS session does: takes in more than the connection does, until it is flushed.
    fn buffered<T: AsyncWrite>(connection: T) -> BufWriter<T> {
        BufWriter::with_capacity(64 << 10, connection)
    }

    async fn all(mut from: impl AsyncRead + Unpin) -> Vec<u8> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).await.unwrap();
        bytes
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_before_a_cut_reaches_a_slow_side() {
        let (near_one, one) = duplex(1 << 20);
        let (near_other, other) = duplex(100);
        let joined = tokio::spawn(join(Cut(near_one), buffered(near_other)));
        let (from_one, mut to_one) = tokio::io::split(one);
        let sent: Vec<u8> = (0..=u8::MAX).cycle().take(300_000).collect();
        to_one.write_all(&sent).await.unwrap();
        to_one.shutdown().await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        // The other direction is still open.
        let (from_other, mut to_other) = tokio::io::split(other);
        assert!(all(from_other).await == sent);
        to_other.write_all(b"late").await.unwrap();
        to_other.shutdown().await.unwrap();
        assert_eq!(all(from_one).await, b"late");
        joined.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_gone_is_not_talked_to_for_ever() {
        let (near_one, mut one) = duplex(100);
        let (near_other, other) = duplex(100);
        let joined = tokio::spawn(join(near_one, near_other));
        drop(other);
        while one.write_all(b"more").await.is_ok() {}
        joined.await.unwrap();
    }
}
