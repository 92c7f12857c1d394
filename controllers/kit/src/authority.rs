//! Authorities that are kept in secrets of the services' namespace: the internal one signs what the services show each other,
//! the one for VMs signs what authors of VMs request.

mod current;
mod handover;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error as ApiError};
use tokio::time::{Instant, sleep, timeout};

use neonvm_api::lifetimes::Lifetimes;

use crate::backoff::Backoff;
use crate::ca::{self, Authority};

pub use current::Current;
pub use handover::advance;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthoritySecret {
    pub secret: &'static str,
    /// Common name in the certificate of one that is made.
    common: &'static str,
    /// Life of one that is made, in seconds.
    life: i64,
}

/// Key of the certificate in the config map of the secret's name.
pub const CERTIFICATE: &str = "ca.crt";
/// Signs what the services show each other.
pub const INTERNAL: AuthoritySecret = AuthoritySecret {
    secret: "neonvm-internal-ca",
    common: "neonvm-ca",
    life: Lifetimes::DEFAULT.authority(),
};
/// Signs what authors of VMs request. No service trusts it: it signs whatever name they choose.
pub const VMS: AuthoritySecret =
    AuthoritySecret { secret: "neonvm-vm-ca", common: "neonvm-vm-ca", life: Lifetimes::DEFAULT.authority() };
/// Common name of an agent, without its node.
const AGENT: &str = "neonvm-agent:";
/// Organisation of agents, in their client certificates.
pub const AGENTS: &str = "neonvm:agents";
/// Organisation of what forwards requests of upstream's agents, for VMs of any node.
pub const UPSTREAM_AGENTS: &str = "neonvm:upstream-agents";
/// Organisation of users that inspect services.
pub const OPERATORS: &str = "neonvm:operators";
/// Organisation of kube-schedulers that use the extender over TLS.
pub const SCHEDULERS: &str = "neonvm:schedulers";
/// DNS name in the server certificate of schedulers. It is not resolved.
pub const SCHEDULER_NAME: &str = "scheduler.neonvm";

/// DNS name in the server certificate of the agent of a node. It is not resolved. It names the node, so that no agent can pass
/// itself off as that of another.
#[must_use]
pub fn agent_name(node: &str) -> String {
    format!("{node}.agent.neonvm")
}

/// Common name in the client certificate of the agent of a node.
#[must_use]
pub fn agent_common_name(node: &str) -> String {
    format!("{AGENT}{node}")
}

/// The node of an agent, from the common name in its client certificate; none if the name is not of that form.
#[must_use]
pub fn node_of_agent(common_name: &str) -> Option<&str> {
    common_name.strip_prefix(AGENT)
}

