//! The internal authority, kept in a secret, and what is signed with it: our own client certificate, runners, webhooks, and what
//! services and operators request. Beside it the authority for VMs: it signs the names that their authors choose, and is trusted by
//! no service.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use neonvm_api::lifetimes::Lifetimes;
use neonvm_kit::authority::{
    AuthoritySecret, Current, Error, INTERNAL, VMS, advance, open_at_start, publish, publish_at_start,
    restore,
};
use neonvm_kit::ca::{self, Identity};
use neonvm_kit::certificate::{Shown, Validity, renew};
use neonvm_kit::expiry::{Expiry, Use};
use neonvm_kit::signer::Signer;
use neonvm_kit::trust::Trust;
use neonvm_kit::watch::retry;
use neonvm_types::runner_protocol::{CLIENT_ORGANISATION, server_name};
use rustls::ClientConfig;
use tokio::sync::watch as channel;

use crate::clock::now;
use crate::request::MANAGER;

/// Common name of the webhooks' certificate.
const WEBHOOK: &str = "neonvm-webhook";
/// From the deletion of a secret until it is written back.
const WRITTEN_BACK: Duration = Duration::from_millis(500);
/// Time limit of one read of an authority.
const WITHIN: Duration = Duration::from_secs(20);

pub(crate) struct Authority {
    client: Client,
    namespace: String,
    lifetimes: Lifetimes,
    internal: Current,
    vms: Current,
    shown: Arc<Shown>,
    validity: Validity,
    trust: Arc<Trust>,
    config: Arc<ClientConfig>,
    /// The trusted authorities, PEM, for the tasks that publish them.
    bundle: channel::Sender<String>,
    expiry: Expiry,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Authority {
    /// Reads the authorities, or makes them, and publishes their certificates. Of several controllers that start at once one
    /// makes them. An API server that is just starting is waited for. `expiry` is kept up to date.
    pub(crate) async fn open(
        client: &Client,
        (namespace, lifetimes): (&str, Lifetimes),
        expiry: &Expiry,
    ) -> Result<Self, Error> {
        let kept = INTERNAL.living(lifetimes.authority());
        let internal = open_at_start(client, namespace, kept, MANAGER).await?;
        let vms = open_at_start(client, namespace, VMS, MANAGER).await?;
        publish_at_start(client, namespace, (INTERNAL, &internal), MANAGER).await?;
        publish_at_start(client, namespace, (VMS, &vms), MANAGER).await?;
        let identity = own(&internal, &lifetimes)?;
        let validity = validity(&identity)?;
        let shown = Arc::new(Shown::new(&identity)?);
        let trust = Arc::new(Trust::new(&internal.bundle())?);
        // Each runner is called once; tickets of thousands of them would only take memory, and this has none.
        let config = neonvm_kit::tls::client_with(Arc::clone(&shown), Arc::clone(&trust))?;
        let (bundle, _) = channel::channel(internal.bundle());
        let (client, namespace, config) = (client.clone(), namespace.to_owned(), Arc::new(config));
        let (internal, vms) = (Current::new(internal), Current::new(vms));
        let expiry = expiry.clone();
        let opened = Self {
            client,
            namespace,
            lifetimes,
            internal,
            vms,
            shown,
            validity,
            trust,
            config,
            bundle,
            expiry,
        };
        opened.report(INTERNAL, &opened.internal.get());
        opened.report(VMS, &opened.vms.get());
        opened.report_own(validity);
        Ok(opened)
    }

    fn report(&self, kept: AuthoritySecret, authority: &ca::Authority) {
        self.expiry.set_last(kept.secret, Use::Authority, authority.certificate());
        if kept == INTERNAL {
            self.expiry.set_last(kept.secret, Use::Trusted, &authority.bundle());
        }
    }

    fn report_own(&self, validity: Validity) {
        self.expiry.set(MANAGER, Use::Client, validity);
    }

    /// The trusted authorities, PEM: the current one, and during a handover the other.
    pub(crate) fn bundle(&self) -> String {
        self.bundle.borrow().clone()
    }

    pub(crate) fn bundles(&self) -> channel::Receiver<String> {
        self.bundle.subscribe()
    }

    /// How runners are called.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// The certificate of the runner of a VM.
    pub(crate) fn runner(&self, uid: &str) -> Result<Identity, ca::Error> {
        // Both at once: the runners of a VM in migration call each other.
        self.internal.get().peer_for("neonvm-runner", &[server_name(uid)], self.lifetimes.certificate())
    }

    /// How long what it signs lives.
    pub(crate) fn lifetimes(&self) -> &Lifetimes {
        &self.lifetimes
    }

    /// The certificate of the webhooks with these names.
    pub(crate) fn webhook(&self, names: &[String]) -> Result<(Identity, Validity), ca::Error> {
        let identity = self.internal.get().server_for(WEBHOOK, names, self.lifetimes.certificate())?;
        let validity = validity(&identity)?;
        self.expiry.set(WEBHOOK, Use::Server, validity);
        Ok((identity, validity))
    }

    /// A certificate for the name that the author of a VM has chosen, for so many seconds.
    pub(crate) fn guest(&self, name: &str, seconds: i64) -> Result<Identity, ca::Error> {
        self.vms.get().server_for(name, &[name.to_owned()], seconds)
    }

    /// Answers certificate requests of services and operators.
    pub(crate) fn signer(&self, client: Client, namespace: &str) -> Signer {
        Signer::new(client, namespace, (self.internal.clone(), &self.lifetimes), MANAGER)
    }

    /// Replaces our client certificate in time, and checks the authorities each time that `look` has passed; never returns.
    pub(crate) async fn keep(&self, look: Duration) {
        let looking = async {
            loop {
                self.refresh().await;
                self.look_within(VMS, &self.vms).await;
                tokio::select! {
                    () = tokio::time::sleep(look) => {}
                    () = self.deleted(INTERNAL) => {}
                    () = self.deleted(VMS) => {}
                }
            }
        };
        let renewing = renew(self.validity, Validity::now, || std::future::ready(self.again().map(Some)));
        tokio::join!(looking, renewing);
    }

    /// Returns when the secret of an authority is deleted.
    async fn deleted(&self, kept: AuthoritySecret) {
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(self.client.clone(), &self.namespace);
        let only = watcher::Config::default().fields(&format!("metadata.name={}", kept.secret));
        let mut events = watcher(api, only).backoff(retry()).boxed();
        let mut found = false;
        loop {
            match events.next().await {
                Some(Ok(watcher::Event::Init)) => found = false,
                Some(Ok(watcher::Event::InitApply(_))) => found = true,
                Some(Ok(watcher::Event::InitDone)) if !found => break,
                Some(Ok(watcher::Event::InitDone | watcher::Event::Apply(_)) | Err(_)) => {}
                Some(Ok(watcher::Event::Delete(_))) | None => break,
            }
        }
        // It may be that it cannot be written back.
        tokio::time::sleep(WRITTEN_BACK).await;
    }

    /// Reads the internal authority now.
    pub(crate) async fn refresh(&self) {
        self.look_within(INTERNAL, &self.internal).await;
    }

    async fn look_within(&self, kept: AuthoritySecret, current: &Current) {
        match tokio::time::timeout(WITHIN, self.look(kept, current)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "an authority cannot be looked at"),
            Err(_) => tracing::warn!(secret = kept.secret, "the API server does not respond"),
        }
    }

