//! What a Deployment asks for, as far as it is played.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::server::Manner;

/// Annotation: `true` for a Deployment whose pods are played.
pub(crate) const PLAY: &str = "workload.vm.neon.tech/play";
/// Annotation: clients that use it, from 0 to [`MOST_CLIENTS`]. Each has one request open at any time.
pub(crate) const CLIENTS: &str = "workload.vm.neon.tech/clients";
/// Annotation: how `/metrics` of all pods answers, one of the words of [`Manner`].
pub(crate) const METRICS: &str = "workload.vm.neon.tech/metrics";

/// Pods of one Deployment; of those above nothing is started.
pub(crate) const MOST_PODS: usize = 64;
/// Clients of one Deployment: a pod that is alone must have connections for all of them.
pub(crate) const MOST_CLIENTS: usize = 400;

/// What is to be played.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wish {
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

impl Wish {
    /// Reads a Deployment; `None` if it is not to be played, or is on its way out.
    ///
    /// # Errors
    /// What cannot be played, in words.
    pub(crate) fn of(deployment: &Deployment) -> Result<Option<Self>, String> {
        let meta = &deployment.metadata;
        let none = BTreeMap::new();
        let annotations = meta.annotations.as_ref().unwrap_or(&none);
        let is_played = annotations.get(PLAY).is_some_and(|word| word == "true");
        let (Some(spec), true, None) = (&deployment.spec, is_played, &meta.deletion_timestamp) else {
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
            metrics: Manner::of(metrics).ok_or_else(|| {
                format!("{METRICS}: {metrics:?} is none of {}", Manner::ALL.map(|(word, _)| word).join(", "))
            })?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn wish(annotations: &Value) -> Result<Option<Wish>, String> {
        let deployment = json!({"metadata": {"name": "web", "namespace": "default", "annotations": annotations},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web",
                    "image": "none", "args": ["--work-ms=5"], "ports": [{"containerPort": 8000}]}]}}}});
        Wish::of(&serde_json::from_value(deployment).unwrap())
    }

    #[test]
    fn only_what_asks_for_it_is_played() {
        assert_eq!(wish(&json!({})).unwrap(), None);
        assert_eq!(wish(&json!({PLAY: "false"})).unwrap(), None);
        let played = wish(&json!({PLAY: "true"})).unwrap().unwrap();
        assert_eq!((played.replicas, played.port, played.clients), (3, 8000, 0));
        assert_eq!((played.metrics, played.arguments), (Manner::Answer, vec!["--work-ms=5".to_owned()]));
        let busy = wish(&json!({PLAY: "true", CLIENTS: "20", METRICS: "down"})).unwrap().unwrap();
        assert_eq!((busy.clients, busy.metrics), (20, Manner::Down));
    }

    #[test]
    fn what_cannot_be_played_is_named() {
        for (key, word) in [(CLIENTS, "-1"), (CLIENTS, "many"), (CLIENTS, "401"), (METRICS, "off")] {
            let error = wish(&json!({PLAY: "true", key: word})).unwrap_err();
            assert!(error.contains(key) && error.contains(word), "{error}");
        }
    }
}
