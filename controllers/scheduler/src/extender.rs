//! The extender of a stock kube-scheduler: `filter`, `prioritize`, `preempt`, `bind`. Wire format of `k8s.io/kube-scheduler/extender/v1`.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::StatusCode;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, Pod};
use kube::{Api, ResourceExt as _};
use neonvm_core_scheduling::permits::{PodSeen, randomised};
use neonvm_kit::http::{FullResponse, text};
use neonvm_types::NamespacedName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::bind::bind;
use crate::shared::Shared;

/// Label of nodes with their availability zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// A request of the kube-scheduler: the pod, and either the nodes or (with `nodeCacheCapable`) their names. The
/// kube-scheduler writes the names of Go's fields; earlier ones were spelled otherwise. As in Go, keys of any case are
/// read ([`parse`]).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
struct Args {
    pod: Pod,
    #[serde(default)]
    nodes: Option<Nodes>,
    #[serde(default, rename = "nodenames")]
    node_names: Option<Vec<String>>,
}

/// A list of nodes, each kept as it came.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Nodes {
    #[serde(default)]
    metadata: Value,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct FilterResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Nodes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_names: Option<Vec<String>>,
    failed_nodes: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct HostPriority {
    host: String,
    score: u32,
}

#[derive(Debug, Deserialize)]
struct PreemptionArgs {
    #[serde(default)]
    pod: Option<Pod>,
    #[serde(default, rename = "nodenametovictims")]
    victims: Option<BTreeMap<String, Victims>>,
    #[serde(default, rename = "nodenametometavictims")]
    meta: Option<BTreeMap<String, Value>>,
}

#[derive(Debug, Deserialize)]
struct Victims {
    #[serde(default, alias = "Pods")]
    pods: Option<Vec<Value>>,
    #[serde(default, rename = "NumPDBViolations", alias = "numPDBViolations")]
    violations: i64,
}

#[derive(Debug, Deserialize)]
struct BindingArgs {
    #[serde(rename = "podname")]
    name: String,
    #[serde(rename = "podnamespace")]
    namespace: String,
    #[serde(rename = "poduid", default)]
    uid: String,
    node: String,
}

#[derive(Debug, Default, Serialize)]
struct BindingResult {
    #[serde(rename = "Error", skip_serializing_if = "String::is_empty")]
    error: String,
}

/// Reads an object with keys of any case; `null` is the same as nothing.
fn parse<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    let all: Map<String, Value> = serde_json::from_slice(body)?;
    let present = all.into_iter().filter(|(_, value)| !value.is_null());
    let all: Map<String, Value> = present.map(|(key, value)| (key.to_ascii_lowercase(), value)).collect();
    neonvm_types::objects::from_value(Value::Object(all))
}

fn encoded(status: StatusCode, value: &impl Serialize) -> FullResponse {
    text(status, "application/json", serde_json::to_vec(value).unwrap_or_default())
}

fn name_of(node: &Value) -> Option<&str> {
    node.pointer("/metadata/name")?.as_str()
}

/// Answers a call below `/extender/`.
pub(crate) async fn answer(shared: &Shared, verb: &str, body: &Bytes) -> FullResponse {
    match verb {
        "filter" => with_args(shared, "Filter", body, filter),
        "prioritize" => with_args(shared, "Score", body, prioritise),
        "preempt" => preempt(shared, body),
        "bind" => bound(shared, body).await,
        _ => text(StatusCode::NOT_FOUND, "text/plain", "there is filter, prioritize, preempt and bind\n"),
    }
}

fn bad(error: &serde_json::Error) -> FullResponse {
    text(StatusCode::BAD_REQUEST, "text/plain", format!("not what an extender is asked: {error}\n"))
}

fn with_args(
    shared: &Shared,
    method: &str,
    body: &Bytes,
    f: fn(&Shared, Args) -> (FullResponse, bool),
) -> FullResponse {
    match parse::<Args>(body) {
        Ok(args) => {
            let ignored = is_ignored(shared, args.pod.namespace().as_deref());
            let zone = desired_zone(&args.pod);
            let (answer, well) = f(shared, args);
            shared.metrics.extension(method, &zone, ignored, (!well).then_some("Unschedulable"));
            answer
        }
        Err(error) => {
            shared.metrics.extension(method, "", false, Some("Error"));
            bad(&error)
        }
    }
}

