//! Admission webhooks for VMs, migrations and evictions of runner pods: `AdmissionReview` v1 in, the same out. Admission itself is
//! `neonvm_api::admit`; here is the wire. Served by every replica, with a certificate of the internal authority.

mod budget;
pub(crate) mod elsewhere;
mod eviction;
mod register;
mod requests;
mod review;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use http::StatusCode;
use kube::Client;
use neonvm_api::Policy;
use neonvm_kit::certificate::{Validity, renew};
use neonvm_kit::event::Events;
use neonvm_kit::http::{
    BUSY, Ended, FullRequest, FullResponse, Gate, MAX_BODY, Peer, SMALL_BODY, serve, text,
};
use neonvm_kit::webhook::{Client as WebhookClient, Proof};
use neonvm_types::NamespacedName;
use tokio::net::TcpListener;

use crate::authority::Authority;
use crate::config::{Config, Registration, WebhookConfig, WebhookScope};

pub(crate) use budget::Budgets;

/// Why webhooks cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The serving certificate.
    #[error("cannot make the certificate of the webhooks")]
    Certificate(#[from] neonvm_kit::ca::Error),
    /// The authority of the API server's client certificate.
    #[error("cannot read the authority of the API server's client certificate, {path}")]
    Client {
        path: String,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The URL in the registration is invalid.
    #[error("{0:?} is not an address of webhooks; write https://host:port")]
    Url(String),
}

/// How much of the registration is not written yet.
#[derive(Debug, Default)]
pub(crate) struct Pending(AtomicUsize);

impl Pending {
    /// Whether the API server has the address of the webhooks.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    fn done(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(crate) struct Webhooks {
    client: Client,
    authority: Arc<Authority>,
    names: Vec<String>,
    register: Option<register::Registered>,
    tls: neonvm_kit::http::Tls,
    caller: Option<WebhookClient>,
    hooks: Arc<Hooks>,
    requests: requests::Worker,
    pending: Arc<Pending>,
    /// Of the serving certificate.
    validity: Validity,
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks").finish_non_exhaustive()
    }
}

struct Hooks {
    client: Client,
    requests: requests::Requests,
    /// Of the services: that of the agents' account.
    namespace: String,
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
            // The API server could not call it.
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
        let caller = webhook.client.clone();
        let (served, validity) = server_config(authority, &names, caller.as_ref())?;
        let tls = Arc::new(RwLock::new(Arc::new(served)));
        let (sender, requests) = requests::channel(client.clone());
        let (skip, policy) = (config.skip_update_validation.clone(), config.settings.policy.clone());
        let namespace = config.namespace.clone();
        let hooks =
            Arc::new(Hooks { client: client.clone(), requests: sender, namespace, skip, policy, events });
        let evictions = webhook.scope == WebhookScope::Evictions;
        let autoscaler = webhook.autoscaler;
        let register = register.map(|place| register::Registered { place, evictions, autoscaler });
        let pending =
            Arc::new(Pending(AtomicUsize::new(if register.is_some() { register::SIDES } else { 0 })));
        let (client, authority) = (client.clone(), Arc::clone(authority));
        Ok(Self { client, authority, names, register, tls, caller, hooks, requests, pending, validity })
    }

    /// What is left to be registered.
    pub(crate) fn pending(&self) -> Arc<Pending> {
        Arc::clone(&self.pending)
    }

    /// Serves until `ended`, keeps the registration in step and renews the certificate; never returns.
    pub(crate) async fn run(self, listener: TcpListener, ended: Ended) {
        let hooks = Arc::clone(&self.hooks);
        let proof = Proof::new(self.caller.as_ref());
        let known = proof.clone();
        let gate = Gate::new(BUSY, &Arc::default(), move |peer| known.is_proved(peer)).ending(ended);
        let admit = move |head: &_| proof.admit(head, longest);
        let serving =
            serve(listener, Some(Arc::clone(&self.tls)), gate, admit, move |request: FullRequest| {
                let hooks = Arc::clone(&hooks);
                async move {
                    if request.uri().path() == eviction::PATH {
                        return eviction::answer(&hooks, &request).await;
                    }
                    answer(&hooks, &request).await
                }
            });
        let renewing = renew(self.validity, Validity::now, || {
            let made = server_config(&self.authority, &self.names, self.caller.as_ref());
            std::future::ready(made.map(|(config, validity)| {
                *self.tls.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                Some(validity)
            }))
        });
        let registering = async {
            if let Some(register) = &self.register {
                register::keep(&self.client, register, &self.authority, &self.pending).await;
            }
        };
        tokio::join!(serving, renewing, registering, self.requests.run(eviction::word));
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

/// A certificate for these names, for so many seconds, and what is served with it.
fn server_config(
    authority: &Authority,
    names: &[String],
    caller: Option<&WebhookClient>,
) -> Result<(rustls::ServerConfig, Validity), Error> {
    let (identity, validity) = authority.webhook(names)?;
    let mut config = match caller {
        Some(caller) => {
            let path = &caller.authority;
            let failed = |source| Error::Client { path: path.display().to_string(), source };
            neonvm_kit::tls::server(&identity, &std::fs::read_to_string(path).map_err(failed)?)?
        }
        None => neonvm_kit::tls::open_server(&identity)?,
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((config, validity))
}

/// Paths, as upstream has them: what is done, and the kind.
const PATHS: [(&str, bool, &str); 4] = [
    ("/mutate-vm-neon-tech-v1-virtualmachine", true, "VirtualMachine"),
    ("/mutate-vm-neon-tech-v1-virtualmachinemigration", true, "VirtualMachineMigration"),
    ("/validate-vm-neon-tech-v1-virtualmachine", false, "VirtualMachine"),
    ("/validate-vm-neon-tech-v1-virtualmachinemigration", false, "VirtualMachineMigration"),
];

/// Longest review of a path, in bytes.
fn longest(path: &str) -> Option<usize> {
    if path == eviction::PATH {
        return Some(SMALL_BODY);
    }
    PATHS.iter().any(|(known, ..)| *known == path).then_some(MAX_BODY)
}

async fn answer(hooks: &Hooks, request: &FullRequest) -> FullResponse {
    let path = request.uri().path();
    let Some((_, mutating, kind)) = PATHS.iter().find(|(known, ..)| *known == path) else {
        return text(StatusCode::NOT_FOUND, "text/plain", "not found\n");
    };
    let proved = Peer::from_extensions(request.extensions()).known;
    match review::answer(hooks, proved, *mutating, kind, request.body()).await {
        Ok(review) => text(StatusCode::OK, "application/json", review.to_string()),
        Err(why) => text(StatusCode::BAD_REQUEST, "text/plain", format!("{why}\n")),
    }
}

#[cfg(test)]
mod tests;
