//! Keys of nodes, each in a lease that only the controller of that node may write.
//!
//! All controllers share a service account. What parts them is the node's name in their tokens, by which the admission policy of
//! `deploy/manifests/overlay-keys.yaml` ties the name of a lease to its writer. A lease, because its account needs no other right for it
//! than one that does little harm where the policy is not enforced; config maps of the namespace hold what services trust.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use neonvm_core_overlay::encryption::Key;
use neonvm_kit::error::causes;
use serde_json::json;
use tokio::sync::watch;

use crate::watch::{Cache, Host, news};

/// What the names of leases begin with; the rest is the name of the node.
const PREFIX: &str = "neonvm-overlay-key-";
const LABEL: (&str, &str) = ("vm.neon.tech/overlay-key", "wireguard");
const KEY: &str = "vm.neon.tech/wireguard-public-key";
/// Time for one answer of the API server.
const ANSWER: Duration = Duration::from_secs(10);
/// First and longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// Watches the leases with keys; never returns.
pub(crate) async fn follow(client: Client, namespace: String, cache: Arc<Cache>) {
    let api: Api<Lease> = Api::namespaced(client, &namespace);
    let which = watcher::Config::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    let mut events = watcher(api, which).backoff(neonvm_kit::watch::retry()).boxed();
    loop {
        match events.try_next().await {
            Ok(Some(event)) => cache.take_key(news(event, node_of, key_of)),
            Ok(None) => return,
            Err(error) => tracing::warn!(error = causes(&error), "keys of nodes cannot be watched"),
        }
    }
}

fn node_of(lease: &Lease) -> String {
    let name = lease.metadata.name.as_deref().unwrap_or_default();
    name.strip_prefix(PREFIX).unwrap_or_default().to_owned()
}

fn key_of(lease: &Lease) -> Option<Key> {
    let text = lease.metadata.annotations.as_ref()?.get(KEY)?;
    let key = Key::parse(text).filter(|_| !node_of(lease).is_empty());
    if key.is_none() {
        tracing::warn!(lease = lease.metadata.name, "holds no key of a node and is passed over");
    }
    key
}

/// Publishes the key of a node whenever another one is published or none; returns when there will be no other key.
pub(crate) async fn publish(
    client: Client,
    namespace: String,
    node: String,
    mut key: watch::Receiver<Option<Key>>,
    cache: Arc<Cache>,
) {
    let api: Api<Lease> = Api::namespaced(client, &namespace);
    let mut pause = PAUSES.0;
    loop {
        let own = *key.borrow_and_update();
        let seen = cache.host(&node);
        let due = own.zip(seen).filter(|(own, (_, published))| published.as_ref() != Some(own));
        let mut retry = None;
        if let Some((own, (host, _))) = due {
            match write(&api, &node, &host, own).await {
                Ok(()) => {
                    tracing::info!(key = %own, "published");
                    pause = PAUSES.0;
                }
                Err(error) => {
                    tracing::warn!(
                        error,
                        "the key of this node cannot be published; other nodes do not reach it"
                    );
                    retry = Some(pause);
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
        tokio::select! {
            changed = key.changed() => if changed.is_err() { return },
            () = cache.keys_changed.notified() => {}
            () = tokio::time::sleep(retry.unwrap_or_default()), if retry.is_some() => {}
        }
    }
}

async fn write(api: &Api<Lease>, node: &str, host: &Host, key: Key) -> Result<(), String> {
    let name = format!("{PREFIX}{node}");
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": host.uid});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name,
        "labels": {LABEL.0: LABEL.1}, "annotations": {KEY: key.to_string()}, "ownerReferences": [owner]},
        "spec": {"holderIdentity": node}});
    let params = PatchParams::apply("neonvm-vxlan-controller").force();
    let (patch, which) = (Patch::Apply(&lease), name.as_str());
    match tokio::time::timeout(ANSWER, api.patch(which, &params, &patch)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(causes(&error)),
        Err(_) => Err(format!("no answer within {} s", ANSWER.as_secs())),
    }
}
