//! A watcher that outlives its servers.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use tokio::sync::Semaphore;

use super::PATIENCE;
use super::ledger::{self, Listed, MARKER, Observation};

pub(super) type Events = Pin<Box<dyn Stream<Item = Result<WatchEvent<ConfigMap>, kube::Error>> + Send>>;

/// What the watcher believes.
#[derive(Debug, Default)]
pub(super) struct Follower {
    version: u64,
    objects: BTreeMap<String, (u64, u64)>,
    observations: Vec<Observation>,
}

/// Writes the marker of a round.
pub(super) async fn mark(api: &Api<ConfigMap>, round: u32) -> anyhow::Result<()> {
    let body = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": MARKER },
        "data": { "round": round.to_string() } });
    api.patch(MARKER, &PatchParams::apply("marker").force(), &Patch::Apply(&body)).await?;
    Ok(())
}

impl Follower {
    pub(super) fn take_observations(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.observations)
    }

    pub(super) fn reset(&mut self, listed: &Listed) {
        self.version = listed.version;
        self.objects.clone_from(&listed.objects);
    }

    /// Watches from the last version seen.
    pub(super) async fn watch(&self, api: &Api<ConfigMap>) -> anyhow::Result<Events> {
        let parameters = WatchParams::default().timeout(290).disable_bookmarks();
        Ok(api.watch(&parameters, &self.version.to_string()).await?.boxed())
    }

    /// Reads events up to the marker of a round; false if the watch has expired.
    pub(super) async fn until_marker(&mut self, events: &mut Events, round: u32) -> anyhow::Result<bool> {
        loop {
            let event = tokio::time::timeout(PATIENCE, events.try_next())
                .await
                .context("the marker never comes")??;
            let event = event.context("the watch ends before the marker")?;
            if let WatchEvent::Error(status) = &event {
                ensure!(status.code == 410, "the watch fails: {status:?}");
                return Ok(false);
            }
            if self.believe(event)? == Some(round) {
                return Ok(true);
            }
        }
    }

    /// Reads events until the server is gone; gives a permit for each marker.
    pub(super) async fn follow(mut self, mut events: Events, marks: Arc<Semaphore>) -> anyhow::Result<Self> {
        while let Ok(Some(event)) = events.try_next().await {
            if let WatchEvent::Error(status) = &event {
                bail!("the watch fails: {status:?}");
            }
            if self.believe(event)?.is_some() {
                marks.add_permits(1);
            }
        }
        Ok(self)
    }

    /// Takes an event in; the round, if it is a marker's.
    fn believe(&mut self, event: WatchEvent<ConfigMap>) -> anyhow::Result<Option<u32>> {
        let (object, deleted) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => return Ok(None),
        };
        let version: u64 = object.metadata.resource_version.as_deref().unwrap_or("").parse()?;
        ensure!(version > self.version, "an event of version {version} follows {}", self.version);
        self.version = version;
        if object.metadata.name.as_deref() == Some(MARKER) {
            let round = object.data.as_ref().and_then(|data| data.get("round"));
            return Ok(round.and_then(|text| text.parse().ok()));
        }
        if !ledger::ours(&object) {
            return Ok(None);
        }
        let seen = ledger::observe(&object, deleted)?;
        if deleted {
            self.objects.remove(&seen.name);
        } else {
            self.objects.insert(seen.name.clone(), (seen.version, seen.token));
        }
        self.observations.push(seen);
        Ok(None)
    }

    /// What it has seen must still be so, or have been followed by something newer.
    pub(super) fn compare(&self, listed: &Listed) -> anyhow::Result<()> {
        ensure!(
            listed.version >= self.version,
            "version {} was seen and is gone, now {}",
            self.version,
            listed.version
        );
        for (name, seen) in &self.objects {
            if let Some(found) = listed.objects.get(name) {
                ensure!(found.0 >= seen.0, "{name} was seen at {} and is at {}", seen.0, found.0);
            }
        }
        Ok(())
    }

    /// What it believes must be what is there.
    pub(super) fn same_as(&self, listed: &Listed) -> anyhow::Result<()> {
        let (mine, theirs) = (&self.objects, &listed.objects);
        ensure!(mine == theirs, "the resumed watch led to {mine:?}, a list shows {theirs:?}");
        Ok(())
    }
}
