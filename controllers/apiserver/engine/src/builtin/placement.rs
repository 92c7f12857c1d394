//! Where a pod may run: selectors, affinity, spread, tolerations, gates.

use serde_json::{Map, Value, json};

use super::{items, meta, name, number, one_of, required};
use crate::field::FieldError;
use crate::object::{at, text_at};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The fields of the pod spec at `prefix` that choose its node.
pub(super) fn validate(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    meta::validate_labels(spec.get("nodeSelector"), &format!("{prefix}nodeSelector"), errors);
    validate_affinity(spec, &format!("{prefix}affinity"), errors);
    let mut gates = Vec::new();
    for (index, gate) in items(spec, "schedulingGates").iter().enumerate() {
        let (path, gate) = (format!("{prefix}schedulingGates[{index}]"), text_at(gate, "name"));
        check_key(gate, &path, errors);
        if gates.contains(&gate) {
            errors.push(FieldError::duplicate(path, &json!(gate)));
        }
        gates.push(gate);
    }
    validate_spread(spec, prefix, errors);
    for (index, toleration) in items(spec, "tolerations").iter().enumerate() {
        validate_toleration(toleration, &format!("{prefix}tolerations[{index}]"), errors);
    }
}

fn check_key(key: &str, path: &str, errors: &mut Vec<FieldError>) {
    for fault in name::qualified(key) {
        errors.push(FieldError::invalid(path, &json!(key), &fault));
    }
}

/// Refuses an effect that no taint has.
pub(super) fn check_effect(holder: &Value, path: &str, errors: &mut Vec<FieldError>) {
    one_of(holder, &format!("{path}."), "effect", &EFFECTS, errors);
}

fn validate_toleration(toleration: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let get = |key: &str| text_at(toleration, key);
    let (key, operator, value, effect) = (get("key"), get("operator"), get("value"), get("effect"));
    let field = format!("{path}.operator");
    if !key.is_empty() {
        check_key(key, &format!("{path}.key"), errors);
    } else if operator != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(field.clone(), &json!(operator), detail));
    }
    if number(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid(format!("{path}.effect"), &json!(effect), detail));
    }
    match operator {
        "" | "Equal" => {
            let faults = name::label_value(value);
            if !faults.is_empty() {
                errors.push(FieldError::invalid(field, &json!(value), &faults.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(field, &json!(value), detail));
        }
        "Exists" => {}
        other => {
            let known = ["Equal", "Exists", "Lt", "Gt"];
            let known = if known.contains(&other) { &known[..] } else { &known[..2] };
            errors.push(FieldError::not_supported(field, &json!(other), known));
        }
    }
    if !effect.is_empty() {
        check_effect(toleration, path, errors);
    }
}

/// A `metav1.LabelSelector` at `path`.
pub(super) fn validate_selector(selector: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    let Some(selector) = selector else { return };
    meta::validate_labels(selector.get("matchLabels"), &format!("{path}.matchLabels"), errors);
    for (index, term) in items(selector, "matchExpressions").iter().enumerate() {
        validate_requirement(term, false, true, &format!("{path}.matchExpressions[{index}]"), errors);
    }
}

/// A requirement of a selector; those of nodes compare numbers as well.
fn validate_requirement(
    term: &Value,
    of_nodes: bool,
    strict: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let (operator, values) = (text_at(term, "operator"), items(term, "values"));
    let field = format!("{path}.values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(field.clone(), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(field.clone(), detail));
        }
        "Gt" | "Lt" if of_nodes && values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(field.clone(), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        "Gt" | "Lt" if of_nodes => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(format!("{path}.operator"), &json!(other), detail));
        }
    }
    check_key(text_at(term, "key"), &format!("{path}.key"), errors);
    for (index, value) in values.iter().enumerate().filter(|_| strict) {
        for fault in name::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{field}[{index}]"), value, &fault));
        }
    }
}

