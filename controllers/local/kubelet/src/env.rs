//! Environment variables of containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, Service};

use crate::downward::Self_;
use crate::objects::{Data, Kind, Objects};
use crate::problem::Problem;

const REASON: &str = "CreateContainerConfigError";

/// The variables of a container, in order; later ones win over earlier ones of the same name.
///
/// # Errors
/// If an object or key that is not optional is missing.
pub(crate) async fn environment(
    own: Self_<'_>,
    container: &Container,
    objects: &Objects,
    services: &[Service],
) -> Result<Vec<(String, String)>, Problem> {
    let namespace = own.pod.metadata.namespace.as_deref().unwrap_or("default");
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    if own.pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true) {
        known.extend(service_links(services, namespace));
    }
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or("");
        let (kind, name, optional) = match (&source.config_map_ref, &source.secret_ref) {
            (Some(map), _) => (Kind::ConfigMap, &map.name, map.optional),
            (None, Some(secret)) => (Kind::Secret, &secret.name, secret.optional),
            (None, None) => continue,
        };
        let data = object(objects, kind, namespace, name).await?;
        match data {
            Some(data) => {
                let text = |(key, value): (&String, &Vec<u8>)| {
                    (format!("{prefix}{key}"), String::from_utf8_lossy(value).into_owned())
                };
                known.extend(data.iter().map(text));
            }
            None if optional == Some(true) => {}
            None => return Err(Problem::new(REASON, format!("{} not found", title(kind, name)))),
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(text) = value(own, container, variable, &known, objects).await? {
            known.insert(variable.name.clone(), text);
        }
    }
    Ok(known.into_iter().collect())
}

fn title(kind: Kind, name: &str) -> String {
    match kind {
        Kind::ConfigMap => format!("configmap {name:?}"),
        Kind::Secret => format!("secret {name:?}"),
    }
}

async fn object(
    objects: &Objects,
    kind: Kind,
    namespace: &str,
    name: &str,
) -> Result<Option<std::sync::Arc<Data>>, Problem> {
    objects.hold(kind, namespace, name).get().await.map_err(|error| Problem::new(REASON, error))
}

async fn value(
    own: Self_<'_>,
    container: &Container,
    variable: &EnvVar,
    known: &BTreeMap<String, String>,
    objects: &Objects,
) -> Result<Option<String>, Problem> {
    let Some(from) = &variable.value_from else {
        return Ok(Some(expand(variable.value.as_deref().unwrap_or(""), known)));
    };
    let wrong = |what: &str| Problem::new(REASON, format!("variable {}: {what}", variable.name));
    if let Some(selector) = &from.field_ref {
        let missing = || wrong(&format!("there is no field {:?}", selector.field_path));
        return own.field(selector).map(Some).ok_or_else(missing);
    }
    if let Some(selector) = &from.resource_field_ref {
        let missing = || wrong(&format!("there is no resource {:?}", selector.resource));
        return own.resource(selector, Some(container)).map(Some).ok_or_else(missing);
    }
    let (kind, name, key, optional) = match (&from.config_map_key_ref, &from.secret_key_ref) {
        (Some(map), _) => (Kind::ConfigMap, &map.name, &map.key, map.optional),
        (None, Some(secret)) => (Kind::Secret, &secret.name, &secret.key, secret.optional),
        (None, None) => return Err(wrong("its source is not known here")),
    };
    let namespace = own.pod.metadata.namespace.as_deref().unwrap_or("default");
    let data = object(objects, kind, namespace, name).await?;
    match data.as_ref().map(|data| data.get(key)) {
        Some(Some(bytes)) => Ok(Some(String::from_utf8_lossy(bytes).into_owned())),
        _ if optional == Some(true) => Ok(None),
        Some(None) => Err(wrong(&format!("couldn't find key {key} in {}", title(kind, name)))),
        None => Err(wrong(&format!("{} not found", title(kind, name)))),
    }
}

/// Replaces `$(NAME)` by the variable of that name; `$$` is `$`. Unknown names stay as they are.
pub(crate) fn expand(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        result.push_str(before);
        let after = from.get(1..).unwrap_or("");
        let name = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        rest = match (after.strip_prefix('$'), name) {
            (Some(after), _) => {
                result.push('$');
                after
            }
            (None, Some((name, after))) => {
                match known.get(name) {
                    Some(value) => result.push_str(value),
                    None => {
                        result.push_str("$(");
                        result.push_str(name);
                        result.push(')');
                    }
                }
                after
            }
            (None, None) => {
                result.push('$');
                after
            }
        };
    }
    result + rest
}

/// Variables with the services of the pod's namespace.
fn service_links(services: &[Service], namespace: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for service in services {
        let Some(spec) = &service.spec else { continue };
        let address = spec.cluster_ip.as_deref().unwrap_or("");
        let ports = spec.ports.as_deref().unwrap_or_default();
        let is_here = service.metadata.namespace.as_deref() == Some(namespace);
        let (Some(first), true) = (ports.first(), is_here && !matches!(address, "" | "None")) else {
            continue;
        };
        let name = service.metadata.name.as_deref().unwrap_or("").to_uppercase().replace('-', "_");
        all.push((format!("{name}_SERVICE_HOST"), address.to_owned()));
        all.push((format!("{name}_SERVICE_PORT"), first.port.to_string()));
        let url = |protocol: &str, port: i32| format!("{}://{address}:{port}", protocol.to_lowercase());
        all.push((format!("{name}_PORT"), url(first.protocol.as_deref().unwrap_or("TCP"), first.port)));
        for port in ports {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            if let Some(port_name) = &port.name {
                let port_name = port_name.to_uppercase().replace('-', "_");
                all.push((format!("{name}_SERVICE_PORT_{port_name}"), port.port.to_string()));
            }
            let prefix = format!("{name}_PORT_{}_{}", port.port, protocol.to_uppercase());
            all.push((prefix.clone(), url(protocol, port.port)));
            all.push((format!("{prefix}_PROTO"), protocol.to_lowercase()));
            all.push((format!("{prefix}_PORT"), port.port.to_string()));
            all.push((format!("{prefix}_ADDR"), address.to_owned()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_expanded_once() {
        let known = [("A", "1"), ("B", "$(A)")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (text, expected) in [
            ("a$(A)b", "a1b"),
            ("$(B)", "$(A)"),
            ("$(C)", "$(C)"),
            ("$$(A)", "$(A)"),
            ("$", "$"),
            ("$(A", "$(A"),
            ("$x$(A)", "$x1"),
        ] {
            assert_eq!(expand(text, &known), expected, "{text}");
        }
    }

    #[test]
    fn services_become_variables() {
        let service: Service =
            serde_json::from_value(json!({ "metadata": { "name": "my-db", "namespace": "d" },
            "spec": { "clusterIP": "10.0.0.9", "ports": [{ "name": "sql", "port": 5432 }] } }))
            .unwrap();
        let links: BTreeMap<_, _> = service_links(std::slice::from_ref(&service), "d").into_iter().collect();
        assert_eq!(links["MY_DB_SERVICE_HOST"], "10.0.0.9");
        assert_eq!(links["MY_DB_SERVICE_PORT_SQL"], "5432");
        assert_eq!(links["MY_DB_PORT_5432_TCP"], "tcp://10.0.0.9:5432");
        assert!(service_links(&[service], "other").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_expanded(text in "[$()A-C]{0,20}") {
            let known = [("A".to_owned(), "x".to_owned())].into();
            let expanded = expand(&text, &known);
            prop_assert!(text.contains('$') || expanded == text);
        }
    }
}
