//! What a failed request means.

use std::error::Error as _;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No server listens there, or there is no such host: no use in trying again.
    Unreachable(String),
    /// TLS failed: no use in trying again.
    Tls(String),
    /// The connection broke, or nothing came in time.
    Transport(String),
    /// A redirection that must not be followed.
    Redirect(String),
}

impl Failure {
    pub(super) fn from_error(error: &reqwest::Error) -> Self {
        let text = innermost(error);
        if error.is_redirect() {
            return Self::Redirect(text);
        }
        let mut cause: Option<&(dyn std::error::Error + 'static)> = error.source();
        while let Some(at) = cause {
            if at.is::<rustls::Error>() {
                return Self::Tls(text);
            }
            let io = at.downcast_ref::<std::io::Error>();
            if io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
                return Self::Unreachable("connection refused".into());
            }
            if at.to_string().starts_with("dns error") {
                return Self::Unreachable(format!("its name cannot be resolved ({text})"));
            }
            // What is wrapped in an error of I/O is not its source, but itself.
            cause = match io.and_then(std::io::Error::get_ref) {
                Some(inner) => Some(inner),
                None => at.source(),
            };
        }
        if error.is_timeout() {
            let what = if error.is_connect() { "no connection in time" } else { "nothing arrived in time" };
            return Self::Transport(what.into());
        }
        Self::Transport(text)
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Unreachable(text) | Self::Tls(text) | Self::Transport(text) | Self::Redirect(text) => text,
        }
    }
}

/// The text of the last cause: what is around it names the request, which we do ourselves.
fn innermost(error: &reqwest::Error) -> String {
    let mut at: &dyn std::error::Error = error;
    while let Some(cause) = at.source() {
        at = cause;
    }
    at.to_string()
}

/// Errors as registries report them.
#[derive(Default, Deserialize)]
pub(super) struct Report {
    #[serde(default)]
    errors: Vec<Reported>,
}

#[derive(Deserialize)]
struct Reported {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Report {
    pub(super) fn parse(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    pub(super) fn has(&self, code: &str) -> bool {
        self.errors.iter().any(|error| error.code == code)
    }

    /// The first message, as one line of printable characters.
    pub(super) fn message(&self) -> Option<String> {
        let first = self.errors.first()?;
        let text = if first.message.is_empty() { &first.code } else { &first.message };
        let text: String = text.chars().filter(|character| !character.is_control()).take(200).collect();
        (!text.is_empty()).then_some(text)
    }
}

/// Whether a status calls for another try.
pub(super) fn is_temporary(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT
        || (status.is_server_error()
            && !matches!(status, StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED))
}

/// `Retry-After` in seconds. Its other form, a date, is not used by registries and read as none.
pub(super) fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}
