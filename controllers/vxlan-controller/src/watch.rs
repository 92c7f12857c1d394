//! Nodes, their keys, and machines, as watches bring them. While the API server is away, what was seen last holds.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use neonvm_api::VirtualMachine;
use neonvm_api::overlay::hardware_address;
use neonvm_api::virtual_machine::Phase;
use neonvm_core_overlay::encryption::Key;
use neonvm_core_overlay::forwarding::Member;
use neonvm_kit::error::causes;
use tokio::sync::Notify;

/// One kind of objects: what matters of them, by name.
#[derive(Debug)]
struct ObjectCache<T> {
    all: BTreeMap<String, T>,
    /// What a list has brought so far.
    coming: Option<BTreeMap<String, T>>,
    is_listed: bool,
}

impl<T> Default for ObjectCache<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), coming: None, is_listed: false }
    }
}

pub(crate) enum News<T> {
    Begin,
    /// An object of a list, or a new or changed one; none: it does not matter any more.
    Is(String, Option<T>),
    Gone(String),
    Complete,
}

impl<T: PartialEq> ObjectCache<T> {
    /// Whether the cache changed.
    fn take(&mut self, news: News<T>) -> bool {
        match news {
            News::Begin => {
                self.coming = Some(BTreeMap::new());
                false
            }
            News::Is(name, thing) => {
                if let Some(coming) = &mut self.coming {
                    coming.extend(thing.map(|thing| (name, thing)));
                    return false;
                }
                match thing {
                    Some(thing) if self.all.get(&name) == Some(&thing) => false,
                    Some(thing) => {
                        self.all.insert(name, thing);
                        true
                    }
                    None => self.all.remove(&name).is_some(),
                }
            }
            News::Gone(name) => self.all.remove(&name).is_some(),
            News::Complete => {
                let first = !std::mem::replace(&mut self.is_listed, true);
                let Some(all) = self.coming.take() else { return first };
                let differs = all != self.all;
                self.all = all;
                first || differs
            }
        }
    }
}

/// A node, from its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) address: IpAddr,
    pub(crate) uid: String,
}

#[derive(Debug, Default)]
struct All {
    nodes: ObjectCache<Host>,
    keys: ObjectCache<Key>,
    machines: ObjectCache<Member>,
}

/// What a comparison is made with.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) nodes: BTreeMap<String, IpAddr>,
    /// The key of each node that has published one.
    pub(crate) keys: BTreeMap<String, Key>,
    /// VMs on the overlay.
    pub(crate) members: Vec<Member>,
}

/// Nodes, VMs and keys as last observed by the watches.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    all: Mutex<All>,
    pub(crate) changed: Notify,
    /// Nodes or keys changed; wakes the publisher of the key.
    pub(crate) keys_changed: Notify,
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn address(&self, node: &str) -> Option<IpAddr> {
        Some(self.lock().nodes.all.get(node)?.address)
    }

    /// A node, and the key that it has published, once both kinds were listed.
    pub(crate) fn host(&self, node: &str) -> Option<(Host, Option<Key>)> {
        let all = self.lock();
        let host = all.nodes.all.get(node).filter(|_| all.nodes.is_listed && all.keys.is_listed)?;
        Some((host.clone(), all.keys.all.get(node).copied()))
    }

    /// Everything, once it was seen at least once: without `keys`, but for those.
    pub(crate) fn observed(&self, keys: bool) -> Option<Observed> {
        let all = self.lock();
        if !all.nodes.is_listed || !all.machines.is_listed || (keys && !all.keys.is_listed) {
            return None;
        }
        Some(Observed {
            nodes: all.nodes.all.iter().map(|(name, host)| (name.clone(), host.address)).collect(),
            keys: all.keys.all.clone(),
            members: all.machines.all.values().cloned().collect(),
        })
    }

    pub(crate) fn take_key(&self, news: News<Key>) {
        if self.lock().keys.take(news) {
            self.changed.notify_one();
            self.keys_changed.notify_one();
        }
    }

    fn take_node(&self, news: News<Host>) {
        if self.lock().nodes.take(news) {
            self.changed.notify_one();
            self.keys_changed.notify_one();
        }
    }

    fn take_machine(&self, news: News<Member>) {
        if self.lock().machines.take(news) {
            self.changed.notify_one();
        }
    }
}

