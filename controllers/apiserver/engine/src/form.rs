//! In which form objects are shown.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::media::Accepted;

/// Parameters of a renderer besides the objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form<'a> {
    /// The requested kind.
    pub(crate) kind: &'a Kind,
    /// Negotiated form.
    pub(crate) accepted: Accepted,
    /// `includeObject` of tables: `None`, `Metadata` (default) or `Object`.
    pub(crate) include: &'a str,
    /// For ages.
    pub(crate) now: Timestamp,
}

/// `PartialObjectMetadata` of an object.
pub(crate) fn metadata_only(value: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": value.get("metadata").cloned().unwrap_or_else(|| json!({})) })
}
