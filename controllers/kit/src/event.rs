//! Kubernetes events. The cores note only changes, so there is nothing to fold together; what cannot be sent
//! is dropped, because events are for people and must never hold up work.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use tokio::sync::{Mutex, mpsc};

/// Events waiting to be sent; more are dropped.
const WAITING: usize = 4096;
/// Sent at the same time.
const SENDERS: usize = 4;
/// Time for one to be taken.
const REQUEST: Duration = Duration::from_secs(20);
/// Longest message.
const MESSAGE: usize = 1024;

/// Where events go.
#[derive(Clone, Debug)]
pub struct Events {
    to: mpsc::Sender<Event>,
    reporter: &'static str,
    /// The number in the name of the newest.
    last: Arc<AtomicI64>,
}

pub struct Sender {
    client: Client,
    waiting: mpsc::Receiver<Event>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// A way in and a way out; `reporter` is the name of the controller.
#[must_use]
pub fn channel(client: Client, reporter: &'static str) -> (Events, Sender) {
    let (sender, waiting) = mpsc::channel(WAITING);
    (Events { to: sender, reporter, last: Arc::default() }, Sender { client, waiting })
}

impl Events {
    /// As everywhere: the object's name and the time in hexadecimal. A clock may show two events the same time; the second would
    /// not be taken under the name of the first.
    fn name(&self, object: &str, now: jiff::Timestamp) -> String {
        let now = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
        let later = |last: i64| now.max(last.saturating_add(1));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(later(last)));
        format!("{object}.{:x}", last.map_or(now, later))
    }

    /// Publishes an event about an object; `kind` is `Normal` or `Warning`.
    pub fn publish(&self, regarding: ObjectReference, kind: &str, reason: &str, message: &str) {
        let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name = regarding.name.clone().unwrap_or_default();
        let now = jiff::Timestamp::now();
        let event = Event {
            metadata: ObjectMeta {
                name: Some(self.name(&name, now)),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            note: Some(message.chars().take(MESSAGE).collect()),
            action: Some(reason.to_owned()),
            event_time: Some(MicroTime(now)),
            regarding: Some(regarding),
            reporting_controller: Some(self.reporter.to_owned()),
            reporting_instance: Some(self.reporter.to_owned()),
            ..Event::default()
        };
        if self.to.try_send(event).is_err() {
            tracing::debug!(reason, "too many events; one is dropped");
        }
    }
}

impl Sender {
    /// Sends until the other side is gone.
    pub async fn run(self) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_clock_makes_no_two_events_of_one_name() {
        let (to, _waiting) = mpsc::channel(1);
        let events = Events { to, reporter: "test", last: Arc::default() };
        let at = |nanos| jiff::Timestamp::from_nanosecond(nanos).unwrap();
        let names = [at(16), at(16), at(16), at(20), at(15)].map(|now| events.clone().name("vm", now));
        assert_eq!(names, ["vm.10", "vm.11", "vm.12", "vm.14", "vm.15"]);
    }
}
