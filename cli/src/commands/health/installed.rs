//! Where the services are installed.

use neonvm_api::names::SYSTEM_NAMESPACE;
use neonvm_deploy::INVENTORY;
use serde_json::Value;

use crate::commands::object::items;
use crate::commands::object::text;
use crate::connect::Connection;
use crate::error::{Code, Error, Result};

/// The namespace of the services: the one that is named, else that of an installation, else the default one.
pub(in crate::commands) async fn installed(connection: &Connection, named: Option<&str>) -> Result<String> {
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
            // Who may not list them everywhere gets the default.
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
pub(in crate::commands) fn checked(named: &str) -> Result<String> {
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
    use serde_json::json;

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
}
