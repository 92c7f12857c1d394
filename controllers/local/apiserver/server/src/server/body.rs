//! Bodies of requests: the limits of this server, and the errors for clients. `kit` reads them.

use std::time::Duration;

use neonvm_apiserver_engine::status::ApiError;
use neonvm_kit::http::body::{Refused, Rules};

/// Largest request body in bytes, as on a real server.
pub const MAX_BODY: usize = 3 << 20;

/// 96 MiB of large bodies in memory at once, a quarter of it for clients that have not authenticated.
pub(super) const RULES: Rules = Rules {
    small: 256 << 10,
    known: 72 << 20,
    strangers: 24 << 20,
    whole: Duration::from_secs(60),
    rest: Duration::from_secs(15),
};

pub(super) fn refusal(why: Refused) -> ApiError {
    match why {
        Refused::TooLarge(_) => {
            let message = format!("Request entity too large: limit is {MAX_BODY}");
            ApiError::plain(413, "RequestEntityTooLarge", message)
        }
        Refused::TooSlow | Refused::NoRoom => {
            ApiError::plain(504, "Timeout", "the request body did not arrive in time")
        }
        Refused::Broken => ApiError::bad_request("the request body could not be read"),
    }
}
