use serde_json::{Value, json};

use super::*;

fn texts(errors: &[FieldError]) -> Vec<String> {
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.dedup();
    texts
}

fn event() -> Value {
    json!({ "metadata": { "name": "e", "namespace": "ns" }, "eventTime": "2024-05-01T10:00:00.000000Z",
        "regarding": { "kind": "Pod", "namespace": "ns", "name": "p" }, "reason": "Started", "note": "It runs",
        "type": "Normal", "action": "Start", "reportingController": "example.dev/t", "reportingInstance": "t" })
}

/// What is wrong with an update that sets one field.
fn changed(field: &str, value: Value) -> Vec<String> {
    let (live, mut object) = (event(), event());
    object[field] = value;
    let mut errors = Vec::new();
    validate_update(&object, &live, true, &mut errors);
    texts(&errors)
}

#[test]
fn events_of_the_new_group_keep_all_but_their_series() {
    for (field, value, want) in [
        ("reason", json!("Other"), "reason: Invalid value: \"Other\": field is immutable"),
        ("note", json!("Else"), "message: Invalid value: \"Else\": field is immutable"),
        ("type", json!("Warning"), "type: Invalid value: \"Warning\": field is immutable"),
        ("action", json!("Stop"), "action: Invalid value: \"Stop\": field is immutable"),
        ("deprecatedCount", json!(3), "count: Invalid value: 3: field is immutable"),
        (
            "deprecatedSource",
            json!({ "component": "c" }),
            "source: Invalid value: {\"component\":\"c\"}: field is immutable",
        ),
        (
            "regarding",
            json!({ "kind": "Node", "namespace": "ns", "name": "p" }),
            "involvedObject: Invalid value: {\"kind\":\"Node\",\"name\":\"p\",\"namespace\":\"ns\"}: field is immutable",
        ),
        (
            "eventTime",
            json!("2024-05-01T11:00:00.000000Z"),
            "eventTime: Invalid value: \"2024-05-01T11:00:00.000000Z\": field is immutable",
        ),
        (
            "deprecatedFirstTimestamp",
            json!("2024-05-01T11:00:00Z"),
            "firstTimestamp: Invalid value: \"2024-05-01T11:00:00Z\": field is immutable",
        ),
        ("reportingInstance", json!("u"), "reportingInstance: Invalid value: \"u\": field is immutable"),
        ("series", json!({ "count": 1 }), "series.count: Invalid value: \"\": should be at least 2"),
    ] {
        let found = changed(field, value);
        assert_eq!(found.first().map(String::as_str), Some(want), "{field}: {found:?}");
    }
    let series = json!({ "count": 2, "lastObservedTime": "2024-05-01T11:00:00.000000Z" });
    assert_eq!(changed("series", series), Vec::<String>::new());
    let mut errors = Vec::new();
    validate_update(
        &json!({ "metadata": { "namespace": "ns" }, "involvedObject": { "namespace": "ns" } }),
        &event(),
        false,
        &mut errors,
    );
    assert_eq!(texts(&errors), Vec::<String>::new(), "the core group changes everything");
}

#[test]
fn new_events_are_checked_by_the_names_of_the_core_group() {
    let mut event = event();
    event["note"] = json!("x".repeat(1025));
    event["reason"] = json!("x".repeat(129));
    event["deprecatedCount"] = json!(1);
    event["deprecatedLastTimestamp"] = json!("2024-05-01T11:00:00Z");
    let mut errors = Vec::new();
    validate_new(&event, &mut errors);
    assert_eq!(
        texts(&errors),
        [
            "reason: Invalid value: \"\": can have at most 128 characters",
            "message: Invalid value: \"\": can have at most 1024 characters",
            "lastTimestamp: Invalid value: \"\": needs to be unset",
            "count: Invalid value: \"\": needs to be unset",
        ]
    );
}

#[test]
fn old_events_are_where_their_object_is() {
    let found = |namespace: &str, about: &str| {
        let mut errors = Vec::new();
        let event =
            json!({ "metadata": { "namespace": namespace }, "involvedObject": { "namespace": about } });
        validate_core(&event, &mut errors);
        texts(&errors)
    };
    assert_eq!(found("ns", "ns"), Vec::<String>::new());
    assert_eq!(found("default", ""), Vec::<String>::new());
    assert_eq!(
        found("ns", ""),
        ["involvedObject.namespace: Invalid value: \"\": does not match event.namespace"]
    );
    assert_eq!(
        found("ns", "a"),
        ["involvedObject.namespace: Invalid value: \"a\": does not match event.namespace"]
    );
}
