//! Values of field-selector paths.

use serde_json::Value;

use crate::kinds::Kind;
use crate::object;
use crate::selector::FieldSelector;
use crate::status::ApiError;

/// Refuses selectors on fields that a kind does not index.
///
/// # Errors
/// 400 with the real server's wording, which differs by kind.
pub(crate) fn check(kind: &Kind, selector: &FieldSelector) -> Result<(), ApiError> {
    for (path, ..) in &selector.terms {
        let plain = kind.is_builtin() && kind.fields.is_empty();
        let known = path == "metadata.name"
            || (path == "metadata.namespace" && (kind.namespaced || plain))
            || kind.fields.iter().any(|field| field == path);
        if !known {
            return Err(ApiError::bad_request(refusal(kind, path, plain)));
        }
    }
    Ok(())
}

fn refusal(kind: &Kind, path: &str, plain: bool) -> String {
    if plain {
        format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else if kind.is_builtin() && kind.kind == "Job" {
        format!("field label {path:?} not supported for Job")
    } else {
        format!("field label not supported: {path}")
    }
}

/// The value of a path as text; what is missing reads as the zero value of its type.
pub(crate) fn value(kind: &Kind, object: &Value, path: &str) -> String {
    if kind.is_builtin() {
        match path {
            "source" => return event_source(object),
            "status.podIP" => return pod_ip(object).to_owned(),
            // Accepted, but never indexed.
            "status.podIPs" => return String::new(),
            _ => {}
        }
    }
    let path = match path {
        "spec.host" if kind.is_builtin() => "spec.nodeName",
        "status.successful" if kind.is_builtin() => "status.succeeded",
        other => other,
    };
    match object::at(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ => match path {
            "spec.unschedulable" | "spec.hostNetwork" if kind.is_builtin() => "false".to_owned(),
            "status.replicas" | "status.succeeded" if kind.is_builtin() => "0".to_owned(),
            _ => String::new(),
        },
    }
}

fn event_source(event: &Value) -> String {
    let source = object::text_at(event, "source.component");
    if source.is_empty() { object::text_at(event, "reportingComponent") } else { source }.to_owned()
}

fn pod_ip(pod: &Value) -> &str {
    let first = object::at(pod, "status.podIPs").and_then(Value::as_array).and_then(|all| all.first());
    match object::text_at(pod, "status.podIP") {
        "" => first.map_or("", |ip| object::text_at(ip, "ip")),
        own => own,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Kinds;

    /// The refusal of a selector, `ok` if there is none.
    fn answer(group: &str, version: &str, plural: &str, path: &str) -> String {
        let kinds = Kinds::builtin();
        let selector = FieldSelector { terms: vec![(path.to_owned(), String::new(), true)] };
        match check(kinds.resource(group, version, plural).unwrap(), &selector) {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.message,
        }
    }

    #[test]
    fn kinds_index_what_a_real_server_indexes() {
        let plain = |path: &str| {
            format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        };
        for (group, version, plural, path, want) in [
            (
                "",
                "v1",
                "nodes",
                "metadata.namespace",
                "field label not supported: metadata.namespace".to_owned(),
            ),
            ("", "v1", "nodes", "spec.unschedulable", "ok".to_owned()),
            (
                "",
                "v1",
                "namespaces",
                "metadata.namespace",
                "field label not supported: metadata.namespace".to_owned(),
            ),
            ("", "v1", "namespaces", "name", "field label not supported: name".to_owned()),
            ("", "v1", "namespaces", "status.phase", "ok".to_owned()),
            ("", "v1", "pods", "spec.host", "ok".to_owned()),
            ("", "v1", "pods", "status.reason", "field label not supported: status.reason".to_owned()),
            ("", "v1", "configmaps", "metadata.namespace", "ok".to_owned()),
            ("", "v1", "persistentvolumes", "name", plain("name")),
            ("", "v1", "persistentvolumes", "metadata.namespace", "ok".to_owned()),
            ("apps", "v1", "replicasets", "status.replicas", plain("status.replicas")),
            ("apps", "v1", "statefulsets", "status.successful", plain("status.successful")),
            ("batch", "v1", "jobs", "status.successful", "ok".to_owned()),
            ("batch", "v1", "jobs", "spec.x", "field label \"spec.x\" not supported for Job".to_owned()),
            ("events.k8s.io", "v1", "events", "regarding.fieldPath", "ok".to_owned()),
            ("events.k8s.io", "v1", "events", "regarding.resourceVersion", "ok".to_owned()),
            ("events.k8s.io", "v1", "events", "source", "field label not supported: source".to_owned()),
            (
                "certificates.k8s.io",
                "v1",
                "certificatesigningrequests",
                "metadata.namespace",
                "field label not supported: metadata.namespace".to_owned(),
            ),
        ] {
            assert_eq!(answer(group, version, plural, path), want, "{plural} by {path}");
        }
    }

    #[test]
    fn missing_values_read_as_zero() {
        let kinds = Kinds::builtin();
        let pods = kinds.resource("", "v1", "pods").unwrap();
        let pod = json!({ "spec": { "nodeName": "n" }, "status": { "podIPs": [{ "ip": "10.0.0.1" }] } });
        for (path, want) in [
            ("spec.host", "n"),
            ("spec.hostNetwork", "false"),
            ("status.podIP", "10.0.0.1"),
            ("status.podIPs", ""),
            ("status.phase", ""),
        ] {
            assert_eq!(value(pods, &pod, path), want, "{path}");
        }
    }
}
