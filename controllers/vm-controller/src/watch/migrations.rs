//! Watches of migrations and of their policies.

use std::collections::HashSet;
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use neonvm_api::{MigrationPolicy, VirtualMachineMigration};

use crate::cache::{Key, key_of};
use crate::context::Context;
use crate::migration::wake;
use neonvm_kit::watch::{Listed, each};

/// Watches migrations; never returns.
pub(crate) async fn migrations(context: Arc<Context>, listed: Arc<Listed>) {
    let api: Api<DeserializeGuard<VirtualMachineMigration>> = Api::all(context.client.clone());
    let mut seen: HashSet<Key> = HashSet::new();
    each("migrations", api, watcher::Config::default(), (&listed, true), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(migration) => seen.extend(take(&context, migration)),
        watcher::Event::Apply(migration) => drop(take(&context, migration)),
        watcher::Event::InitDone => {
            context.migrating.retain(&seen).iter().for_each(|vm| context.queue.add(vm));
            seen = HashSet::new();
        }
        watcher::Event::Delete(migration) => {
            let meta = match &migration.0 {
                Ok(migration) => &migration.metadata,
                Err(invalid) => &invalid.metadata,
            };
            if let Some(vm) = context.migrating.remove(&key_of(meta), meta.uid.as_deref()) {
                context.queue.add(&vm);
                wake(&context);
            }
        }
    })
    .await;
}

fn take(context: &Context, migration: DeserializeGuard<VirtualMachineMigration>) -> Option<Key> {
    match migration.0 {
        Ok(migration) => {
            let key = key_of(&migration.metadata);
            if let Some(vm) = context.migrating.put(migration) {
                context.queue.add(&vm);
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
pub(crate) async fn policies(context: Arc<Context>, listed: Arc<Listed>) {
    let api: Api<DeserializeGuard<MigrationPolicy>> = Api::all(context.client.clone());
    let mut seen: HashSet<String> = HashSet::new();
    let take = |policy: DeserializeGuard<MigrationPolicy>| match policy.0 {
        Ok(policy) => {
            let name = policy.name_any();
            context.migrating.put_policy(policy);
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
            wake(&context);
        }
        watcher::Event::InitDone => {
            context.migrating.retain_policies(&seen);
            seen = HashSet::new();
        }
        watcher::Event::Delete(policy) => {
            let name = match &policy.0 {
                Ok(policy) => policy.name_any(),
                Err(invalid) => invalid.metadata.name.clone().unwrap_or_default(),
            };
            context.migrating.drop_policy(&name);
        }
    })
    .await;
}
