//! Watches of VMs, pods, secrets, migrations and their policies: each change updates the cache and wakes the
//! VM's worker.

mod claims;
mod migrations;
mod namespaces;
mod nodes;

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Client;
use kube::api::Api;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher;
use neonvm_api::VirtualMachine;
use neonvm_api::names::{label, tls_secret_name};
use neonvm_kit::watch::{Listed, each};

use crate::act::{TLS_LABEL, secret_view};
use crate::cache::{Key, key_of, machine_of, owner};
use crate::state::State;

pub(crate) use claims::claims;
pub(crate) use migrations::{migrations, policies};
pub(crate) use namespaces::namespaces;
pub(crate) use nodes::cordoned;

#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) client: Client,
    pub(crate) state: Arc<State>,
    /// Counts the watches that have listed their objects.
    pub(crate) listed: Arc<Listed>,
}

/// How many watches there are.
pub(crate) const WATCHES: usize = 8;

/// Watches machines; never returns.
pub(crate) async fn machines(Watch { client, state, listed }: Watch) {
    let api: Api<DeserializeGuard<VirtualMachine>> = Api::all(client);
    let mut seen: HashSet<Key> = HashSet::new();
    each("machines", api, watcher::Config::default(), (&listed, false), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(vm) => {
            seen.extend(take_vm(&state, vm));
        }
        watcher::Event::Apply(vm) => drop(take_vm(&state, vm)),
        watcher::Event::InitDone => {
            state.cache.retain_vms(&seen).iter().for_each(|key| state.queue.add(key));
            seen = HashSet::new();
        }
        watcher::Event::Delete(vm) => {
            let meta = match &vm.0 {
                Ok(vm) => &vm.metadata,
                Err(invalid) => &invalid.metadata,
            };
            let key = key_of(meta);
            state.cache.vm_deleted(&key, meta.uid.as_deref());
            state.queue.add(&key);
            crate::migration::wake(&state);
        }
    })
    .await;
}

fn take_vm(state: &State, vm: DeserializeGuard<VirtualMachine>) -> Option<Key> {
    match vm.0 {
        Ok(vm) => {
            let key = key_of(&vm.metadata);
            if state.cache.put_vm(vm) {
                state.queue.add(&key);
            }
            Some(key)
        }
        Err(invalid) => {
            let key = key_of(&invalid.metadata);
            tracing::error!(vm = %key, error = %invalid.error, "a VM cannot be read; it is left alone");
            None
        }
    }
}

/// Watches runner pods; never returns.
pub(crate) async fn pods(Watch { client, state, listed }: Watch) {
    let api: Api<Pod> = Api::all(client);
    let selector = format!("{}={}", label::APP_NAME, label::APP_NAME_VALUE);
    let config = watcher::Config::default().labels(&selector);
    let mut seen: HashSet<String> = HashSet::new();
    each("pods", api, config, (&listed, false), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(pod) => {
            seen.extend(pod.metadata.uid.clone());
            state.cache.put_pod(&pod).iter().for_each(|key| state.queue.add(key));
        }
        watcher::Event::Apply(pod) => {
            state.cache.put_pod(&pod).iter().for_each(|key| state.queue.add(key));
        }
        watcher::Event::InitDone => {
            state.cache.retain_pods(None, &seen).iter().for_each(|key| state.queue.add(key));
            seen = HashSet::new();
        }
        watcher::Event::Delete(pod) => {
            if let Some((key, _)) = machine_of(&pod.metadata) {
                state.cache.pod_deleted(&key, &pod);
                state.queue.add(&key);
            }
        }
    })
    .await;
}

/// Watches the metadata of secrets with certificates; never returns.
pub(crate) async fn secrets(Watch { client, state, listed }: Watch) {
    let api: Api<PartialObjectMeta<Secret>> = Api::all(client);
    let config = watcher::Config::default().labels(TLS_LABEL);
    each("secrets", api, config, (&listed, false), |event| match event {
        watcher::Event::Init => state.cache.clear_secrets(),
        watcher::Event::InitApply(secret) | watcher::Event::Apply(secret) => {
            take_secret(&state, &secret, true);
        }
        watcher::Event::Delete(secret) => take_secret(&state, &secret, false),
        watcher::Event::InitDone => {}
    })
    .await;
}

fn take_secret(state: &State, secret: &PartialObjectMeta<Secret>, there: bool) {
    let Some((key, _)) = owner(&secret.metadata) else { return };
    let uid = secret.metadata.uid.as_deref().unwrap_or_default();
    let certificate = secret.metadata.name.as_deref() == Some(tls_secret_name(&key.name).as_str());
    match (certificate, there) {
        (true, true) => state.cache.set_tls(&key, Some(secret_view(&secret.metadata))),
        (true, false) => state.cache.set_tls(&key, None),
        (false, true) => state.cache.set_key(&key, uid),
        (false, false) => state.cache.drop_key(&key, Some(uid)),
    }
    state.queue.add(&key);
}
