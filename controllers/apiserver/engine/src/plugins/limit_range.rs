//! Limit ranges: what they fill into a new pod, and which amounts they allow.

use neonvm_types::Quantity;
use serde_json::{Map, Value, json};

use crate::builtin::resources::{Amounts, amounts, pod_sum};
use crate::engine::Engine;
use crate::object::{self, at, name, text_at};
use crate::status::ApiError;
use crate::write::Write;

const NOTE: &str = "kubernetes.io/limit-ranger";
/// Lists of containers, and what notes call a container of them.
const LISTS: [(&str, &str); 2] = [("containers", "container"), ("initContainers", "init container")];

impl Write<'_> {
    fn limit_ranges(&self, engine: &Engine) -> Vec<Value> {
        engine.values_in("/limitranges", &self.target.namespace)
    }

    /// Gives the containers of a new pod the defaults of the limit ranges of its namespace.
    pub(super) fn fill_from_limit_ranges(&self, engine: &Engine, pod: &mut Value) {
        let mut notes = Vec::new();
        for range in self.limit_ranges(engine) {
            let limits = at(&range, "spec.limits").and_then(Value::as_array).into_iter().flatten();
            for limit in limits.filter(|limit| text_at(limit, "type") == "Container") {
                fill(pod, limit, &mut notes);
            }
        }
        if !notes.is_empty() {
            let note = format!("LimitRanger plugin set: {}", notes.join("; "));
            let annotations = object::meta_mut(pod).entry("annotations").or_insert_with(|| json!({}));
            object::set(annotations, NOTE, json!(note));
        }
    }

    /// Refuses a pod that breaks a limit range of its namespace.
    pub(crate) fn check_limit_ranges(&self, engine: &Engine, pod: &Value) -> Result<(), ApiError> {
        if self.kind.kind != "Pod" || !self.kind.is_builtin() {
            return Ok(());
        }
        for range in self.limit_ranges(engine) {
            let mut faults = faults(&range, pod.get("spec").unwrap_or(&Value::Null));
            let why = match (faults.len(), faults.pop()) {
                (_, None) => continue,
                (1, Some(only)) => only,
                (_, Some(last)) => {
                    faults.push(last);
                    format!("[{}]", faults.join(", "))
                }
            };
            return Err(ApiError::forbidden(self.subject(name(pod)), &why));
        }
        Ok(())
    }
}

/// Fills in one item of a limit range, and notes what it set.
fn fill(pod: &mut Value, limit: &Value, notes: &mut Vec<String>) {
    let spec = object::child_mut(pod, "spec");
    for (list, what) in LISTS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let container_name = text_at(container, "name").to_owned();
            let resources = object::child_mut(container, "resources");
            for (from, to, word) in
                [("defaultRequest", "requests", "request"), ("default", "limits", "limit")]
            {
                let set = fill_list(resources, limit.get(from), to);
                if !set.is_empty() {
                    notes.push(format!("{} {word} for {what} {container_name}", set.join(", ")));
                }
            }
        }
    }
}

fn fill_list(resources: &mut Map<String, Value>, defaults: Option<&Value>, list: &str) -> Vec<String> {
    let Some(defaults) = defaults.and_then(Value::as_object).filter(|map| !map.is_empty()) else {
        return Vec::new();
    };
    let mut set = Vec::new();
    let own = resources.entry(list).or_insert_with(|| json!({}));
    for (name, amount) in defaults {
        if own.get(name).is_none() {
            object::set(own, name, amount.clone());
            set.push(name.clone());
        }
    }
    set
}

/// Everything in which a pod breaks a limit range.
fn faults(range: &Value, spec: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for limit in at(range, "spec.limits").and_then(Value::as_array).into_iter().flatten() {
        match text_at(limit, "type") {
            "Container" => {
                let containers =
                    LISTS.into_iter().filter_map(|(list, _)| spec.get(list)?.as_array()).flatten();
                for container in containers {
                    let own = container.get("resources").unwrap_or(&Value::Null);
                    check(limit, &amounts(own, "requests"), &amounts(own, "limits"), &mut faults);
                }
            }
            "Pod" => check(limit, &pod_sum(spec, "requests"), &pod_sum(spec, "limits"), &mut faults),
            _ => {}
        }
    }
    faults
}

fn check(limit: &Value, requests: &Amounts, limits: &Amounts, faults: &mut Vec<String>) {
    let per = text_at(limit, "type");
    for (rule, judge) in
        [("min", too_little as Judge), ("max", too_much as Judge), ("maxLimitRequestRatio", too_far as Judge)]
    {
        for (name, bound) in amounts(limit, rule) {
            let given = (requests.get(&name).copied(), limits.get(&name).copied());
            faults.extend(judge(&name, per, bound, given));
        }
    }
}

type Judge = fn(&str, &str, Quantity, (Option<Quantity>, Option<Quantity>)) -> Option<String>;

fn too_little(
    name: &str,
    per: &str,
    least: Quantity,
    (request, limit): (Option<Quantity>, Option<Quantity>),
) -> Option<String> {
    let rule = format!("minimum {name} usage per {per} is {least}");
    match (request, limit) {
        (None, _) => Some(format!("{rule}.  No request is specified")),
        (Some(request), _) if request < least => Some(format!("{rule}, but request is {request}")),
        (_, Some(limit)) if limit < least => Some(format!("{rule}, but limit is {limit}")),
        _ => None,
    }
}

fn too_much(
    name: &str,
    per: &str,
    most: Quantity,
    (request, limit): (Option<Quantity>, Option<Quantity>),
) -> Option<String> {
    let rule = format!("maximum {name} usage per {per} is {most}");
    match (request, limit) {
        (_, None) => Some(format!("{rule}.  No limit is specified")),
        (_, Some(limit)) if limit > most => Some(format!("{rule}, but limit is {limit}")),
        (Some(request), _) if request > most => Some(format!("{rule}, but request is {request}")),
        _ => None,
    }
}

fn too_far(
    name: &str,
    per: &str,
    most: Quantity,
    (request, limit): (Option<Quantity>, Option<Quantity>),
) -> Option<String> {
    let rule = format!("{name} max limit to request ratio per {per} is {most}");
    let Some(request) = request.filter(|request| request.sign() > 0) else {
        return Some(format!("{rule}, but no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|limit| limit.sign() > 0) else {
        return Some(format!("{rule}, but no limit is specified or limit is 0"));
    };
    let ratio = limit.as_float() / request.as_float();
    (ratio > most.as_float()).then(|| format!("{rule}, but provided ratio is {ratio:.6}"))
}
