use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::{ListType, SchemaRef};

/// Arbitrary JSON with few distinct keys, so that documents and patches meet.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0i64..3).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        4 => "[ab01]",
        1 => Just("name".to_owned()),
        1 => prop_oneof![Just("$patch"), Just("$retainKeys"), Just("$setElementOrder/a"), Just("$deleteFromPrimitiveList/a")]
            .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn object(properties: Vec<(&str, Schema)>) -> Schema {
    let properties =
        properties.into_iter().map(|(key, node)| (key.to_owned(), SchemaRef::new(node))).collect();
    Schema { properties, ..Schema::any() }
}

fn list(key: Option<&str>, items: Schema) -> Schema {
    let patch = PatchStrategy { merge: true, retain_keys: false, merge_key: key.map(str::to_owned) };
    let list_type = key.map_or(ListType::Set, |key| ListType::Map(vec![key.to_owned()]));
    Schema { patch, list_type, items: Some(SchemaRef::new(items)), ..Schema::any() }
}

fn pod() -> Schema {
    let container = object(vec![("env", list(Some("name"), object(vec![])))]);
    object(vec![("containers", list(Some("name"), container)), ("set", list(None, Schema::any()))])
}

fn names(value: &Value) -> Vec<&str> {
    value["containers"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

fn patched(document: &Value, patch: &Value) -> Value {
    apply_strategic(document, patch, &pod()).unwrap()
}

#[test]
fn items_merge_by_key_and_new_ones_go_in_front() {
    let base = json!({"containers": [{"name": "one", "image": "1"}, {"name": "two", "image": "2"}]});
    let merged = patched(&base, &json!({"containers": [{"name": "two", "image": "3"}]}));
    assert_eq!(merged["containers"][1], json!({"name": "two", "image": "3"}));
    let merged = patched(&merged, &json!({"containers": [{"name": "three"}]}));
    assert_eq!(names(&merged), ["three", "one", "two"]);
    let merged = patched(&merged, &json!({"containers": [{"name": "three", "$patch": "delete"}]}));
    assert_eq!(names(&merged), ["one", "two"]);
    let merged =
        patched(&merged, &json!({"$setElementOrder/containers": [{"name": "two"}, {"name": "one"}]}));
    assert_eq!(names(&merged), ["two", "one"]);
    let merged = patched(&merged, &json!({"containers": [{"name": "solo"}, {"$patch": "replace"}]}));
    assert_eq!(names(&merged), ["solo"]);
}

#[test]
fn patched_items_stay_behind_untouched_ones_that_preceded_them() {
    let base = json!({"containers": [{"name": "A"}, {"name": "B"}]});
    let merged = patched(&base, &json!({"containers": [{"name": "B", "x": 1}, {"name": "C"}]}));
    assert_eq!(names(&merged), ["A", "B", "C"]);
}

#[test]
fn scalars_merge_as_a_set() {
    let merged = patched(&json!({"set": ["a"]}), &json!({"set": ["b", "a"]}));
    assert_eq!(merged["set"], json!(["b", "a"]));
    let merged = patched(&merged, &json!({"$deleteFromPrimitiveList/set": ["a"]}));
    assert_eq!(merged["set"], json!(["b"]));
}

#[test]
fn maps_know_directives() {
    let base = json!({"m": {"a": 1, "b": 2}});
    assert_eq!(patched(&base, &json!({"m": {"a": null, "c": 3}})), json!({"m": {"b": 2, "c": 3}}));
    assert_eq!(patched(&base, &json!({"m": {"$patch": "replace", "c": 3}})), json!({"m": {"c": 3}}));
    assert_eq!(patched(&base, &json!({"m": {"$patch": "delete"}})), json!({"m": {}}));
    assert_eq!(patched(&base, &json!({"m": {"$retainKeys": ["c"], "c": 3}})), json!({"m": {"c": 3}}));
    let error = |patch: Value| apply_strategic(&base, &patch, &pod()).unwrap_err();
    assert_eq!(error(json!({"m": {"$retainKeys": ["a"], "c": 3}})).code, 400);
    for bad in [
        json!({"m": {"$patch": "explode"}}),
        json!({"containers": [{"image": "x"}]}),
        json!({"containers": [{"name": "x", "$patch": "explode"}]}),
    ] {
        let error = error(bad);
        assert_eq!((error.code, error.reason), (500, ""));
    }
}

proptest! {
    #[test]
    fn any_patch_on_any_document_returns(document in json(), patch in json()) {
        let schema = object(vec![
            ("a", list(Some("name"), object(vec![("a", list(None, Schema::any()))]))),
            ("b", list(None, Schema::any())),
        ]);
        let _ = apply_strategic(&document, &patch, &schema);
    }

    #[test]
    fn an_empty_patch_changes_nothing(document in json().prop_filter("object", Value::is_object)) {
        prop_assert_eq!(apply_strategic(&document, &json!({}), &pod()).unwrap(), document);
    }
}

#[test]
fn lists_of_many_items_and_deep_directives_cost_what_their_size_does() {
    let schema = object(vec![("set", list(None, Schema::any())), ("map", list(Some("name"), Schema::any()))]);
    let texts = |from: usize| (from..from + 80_000).map(|n| json!(n.to_string())).collect::<Vec<_>>();
    let named = |from: usize| texts(from).into_iter().map(|name| json!({ "name": name })).collect::<Vec<_>>();
    let live = json!({ "set": texts(0), "map": named(0) });
    let patch = json!({ "set": texts(40_000), "map": named(40_000) });
    let merged = apply_strategic(&live, &patch, &schema).unwrap();
    assert_eq!(merged["set"].as_array().unwrap().len(), 120_000);
    assert_eq!(merged["map"].as_array().unwrap().len(), 120_000);
    let gone: Vec<Value> =
        named(0).into_iter().map(|item| json!({ "name": item["name"], "$patch": "delete" })).collect();
    let patch =
        json!({ "map": gone, "$deleteFromPrimitiveList/set": texts(0), "$setElementOrder/set": texts(0) });
    assert_eq!(apply_strategic(&live, &patch, &schema).unwrap(), json!({ "map": [], "set": [] }));
    // A copy of the rest at each level would be a hundred of this.
    let mut deep = json!({ "values": vec![0; 200_000] });
    for _ in 0..100 {
        deep = json!({ "$patch": "merge", "inner": deep });
    }
    assert!(apply_strategic(&json!({}), &deep, &schema).is_ok());
}
