//! Migrations: calls of the controller, and disks for the runner that takes the VM.

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use hyper::Request;
use hyper::body::Incoming;
use neonvm_types::runner_protocol::{VOLUME_PATH, VolumeInfo};
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt as _;

use super::answer::{Body, json, stream as streamed, text};
use super::{Shared, not_yet, read, refusal};
use crate::command::{Answer, Command};
use crate::migration::volumes::Volume;

/// Bytes of a volume that are read at once.
const CHUNK: usize = 256 << 10;

/// Reads the body, sends a request to the loop, answers with the status.
pub(super) async fn call<T: DeserializeOwned>(
    shared: &Shared,
    request: Request<Incoming>,
    command: impl FnOnce(T, Answer) -> Command,
) -> Response<Body> {
    let body = match read(shared, request).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let document = match neonvm_types::objects::from_slice(&body) {
        Ok(document) => document,
        Err(error) => return text(StatusCode::BAD_REQUEST, &format!("cannot read the body: {error}")),
    };
    let (sender, answer) = tokio::sync::oneshot::channel();
    if shared.commands.send(command(document, sender)).await.is_err() {
        return not_yet();
    }
    match answer.await {
        Ok(Ok(())) => json(StatusCode::ACCEPTED, &**shared.status.borrow()),
        Ok(Err(why)) => refusal(&why),
        Err(_) => not_yet(),
    }
}

/// A disk that is not written, or the list of all.
pub(super) async fn volume(shared: &Shared, path: &str) -> Response<Body> {
    let running = shared.running.borrow().clone();
    let Some(running) = running else { return not_yet() };
    let name = path.trim_start_matches(VOLUME_PATH);
    if name.is_empty() {
        let list: Vec<VolumeInfo> = running.volumes.iter().map(Volume::info).collect();
        return json(StatusCode::OK, &list);
    }
    let Some(volume) = running.volumes.iter().find(|volume| volume.info.name == name) else {
        return text(StatusCode::NOT_FOUND, &format!("the VM has no disk {name:?}"));
    };
    if !volume.info.read_only {
        return text(StatusCode::CONFLICT, &format!("disk {name} is written: it is copied by a move only"));
    }
    let file = match tokio::fs::File::open(&volume.path).await {
        Ok(file) => file,
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, &format!("disk {name}: {error}")),
    };
    streamed(stream::unfold(file, async move |mut file| {
        let mut chunk = vec![0; CHUNK];
        // A file that cannot be read ends too early, which the reader notices by its size.
        let count = file.read(&mut chunk).await.unwrap_or(0);
        chunk.truncate(count);
        (count > 0).then(|| (Bytes::from(chunk), file))
    }))
}
