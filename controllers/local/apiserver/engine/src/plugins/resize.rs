//! A resize against what is around the pod: its node, and the quotas of its namespace.

use neonvm_types::Quantity;
use serde_json::{Value, json};

use crate::admission::Halt;
use crate::builtin::resize::changes;
use crate::builtin::resources::{Amounts, amounts, pod_sum};
use crate::engine::Engine;
use crate::object::{self, at, name, text_at};
use crate::status::ApiError;
use crate::store::key_of;
use crate::write::Write;

/// What a node must be able to do, by the part of the spec that a resize changes.
const FEATURES: [(&str, &str); 2] = [
    ("resources", "InPlacePodLevelResourcesVerticalScaling"),
    ("initContainers", "InPlacePodVerticalScalingInitContainers"),
];

impl Write<'_> {
    /// Holds a valid resize against the node of the pod.
    pub(crate) fn admit_resize(&self, engine: &Engine, pod: &Value, live: &Value) -> Result<(), ApiError> {
        if self.target.subresource != "resize" {
            return Ok(());
        }
        let node = text_at(live, "spec.nodeName");
        if node.is_empty() || !changes(pod, live) {
            return Ok(());
        }
        let found = engine.value("/nodes", &key_of("", node));
        let fault = match found {
            Some(found) => unfit(&found, pod, live),
            None => Some(("", format!("node {node:?} not found"))),
        };
        let Some((cause, why)) = fault else { return Ok(()) };
        let mut error = ApiError::forbidden(self.subject(name(pod)), &why);
        if let Some(details) = error.details.as_mut().filter(|_| !cause.is_empty()) {
            details.insert("causes".into(), json!([{ "reason": cause }]));
        }
        Err(error)
    }

    /// Charges what a resize adds to the quotas of the namespace whose status is filled in; nothing is given back here.
    pub(crate) fn charge_quotas(&self, engine: &mut Engine, pod: &Value, live: &Value) -> Result<(), Halt> {
        if self.target.subresource != "resize"
            || matches!(text_at(live, "status.phase"), "Succeeded" | "Failed")
        {
            return Ok(());
        }
        let Some(kind) = engine.kinds.resource("", "v1", "resourcequotas").cloned() else { return Ok(()) };
        let (before, after) = (usage(live), usage(pod));
        let mut charged = Vec::new();
        for mut quota in engine.values_in(&kind.table, &self.target.namespace) {
            // Scopes choose among pods; no part of the system keeps such a quota's status here.
            if at(&quota, "spec.scopes").or_else(|| at(&quota, "spec.scopeSelector")).is_some() {
                continue;
            }
            let more = added(&quota, &before, &after);
            if more.is_empty() {
                continue;
            }
            if let Some(why) = exceeded(&quota, &more) {
                return Err(ApiError::forbidden(self.subject(name(pod)), &why).into());
            }
            let used = used(&quota);
            let status = object::child_mut(&mut quota, "status");
            let list = status.entry("used").or_insert_with(|| json!({}));
            for (key, amount) in &more {
                object::set(
                    list,
                    key,
                    json!(used.get(key).map_or(*amount, |used| used.plus(*amount)).to_string()),
                );
            }
            charged.push(quota);
        }
        if !self.options.dry_run {
            for quota in charged {
                let key = key_of(&self.target.namespace, name(&quota));
                engine.put(&kind, &key, quota);
            }
        }
        Ok(())
    }
}

