//! The document of OpenAPI version 2 in the protobuf form that clients request (`openapi.v2.Document` of gnostic).
//!
//! Written from the JSON form. Vendor extensions and defaults travel as YAML text, and JSON is YAML.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::object::text_at;
use crate::proto::wire::Writer;

/// The media type of this form. An answer names it so whichever of the two names the client used.
pub(super) const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The name by which clients request it; `@` may not stand in a media type, hence the newer one.
const OLD_MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Whether an `Accept` header requests this form, before JSON.
pub(super) fn is_wanted(accept: &str) -> bool {
    accept.split(',').map(|clause| clause.split(';').next().unwrap_or("").trim()).find_map(
        |media| match media {
            MEDIA_TYPE | OLD_MEDIA_TYPE => Some(true),
            "application/json" | "application/*" | "*/*" => Some(false),
            _ => None,
        },
    ) == Some(true)
}

/// Encodes a document.
pub(super) fn encode(document: &Value) -> Bytes {
    let mut out = Writer::default();
    text(&mut out, 1, document, "swagger");
    out.message(2, |info| {
        let given = &document["info"];
        text(info, 1, given, "title");
        text(info, 2, given, "version");
    });
    out.message(8, |paths| {
        for (name, item) in members(document, "paths") {
            named(paths, 2, name, |out| path(out, item));
        }
    });
    out.message(9, |definitions| {
        for (name, node) in members(document, "definitions") {
            named(definitions, 1, name, |out| schema(out, node));
        }
    });
    Bytes::from(out.finish())
}

fn members<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text(out: &mut Writer, field: u32, value: &Value, key: &str) {
    let text = text_at(value, key);
    if !text.is_empty() {
        out.bytes(field, text.as_bytes());
    }
}

fn texts(out: &mut Writer, field: u32, value: &Value, key: &str) {
    for item in items(value, key).filter_map(Value::as_str) {
        out.bytes(field, item.as_bytes());
    }
}

fn flag(out: &mut Writer, field: u32, value: &Value, key: &str) {
    if value.get(key).and_then(Value::as_bool).unwrap_or_default() {
        out.varint(field, 1);
    }
}

/// `Named…{name, value}`
fn named(out: &mut Writer, field: u32, name: &str, fill: impl FnOnce(&mut Writer)) {
    out.message(field, |pair| {
        pair.bytes(1, name.as_bytes());
        pair.message(2, fill);
    });
}

/// `Any{yaml}`
fn any(out: &mut Writer, value: &Value) {
    out.bytes(2, value.to_string().as_bytes());
}

fn extensions(out: &mut Writer, field: u32, value: &Value) {
    let all = value.as_object().into_iter().flatten();
    for (name, value) in all.filter(|(name, _)| name.starts_with("x-")) {
        named(out, field, name, |out| any(out, value));
    }
}

fn path(out: &mut Writer, item: &Value) {
    for (field, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(given) = item.get(method) {
            out.message(field, |out| operation(out, given));
        }
    }
    items(item, "parameters").for_each(|given| out.message(9, |out| parameter(out, given)));
}

fn operation(out: &mut Writer, given: &Value) {
    text(out, 5, given, "operationId");
    texts(out, 7, given, "consumes");
    items(given, "parameters").for_each(|given| out.message(8, |out| parameter(out, given)));
    out.message(9, |responses| {
        for (code, answer) in members(given, "responses") {
            // `ResponseValue{response: Response{description}}`
            named(responses, 1, code, |out| out.message(1, |out| text(out, 1, answer, "description")));
        }
    });
    extensions(out, 13, given);
}

/// `ParametersItem{parameter: Parameter{non_body_parameter}}`
fn parameter(out: &mut Writer, given: &Value) {
    let in_query = text_at(given, "in") == "query";
    let (of_kind, type_field, unique) = if in_query { (3, 6, 20) } else { (4, 5, 19) };
    out.message(1, |out| {
        out.message(2, |out| {
            out.message(of_kind, |out| {
                flag(out, 1, given, "required");
                text(out, 2, given, "in");
                text(out, 4, given, "name");
                text(out, type_field, given, "type");
                flag(out, unique, given, "uniqueItems");
            });
        });
    });
}