/// The availability zone that a pod wants, for metrics: that of a node affinity with exactly one, required ones first; else empty.
fn desired_zone(pod: &Pod) -> String {
    let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref())
    else {
        return String::new();
    };
    let required = affinity.required_during_scheduling_ignored_during_execution.iter();
    let required = required.flat_map(|selector| &selector.node_selector_terms);
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    let terms = required.chain(preferred.map(|preferred| &preferred.preference));
    let zone = |requirement: &NodeSelectorRequirement| {
        let one = requirement.values.as_deref().filter(|values| values.len() == 1)?;
        (requirement.key == ZONE && requirement.operator == "In").then(|| one.first().cloned())?
    };
    terms.flat_map(|term| term.match_expressions.iter().flatten()).find_map(zone).unwrap_or_default()
}

fn is_ignored(shared: &Shared, namespace: Option<&str>) -> bool {
    namespace.is_some_and(|namespace| shared.config.settings.ignored_namespaces.contains(namespace))
}

/// Which of the nodes have room. A standby returns an error: it does not have the permits that the leader has given
/// since.
fn filter(shared: &Shared, args: Args) -> (FullResponse, bool) {
    let mut result = FilterResult::default();
    if !shared.is_ready() {
        "this scheduler does not lead or has not seen all nodes yet".clone_into(&mut result.error);
        return (encoded(StatusCode::OK, &result), false);
    }
    let pod = PodSeen::from_pod(&args.pod, &shared.config.settings);
    let state = shared.state();
    let mut keep = |name: &str| match state.fits(&pod, name) {
        Ok(()) => true,
        Err(reason) => {
            let why = reason.map_or_else(|| "is not known".to_owned(), |reason| reason.to_string());
            result.failed_nodes.insert(name.to_owned(), why);
            false
        }
    };
    let (names, nodes) = (args.node_names, args.nodes);
    let names = names.map(|names| names.into_iter().filter(|name| keep(name)).collect::<Vec<_>>());
    let nodes = nodes.map(|mut nodes| {
        nodes.items.retain(|node| name_of(node).is_some_and(&mut keep));
        nodes
    });
    let well = names.as_ref().is_some_and(|all| !all.is_empty())
        || nodes.as_ref().is_some_and(|all| !all.items.is_empty());
    (result.node_names, result.nodes) = (names, nodes);
    (encoded(StatusCode::OK, &result), well)
}

