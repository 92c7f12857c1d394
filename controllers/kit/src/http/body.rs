//! Bodies of requests, within a budget of bytes that all connections share. Strangers and known peers have separate
//! budgets.
//!
//! A small body needs nothing of the budget: how many there are is bounded by the places for connections. A larger one takes its
//! whole length at once before more of it is read, and then has little time for the rest. So a slow sender never gets as
//! far as taking from the budget, and two large bodies never wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Bytes that the budgets are counted in.
const UNIT: usize = 1 << 10;

/// How bodies are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Bytes that a body may have without taking from the budget.
    pub small: usize,
    /// Bytes of larger bodies of known peers in memory at once.
    pub known: usize,
    /// Bytes of larger bodies of strangers in memory at once.
    pub strangers: usize,
    pub whole: Duration,
    /// Time for the rest of a body that has taken from the budget.
    pub rest: Duration,
}

impl Rules {
    /// Of services. A review of a VM has some 20 KiB, so nearly nothing needs the budget. The limit of memory in the manifests is
    /// 256 MiB at least; the places of strangers with a small body each (16 MiB for 256) and these budgets leave most of it.
    pub const SERVICE: Self = Self {
        small: 64 << 10,
        known: 32 << 20,
        strangers: 16 << 20,
        whole: Duration::from_secs(10),
        rest: Duration::from_secs(5),
    };
}

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// More bytes than are allowed.
    #[error("the body may have at most {0} bytes")]
    TooLarge(usize),
    /// It took too long to arrive.
    #[error("the body did not arrive in time")]
    TooSlow,
    /// Others' bodies filled the memory for too long.
    #[error("too many large bodies at once; try again")]
    NoRoom,
    /// The connection broke, or it is not what HTTP prescribes.
    #[error("the body could not be read")]
    Broken,
}

/// Bytes that are held now, and the most that were.
#[derive(Debug, Default)]
struct Count {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[derive(Debug)]
struct Pool {
    permits: Arc<Semaphore>,
    size: u32,
    count: Arc<Count>,
}

impl Pool {
    fn new(bytes: usize) -> Self {
        let size = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        let permits = usize::try_from(size).unwrap_or(0).min(Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(permits)), size, count: Arc::default() }
    }
}

/// What bodies take of the memory.
#[derive(Debug)]
pub struct Budget {
    rules: Rules,
    known: Pool,
    strangers: Pool,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(Rules::SERVICE)
    }
}

/// What a body takes; given back when dropped.
#[derive(Debug, Default)]
pub struct Held {
    permit: Option<OwnedSemaphorePermit>,
    count: Option<Arc<Count>>,
    bytes: usize,
}

impl Held {
    fn add(&mut self, count: &Arc<Count>, bytes: usize) {
        self.bytes += bytes;
        let now = count.now.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        count.most.fetch_max(now, Ordering::Relaxed);
        self.count.get_or_insert_with(|| Arc::clone(count));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(count) = &self.count {
            count.now.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Budget {
    /// All of it is free.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, known: Pool::new(rules.known), strangers: Pool::new(rules.strangers) }
    }

    /// The most bytes of bodies that were held at once since the start: of known peers, or of strangers.
    #[must_use]
    pub fn most(&self, known: bool) -> usize {
        self.pool(known).count.most.load(Ordering::Relaxed)
    }

    fn pool(&self, known: bool) -> &Pool {
        if known { &self.known } else { &self.strangers }
    }

    /// Reads a body of at most `most` bytes to its end. What it takes of the budget is free when the second value is dropped.
    ///
    /// # Errors
    /// If it is too long, too slow or broken, or the budget is used up for too long.
    pub async fn read<B>(
        &self,
        headers: &HeaderMap,
        mut body: B,
        known: bool,
        most: usize,
    ) -> Result<(Bytes, Held), Refused>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut held = Held::default();
        if body.is_end_stream() {
            return Ok((Bytes::new(), held));
        }
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let announced = announced.and_then(|text| text.parse::<usize>().ok());
        if most == 0 || announced.is_some_and(|length| length > most) {
            return Err(Refused::TooLarge(most));
        }
        let pool = self.pool(known);
        let mut end = Instant::now() + self.rules.whole;
        let mut bytes = BytesMut::new();
        while let Some(frame) = timeout_at(end, body.frame()).await.map_err(|_| Refused::TooSlow)? {
            let Ok(data) = frame.map_err(|_| Refused::Broken)?.into_data() else { continue };
            let length = bytes.len().saturating_add(data.len());
            if length > most {
                return Err(Refused::TooLarge(most));
            }
            if length > self.rules.small && held.permit.is_none() {
                let whole = announced.unwrap_or(most).max(length);
                held.permit = Some(pool.take(whole, end).await?);
                end = end.min(Instant::now() + self.rules.rest);
                bytes.reserve(whole.saturating_sub(bytes.len()));
            }
            held.add(&pool.count, data.len());
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.freeze(), held))
    }
}

impl Pool {
    async fn take(&self, bytes: usize, end: Instant) -> Result<OwnedSemaphorePermit, Refused> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.size);
        let taken = timeout_at(end, Arc::clone(&self.permits).acquire_many_owned(units)).await;
        taken.ok().and_then(Result::ok).ok_or(Refused::NoRoom)
    }
}

#[cfg(test)]
mod tests;
