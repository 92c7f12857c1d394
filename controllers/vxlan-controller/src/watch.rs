//! Nodes and machines, as watches bring them. While the API server is away, what was seen last holds.

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
use neonvm_core_overlay::forwarding::{Member, Wanted};
use neonvm_kit::watch::causes;
use tokio::sync::Notify;

/// One kind of objects: what matters of them, by name.
#[derive(Debug)]
struct Seen<T> {
    all: BTreeMap<String, T>,
    /// What a list has brought so far.
    coming: Option<BTreeMap<String, T>>,
    is_listed: bool,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), coming: None, is_listed: false }
    }
}

/// What a watch brought.
enum News<T> {
    Begin,
    /// An object of a list, or a new or changed one; none: it does not matter any more.
    Is(String, Option<T>),
    Gone(String),
    Complete,
}

impl<T: PartialEq> Seen<T> {
    /// Whether the picture changed.
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

#[derive(Debug, Default)]
struct Both {
    nodes: Seen<IpAddr>,
    machines: Seen<Member>,
}

/// The picture.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    both: Mutex<Both>,
    pub(crate) changed: Notify,
}

impl Picture {
    fn lock(&self) -> MutexGuard<'_, Both> {
        self.both.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of a node.
    pub(crate) fn address(&self, node: &str) -> Option<IpAddr> {
        self.lock().nodes.all.get(node).copied()
    }

    /// What a node should have, once everything was seen at least once.
    pub(crate) fn wanted(&self, node: &str, address: IpAddr) -> Option<Wanted> {
        let both = self.lock();
        if !both.nodes.is_listed || !both.machines.is_listed {
            return None;
        }
        let mut nodes = both.nodes.all.clone();
        nodes.insert(node.to_owned(), address);
        Some(Wanted::of(node, &nodes, both.machines.all.values()))
    }

    fn take_node(&self, news: News<IpAddr>) {
        if self.lock().nodes.take(news) {
            self.changed.notify_one();
        }
    }

    fn take_machine(&self, news: News<Member>) {
        if self.lock().machines.take(news) {
            self.changed.notify_one();
        }
    }
}

fn news<K, T>(
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
pub(crate) async fn nodes(client: Client, picture: Arc<Picture>) {
    let api: Api<Node> = Api::all(client);
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    loop {
        match events.try_next().await {
            Ok(Some(event)) => {
                let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
                picture.take_node(news(event, name, address_of));
            }
            Ok(None) => return,
            Err(error) => tracing::warn!(error = causes(&error), "nodes cannot be watched"),
        }
    }
}

fn address_of(node: &Node) -> Option<IpAddr> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses.iter().find(|address| address.type_ == "InternalIP")?.address.parse().ok()
}

/// Follows machines; never returns.
pub(crate) async fn machines(client: Client, picture: Arc<Picture>) {
    let api: Api<DeserializeGuard<VirtualMachine>> = Api::all(client);
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    loop {
        match events.try_next().await {
            Ok(Some(event)) => {
                picture.take_machine(news(event, name_of, |vm| vm.0.as_ref().ok().and_then(member)));
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

/// A machine that is on the overlay and on a node.
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
    fn a_list_replaces_the_picture_when_it_is_complete() {
        let mut seen = Seen::default();
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
