//! In which form objects are shown.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::media::Accepted;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Form<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) accepted: Accepted,
    /// `includeObject` of tables: `None`, `Metadata` (default) or `Object`.
    pub(crate) include: &'a str,
    pub(crate) now: Timestamp,
}

/// The annotation of the bookmark that ends the initial events of a watch.
pub(crate) const INITIAL_END: &str = "k8s.io/initial-events-end";

pub(crate) fn metadata_only(value: &Value, version: &str) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": value.get("metadata").cloned().unwrap_or_else(|| json!({})) })
}
