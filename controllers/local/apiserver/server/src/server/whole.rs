//! The state as a whole, for cluster administrators: `/neonvm/backup` streams a backup, `/neonvm/check` verifies what is on disk.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::Frame;
use neonvm_apiserver_engine::answer::refusal;
use neonvm_apiserver_engine::request::Method;
use neonvm_apiserver_engine::status::ApiError;
use tokio::sync::mpsc;

use super::respond::{self, Response};
use super::{Shared, forbidden};
use crate::disk::{Checked, Snapshot, keys, with_causes};
use crate::state::{Incoming, unwritten};

/// Bytes that are sent at once.
const CHUNK: usize = 64 << 10;
/// Chunks that wait for a slow reader. A slow reader only holds up its own backup.
const CHUNKS: usize = 4;

pub(super) async fn answer(shared: &Arc<Shared>, incoming: &Incoming) -> Option<Response> {
    let is_backup = match incoming.path.as_str() {
        "/neonvm/backup" => true,
        "/neonvm/check" => false,
        _ => return None,
    };
    if let Some(response) = forbidden(shared, incoming) {
        return Some(response);
    }
    if incoming.method != Method::Get {
        let error = ApiError::plain(405, "MethodNotAllowed", "only GET is allowed here");
        return Some(respond::answer(refusal(&error, Vec::new())));
    }
    Some(if is_backup { backup(shared).await } else { check(shared).await })
}

fn failed(error: &ApiError) -> Response {
    respond::answer(refusal(error, Vec::new()))
}

/// The present state, once it is on disk. Objects are shared with the store: no write waits for the reader.
async fn backup(shared: &Arc<Shared>) -> Response {
    let snapshot = shared.state.with(|engine| Snapshot::from_store(engine.store()));
    if let Err(error) = shared.state.disk().wait(snapshot.revision()).await {
        return failed(&unwritten(&error));
    }
    let snapshot = match snapshot.with_files(&shared.directory) {
        Ok(snapshot) => snapshot,
        Err(error) => return failed(&ApiError::internal(with_causes(&error))),
    };
    let (chunks, receiver) = mpsc::channel(CHUNKS);
    let cluster = name(&shared.directory);
    tokio::task::spawn_blocking(move || {
        let mut to = Chunked { chunks, buffer: Vec::with_capacity(CHUNK) };
        // A reader that has gone, or was cut off, finds that the backup is not whole.
        if let Err(error) = snapshot.write(&cluster, &mut to) {
            tracing::debug!(%error, "a backup was not read to its end");
        }
    });
    respond::streamed("application/octet-stream", Chunks(receiver))
}

/// What is on disk, against its checksums.
async fn check(shared: &Arc<Shared>) -> Response {
    let of = Arc::clone(shared);
    let checked = tokio::task::spawn_blocking(move || {
        let mut checked = Checked::default();
        match of.state.disk().verify() {
            Ok((objects, revision)) => (checked.objects, checked.revision) = (objects, revision),
            Err(error) => checked.problems.push(with_causes(&error)),
        }
        checked.problems.extend(of.state.disk().full().map(|full| full.to_string()));
        checked.problems.extend(keys(&of.directory));
        checked
    });
    match checked.await {
        Ok(checked) => respond::json(200, &serde_json::json!(checked)),
        Err(error) => failed(&ApiError::internal(error.to_string())),
    }
}

/// The directory of a cluster has its name.
fn name(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A writer that hands chunks over. Blocks while the reader is slow.
struct Chunked {
    chunks: mpsc::Sender<Bytes>,
    buffer: Vec<u8>,
}

impl Write for Chunked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = Bytes::from(std::mem::take(&mut self.buffer));
        self.chunks.blocking_send(chunk).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

struct Chunks(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }
}