fn schema(out: &mut Writer, node: &Value) {
    // Not `text_at`, for which a dot and a dollar would be part of a path.
    if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
        out.bytes(1, reference.as_bytes());
    }
    text(out, 2, node, "format");
    text(out, 4, node, "description");
    if let Some(value) = node.get("default") {
        out.message(5, |out| any(out, value));
    }
    texts(out, 19, node, "required");
    items(node, "enum").for_each(|value| out.message(20, |out| any(out, value)));
    match node.get("additionalProperties") {
        Some(Value::Bool(allowed)) => out.message(21, |out| out.varint(2, (*allowed).into())),
        Some(values) => out.message(21, |out| out.message(1, |out| schema(out, values))),
        None => {}
    }
    if node.get("type").is_some() {
        out.message(22, |out| text(out, 1, node, "type"));
    }
    if let Some(item) = node.get("items") {
        out.message(23, |out| out.message(1, |out| schema(out, item)));
    }
    if let Some(properties) =
        node.get("properties").and_then(Value::as_object).filter(|map: &&Map<_, _>| !map.is_empty())
    {
        out.message(25, |out| {
            for (name, node) in properties {
                named(out, 1, name, |out| schema(out, node));
            }
        });
    }
    extensions(out, 31, node);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MEDIA_TYPE, OLD_MEDIA_TYPE, encode, is_wanted};
    use crate::discovery::openapi;
    use crate::kinds::Kinds;
    use crate::proto::wire::{Payload, Reader};

    /// The messages (or texts) at a path of field numbers.
    fn at<'a>(bytes: &'a [u8], path: &[u32]) -> Vec<&'a [u8]> {
        let Some((first, rest)) = path.split_first() else { return vec![bytes] };
        let (mut reader, mut found) = (Reader::new(bytes), Vec::new());
        while let Some((number, payload)) = reader.next_field().unwrap() {
            if let (true, Payload::Bytes(inner)) = (number == *first, payload) {
                found.extend(at(inner, rest));
            }
        }
        found
    }

    /// The value of a `Named…` in a list of them.
    fn named<'a>(list: &[&'a [u8]], name: &str) -> &'a [u8] {
        let pair = list.iter().find(|pair| at(pair, &[1]) == [name.as_bytes()]);
        at(pair.unwrap_or_else(|| panic!("no {name}")), &[2])[0]
    }

    #[test]
    fn clients_ask_for_it_by_either_name() {
        assert!(is_wanted(OLD_MEDIA_TYPE));
        assert!(is_wanted(&format!("{MEDIA_TYPE}, */*;q=0.5")));
        assert!(!is_wanted("application/json, */*"));
        assert!(!is_wanted(""));
    }

    #[test]
    fn what_clients_look_up_is_where_they_look() {
        let document = encode(&openapi::v2(&Kinds::builtin()));
        assert_eq!(at(&document, &[1]), [b"2.0"]);

        let pod = named(&at(&document, &[9, 1]), "io.k8s.api.core.v1.Pod");
        let kinds = at(named(&at(pod, &[31]), "x-kubernetes-group-version-kind"), &[2])[0];
        let kinds: serde_json::Value = serde_json::from_slice(kinds).unwrap();
        assert_eq!(kinds, json!([{ "group": "", "version": "v1", "kind": "Pod" }]));
        let spec = named(&at(pod, &[25, 1]), "spec");
        assert_eq!(at(spec, &[1]), [b"#/definitions/io.k8s.api.core.v1.PodSpec"]);

        let spec = named(&at(&document, &[9, 1]), "io.k8s.api.core.v1.PodSpec");
        assert_eq!(at(spec, &[19]), [b"containers"]);
        let containers = named(&at(spec, &[25, 1]), "containers");
        assert_eq!(at(containers, &[22, 1]), [b"array"]);
        assert_eq!(at(containers, &[23, 1, 1]), [b"#/definitions/io.k8s.api.core.v1.Container"]);
        let key = at(named(&at(containers, &[31]), "x-kubernetes-patch-merge-key"), &[2])[0];
        assert_eq!(key, b"\"name\"");

        let path = named(&at(&document, &[8, 2]), "/api/v1/namespaces/{namespace}/pods/{name}");
        let patch = at(path, &[8])[0];
        assert_eq!(at(named(&at(patch, &[13]), "x-kubernetes-action"), &[2]), [b"\"patch\""]);
        // ParametersItem → Parameter → NonBodyParameter → QueryParameterSubSchema → name
        assert!(at(patch, &[8, 1, 2, 3, 4]).contains(&&b"dryRun"[..]));
        assert_eq!(at(path, &[9, 1, 2, 4, 4]), [b"namespace"]);
    }

    #[test]
    fn types_have_their_own_descriptions_and_primitive_forms() {
        let document = openapi::v2(&Kinds::builtin());
        let of = |name: &str| &document["definitions"][name];
        let strategy = of("io.k8s.api.apps.v1.DeploymentStrategy")["description"].as_str().unwrap();
        assert!(strategy.starts_with("DeploymentStrategy describes"), "{strategy}");
        assert_eq!(of("io.k8s.apimachinery.pkg.api.resource.Quantity")["type"], "string");
        assert_eq!(of("io.k8s.apimachinery.pkg.util.intstr.IntOrString")["format"], "int-or-string");
    }
}
