//! Watches of migrations and of their policies.

use std::collections::HashSet;

use kube::ResourceExt as _;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use neonvm_api::{MigrationPolicy, VirtualMachineMigration};

use crate::cache::{Key, key_of};
use crate::migration::wake;
use crate::state::State;
use crate::watch::Watch;
use neonvm_kit::watch::each;

/// Watches migrations; never returns.
pub(crate) async fn migrations(Watch { client, state, listed }: Watch) {
    let api: Api<DeserializeGuard<VirtualMachineMigration>> = Api::all(client);
    let mut seen: HashSet<Key> = HashSet::new();
    each("migrations", api, watcher::Config::default(), (&listed, true), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(migration) => seen.extend(take(&state, migration)),
        watcher::Event::Apply(migration) => drop(take(&state, migration)),
        watcher::Event::InitDone => {
            state.migrating.retain(&seen).iter().for_each(|vm| state.queue.add(vm));
            seen = HashSet::new();
        }
        watcher::Event::Delete(migration) => {
            let meta = match &migration.0 {
                Ok(migration) => &migration.metadata,
                Err(invalid) => &invalid.metadata,
            };
            if let Some(vm) = state.migrating.remove(&key_of(meta), meta.uid.as_deref()) {
                state.queue.add(&vm);
                wake(&state);
            }
        }
    })
    .await;
}

fn take(state: &State, migration: DeserializeGuard<VirtualMachineMigration>) -> Option<Key> {
    match migration.0 {
        Ok(migration) => {
            let key = key_of(&migration.metadata);
            if let Some(vm) = state.migrating.put(migration) {
                state.queue.add(&vm);
            }
            Some(key)
        }
        Err(invalid) => {
            let key = key_of(&invalid.metadata);
            tracing::error!(migration = %key, error = %invalid.error, "a migration cannot be read; it is left alone");
            None
        }
    }
}

/// Watches policies; never returns. They matter when a migration begins, so only VMs with waiting migrations are woken.
pub(crate) async fn policies(Watch { client, state, listed }: Watch) {
    let api: Api<DeserializeGuard<MigrationPolicy>> = Api::all(client);
    let mut seen: HashSet<String> = HashSet::new();
    let take = |policy: DeserializeGuard<MigrationPolicy>| match policy.0 {
        Ok(policy) => {
            let name = policy.name_any();
            state.migrating.put_policy(policy);
            Some(name)
        }
        Err(invalid) => {
            tracing::error!(error = %invalid.error, "a policy of migrations cannot be read; it is left out");
            None
        }
    };
    each("policies of migrations", api, watcher::Config::default(), (&listed, true), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(policy) => seen.extend(take(policy)),
        watcher::Event::Apply(policy) => {
            take(policy);
            wake(&state);
        }
        watcher::Event::InitDone => {
            state.migrating.retain_policies(&seen);
            seen = HashSet::new();
        }
        watcher::Event::Delete(policy) => {
            let name = match &policy.0 {
                Ok(policy) => policy.name_any(),
                Err(invalid) => invalid.metadata.name.clone().unwrap_or_default(),
            };
            state.migrating.drop_policy(&name);
        }
    })
    .await;
}
