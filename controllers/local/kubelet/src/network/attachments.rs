//! Further networks of a pod: the annotation that Multus reads on a cluster. A local node supports one such network,
//! the overlay.

use k8s_openapi::api::core::v1::Pod;
use neonvm_api::names::annotation::NETWORKS;
use neonvm_api::overlay::ATTACHMENT;
use serde::Deserialize;

/// An element of the annotation in its JSON form.
#[derive(Deserialize)]
struct Element {
    name: String,
    #[serde(default)]
    interface: String,
}

/// Interfaces of the pod on the overlay, in order. The error names what cannot be used.
pub(crate) fn interfaces(pod: &Pod) -> Result<Vec<String>, String> {
    let annotations = pod.metadata.annotations.as_ref();
    let Some(text) = annotations.and_then(|all| all.get(NETWORKS)).map(|text| text.trim()) else {
        return Ok(Vec::new());
    };
    let elements: Vec<Element> = if text.starts_with('[') {
        serde_json::from_str(text).map_err(|error| format!("annotation {NETWORKS}: {error}"))?
    } else {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let element = |part: &str| {
            let (network, interface) = part.split_once('@').unwrap_or((part, ""));
            let name = network.rsplit_once('/').map_or(network, |(_, name)| name);
            Element { name: name.to_owned(), interface: interface.to_owned() }
        };
        parts.map(element).collect()
    };
    let mut interfaces = Vec::new();
    for (index, Element { name, interface }) in elements.into_iter().enumerate() {
        if name != ATTACHMENT {
            return Err(format!(
                "network attachment {name:?}: nodes of a local cluster know {ATTACHMENT} only"
            ));
        }
        let interface = if interface.is_empty() { format!("net{}", index + 1) } else { interface };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let taken =
            matches!(interface.as_str(), "lo" | "eth0" | "." | "..") || interfaces.contains(&interface);
        if interface.len() > 15 || !interface.chars().all(plain) || interface.starts_with('-') || taken {
            return Err(format!("network attachment {name:?}: {interface:?} cannot name an interface"));
        }
        interfaces.push(interface);
    }
    Ok(interfaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<String>, String> {
        let mut pod = Pod::default();
        pod.metadata.annotations = Some([(NETWORKS.to_owned(), text.to_owned())].into());
        interfaces(&pod)
    }

    #[test]
    fn both_forms_are_read() {
        assert_eq!(interfaces(&Pod::default()), Ok(Vec::new()));
        assert_eq!(parse("neonvm-system/neonvm-overlay-for-vms@net1"), Ok(vec!["net1".into()]));
        assert_eq!(
            parse(" neonvm-overlay-for-vms , ns/neonvm-overlay-for-vms@x"),
            Ok(vec!["net1".into(), "x".into()])
        );
        let json = r#"[{"name": "neonvm-overlay-for-vms", "namespace": "ns"}]"#;
        assert_eq!(parse(json), Ok(vec!["net1".into()]));
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        assert!(parse("ns/other@net1").unwrap_err().contains("\"other\""));
        assert!(parse("[{").unwrap_err().contains(NETWORKS));
        for interface in ["eth0", "lo", "a b", "-x", "sixteen-letters-", "../x"] {
            let text = format!("neonvm-overlay-for-vms@{interface}");
            assert!(parse(&text).unwrap_err().contains("cannot name"), "{interface}");
        }
    }
}
