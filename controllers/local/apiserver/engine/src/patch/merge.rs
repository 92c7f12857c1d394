//! JSON merge patch (RFC 7386).

use serde_json::Value;

use super::{MAX_DEPTH, within_depth};
use crate::status::ApiError;

/// Merges the object `patch` into `document`: null removes a key, objects merge, everything else replaces.
///
/// # Errors
/// 400 if `patch` is not an object.
pub fn apply_merge_patch(document: &Value, patch: &Value) -> Result<Value, ApiError> {
    if !patch.is_object() {
        return Err(ApiError::bad_request("Invalid JSON Patch"));
    }
    if !within_depth(patch, MAX_DEPTH) {
        return Err(ApiError::bad_request("the patch is nested too deeply"));
    }
    let mut result = document.clone();
    json_patch::merge(&mut result, patch);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::strategic_json as any_json;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn null_removes_and_lists_are_replaced() {
        let base = json!({"data": {"x": "1", "y": "2"}, "l": [1, 2]});
        let patch = json!({"data": {"x": null, "z": "3", "none": null}, "l": [3], "n": {"a": null, "b": 1}});
        let wanted = json!({"data": {"y": "2", "z": "3"}, "l": [3], "n": {"b": 1}});
        assert_eq!(apply_merge_patch(&base, &patch).unwrap(), wanted);
        assert_eq!(apply_merge_patch(&base, &json!([])).unwrap_err().code, 400);
    }

    proptest! {
        #[test]
        fn merging_twice_is_merging_once(document in any_json(), patch in any_json()) {
            if let Ok(once) = apply_merge_patch(&document, &patch) {
                prop_assert_eq!(apply_merge_patch(&once, &patch).unwrap(), once);
            }
        }
    }
}
