//! Requests and limits, of containers and of pods as a whole: names, amounts, defaults, sums, quality of service.

use std::collections::BTreeMap;

use neonvm_types::Quantity;
use serde_json::{Map, Value, json};

use super::{items, name};
use crate::field::{FieldError, FieldReason};
use crate::object::{at, is_word, text_at};

/// The lists of containers that can have requests and limits.
pub(super) const LISTS: [&str; 2] = ["containers", "initContainers"];

/// What can be given to a pod as a whole.
const OF_PODS: [&str; 3] = ["cpu", "hugepages-", "memory"];

pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Whether a resource has no domain, or one of Kubernetes.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether a resource is counted in whole units: those with a domain in their name.
pub(super) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && name::qualified(&format!("requests.{name}")).is_empty()
}

fn of_containers(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_page(name)
}

fn is_standard(name: &str) -> bool {
    const OTHERS: &str = "pods services replicationcontrollers resourcequotas secrets configmaps \
        persistentvolumeclaims storage requests.cpu requests.memory limits.cpu limits.memory";
    of_containers(name) || is_word(OTHERS, name)
}

fn name_faults(name: &str) -> Vec<String> {
    // The real server calls them label keys here, and qualified names elsewhere.
    let faults = name::qualified(name).into_iter();
    let mut faults: Vec<String> =
        faults.map(|fault| fault.replace("a qualified name must", "a valid label key must")).collect();
    if name.contains('/') {
        if !is_native(name) && !is_extended(name) {
            faults.push("doesn't follow extended resource name standard".to_owned());
        }
        return faults;
    }
    if faults.is_empty() && !is_standard(name) {
        faults.push("must be a standard resource type or fully qualified".to_owned());
    }
    if !of_containers(name) {
        faults.push("must be a standard resource for containers".to_owned());
    }
    faults
}

pub(super) fn amount_faults(name: &str, amount: Quantity) -> Vec<&'static str> {
    let mut faults = Vec::new();
    if amount.sign() < 0 {
        faults.push(super::NOT_NEGATIVE);
    }
    if is_extended(name) && amount.as_int().is_none() {
        faults.push("must be an integer");
    }
    faults
}

/// Whether an amount of huge pages is not a number of whole pages.
fn is_part_of_page(name: &str, amount: Quantity) -> bool {
    let Some(size) = name.strip_prefix("hugepages-") else { return false };
    let page = Quantity::parse_capped(size).and_then(Quantity::as_int).filter(|page| *page > 0);
    page.zip(amount.as_int()).is_none_or(|(page, amount)| amount % page != 0)
}

/// Claims of devices: pods of this server have none.
pub(super) fn validate_claims(spec: &Value, container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let known = items(spec, "resourceClaims");
    for (index, claim) in items(container, "resources.claims").iter().enumerate() {
        let name = text_at(claim, "name");
        if !known.iter().any(|known| text_at(known, "name") == name) {
            let field = format!("{path}.claims[{index}]");
            let detail = "must be one of the names in pod.spec.resourceClaims";
            errors.push(FieldError::with_value(FieldReason::NotFound, field, &name, detail));
        }
    }
}

pub(super) fn validate_health(pod: &Value, status: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let own =
        items(pod, "spec.containers").iter().find(|own| text_at(own, "name") == text_at(status, "name"));
    for (index, device) in items(status, "allocatedResourcesStatus").iter().enumerate() {
        let name = text_at(device, "name");
        let resources = own.and_then(|own| own.get("resources")).unwrap_or(&Value::Null);
        if !amounts(resources, "requests").contains_key(name) && !name.starts_with("claim:") {
            let detail = "must match one of the container's resource requests";
            errors.push(FieldError::invalid(format!("{path}[{index}].name"), &name, detail));
        }
    }
}

pub(crate) fn amounts(resources: &Value, list: &str) -> Amounts {
    let map = resources.get(list).and_then(Value::as_object).into_iter().flatten();
    map.filter_map(|(name, value)| Some((name.clone(), Quantity::parse_capped(value.as_str()?)?))).collect()
}

/// Parts of bytes that a container at `path` has.
pub(super) fn fractions(container: &Value, path: &str) -> Vec<String> {
    let resources = container.get("resources").unwrap_or(&Value::Null);
    let lists = ["limits", "requests"].into_iter().flat_map(|list| {
        let bytes = |name: &str| matches!(name, "memory" | "ephemeral-storage");
        let parts = amounts(resources, list)
            .into_iter()
            .filter(move |(name, amount)| bytes(name) && amount.nanos() % 1_000_000_000 != 0);
        parts.map(move |(name, amount)| (list, name, amount))
    });
    let worded = |(list, name, amount)| {
        let place = format!("{path}.resources.{list}[{name}]");
        format!("{place}: fractional byte value \"{amount}\" is invalid, must be an integer")
    };
    lists.map(worded).collect()
}

