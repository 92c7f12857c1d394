//! Reading what the checks judge.

use std::collections::BTreeSet;

use http::Method;
use neonvm_deploy::Named;
use serde_json::{Value, json};

use super::Facts;
use crate::commands::health::{Part, hooks};
use crate::commands::install::apply::{get, place};
use crate::commands::object::{items, text};
use crate::commands::rights::{self, Right};
use crate::connect::Connection;
use crate::error::{Code, Error, Result};

/// Where networks write down their MTU: flannel, Calico, Cilium.
const NETWORKS: [&str; 3] = [
    "kube-flannel/configmaps/kube-flannel-cfg",
    "kube-system/configmaps/calico-config",
    "kube-system/configmaps/cilium-config",
];

/// Reads all of it. `objects` are those that an installation applies.
pub(in crate::commands) async fn read(
    connection: &Connection,
    version: &str,
    namespace: &str,
    objects: &[Value],
) -> Result<Facts> {
    let controllers =
        "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fname%3Dneonvm-vm-controller";
    let space = format!("/api/v1/namespaces/{namespace}");
    let wanted = wanted(objects);
    let (space, nodes, has_image_volumes, missing, controllers, hooks, definitions, networks, multus) = tokio::try_join!(
        readable(get(connection, &space)),
        part(connection, "/api/v1/nodes", "list nodes"),
        kept_images(connection),
        rights::missing(connection, &wanted),
        part(connection, controllers, "list deployments"),
        hooks(connection),
        definitions(connection),
        networks(connection),
        readable(get(connection, "/apis/k8s.cni.cncf.io/v1")),
    )?;
    let has_hook_service = hook_service(connection, &hooks).await?;
    Ok(Facts {
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        space,
        nodes,
        has_image_volumes,
        missing,
        controllers,
        hooks,
        has_hook_service,
        definitions,
        networks,
        has_multus: multus.is_some(),
        wants_multus: false,
        wants_upstream_agents: false,
        copies_root_disks: false,
    })
}

/// Nothing where something may not be read.
async fn readable<T>(found: impl Future<Output = Result<Option<T>>>) -> Result<Option<T>> {
    match found.await {
        Err(error) if error.code == Code::Denied => Ok(None),
        found => found,
    }
}

async fn part(connection: &Connection, path: &str, right: &str) -> Result<Part> {
    match items(connection, path).await {
        Err(error) if error.code == Code::Denied => {
            Ok(Part::Unread(format!("you lack permission to {right}")))
        }
        Err(error) if error.code == Code::NotFound => Ok(Part::default()),
        found => found.map(Part::Read),
    }
}

/// Whatever is applied must be read, made and changed.
fn wanted(objects: &[Value]) -> Vec<Right> {
    let mut wanted: BTreeSet<Right> = BTreeSet::new();
    for object in objects {
        let named = Named::from_object(object);
        let plural = place(&named).rsplit('/').next().unwrap_or_default().to_owned();
        for verb in ["get", "create", "patch"] {
            wanted.insert(Right::from_verb(verb, named.group(), &plural, &named.namespace));
        }
    }
    wanted.into_iter().collect()
}

/// Whether the API server and all nodes have image volumes; none: it cannot be found out.
pub(in crate::commands) async fn image_volumes(connection: &Connection) -> Result<Option<bool>> {
    let nodes = part(connection, "/api/v1/nodes", "list nodes");
    let (kept, nodes) = tokio::try_join!(kept_images(connection), nodes)?;
    let lacks = match &nodes {
        Part::Read(nodes) => nodes.iter().any(super::nodes::lacks_image_volumes),
        Part::Unread(_) => false,
    };
    Ok(if lacks { Some(false) } else { kept })
}

/// Whether the server keeps a volume of an image: without the feature it drops the field.
async fn kept_images(connection: &Connection) -> Result<Option<bool>> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "neonvm-preflight"}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v", "image": {"reference": "i"}}]}});
    let path = "/api/v1/namespaces/default/pods?dryRun=All";
    Ok(keeps_images(connection.request(Method::POST, path, Some(&pod)).await))
}

/// What the response to such a pod shows; none if something else is in the way, such as a policy, a quota or rights.
fn keeps_images(response: Result<Value>) -> Option<bool> {
    match response {
        Ok(pod) => Some(pod.pointer("/spec/volumes/0/image").is_some()),
        Err(Error { code: Code::Usage, causes, .. }) => {
            causes.iter().any(|cause| cause.contains("spec.volumes[0]")).then_some(false)
        }
        Err(_) => None,
    }
}

async fn definitions(connection: &Connection) -> Result<Part> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let ours: Vec<String> =
        neonvm_api::crds().iter().map(|crd| text(crd, "/metadata/name").to_owned()).collect();
    let is_ours = |crd: &Value| ours.iter().any(|name| name == text(crd, "/metadata/name"));
    Ok(match part(connection, path, "list customresourcedefinitions").await? {
        Part::Read(all) => Part::Read(all.into_iter().filter(is_ours).collect()),
        unread @ Part::Unread(_) => unread,
    })
}

async fn networks(connection: &Connection) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for path in NETWORKS {
        found.extend(readable(get(connection, &format!("/api/v1/namespaces/{path}"))).await?);
    }
    Ok(found)
}

/// Whether the service that the webhooks name exists.
async fn hook_service(connection: &Connection, hooks: &Part) -> Result<Option<bool>> {
    let Some((namespace, name)) = super::leftovers::service(hooks) else { return Ok(None) };
    match get(connection, &format!("/api/v1/namespaces/{namespace}/services/{name}")).await {
        Err(error) if error.code == Code::Denied => Ok(None),
        found => Ok(Some(found?.is_some())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_image_volumes_drops_or_refuses_them() {
        let pod = |volume: Value| Ok(json!({"spec": {"volumes": [volume]}}));
        assert_eq!(keeps_images(pod(json!({"name": "v", "image": {"reference": "i"}}))), Some(true));
        assert_eq!(keeps_images(pod(json!({"name": "v"}))), Some(false));
        let refused = |cause: &str| keeps_images(Err(Error::new(Code::Usage, "refused").cause(cause)));
        assert_eq!(refused("spec.volumes[0]: Required value"), Some(false));
        assert_eq!(refused("a policy forbids it"), None);
        assert_eq!(keeps_images(Err(Error::new(Code::Denied, "no"))), None);
    }

    #[test]
    fn each_kind_is_read_made_and_changed_where_it_is() {
        let objects = [
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "b", "namespace": "n"}}),
        ];
        let shown: Vec<String> = wanted(&objects).iter().map(ToString::to_string).collect();
        let wanted = ["create", "get", "patch"].map(|verb| format!("{verb} deployments in namespace n"));
        assert_eq!(shown, wanted);
    }
}
