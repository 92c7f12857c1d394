//! What is written to the cluster: notes at VMs, migrations. Only by the leader, and never in the way of an answer.

use std::sync::Arc;

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use neonvm_api::migration::VirtualMachineMigrationSpec;
use neonvm_api::names::{TRUE, annotation, label};
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_core_scheduling::permits::{Action, Annotation, Event, WantedMigration};
use neonvm_kit::supervise::catch;
use neonvm_types::NamespacedName;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::shared::Shared;

/// Writes at the same time.
const AT_ONCE: usize = 16;

/// Writes until it is dropped.
pub(crate) async fn keep_writing(shared: &Arc<Shared>) {
    let mut running = JoinSet::new();
    loop {
        let now = shared.now();
        let due = shared.state().wake_at();
        if due.is_some_and(|due| due <= now) {
            shared.step(Event::Tick);
        }
        for action in shared.state().take_actions(now, AT_ONCE.saturating_sub(running.len())) {
            let shared = Arc::clone(shared);
            running.spawn(async move {
                // A panic counts as a failed write: a write without a recorded end would never be repeated.
                let ok = catch(carry_out(&shared, &action)).await.unwrap_or_else(|panic| {
                    tracing::error!(panic, ?action, "a write panicked; it is tried again");
                    false
                });
                shared.state().done(shared.now(), &action, ok);
            });
        }
        let full = running.len() >= AT_ONCE;
        let due = shared.state().wake_at().filter(|_| !full);
        let pause = async {
            match due {
                Some(due) => tokio::time::sleep_until(shared.instant(due)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = pause => {}
            () = shared.write.notified(), if !full => {}
            Some(_) = running.join_next() => {}
        }
    }
}

/// Whether it is done, or there is nothing to be done any more.
async fn carry_out(shared: &Shared, action: &Action) -> bool {
    let (op, kind) = match action {
        Action::Annotate(_) => ("Patch", "VirtualMachine"),
        Action::CreateMigration(_) => ("Create", "VirtualMachineMigration"),
        Action::DeleteMigration { .. } => ("Delete", "VirtualMachineMigration"),
    };
    let attempt = async {
        match action {
            Action::Annotate(note) => annotate(shared, note).await,
            Action::CreateMigration(wanted) => create(shared, wanted).await,
            Action::DeleteMigration { migration, uid } => delete(shared, migration, uid).await,
        }
    };
    let outcome = match tokio::time::timeout(shared.config.request_timeout, attempt).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer in time".to_owned()),
    };
    shared.metrics.wrote(op, kind, outcome.is_ok());
    if let Err(error) = &outcome {
        tracing::warn!(%error, op, kind, "the API server refused");
    }
    outcome.is_ok()
}

fn pointer(key: &str) -> String {
    format!("/metadata/annotations/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn texts(note: &Annotation) -> [(&'static str, String); 3] {
    [
        (annotation::SCALING_UNIT, note.values.unit.to_annotation()),
        (annotation::REQUESTED, note.values.requested.to_annotation()),
        (annotation::APPROVED, note.values.approved.to_annotation()),
    ]
}

/// Defect 4: `add` works whether the key is there or not; a VM without any annotation gets the map first.
async fn annotate(shared: &Shared, note: &Annotation) -> Result<(), kube::Error> {
    let api: Api<VirtualMachine> = Api::namespaced(shared.client.clone(), &note.vm.namespace);
    let own = note.vm_uid.as_ref().map(|uid| json!({ "op": "test", "path": "/metadata/uid", "value": uid }));
    let adds = texts(note).map(|(key, text)| json!({ "op": "add", "path": pointer(key), "value": text }));
    let operations: Vec<Value> = own.into_iter().chain(adds).collect();
    match patch(&api, &note.vm.name, operations).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 409 | 422) => {}
        // The VM is gone: there is nothing to annotate.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        other => return other,
    }
    let Some(vm) = api.get_opt(&note.vm.name).await? else { return Ok(()) };
    if note.vm_uid.is_some() && vm.metadata.uid != note.vm_uid {
        tracing::debug!(vm = %note.vm, "another VM of that name is there by now");
        return Ok(());
    }
    let mut annotations = vm.metadata.annotations.unwrap_or_default();
    annotations.extend(texts(note).map(|(key, text)| (key.to_owned(), text)));
    // Keeps the annotations of other writers: the map is replaced only if the object is still the one that was read.
    let operations = vec![
        json!({ "op": "test", "path": "/metadata/uid", "value": vm.metadata.uid }),
        json!({ "op": "test", "path": "/metadata/resourceVersion", "value": vm.metadata.resource_version }),
        json!({ "op": "add", "path": "/metadata/annotations", "value": annotations }),
    ];
    patch(&api, &note.vm.name, operations).await
}

async fn patch(api: &Api<VirtualMachine>, name: &str, operations: Vec<Value>) -> Result<(), kube::Error> {
    let operations: Result<_, _> = serde_json::from_value(Value::Array(operations));
    let patch = Patch::Json::<()>(operations.map_err(kube::Error::SerdeError)?);
    // The response is not read; the watch shows the result.
    api.patch_metadata(name, &PatchParams::default(), &patch).await.map(|_| ())
}

async fn create(shared: &Shared, wanted: &WantedMigration) -> Result<(), kube::Error> {
    let api: Api<VirtualMachineMigration> = Api::namespaced(shared.client.clone(), &wanted.pod.namespace);
    let mut migration =
        VirtualMachineMigration::new(&wanted.name(), VirtualMachineMigrationSpec::new(&wanted.vm));
    let labels = migration.metadata.labels.get_or_insert_default();
    labels.insert(label::CREATED_BY_SCHEDULER.to_owned(), TRUE.to_owned());
    match api.create(&PostParams::default(), &migration).await {
        Ok(_) => {
            let (pod, why) = (&wanted.pod, &wanted.why);
            tracing::info!(%pod, target = %wanted.target, why, "migration created");
            shared.metrics.migration_created();
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error),
    }
}

async fn delete(shared: &Shared, migration: &NamespacedName, uid: &str) -> Result<(), kube::Error> {
    let api: Api<VirtualMachineMigration> = Api::namespaced(shared.client.clone(), &migration.namespace);
    let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
    match api.delete(&migration.name, &params).await {
        Ok(_) => {
            shared.metrics.migration_deleted();
            Ok(())
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error),
    }
}
