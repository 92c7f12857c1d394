//! Watches in, bindings out.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::watcher::{self, Event as Change, watcher};
use kube::{Api, Client};
use serde_json::json;

use crate::world::{Deed, Key, World, key};

/// Longest a request may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// First and longest pause after a refusal.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Our name in events.
const COMPONENT: &str = "neonvm-scheduler";

enum Input {
    Node(Box<Change<Node>>),
    Pod(Box<Change<Pod>>),
}

/// Runs until it is dropped.
pub(crate) async fn serve(client: Client) {
    let settings = watcher::Config::default();
    let nodes = watcher(Api::<Node>::all(client.clone()), settings.clone()).default_backoff();
    let pods = watcher(Api::<Pod>::all(client.clone()), settings).default_backoff();
    let inputs = futures_util::stream::select(
        nodes.map_ok(|change| Input::Node(Box::new(change))),
        pods.map_ok(|change| Input::Pod(Box::new(change))),
    );
    let mut inputs = std::pin::pin!(inputs);
    let mut state = State {
        recorder: Recorder::new(client.clone(), Reporter { controller: COMPONENT.into(), instance: None }),
        client,
        world: World::default(),
        listed_nodes: None,
        listed_pods: None,
        seen: (false, false),
        pause: PAUSES.0,
    };
    let mut retry = None;
    loop {
        let input = match retry.take() {
            None => inputs.next().await,
            Some(pause) => match tokio::time::timeout(pause, inputs.next()).await {
                Ok(input) => input,
                Err(_) => {
                    retry = state.work().await;
                    continue;
                }
            },
        };
        match input {
            None => return,
            Some(Err(error)) => tracing::debug!(%error, "a watch is begun anew"),
            Some(Ok(input)) => {
                if state.take(input) {
                    retry = state.work().await;
                }
            }
        }
    }
}

struct State {
    client: Client,
    recorder: Recorder,
    world: World,
    /// What the list that is on its way has shown so far.
    listed_nodes: Option<BTreeSet<String>>,
    listed_pods: Option<BTreeSet<Key>>,
    /// Whether nodes and pods were listed whole: before, every choice would be a guess.
    seen: (bool, bool),
    pause: Duration,
}

impl State {
    /// Takes a change in; whether there may be something to do.
    fn take(&mut self, input: Input) -> bool {
        let relevant = match input {
            Input::Node(change) => self.take_node(*change),
            Input::Pod(change) => self.take_pod(*change),
        };
        relevant && self.seen == (true, true)
    }

    fn take_node(&mut self, change: Change<Node>) -> bool {
        match change {
            Change::Init => self.listed_nodes = Some(BTreeSet::new()),
            Change::InitApply(node) => {
                if let Some(listed) = &mut self.listed_nodes {
                    listed.insert(node.metadata.name.clone().unwrap_or_default());
                }
                self.world.node(node);
            }
            Change::InitDone => {
                self.world.keep_nodes(&self.listed_nodes.take().unwrap_or_default());
                self.seen.0 = true;
                return true;
            }
            Change::Apply(node) => return self.world.node(node),
            Change::Delete(node) => {
                self.world.node_gone(&node);
                return true;
            }
        }
        false
    }

    fn take_pod(&mut self, change: Change<Pod>) -> bool {
        match change {
            Change::Init => self.listed_pods = Some(BTreeSet::new()),
            Change::InitApply(pod) => {
                if let Some(listed) = &mut self.listed_pods {
                    listed.insert(key(&pod));
                }
                self.world.pod(pod);
            }
            Change::InitDone => {
                self.world.keep_pods(&self.listed_pods.take().unwrap_or_default());
                self.seen.1 = true;
                return true;
            }
            Change::Apply(pod) => return self.world.pod(pod),
            Change::Delete(pod) => {
                self.world.pod_gone(&pod);
                return true;
            }
        }
        false
    }

    /// Does what there is to do. After a refusal: when to try again.
    async fn work(&mut self) -> Option<Duration> {
        while let Some(deed) = self.world.next() {
            let done = match tokio::time::timeout(DEADLINE, self.carry_out(&deed)).await {
                Ok(done) => done.map_err(|error| error.to_string()),
                Err(_) => Err("no answer within 10 s".to_owned()),
            };
            if let Err(error) = done {
                tracing::warn!(%error, ?deed, "refused");
                match &deed {
                    Deed::Bind { key, uid, .. } => self.world.unbind(key, uid),
                    Deed::Tell { key, .. } => self.world.untell(key),
                }
                self.pause = (self.pause * 2).min(PAUSES.1);
                return Some(self.pause);
            }
            self.pause = PAUSES.0;
        }
        None
    }

    async fn carry_out(&self, deed: &Deed) -> Result<(), kube::Error> {
        match deed {
            Deed::Bind { key, uid, node } => self.bind(key, uid, node).await,
            Deed::Tell { key, uid, why } => self.tell(key, uid, why).await,
        }
    }

    async fn bind(&self, (namespace, name): &Key, uid: &str, node: &str) -> Result<(), kube::Error> {
        let mut binding = Binding {
            target: ObjectReference {
                kind: Some("Node".into()),
                name: Some(node.to_owned()),
                ..Default::default()
            },
            ..Default::default()
        };
        binding.metadata.name = Some(name.clone());
        // Another pod of this name is not the one that was weighed.
        binding.metadata.uid = Some(uid.to_owned());
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        match pods
            .create_subresource::<_, serde_json::Value>("binding", name, &PostParams::default(), &binding)
            .await
        {
            Ok(_) => {}
            // Gone, or bound by somebody else: the watch tells.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                tracing::debug!(%status, namespace, name, "not bound");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        tracing::info!(namespace, name, node, "bound");
        let note = format!("Successfully assigned {namespace}/{name} to {node}");
        self.record((namespace, name, uid), "Scheduled", EventType::Normal, note).await;
        Ok(())
    }

    async fn tell(&self, (namespace, name): &Key, uid: &str, why: &str) -> Result<(), kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = match pods.get_opt(name).await? {
            Some(pod) if pod.metadata.uid.as_deref() == Some(uid) => pod,
            _ => return Ok(()),
        };
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let mut conditions: Vec<serde_json::Value> =
            conditions.iter().filter(|c| c.type_ != "PodScheduled").map(|c| json!(c)).collect();
        conditions.push(
            json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
            "lastProbeTime": null, "lastTransitionTime": jiff_now() }),
        );
        // With the revision, so that nobody's conditions are lost.
        let patch = json!({ "metadata": { "uid": uid, "resourceVersion": pod.metadata.resource_version },
            "status": { "conditions": conditions } });
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        self.record((namespace, name, uid), "FailedScheduling", EventType::Warning, why.to_owned()).await;
        Ok(())
    }

    async fn record(
        &self,
        (namespace, name, uid): (&str, &str, &str),
        reason: &str,
        type_: EventType,
        note: String,
    ) {
        let about = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            ..Default::default()
        };
        // Notes have at most 1024 bytes.
        let note: String = note.chars().take(1000).collect();
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(note),
            action: "Scheduling".into(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &about).await {
            tracing::debug!(%error, "an event is lost");
        }
    }
}

fn jiff_now() -> String {
    // Kubernetes' times have whole seconds.
    jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string()
}
