//! Pools that other clients delete or edit: the VMs' addresses are written back at once.

use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use neonvm_api::IPPool;
use neonvm_core_overlay::PoolVersion;
use neonvm_kit::watch::{Listed, each};
use tokio::sync::mpsc;

use super::Shared;

/// A pool by name, and its version; `None` if it is gone.
pub(super) type Changed = (String, Option<PoolVersion>);

/// Sends pools whose objects are not those of the book; ends with the watch. Writes of the worker itself are among them when the
/// event arrives before the response: the worker compares again.
pub(super) async fn watch(
    client: Client,
    namespace: &str,
    book: &Shared,
    changed: mpsc::UnboundedSender<Changed>,
) {
    let api: Api<PartialObjectMeta<IPPool>> = Api::namespaced(client, namespace);
    let mut seen = Vec::new();
    let known = |name: &str| book.lock().as_ref().and_then(|book| book.version(name).cloned());
    let send = |name: String, version: Option<PoolVersion>| drop(changed.send((name, version)));
    let check = |pool: &PartialObjectMeta<IPPool>| {
        let meta = &pool.metadata;
        let version = meta.uid.clone().zip(meta.resource_version.clone());
        let version = version.map(|(uid, resource_version)| PoolVersion { uid, resource_version });
        if version != known(&pool.name_any()) {
            send(pool.name_any(), version);
        }
    };
    each("address pools", api, watcher::Config::default(), (&Listed::new(0), false), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(pool) => {
            check(&pool);
            seen.push(pool.name_any());
        }
        watcher::Event::InitDone => {
            let all =
                book.lock().as_ref().map(|book| book.stored().map(ToString::to_string).collect::<Vec<_>>());
            all.unwrap_or_default()
                .into_iter()
                .filter(|name| !seen.contains(name))
                .for_each(|name| send(name, None));
            seen = Vec::new();
        }
        watcher::Event::Apply(pool) => check(&pool),
        watcher::Event::Delete(pool) => send(pool.name_any(), None),
    })
    .await;
}
