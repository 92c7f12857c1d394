//! Messages on the socket: a line each, and the open files beside the answer.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use neonvm_types::node_protocol::{Answer, LONGEST_REQUEST, Request};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Interest};
use tokio::net::UnixStream;

/// Time for a caller to take the answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Files beside an answer, at most.
const MOST_FILES: usize = 8;

/// Reads a request.
pub(super) async fn receive(stream: &mut UnixStream) -> Result<Request, String> {
    let mut line = Vec::new();
    let mut reader = BufReader::new(stream.take(LONGEST_REQUEST as u64));
    reader
        .read_until(b'\n', &mut line)
        .await
        .map_err(|error| format!("the request cannot be read: {error}"))?;
    if line.last() != Some(&b'\n') {
        return Err(format!("a request is one line of at most {LONGEST_REQUEST} bytes"));
    }
    serde_json::from_slice(&line).map_err(|error| format!("the request is not understood: {error}"))
}

/// Reads what was sent besides the request, until the caller closes the connection or the time is over: one that is closed with bytes
/// unread loses its answer.
pub(super) async fn drain(stream: &mut UnixStream) {
    let mut rest = [0; 4096];
    let reading = async {
        stream.shutdown().await?;
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = tokio::time::timeout(ANSWER, reading).await;
}

/// Sends an answer with its files.
pub(super) async fn send(stream: &UnixStream, answer: &Answer, files: &[OwnedFd]) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let sending = async {
        let sent = stream.async_io(Interest::WRITABLE, || first(stream, &line, files)).await?;
        let mut rest = line.get(sent..).unwrap_or_default();
        while !rest.is_empty() {
            stream.writable().await?;
            match stream.try_write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    tokio::time::timeout(ANSWER, sending).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Sends the beginning, and all files with it.
fn first(stream: &UnixStream, line: &[u8], files: &[OwnedFd]) -> io::Result<usize> {
    let borrowed: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(io::Error::other("internal: too many files for one answer"));
    }
    Ok(sendmsg(stream, &[IoSlice::new(line)], &mut beside, SendFlags::NOSIGNAL)?)
}
