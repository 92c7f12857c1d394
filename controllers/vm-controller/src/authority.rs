//! The internal authority, kept in a secret, and what is signed with it: our own client certificate, runners, webhooks, and what
//! services and operators request. Beside it the authority for VMs: it signs the names that their authors choose, and is trusted by
//! no service.

use std::sync::Arc;

use kube::Client;
use neonvm_kit::authority::{Error, INTERNAL, VMS, open_at_start, publish_at_start};
use neonvm_kit::ca::{self, Identity};
use neonvm_kit::certificate::{Shown, Validity, renew};
use neonvm_kit::signer::Signer;
use neonvm_types::runner_protocol::{CLIENT_ORGANISATION, server_name};
use rustls::ClientConfig;

use crate::context::MANAGER;

/// Life of our client certificate and of runners', in seconds. Both are renewed at two thirds of it.
pub(crate) const LIFE: i64 = 86_400;

/// The authorities.
#[derive(Debug)]
pub(crate) struct Authority {
    authority: Arc<ca::Authority>,
    vms: ca::Authority,
    shown: Arc<Shown>,
    validity: Validity,
    client: Arc<ClientConfig>,
}

impl Authority {
    /// Reads the authorities, or makes them, and publishes their certificates. Of several controllers that start at once one
    /// makes them. An API server that is just starting is waited for.
    pub(crate) async fn open(client: &Client, namespace: &str) -> Result<Self, Error> {
        let authority = open_at_start(client, namespace, INTERNAL, MANAGER).await?;
        let vms = open_at_start(client, namespace, VMS, MANAGER).await?;
        publish_at_start(client, namespace, (INTERNAL, &authority), MANAGER).await?;
        publish_at_start(client, namespace, (VMS, &vms), MANAGER).await?;
        let identity = own(&authority)?;
        let validity = validity(&identity)?;
        let shown = Arc::new(Shown::new(&identity)?);
        // Each runner is called once; tickets of thousands of them would only take memory, and this has none.
        let config = neonvm_kit::tls::client_with(Arc::clone(&shown), authority.certificate().as_bytes())?;
        Ok(Self { authority: Arc::new(authority), vms, shown, validity, client: Arc::new(config) })
    }

    /// The authority's certificate, PEM.
    pub(crate) fn certificate(&self) -> &str {
        self.authority.certificate()
    }

    /// How runners are called.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// The certificate of the runner of a machine.
    pub(crate) fn runner(&self, uid: &str) -> Result<Identity, ca::Error> {
        // Both at once: the runners of a machine that moves call each other.
        self.authority.peer_for("neonvm-runner", &[server_name(uid)], LIFE)
    }

    /// The certificate of a server of ours with these names, for so many seconds.
    pub(crate) fn server(&self, common: &str, names: &[String], seconds: i64) -> Result<Identity, ca::Error> {
        self.authority.server_for(common, names, seconds)
    }

    /// A certificate for the name that the author of a VM has chosen, for so many seconds.
    pub(crate) fn guest(&self, name: &str, seconds: i64) -> Result<Identity, ca::Error> {
        self.vms.server_for(name, &[name.to_owned()], seconds)
    }

    /// Answers certificate requests of services and operators.
    pub(crate) fn signer(&self, client: Client, namespace: &str) -> Signer {
        Signer::new(client, namespace, Arc::clone(&self.authority), MANAGER)
    }

    /// Replaces our client certificate in time; never returns.
    pub(crate) async fn renew(&self) {
        renew(self.validity, Validity::now, || std::future::ready(self.again().map(Some))).await;
    }

    fn again(&self) -> Result<Validity, ca::Error> {
        let identity = own(&self.authority)?;
        self.shown.replace(&identity)?;
        validity(&identity)
    }
}

fn own(authority: &ca::Authority) -> Result<Identity, ca::Error> {
    authority.client_for(MANAGER, &[CLIENT_ORGANISATION], LIFE)
}

fn validity(identity: &Identity) -> Result<Validity, ca::Error> {
    let unreadable = || ca::Error::Pem { path: "our own certificate".into(), wanted: "a certificate" };
    Validity::of(identity).ok_or_else(unreadable)
}
