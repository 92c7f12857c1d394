//! What indexes need of a stored object, read without the rest of it.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

#[derive(Deserialize)]
#[serde(bound = "M: Deserialize<'de> + Default")]
struct Object<M> {
    #[serde(default)]
    metadata: M,
}

/// The metadata of the object in `json`, as far as `M` has fields for it; the rest is passed over.
///
/// # Errors
/// If it is no JSON, or the metadata have other types.
pub(crate) fn metadata<'a, M: Deserialize<'a> + Default>(json: &'a [u8]) -> Result<M, serde_json::Error> {
    serde_json::from_slice::<Object<M>>(json).map(|object| object.metadata)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Head<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Owner {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl<'a> Head<'a> {
    /// Of the JSON of an object. Its metadata was decoded when it was written, so it has the types that are expected here; JSON
    /// without such metadata has no identity and no owners.
    pub(crate) fn read(json: &'a [u8]) -> Self {
        metadata(json).unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(crate) fn finalizers(&self) -> &[String] {
        self.finalizers.as_deref().unwrap_or_default()
    }

    pub(crate) fn owners(&self) -> &[Owner] {
        self.owner_references.as_deref().unwrap_or_default()
    }

    pub(crate) fn owner_uids(self) -> Vec<String> {
        self.owner_references.unwrap_or_default().into_iter().map(|owner| owner.uid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_an_object_is_passed_over() {
        let json = br#"{"apiVersion":"v1","data":{"metadata":{"uid":"no"}},"kind":"X","metadata":{"deletionTimestamp":"t",
            "finalizers":["a"],"labels":{"uid":"no"},"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"o",
            "controller":true}],"uid":"u\u0031"},"spec":[1,{"x":null}]}"#;
        let head = Head::read(json);
        assert_eq!((head.uid(), head.is_deleting(), head.finalizers()), ("u1", true, &["a".to_owned()][..]));
        assert_eq!(head.owners().iter().map(|owner| owner.kind.as_str()).collect::<Vec<_>>(), ["K"]);
        assert_eq!(head.owner_uids(), ["o"]);
        let bare = Head::read(br#"{"metadata":{"uid":"u","finalizers":null,"deletionTimestamp":null}}"#);
        assert_eq!((bare.uid(), bare.is_deleting(), bare.owners().len()), ("u", false, 0));
        assert_eq!(Head::read(b"{").uid(), "");
    }
}
