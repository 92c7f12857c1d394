//! The internal authority, kept in a secret; and what is signed with it: our own client certificate, runners, webhooks, guests.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use kube::Client;
use neonvm_kit::authority::Error;
use neonvm_kit::ca::{self, Identity};
use neonvm_types::runner_protocol::{CLIENT_ORGANISATION, server_name};
use rustls::ClientConfig;

use crate::context::MANAGER;

/// Our certificates live for a year and are replaced well before.
const RENEWAL: Duration = Duration::from_secs(180 * 86_400);

/// The authority.
#[derive(Debug)]
pub(crate) struct Authority {
    authority: ca::Authority,
    client: RwLock<Arc<ClientConfig>>,
}

impl Authority {
    /// Reads the authority, or makes it. Of several controllers that start at once one makes it. An API server that is just
    /// starting is waited for.
    pub(crate) async fn open(client: &Client, namespace: &str) -> Result<Self, Error> {
        let authority = neonvm_kit::authority::open_at_start(client, namespace, MANAGER).await?;
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
        // Both at once: the runners of a machine that moves call each other.
        self.authority.peer("neonvm-runner", &[server_name(uid)])
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
