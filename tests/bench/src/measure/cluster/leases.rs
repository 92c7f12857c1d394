//! Writes to the API server: all, and those of leases.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};

use crate::fleet::NAMESPACE;

/// Renewals of leases so far.
#[derive(Debug, Default)]
pub(super) struct Leases {
    agents: AtomicU64,
    services: AtomicU64,
}

impl Leases {
    /// By agents, and by services.
    pub(super) fn renewals(&self) -> (u64, u64) {
        (self.agents.load(Ordering::Relaxed), self.services.load(Ordering::Relaxed))
    }

    /// Follows the leases; never returns.
    pub(super) async fn follow(&self, client: Client) {
        let api: Api<Lease> = Api::namespaced(client, NAMESPACE);
        let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        loop {
            if let Ok(Some(watcher::Event::Apply(lease))) = events.try_next().await {
                let of_agent = lease.name_any().starts_with("neonvm-agent-");
                let count = if of_agent { &self.agents } else { &self.services };
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The number of writes to the embedded API server since its state was made: each takes one revision.
pub(super) async fn revision(client: &Client) -> anyhow::Result<u64> {
    let api: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let list = api.list_metadata(&ListParams::default().limit(1)).await?;
    list.metadata.resource_version.and_then(|text| text.parse().ok()).context("a list without a revision")
}
