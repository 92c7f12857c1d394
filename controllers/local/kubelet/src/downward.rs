//! What pods may read of their own objects: `fieldRef` and `resourceFieldRef`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ObjectFieldSelector, Pod, ResourceFieldSelector};
use neonvm_types::Quantity;

use neonvm_core_kubelet::status::Surroundings;

/// What fields are about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Self_<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) around: &'a Surroundings,
    /// What the node offers: CPU in thousandths, memory in bytes. In place of limits that are not set.
    pub(crate) allocatable: (u64, u64),
}

fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let line = |(key, value): (&String, &String)| format!("{key}={value:?}");
    map.into_iter().flatten().map(line).collect::<Vec<_>>().join("\n")
}

/// `metadata.labels['key']`: the key.
fn subscript<'a>(path: &'a str, of: &str) -> Option<&'a str> {
    path.strip_prefix(of)?.strip_prefix("['")?.strip_suffix("']")
}

impl Self_<'_> {
    /// The text of a field. None: there is no such field.
    pub(crate) fn field(&self, selector: &ObjectFieldSelector) -> Option<String> {
        let (metadata, spec) = (&self.pod.metadata, self.pod.spec.as_ref());
        let path = selector.field_path.as_str();
        let entry = |map: Option<&BTreeMap<String, String>>, key: &str| {
            Some(map.and_then(|map| map.get(key)).cloned().unwrap_or_default())
        };
        if let Some(key) = subscript(path, "metadata.annotations") {
            return entry(metadata.annotations.as_ref(), key);
        }
        if let Some(key) = subscript(path, "metadata.labels") {
            return entry(metadata.labels.as_ref(), key);
        }
        let text = match path {
            "metadata.name" => metadata.name.clone(),
            "metadata.namespace" => metadata.namespace.clone(),
            "metadata.uid" => metadata.uid.clone(),
            "metadata.labels" => Some(lines(metadata.labels.as_ref())),
            "metadata.annotations" => Some(lines(metadata.annotations.as_ref())),
            "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
            "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
            "status.hostIP" | "status.hostIPs" => Some(self.around.host_ip.clone()),
            "status.podIP" | "status.podIPs" => Some(self.around.pod_ip.clone()),
            _ => return None,
        };
        Some(text.unwrap_or_default())
    }

    /// The text of a resource: in units of its divisor, rounded up. None: there is no such container or resource.
    pub(crate) fn resource(
        &self,
        selector: &ResourceFieldSelector,
        own: Option<&Container>,
    ) -> Option<String> {
        let spec = self.pod.spec.as_ref()?;
        let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let container = match &selector.container_name {
            Some(name) => all.find(|container| container.name == *name)?,
            None => own?,
        };
        let (list, name) = selector.resource.split_once('.')?;
        let resources = container.resources.clone().unwrap_or_default();
        let (limits, requests) =
            (resources.limits.unwrap_or_default(), resources.requests.unwrap_or_default());
        let given = match list {
            "limits" => limits.get(name),
            "requests" => requests.get(name),
            _ => return None,
        };
        let offered = match name {
            "cpu" => i128::from(self.allocatable.0) * 1_000_000,
            "memory" => i128::from(self.allocatable.1) * 1_000_000_000,
            _ => 0,
        };
        let nanos = match given {
            Some(quantity) => quantity.0.parse::<Quantity>().ok()?.nanos(),
            None if list == "limits" => offered,
            None => 0,
        };
        let divisor = selector.divisor.as_ref().and_then(|divisor| divisor.0.parse::<Quantity>().ok());
        let divisor = divisor.map(Quantity::nanos).filter(|nanos| *nanos > 0).unwrap_or(1_000_000_000);
        Some((nanos.saturating_add(divisor - 1) / divisor).to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_resources() {
        let pod: Pod = serde_json::from_value(
            json!({ "metadata": { "name": "p", "annotations": { "a/b": "x\"y", "c": "d" } },
            "spec": { "nodeName": "n", "containers": [{ "name": "c", "resources": {
                "limits": { "memory": "1Gi" }, "requests": { "cpu": "1500m" } } }] } }),
        )
        .unwrap();
        let around = Surroundings { pod_ip: "10.0.0.2".into(), ..Surroundings::default() };
        let own = Self_ { pod: &pod, around: &around, allocatable: (4000, 8 << 30) };
        let field =
            |path: &str| own.field(&ObjectFieldSelector { field_path: path.into(), ..Default::default() });
        assert_eq!(field("metadata.annotations['a/b']").unwrap(), "x\"y");
        assert_eq!(field("metadata.annotations").unwrap(), "a/b=\"x\\\"y\"\nc=\"d\"");
        assert_eq!(field("status.podIPs").unwrap(), "10.0.0.2");
        assert_eq!((field("spec.nodeName").unwrap(), field("spec.secret")), ("n".into(), None));
        let resource = |name: &str, divisor: Option<&str>| {
            let selector = json!({ "containerName": "c", "resource": name, "divisor": divisor });
            own.resource(&serde_json::from_value(selector).unwrap(), None)
        };
        assert_eq!(resource("limits.memory", Some("1Mi")).unwrap(), "1024");
        assert_eq!(resource("requests.cpu", None).unwrap(), "2");
        assert_eq!(resource("requests.cpu", Some("1m")).unwrap(), "1500");
        assert_eq!(resource("limits.cpu", None).unwrap(), "4");
        assert_eq!(resource("nothing", None), None);
    }
}