/// Why a resize cannot be done on a node: the reason of the cause, and the message.
fn unfit(node: &Value, pod: &Value, live: &Value) -> Option<(&'static str, String)> {
    let labels = at(node, "metadata.labels").unwrap_or(&Value::Null);
    let system = labels.get("kubernetes.io/os").and_then(Value::as_str).unwrap_or("linux");
    let node_name = name(node);
    if system != "linux" {
        let why = format!("pod resize is only supported on linux nodes, node {node_name:?} is {system:?}");
        return Some(("UnsupportedPlatform", why));
    }
    let declared = object::strings(at(node, "status.declaredFeatures"));
    let part = |pod: &Value, key: &str| at(pod, "spec").and_then(|spec| spec.get(key)).cloned();
    let lacking: Vec<&str> = FEATURES
        .into_iter()
        .filter(|(key, feature)| part(pod, key) != part(live, key) && !declared.contains(feature))
        .map(|(_, feature)| feature)
        .collect();
    if !lacking.is_empty() {
        let lacking = lacking.join(", ");
        let why =
            format!("pod update requires features {lacking} which are not available on node {node_name:?}");
        return Some(("", why));
    }
    let allocatable = amounts(at(node, "status").unwrap_or(&Value::Null), "allocatable");
    let requests = pod_sum(pod.get("spec").unwrap_or(&Value::Null), "requests");
    let rounded =
        [("cpu", Quantity::milli_rounded_up as fn(Quantity) -> i128), ("memory", Quantity::units_rounded_up)];
    let short: Vec<String> = rounded
        .into_iter()
        .filter_map(|(name, shown)| {
            let zero = Quantity::default();
            let (request, most) = (*requests.get(name)?, allocatable.get(name).copied().unwrap_or(zero));
            (request > most)
                .then(|| format!("{name}, requested: {}, allocatable: {}", shown(request), shown(most)))
        })
        .collect();
    let why = || format!("node didn't have enough allocatable resources: {}", short.join("; "));
    (!short.is_empty()).then(|| ("NodeCapacity", why()))
}

/// What a pod uses, by the names that quotas have for it.
fn usage(pod: &Value) -> Amounts {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let (requests, limits) = (pod_sum(spec, "requests"), pod_sum(spec, "limits"));
    let mut usage = Amounts::new();
    for resource in ["cpu", "memory"] {
        if let Some(amount) = requests.get(resource) {
            usage.insert(resource.to_owned(), *amount);
            usage.insert(format!("requests.{resource}"), *amount);
        }
        if let Some(amount) = limits.get(resource) {
            usage.insert(format!("limits.{resource}"), *amount);
        }
    }
    usage
}

fn used(quota: &Value) -> Amounts {
    amounts(at(quota, "status").unwrap_or(&Value::Null), "used")
}

fn hard(quota: &Value) -> Amounts {
    amounts(at(quota, "status").unwrap_or(&Value::Null), "hard")
}

/// What a resize uses more of what the quota counts.
fn added(quota: &Value, before: &Amounts, after: &Amounts) -> Amounts {
    let hard = hard(quota);
    let zero = Quantity::default();
    let more = after.iter().filter(|(key, _)| hard.contains_key(*key));
    more.map(|(key, amount)| (key.clone(), amount.minus(before.get(key).copied().unwrap_or(zero))))
        .filter(|(_, more)| more.sign() > 0)
        .collect()
}

fn exceeded(quota: &Value, more: &Amounts) -> Option<String> {
    let (hard, used) = (hard(quota), used(quota));
    let zero = Quantity::default();
    let over = |key: &String, more: Quantity| {
        let used = used.get(key).copied().unwrap_or(zero);
        hard.get(key).is_some_and(|most| used.plus(more) > *most)
    };
    let keys: Vec<&String> =
        more.iter().filter(|(key, more)| over(key, **more)).map(|(key, _)| key).collect();
    if keys.is_empty() {
        return None;
    }
    let list = |amounts: &Amounts| -> String {
        let each = keys.iter().map(|key| format!("{key}={}", amounts.get(*key).copied().unwrap_or(zero)));
        each.collect::<Vec<_>>().join(",")
    };
    let quota_name = name(quota);
    Some(format!(
        "exceeded quota: {quota_name}, requested: {}, used: {}, limited: {}",
        list(more),
        list(&used),
        list(&hard)
    ))
}
