//! Reading request bodies within bounds.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use neonvm_core_apistore::status::ApiError;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// Largest request body in bytes, as on a real server.
pub const MAX_BODY: usize = 3 << 20;
/// A body that has grown to this size needs a place.
const LARGE_BODY: usize = 256 << 10;
/// Places: large bodies in memory at once. With the limit above, 96 MiB.
const PLACES: usize = 32;
/// Time for a body as a whole.
const WHOLE: Duration = Duration::from_secs(60);
/// Time for what is left of a body once it has a place, so that a slow sender does not keep it from others.
const REST: Duration = Duration::from_secs(15);

/// Bounds what bodies take of the memory. Who sends slowly never gets as far as needing a place, and waits for nobody
/// else's.
#[derive(Debug)]
pub(super) struct Places(Semaphore);

impl Default for Places {
    fn default() -> Self {
        Self(Semaphore::new(PLACES))
    }
}

/// A place, if the body needs one; free again when dropped.
pub(super) type Place<'a> = Option<SemaphorePermit<'a>>;

fn too_large() -> ApiError {
    ApiError::plain(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {MAX_BODY}"))
}

fn too_slow() -> ApiError {
    ApiError::plain(504, "Timeout", "the request body did not arrive in time")
}

impl Places {
    /// Reads a body to its end.
    pub(super) async fn read(
        &self,
        headers: &HeaderMap,
        mut body: Incoming,
    ) -> Result<(Bytes, Place<'_>), ApiError> {
        let mut place = None;
        if body.is_end_stream() {
            return Ok((Bytes::new(), place));
        }
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let announced = announced.and_then(|text| text.parse::<usize>().ok());
        if announced.is_some_and(|length| length > MAX_BODY) {
            return Err(too_large());
        }
        let mut end = Instant::now() + WHOLE;
        let mut bytes = BytesMut::new();
        while let Some(frame) = timeout_at(end, body.frame()).await.map_err(|_| too_slow())? {
            let frame = frame.map_err(|_| ApiError::bad_request("the request body could not be read"))?;
            let Ok(data) = frame.into_data() else { continue };
            let length = bytes.len() + data.len();
            if length > MAX_BODY {
                return Err(too_large());
            }
            if length > LARGE_BODY && place.is_none() {
                place = timeout_at(end, self.0.acquire()).await.map_err(|_| too_slow())?.ok();
                end = end.min(Instant::now() + REST);
                bytes.reserve(announced.unwrap_or(length).saturating_sub(bytes.len()));
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.freeze(), place))
    }
}
