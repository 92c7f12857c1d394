//! Answers and queries.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};

pub(super) type Response = hyper::Response<UnsyncBoxBody<Bytes, std::io::Error>>;

pub(super) fn text(status: StatusCode, line: impl Into<String>) -> Response {
    with_type(status, "text/plain", line.into() + "\n")
}

pub(super) fn with_type(status: StatusCode, kind: &'static str, content: String) -> Response {
    let body = Full::new(Bytes::from(content)).map_err(|never| match never {}).boxed_unsync();
    let mut response = hyper::Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

/// Parameters of a request, in order.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let escaped = || {
            let mut ahead = rest.clone();
            let (high, low) = (hex(ahead.next())?, hex(ahead.next())?);
            u8::try_from(high * 16 + low).ok().map(|byte| (byte, ahead))
        };
        match (byte, escaped()) {
            (b'%', Some((decoded, ahead))) => {
                bytes.push(decoded);
                rest = ahead;
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        };
        Self(text.split('&').filter(|text| !text.is_empty()).map(pair).collect())
    }

    pub(super) fn all(&self, key: &str) -> Vec<String> {
        self.0.iter().filter(|(own, _)| own == key).map(|(_, value)| value.clone()).collect()
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str())
    }

    pub(super) fn is_on(&self, key: &str) -> bool {
        matches!(self.get(key), Some("1" | "true" | ""))
    }

    /// A number. Nonsense is an error for the client.
    pub(super) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, String> {
        let Some(text) = self.get(key).filter(|text| !text.is_empty()) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("{key} must be a number, not {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("command=sh&command=-c&command=echo+a%20%26b%zz&tty=1&n=5&bad=x");
        assert_eq!(query.all("command"), ["sh", "-c", "echo a &b%zz"]);
        assert!(query.is_on("tty") && !query.is_on("input"));
        assert_eq!((query.number("n"), query.number::<u8>("none")), (Ok(Some(5)), Ok(None)));
        assert!(query.number::<u8>("bad").is_err());
    }
}
