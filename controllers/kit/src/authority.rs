//! The internal authority: signs what the services show each other. It is kept in a secret in their namespace.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use kube::{Client, Error as ApiError};
use tokio::time::{Instant, sleep, timeout};

use crate::backoff::Backoff;
use crate::ca::{self, Authority};

/// Name of the secret.
pub const SECRET: &str = "neonvm-internal-ca";
/// Organisation of agents, in their client certificates.
pub const AGENTS: &str = "neonvm:agents";
/// Organisation of people who look into services.
pub const OPERATORS: &str = "neonvm:operators";
/// DNS name in the server certificate of schedulers. It is not resolved.
pub const SCHEDULER_NAME: &str = "scheduler.neonvm";
/// The same of agents.
pub const AGENT_NAME: &str = "agent.neonvm";

/// How long [`open_at_start`] waits for the API server.
const START: Duration = Duration::from_secs(60);
/// Longest wait for one attempt to open the authority.
const ATTEMPT: Duration = Duration::from_secs(10);
/// First and longest pause between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused something.
    #[error("cannot read or write the secret {SECRET}")]
    Api(#[source] Box<ApiError>),
    /// There is none yet.
    #[error("there is no secret {SECRET} in the namespace {0}; is anything of ours running there?")]
    Missing(String),
    /// The secret holds something else.
    #[error("the secret {SECRET} has no {0}")]
    Key(&'static str),
    /// The server did not respond.
    #[error("the API server does not respond to requests for the secret {SECRET}")]
    Late,
    /// Certificates.
    #[error(transparent)]
    Certificate(#[from] ca::Error),
}

fn failed(error: ApiError) -> Error {
    Error::Api(Box::new(error))
}

/// Reads the authority, or makes it, and its namespace too. Of several services that start at once one makes it; `manager`
/// is its field manager.
///
/// # Errors
/// If the API server refuses, or the secret holds something else.
pub async fn open(client: &Client, namespace: &str, manager: &str) -> Result<Authority, Error> {
    ensure_namespace(client, namespace).await.map_err(failed)?;
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = match api.get_opt(SECRET).await.map_err(failed)? {
        Some(secret) => secret,
        None => make(&api, manager).await?,
    };
    parse(&secret)
}

/// As [`open`], for services that start together with the API server: it is retried with backoff for a minute.
///
/// # Errors
/// Those of the last attempt.
pub async fn open_at_start(client: &Client, namespace: &str, manager: &str) -> Result<Authority, Error> {
    let started = Instant::now();
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    loop {
        let opened = timeout(ATTEMPT, open(client, namespace, manager)).await;
        match opened.unwrap_or(Err(Error::Late)) {
            Err(error) if started.elapsed() < START => {
                tracing::warn!(%error, "the internal authority cannot be opened; it is tried again");
            }
            opened => return opened,
        }
        sleep(backoff.pause()).await;
    }
}

/// Reads the authority; makes nothing.
///
/// # Errors
/// If there is none, the API server refuses, or the secret holds something else.
pub async fn read(client: &Client, namespace: &str) -> Result<Authority, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = api.get_opt(SECRET).await.map_err(failed)?;
    parse(&secret.ok_or_else(|| Error::Missing(namespace.to_owned()))?)
}

fn parse(secret: &Secret) -> Result<Authority, Error> {
    let text = |key| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key)).ok_or(Error::Key(key))?;
        String::from_utf8(bytes.0.clone()).map_err(|_| Error::Key(key))
    };
    Ok(Authority::from_pem(&text("tls.crt")?, &text("tls.key")?)?)
}

async fn ensure_namespace(client: &Client, namespace: &str) -> Result<(), ApiError> {
    let api: Api<Namespace> = Api::all(client.clone());
    // Where we may not read namespaces, somebody else has made ours.
    if !matches!(api.get_opt(namespace).await, Ok(None)) {
        return Ok(());
    }
    let metadata = ObjectMeta { name: Some(namespace.to_owned()), ..ObjectMeta::default() };
    match api.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await {
        Ok(_) => Ok(()),
        Err(ApiError::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error),
    }
}

async fn make(api: &Api<Secret>, manager: &str) -> Result<Secret, Error> {
    let (authority, key) = Authority::generate()?;
    let data: BTreeMap<String, ByteString> = [
        ("tls.crt".to_owned(), ByteString(authority.certificate().as_bytes().to_vec())),
        ("tls.key".to_owned(), ByteString(key.into_bytes())),
    ]
    .into();
    let secret = Secret {
        metadata: ObjectMeta { name: Some(SECRET.to_owned()), ..ObjectMeta::default() },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data),
        ..Secret::default()
    };
    match api
        .create(&PostParams { field_manager: Some(manager.into()), ..PostParams::default() }, &secret)
        .await
    {
        Ok(secret) => Ok(secret),
        Err(ApiError::Api(status)) if status.code == 409 => api.get(SECRET).await.map_err(failed),
        Err(error) => Err(failed(error)),
    }
}
