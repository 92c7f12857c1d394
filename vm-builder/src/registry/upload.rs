//! Uploads: blobs in one request each, streamed from where they are, and manifests.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, StatusCode};
use reqwest::{Body, Response};
use tokio::io::AsyncReadExt as _;

use super::client::{Client, Scope, read_body};
use super::transport;
use crate::reference::Digest;
use crate::source::Error;
use crate::store::{Blob, BlobContent};

/// Bytes read from a file at a time.
const CHUNK: usize = 1 << 17;

impl Client<'_> {
    /// Uploads a blob, unless the registry has it. Returns whether it was needed.
    pub(crate) async fn upload(&self, blob: &Blob, task: &str) -> Result<bool, Error> {
        let digest = blob.descriptor.digest;
        let url = self.repository_url(&format!("blobs/{digest}"));
        let response = self.send(Scope::Push, task, &url, |http, url| http.head(url)).await?;
        if response.status() == StatusCode::OK {
            return Ok(false);
        }
        let uploads = transport::client(self.network, super::client::is_near(&url), true)?;
        let mut attempt = 1;
        loop {
            match self.upload_once(&uploads, blob, task).await {
                Ok(()) => return Ok(true),
                // An upload cannot be sent again as it is: it needs a new location.
                Err(Error::Interrupted { .. } | Error::Answer { status: 404 | 500..=599, .. })
                    if attempt < self.network.attempts =>
                {
                    self.progress.note(&format!("{task}: the upload broke, trying again"));
                    tokio::time::sleep(self.pause(attempt)).await;
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn upload_once(&self, uploads: &reqwest::Client, blob: &Blob, task: &str) -> Result<(), Error> {
        let (digest, size) = (blob.descriptor.digest, blob.descriptor.size);
        let url = self.repository_url("blobs/uploads/");
        let response = self
            .send(Scope::Push, task, &url, |http, url| http.post(url).header(CONTENT_LENGTH, "0"))
            .await?;
        if response.status() != StatusCode::ACCEPTED {
            return Err(self.unexpected(response, task).await);
        }
        let mut location = self.location(response.headers())?;
        location.query_pairs_mut().append_pair("digest", &digest.to_string());
        let sent = Arc::new(AtomicU64::new(0));
        let authorization = self.authorization_for(Scope::Push, &location).await;
        let mut request = uploads
            .put(location)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, size)
            .body(body(&blob.content, size, &sent).await?);
        if let Some(value) = authorization {
            request = request.header(http::header::AUTHORIZATION, value);
        }
        let response = self.watch(request.send(), &sent, task).await?;
        if response.status() != StatusCode::CREATED {
            return Err(self.unexpected(response, task).await);
        }
        Ok(())
    }

    /// Waits for an answer as long as bytes are transferred.
    async fn watch(
        &self,
        sending: impl Future<Output = reqwest::Result<Response>>,
        sent: &AtomicU64,
        task: &str,
    ) -> Result<Response, Error> {
        let interrupted = |reason: String| Error::Interrupted {
            registry: self.registry.clone(),
            what: format!("{task} to it"),
            attempts: 1,
            reason,
        };
        let mut sending = std::pin::pin!(sending);
        let mut last = 0;
        let mut idle = tokio::time::Instant::now();
        let tick = (self.network.stall / 10).max(std::time::Duration::from_millis(10));
        loop {
            let answer = tokio::time::timeout(tick, &mut sending).await;
            let now = sent.load(Ordering::Relaxed);
            if now != last {
                self.progress.advanced(task, now - last);
                (last, idle) = (now, tokio::time::Instant::now());
            }
            match answer {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => {
                    return Err(match super::failure::Failure::from_error(&error) {
                        super::failure::Failure::Transport(reason) => interrupted(reason),
                        other => self.failed(task, 1, &other),
                    });
                }
                Err(_) if idle.elapsed() > self.network.stall => {
                    return Err(interrupted("nothing moved in time".into()));
                }
                Err(_) => {}
            }
        }
    }

    /// Uploads a manifest under a tag or digest.
    pub(crate) async fn upload_manifest(
        &self,
        target: &str,
        media_type: &str,
        manifest: &[u8],
        expected: Digest,
    ) -> Result<(), Error> {
        let bytes = Bytes::copy_from_slice(manifest);
        let url = self.repository_url(&format!("manifests/{target}"));
        let response = self
            .send(Scope::Push, "manifest", &url, |http, url| {
                http.request(Method::PUT, url).header(CONTENT_TYPE, media_type).body(bytes.clone())
            })
            .await?;
        if response.status() != StatusCode::CREATED {
            return Err(self.unexpected(response, "manifest").await);
        }
        let stated = response.headers().get("docker-content-digest").and_then(|value| value.to_str().ok());
        let stated: Option<Digest> = stated.and_then(|text| text.parse().ok());
        match stated {
            Some(actual) if actual != expected => {
                let what = format!("manifest as registry {} understood it", self.registry);
                Err(Error::DigestMismatch { what, expected, actual })
            }
            _ => Ok(()),
        }
    }

    async fn unexpected(&self, response: Response, what: &str) -> Error {
        let status = response.status();
        let body = read_body(response, 1 << 16, self.network.stall).await.unwrap_or_default();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return self.denied(&body);
        }
        self.answered(status, &format!("the upload of {what}"), &body, None)
    }
}

/// The bytes of a blob as a body that counts what was taken of it.
async fn body(content: &BlobContent, size: u64, sent: &Arc<AtomicU64>) -> Result<Body, Error> {
    let path = match content {
        BlobContent::Bytes(bytes) => {
            sent.store(bytes.len() as u64, Ordering::Relaxed);
            return Ok(Body::from(bytes.clone()));
        }
        BlobContent::File(path) => path,
    };
    let file = tokio::fs::File::open(path).await.map_err(|error| Error::io("open", path, error))?;
    let state = (file, size, Arc::clone(sent));
    let stream = futures_util::stream::try_unfold(state, |(mut file, left, sent)| async move {
        if left == 0 {
            return Ok::<_, io::Error>(None);
        }
        let want = CHUNK.min(usize::try_from(left).unwrap_or(CHUNK));
        let mut chunk = vec![0; want];
        let count = file.read(&mut chunk).await?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
        }
        chunk.truncate(count);
        sent.fetch_add(count as u64, Ordering::Relaxed);
        Ok(Some((Bytes::from(chunk), (file, left - count as u64, sent))))
    });
    Ok(Body::wrap_stream(stream))
}
