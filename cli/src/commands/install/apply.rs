//! Writing and removing objects, and what came of it.

use std::time::Duration;

use http::Method;
use kube::core::{ApiResource, GroupVersionKind};
use neonvm_deploy::{INVENTORY, Named, Record};
use serde_json::{Value, json};

use crate::commands::object::{condition, is_true, text};
use crate::commands::poll;
use crate::connect::Connection;
use crate::error::{Code, Error, Result};

/// Our field manager; `local up` writes definitions with the same.
const MANAGER: &str = "neonctl";
/// Time for a definition to be served.
const SERVED: Duration = Duration::from_secs(60);

/// What came of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Created,
    Changed,
    Unchanged,
    Removed,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Removed => "removed",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) named: Named,
    pub(crate) outcome: Outcome,
}

impl Change {
    pub(crate) fn row(&self) -> Vec<String> {
        vec![self.named.to_string(), self.outcome.word().to_owned()]
    }

    pub(crate) fn json(&self) -> Value {
        let Named { api_version, kind, namespace, name } = &self.named;
        json!({"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name,
            "change": self.outcome.word()})
    }
}

/// Kinds whose plural does not follow from them.
const PLURALS: [(&str, &str, &str); 1] =
    [("k8s.cni.cncf.io", "NetworkAttachmentDefinition", "network-attachment-definitions")];

fn plural(group: &str, version: &str, kind: &str) -> String {
    let known = PLURALS.iter().find(|known| (known.0, known.1) == (group, kind));
    known.map_or_else(
        || ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)).plural,
        |known| known.2.to_owned(),
    )
}

pub(crate) fn place(named: &Named) -> String {
    let (group, version) = named.api_version.split_once('/').unwrap_or(("", &named.api_version));
    let plural = plural(group, version, &named.kind);
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    match named.namespace.as_str() {
        "" => format!("{root}/{plural}"),
        namespace => format!("{root}/namespaces/{namespace}/{plural}"),
    }
}

pub(crate) fn path(named: &Named) -> String {
    format!("{}/{}", place(named), named.name)
}

/// An object that may not be there.
pub(crate) async fn get(connection: &Connection, path: &str) -> Result<Option<Value>> {
    match connection.json(path).await {
        Err(error) if error.code == Code::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// What an installation in this namespace has written down about itself.
pub(crate) async fn record(connection: &Connection, namespace: &str) -> Result<Option<Record>> {
    let map = get(connection, &format!("/api/v1/namespaces/{namespace}/configmaps/{INVENTORY}")).await?;
    Ok(map.as_ref().map(Record::read))
}

/// Applies an object; definitions are served afterwards.
pub(crate) async fn apply(connection: &Connection, object: &Value) -> Result<Change> {
    let named = Named::from_object(object);
    let before = get(connection, &path(&named)).await?;
    let after = send(connection, &named, object, "").await?;
    let version = |object: &Value| text(object, "/metadata/resourceVersion").to_owned();
    let outcome = match &before {
        None => Outcome::Created,
        Some(before) if version(before) == version(&after) => Outcome::Unchanged,
        Some(_) => Outcome::Changed,
    };
    if named.kind == "CustomResourceDefinition" {
        served(connection, &named, after).await?;
    }
    Ok(Change { named, outcome })
}

/// Installs our definitions and waits until they are in force.
pub(crate) async fn definitions(connection: &Connection) -> Result<()> {
    for crd in neonvm_api::crds() {
        apply(connection, &crd).await?;
    }
    Ok(())
}

pub(super) async fn judge(connection: &Connection, object: &Value) -> Result<Change> {
    let named = Named::from_object(object);
    let before = get(connection, &path(&named)).await?;
    let after = send(connection, &named, object, "&dryRun=All").await?;
    let plain = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
            metadata.remove("generation");
        }
        object
    };
    let outcome = match &before {
        None => Outcome::Created,
        Some(before) if plain(before) == plain(&after) => Outcome::Unchanged,
        Some(_) => Outcome::Changed,
    };
    Ok(Change { named, outcome })
}

async fn send(connection: &Connection, named: &Named, object: &Value, more: &str) -> Result<Value> {
    let path = format!("{}?fieldManager={MANAGER}&force=true&fieldValidation=Strict{more}", path(named));
    connection.request(Method::PATCH, &path, Some(object)).await.map_err(|error| {
        let is_unknown = error.code == Code::NotFound;
        let error = Error { message: format!("cannot apply {named}"), ..error };
        let hint = format!("check that the API server serves {} of {}", named.kind, named.api_version);
        if is_unknown { error.hint(hint) } else { error }
    })
}

async fn served(connection: &Connection, named: &Named, object: Value) -> Result<()> {
    let mut known = Some(object);
    let established = poll::until(SERVED, async || {
        let object = match known.take() {
            Some(object) => object,
            None => connection.json(&path(named)).await?,
        };
        if let Some(condition) = condition(&object, "NamesAccepted")
            && text(condition, "/status") == "False"
        {
            return Err(Error::new(Code::Conflict, format!("{named} is not accepted"))
                .cause(text(condition, "/message").to_owned())
                .hint("another definition uses these names; remove it first"));
        }
        Ok(is_true(&object, "Established").then_some(()))
    });
    established.await?.ok_or_else(|| {
        Error::new(Code::Timeout, format!("{named} is not served after {SERVED:?}"))
            .hint("see the conditions of the definition: kubectl describe")
    })
}

/// Removes an object; whether there was one.
pub(crate) async fn delete(connection: &Connection, named: &Named) -> Result<bool> {
    let options =
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    match connection.request(Method::DELETE, &path(named), Some(&options)).await {
        Ok(_) => Ok(true),
        Err(error) if error.code == Code::NotFound => Ok(false),
        Err(error) => Err(Error { message: format!("cannot remove {named}"), ..error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_of_an_installation_has_its_path() {
        let all = neonvm_deploy::everything().unwrap();
        let paths: Vec<String> = all.iter().map(|object| path(&Named::from_object(object))).collect();
        for wanted in [
            "/api/v1/namespaces/neonvm-system",
            "/apis/apps/v1/namespaces/neonvm-system/daemonsets/neonvm-vxlan-controller",
            "/apis/k8s.cni.cncf.io/v1/namespaces/neonvm-system/network-attachment-definitions/neonvm-overlay-for-vms",
            "/apis/networking.k8s.io/v1/namespaces/neonvm-system/networkpolicies/neonvm-agent",
        ] {
            assert!(paths.iter().any(|path| path == wanted), "{wanted} is not among {paths:#?}");
        }
    }
}