    /// Continues the handover of an authority, or adopts one that another replica has continued. The trusted
    /// authorities are published before any certificate needs them; this process trusts them first, since it calls and
    /// is called as well.
    async fn look(&self, kept: AuthoritySecret, current: &Current) -> Result<(), Error> {
        let life = if kept == INTERNAL { kept.living(self.lifetimes.authority()) } else { kept };
        let step = || advance(&self.client, &self.namespace, life, (now().unix(), MANAGER));
        let next = match step().await {
            Err(Error::Missing(..)) => {
                tracing::warn!(
                    secret = kept.secret,
                    "the secret of an authority was deleted; it is written back"
                );
                restore(&self.client, &self.namespace, (kept, &current.get()), MANAGER).await?;
                step().await?
            }
            other => other?,
        };
        if kept == INTERNAL {
            self.trust.replace(&next.bundle())?;
        }
        publish(&self.client, &self.namespace, (kept, &next), MANAGER).await?;
        self.report(kept, &next);
        let bundle = next.bundle();
        if current.replace(next) && kept == INTERNAL {
            self.bundle.send_replace(bundle);
        }
        Ok(())
    }

    fn again(&self) -> Result<Validity, ca::Error> {
        let identity = own(&self.internal.get(), &self.lifetimes)?;
        self.shown.replace(&identity)?;
        let validity = validity(&identity)?;
        self.report_own(validity);
        Ok(validity)
    }
}

fn own(authority: &ca::Authority, lifetimes: &Lifetimes) -> Result<Identity, ca::Error> {
    authority.client_for(MANAGER, &[CLIENT_ORGANISATION], lifetimes.certificate())
}

pub(crate) fn validity(identity: &Identity) -> Result<Validity, ca::Error> {
    let unreadable = || ca::Error::Pem { path: "our own certificate".into(), wanted: "a certificate" };
    Validity::from_identity(identity).ok_or_else(unreadable)
}