/// Keys of the secret: the certificate and key of the authority that signs, the certificate of the one that signs next, that of the one
/// that signed before.
const SIGNS: (&str, &str) = ("tls.crt", "tls.key");
const NEXT: &str = "next.crt";
const PREVIOUS: &str = "previous.crt";

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
    #[error("cannot read or write the secret or config map {0}")]
    Api(&'static str, #[source] Box<ApiError>),
    /// Its certificate is not published.
    #[error(
        "there is no config map {0} with a key {CERTIFICATE} in the namespace {1}; does a vm-controller run there?"
    )]
    Unpublished(&'static str, String),
    /// There is none yet.
    #[error("there is no secret {0} in the namespace {1}; is anything of ours running there?")]
    Missing(&'static str, String),
    /// The secret holds something else.
    #[error("the secret {0} has no {1}")]
    Key(&'static str, &'static str),
    /// The server did not respond.
    #[error("the API server does not respond to requests for the secret {0}")]
    Late(&'static str),
    /// Certificates.
    #[error(transparent)]
    Certificate(#[from] ca::Error),
}

impl AuthoritySecret {
    /// The same with another life of authorities that are made, in seconds.
    #[must_use]
    pub const fn living(self, life: i64) -> Self {
        Self { life, ..self }
    }

    fn failed(self) -> impl Fn(ApiError) -> Error {
        move |error| Error::Api(self.secret, Box::new(error))
    }

    fn parse(self, secret: &Secret) -> Result<Authority, Error> {
        let text = |key| text(secret, key).ok_or(Error::Key(self.secret, key));
        let beside = [NEXT, PREVIOUS].map(|key| self::text(secret, key).unwrap_or_default()).concat();
        Ok(Authority::from_pem(&text(SIGNS.0)?, &text(SIGNS.1)?)?.beside(&beside))
    }
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.0.clone()).ok()
}

/// Reads an authority, or makes it, and its namespace too. Of several services that start at once one makes it; `manager`
/// is its field manager.
///
/// # Errors
/// If the API server refuses, or the secret holds something else.
pub async fn open(
    client: &Client,
    namespace: &str,
    kept: AuthoritySecret,
    manager: &str,
) -> Result<Authority, Error> {
    ensure_namespace(client, namespace).await.map_err(kept.failed())?;
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = match api.get_opt(kept.secret).await.map_err(kept.failed())? {
        Some(secret) => secret,
        None => make(&api, kept, manager).await?,
    };
    kept.parse(&secret)
}

/// As [`open`], for services that start together with the API server: it is retried with backoff for a minute.
///
/// # Errors
/// Those of the last attempt.
pub async fn open_at_start(
    client: &Client,
    namespace: &str,
    kept: AuthoritySecret,
    manager: &str,
) -> Result<Authority, Error> {
    at_start(kept, || open(client, namespace, kept, manager)).await
}

/// Tries for a while; each attempt has its limit.
async fn at_start<T, F>(kept: AuthoritySecret, attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let started = Instant::now();
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    loop {
        match timeout(ATTEMPT, attempt()).await.unwrap_or(Err(Error::Late(kept.secret))) {
            Err(error) if started.elapsed() < START => {
                tracing::warn!(%error, authority = kept.secret, "the API server does not answer as it should; trying again");
            }
            ended => return ended,
        }
        sleep(backoff.pause()).await;
    }
}

/// Publishes the certificate of an authority in the config map of its name, and tries for a while at the start of a service.
///
/// # Errors
/// If the API server refuses, or does not answer in time.
pub async fn publish_at_start(
    client: &Client,
    namespace: &str,
    published: (AuthoritySecret, &Authority),
    manager: &str,
) -> Result<(), Error> {
    at_start(published.0, || publish(client, namespace, published, manager)).await
}

/// Publishes the trusted certificates of an authority in the config map of its name.
///
/// # Errors
/// If the API server refuses.
pub async fn publish(
    client: &Client,
    namespace: &str,
    (kept, authority): (AuthoritySecret, &Authority),
    manager: &str,
) -> Result<(), Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let data: BTreeMap<String, String> = [(CERTIFICATE.to_owned(), authority.bundle())].into();
    let found = api.get_opt(kept.secret).await.map_err(kept.failed())?;
    match found {
        Some(found) if found.data.as_ref() == Some(&data) => Ok(()),
        Some(_) => {
            let how = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
            let change = Patch::Merge(serde_json::json!({ "data": data }));
            api.patch(kept.secret, &how, &change).await.map(drop).map_err(kept.failed())
        }
        None => {
            let metadata = ObjectMeta { name: Some(kept.secret.to_owned()), ..ObjectMeta::default() };
            let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
            let how = PostParams { field_manager: Some(manager.into()), ..PostParams::default() };
            match api.create(&how, &map).await {
                Ok(_) => Ok(()),
                // Another replica was faster; it has the same secret.
                Err(ApiError::Api(status)) if status.code == 409 => Ok(()),
                Err(error) => Err(kept.failed()(error)),
            }
        }
    }
}

/// The published certificates of the internal authority, PEM: what services and operators trust.
///
/// # Errors
/// If it is not published, or the API server refuses.
pub async fn trusted(client: &Client, namespace: &str) -> Result<String, Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(INTERNAL.secret).await.map_err(INTERNAL.failed())?;
    let certificate = found.and_then(|map| map.data?.remove(CERTIFICATE));
    certificate.ok_or_else(|| Error::Unpublished(INTERNAL.secret, namespace.to_owned()))
}

/// Reads the internal authority; makes nothing.
///
/// # Errors
/// If there is none, the API server refuses, or the secret holds something else.
pub async fn read(client: &Client, namespace: &str) -> Result<Authority, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = api.get_opt(INTERNAL.secret).await.map_err(INTERNAL.failed())?;
    INTERNAL.parse(&secret.ok_or_else(|| Error::Missing(INTERNAL.secret, namespace.to_owned()))?)
}

async fn ensure_namespace(client: &Client, namespace: &str) -> Result<(), ApiError> {
    let api: Api<Namespace> = Api::all(client.clone());
    // Without the right to read namespaces, ours was made by the administrator.
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

/// Writes an authority back into its secret, which was deleted while a service held it: certificates that it has signed stay valid. The
/// authority that was to sign next is only trusted from then on, and another one is prepared.
///
/// # Errors
/// If the API server refuses.
pub async fn restore(
    client: &Client,
    namespace: &str,
    (kept, authority): (AuthoritySecret, &Authority),
    manager: &str,
) -> Result<(), Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let beside = Some((PREVIOUS, authority.trusted_beside())).filter(|(_, text)| !text.is_empty());
    let key = authority.key();
    let texts = [(SIGNS.0, authority.certificate()), (SIGNS.1, &key)];
    store(&api, kept, texts.into_iter().chain(beside), manager).await.map(drop)
}

async fn make(api: &Api<Secret>, kept: AuthoritySecret, manager: &str) -> Result<Secret, Error> {
    let (authority, key) = Authority::generate_for(kept.common, kept.life)?;
    store(api, kept, [(SIGNS.0, authority.certificate()), (SIGNS.1, &key)], manager).await
}

/// The secret with these texts, or that of another replica that was faster.
async fn store<'a>(
    api: &Api<Secret>,
    kept: AuthoritySecret,
    texts: impl IntoIterator<Item = (&'static str, &'a str)>,
    manager: &str,
) -> Result<Secret, Error> {
    let texts = texts.into_iter();
    let secret = Secret {
        metadata: ObjectMeta { name: Some(kept.secret.to_owned()), ..ObjectMeta::default() },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(texts.map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec()))).collect()),
        ..Secret::default()
    };
    match api
        .create(&PostParams { field_manager: Some(manager.into()), ..PostParams::default() }, &secret)
        .await
    {
        Ok(secret) => Ok(secret),
        Err(ApiError::Api(status)) if status.code == 409 => api.get(kept.secret).await.map_err(kept.failed()),
        Err(error) => Err(kept.failed()(error)),
    }
}
