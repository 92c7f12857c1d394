//! Waiting until services run.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use neonvm_deploy::{Named, is_workload};
use neonvm_kernel::Progress as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::apply::{get, path};
use super::why;
use crate::commands::object::text;
use crate::commands::poll;
use crate::connect::Connection;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;

/// Time after which the pods of an older version are gone, or have failed for good.
const SETTLED: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(super) name: String,
    pub(crate) ready: u64,
    pub(crate) wanted: u64,
    pub(crate) is_done: bool,
}

impl fmt::Display for State {
    /// `agent 2/3`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.name, self.ready, self.wanted)
    }
}

impl State {
    pub(super) fn json(&self) -> Value {
        json!({"name": self.name, "ready": self.ready, "wanted": self.wanted})
    }

    /// Of a Deployment or a DaemonSet, as `kubectl rollout status` judges it.
    pub(crate) fn from_object(object: &Value) -> Self {
        let number = |path: &str| object.pointer(path).and_then(Value::as_u64);
        let status = |key: &str| number(&format!("/status/{key}")).unwrap_or_default();
        let is_seen = number("/status/observedGeneration") >= number("/metadata/generation");
        let name = text(object, "/metadata/name");
        let name = name.strip_prefix("neonvm-").unwrap_or(name).to_owned();
        let (wanted, ready, updated, all) = if text(object, "/kind") == "DaemonSet" {
            let wanted = status("desiredNumberScheduled");
            (wanted, status("numberAvailable"), status("updatedNumberScheduled"), wanted)
        } else {
            let wanted = number("/spec/replicas").unwrap_or(1);
            (wanted, status("availableReplicas"), status("updatedReplicas"), status("replicas"))
        };
        let is_done = is_seen && updated >= wanted && all <= wanted.max(updated) && ready >= wanted;
        Self { name, ready, wanted, is_done }
    }
}

/// Waits until all that start pods among these objects are rolled out. At the deadline the error names what was not, and why.
pub(super) async fn wait(
    connection: &Connection,
    reporter: &Reporter,
    objects: &[Value],
    limit: Duration,
) -> Result<Vec<State>> {
    let workloads: Vec<Named> =
        objects.iter().filter(|object| is_workload(object)).map(Named::from_object).collect();
    let mut printed: BTreeSet<String> = BTreeSet::new();
    let (mut late, mut waiting, mut has_looked) = (Vec::new(), String::new(), false);
    let begun = Instant::now();
    let ready = poll::until(limit, async || {
        let found = read(connection, &workloads).await?;
        for (_, state) in found.iter().filter(|(_, state)| state.is_done && state.wanted > 0) {
            if printed.insert(state.name.clone()) {
                reporter.show(&format!("{:<10} {state}", ""));
            }
        }
        if found.iter().all(|(_, state)| state.is_done) {
            return Ok(Some(found.into_iter().map(|(_, state)| state).collect()));
        }
        let (objects, states): (Vec<Value>, Vec<String>) =
            found.into_iter().filter(|(_, state)| !state.is_done).map(|(o, s)| (o, s.to_string())).unzip();
        (late, waiting) = (objects, states.join(", "));
        reporter.line(&waiting);
        if !std::mem::replace(&mut has_looked, true) {
            for workload in &late {
                why::pull_again(connection, workload).await;
            }
        }
        // Pods of before the change may still be there.
        if begun.elapsed() > SETTLED {
            for workload in &late {
                if let Some(error) = why::ending(connection, workload).await {
                    return Err(error);
                }
            }
        }
        Ok(None)
    });
    if let Some(states) = ready.await? {
        return Ok(states);
    }
    let mut error = Error::new(Code::Timeout, format!("not ready after {limit:?}: {waiting}"));
    let mut reasons = Vec::new();
    for object in &late {
        reasons.extend(why::reasons(connection, object).await);
    }
    let hint = why::hint(&reasons);
    error.causes.extend(why::grouped(reasons));
    Err(error.hint(hint))
}

async fn read(connection: &Connection, workloads: &[Named]) -> Result<Vec<(Value, State)>> {
    let mut found = Vec::new();
    for named in workloads {
        let mut object = connection.json(&path(named)).await?;
        // A single object should have a kind; some servers leave it out.
        if let Some(map) = object.as_object_mut() {
            map.insert("kind".to_owned(), json!(named.kind));
        }
        let state = State::from_object(&object);
        found.push((object, state));
    }
    Ok(found)
}

/// Waits until a namespace that is being removed is gone: nothing can be made in it before.
pub(super) async fn after_removal(
    connection: &Connection,
    reporter: &Reporter,
    namespace: &str,
    limit: Duration,
) -> Result<()> {
    let mut waits = false;
    let gone = poll::until(limit, async || {
        let found = get(connection, &format!("/api/v1/namespaces/{namespace}")).await?;
        let is_going = found.is_some_and(|found| !text(&found, "/metadata/deletionTimestamp").is_empty());
        if is_going && !waits {
            reporter.begin("wait", &format!("namespace {namespace} is being removed"));
            waits = true;
        }
        Ok((!is_going).then_some(()))
    });
    if gone.await?.is_none() {
        let message = format!("namespace {namespace} is still being removed after {limit:?}");
        return Err(Error::new(Code::Timeout, message).hint(format!(
            "see the remaining objects in its conditions: kubectl get namespace {namespace} -o yaml"
        )));
    }
    if waits {
        reporter.end("removed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_is_over_when_the_new_pods_are_available_and_the_old_are_gone() {
        let deployment = |observed: u64, replicas: u64, updated: u64, available: u64| {
            State::from_object(
                &json!({"kind": "Deployment", "metadata": {"name": "neonvm-scheduler", "generation": 2},
                "spec": {"replicas": 2}, "status": {"observedGeneration": observed, "replicas": replicas,
                "updatedReplicas": updated, "availableReplicas": available}}),
            )
        };
        assert!(deployment(2, 2, 2, 2).is_done);
        assert!(!deployment(1, 2, 2, 2).is_done, "of an older generation");
        assert!(!deployment(2, 3, 2, 2).is_done, "an old pod is left");
        assert!(!deployment(2, 2, 2, 1).is_done && !deployment(2, 2, 1, 2).is_done);
        assert_eq!(deployment(2, 2, 2, 1).to_string(), "scheduler 1/2");
        let new = json!({"kind": "Deployment", "metadata": {"name": "a", "generation": 1}, "spec": {"replicas": 0}});
        assert!(!State::from_object(&new).is_done, "not reconciled yet");
        let daemon = |available: u64| {
            State::from_object(
                &json!({"kind": "DaemonSet", "metadata": {"name": "neonvm-agent", "generation": 1},
                "status": {"observedGeneration": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2,
                "numberAvailable": available}}),
            )
        };
        assert!(daemon(2).is_done && !daemon(1).is_done);
    }
}
