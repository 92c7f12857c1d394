//! Admission webhooks for machines, migrations and evictions of runner pods: `AdmissionReview` v1 in, the same out. Admission itself is
//! `neonvm_api::admit`; here is the wire. Served by every replica, with a certificate of the internal authority.

mod budget;
mod elsewhere;
mod eviction;
mod register;
mod review;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::{Method, StatusCode};
use kube::Client;
use neonvm_api::Policy;
use neonvm_kit::event::Events;
use neonvm_kit::http::{Answer, Whole, serve, text};
use neonvm_types::NamespacedName;
use tokio::net::TcpListener;

use crate::authority::Authority;
use crate::config::{Config, Registration, WebhookConfig, WebhookScope};

pub(crate) use budget::Budgets;

/// Life of the serving certificate, in seconds, and when it is replaced.
const LIFE: i64 = 365 * 86_400;
const RENEWAL: Duration = Duration::from_secs(180 * 86_400);

/// Why webhooks cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The serving certificate.
    #[error("cannot make the certificate of the webhooks")]
    Certificate(#[from] neonvm_kit::ca::Error),
    /// The registration.
    #[error("{0:?} is not an address of webhooks; write https://host:port")]
    Url(String),
}

/// How much of the registration is not written yet.
#[derive(Debug, Default)]
pub(crate) struct Pending(AtomicUsize);

impl Pending {
    /// Whether the API server knows where the webhooks are.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    fn done(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The webhooks.
pub(crate) struct Webhooks {
    client: Client,
    authority: Arc<Authority>,
    names: Vec<String>,
    register: Option<register::Registered>,
    tls: neonvm_kit::http::Tls,
    hooks: Arc<Hooks>,
    pending: Arc<Pending>,
    /// After how long the certificate is replaced.
    renewal: Duration,
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks").finish_non_exhaustive()
    }
}

/// What answers.
struct Hooks {
    client: Client,
    skip: Vec<NamespacedName>,
    policy: Policy,
    events: Events,
}

impl Webhooks {
    /// The webhooks of a listener with this address.
    pub(crate) fn new(
        client: &Client,
        authority: &Arc<Authority>,
        (webhook, config): (&WebhookConfig, &Config),
        address: SocketAddr,
        events: Events,
    ) -> Result<Self, Error> {
        let register = match webhook.register.clone() {
            // Nobody could call it.
            Some(Registration::Listener) if address.ip().is_unspecified() => {
                return Err(Error::Url(address.to_string()));
            }
            Some(Registration::Listener) => Some(Registration::Url(format!("https://{address}"))),
            other => other,
        };
        let mut names = webhook.names.clone();
        names.extend(register.as_ref().map(registered_names).transpose()?.unwrap_or_default());
        names.sort();
        names.dedup();
        let tls = Arc::new(RwLock::new(Arc::new(server_config(authority, &names)?)));
        let (skip, policy) = (config.skip_update_validation.clone(), config.settings.policy.clone());
        let hooks = Arc::new(Hooks { client: client.clone(), skip, policy, events });
        let evictions = webhook.scope == WebhookScope::Evictions;
        let register = register.map(|place| register::Registered { place, evictions });
        let pending =
            Arc::new(Pending(AtomicUsize::new(if register.is_some() { register::SIDES } else { 0 })));
        let (client, authority) = (client.clone(), Arc::clone(authority));
        Ok(Self { client, authority, names, register, tls, hooks, pending, renewal: RENEWAL })
    }

    /// What is left to be registered.
    pub(crate) fn pending(&self) -> Arc<Pending> {
        Arc::clone(&self.pending)
    }

    /// Serves, keeps the registration in step and renews the certificate; never returns.
    pub(crate) async fn run(self, listener: TcpListener) {
        let hooks = Arc::clone(&self.hooks);
        let serving = serve(listener, Some(Arc::clone(&self.tls)), move |request: Whole| {
            let hooks = Arc::clone(&hooks);
            async move {
                if request.uri().path() == eviction::PATH {
                    return eviction::answer(&hooks, &request).await;
                }
                answer(&hooks, &request).await
            }
        });
        let renewing = async {
            loop {
                tokio::time::sleep(self.renewal).await;
                match server_config(&self.authority, &self.names) {
                    Ok(config) => {
                        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                    }
                    Err(error) => tracing::error!(%error, "the webhooks' certificate could not be renewed"),
                }
            }
        };
        let registering = async {
            if let Some(register) = &self.register {
                register::keep(&self.client, register, self.authority.certificate(), &self.pending).await;
            }
        };
        tokio::join!(serving, renewing, registering);
    }
}

fn registered_names(register: &Registration) -> Result<Vec<String>, Error> {
    match register {
        Registration::Service { namespace, name, .. } => {
            Ok(vec![format!("{name}.{namespace}.svc"), format!("{name}.{namespace}.svc.cluster.local")])
        }
        // It was made an address before.
        Registration::Listener => Ok(Vec::new()),
        Registration::Url(url) => {
            let uri: http::Uri = url.parse().map_err(|_| Error::Url(url.clone()))?;
            let https = uri.scheme_str() == Some("https");
            let host = uri.host().filter(|_| https).ok_or_else(|| Error::Url(url.clone()))?;
            Ok(vec![host.trim_matches(['[', ']']).to_owned()])
        }
    }
}

fn server_config(authority: &Authority, names: &[String]) -> Result<rustls::ServerConfig, Error> {
    let identity = authority.server("neonvm-webhook", names, LIFE)?;
    let mut config = neonvm_kit::tls::server(&identity, authority.certificate())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Paths, as upstream has them: what is done, and the kind.
const PATHS: [(&str, bool, &str); 4] = [
    ("/mutate-vm-neon-tech-v1-virtualmachine", true, "VirtualMachine"),
    ("/mutate-vm-neon-tech-v1-virtualmachinemigration", true, "VirtualMachineMigration"),
    ("/validate-vm-neon-tech-v1-virtualmachine", false, "VirtualMachine"),
    ("/validate-vm-neon-tech-v1-virtualmachinemigration", false, "VirtualMachineMigration"),
];

async fn answer(hooks: &Hooks, request: &Whole) -> Answer {
    let path = request.uri().path();
    let Some((_, mutating, kind)) = PATHS.iter().find(|(known, ..)| *known == path) else {
        return text(StatusCode::NOT_FOUND, "text/plain", "not found\n");
    };
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only POST\n");
    }
    match review::answer(hooks, *mutating, kind, request.body()).await {
        Ok(review) => text(StatusCode::OK, "application/json", review.to_string()),
        Err(why) => text(StatusCode::BAD_REQUEST, "text/plain", format!("{why}\n")),
    }
}

#[cfg(test)]
mod tests;
