//! Where a batch goes.

use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::jiff;

use super::s3::{self, Store};
use crate::config::Clients;

/// How names of files and objects are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `year=2024/month=07/day=01/hour=12/12:00:00Z_<id>.ndjson.gz`; UTC, while upstream writes local time with a `Z`.
    Billing,
    /// `2024/07/01/12/events_<id>.ndjson.gz`, UTC.
    Scaling,
}

/// One place.
#[derive(Debug)]
pub(crate) enum Target {
    /// `POST {url}/usage_events`.
    Http {
        url: String,
        client: reqwest::Client,
    },
    /// Objects of a store that speaks S3.
    S3 {
        store: Box<Store>,
        prefix: String,
        layout: Layout,
        client: reqwest::Client,
    },
    Files {
        directory: PathBuf,
        layout: Layout,
    },
}

/// Why a target cannot be made.
pub(crate) type Failure = String;

impl Target {
    /// All targets that a configuration names, each with its pace.
    pub(crate) fn all(
        clients: &Clients,
        layout: Layout,
    ) -> Result<Vec<(Self, crate::config::Push)>, Failure> {
        let mut all = Vec::new();
        if let Some(http) = &clients.http {
            let url = http.url.trim_end_matches('/').to_owned();
            all.push((Self::Http { url, client: http_client()? }, http.push()));
        }
        if let Some(config) = &clients.s3 {
            let store = Box::new(Store::from_config(config)?);
            let prefix = config.prefix_in_bucket.clone();
            all.push((Self::S3 { store, prefix, layout, client: http_client()? }, config.push()));
        }
        if let Some(file) = &clients.file {
            all.push((Self::Files { directory: file.directory.clone(), layout }, file.push()));
        }
        Ok(all)
    }

    /// Value of the label `client`.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Http { .. } => "http",
            Self::S3 { .. } => "s3",
            Self::Files { .. } => "file",
        }
    }

    pub(crate) async fn send(&self, batch: &[String]) -> Result<(), Failure> {
        match self {
            Self::Http { url, client } => {
                let body = format!("{{\"events\":[{}]}}", batch.join(","));
                let request = client
                    .post(format!("{url}/usage_events"))
                    .header("content-type", "application/json")
                    .header("x-trace-id", short_id()?)
                    .body(body);
                let answer = request.send().await.map_err(|error| format!("request: {error}"))?;
                match answer.status().as_u16() {
                    200 => Ok(()),
                    other => Err(format!("HTTP status {other}")),
                }
            }
            Self::S3 { store, prefix, layout, client } => {
                let key = name(prefix, *layout, jiff::Timestamp::now(), &short_id()?);
                s3::put(client, store, &key, compressed(batch)?).await
            }
            Self::Files { directory, layout } => {
                let path = directory.join(name("", *layout, jiff::Timestamp::now(), &short_id()?));
                write(&path, &compressed(batch)?)
                    .map_err(|error| format!("file: {}: {error}", path.display()))
            }
        }
    }
}

fn http_client() -> Result<reqwest::Client, Failure> {
    // Fails only if there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || reqwest::Client::builder().connect_timeout(std::time::Duration::from_secs(5));
    // On a VM without any certificate, servers without TLS still can be used.
    let client = builder().build().or_else(|_| builder().tls_certs_only([]).build());
    client.map_err(|error| format!("no HTTP client: {error}"))
}

/// Lines of JSON, compressed.
fn compressed(batch: &[String]) -> Result<Vec<u8>, Failure> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = batch.iter().try_for_each(|event| writeln!(encoder, "{event}"));
    written.and_then(|()| encoder.finish()).map_err(|error| format!("compression: {error}"))
}

/// Written beside and renamed, so that readers never see half a file.
fn write(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let beside = path.with_extension("part");
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        // Each try uses a different name: a full disk must not fill up with what did not fit.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn name(prefix: &str, layout: Layout, at: jiff::Timestamp, id: &str) -> String {
    let at = at.to_zoned(jiff::tz::TimeZone::UTC);
    let path = match layout {
        Layout::Billing => at.strftime("year=%Y/month=%m/day=%d/hour=%H/%H:%M:%SZ_"),
        Layout::Scaling => at.strftime("%Y/%m/%d/%H/events_"),
    };
    let slash = if prefix.is_empty() { "" } else { "/" };
    format!("{}{slash}{path}{id}.ndjson.gz", prefix.trim_end_matches('/'))
}

/// Eleven random characters.
fn short_id() -> Result<String, Failure> {
    use base64::Engine as _;
    use ring::rand::SecureRandom as _;
    let mut bytes = [0; 8];
    ring::rand::SystemRandom::new().fill(&mut bytes).map_err(|_| "no random numbers".to_owned())?;
    Ok(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn names_are_in_utc() {
        let at = "2024-07-01T14:00:00+02:00".parse().unwrap();
        let billing = name("pre/", Layout::Billing, at, "x");
        assert_eq!(billing, "pre/year=2024/month=07/day=01/hour=12/12:00:00Z_x.ndjson.gz");
        assert_eq!(name("", Layout::Scaling, at, "x"), "2024/07/01/12/events_x.ndjson.gz");
    }

    #[tokio::test]
    async fn files_hold_a_line_for_each_event() {
        let directory = tempfile::tempdir().unwrap();
        let target = Target::Files { directory: directory.path().into(), layout: Layout::Scaling };
        target.send(&["{\"a\":1}".into(), "{\"a\":2}".into()]).await.unwrap();
        let mut files = Vec::new();
        let mut open = vec![directory.path().to_path_buf()];
        while let Some(at) = open.pop() {
            for entry in std::fs::read_dir(at).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { open.push(path) } else { files.push(path) }
            }
        }
        assert_eq!(files.len(), 1);
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(&files[0]).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "{\"a\":1}\n{\"a\":2}\n");
    }
}