fn validate_affinity(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    if let Some(required) = at(spec, &format!("affinity.nodeAffinity.{REQUIRED}")) {
        let path = format!("{path}.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
        let terms = items(required, "nodeSelectorTerms");
        if terms.is_empty() {
            errors.push(FieldError::required(path.clone(), "must have at least one node selector term"));
        }
        for (index, term) in terms.iter().enumerate() {
            validate_node_term(term, true, &format!("{path}[{index}]"), errors);
        }
    }
    for (index, term) in items(spec, &format!("affinity.nodeAffinity.{PREFERRED}")).iter().enumerate() {
        let path = format!("{path}.nodeAffinity.{PREFERRED}[{index}]");
        check_weight(term, &path, errors);
        let preference = term.get("preference").unwrap_or(&Value::Null);
        validate_node_term(preference, false, &format!("{path}.preference"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (index, term) in items(spec, &format!("affinity.{kind}.{REQUIRED}")).iter().enumerate() {
            validate_pod_term(term, &format!("{path}.{kind}.{REQUIRED}[{index}]"), errors);
        }
        for (index, term) in items(spec, &format!("affinity.{kind}.{PREFERRED}")).iter().enumerate() {
            let path = format!("{path}.{kind}.{PREFERRED}[{index}]");
            check_weight(term, &path, errors);
            let inner = term.get("podAffinityTerm").unwrap_or(&Value::Null);
            validate_pod_term(inner, &format!("{path}.podAffinityTerm"), errors);
        }
    }
}

fn check_weight(term: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let weight = number(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        let detail = "must be in the range 1-100";
        errors.push(FieldError::invalid(format!("{path}.weight"), &json!(weight), detail));
    }
}

fn validate_node_term(term: &Value, strict: bool, path: &str, errors: &mut Vec<FieldError>) {
    for (index, one) in items(term, "matchExpressions").iter().enumerate() {
        validate_requirement(one, true, strict, &format!("{path}.matchExpressions[{index}]"), errors);
    }
    for (index, one) in items(term, "matchFields").iter().enumerate() {
        validate_field_requirement(one, &format!("{path}.matchFields[{index}]"), errors);
    }
}

/// A requirement on a field of a node, of which there is only the name.
fn validate_field_requirement(term: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (operator, values) = (text_at(term, "operator"), items(term, "values"));
    if !matches!(operator, "In" | "NotIn") {
        let detail = "not a valid selector operator";
        errors.push(FieldError::invalid(format!("{path}.operator"), &json!(operator), detail));
    } else if values.len() != 1 {
        let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
        errors.push(FieldError::required(format!("{path}.values"), detail));
    }
    let key = text_at(term, "key");
    if key != "metadata.name" {
        let detail = "not a valid field selector key";
        errors.push(FieldError::invalid(format!("{path}.key"), &json!(key), detail));
        return;
    }
    for (index, value) in values.iter().enumerate() {
        for fault in name::subdomain(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{path}.values[{index}]"), value, &fault));
        }
    }
}

fn validate_pod_term(term: &Value, path: &str, errors: &mut Vec<FieldError>) {
    validate_selector(term.get("labelSelector"), &format!("{path}.labelSelector"), errors);
    validate_selector(term.get("namespaceSelector"), &format!("{path}.namespaceSelector"), errors);
    for namespace in items(term, "namespaces") {
        for fault in name::label(namespace.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{path}.namespace"), namespace, &fault));
        }
    }
    let key = text_at(term, "topologyKey");
    let field = format!("{path}.topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(field.clone(), "can not be empty"));
    }
    check_key(key, &field, errors);
}

fn validate_spread(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let all = items(spec, "topologySpreadConstraints");
    for (index, constraint) in all.iter().enumerate() {
        let path = format!("{prefix}topologySpreadConstraints[{index}]");
        let below = format!("{path}.");
        let skew = number(constraint, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.push(FieldError::invalid(format!("{path}.maxSkew"), &json!(skew), super::POSITIVE));
        }
        let (key, action) = (text_at(constraint, "topologyKey"), text_at(constraint, "whenUnsatisfiable"));
        if key.is_empty() {
            errors.push(FieldError::required(format!("{path}.topologyKey"), "can not be empty"));
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            let field = format!("{path}.whenUnsatisfiable");
            errors.push(FieldError::not_supported(field, &json!(action), &actions));
        }
        let same = |other: &Value| {
            text_at(other, "topologyKey") == key && text_at(other, "whenUnsatisfiable") == action
        };
        if all.iter().skip(index + 1).any(same) {
            let field = format!("{path}.{{topologyKey, whenUnsatisfiable}}");
            errors.push(FieldError::duplicate(field, &json!(format!("{{{key}, {action}}}"))));
        }
        validate_domains(constraint, action, &path, errors);
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            one_of(constraint, &below, policy, &["Honor", "Ignore"], errors);
        }
        validate_selector(constraint.get("labelSelector"), &format!("{path}.labelSelector"), errors);
    }
}

fn validate_domains(constraint: &Value, action: &str, path: &str, errors: &mut Vec<FieldError>) {
    let Some(least) = number(constraint, "minDomains") else { return };
    let field = format!("{path}.minDomains");
    if least <= 0 {
        errors.push(FieldError::invalid(field.clone(), &json!(least), super::POSITIVE));
    }
    if action != "DoNotSchedule" {
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        errors.push(FieldError::invalid(field, &json!(least), &detail));
    }
}

/// `dnsPolicy`, `dnsConfig` and `hostAliases` of the pod spec at `prefix`.
pub(super) fn validate_dns(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    const POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    one_of(spec, prefix, "dnsPolicy", &POLICIES, errors);
    let path = format!("{prefix}dnsConfig");
    let config = spec.get("dnsConfig");
    let servers = config.map_or(&[][..], |config| items(config, "nameservers"));
    if text_at(spec, "dnsPolicy") == "None" && servers.is_empty() {
        let (field, what) = match config {
            None => (path, "must provide `dnsConfig` when `dnsPolicy` is None"),
            Some(_) => (
                format!("{path}.nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            ),
        };
        errors.push(FieldError::required(field, what));
    } else if let Some(config) = config {
        if servers.len() > 3 {
            let field = format!("{path}.nameservers");
            errors.push(FieldError::invalid(field, &json!(servers), "must not have more than 3 nameservers"));
        }
        for (index, server) in servers.iter().enumerate() {
            if server.as_str().is_none_or(|text| text.parse::<std::net::IpAddr>().is_err()) {
                errors.push(FieldError::invalid(format!("{path}.nameservers[{index}]"), server, ADDRESS));
            }
        }
        for (index, option) in items(config, "options").iter().enumerate() {
            if text_at(option, "name").is_empty() {
                errors.push(FieldError::required(format!("{path}.options[{index}]"), "must not be empty"));
            }
        }
    }
    for (index, alias) in items(spec, "hostAliases").iter().enumerate() {
        let path = format!("{prefix}hostAliases[{index}]");
        let ip = text_at(alias, "ip");
        if ip.parse::<std::net::IpAddr>().is_err() {
            errors.push(FieldError::invalid(format!("{path}.ip"), &json!(ip), ADDRESS));
        }
        for (at, host) in items(alias, "hostnames").iter().enumerate() {
            for fault in name::subdomain(host.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid(format!("{path}.hostnames[{at}]"), host, &fault));
            }
        }
    }
}

/// Names of other objects that the pod spec at `prefix` refers to.
pub(super) fn validate_names(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    type Rule = fn(&str) -> Vec<String>;
    let rules: [(&str, Rule); 6] = [
        ("serviceAccountName", name::subdomain),
        ("nodeName", name::subdomain),
        ("hostname", name::label),
        ("subdomain", name::label),
        ("priorityClassName", name::subdomain),
        ("runtimeClassName", name::subdomain),
    ];
    for (field, rule) in rules {
        let text = text_at(spec, field);
        for fault in if text.is_empty() { Vec::new() } else { rule(text) } {
            errors.push(FieldError::invalid(format!("{prefix}{field}"), &json!(text), &fault));
        }
    }
    one_of(spec, prefix, "preemptionPolicy", &["PreemptLowerPriority", "Never"], errors);
    for (index, gate) in items(spec, "readinessGates").iter().enumerate() {
        check_key(
            text_at(gate, "conditionType"),
            &format!("{prefix}readinessGates[{index}].conditionType"),
            errors,
        );
    }
    if let Some(system) = spec.get("os") {
        if text_at(system, "name").is_empty() {
            required(system, &format!("{prefix}os."), "name", errors);
        } else if !matches!(text_at(system, "name"), "linux" | "windows") {
            let known = ["linux", "windows"];
            errors.push(FieldError::not_supported(
                format!("{prefix}os"),
                &json!(text_at(system, "name")),
                &known,
            ));
        }
    }
}

/// A security context of a pod or container at `path`.
pub(super) fn validate_security(context: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    let Some(context) = context else { return };
    let mut check = |field: String, id: i64| {
        if !(0..=i64::from(i32::MAX)).contains(&id) {
            let detail = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(field, &json!(id), detail));
        }
    };
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        if let Some(id) = number(context, field) {
            check(format!("{path}.{field}"), id);
        }
    }
    for (index, id) in items(context, "supplementalGroups").iter().enumerate() {
        check(format!("{path}.supplementalGroups[{index}]"), id.as_i64().unwrap_or(0));
    }
    let below = format!("{path}.");
    one_of(context, &below, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], errors);
    one_of(context, &below, "procMount", &["Default", "Unmasked"], errors);
    let Some(profile) = context.get("seccompProfile") else { return };
    let below = format!("{path}.seccompProfile.");
    let kind = text_at(profile, "type");
    if kind.is_empty() {
        let detail = "type is required when seccompProfile is set";
        errors.push(FieldError::required(format!("{below}type"), detail));
    } else {
        one_of(profile, &below, "type", &["Localhost", "RuntimeDefault", "Unconfined"], errors);
    }
    let field = format!("{below}localhostProfile");
    match (kind, profile.get("localhostProfile").and_then(Value::as_str)) {
        ("Localhost", None) => {
            errors.push(FieldError::required(field, "must be set when seccomp type is Localhost"));
        }
        ("Localhost", Some(file)) => super::volume::source::check_descending(file, &field, errors),
        _ => {}
    }
}

/// Whether an object is there and has no entries.
pub(super) fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}
