//! A writer that reaches its goal whatever it is answered, and a watcher.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use anyhow::{Context as _, bail};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::{reflector, watcher};
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;

use crate::random::Random;

/// Attempts of one write.
const ATTEMPTS: u32 = 100;
/// Objects written.
const OBJECTS: u64 = 10;

/// Names and versions.
pub(super) type Versions = BTreeMap<String, String>;

/// A server with fault switches.
pub(super) struct Cluster {
    client: Client,
    random: Random,
    turn: u64,
}

/// What a writer went through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// Refusals.
    pub(super) refused: u32,
    /// Requests without an answer.
    pub(super) lost: u32,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "writer refused {} times, {} answers lost", self.refused, self.lost)
    }
}

/// What a watcher went through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WatcherCounts {
    /// Times it listed.
    pub(super) lists: u32,
    /// Errors it got over.
    pub(super) errors: u32,
    /// Events of versions it had seen.
    pub(super) repeated: u32,
    /// Events.
    pub(super) events: u32,
}

impl std::fmt::Display for WatcherCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lists, errors, repeated, events } = self;
        write!(f, "watcher saw {events} events, {repeated} of them again, {errors} errors, {lists} lists")
    }
}

fn wanted(object: &ConfigMap) -> bool {
    object.name_any().starts_with("chaos-")
}

fn version(object: &ConfigMap) -> (String, String) {
    (object.name_any(), object.resource_version().unwrap_or_default())
}

impl Cluster {
    pub(super) fn new(client: Client) -> Self {
        Self { client, random: Random::new(7), turn: 0 }
    }

    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn put(&self, path: String) -> anyhow::Result<()> {
        let request = http::Request::put(path.as_str()).body(Vec::new())?;
        self.client.request_text(request).await.with_context(|| path)?;
        Ok(())
    }

    /// Sets a switch. A switch that fails requests can hit this one as well; it is asked again.
    pub(super) async fn set(&self, name: &str, value: u64) -> anyhow::Result<()> {
        for _ in 0..ATTEMPTS {
            if self.put(format!("/chaos/{name}?value={value}")).await.is_ok() {
                return Ok(());
            }
        }
        bail!("cannot set {name}")
    }

    /// All switches off.
    pub(super) async fn calm(&self) -> anyhow::Result<()> {
        for name in ["fail", "lose-response", "delay-watch", "duplicate-watch", "drop-watch", "stale-list"] {
            self.set(name, 0).await?;
        }
        Ok(())
    }

    /// Drops all history.
    pub(super) async fn compact(&self) -> anyhow::Result<()> {
        self.put("/chaos/compact".into()).await
    }

    /// What is there, and the version of the list.
    pub(super) async fn list(&self) -> anyhow::Result<(Versions, u64)> {
        let list = self.api().list(&ListParams::default()).await?;
        let at = list.metadata.resource_version.as_deref().unwrap_or("").parse()?;
        Ok((list.items.iter().filter(|object| wanted(object)).map(version).collect(), at))
    }

    /// Applies and deletes until each is done.
    pub(super) async fn write(&mut self, writes: u32) -> anyhow::Result<Trouble> {
        let api = self.api();
        let mut trouble = Trouble::default();
        for _ in 0..writes {
            self.turn += 1;
            let name = format!("chaos-{}", self.random.below(OBJECTS));
            let delete = self.random.below(4) == 0;
            let body = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "turn": self.turn.to_string() } });
            let mut left = ATTEMPTS;
            loop {
                // Both requests can be repeated without harm.
                let answer = if delete {
                    api.delete(&name, &DeleteParams::default()).await.map(|_| ())
                } else {
                    let parameters = PatchParams::apply("chaos").force();
                    api.patch(&name, &parameters, &Patch::Apply(&body)).await.map(|_| ())
                };
                match answer {
                    Ok(()) => break,
                    Err(kube::Error::Api(status)) if delete && status.code == 404 => break,
                    Err(kube::Error::Api(status)) if matches!(status.code, 409 | 429 | 500) => {
                        trouble.refused += 1;
                    }
                    Err(kube::Error::Api(status)) => bail!("{name} is answered with {status:?}"),
                    Err(_) => trouble.lost += 1,
                }
                left -= 1;
                if left == 0 {
                    bail!("{name} is not done after {ATTEMPTS} attempts: {trouble:?}");
                }
            }
        }
        Ok(trouble)
    }

    /// Starts a watcher and waits until it has listed.
    pub(super) async fn reflect(&self) -> anyhow::Result<Reflector> {
        let (store, writer) = reflector::store::<ConfigMap>();
        let (sender, progress) = watch::channel(WatcherCounts::default());
        let events = reflector::reflector(writer, watcher::watcher(self.api(), watcher::Config::default()));
        let task = tokio::spawn(follow(events, sender));
        store.wait_until_ready().await?;
        Ok(Reflector { store, progress, task })
    }
}

async fn follow(
    events: impl futures_util::Stream<Item = watcher::Result<watcher::Event<ConfigMap>>> + Send,
    progress: watch::Sender<WatcherCounts>,
) {
    let mut events = pin!(events);
    let (mut seen, mut versions) = (WatcherCounts::default(), BTreeSet::new());
    while let Some(event) = events.next().await {
        match &event {
            Err(_) => seen.errors += 1,
            Ok(watcher::Event::Init) => seen.lists += 1,
            Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => {
                seen.events += 1;
                seen.repeated += u32::from(!versions.insert(version(object)));
            }
            Ok(watcher::Event::InitApply(_) | watcher::Event::InitDone) => {}
        }
        if progress.send(seen).is_err() {
            return;
        }
    }
}

/// A watcher at work; ends when dropped.
pub(super) struct Reflector {
    store: reflector::Store<ConfigMap>,
    progress: watch::Receiver<WatcherCounts>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reflector {
    pub(super) fn seen(&self) -> WatcherCounts {
        *self.progress.borrow()
    }

    /// What it believes is there.
    pub(super) fn believed(&self) -> Versions {
        self.store.state().iter().filter(|object| wanted(object)).map(|object| version(object)).collect()
    }

    /// Waits until it believes this.
    pub(super) async fn until(&mut self, listed: &Versions) -> anyhow::Result<()> {
        while self.believed() != *listed {
            self.progress.changed().await.context("the watcher has ended")?;
        }
        Ok(())
    }
}
