//! Reading what checks judge, and where the services are installed.

use std::collections::BTreeSet;
use std::time::Instant;

use futures_util::future::try_join_all;
use http::Method;
use jiff::Timestamp;
use kube::client::Body;
use neonvm_api::names::SYSTEM_NAMESPACE;
use neonvm_deploy::{INVENTORY, Named};
use serde_json::{Value, json};

use super::facts::{Clock, Facts, Part, Request, Source, ours};
use crate::commands::install::apply::{get, place};
use crate::commands::object::{items, text};
use crate::commands::rights::{self, Right};
use crate::connect::Connection;
use crate::error::{Code, Error, Result};

/// Asks for the server's version, which shows its clock as well.
pub(crate) async fn clock(connection: &Connection) -> Result<Clock> {
    Ok(server(connection).await?.0)
}

async fn server(connection: &Connection) -> Result<(Clock, String)> {
    let request = http::Request::get("/version").body(Body::empty());
    let request =
        request.map_err(|error| Error::new(Code::Failed, "bad request").cause(error.to_string()))?;
    let (begun, before) = (Instant::now(), Timestamp::now());
    let client = connection.client();
    let answer = connection.within("cannot query the cluster", client.send(request)).await?;
    let latency = begun.elapsed();
    let date = answer.headers().get(http::header::DATE).and_then(|value| value.to_str().ok());
    let server = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()).map(|time| time.timestamp());
    let body = answer.into_body().collect_bytes().await.unwrap_or_default();
    let version: Value = serde_json::from_slice(&body).unwrap_or_default();
    let clock = Clock { server, own: before.checked_add(latency / 2).unwrap_or(before), latency };
    Ok((clock, text(&version, "/gitVersion").to_owned()))
}

/// Version and clock of a cluster, and where its services are.
pub(crate) async fn begin(connection: &Connection, namespace: &str) -> Result<Facts> {
    let (clock, version) = server(connection).await?;
    Ok(Facts { version, clock, namespace: namespace.to_owned(), ..Facts::default() })
}

/// Reads these sources, all at once.
pub(crate) async fn more(connection: &Connection, facts: &mut Facts, sources: &[Source]) -> Result<()> {
    let namespace = facts.namespace.clone();
    let parts = try_join_all(sources.iter().map(|source| {
        let requests = source.requests(&namespace);
        async move { part(connection, &requests).await }
    }));
    for (source, part) in sources.iter().zip(parts.await?) {
        facts.put(*source, part);
    }
    if sources.contains(&Source::Definitions) {
        let ours = ours();
        facts.retain(Source::Definitions, |crd| ours.contains(text(crd, "/metadata/name")));
        if facts.missing(Source::Definitions).is_some() {
            facts.served = served(connection).await?;
        }
    }
    if sources.contains(&Source::ImageVolumes) {
        facts.keeps_image_volumes = kept_images(connection).await?;
    }
    if sources.contains(&Source::HookService) {
        facts.has_hook_service = hook_service(connection, facts).await?;
    }
    Ok(())
}

/// Objects of several requests together; one that may not be read stands for all.
async fn part(connection: &Connection, requests: &[Request]) -> Result<Part> {
    let mut all = Vec::new();
    for Request { path, right, kind } in requests {
        let object = match connection.json(path).await {
            Err(error) if error.code == Code::Denied => {
                return Ok(Part::Unread(format!("you lack permission to {right}")));
            }
            // The namespace, or the kind, does not exist.
            Err(error) if error.code == Code::NotFound => continue,
            found => found?,
        };
        let mut found = vec![object];
        if let Some(list) =
            found.first_mut().and_then(|one| one.get_mut("items")).and_then(Value::as_array_mut)
        {
            found = std::mem::take(list);
        }
        for object in &mut found {
            if let (Some(kind), Some(map)) = (kind, object.as_object_mut()) {
                map.insert("kind".to_owned(), json!(kind));
            }
        }
        all.extend(found);
    }
    Ok(Part::Read(all))
}

/// Our definitions by discovery, which every user may read.
async fn served(connection: &Connection) -> Result<BTreeSet<String>> {
    let mut served = BTreeSet::new();
    for crd in neonvm_api::crds() {
        let group = text(&crd, "/spec/group");
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for version in versions {
            let path = format!("/apis/{group}/{}", text(version, "/name"));
            let Some(list) = get(connection, &path).await? else { continue };
            let resources = list.get("resources").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            served.extend(resources.iter().map(|resource| format!("{}.{group}", text(resource, "/name"))));
        }
    }
    Ok(served)
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

async fn hook_service(connection: &Connection, facts: &Facts) -> Result<Option<bool>> {
    let Some((namespace, name)) = facts.hook_service() else { return Ok(None) };
    match get(connection, &format!("/api/v1/namespaces/{namespace}/services/{name}")).await {
        Err(error) if error.code == Code::Denied => Ok(None),
        found => Ok(Some(found?.is_some())),
    }
}

pub(crate) async fn missing(connection: &Connection, objects: &[Value]) -> Result<Vec<Right>> {
    rights::missing(connection, &wanted(objects)).await
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

/// The namespace of the services: the one that is named, else that of an installation, else the default one.
pub(crate) async fn installed(connection: &Connection, named: Option<&str>) -> Result<String> {
    if let Some(named) = named {
        return checked(named);
    }
    let records = format!("/api/v1/configmaps?fieldSelector=metadata.name%3D{INVENTORY}");
    let workloads = "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fpart-of%3Dneonvm";
    for path in [records.as_str(), workloads] {
        match items(connection, path).await {
            Ok(found) => {
                if let Some(namespace) = namespace_of(&found) {
                    return Ok(namespace);
                }
            }
            // A user who may not list them everywhere gets the default.
            Err(error) if matches!(error.code, Code::Denied | Code::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(SYSTEM_NAMESPACE.to_owned())
}

/// A namespace that a person named.
///
/// # Errors
/// If no namespace can have this name.
pub(crate) fn checked(named: &str) -> Result<String> {
    if is_name(named) {
        return Ok(named.to_owned());
    }
    Err(Error::new(Code::Usage, format!("--namespace: {named:?} is not the name of a namespace"))
        .hint("use lower-case letters, digits and dashes, at most 63"))
}

fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends = text.starts_with('-') || text.ends_with('-');
    (1..=63).contains(&text.len()) && text.chars().all(plain) && !ends
}

/// Of several the default one, else the first by name.
fn namespace_of(objects: &[Value]) -> Option<String> {
    let namespaces = objects.iter().map(|object| text(object, "/metadata/namespace"));
    // A server may send anything.
    let found = namespaces.filter(|namespace| is_name(namespace));
    found.min_by_key(|namespace| (*namespace != SYSTEM_NAMESPACE, *namespace)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_is_where_its_objects_are() {
        let at = |namespace: &str| json!({"metadata": {"namespace": namespace}});
        assert_eq!(namespace_of(&[at("vms"), at("other")]).as_deref(), Some("other"));
        assert_eq!(namespace_of(&[at("a"), at(SYSTEM_NAMESPACE)]).as_deref(), Some(SYSTEM_NAMESPACE));
        assert_eq!(namespace_of(&[]), None);
        assert_eq!(namespace_of(&[at("a/b"), at("A"), at("-"), at("")]), None);
        assert_eq!(checked("a/b").unwrap_err().code, Code::Usage);
        assert_eq!(checked("vms-1").unwrap(), "vms-1");
    }

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
