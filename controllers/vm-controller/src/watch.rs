//! Watches of VMs, pods, secrets, migrations and their policies: each change updates the cache and wakes the
//! VM's worker.

mod migrations;
mod namespaces;

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::Api;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher;
use neonvm_api::VirtualMachine;
use neonvm_api::names::{label, tls_secret_name};
use neonvm_kit::watch::{Listed, each};

use crate::act::{TLS_LABEL, secret_view};
use crate::cache::{Key, key_of, machine_of, owner};
use crate::context::Context;

pub(crate) use migrations::{migrations, policies};
pub(crate) use namespaces::namespaces;

/// How many watches there are.
pub(crate) const WATCHES: usize = 6;

/// Watches machines; never returns.
pub(crate) async fn machines(context: Arc<Context>, listed: Arc<Listed>) {
    let api: Api<DeserializeGuard<VirtualMachine>> = Api::all(context.client.clone());
    let mut seen: HashSet<Key> = HashSet::new();
    each("machines", api, watcher::Config::default(), (&listed, false), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(vm) => {
            seen.extend(take_vm(&context, vm));
        }
        watcher::Event::Apply(vm) => drop(take_vm(&context, vm)),
        watcher::Event::InitDone => {
            context.cache.retain_vms(&seen).iter().for_each(|key| context.queue.add(key));
            seen = HashSet::new();
        }
        watcher::Event::Delete(vm) => {
            let meta = match &vm.0 {
                Ok(vm) => &vm.metadata,
                Err(invalid) => &invalid.metadata,
            };
            let key = key_of(meta);
            context.cache.vm_deleted(&key, meta.uid.as_deref());
            context.queue.add(&key);
            crate::migration::wake(&context);
        }
    })
    .await;
}

fn take_vm(context: &Context, vm: DeserializeGuard<VirtualMachine>) -> Option<Key> {
    match vm.0 {
        Ok(vm) => {
            let key = key_of(&vm.metadata);
            if context.cache.put_vm(vm) {
                context.queue.add(&key);
            }
            Some(key)
        }
        Err(invalid) => {
            let key = key_of(&invalid.metadata);
            tracing::error!(vm = %key, error = %invalid.error, "a machine cannot be read; it is left alone");
            None
        }
    }
}

/// Watches runner pods; never returns.
pub(crate) async fn pods(context: Arc<Context>, listed: Arc<Listed>) {
    let api: Api<Pod> = Api::all(context.client.clone());
    let selector = format!("{}={}", label::APP_NAME, label::APP_NAME_VALUE);
    let config = watcher::Config::default().labels(&selector);
    let mut seen: HashSet<String> = HashSet::new();
    each("pods", api, config, (&listed, false), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(pod) => {
            seen.extend(pod.metadata.uid.clone());
            context.cache.put_pod(&pod).iter().for_each(|key| context.queue.add(key));
        }
        watcher::Event::Apply(pod) => {
            context.cache.put_pod(&pod).iter().for_each(|key| context.queue.add(key));
        }
        watcher::Event::InitDone => {
            context.cache.retain_pods(None, &seen).iter().for_each(|key| context.queue.add(key));
            seen = HashSet::new();
        }
        watcher::Event::Delete(pod) => {
            if let Some((key, _)) = machine_of(&pod.metadata) {
                context.cache.pod_deleted(&key, &pod);
                context.queue.add(&key);
            }
        }
    })
    .await;
}

/// Watches the metadata of secrets with certificates; never returns.
pub(crate) async fn secrets(context: Arc<Context>, listed: Arc<Listed>) {
    let api: Api<PartialObjectMeta<Secret>> = Api::all(context.client.clone());
    let config = watcher::Config::default().labels(TLS_LABEL);
    each("secrets", api, config, (&listed, false), |event| match event {
        watcher::Event::Init => context.cache.clear_secrets(),
        watcher::Event::InitApply(secret) | watcher::Event::Apply(secret) => {
            take_secret(&context, &secret, true);
        }
        watcher::Event::Delete(secret) => take_secret(&context, &secret, false),
        watcher::Event::InitDone => {}
    })
    .await;
}

fn take_secret(context: &Context, secret: &PartialObjectMeta<Secret>, there: bool) {
    let Some((key, _)) = owner(&secret.metadata) else { return };
    let uid = secret.metadata.uid.as_deref().unwrap_or_default();
    let certificate = secret.metadata.name.as_deref() == Some(tls_secret_name(&key.name).as_str());
    match (certificate, there) {
        (true, true) => context.cache.set_tls(&key, Some(secret_view(&secret.metadata))),
        (true, false) => context.cache.set_tls(&key, None),
        (false, true) => context.cache.set_key(&key, uid),
        (false, false) => context.cache.drop_key(&key, Some(uid)),
    }
    context.queue.add(&key);
}
