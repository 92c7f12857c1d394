//! Fetching one layer: the stream goes into the cache's `.partial` file, through the hash of the compressed form,
//! the decompressor and the hash of the tar into a file, all at the same time.
//!
//! ```text
//! registry ─ chunks ─▶ channel ─▶ Feed (partial file, digest) ─▶ Cache::unpack (decompress, diff id) ─▶ commit
//! ```
//! The right half runs on a thread that may block. If the stream breaks, it is resumed by `Range` at the byte it had
//! reached; after a crash the partial file is fed first, and the rest fetched.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_RANGE, RANGE};
use http::{HeaderMap, StatusCode};
use reqwest::Response;
use tokio::sync::mpsc;

use super::client::{Client, Scope, read_body};
use super::failure::Failure;
use super::pace::{Pace, TOO_SLOW};
use crate::cache::{Budget, Cache, CachedLayer, Partial};
use crate::reference::{Digest, Hasher};
use crate::source::Error;
use crate::store::Descriptor;

/// Chunks between network and disk.
const CHUNKS: usize = 16;
/// How often a layer that another process fetches is checked for.
const LOOK: Duration = Duration::from_millis(100);
/// How long it may make no progress.
const WAIT_LIMIT: Duration = Duration::from_secs(120);

enum Chunk {
    Bytes(Bytes),
    End,
}

