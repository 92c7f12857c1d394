//! The watch of namespaces, whose labels are policies.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use neonvm_kit::watch::{Listed, each};

use crate::cache::key_of;
use crate::context::Context;

/// Watches namespaces; never returns.
pub(crate) async fn namespaces(context: Arc<Context>, listed: Arc<Listed>) {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(context.client.clone());
    let mut seen = Vec::new();
    each("namespaces", api, watcher::Config::default(), (&listed, false), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(namespace) => {
            seen.extend(namespace.metadata.name.clone());
            take(&context, namespace);
        }
        watcher::Event::Apply(namespace) => take(&context, namespace),
        watcher::Event::InitDone => {
            let all = std::mem::take(&mut seen);
            context.policies.retain(&all);
        }
        watcher::Event::Delete(namespace) => {
            context.policies.remove(namespace.metadata.name.as_deref().unwrap_or_default());
        }
    })
    .await;
}

/// VMs that waited for a permission are reconciled again.
fn take(context: &Context, namespace: PartialObjectMeta<Namespace>) {
    let name = namespace.metadata.name.unwrap_or_default();
    if context.policies.put(&name, namespace.metadata.labels.unwrap_or_default()) {
        let vms = context.cache.all_vms();
        let own = vms.iter().filter(|vm| vm.metadata.namespace.as_deref() == Some(name.as_str()));
        own.for_each(|vm| context.queue.add(&key_of(&vm.metadata)));
    }
}
