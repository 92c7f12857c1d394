use serde_json::json;

use super::*;
use crate::kinds::Kinds;

/// What is wrong with the finalizers of a new object.
fn found(resource: (&str, &str, &str), finalizers: &[&str]) -> Vec<String> {
    let kinds = Kinds::builtin();
    let kind = kinds.resource(resource.0, resource.1, resource.2).unwrap();
    let object = json!({ "metadata": { "name": "x", "finalizers": finalizers } });
    validate(kind, &object, None).iter().map(ToString::to_string).collect()
}

#[test]
fn finalizers_are_named_as_a_real_server_wants() {
    let maps = ("", "v1", "configmaps");
    let plain = |text: &str| format!("metadata.finalizers[0]: Invalid value: {text:?}: {UNQUALIFIED}");
    let none = Vec::<String>::new();
    assert_eq!(found(maps, &["plain"]), [plain("plain")]);
    assert_eq!(found(maps, &["example.dev/x", "orphan", "kubernetes"]), none);
    assert_eq!(
        found(maps, &["example.dev/"]).first().unwrap(),
        "metadata.finalizers: Invalid value: \"example.dev/\": name part must be non-empty"
    );
    assert_eq!(found(maps, &["a b"]).last().unwrap(), &plain("a b"));
    assert_eq!(
        found(maps, &["orphan", "foregroundDeletion"]),
        [
            "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set"
        ]
    );
    assert!(found(maps, &["a/b/c"])[0].contains("a valid label key must consist of"));
    for group in ["apiextensions.k8s.io", "coordination.k8s.io"] {
        let resource = if group.starts_with('a') { "customresourcedefinitions" } else { "leases" };
        assert_eq!(found((group, "v1", resource), &["plain"]), none);
    }
}

#[test]
fn custom_objects_are_warned_of_new_finalizers() {
    let object = |finalizers: &[&str]| json!({ "metadata": { "finalizers": finalizers } });
    let new = object(&["plain", "with.dots", "example.dev/fine", "old"]);
    assert_eq!(
        finalizer_warnings(&new, Some(&object(&["old"]))),
        [
            "metadata.finalizers: \"plain\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers",
            "metadata.finalizers: \"with.dots\": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers",
        ]
    );
}

#[test]
fn owners_are_refused_in_the_words_of_a_real_server() {
    let mut errors = Vec::new();
    let metadata = json!({ "ownerReferences": [{ "apiVersion": "", "kind": "", "name": "", "uid": "" },
        { "apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u" },
        { "apiVersion": "events.k8s.io/v1", "kind": "Event", "name": "e", "uid": "u" }] });
    validate_owners(metadata.as_object().unwrap(), "metadata", &mut errors);
    let path = "metadata.ownerReferences";
    assert_eq!(
        errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            format!("{path}.apiVersion: Invalid value: \"\": version must not be empty"),
            format!("{path}.kind: Invalid value: \"\": must not be empty"),
            format!("{path}.name: Invalid value: \"\": must not be empty"),
            format!("{path}.uid: Invalid value: \"\": must not be empty"),
            format!(
                "{path}: Invalid value: {{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"e\",\"uid\":\"u\"}}: /v1, Kind=Event is disallowed from being an owner"
            ),
        ]
    );
}

#[test]
fn namespaces_have_finalizers_of_their_own() {
    let mut errors = Vec::new();
    let namespace = json!({ "spec": { "finalizers": ["kubernetes", "plain", "example.dev/"] } });
    validate_namespace_finalizers(&namespace, &mut errors);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts[0], format!("spec.finalizers: Invalid value: \"plain\": {UNQUALIFIED}"));
    assert_eq!(texts[1], "spec.finalizers: Invalid value: \"example.dev/\": name part must be non-empty");
}
