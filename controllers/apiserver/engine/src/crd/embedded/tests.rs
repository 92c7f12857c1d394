#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use serde_json::{Value, json};

use crate::schema::validate::{Subject, custom_with};
use crate::schema::{SchemaRef, embedded, parse};

/// A kind with an object in it, and others in a map.
fn schema() -> SchemaRef {
    let object = json!({ "type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true });
    let map = json!({ "type": "object", "additionalProperties": object });
    parse::custom(&json!({ "type": "object", "properties": { "spec": {
        "type": "object", "properties": { "one": object, "all": map } } } }))
    .unwrap()
}

/// The object, and the paths that were unknown in it.
fn coerced(spec: Value) -> Result<(Value, Vec<String>), String> {
    let schema = schema();
    let mut object = json!({ "spec": spec });
    let mut unknown = crate::schema::prune::prune(&mut object, &schema);
    unknown.extend(embedded::coerce(&mut object, &schema).map_err(|error| error.to_string())?);
    Ok((object["spec"].take(), unknown))
}

fn faults(one: Value) -> Vec<String> {
    let schema = schema();
    let object = json!({ "spec": { "one": one } });
    let embedded = super::validate(&schema, &object, "");
    let subject = Subject { object: &object, old: None, status_only: false };
    let errors = custom_with(&schema, subject, Vec::new(), embedded);
    errors.iter().map(|error| error.to_string().replacen("spec.one.", "", 1)).collect()
}

#[test]
fn metadata_of_an_embedded_object_keeps_what_its_type_has() {
    let given = json!({ "one": { "apiVersion": "v1", "kind": "Pod", "spec": { "any": 1 },
            "metadata": { "name": "", "generation": 0, "labels": {}, "creationTimestamp": null, "colour": "red",
                "ownerReferences": [{ "name": "o" }] } },
        "all": { "a": { "metadata": { "odd": 1 } } } });
    let (found, unknown) = coerced(given).unwrap();
    assert_eq!(unknown, ["spec.all[a].metadata.odd", "spec.one.metadata.colour"]);
    let owner = json!({ "apiVersion": "", "kind": "", "name": "o", "uid": "" });
    assert_eq!(
        found["one"],
        json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "any": 1 }, "metadata": { "ownerReferences": [owner] } })
    );
    assert_eq!(found["all"], json!({ "a": { "metadata": {} } }));
    assert_eq!(
        coerced(json!({ "one": { "metadata": null } })).unwrap().0,
        json!({ "one": { "metadata": {} } })
    );
}

#[test]
fn fields_of_an_embedded_object_have_their_types() {
    assert_eq!(
        coerced(json!({ "one": { "metadata": { "labels": 5 } } })).unwrap_err(),
        "spec.one.metadata: Invalid value: {\"labels\":5}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type map[string]string"
    );
    assert_eq!(
        coerced(json!({ "one": { "metadata": "m" } })).unwrap_err(),
        "spec.one.metadata: Invalid value: \"m\": json: cannot unmarshal string into Go value of type v1.ObjectMeta"
    );
    assert_eq!(
        coerced(json!({ "all": { "a": { "kind": 1 } } })).unwrap_err(),
        "spec.all[a].kind: Invalid value: 1: must be a string"
    );
}

#[test]
fn embedded_objects_are_refused_as_by_a_real_server() {
    assert_eq!(faults(json!({ "apiVersion": "v1", "kind": "Pod" })), Vec::<String>::new());
    assert_eq!(faults(json!({ "a": 1 })), ["apiVersion: Required value", "kind: Required value"]);
    assert_eq!(
        faults(json!({ "apiVersion": "", "kind": "" })),
        [
            "apiVersion: Invalid value: \"\": must not be empty",
            "kind: Invalid value: \"\": must not be empty"
        ]
    );
    assert_eq!(
        faults(json!({ "apiVersion": "a/b/c", "kind": "1x" })),
        [
            "apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            "kind: Invalid value: \"1x\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ]
    );
    let metadata = json!({ "name": "a/b", "namespace": "a.b", "generation": -1, "labels": { "k": "a b" },
        "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "" }], "finalizers": ["/f"] });
    assert_eq!(
        faults(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata })),
        [
            "metadata.name: Invalid value: \"a/b\": may not contain '/'",
            "metadata.namespace: Invalid value: \"a.b\": must not contain dots",
            "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
            "metadata.labels: Invalid value: \"a b\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            "metadata.finalizers: Invalid value: \"/f\": prefix part must be non-empty",
        ]
    );
}
