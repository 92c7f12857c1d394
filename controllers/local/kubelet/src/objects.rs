//! Config maps and secrets that pods use: one watch for each object, for as long as it is in use.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::watch;

/// How long the first answer may take.
const DEADLINE: Duration = Duration::from_secs(10);

pub(crate) type Data = BTreeMap<String, Vec<u8>>;
/// None: there is no such object.
type CachedData = Option<Arc<Data>>;

/// Which kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
}

/// Kind, namespace, name.
type Key = (Kind, String, String);

#[derive(Debug)]
pub(crate) struct Subscription {
    /// Outer `None`: not read yet.
    seen: watch::Receiver<Option<CachedData>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Subscription {
    /// The object as it is now.
    ///
    /// # Errors
    /// If the API server does not answer within 10 s.
    pub(crate) async fn get(&self) -> Result<CachedData, String> {
        known(&mut self.seen.clone()).await
    }
}

async fn known(seen: &mut watch::Receiver<Option<CachedData>>) -> Result<CachedData, String> {
    let known = tokio::time::timeout(DEADLINE, seen.wait_for(Option::is_some)).await;
    match known {
        Ok(Ok(seen)) => Ok(seen.clone().flatten()),
        _ => Err("the API server did not answer within 10 s".to_owned()),
    }
}

/// An object of which each change is noticed once.
#[derive(Debug)]
pub(crate) struct Followed {
    seen: watch::Receiver<Option<CachedData>>,
    _held: Arc<Subscription>,
}

impl From<Arc<Subscription>> for Followed {
    fn from(held: Arc<Subscription>) -> Self {
        Self { seen: held.seen.clone(), _held: held }
    }
}

impl Followed {
    /// As [`Subscription::get`]; what changes from then on is a change.
    pub(crate) async fn get(&mut self) -> Result<CachedData, String> {
        known(&mut self.seen).await
    }

    /// Waits until it is another than [`Followed::get`] has returned, or than at the last change.
    pub(crate) async fn changed(&mut self) {
        if self.seen.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// All objects in use.
pub(crate) struct Objects {
    client: Client,
    held: Mutex<BTreeMap<Key, Weak<Subscription>>>,
}

impl Objects {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, held: Mutex::default() }
    }

    /// Watches an object; shared with other watchers.
    pub(crate) fn hold(&self, kind: Kind, namespace: &str, name: &str) -> Arc<Subscription> {
        let key = (kind, namespace.to_owned(), name.to_owned());
        let mut held = self.held.lock();
        if let Some(subscription) = held.get(&key).and_then(Weak::upgrade) {
            return subscription;
        }
        held.retain(|_, weak| weak.strong_count() > 0);
        let (sender, seen) = watch::channel(None);
        let client = self.client.clone();
        let task = match kind {
            Kind::ConfigMap => {
                tokio::spawn(follow(Api::namespaced(client, namespace), name.to_owned(), sender, config_data))
            }
            Kind::Secret => {
                tokio::spawn(follow(Api::namespaced(client, namespace), name.to_owned(), sender, secret_data))
            }
        };
        let subscription = Arc::new(Subscription { seen, task });
        held.insert(key, Arc::downgrade(&subscription));
        subscription
    }
}

fn config_data(object: ConfigMap) -> Data {
    let texts = object.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
    let bytes = object.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
    texts.chain(bytes).collect()
}

fn secret_data(object: Secret) -> Data {
    object.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0)).collect()
}

async fn follow<K>(api: Api<K>, name: String, sender: watch::Sender<Option<CachedData>>, data: fn(K) -> Data)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let stream = watcher::watch_object(api, &name).backoff(neonvm_kit::watch::retry());
    let mut stream = std::pin::pin!(stream);
    while let Some(seen) = stream.next().await {
        match seen {
            Ok(object) => {
                let new = Some(object.map(|object| Arc::new(data(object))));
                sender.send_if_modified(|old| {
                    let differs = *old != new;
                    *old = new;
                    differs
                });
            }
            Err(error) => tracing::debug!(%error, name, "a watch starts again"),
        }
    }
}
