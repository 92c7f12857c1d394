//! What the caller may do, as the API server judges it.

use std::fmt;

use futures_util::future::try_join_all;
use http::Method;
use serde_json::{Value, json};

use crate::connect::Connection;
use crate::error::Result;

/// A verb on a kind of objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    verb: String,
    group: String,
    /// Plural, perhaps with a subresource: `pods/eviction`.
    resource: String,
    /// Empty: in the whole cluster.
    namespace: String,
}

impl Right {
    pub(super) fn from_verb(verb: &str, group: &str, resource: &str, namespace: &str) -> Self {
        let [verb, group, resource, namespace] = [verb, group, resource, namespace].map(str::to_owned);
        Self { verb, group, resource, namespace }
    }

    fn review(&self) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {
            "resourceAttributes": {"group": self.group, "resource": resource, "subresource": subresource,
                "namespace": self.namespace, "verb": self.verb}}})
    }
}

impl fmt::Display for Right {
    /// `create pods/eviction in namespace a`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if self.namespace.is_empty() { Ok(()) } else { write!(f, " in namespace {}", self.namespace) }
    }
}

pub(super) async fn missing(connection: &Connection, rights: &[Right]) -> Result<Vec<Right>> {
    let reviews = rights.iter().map(|right| async move {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let response = connection.request(Method::POST, path, Some(&right.review())).await?;
        let is_allowed = response.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or_default();
        Ok::<_, crate::error::Error>((!is_allowed).then(|| right.clone()))
    });
    Ok(try_join_all(reviews).await?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_named_as_it_is_reviewed() {
        let right = Right::from_verb("create", "", "pods/eviction", "a");
        assert_eq!(right.to_string(), "create pods/eviction in namespace a");
        let attributes = right.review()["spec"]["resourceAttributes"].clone();
        assert_eq!(
            (&attributes["resource"], &attributes["subresource"]),
            (&json!("pods"), &json!("eviction"))
        );
        assert_eq!(Right::from_verb("list", "", "nodes", "").to_string(), "list nodes");
    }
}
