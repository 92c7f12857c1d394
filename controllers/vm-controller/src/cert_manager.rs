//! cert-manager, if the cluster has it: found when a VM needs it, then watched.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::jiff;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Error};
use neonvm_api::names::label;
use neonvm_core_vm_lifecycle::tls::{Request, RequestState};
use neonvm_kit::queue::Queue;
use neonvm_kit::watch::retry;
use neonvm_types::Timestamp;
use serde_json::Value;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::cache::{Cache, Key, owner};
use crate::clock::now;

/// An absent API is queried again after this.
const AGAIN: Duration = Duration::from_secs(30);
/// Longest wait for the first list of requests.
const FIRST_LIST: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
enum State {
    #[default]
    Unknown,
    Absent(Instant),
    /// Watched by this task, as long as this is kept.
    Present {
        watch: Watch,
    },
}

#[derive(Debug)]
struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whether the cluster has cert-manager.
#[derive(Debug, Default)]
pub(crate) struct CertManager {
    state: Mutex<State>,
    /// Only one query at a time.
    looking: tokio::sync::Mutex<()>,
}

/// The kind of requests.
pub(crate) fn resource() -> ApiResource {
    ApiResource {
        group: "cert-manager.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "cert-manager.io/v1".to_owned(),
        kind: "CertificateRequest".to_owned(),
        plural: "certificaterequests".to_owned(),
    }
}

pub(crate) fn requests(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource())
}

impl CertManager {
    pub(crate) fn is_present(&self) -> bool {
        self.known() == Some(true)
    }

    fn known(&self) -> Option<bool> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            // A watch that has panicked is started again by the next caller of `look`.
            State::Present { watch } => (!watch.0.is_finished()).then_some(true),
            State::Absent(at) if at.elapsed() < AGAIN => Some(false),
            State::Unknown | State::Absent(_) => None,
        }
    }

    /// Finds out whether the API is there; if so its requests are watched, and listed once when this returns.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub(crate) async fn look(
        &self,
        client: &Client,
        cache: &Arc<Cache>,
        queue: &Arc<Queue<Key>>,
    ) -> Result<(), Error> {
        let _one = self.looking.lock().await;
        if self.known().is_some() {
            return Ok(());
        }
        let there = match client.list_api_group_resources("cert-manager.io/v1").await {
            Ok(list) => list.resources.iter().any(|resource| resource.name == "certificaterequests"),
            Err(Error::Api(status)) if status.code == 404 => false,
            Err(error) => return Err(error),
        };
        let next = if there {
            let (listed, first) = tokio::sync::oneshot::channel();
            let task = watch(client.clone(), Arc::clone(cache), Arc::clone(queue), listed);
            let task = tokio::spawn(task);
            let watching = Watch(task.abort_handle());
            // If the first list does not come, requests are made although they exist; that is refused by their name.
            tokio::time::timeout(FIRST_LIST, first).await.ok();
            State::Present { watch: watching }
        } else {
            State::Absent(Instant::now())
        };
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }
}

/// Ends with the [`Watch`] of its task, which the last user of [`CertManager`] drops.
async fn watch(
    client: Client,
    cache: Arc<Cache>,
    queue: Arc<Queue<Key>>,
    listed: tokio::sync::oneshot::Sender<()>,
) {
    let api = Api::<DynamicObject>::all_with(client, &resource());
    let config = watcher::Config::default().labels(label::VM_NAME);
    let mut events = watcher(api, config).backoff(retry()).boxed();
    let mut listed = Some(listed);
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "certificate requests cannot be watched");
                continue;
            }
        };
        match event {
            watcher::Event::Init => cache.clear_requests(),
            watcher::Event::InitDone => drop(listed.take().map(|listed| listed.send(()))),
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                keep(&cache, &object, true).iter().for_each(|key| queue.add(key));
            }
            watcher::Event::Delete(object) => {
                keep(&cache, &object, false).iter().for_each(|key| queue.add(key));
            }
        }
    }
}

/// Takes a request into the cache; returns the VM that it belongs to.
pub(crate) fn keep(cache: &Cache, object: &DynamicObject, there: bool) -> Option<Key> {
    let (key, _) = owner(&object.metadata)?;
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    if there {
        cache.set_request(&key, uid, read(object));
    } else {
        cache.drop_request(&key, Some(uid));
    }
    Some(key)
}

fn read(object: &DynamicObject) -> Request {
    let annotation = |key: &str| object.metadata.annotations.as_ref().and_then(|all| all.get(key));
    Request {
        fingerprint: annotation(FINGERPRINT).cloned().unwrap_or_default(),
        attempt: annotation(ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(0),
        state: state(&object.data),
    }
}

fn state(data: &Value) -> RequestState {
    let status = data.get("status");
    if status
        .and_then(|status| status.get("certificate"))
        .and_then(Value::as_str)
        .is_some_and(|c| !c.is_empty())
    {
        return RequestState::Issued;
    }
    let conditions = status.and_then(|status| status.get("conditions")).and_then(Value::as_array);
    let text = |condition: &Value, key: &str| {
        condition.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut conditions = conditions.into_iter().flatten();
    let refused = conditions.clone().find(|condition| {
        match (text(condition, "type").as_str(), text(condition, "status").as_str()) {
            ("Denied" | "InvalidRequest", "True") => true,
            ("Ready", "False") => matches!(text(condition, "reason").as_str(), "Denied" | "Failed"),
            _ => false,
        }
    });
    let Some(refused) = refused else {
        let unready = conditions.find(|condition| text(condition, "type") == "Ready");
        let message = unready.map(|condition| text(condition, "message")).unwrap_or_default();
        return RequestState::Waiting { message };
    };
    let failure =
        status.and_then(|status| status.get("failureTime")).and_then(Value::as_str).map(str::to_owned);
    let since = failure.unwrap_or_else(|| text(refused, "lastTransitionTime"));
    let at = since.parse::<jiff::Timestamp>().ok().and_then(|time| Timestamp::from_unix(time.as_second()));
    let message = format!("{} {}", text(refused, "reason"), text(refused, "message"));
    RequestState::Refused { at: at.unwrap_or_else(now), message: message.trim().to_owned() }
}

/// Annotation: what the certificate is made for.
pub(crate) const FINGERPRINT: &str = "vm.neon.tech/tls-for";

/// Annotation: how often a request was refused before.
pub(crate) const ATTEMPT: &str = "vm.neon.tech/tls-attempt";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn states_of_requests() {
        let with = |condition: Value| json!({"status": {"conditions": [condition]}});
        let waiting = |message: &str| RequestState::Waiting { message: message.to_owned() };
        assert_eq!(state(&json!({})), waiting(""));
        let why = "Referenced \"ClusterIssuer\" not found";
        assert_eq!(
            state(&with(json!({"type": "Ready", "status": "False", "reason": "Pending", "message": why}))),
            waiting(why)
        );
        assert_eq!(state(&json!({"status": {"certificate": "eA=="}})), RequestState::Issued);
        let denied = with(json!({"type": "Denied", "status": "True", "reason": "Policy", "message": "no",
            "lastTransitionTime": "1970-01-01T00:01:00Z"}));
        let at = Timestamp::from_unix(60).unwrap();
        assert_eq!(state(&denied), RequestState::Refused { at, message: "Policy no".into() });
        let failed = with(json!({"type": "Ready", "status": "False", "reason": "Failed",
            "lastTransitionTime": "1970-01-01T00:01:00Z"}));
        assert_eq!(state(&failed), RequestState::Refused { at, message: "Failed".into() });
    }
}
