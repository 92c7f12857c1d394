//! Requests to the API server, each with a deadline.

use std::time::Duration;

use kube::Error;
use neonvm_core_pod_autoscaler::status::failure;

/// Time for one request to the API server.
pub(crate) const REQUEST: Duration = Duration::from_secs(10);

/// Something did not work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failed {
    /// One of [`failure`].
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// There is no such thing.
    pub(crate) is_missing: bool,
    /// Another writer was faster.
    pub(crate) is_conflict: bool,
    pub(crate) is_invalid: bool,
}

impl Failed {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), ..Self::default() }
    }
}

/// A request with a deadline; `what` begins the message if it fails.
pub(crate) async fn within<T>(
    what: &str,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Failed> {
    match tokio::time::timeout(REQUEST, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Error::Api(status))) => Err(Failed {
            is_missing: status.code == 404,
            is_conflict: status.code == 409,
            is_invalid: status.code == 422,
            ..Failed::new(failure::GET_SCALE, format!("{what}: {}", status.message))
        }),
        Ok(Err(error)) => Err(Failed::new(failure::GET_SCALE, format!("{what}: {error}"))),
        Err(_) => {
            let text = format!("{what}: the API server did not answer within {} s", REQUEST.as_secs());
            Err(Failed::new(failure::GET_SCALE, text))
        }
    }
}
