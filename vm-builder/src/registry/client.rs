//! Requests to one repository of one registry: scheme, login, retries and errors.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use reqwest::{RequestBuilder, Response, Url};
use tokio::sync::Mutex;

use super::challenge::Challenge;
use super::credentials::{self, Credentials, Found};
use super::failure::{Failure, Report, is_temporary, retry_after};
use super::pace::{Pace, TOO_SLOW};
use crate::reference::{Reference, is_loopback};
use crate::source::{Error, Network, Progress};

const EXPECTS_TLS: &str = "it expects TLS";

fn expects_tls(failure: &Failure) -> bool {
    matches!(failure, Failure::Transport(text) if text == EXPECTS_TLS)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Pull,
    Push,
}

pub(crate) struct Client<'a> {
    pub(super) http: reqwest::Client,
    /// `https://host:port`, without a slash.
    base: Url,
    pub(super) registry: String,
    pub(super) repository: String,
    pub(super) network: &'a Network,
    pub(super) progress: &'a dyn Progress,
    pub(super) found: Found,
    authorizations: Mutex<BTreeMap<Scope, HeaderValue>>,
}

/// An answer, read to its end.
pub(crate) struct RegistryResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl RegistryResponse {
    pub(crate) fn header(&self, name: impl http::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl<'a> Client<'a> {
    /// Prepares to talk to a registry: finds credentials, and which scheme it speaks if there is a choice.
    pub(crate) async fn connect(
        reference: &Reference,
        network: &'a Network,
        progress: &'a dyn Progress,
    ) -> Result<Self, Error> {
        let http = super::transport::client(network, reference.is_loopback(), false)?;
        let url = |scheme: &str| {
            Url::parse(&format!("{scheme}://{}", reference.api_host())).map_err(|error| Error::Setting {
                setting: "registry",
                value: reference.registry().into(),
                problem: error.to_string(),
            })
        };
        let mut client = Self {
            http,
            base: url("https")?,
            registry: reference.registry().into(),
            repository: reference.repository().into(),
            network,
            progress,
            found: credentials::find(reference, network).await?,
            authorizations: Mutex::default(),
        };
        // On this machine most registries have no TLS; elsewhere plain HTTP is the exception.
        let schemes: &[&str] = match (reference.is_loopback(), network.insecure) {
            (true, _) => &["http", "https"],
            (false, true) => &["https", "http"],
            (false, false) => return Ok(client),
        };
        let mut last = None;
        for scheme in schemes {
            client.base = url(scheme)?;
            match client.speaks().await {
                Ok(()) => return Ok(client),
                // The first names the fault, unless it was only the wrong scheme.
                Err(failure) => last = Some(last.filter(|first| !expects_tls(first)).unwrap_or(failure)),
            }
        }
        client.base = url(schemes.first().copied().unwrap_or("https"))?;
        Err(client.failed("its interface", 1, &last.unwrap_or(Failure::Transport("no answer".into()))))
    }

    /// Whether what is behind the scheme answers as a server does. No credentials are sent.
    async fn speaks(&self) -> Result<(), Failure> {
        let request = self.http.get(self.url("/v2/")).timeout(self.network.stall);
        match request.send().await {
            // Servers with TLS answer 400 to requests without it.
            Ok(response) if response.status() == StatusCode::BAD_REQUEST && self.is_plain() => {
                Err(Failure::Transport(EXPECTS_TLS.into()))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::from_error(&error)),
        }
    }

    pub(super) fn is_plain(&self) -> bool {
        self.base.scheme() == "http"
    }

    fn url(&self, path: &str) -> Url {
        // The path is made of checked parts; if it were not valid, the request goes to the root, which answers 404.
        self.base.join(path).unwrap_or_else(|_| self.base.clone())
    }

    /// An address below the repository.
    pub(super) fn repository_url(&self, path: &str) -> Url {
        self.url(&format!("/v2/{}/{path}", self.repository))
    }

    /// An address that the registry named; absolute, or relative to it.
    pub(super) fn location(&self, headers: &HeaderMap) -> Result<Url, Error> {
        let text = headers.get(http::header::LOCATION).and_then(|value| value.to_str().ok());
        text.and_then(|text| self.base.join(text).ok())
            .filter(|url| {
                url.scheme() == "https" || self.is_plain() || url.host_str().is_some_and(is_loopback)
            })
            .ok_or_else(|| self.protocol("it starts an upload without a usable location"))
    }

    /// What to send as `Authorization` to an address: nothing if it is not the registry's.
    pub(super) async fn authorization_for(&self, scope: Scope, url: &Url) -> Option<HeaderValue> {
        if !self.is_own(url) {
            return None;
        }
        self.authorizations.lock().await.get(&scope).cloned()
    }

    pub(super) fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    /// Sends a request until there is an answer that is worth having. Answers of 401 lead to a login.
    pub(super) async fn send(
        &self,
        scope: Scope,
        what: &str,
        url: &Url,
        build: impl Fn(&reqwest::Client, Url) -> RequestBuilder,
    ) -> Result<Response, Error> {
        let mut logins = 0;
        loop {
            let known = self.authorizations.lock().await.get(&scope).cloned();
            let response = self.attempt(what, || {
                let request = build(&self.http, url.clone());
                Ok(match &known {
                    // The login is for the registry, not for where it sends us.
                    Some(value) if self.is_own(url) => request.header(AUTHORIZATION, value.clone()),
                    _ => request,
                })
            });
            let response = response.await?;
            match response.status() {
                StatusCode::UNAUTHORIZED if logins < 2 && self.is_own(url) => {
                    logins += 1;
                    self.log_in(scope, known.as_ref(), response.headers()).await?;
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    let body = read_body(response, 1 << 16, self.network.stall).await.unwrap_or_default();
                    return Err(self.denied(&body));
                }
                _ => return Ok(response),
            }
        }
    }

    pub(super) fn denied(&self, body: &[u8]) -> Error {
        let detail = Report::parse(body).message().map(|text| format!(" ({text})")).unwrap_or_default();
        self.refused(match &self.found.credentials {
            Credentials::Anonymous => format!("{}{detail}", self.found.origin),
            _ => format!("{} does not suffice{detail}", self.found.origin),
        })
    }

    /// Logs in once for all requests that were refused at the same time.
    async fn log_in(
        &self,
        scope: Scope,
        refused: Option<&HeaderValue>,
        headers: &HeaderMap,
    ) -> Result<(), Error> {
        let mut authorizations = self.authorizations.lock().await;
        if authorizations.get(&scope) != refused {
            return Ok(());
        }
        let lines = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|line| line.to_str().ok());
        let value = self.authorization(scope, Challenge::best(lines)).await?;
        if refused == Some(&value) {
            return Err(self.denied(b""));
        }
        authorizations.insert(scope, value);
        Ok(())
    }

    /// Sends a request, again and again while the failure is temporary.
    pub(super) async fn attempt(
        &self,
        what: &str,
        build: impl Fn() -> Result<RequestBuilder, Error>,
    ) -> Result<Response, Error> {
        let mut attempt = 1;
        loop {
            let wait = match build()?.send().await {
                Ok(response) if is_temporary(response.status()) => {
                    let (status, asked) = (response.status(), retry_after(response.headers()));
                    let last = attempt >= self.network.attempts;
                    if last || asked.is_some_and(|wait| wait > self.network.patience) {
                        let body = read_body(response, 1 << 16, self.network.stall).await.unwrap_or_default();
                        return Err(self.answered(status, what, &body, asked));
                    }
                    self.progress.note(&format!("{what}: {} answers {status}, trying again", self.registry));
                    asked
                }
                Ok(response) => return Ok(response),
                Err(error) => {
                    let failure = Failure::from_error(&error);
                    if attempt >= self.network.attempts || !matches!(failure, Failure::Transport(_)) {
                        return Err(self.failed(what, attempt, &failure));
                    }
                    self.progress.note(&format!("{what}: {}, trying again", failure.text()));
                    None
                }
            };
            tokio::time::sleep(wait.unwrap_or_else(|| self.pause(attempt))).await;
            attempt += 1;
        }
    }

    /// The pause after so many attempts in a row.
    pub(super) fn pause(&self, attempt: u32) -> Duration {
        let factor = 2_u32.saturating_pow(attempt.saturating_sub(1)).min(100);
        self.network.pause.saturating_mul(factor)
    }

    /// Fetches a document of at most `limit` bytes below the repository, or whatever the registry answers instead.
    pub(crate) async fn document(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        limit: u64,
    ) -> Result<RegistryResponse, Error> {
        let mut attempt = 1;
        loop {
            let url = self.repository_url(path);
            let response = self
                .send(Scope::Pull, path, &url, |http, url| {
                    http.request(method.clone(), url).header(ACCEPT, accept)
                })
                .await?;
            let (status, headers) = (response.status(), response.headers().clone());
            match read_body(response, limit, self.network.stall).await {
                Ok(body) => return Ok(RegistryResponse { status, headers, body }),
                Err(BodyError::TooLong) => {
                    let what = format!("{path} of {}/{}", self.registry, self.repository);
                    return Err(Error::Limit { what, limit, unit: "bytes", flag: None });
                }
                Err(error) if attempt >= self.network.attempts => {
                    return Err(self.broken(path, attempt, &error));
                }
                Err(_) => {
                    tokio::time::sleep(self.pause(attempt)).await;
                    attempt += 1;
                }
            }
        }
    }

    pub(super) fn failed(&self, what: &str, attempts: u32, failure: &Failure) -> Error {
        let registry = self.registry.clone();
        let reason = failure.text().to_owned();
        match failure {
            Failure::Unreachable(_) => Error::Unreachable { registry, reason },
            Failure::Tls(_) => Error::Tls { registry, reason },
            Failure::Redirect(_) => Error::Protocol { registry, problem: reason },
            Failure::Transport(_) if attempts > 1 => {
                Error::Interrupted { registry, what: what.into(), attempts, reason }
            }
            Failure::Transport(_) => Error::Unreachable { registry, reason },
        }
    }

    pub(super) fn broken(&self, what: &str, attempts: u32, error: &BodyError) -> Error {
        let reason = match error {
            BodyError::TooLong => "the answer is too long".into(),
            BodyError::TooSlow => TOO_SLOW.into(),
            BodyError::Broken(error) => Failure::from_error(error).text().to_owned(),
        };
        Error::Interrupted { registry: self.registry.clone(), what: what.into(), attempts, reason }
    }

    pub(super) fn answered(
        &self,
        status: StatusCode,
        what: &str,
        body: &[u8],
        retry_after: Option<Duration>,
    ) -> Error {
        let detail = Report::parse(body).message();
        let (registry, what) = (self.registry.clone(), what.to_owned());
        Error::Answer { registry, status: status.as_u16(), what, detail, retry_after }
    }

    pub(super) fn protocol(&self, problem: &str) -> Error {
        Error::Protocol { registry: self.registry.clone(), problem: problem.into() }
    }
}

/// Why a body could not be read.
pub(super) enum BodyError {
    TooLong,
    TooSlow,
    Broken(reqwest::Error),
}

/// Reads a body, but no more than `limit` bytes of it, that comes at the least pace over each period.
pub(super) async fn read_body(
    mut response: Response,
    limit: u64,
    period: Duration,
) -> Result<Vec<u8>, BodyError> {
    let (mut body, mut pace) = (Vec::new(), Pace::new(period));
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Broken)? {
        if !pace.holds(chunk.len()) {
            return Err(BodyError::TooSlow);
        }
        if (body.len() + chunk.len()) as u64 > limit {
            return Err(BodyError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Whether an address is of this machine.
pub(super) fn is_near(url: &Url) -> bool {
    url.host_str().is_some_and(is_loopback)
}

pub(crate) fn content_type(answer: &RegistryResponse) -> &str {
    answer.header(CONTENT_TYPE).unwrap_or_default()
}
