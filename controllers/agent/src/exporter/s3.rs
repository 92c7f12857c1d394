//! Puts objects into a store that speaks S3, signed as AWS wants it (Signature Version 4), path-style.
//!
//! The signature is ours: `rusty-s3` (0.11) only makes addresses that carry it, which leave the body unsigned and allow a reader
//! of a log to put again (a test looks for the signed hash of the body), and `aws-sigv4` (1) adds 12 packages for 40 lines.

use std::fmt::Write as _;

use k8s_openapi::jiff;
use ring::digest::{SHA256, digest};
use ring::hmac;

use crate::config::S3Client;

/// A bucket and the keys to it.
pub(crate) struct Store {
    /// Scheme and host, and port unless it is the scheme's own: what the client puts into the header `host` is signed.
    origin: String,
    host: String,
    /// Path of the endpoint, without a slash at its end.
    base: String,
    bucket: String,
    region: String,
    access_key: String,
    secret_key: String,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("origin", &self.origin)
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Keys come from the environment.
    pub(super) fn from_config(config: &S3Client) -> Result<Self, String> {
        let key = |name: &str| {
            let missing = || format!("s3: the environment variable {name} is not set");
            std::env::var(name).ok().filter(|value| !value.is_empty()).ok_or_else(missing)
        };
        let endpoint = match config.endpoint.as_str() {
            "" => format!("https://s3.{}.amazonaws.com", config.region),
            given => given.to_owned(),
        };
        let url = reqwest::Url::parse(&endpoint).map_err(|error| format!("s3: {endpoint}: {error}"))?;
        let host = match (url.host_str(), url.port()) {
            (None, _) => return Err(format!("s3: {endpoint} names no host")),
            (Some(host), None) => host.to_owned(),
            (Some(host), Some(port)) => format!("{host}:{port}"),
        };
        Ok(Self {
            origin: format!("{}://{host}", url.scheme()),
            host,
            base: url.path().trim_end_matches('/').to_owned(),
            bucket: config.bucket.clone(),
            region: config.region.clone(),
            access_key: key("AWS_ACCESS_KEY_ID")?,
            secret_key: key("AWS_SECRET_ACCESS_KEY")?,
        })
    }
}

pub(super) async fn put(
    client: &reqwest::Client,
    store: &Store,
    key: &str,
    body: Vec<u8>,
) -> Result<(), String> {
    let path = format!("{}/{}/{}", store.base, encoded(&store.bucket), encoded(key));
    let at = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let time = at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let hash = hex(digest(&SHA256, &body).as_ref());
    let headers = [("host", store.host.as_str()), ("x-amz-content-sha256", &hash), ("x-amz-date", &time)];
    let authorization = authorization(store, "PUT", &path, &headers, &hash, &time);
    let request = client
        .put(format!("{}{path}", store.origin))
        .header("x-amz-content-sha256", &hash)
        .header("x-amz-date", &time)
        .header("authorization", authorization)
        .body(body);
    let answer = request.send().await.map_err(|error| format!("request: {error}"))?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => Err(format!("HTTP status {}", status.as_u16())),
    }
}

/// Each byte but those that never need it as `%XX`; slashes stay.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// The header `authorization`. `headers` are sorted by name.
fn authorization(
    store: &Store,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    hash: &str,
    time: &str,
) -> String {
    let day = time.get(..8).unwrap_or(time);
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let mut canonical = format!("{method}\n{path}\n\n");
    for (name, value) in headers {
        let _ = writeln!(canonical, "{name}:{value}");
    }
    let _ = write!(canonical, "\n{names}\n{hash}");
    let scope = format!("{day}/{}/s3/aws4_request", store.region);
    let canonical = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{canonical}");
    let mut key = sign(format!("AWS4{}", store.secret_key).as_bytes(), day);
    for part in [store.region.as_str(), "s3", "aws4_request"] {
        key = sign(&key, part);
    }
    let signature = hex(&sign(&key, &text));
    format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}",
        store.access_key
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Amazon's documentation: an object is read.
    #[test]
    fn signs_as_documented() {
        let store = Store {
            origin: "https://examplebucket.s3.amazonaws.com".into(),
            host: "examplebucket.s3.amazonaws.com".into(),
            base: String::new(),
            bucket: "examplebucket".into(),
            region: "us-east-1".into(),
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
        };
        let empty = hex(digest(&SHA256, b"").as_ref());
        let headers = [
            ("host", "examplebucket.s3.amazonaws.com"),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", empty.as_str()),
            ("x-amz-date", "20130524T000000Z"),
        ];
        let signed = authorization(&store, "GET", "/test.txt", &headers, &empty, "20130524T000000Z");
        assert!(
            signed.ends_with("Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
            "{signed}"
        );
    }

    #[test]
    fn keys_are_escaped() {
        assert_eq!(encoded("a/year=2024/12:00 é"), "a/year%3D2024/12%3A00%20%C3%A9");
    }
}