pub(super) fn validate(resources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    validate_names(resources, path, errors, |name, path, errors| {
        for fault in name_faults(name) {
            errors.push(FieldError::invalid(path, &name, &fault));
        }
    });
    validate_amounts(resources, path, errors);
}

fn validate_names(
    resources: &Value,
    path: &str,
    errors: &mut Vec<FieldError>,
    check: impl Fn(&str, &str, &mut Vec<FieldError>),
) {
    for list in ["limits", "requests"] {
        for name in resources.get(list).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            check(name, &format!("{path}.{list}[{name}]"), errors);
        }
    }
}

fn validate_amounts(resources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (limits, requests) = (amounts(resources, "limits"), amounts(resources, "requests"));
    for (list, entries) in [("limits", &limits), ("requests", &requests)] {
        for (name, amount) in entries {
            for fault in amount_faults(name, *amount) {
                let field = format!("{path}.{list}[{name}]");
                errors.push(FieldError::invalid(field, &amount.to_string(), fault));
            }
            if is_part_of_page(name, *amount) {
                let field = format!("{path}.{list}[{name}]");
                let detail = format!("{amount} is not positive integer multiple of {name}");
                errors.push(FieldError::invalid(field, &amount.to_string(), &detail));
            }
        }
    }
    let has = |wanted: fn(&str) -> bool| limits.keys().chain(requests.keys()).any(|name| wanted(name));
    if has(is_huge_page) && !has(|name| matches!(name, "cpu" | "memory")) {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
    for (name, request) in &requests {
        let whole = !is_native(name) || is_huge_page(name);
        let Some(limit) = limits.get(name) else {
            if whole {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(format!("{path}.limits"), detail));
            }
            continue;
        };
        let (relation, wrong) =
            if whole { ("equal to", request != limit) } else { ("less than or equal to", request > limit) };
        if wrong {
            let detail = format!("must be {relation} {name} limit of {limit}");
            errors.push(FieldError::invalid(format!("{path}.requests"), &request.to_string(), &detail));
        }
    }
}

pub(super) fn validate_pod(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let Some(resources) = spec.get("resources") else { return };
    let path = format!("{prefix}resources");
    validate_names(resources, &path, errors, |name, path, errors| {
        if !of_pods(name) {
            errors.push(FieldError::not_supported(path, &name, &OF_PODS));
        }
    });
    validate_amounts(resources, &path, errors);
    let (limits, requests) = (amounts(resources, "limits"), amounts(resources, "requests"));
    if resources.get("claims").is_some() {
        let detail = "claims may not be set for Resources at pod-level";
        errors.push(FieldError::forbidden(format!("{path}.claims"), detail));
        validate_claims(spec, spec, &path, errors);
    }
    for (list, whole) in [("requests", &requests), ("limits", &limits)] {
        for (name, sum) in container_sum(spec, list) {
            // Limits of containers may add up to more, but for pages, which are limited to what is requested.
            let counts = list == "requests" || is_huge_page(&name);
            if let Some(most) = whole.get(&name).filter(|most| counts && sum > **most) {
                let detail = format!("must be greater than or equal to aggregate container {list} of {sum}");
                let field = format!("{path}.{list}[{name}]");
                errors.push(FieldError::invalid(field, &most.to_string(), &detail));
            }
        }
    }
    for (index, container) in items(spec, "containers").iter().enumerate() {
        for (name, limit) in amounts(container.get("resources").unwrap_or(&Value::Null), "limits") {
            if let Some(most) = limits.get(&name).filter(|most| limit > **most) {
                let detail = format!("must be less than or equal to pod limits of {most}");
                let field = format!("{path}.containers[{index}][{name}].limits");
                errors.push(FieldError::invalid(field, &limit.to_string(), &detail));
            }
        }
    }
}

fn of_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

pub(super) fn validate_policy(
    container: &Value,
    path: &str,
    pod_restarts: &str,
    is_init: bool,
    errors: &mut Vec<FieldError>,
) {
    let path = format!("{path}.resizePolicy");
    // An init container that ends before the others start is not restarted for a resize.
    let ends = is_init && text_at(container, "restartPolicy") != "Always";
    let mut seen = Vec::new();
    for (index, policy) in items(container, "resizePolicy").iter().enumerate() {
        let (resource, restart) = (text_at(policy, "resourceName"), text_at(policy, "restartPolicy"));
        if seen.contains(&resource) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), &resource));
        }
        seen.push(resource);
        for (given, supported) in
            [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])]
        {
            if given.is_empty() {
                errors.push(FieldError::required(path.clone(), ""));
            } else if !supported.contains(&given) {
                errors.push(FieldError::not_supported(path.clone(), &given, &supported));
            }
        }
        if pod_restarts == "Never" && restart == "RestartContainer" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(path.clone(), &restart, detail));
        }
        if ends && restart == "RestartContainer" {
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            let field = format!("{path}[{index}].restartPolicy");
            errors.push(FieldError::invalid(field, &restart, detail));
        }
    }
}

