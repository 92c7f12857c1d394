//! The watch of namespaces, whose labels are policies.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use neonvm_kit::watch::each;

use crate::cache::key_of;
use crate::state::State;
use crate::watch::Watch;

/// Watches namespaces; never returns.
pub(crate) async fn namespaces(Watch { client, state, listed }: Watch) {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client);
    let mut seen = Vec::new();
    each("namespaces", api, watcher::Config::default(), (&listed, false), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(namespace) => {
            seen.extend(namespace.metadata.name.clone());
            take(&state, namespace);
        }
        watcher::Event::Apply(namespace) => take(&state, namespace),
        watcher::Event::InitDone => {
            let all = std::mem::take(&mut seen);
            state.policies.retain(&all);
        }
        watcher::Event::Delete(namespace) => {
            state.policies.remove(namespace.metadata.name.as_deref().unwrap_or_default());
        }
    })
    .await;
}

/// VMs that waited for a permission are reconciled again.
fn take(state: &State, namespace: PartialObjectMeta<Namespace>) {
    let name = namespace.metadata.name.unwrap_or_default();
    if state.policies.put(&name, namespace.metadata.labels.unwrap_or_default()) {
        let vms = state.cache.all_vms();
        let own = vms.iter().filter(|vm| vm.metadata.namespace.as_deref() == Some(name.as_str()));
        own.for_each(|vm| state.queue.add(&key_of(&vm.metadata)));
    }
}
