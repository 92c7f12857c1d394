//! `StormService` of AIBrix: a workload of several roles, each with separate replicas, in one object.

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::{ApiResource, Expression, Selector};
use neonvm_api::PodAutoscaler;
use neonvm_core_pod_autoscaler::claim;
use neonvm_core_pod_autoscaler::status::failure;
use serde_json::{Value, json};

use super::{Way, Workload};
use crate::pods::selector::equal;
use crate::request::Failed;

/// API group of `StormService`.
pub(super) const GROUP: &str = "orchestration.aibrix.ai";
/// Label of a pod with the service it belongs to.
const SERVICE: &str = "storm-service-name";
/// Label of a pod with its role.
const ROLE: &str = "role-name";
/// Label of a pod with its rank in its group; only the first of a group serves.
const RANK: &str = "stormservice.orchestration.aibrix.ai/pod-group-index";

pub(super) fn is_one(resource: &ApiResource) -> bool {
    resource.group == GROUP && resource.kind == "StormService"
}

fn roles(service: &DynamicObject) -> &[Value] {
    service.data.pointer("/spec/template/spec/roles").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(role: &'a Value, key: &str) -> &'a str {
    role.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn of_role(service: &str, role: &Value) -> Selector {
    let mut selector = equal([(SERVICE, service), (ROLE, text(role, "name"))]);
    if role.get("podGroupSize").and_then(Value::as_i64).is_some_and(|size| size > 1) {
        selector.extend([Expression::Equal(RANK.to_owned(), "0".to_owned())]);
    }
    selector
}

pub(super) fn read(object: &PodAutoscaler, service: &DynamicObject) -> Result<Workload, Failed> {
    let name = service.name_any();
    let number = |value: Option<&Value>| value.and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
    if let Some(wanted) = claim::part(object) {
        let found = roles(service).iter().enumerate().find(|(_, role)| text(role, "name") == wanted);
        let Some((index, role)) = found else {
            let known: Vec<&str> = roles(service).iter().map(|role| text(role, "name")).collect();
            return Err(Failed::new(
                failure::GET_REPLICAS,
                format!("StormService {name} has no role {wanted:?}; it has {}", known.join(", ")),
            ));
        };
        let replicas = number(role.get("replicas"));
        let way = Way::Role { index, name: wanted.to_owned(), is_set: replicas.is_some() };
        return Ok(Workload {
            replicas: replicas.unwrap_or_default(),
            selectors: vec![of_role(&name, role)],
            way,
        });
    }
    let Some(replicas) = number(service.data.pointer("/spec/replicas")) else {
        return Err(Failed::new(
            failure::GET_REPLICAS,
            format!("StormService {name} has no number in spec.replicas"),
        ));
    };
    // A role may be named even where the whole is scaled: then its pods are those that are measured.
    let measured = object.spec.role();
    let wanted = |role: &&Value| measured.is_none_or(|measured| text(role, "name") == measured);
    let mut selectors: Vec<Selector> = match object.spec.sub_target_selector {
        Some(_) => roles(service).iter().filter(wanted).map(|role| of_role(&name, role)).collect(),
        None => Vec::new(),
    };
    if selectors.is_empty() {
        selectors.push(equal([(SERVICE, &name)]));
    }
    let version = service.resource_version().unwrap_or_default();
    Ok(Workload { replicas, selectors, way: Way::Field { version } })
}

/// Sets the replicas of one role, if it is still where and what it was; nothing else of the object is touched, so that
/// autoscalers of other roles lose nothing.
pub(super) fn patch(index: usize, role: &str, was: Option<i32>, replicas: i32) -> Value {
    let at = format!("/spec/template/spec/roles/{index}");
    let mut steps = vec![json!({"op": "test", "path": format!("{at}/name"), "value": role})];
    steps.extend(was.map(|was| json!({"op": "test", "path": format!("{at}/replicas"), "value": was})));
    steps.push(json!({"op": "add", "path": format!("{at}/replicas"), "value": replicas}));
    Value::Array(steps)
}
