//! Kubernetes events about machines. The core notes only changes, so there is nothing to fold together; what cannot be sent
//! is dropped, because events are for people and must never hold up work.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff;
use kube::api::{Api, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_core_lifecycle::Note;
use tokio::sync::{Mutex, mpsc};

use crate::context::{MANAGER, REQUEST};

/// Events waiting to be sent; more are dropped.
const WAITING: usize = 4096;
/// Sent at the same time.
const SENDERS: usize = 4;
/// Longest message.
const MESSAGE: usize = 1024;

/// Where events go.
#[derive(Clone, Debug)]
pub(crate) struct Events(mpsc::Sender<Event>);

/// What sends them.
pub(crate) struct Sender {
    client: Client,
    waiting: mpsc::Receiver<Event>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// A way in and a way out.
pub(crate) fn channel(client: Client) -> (Events, Sender) {
    let (sender, waiting) = mpsc::channel(WAITING);
    (Events(sender), Sender { client, waiting })
}

impl Events {
    /// Tells a note about a machine.
    pub(crate) fn tell(&self, vm: &VirtualMachine, note: &Note) {
        let kind = if note.reason.is_warning() { "Warning" } else { "Normal" };
        self.tell_of(vm.object_ref(&()), kind, note.reason.as_str(), &note.message);
    }

    /// Tells a note about a migration and its machine.
    pub(crate) fn tell_migration(
        &self,
        migration: &VirtualMachineMigration,
        vm: Option<&VirtualMachine>,
        note: &Note,
    ) {
        let kind = if note.reason.is_warning() { "Warning" } else { "Normal" };
        self.tell_of(migration.object_ref(&()), kind, note.reason.as_str(), &note.message);
        if let Some(vm) = vm {
            self.tell(vm, note);
        }
    }

    /// Tells something of an object.
    pub(crate) fn tell_of(&self, regarding: ObjectReference, kind: &str, reason: &str, message: &str) {
        let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name = regarding.name.clone().unwrap_or_default();
        let now = jiff::Timestamp::now();
        let event = Event {
            metadata: ObjectMeta {
                // As everywhere: the object's name and the time in hexadecimal.
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            note: Some(message.chars().take(MESSAGE).collect()),
            action: Some(reason.to_owned()),
            event_time: Some(MicroTime(now)),
            regarding: Some(regarding),
            reporting_controller: Some(MANAGER.to_owned()),
            reporting_instance: Some(MANAGER.to_owned()),
            ..Event::default()
        };
        if self.0.try_send(event).is_err() {
            tracing::debug!(reason, "too many events; one is dropped");
        }
    }
}

impl Sender {
    /// Sends until the other side is gone.
    pub(crate) async fn run(self) {
        let waiting = Arc::new(Mutex::new(self.waiting));
        let mut senders = tokio::task::JoinSet::new();
        for _ in 0..SENDERS {
            senders.spawn(send(self.client.clone(), Arc::clone(&waiting)));
        }
        while senders.join_next().await.is_some() {}
    }
}

async fn send(client: Client, waiting: Arc<Mutex<mpsc::Receiver<Event>>>) {
    loop {
        let next = waiting.lock().await.recv().await;
        let Some(event) = next else { return };
        let namespace = event.namespace().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        match tokio::time::timeout(REQUEST, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "an event was not taken"),
            Err(_) => tracing::debug!("an event was not taken in time"),
        }
    }
}
