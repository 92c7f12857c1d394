//! The certificate of a service or an operator: requested from the signer `vm.neon.tech/internal`, with a key that is made here
//! and sent nowhere, and renewed while the service runs.

mod own;
mod renewal;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use kube::{Client, Error as ApiError, ResourceExt as _};
use rustls::{ClientConfig, ServerConfig};
use tokio::time::{Instant, sleep, timeout};

use crate::authority;
use crate::backoff::Backoff;
use crate::ca::{self, Identity, Purpose, Request};
use crate::expiry::{Expiry, Use};
use crate::signer::rules::{
    OPERATOR, OPERATOR_LIFE, POD_AUTOSCALER, SCHEDULER, SERVICE_LIFE, SIGNER, UPSTREAM_AGENTS,
};
use crate::trust::Trust;

pub use crate::shown::Shown;
pub use crate::validity::Validity;
pub use own::Own;
pub use renewal::renew;

/// How long [`Certificate::at_start`] tries.
const START: Duration = Duration::from_secs(60);
/// Longest wait for one request to be answered.
const ANSWER: Duration = Duration::from_secs(20);
/// First and longest pause between two reads of a request, and between two attempts.
const LOOKS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server.
    #[error("cannot request a certificate")]
    Api(#[source] Box<ApiError>),
    /// The signer's rules.
    #[error("the request {name} for a certificate was denied: {why}")]
    Denied {
        /// Name of the request.
        name: String,
        /// The message of the signer.
        why: String,
    },
    /// The request was deleted.
    #[error("the request {0} for a certificate was deleted before it was answered")]
    Gone(String),
    /// It was not answered.
    #[error("the request for a certificate was not answered within {} s; does a vm-controller lead?", ANSWER.as_secs())]
    Late,
    /// What is to be trusted.
    #[error(transparent)]
    Authority(#[from] authority::Error),
    /// The certificate or key is invalid.
    #[error(transparent)]
    Certificate(#[from] ca::Error),
    /// The certificate that was signed cannot be read.
    #[error("the certificate that was signed cannot be read")]
    Unreadable,
}

impl Error {
    /// Whether trying again soon is of no use.
    const fn is_final(&self) -> bool {
        matches!(self, Self::Denied { .. })
    }
}

fn failed(error: ApiError) -> Error {
    Error::Api(Box::new(error))
}

/// A certificate to request. The signer decides about names and purpose; see [`crate::signer::rules`].
#[derive(Clone, Debug)]
pub struct CertificateFor {
    common_name: String,
    purpose: Purpose,
    /// Its life in seconds; at least the ten minutes that Kubernetes demands.
    pub seconds: i64,
}

impl CertificateFor {
    #[must_use]
    pub fn agent(node: &str, purpose: Purpose) -> Self {
        Self { common_name: authority::agent_common_name(node), purpose, seconds: SERVICE_LIFE }
    }

    #[must_use]
    pub fn scheduler() -> Self {
        Self { common_name: SCHEDULER.to_owned(), purpose: Purpose::Server, seconds: SERVICE_LIFE }
    }

    #[must_use]
    pub fn pod_autoscaler() -> Self {
        Self { common_name: POD_AUTOSCALER.to_owned(), purpose: Purpose::Server, seconds: SERVICE_LIFE }
    }

    /// Of what forwards requests of upstream's agents.
    #[must_use]
    pub fn upstream_agents() -> Self {
        Self { common_name: UPSTREAM_AGENTS.to_owned(), purpose: Purpose::Client, seconds: SERVICE_LIFE }
    }

    /// Of a user that inspects services.
    #[must_use]
    pub fn operator() -> Self {
        Self { common_name: OPERATOR.to_owned(), purpose: Purpose::Client, seconds: OPERATOR_LIFE }
    }
}

/// Requests a certificate and waits for it.
///
/// # Errors
/// If the API server refuses, the request is denied, or no answer comes in time.
pub async fn request(client: &Client, wanted: &CertificateFor) -> Result<Identity, Error> {
    let (request, key) = Request::make(&wanted.common_name)?;
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let usages = ["digital signature", wanted.purpose.usage()];
    let spec = CertificateSigningRequestSpec {
        request: ByteString(request.into_bytes()),
        signer_name: SIGNER.to_owned(),
        expiration_seconds: i32::try_from(wanted.seconds).ok(),
        usages: Some(usages.map(str::to_owned).to_vec()),
        ..CertificateSigningRequestSpec::default()
    };
    let metadata = ObjectMeta { generate_name: Some("neonvm-".to_owned()), ..ObjectMeta::default() };
    let posted = CertificateSigningRequest { metadata, spec, status: None };
    let answered = async {
        let made = api.create(&PostParams::default(), &posted).await.map_err(failed)?;
        let certificate = answer(&api, &made.name_any()).await?;
        Ok(Identity { certificate, key })
    };
    timeout(ANSWER, answered).await.unwrap_or(Err(Error::Late))
}

/// Polls a request until it is answered. One poll is a small read; a watch would need another permission.
async fn answer(api: &Api<CertificateSigningRequest>, name: &str) -> Result<String, Error> {
    let mut looks = Backoff::new(LOOKS.0, LOOKS.1);
    loop {
        sleep(looks.pause()).await;
        let found = api.get_opt(name).await.map_err(failed)?;
        let status = found.ok_or_else(|| Error::Gone(name.to_owned()))?.status.unwrap_or_default();
        if let Some(certificate) = status.certificate {
            return String::from_utf8(certificate.0).map_err(|_| Error::Unreadable);
        }
        let refused = |kind: &str| matches!(kind, "Denied" | "Failed");
        if let Some(condition) = status.conditions.into_iter().flatten().find(|c| refused(&c.type_)) {
            let why = condition.message.unwrap_or_default();
            return Err(Error::Denied { name: name.to_owned(), why });
        }
    }
}

/// A certificate that TLS shows, and the trusted authorities.
pub struct Certificate {
    client: Client,
    namespace: String,
    wanted: CertificateFor,
    trust: Arc<Trust>,
    validity: Validity,
    shown: Arc<Shown>,
    expiry: Option<Expiry>,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl Certificate {
    /// Requests one. `namespace` is that of the services.
    ///
    /// # Errors
    /// Those of [`request`], or that the authority's certificate is not published.
    pub async fn obtain(client: &Client, namespace: &str, wanted: CertificateFor) -> Result<Self, Error> {
        let trust = Arc::new(Trust::new(&authority::trusted(client, namespace).await?)?);
        let identity = request(client, &wanted).await?;
        let validity = Validity::from_identity(&identity).ok_or(Error::Unreadable)?;
        let shown = Arc::new(Shown::new(&identity)?);
        let (client, namespace) = (client.clone(), namespace.to_owned());
        Ok(Self { client, namespace, wanted, trust, validity, shown, expiry: None })
    }

    /// As [`Certificate::obtain`], for services that start together with the API server and the signer: it is retried with
    /// backoff for a minute.
    ///
    /// # Errors
    /// Those of the last attempt.
    pub async fn at_start(client: &Client, namespace: &str, wanted: CertificateFor) -> Result<Self, Error> {
        let started = Instant::now();
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            match Self::obtain(client, namespace, wanted.clone()).await {
                Err(error) if !error.is_final() && started.elapsed() < START => {
                    tracing::warn!(%error, "there is no certificate yet; it is tried again");
                }
                obtained => return obtained,
            }
            sleep(backoff.pause()).await;
        }
    }

    /// Sets its end, and that of the trusted authorities, now and with each renewal.
    #[must_use]
    pub fn reported(mut self, expiry: &Expiry) -> Self {
        self.expiry = Some(expiry.clone());
        self.report(self.validity);
        self
    }

    fn report(&self, validity: Validity) {
        if let Some(expiry) = &self.expiry {
            expiry.set(&self.wanted.common_name, self.wanted.purpose.into(), validity);
            expiry.set_last(authority::INTERNAL.secret, Use::Trusted, &self.trust.bundle());
        }
    }

    /// A client that shows it; connections that are made after a renewal show the new one.
    ///
    /// # Errors
    /// If rustls refuses.
    pub fn client_config(&self) -> Result<ClientConfig, ca::Error> {
        crate::tls::client_with(Arc::clone(&self.shown), Arc::clone(&self.trust))
    }

    /// A server that shows it, and takes clients with a certificate of the internal authority and without one.
    ///
    /// # Errors
    /// If rustls refuses.
    pub fn server_config(&self) -> Result<ServerConfig, ca::Error> {
        crate::tls::server_with(Arc::clone(&self.shown), Arc::clone(&self.trust))
    }

    /// A server of webhooks that shows it: takes clients with a certificate of `clients` (PEM) and without one; without `clients`
    /// it requires no client certificate.
    ///
    /// # Errors
    /// If the PEM text cannot be read.
    pub fn webhook_config(&self, clients: Option<&str>) -> Result<ServerConfig, ca::Error> {
        let shown = Arc::clone(&self.shown);
        let mut config = match clients {
            Some(clients) => crate::tls::server_with(shown, Arc::new(Trust::new(clients)?))?,
            None => crate::tls::open_server_with(shown)?,
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Renews it, and then trusts the authorities that the services trust; never returns. While an authority is handed over two
    /// are trusted for days before the second signs anything, so a service that reads them at each renewal is never behind.
    pub async fn keep(self) {
        renew(self.validity, Validity::now, || self.again()).await;
    }

    /// Requests another one and shows it.
    async fn again(&self) -> Result<Option<Validity>, Error> {
        if self.trust.replace(&authority::trusted(&self.client, &self.namespace).await?)? {
            tracing::info!("other authorities are trusted from now on");
        }
        let identity = request(&self.client, &self.wanted).await?;
        let validity = Validity::from_identity(&identity).ok_or(Error::Unreadable)?;
        self.shown.replace(&identity)?;
        self.report(validity);
        Ok(Some(validity))
    }
}

#[cfg(test)]
mod tests;
