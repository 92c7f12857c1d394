//! Objects as they change, each with the moment at which it was seen.

use std::time::Instant;

use anyhow::Context as _;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use neonvm_api::virtual_machine::Phase;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{LIMIT, cluster};

pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) kind: &'static str,
    pub(super) gone: bool,
    pub(super) object: DynamicObject,
}

/// Machines, pods and secrets.
pub(super) struct Watch {
    seen: mpsc::UnboundedReceiver<Seen>,
    // They end with it.
    _tasks: JoinSet<()>,
}

impl Watch {
    /// Starts when all streams are open.
    pub(super) async fn open(client: &Client) -> anyhow::Result<Self> {
        let (sender, seen) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let core = |kind| {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
            Api::<DynamicObject>::default_namespaced_with(client.clone(), &kind)
        };
        let apis = [("vm", cluster::machines(client)), ("pod", core("Pod")), ("secret", core("Secret"))];
        for (kind, api) in apis {
            let version = api.list(&ListParams::default()).await?.metadata.resource_version;
            let version = version.context("a list without a version")?;
            let events = open(&api, &version).await?;
            tasks.spawn(follow(api, version, events, (kind, sender.clone())));
        }
        Ok(Self { seen, _tasks: tasks })
    }

    pub(super) async fn next(&mut self) -> anyhow::Result<Seen> {
        tokio::time::timeout(LIMIT, self.seen.recv())
            .await
            .context("nothing changes")?
            .context("a watch ended")
    }

    /// Waits for a machine to be so; other changes are dropped.
    pub(super) async fn machine(
        &mut self,
        name: &str,
        what: &str,
        mut is: impl FnMut(&neonvm_api::VirtualMachine) -> bool,
    ) -> anyhow::Result<Instant> {
        loop {
            let seen = self.next().await.with_context(|| format!("{name}: {what}"))?;
            if seen.kind == "vm"
                && !seen.gone
                && seen.object.name_any() == name
                && is(&cluster::typed(&seen.object)?)
            {
                return Ok(seen.at);
            }
        }
    }

    /// Creates a machine, waits until it runs, and returns the address of its pod.
    pub(super) async fn create(&mut self, client: &Client, object: &DynamicObject) -> anyhow::Result<String> {
        cluster::machines(client).create(&kube::api::PostParams::default(), object).await?;
        let mut address = String::new();
        self.machine(&object.name_any(), "Running", |machine| {
            let status = machine.status.clone().unwrap_or_default();
            address = status.pod_ip;
            status.phase == Some(Phase::Running)
        })
        .await?;
        Ok(address)
    }

    /// Deletes a machine, and waits until it and its pod are gone.
    pub(super) async fn delete(&mut self, client: &Client, name: &str) -> anyhow::Result<()> {
        cluster::machines(client).delete(name, &kube::api::DeleteParams::default()).await?;
        let (mut machine, mut pod) = (false, false);
        while !machine || !pod {
            let seen = self.next().await.with_context(|| format!("{name}: deletion"))?;
            machine |= seen.gone && seen.kind == "vm" && seen.object.name_any() == name;
            pod |= seen.gone && seen.kind == "pod" && seen.object.name_any().starts_with(&format!("{name}-"));
        }
        Ok(())
    }
}

type Events = BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>;

async fn open(api: &Api<DynamicObject>, version: &str) -> kube::Result<Events> {
    Ok(api.watch(&WatchParams::default().timeout(290), version).await?.boxed())
}

/// Sends changes until the receiver is dropped; a stream that times out is opened again where it ended.
async fn follow(
    api: Api<DynamicObject>,
    mut version: String,
    mut events: Events,
    (kind, sender): (&'static str, mpsc::UnboundedSender<Seen>),
) {
    loop {
        while let Ok(Some(event)) = events.try_next().await {
            let at = Instant::now();
            let (object, gone) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(_) => return,
            };
            version = object.resource_version().unwrap_or(version);
            if sender.send(Seen { at, kind, gone, object }).is_err() {
                return;
            }
        }
        match open(&api, &version).await {
            Ok(again) => events = again,
            Err(_) => return,
        }
    }
}