/// What is limited but not requested is requested to the limit.
pub(super) fn default_requests(container: &mut Value) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if let Some(requests) = resources.entry("requests").or_insert_with(|| json!({})).as_object_mut() {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

/// A pod that is limited as a whole requests the sum of its containers, or else its limit.
pub(super) fn default_pod_requests(spec: &mut Map<String, Value>) {
    let whole = Value::Object(spec.clone());
    let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(limits) = resources.get_mut("limits").and_then(Value::as_object_mut) else { return };
    if limits.is_empty() {
        return;
    }
    for (name, sum) in container_sum(&whole, "limits").into_iter().filter(|(name, _)| is_huge_page(name)) {
        limits.entry(name).or_insert_with(|| json!(sum.to_string()));
    }
    let limits = limits.clone();
    let Some(requests) = resources.entry("requests").or_insert_with(|| json!({})).as_object_mut() else {
        return;
    };
    for (name, sum) in container_sum(&whole, "requests") {
        if matches!(name.as_str(), "cpu" | "memory") {
            requests.entry(name).or_insert_with(|| json!(sum.to_string()));
        }
    }
    for (name, limit) in limits.into_iter().filter(|(name, _)| of_pods(name)) {
        requests.entry(name).or_insert(limit);
    }
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let total = sum.get(name).map_or(*amount, |total| total.plus(*amount));
        sum.insert(name.clone(), total);
    }
}

fn raise(most: &mut Amounts, to: Amounts) {
    for (name, amount) in to {
        let higher = most.get(&name).map_or(amount, |known| (*known).max(amount));
        most.insert(name, higher);
    }
}

/// What all containers together need in `list`: those that run at the same time are added up, and each init container
/// runs beside the sidecars before it.
pub(crate) fn container_sum(spec: &Value, list: &str) -> Amounts {
    let of = |container: &Value| amounts(container.get("resources").unwrap_or(&Value::Null), list);
    let mut sum = Amounts::new();
    for container in items(spec, "containers") {
        add(&mut sum, &of(container));
    }
    let (mut sidecars, mut start) = (Amounts::new(), Amounts::new());
    for container in items(spec, "initContainers") {
        if text_at(container, "restartPolicy") == "Always" {
            add(&mut sum, &of(container));
            add(&mut sidecars, &of(container));
            raise(&mut start, sidecars.clone());
        } else {
            let mut alone = of(container);
            add(&mut alone, &sidecars);
            raise(&mut start, alone);
        }
    }
    raise(&mut sum, start);
    sum
}

/// What a pod needs in `list` (`requests`, `limits`): its own amounts before the sum of its containers, and its overhead.
pub(crate) fn pod_sum(spec: &Value, list: &str) -> Amounts {
    let mut sum = container_sum(spec, list);
    sum.extend(amounts(spec.get("resources").unwrap_or(&Value::Null), list));
    let overhead = json!({ "overhead": spec.get("overhead") });
    for (name, amount) in amounts(&overhead, "overhead") {
        // What is not limited is not limited by its overhead.
        if list == "requests" || sum.contains_key(&name) {
            add(&mut sum, &Amounts::from([(name, amount)]));
        }
    }
    sum
}

/// `Guaranteed` if every limit of CPU and memory equals its request, `BestEffort` if there are neither. What the pod has as
/// a whole counts before what its containers have.
pub(super) fn quality_class(spec: &Value) -> &'static str {
    let (mut any, mut all) = (false, true);
    let mut count = |resources: &Value| {
        for resource in ["cpu", "memory"] {
            let get = |list: &str| {
                let text = resources.get(list).and_then(|list| list.get(resource)?.as_str());
                text.and_then(Quantity::parse_capped).filter(|quantity| quantity.sign() > 0)
            };
            let (request, limit) = (get("requests"), get("limits"));
            any |= request.is_some() || limit.is_some();
            all &= limit.is_some() && request == limit;
        }
    };
    match spec.get("resources") {
        Some(own) => count(own),
        None => {
            let containers = LISTS.into_iter().flat_map(|list| items(spec, list));
            containers.for_each(|container| count(at(container, "resources").unwrap_or(&Value::Null)));
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