pub(crate) fn news<K, T>(
    event: watcher::Event<K>,
    name: impl Fn(&K) -> String,
    of: impl Fn(&K) -> Option<T>,
) -> News<T> {
    match event {
        watcher::Event::Init => News::Begin,
        watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
            News::Is(name(&object), of(&object))
        }
        watcher::Event::InitDone => News::Complete,
        watcher::Event::Delete(object) => News::Gone(name(&object)),
    }
}

/// Follows nodes; never returns.
pub(crate) async fn nodes(client: Client, cache: Arc<Cache>) {
    let api: Api<Node> = Api::all(client);
    let mut events = watcher(api, watcher::Config::default()).backoff(neonvm_kit::watch::retry()).boxed();
    loop {
        match events.try_next().await {
            Ok(Some(event)) => {
                let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
                cache.take_node(news(event, name, host_of));
            }
            Ok(None) => return,
            Err(error) => tracing::warn!(error = causes(&error), "nodes cannot be watched"),
        }
    }
}

fn host_of(node: &Node) -> Option<Host> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let address = addresses.iter().find(|address| address.type_ == "InternalIP")?.address.parse().ok()?;
    Some(Host { address, uid: node.metadata.uid.clone()? })
}

/// Follows machines; never returns.
pub(crate) async fn machines(client: Client, cache: Arc<Cache>) {
    let api: Api<DeserializeGuard<VirtualMachine>> = Api::all(client);
    let mut events = watcher(api, watcher::Config::default()).backoff(neonvm_kit::watch::retry()).boxed();
    loop {
        match events.try_next().await {
            Ok(Some(event)) => {
                cache.take_machine(news(event, name_of, |vm| vm.0.as_ref().ok().and_then(member)));
            }
            Ok(None) => return,
            Err(error) => tracing::warn!(error = causes(&error), "machines cannot be watched"),
        }
    }
}

fn name_of(vm: &DeserializeGuard<VirtualMachine>) -> String {
    let meta = match &vm.0 {
        Ok(vm) => &vm.metadata,
        Err(invalid) => &invalid.metadata,
    };
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&meta.namespace), part(&meta.name))
}

/// A VM that is on the overlay and on a node.
fn member(vm: &VirtualMachine) -> Option<Member> {
    let status = vm.status.as_ref()?;
    let wants = vm.spec.extra_network.as_ref().is_some_and(|network| network.enable);
    if !wants || status.extra_net_ip.is_empty() || status.node.is_empty() {
        return None;
    }
    let moves = matches!(status.phase, Some(Phase::PreMigrating | Phase::Migrating));
    Some(Member {
        hardware: hardware_address(vm.metadata.uid.as_deref()?),
        node: status.node.clone(),
        is_moving: moves || status.migration.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_replaces_the_cache_when_it_is_complete() {
        let mut seen = ObjectCache::default();
        assert!(!seen.take(News::Begin));
        assert!(!seen.take(News::Is("a".into(), Some(1))));
        assert!(seen.all.is_empty());
        assert!(seen.take(News::Complete));
        assert!(!seen.take(News::Is("a".into(), Some(1))));
        assert!(seen.take(News::Is("b".into(), Some(2))));
        // The watch breaks: what was seen holds until the next list is complete.
        assert!(!seen.take(News::Begin));
        assert!(!seen.take(News::Is("a".into(), Some(1))));
        assert_eq!(seen.all.len(), 2);
        assert!(seen.take(News::Complete));
        assert_eq!(seen.all.len(), 1);
        assert!(seen.take(News::Is("a".into(), None)));
        assert!(!seen.take(News::Gone("a".into())));
    }
}
