//! Admission webhooks for machines, migrations and evictions of runner pods: `AdmissionReview` v1 in, the same out. Admission itself is
//! `neonvm_api::admit`; here is the wire. Served by every replica, with a certificate of the internal authority.

mod eviction;
mod register;
mod review;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::{Method, StatusCode};
use kube::Client;
use neonvm_kit::http::{Answer, Whole, serve, text};
use neonvm_types::NamespacedName;
use tokio::net::TcpListener;

use crate::authority::Authority;
use crate::config::{Config, Registration};
use crate::event::Events;

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

/// The webhooks.
pub(crate) struct Webhooks {
    client: Client,
    authority: Arc<Authority>,
    names: Vec<String>,
    register: Option<Registration>,
    tls: neonvm_kit::http::Tls,
    hooks: Arc<Hooks>,
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
    events: Events,
}

impl Webhooks {
    pub(crate) fn new(
        client: &Client,
        authority: &Arc<Authority>,
        config: &Config,
        events: Events,
    ) -> Result<Self, Error> {
        let webhook = config.webhook.as_ref();
        let register = webhook.and_then(|webhook| webhook.register.clone());
        let mut names = webhook.map(|webhook| webhook.names.clone()).unwrap_or_default();
        names.extend(register.as_ref().map(registered_names).transpose()?.unwrap_or_default());
        names.sort();
        names.dedup();
        let tls = Arc::new(RwLock::new(Arc::new(server_config(authority, &names)?)));
        let hooks =
            Arc::new(Hooks { client: client.clone(), skip: config.skip_update_validation.clone(), events });
        Ok(Self { client: client.clone(), authority: Arc::clone(authority), names, register, tls, hooks })
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
                answer(&hooks, &request)
            }
        });
        let renewing = async {
            loop {
                tokio::time::sleep(RENEWAL).await;
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
                register::keep(&self.client, register, self.authority.certificate()).await;
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

fn answer(hooks: &Hooks, request: &Whole) -> Answer {
    let path = request.uri().path();
    let Some((_, mutating, kind)) = PATHS.iter().find(|(known, ..)| *known == path) else {
        return text(StatusCode::NOT_FOUND, "text/plain", "not found\n");
    };
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only POST\n");
    }
    match review::answer(hooks, *mutating, kind, request.body()) {
        Ok(review) => text(StatusCode::OK, "application/json", review.to_string()),
        Err(why) => text(StatusCode::BAD_REQUEST, "text/plain", format!("{why}\n")),
    }
}
