//! The three plain patch formats: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge patch.
//!
//! Each is a pure function from a document and a patch to the patched document. Error codes and texts are those of a
//! real API server. Server-side apply is not here but in [`crate::apply`].

mod json_patch;
mod merge;
mod strategic;

pub use json_patch::apply_json_patch;
pub use merge::apply_merge_patch;
pub use strategic::apply_strategic;
#[cfg(test)]
pub(crate) use strategic::tests::json as strategic_json;

use serde_json::Value;

use crate::status::ApiError;

/// Deepest nesting that a patched document may have; that of the JSON parser in front of us.
pub(crate) const MAX_DEPTH: usize = 128;

/// Whether `value` nests at most `limit` levels of lists and objects.
pub(crate) fn within_depth(value: &Value, limit: usize) -> bool {
    match value {
        Value::Object(map) => limit > 0 && map.values().all(|item| within_depth(item, limit - 1)),
        Value::Array(list) => limit > 0 && list.iter().all(|item| within_depth(item, limit - 1)),
        _ => true,
    }
}

/// 422 for a patch that is well-formed but cannot be carried out; the real server hides the cause behind this text.
fn unprocessable() -> ApiError {
    let text = "the server rejected our request due to an error in our request";
    ApiError { details: Some(Box::default()), ..ApiError::plain(422, "Invalid", text) }
}

/// 500 without a reason: how the real server lets an error of its patch library through.
fn server_error(message: impl Into<String>) -> ApiError {
    ApiError::plain(500, "", message)
}