/// Scores of extenders go from 0 to 10.
fn prioritise(shared: &Shared, args: Args) -> (FullResponse, bool) {
    let Args { pod, nodes, node_names } = args;
    let pod = PodSeen::from_pod(&pod, &shared.config.settings);
    let names = node_names.unwrap_or_else(|| {
        let items = nodes.map(|nodes| nodes.items).unwrap_or_default();
        items.iter().filter_map(name_of).map(str::to_owned).collect()
    });
    let state = shared.state();
    // Different for each pod and node, and the same for the same question at the same time.
    let seed = |node: &str| {
        let time = u64::try_from(shared.now().as_nanos()).unwrap_or(0);
        node.bytes()
            .chain(pod.uid.bytes())
            .fold(time, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
    };
    let scored = names.into_iter().map(|host| {
        let mut score = state.score(&pod, &host);
        if state.settings().scoring.randomise {
            score = randomised(score, seed(&host));
        }
        HostPriority { score: score.div_ceil(10), host }
    });
    (encoded(StatusCode::OK, &scored.collect::<Vec<_>>()), true)
}

/// Returns the victims that the kube-scheduler proposes: VMs migrate and are never evicted, and their pods opt out themselves.
/// The response names victims by uid, whichever form the request used.
fn preempt(shared: &Shared, body: &Bytes) -> FullResponse {
    let args: PreemptionArgs = match parse(body) {
        Ok(args) => args,
        Err(error) => {
            shared.metrics.extension("Preempt", "", false, Some("Error"));
            return bad(&error);
        }
    };
    let mut answer = args.meta.unwrap_or_default();
    for (node, victims) in args.victims.unwrap_or_default() {
        let pods = victims.pods.unwrap_or_default();
        let uids = pods.iter().filter_map(|pod| pod.pointer("/metadata/uid"));
        let uids: Vec<Value> = uids.map(|uid| json!({ "UID": uid })).collect();
        answer.entry(node).or_insert_with(|| json!({ "Pods": uids, "NumPDBViolations": victims.violations }));
    }
    let zone = args.pod.as_ref().map(desired_zone).unwrap_or_default();
    let ignored = is_ignored(shared, args.pod.as_ref().and_then(|pod| pod.metadata.namespace.as_deref()));
    shared.metrics.extension("Preempt", &zone, ignored, None);
    encoded(StatusCode::OK, &json!({ "NodeNameToMetaVictims": answer }))
}

async fn bound(shared: &Shared, body: &Bytes) -> FullResponse {
    let args: BindingArgs = match parse(body) {
        Ok(args) => args,
        Err(error) => {
            shared.metrics.extension("Reserve", "", false, Some("Error"));
            return bad(&error);
        }
    };
    let ignored = is_ignored(shared, Some(&args.namespace));
    let key = NamespacedName::new(args.namespace.clone(), args.name.clone());
    let zone =
        shared.state().pod(&key).and_then(|pod| pod.object.as_deref().map(desired_zone)).unwrap_or_default();
    let outcome = reserve_and_bind(shared, &args).await;
    shared.metrics.extension("Reserve", &zone, ignored, outcome.as_ref().err().map(|_| "Unschedulable"));
    let error = outcome.err().unwrap_or_default();
    encoded(StatusCode::OK, &BindingResult { error })
}

/// Checking for room and reserving it is one step, so no other binding can take the room in between.
async fn reserve_and_bind(shared: &Shared, args: &BindingArgs) -> Result<(), String> {
    if !shared.is_ready() {
        return Err("this scheduler does not lead or has not seen all nodes yet".to_owned());
    }
    let key = NamespacedName::new(args.namespace.clone(), args.name.clone());
    let known = shared.state().pod(&key).filter(|pod| args.uid.is_empty() || pod.uid == args.uid).cloned();
    let pod = match known {
        Some(pod) => pod,
        None => fetch(shared, &key, &args.uid).await?,
    };
    let uid = pod.uid.clone();
    let kept = shared.state().reserve(shared.now(), pod, &args.node);
    kept.map_err(|reason| {
        shared.metrics.denied(&args.node, is_ignored(shared, Some(&args.namespace)));
        let why = reason
            .map_or_else(|| "is not known, or the pod is bound".to_owned(), |reason| reason.to_string());
        format!("node {} {why}", args.node)
    })?;
    bind(shared, &key, &uid, &args.node).await.map_err(|error| error.to_string())
}

/// The watch has not shown the pod yet.
async fn fetch(shared: &Shared, key: &NamespacedName, uid: &str) -> Result<PodSeen, String> {
    let pods: Api<Pod> = Api::namespaced(shared.client.clone(), &key.namespace);
    let found = tokio::time::timeout(shared.config.request_timeout, pods.get_opt(&key.name)).await;
    let pod = match found {
        Ok(Ok(Some(pod))) => PodSeen::from_pod(&pod, &shared.config.settings),
        Ok(Ok(None)) => return Err(format!("there is no pod {key}")),
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err("the API server did not answer in time".to_owned()),
    };
    if !uid.is_empty() && pod.uid != uid {
        return Err(format!("pod {key} is another one by now"));
    }
    Ok(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_that_a_pod_wants() {
        let zone = |terms: Value| {
            let affinity = json!({ "spec": { "containers": [], "affinity": { "nodeAffinity": terms } } });
            desired_zone(&serde_json::from_value(affinity).unwrap())
        };
        let wants = |values: Value, operator: &str| json!({ "matchExpressions": [{ "key": ZONE, "operator": operator, "values": values }] });
        let required = |term: Value| json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } });
        assert_eq!(zone(required(wants(json!(["a"]), "In"))), "a");
        assert_eq!(zone(required(wants(json!(["a", "b"]), "In"))), "");
        assert_eq!(zone(required(wants(json!(["a"]), "NotIn"))), "");
        let mut both = required(wants(json!(["a"]), "In"));
        both["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!([{ "weight": 1, "preference": wants(json!(["b"]), "In") }]);
        assert_eq!(zone(both.clone()), "a");
        both.as_object_mut().unwrap().remove("requiredDuringSchedulingIgnoredDuringExecution");
        assert_eq!(zone(both), "b");
        assert_eq!(desired_zone(&Pod::default()), "");
    }
}
