//! The streams of the workload: copied to its log and to the client that has them.
//!
//! Nothing is kept here: while the client or the log does not take more, the workload waits. The first client gets everything from the
//! first byte, because nothing is read before it is there, or a minute is over.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::upgrade::{OnUpgrade, Parts};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use neonvm_types::guest::{
    ATTACH_PROTOCOL, FRAME_HEADER, Frame, LONGEST_FRAME, frame_header, read_frame_header,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::oneshot;

use super::options;
use crate::http::{self, Response};

/// How long the workload's output waits for a client.
const PATIENCE: Duration = Duration::from_secs(60);
/// After so long without a sign of the client's host it is taken for gone.
const SILENCE: Duration = Duration::from_secs(30);
/// What init reads when all output is passed on.
pub(crate) const ENDED: &str = "attached streams ended";

#[derive(Clone, Debug, Default)]
pub(super) struct Door(Arc<Mutex<Option<oneshot::Sender<OnUpgrade>>>>);

impl Door {
    pub(super) fn open(&self, mut request: Request<Incoming>) -> Response {
        let wanted = request.headers().get(UPGRADE);
        if wanted.is_none_or(|protocol| protocol.as_bytes() != ATTACH_PROTOCOL.as_bytes()) {
            let text = format!("expected an upgrade to {ATTACH_PROTOCOL}\n");
            return http::text(StatusCode::UPGRADE_REQUIRED, text);
        }
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let upgrade = hyper::upgrade::on(&mut request);
        if waiting.and_then(|waiting| waiting.send(upgrade).ok()).is_none() {
            let text = "the workload's streams are not there for a client: it has one, had one, or none came within a minute\n";
            return http::text(StatusCode::CONFLICT, text);
        }
        let mut response = http::text(StatusCode::SWITCHING_PROTOCOLS, "");
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static(ATTACH_PROTOCOL));
        response
    }
}

/// The daemon's ends of the workload's pipes.
#[derive(Debug)]
pub(super) struct Streams {
    input: Option<Sender>,
    output: (Receiver, Sender),
    errors: (Receiver, Sender),
    client: Option<oneshot::Receiver<OnUpgrade>>,
}

impl Streams {
    /// Takes over the descriptors that init named; the door is for the client, if one is awaited.
    ///
    /// # Errors
    /// If one is not a pipe.
    pub(super) fn adopt(numbers: &options::Streams) -> io::Result<(Self, Door)> {
        let [output, errors, log, log_errors] = numbers.outputs;
        let input = numbers.client.flatten().map(|number| own(number).and_then(Sender::from_owned_fd));
        let pair = |from, to| -> io::Result<(Receiver, Sender)> {
            Ok((Receiver::from_owned_fd(own(from)?)?, Sender::from_owned_fd(own(to)?)?))
        };
        let (door, client) = match numbers.client {
            Some(_) => {
                let (sender, client) = oneshot::channel();
                (Door(Arc::new(Mutex::new(Some(sender)))), Some(client))
            }
            None => (Door::default(), None),
        };
        let (output, errors) = (pair(output, log)?, pair(errors, log_errors)?);
        Ok((Self { input: input.transpose()?, output, errors, client }, door))
    }

    /// Copies until the workload has ended and the client has all of it, or is gone.
    pub(super) async fn copy(self) {
        let client = match self.client {
            Some(client) => tokio::time::timeout(PATIENCE, attached(client)).await.ok().flatten(),
            None => None,
        };
        let (from_client, to_client) = client.map_or((None, None), |(from, to)| (Some(from), Some(to)));
        let to_client = ToClient(Rc::new(tokio::sync::Mutex::new(to_client)));
        let outputs = async {
            tokio::join!(
                pass_on(self.output, Frame::Output, to_client.clone()),
                pass_on(self.errors, Frame::Errors, to_client.clone()),
            );
            to_client.send(Frame::End, &mut [0; FRAME_HEADER]).await;
        };
        // The client closes the connection when it has the end: closed here before, what is on its way could be lost.
        let inputs = async {
            if let Some(from_client) = from_client {
                feed(from_client, self.input).await;
            }
        };
        tokio::join!(outputs, inputs);
    }
}

/// A descriptor of init's, closed for programs that are started from here.
fn own(number: i32) -> io::Result<OwnedFd> {
    let descriptor = crate::system::adopt(number).ok_or(io::ErrorKind::NotFound)?;
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
    Ok(descriptor)
}

/// What the client sends, first bytes included.
type FromClient = tokio::io::Chain<io::Cursor<bytes::Bytes>, OwnedReadHalf>;

/// The connection of the client that came.
async fn attached(client: oneshot::Receiver<OnUpgrade>) -> Option<(FromClient, OwnedWriteHalf)> {
    let upgraded = client.await.ok()?.await.ok()?;
    let Parts { io, read_buf, .. } = upgraded.downcast::<TokioIo<TcpStream>>().ok()?;
    let stream = io.into_inner();
    // A client that does not read is waited for, as long as its host answers.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, 0);
    let _ = rustix::net::sockopt::set_tcp_keepidle(&stream, SILENCE / 2);
    let _ = rustix::net::sockopt::set_tcp_keepintvl(&stream, SILENCE / 6);
    let _ = rustix::net::sockopt::set_tcp_keepcnt(&stream, 3);
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let (from, to) = stream.into_split();
    Some((io::Cursor::new(read_buf).chain(from), to))
}

/// Frames to the client, as long as it is there.
#[derive(Clone, Debug)]
struct ToClient(Rc<tokio::sync::Mutex<Option<OwnedWriteHalf>>>);

impl ToClient {
    /// Sends what follows the room for a header.
    async fn send(&self, frame: Frame, bytes: &mut [u8]) {
        let mut client = self.0.lock().await;
        let Some(writer) = client.as_mut() else { return };
        let length = bytes.len().saturating_sub(FRAME_HEADER);
        if let Some(header) = bytes.first_chunk_mut() {
            *header = frame_header(frame, length);
        }
        if writer.write_all(bytes).await.is_err() {
            *client = None;
        }
    }
}

/// Copies one stream of the workload until its end.
async fn pass_on((mut from, mut log): (Receiver, Sender), frame: Frame, client: ToClient) {
    let mut buffer = vec![0; FRAME_HEADER + LONGEST_FRAME];
    while let Ok(count @ 1..) = from.read(buffer.get_mut(FRAME_HEADER..).unwrap_or_default()).await {
        let bytes = buffer.get_mut(..FRAME_HEADER + count).unwrap_or_default();
        let _ = log.write_all(bytes.get(FRAME_HEADER..).unwrap_or_default()).await;
        client.send(frame, bytes).await;
    }
}

/// Copies what the client sends to the workload. Ends with the connection: a workload whose client is gone has no more input.
async fn feed(mut from: impl AsyncRead + Unpin, mut input: Option<Sender>) {
    let (mut header, mut buffer) = ([0; FRAME_HEADER], vec![0; LONGEST_FRAME]);
    while from.read_exact(&mut header).await.is_ok() {
        let Some((frame, length)) = read_frame_header(header) else { return };
        let bytes = buffer.get_mut(..length).unwrap_or_default();
        if from.read_exact(bytes).await.is_err() {
            return;
        }
        if frame == Frame::End {
            input = None;
        }
        if let Some(pipe) = &mut input
            && pipe.write_all(bytes).await.is_err()
        {
            // The workload does not read any more; the rest is discarded.
            input = None;
        }
    }
}

#[cfg(test)]
mod tests;
