//! The simulated part of a Deployment.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::server::Manner;

/// Annotation: `true` for a Deployment whose pods are simulated.
pub(crate) const PLAY: &str = "workload.vm.neon.tech/play";
/// Annotation: clients that use it, from 0 to [`MOST_CLIENTS`]. Each has one request open at any time.
pub(crate) const CLIENTS: &str = "workload.vm.neon.tech/clients";
/// Annotation: how `/metrics` of all pods answers, one of the words of [`Manner`].
pub(crate) const METRICS: &str = "workload.vm.neon.tech/metrics";

/// Pods of one Deployment; of those above nothing is started.
pub(crate) const MOST_PODS: usize = 64;
/// Clients of one Deployment: a pod that is alone must have connections for all of them.
pub(crate) const MOST_CLIENTS: usize = 400;

/// A Deployment to simulate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spec {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) generation: Option<i64>,
    /// Pods, up to [`MOST_PODS`].
    pub(crate) replicas: usize,
    /// What a pod looks like.
    pub(crate) template: PodTemplateSpec,
    /// Where a pod serves: the first port of its first container.
    pub(crate) port: u16,
    /// Arguments of its process: those of the first container.
    pub(crate) arguments: Vec<String>,
    pub(crate) clients: usize,
    pub(crate) metrics: Manner,
}

impl Spec {
    /// Reads a Deployment; `None` if it is not to be simulated, or is being deleted.
    ///
    /// # Errors
    /// What cannot be simulated, in words.
    pub(crate) fn from_deployment(deployment: &Deployment) -> Result<Option<Self>, String> {
        let meta = &deployment.metadata;
        let none = BTreeMap::new();
        let annotations = meta.annotations.as_ref().unwrap_or(&none);
        let is_simulated = annotations.get(PLAY).is_some_and(|word| word == "true");
        let (Some(spec), true, None) = (&deployment.spec, is_simulated, &meta.deletion_timestamp) else {
            return Ok(None);
        };
        let container = spec.template.spec.as_ref().and_then(|pod| pod.containers.first());
        let port = container.and_then(|container| container.ports.as_ref()?.first());
        let port = port.and_then(|port| u16::try_from(port.container_port).ok());
        let clients = annotations.get(CLIENTS).map_or("0", String::as_str);
        let in_range = clients.parse().ok().filter(|count| *count <= MOST_CLIENTS);
        let metrics = annotations.get(METRICS).map_or("answer", String::as_str);
        Ok(Some(Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            generation: meta.generation,
            replicas: usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0).min(MOST_PODS),
            template: spec.template.clone(),
            port: port.filter(|port| *port > 0).ok_or("its container names no port")?,
            arguments: container.and_then(|container| container.args.clone()).unwrap_or_default(),
            clients: in_range
                .ok_or_else(|| format!("{CLIENTS}: {clients:?} is no number from 0 to {MOST_CLIENTS}"))?,
            metrics: Manner::from_word(metrics).ok_or_else(|| {
                format!("{METRICS}: {metrics:?} is none of {}", Manner::ALL.map(|(word, _)| word).join(", "))
            })?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(annotations: &Value) -> Result<Option<Spec>, String> {
        let deployment = json!({"metadata": {"name": "web", "namespace": "default", "annotations": annotations},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web",
                    "image": "none", "args": ["--work-ms=5"], "ports": [{"containerPort": 8000}]}]}}}});
        Spec::from_deployment(&serde_json::from_value(deployment).unwrap())
    }

    #[test]
    fn only_annotated_deployments_are_simulated() {
        assert_eq!(spec(&json!({})).unwrap(), None);
        assert_eq!(spec(&json!({PLAY: "false"})).unwrap(), None);
        let simple = spec(&json!({PLAY: "true"})).unwrap().unwrap();
        assert_eq!((simple.replicas, simple.port, simple.clients), (3, 8000, 0));
        assert_eq!((simple.metrics, simple.arguments), (Manner::Answer, vec!["--work-ms=5".to_owned()]));
        let busy = spec(&json!({PLAY: "true", CLIENTS: "20", METRICS: "down"})).unwrap().unwrap();
        assert_eq!((busy.clients, busy.metrics), (20, Manner::Down));
    }

    #[test]
    fn what_cannot_be_simulated_is_named() {
        for (key, word) in [(CLIENTS, "-1"), (CLIENTS, "many"), (CLIENTS, "401"), (METRICS, "off")] {
            let error = spec(&json!({PLAY: "true", key: word})).unwrap_err();
            assert!(error.contains(key) && error.contains(word), "{error}");
        }
    }
}
