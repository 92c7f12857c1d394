//! Merge patches of JSON (RFC 7386).

use serde_json::{Map, Value};

/// Merges a patch into a value, as RFC 7386 has it.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        patch.clone_into(target);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The merge patch that turns `old` into `new`; `None` if they are equal.
#[must_use]
pub fn difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            None => drop(patch.insert(key.clone(), value.clone())),
            Some(before) => {
                if let Some(change) = difference(before, value) {
                    patch.insert(key.clone(), change);
                }
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), any::<i8>().prop_map(Value::from)];
        let tree = leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::btree_map("[a-c]", inner.clone(), 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
                prop::collection::vec(inner, 0..3).prop_map(Value::Array),
            ]
        });
        prop::collection::btree_map("[a-c]", tree, 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    #[test]
    fn equal_objects_need_no_patch() {
        assert_eq!(difference(&json!({"a": 1}), &json!({"a": 1})), None);
        assert_eq!(difference(&json!({"a": 1, "b": 2}), &json!({"b": 3})), Some(json!({"a": null, "b": 3})));
    }

    proptest! {
        #[test]
        fn the_patch_leads_from_old_to_new(old in value(), new in value()) {
            let mut target = old.clone();
            if let Some(patch) = difference(&old, &new) {
                merge(&mut target, &patch);
            }
            prop_assert_eq!(target, new);
        }
    }
}
