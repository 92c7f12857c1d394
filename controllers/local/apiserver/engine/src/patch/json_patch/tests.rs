//! Limits of a patch.
#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn patched(document: Value, patch: Value) -> Result<Value, u16> {
    apply_json_patch(&document, &patch).map_err(|error| error.code)
}

#[test]
fn a_patch_can_neither_be_endless_nor_blow_up() {
    let operation = json!({"op": "add", "path": "/a", "value": 1});
    assert_eq!(patched(json!({}), Value::Array(vec![operation.clone(); 10_001])), Err(413));
    assert!(patched(json!({}), Value::Array(vec![operation; 10_000])).is_ok());
    let doubling = json!({"op": "copy", "from": "", "path": "/a"});
    assert_eq!(patched(json!({"x": "y"}), Value::Array(vec![doubling; 1000])), Err(422));
    let wide = json!({"op": "copy", "from": "/l", "path": "/l/-"});
    assert_eq!(patched(json!({"l": ["x".repeat(1000)]}), Value::Array(vec![wide; 100])), Err(422));
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(count).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

#[test]
fn a_patch_of_few_bytes_makes_and_moves_few_values() {
    // As the review found: each operation doubles the annotations.
    let document = json!({ "metadata": { "annotations": {} } });
    let doubling: Vec<Value> = (0..40)
        .map(|n| json!({"op": "copy", "from": "/metadata/annotations", "path": format!("/metadata/annotations/a{n}")}))
        .collect();
    let mut budget = Budget { bytes: MAX_COPIED, copied: MAX_COPIED_VALUES, moved: MAX_MOVED };
    let mut result = document;
    let ended = doubling.iter().try_for_each(|operation| apply_one(&mut result, operation, &mut budget));
    assert!(ended.is_err() && count(&result) <= MAX_COPIED_VALUES + 3, "{}", count(&result));
    // Large values there and back, and the ends of long lists.
    let wide = json!({ "a": vec![json!([]); 100_000], "l": vec![json!([]); 100_000] });
    let moves = |n: u32| {
        let (from, path) = if n.is_multiple_of(2) { ("/a", "/b") } else { ("/b", "/a") };
        json!({"op": "move", "from": from, "path": path})
    };
    assert_eq!(patched(wide.clone(), (0..10_000).map(moves).collect()), Err(422));
    for operation in
        [json!({"op": "add", "path": "/l/0", "value": 1}), json!({"op": "remove", "path": "/l/0"})]
    {
        assert_eq!(patched(wide.clone(), vec![operation; 10_000].into()), Err(422));
    }
    // What people write is far from that.
    let list = json!({ "l": vec![json!({"name": "x", "value": "y"}); 500] });
    let front = json!({"op": "move", "from": "/l/-1", "path": "/l/0"});
    assert!(patched(list, vec![front; 500].into()).is_ok());
}

proptest! {
    #[test]
    fn any_operation_on_any_document_returns(
        document in crate::patch::strategic_json(),
        op in "(add|replace|remove|move|copy|test)",
        path in "(/[ab01-]){0,3}",
        from in "(/[ab01-]){0,3}",
        value in crate::patch::strategic_json(),
    ) {
        let patch = json!([{"op": op, "path": path, "from": from, "value": value}]);
        let _ = apply_json_patch(&document, &patch);
    }

    #[test]
    fn what_was_added_can_be_tested_and_removed(key in "[a-z~/]{1,6}", value in crate::patch::strategic_json()) {
        let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        let patch = json!([
            {"op": "add", "path": path, "value": value},
            {"op": "test", "path": path, "value": value},
            {"op": "remove", "path": path},
        ]);
        prop_assert_eq!(apply_json_patch(&json!({}), &patch).unwrap(), json!({}));
    }
}