impl Client<'_> {
    /// Brings a layer into the cache.
    pub(super) async fn fetch_layer(
        &self,
        cache: &Cache,
        descriptor: &Descriptor,
        diff_id: Digest,
        budget: &Arc<Budget>,
    ) -> Result<CachedLayer, Error> {
        loop {
            let mut partial = match self.partial(cache, descriptor, diff_id).await? {
                Claim::Mine(partial) => partial,
                Claim::Done(layer) => return Ok(layer),
            };
            if partial.length() > descriptor.size {
                partial.clear()?;
            }
            let resumed = partial.length() > 0;
            match self.transfer(cache, partial, descriptor, diff_id, budget).await {
                // What an earlier run left may be damaged: once more from the beginning, without it.
                Err(Error::DigestMismatch { .. }) if resumed => {
                    let task = task(descriptor.digest);
                    self.progress.note(&format!("{task}: what was kept of it is damaged, fetching it again"));
                }
                other => return other,
            }
        }
    }

    /// Gets the right to fetch a layer, or the layer, if another process or task has fetched it meanwhile.
    async fn partial(&self, cache: &Cache, descriptor: &Descriptor, diff_id: Digest) -> Result<Claim, Error> {
        let (mut length, mut changed) = (0, tokio::time::Instant::now());
        let mut noted = false;
        loop {
            let claimed = cache.try_partial(descriptor.digest)?;
            // Searched for after the lock was tried: its previous owner may just have finished.
            if let Some(layer) = cache.layer(diff_id, false)? {
                if let Some(partial) = claimed {
                    partial.remove()?;
                }
                return Ok(Claim::Done(layer));
            }
            if let Some(partial) = claimed {
                return Ok(Claim::Mine(partial));
            }
            if !noted {
                noted = true;
                let task = task(descriptor.digest);
                self.progress.note(&format!("{task}: waiting for another process that fetches it"));
            }
            let now = cache.partial_length(descriptor.digest);
            if now != length {
                (length, changed) = (now, tokio::time::Instant::now());
            }
            if changed.elapsed() > WAIT_LIMIT {
                return Err(Error::Locked(cache.partial_name(descriptor.digest)));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn transfer(
        &self,
        cache: &Cache,
        partial: Partial,
        descriptor: &Descriptor,
        diff_id: Digest,
        budget: &Arc<Budget>,
    ) -> Result<CachedLayer, Error> {
        let task = task(descriptor.digest);
        let start = partial.length();
        self.progress.started(&task, Some(descriptor.size));
        self.progress.advanced(&task, start);
        let (sender, receiver) = mpsc::channel(CHUNKS);
        let job = Job {
            cache: cache.clone(),
            what: format!("layer {} of {}/{}", descriptor.digest, self.registry, self.repository),
            descriptor: descriptor.clone(),
            diff_id,
            budget: Arc::clone(budget),
        };
        let worker = tokio::task::spawn_blocking(move || job.run(partial, receiver));
        let streamed = self.stream(descriptor, start, &task, &sender).await;
        if let Ok(true) = streamed {
            // A worker that has ended returns its reason itself.
            let _ = sender.send(Chunk::End).await;
        }
        drop(sender);
        let done = worker
            .await
            .map_err(|error| Error::Malformed { what: task.clone(), problem: error.to_string() })?;
        match streamed {
            // The network's error is the cause of the worker's error.
            Err(error) => Err(error),
            Ok(_) => done.inspect(|_| self.progress.finished(&task)),
        }
    }

    /// Writes a blob as it is stored to a file, and checks its digest.
    pub(super) async fn fetch_blob(&self, descriptor: &Descriptor, path: &Path) -> Result<(), Error> {
        let task = task(descriptor.digest);
        self.progress.started(&task, Some(descriptor.size));
        let (sender, mut receiver) = mpsc::channel(CHUNKS);
        let to = path.to_owned();
        let worker = tokio::task::spawn_blocking(move || {
            let failed = |error| Error::io("write", &to, error);
            let mut file = File::create(&to).map_err(failed)?;
            let mut hasher = Hasher::default();
            while let Some(Chunk::Bytes(bytes)) = receiver.blocking_recv() {
                hasher.update(&bytes);
                file.write_all(&bytes).map_err(failed)?;
            }
            Ok::<_, Error>(hasher)
        });
        let streamed = self.stream(descriptor, 0, &task, &sender).await;
        drop(sender);
        let written = worker
            .await
            .map_err(|error| Error::Malformed { what: task.clone(), problem: error.to_string() })?;
        let (_, hasher) = (streamed?, written?);
        descriptor.check(&format!("blob of {}/{}", self.registry, self.repository), hasher)?;
        self.progress.finished(&task);
        Ok(())
    }

    /// Sends the bytes from `offset` on. False if the receiver has gone.
    async fn stream(
        &self,
        descriptor: &Descriptor,
        mut offset: u64,
        task: &str,
        sender: &mpsc::Sender<Chunk>,
    ) -> Result<bool, Error> {
        let url = self.repository_url(&format!("blobs/{}", descriptor.digest));
        let mut attempt = 0;
        while offset < descriptor.size {
            let before = offset;
            let response = self
                .send(Scope::Pull, task, &url, |http, url| {
                    let request = http.get(url);
                    if offset > 0 { request.header(RANGE, format!("bytes={offset}-")) } else { request }
                })
                .await?;
            let Some((mut response, mut skip)) = self.check_start(response, descriptor, offset).await? else {
                return Err(self.length_mismatch(descriptor, offset));
            };
            let mut pace = Pace::new(self.network.stall);
            let reason = loop {
                match response.chunk().await {
                    Ok(Some(chunk)) if !pace.holds(chunk.len()) => break TOO_SLOW.to_owned(),
                    Ok(Some(mut chunk)) => {
                        let skipped = skip.min(chunk.len() as u64);
                        skip -= skipped;
                        let chunk = chunk.split_off(usize::try_from(skipped).unwrap_or(chunk.len()));
                        if chunk.is_empty() {
                            continue;
                        }
                        offset += chunk.len() as u64;
                        if offset > descriptor.size {
                            return Err(self.length_mismatch(descriptor, offset));
                        }
                        self.progress.advanced(task, chunk.len() as u64);
                        if sender.send(Chunk::Bytes(chunk)).await.is_err() {
                            return Ok(false);
                        }
                    }
                    Ok(None) if offset == descriptor.size => return Ok(true),
                    Ok(None) => break "it ended early".to_owned(),
                    Err(_) if offset == descriptor.size => return Ok(true),
                    Err(error) => break Failure::from_error(&error).text().to_owned(),
                }
            };
            attempt = if offset > before && reason != TOO_SLOW { 1 } else { attempt + 1 };
            if attempt >= self.network.attempts {
                return Err(self.interrupted(task, attempt, reason));
            }
            self.progress.note(&format!("{task}: {reason} at byte {offset}, resuming"));
            tokio::time::sleep(self.pause(attempt)).await;
        }
        Ok(true)
    }

    /// Checks the head of an answer: how many bytes of it are to be skipped; none if there is nothing from `offset` on.
    async fn check_start(
        &self,
        response: Response,
        descriptor: &Descriptor,
        offset: u64,
    ) -> Result<Option<(Response, u64)>, Error> {
        let size = descriptor.size;
        match response.status() {
            StatusCode::OK => match response.content_length() {
                Some(length) if length != size => Err(self.length_mismatch(descriptor, length)),
                _ => Ok(Some((response, offset))),
            },
            StatusCode::PARTIAL_CONTENT => {
                let (first, total) = content_range(response.headers())
                    .ok_or_else(|| self.protocol("it sends a part without its range"))?;
                if total.is_some_and(|total| total != size) {
                    return Err(self.length_mismatch(descriptor, total.unwrap_or_default()));
                }
                if first > offset {
                    return Err(self.protocol("it sends another part than was asked for"));
                }
                Ok(Some((response, offset - first)))
            }
            StatusCode::RANGE_NOT_SATISFIABLE => Ok(None),
            StatusCode::NOT_FOUND => {
                let place = format!("{}/{}", self.registry, self.repository);
                Err(Error::BlobMissing { place, digest: descriptor.digest })
            }
            status => {
                let body = read_body(response, 1 << 16, self.network.stall).await.unwrap_or_default();
                Err(self.answered(status, &task(descriptor.digest), &body, None))
            }
        }
    }

    fn length_mismatch(&self, descriptor: &Descriptor, actual: u64) -> Error {
        let what = format!("layer {} of {}/{}", descriptor.digest, self.registry, self.repository);
        Error::LengthMismatch { what, expected: descriptor.size, actual }
    }

    fn interrupted(&self, what: &str, attempts: u32, reason: String) -> Error {
        Error::Interrupted { registry: self.registry.clone(), what: what.into(), attempts, reason }
    }
}

enum Claim {
    Mine(Partial),
    Done(CachedLayer),
}

/// The name of a layer in messages.
pub(super) fn task(digest: Digest) -> String {
    format!("layer {}", digest.hex().get(..12).unwrap_or_default())
}

/// First byte and total of `bytes 5-9/10`.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?.trim().strip_prefix("bytes ")?;
    let (range, total) = text.split_once('/')?;
    let first = range.split_once('-')?.0.trim().parse().ok()?;
    Some((first, total.trim().parse().ok()))
}

/// The half that works on files.
struct Job {
    cache: Cache,
    what: String,
    descriptor: Descriptor,
    diff_id: Digest,
    budget: Arc<Budget>,
}

impl Job {
    fn run(&self, partial: Partial, receiver: mpsc::Receiver<Chunk>) -> Result<CachedLayer, Error> {
        let kept = partial.reader()?.take(partial.length());
        let mut feed = Feed {
            kept: Some(kept),
            partial,
            receiver,
            current: Bytes::new(),
            hasher: Hasher::default(),
            state: State::Open,
        };
        let unpacked = self.cache.unpack(&self.what, &mut feed, &self.budget);
        let unpacked = match unpacked {
            Err(error @ Error::Limit { .. }) => {
                feed.partial.remove()?;
                return Err(error);
            }
            // The disk is full, or the like: what is there is kept for the next time.
            Err(error) if !matches!(error, Error::Malformed { .. }) => return Err(error),
            other => other,
        };
        // A decompressor may stop before the end, or at the first wrong byte: the digest shows whether the content is to blame.
        let rest = io::copy(&mut feed, &mut io::sink());
        if feed.state != State::Ended {
            // Broken off: what is there is kept for the next time.
            unpacked?;
            rest.map_err(|error| crate::cache::unwrapped(error, &|problem| self.malformed(problem)))?;
            return Err(self.malformed("the transfer was broken off".into()));
        }
        let Feed { partial, hasher, .. } = feed;
        let checked = self.descriptor.check(&self.what, hasher);
        let result = checked.and_then(|()| self.cache.commit(unpacked?, Some(self.diff_id), &self.what));
        // Only now, so that a process that waits for the lock finds the layer. When the disk is full, what came is kept.
        if !matches!(result, Err(Error::DiskFull(_) | Error::Io { .. })) {
            partial.remove()?;
        }
        result
    }

    fn malformed(&self, problem: String) -> Error {
        Error::Malformed { what: self.what.clone(), problem }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// More may come.
    Open,
    Ended,
    Broken,
}

/// The compressed bytes: first what was kept, then what arrives, which is kept, too.
struct Feed {
    kept: Option<io::Take<File>>,
    partial: Partial,
    receiver: mpsc::Receiver<Chunk>,
    current: Bytes,
    hasher: Hasher,
    state: State,
}

impl Read for Feed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(kept) = &mut self.kept {
            let count = kept.read(into)?;
            if count > 0 {
                self.hasher.update(into.get(..count).unwrap_or_default());
                return Ok(count);
            }
            self.kept = None;
        }
        while self.current.is_empty() && self.state == State::Open {
            match self.receiver.blocking_recv() {
                Some(Chunk::Bytes(bytes)) => {
                    if let Err(error) = self.partial.append(&bytes) {
                        self.state = State::Broken;
                        return Err(io::Error::other(error));
                    }
                    self.hasher.update(&bytes);
                    self.current = bytes;
                }
                Some(Chunk::End) => self.state = State::Ended,
                None => self.state = State::Broken,
            }
        }
        if self.current.is_empty() {
            return match self.state {
                State::Broken => Err(io::Error::other("the transfer was broken off")),
                _ => Ok(0),
            };
        }
        let count = into.len().min(self.current.len());
        let bytes = self.current.split_to(count);
        if let Some(into) = into.get_mut(..count) {
            into.copy_from_slice(&bytes);
        }
        Ok(count)
    }
}
