//! The internal authority, kept in a secret; and what is signed with it: our own client certificate, runners, webhooks, guests.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use kube::{Client, Error as ApiError};
use neonvm_kit::ca::{self, Identity};
use neonvm_types::runner_protocol::{CLIENT_ORGANISATION, server_name};
use rustls::ClientConfig;

use crate::context::MANAGER;

/// Name of the secret, in the controller's namespace.
const SECRET: &str = "neonvm-internal-ca";
/// Our certificates live for a year and are replaced well before.
const RENEWAL: Duration = Duration::from_secs(180 * 86_400);

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused something.
    #[error("cannot read or write the secret {SECRET}")]
    Api(#[source] Box<ApiError>),
    /// The secret holds something else.
    #[error("the secret {SECRET} has no {0}")]
    Key(&'static str),
    /// Certificates.
    #[error(transparent)]
    Certificate(#[from] ca::Error),
}

/// The authority.
#[derive(Debug)]
pub(crate) struct Authority {
    authority: ca::Authority,
    client: RwLock<Arc<ClientConfig>>,
}

impl Authority {
    /// Reads the authority, or makes it. Of several controllers that start at once one makes it.
    pub(crate) async fn open(client: &Client, namespace: &str) -> Result<Self, Error> {
        let failed = |error| Error::Api(Box::new(error));
        ensure_namespace(client, namespace).await.map_err(failed)?;
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let secret = match api.get_opt(SECRET).await.map_err(failed)? {
            Some(secret) => secret,
            None => make(&api).await?,
        };
        let text = |key| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key)).ok_or(Error::Key(key))?;
            String::from_utf8(bytes.0.clone()).map_err(|_| Error::Key(key))
        };
        let authority = ca::Authority::from_pem(&text("tls.crt")?, &text("tls.key")?)?;
        let client = RwLock::new(Arc::new(client_config(&authority)?));
        Ok(Self { authority, client })
    }

    /// The authority's certificate, PEM.
    pub(crate) fn certificate(&self) -> &str {
        self.authority.certificate()
    }

    /// How runners are called.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The certificate of the runner of a machine.
    pub(crate) fn runner(&self, uid: &str) -> Result<Identity, ca::Error> {
        self.authority.server("neonvm-runner", &[server_name(uid)])
    }

    /// A certificate for these names, for so many seconds.
    pub(crate) fn server(&self, common: &str, names: &[String], seconds: i64) -> Result<Identity, ca::Error> {
        self.authority.server_for(common, names, seconds)
    }

    /// Replaces our client certificate in time; never returns.
    pub(crate) async fn renew(&self) {
        loop {
            tokio::time::sleep(RENEWAL).await;
            match client_config(&self.authority) {
                Ok(config) => {
                    *self.client.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                }
                Err(error) => tracing::error!(%error, "the client certificate could not be renewed"),
            }
        }
    }
}

fn client_config(authority: &ca::Authority) -> Result<ClientConfig, ca::Error> {
    let identity = authority.client(MANAGER, &[CLIENT_ORGANISATION])?;
    let mut config = neonvm_kit::tls::client(Some(&identity), authority.certificate().as_bytes())?;
    // Each runner is called once; tickets of thousands of them would only take memory.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
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

async fn make(api: &Api<Secret>) -> Result<Secret, Error> {
    let (authority, key) = ca::Authority::generate()?;
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
    let failed = |error| Error::Api(Box::new(error));
    match api
        .create(&PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() }, &secret)
        .await
    {
        Ok(secret) => Ok(secret),
        Err(ApiError::Api(status)) if status.code == 409 => api.get(SECRET).await.map_err(failed),
        Err(error) => Err(failed(error)),
    }
}
