//! The pods of the cluster, as much of them as matters, by namespace.

mod namespace;
pub(crate) mod selector;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::api::core::v1::Pod;
use kube::core::Selector;
use neonvm_core_pod_autoscaler::Finite;
use neonvm_core_pod_autoscaler::registry::{DEFAULT_ENGINE, ENGINE_LABEL};
use neonvm_types::Quantity;

use namespace::Namespace;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodView {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) address: Option<IpAddr>,
    /// It runs, is ready, and is not going away.
    pub(crate) ready: bool,
    /// Thousandths of a core that its containers request.
    pub(crate) cpu: Option<Finite>,
    /// Bytes that its containers request.
    pub(crate) memory: Option<Finite>,
}

impl PodView {
    /// `None` for one that is terminating or has ended: it no longer serves.
    pub(crate) fn from_pod(pod: &Pod) -> Option<Self> {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if pod.metadata.deletion_timestamp.is_some() || matches!(phase, "Succeeded" | "Failed") {
            return None;
        }
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let is_ready = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
        Some(Self {
            name: pod.metadata.name.clone()?,
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            address: status.and_then(|status| status.pod_ip.as_ref()?.parse().ok()),
            ready: is_ready && phase == "Running",
            cpu: requested(pod, "cpu").and_then(|cores| Finite::new(cores * 1000.0)),
            memory: requested(pod, "memory").and_then(Finite::new),
        })
    }

    /// The engine that serves in it; it determines what shared names of metrics mean.
    pub(crate) fn engine(&self) -> &str {
        self.labels.get(ENGINE_LABEL).map_or(DEFAULT_ENGINE, String::as_str)
    }
}

/// The sum over containers; `None` if one of them requests nothing.
fn requested(pod: &Pod, resource: &str) -> Option<f64> {
    let containers = &pod.spec.as_ref()?.containers;
    let of = |container: &k8s_openapi::api::core::v1::Container| {
        let requests = container.resources.as_ref()?.requests.as_ref()?;
        amount(&requests.get(resource)?.0)
    };
    containers.iter().map(of).sum()
}

/// A quantity as a number.
pub(crate) fn amount(text: &str) -> Option<f64> {
    text.parse::<Quantity>().ok().map(|quantity| nanos_as_units(quantity.nanos()))
}

#[expect(clippy::cast_precision_loss, reason = "a metric need not be exact to the nano")]
fn nanos_as_units(nanos: i128) -> f64 {
    nanos as f64 / 1e9
}

/// All pods.
#[derive(Debug, Default)]
pub(crate) struct Pods(RwLock<HashMap<String, Namespace>>);

impl Pods {
    /// Takes in a pod as it is now; `None`: it is gone, or of no use.
    pub(crate) fn put(&self, namespace: &str, name: &str, view: Option<PodView>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match view {
            Some(view) => all.entry(namespace.to_owned()).or_default().put(view),
            None => {
                if let Some(of) = all.get_mut(namespace) {
                    of.remove(name);
                    if of.is_empty() {
                        all.remove(namespace);
                    }
                }
            }
        }
    }

    /// Takes a complete list.
    pub(crate) fn replace(&self, pods: Vec<(String, PodView)>) {
        let mut new: HashMap<String, Namespace> = HashMap::new();
        for (namespace, view) in pods {
            new.entry(namespace).or_default().put(view);
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// Those that any of the selectors takes, by name.
    pub(crate) fn select(&self, namespace: &str, selectors: &[Selector]) -> Vec<Arc<PodView>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(namespace).map(|of| of.select(selectors)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &serde_json::Value, requests: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": "u", "labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn ready_is_running_with_the_condition() {
        let ready = json!({"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]});
        let view = PodView::from_pod(&pod(&ready, &json!({"cpu": "250m", "memory": "1Mi"}))).unwrap();
        assert!(view.ready && view.address == Some([10, 0, 0, 1].into()));
        assert_eq!(view.cpu.map(Finite::get), Some(250.0));
        assert_eq!(view.memory.map(Finite::get), Some(1_048_576.0));
        let starting = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]});
        let view = PodView::from_pod(&pod(&starting, &json!({}))).unwrap();
        assert!(!view.ready && view.cpu.is_none());
        assert_eq!(PodView::from_pod(&pod(&json!({"phase": "Failed"}), &json!({}))), None);
        let mut going = pod(&ready, &json!({}));
        going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(PodView::from_pod(&going), None);
    }

    #[test]
    fn pods_are_found_by_namespace_and_labels() {
        let pods = Pods::default();
        let view = PodView::from_pod(&pod(&json!({}), &json!({}))).unwrap();
        pods.put("one", "a", Some(view.clone()));
        pods.put("two", "a", Some(view));
        let app: Selector = selector::parse("app in (x, y),!other").unwrap();
        assert_eq!(pods.select("one", std::slice::from_ref(&app)).len(), 1);
        assert!(pods.select("one", &[selector::parse("app=z").unwrap()]).is_empty());
        pods.put("one", "a", None);
        assert!(pods.select("one", &[app]).is_empty());
    }

    #[test]
    fn whatever_a_selector_asks_for_the_same_are_found_as_by_looking_at_all() {
        let pods = Pods::default();
        for number in 0..12 {
            let mut view = PodView::from_pod(&pod(&json!({}), &json!({}))).unwrap();
            view.name = format!("p{number:02}");
            view.labels = [("app".to_owned(), format!("a{}", number % 3))].into();
            if number % 2 == 0 {
                view.labels.insert("even".to_owned(), "yes".to_owned());
            }
            pods.put("one", &view.name.clone(), Some(view.clone()));
            if number == 7 {
                // Its labels change, the old ones find it no more.
                view.labels = [("app".to_owned(), "other".to_owned())].into();
                pods.put("one", "p07", Some(view));
            }
        }
        for (texts, wanted) in [
            (&["app=a0"][..], "p00 p03 p06 p09"),
            (&["app=a1"], "p01 p04 p10"),
            (&["app=a1,even=yes"], "p04 p10"),
            (&["app in (a1,other)"], "p01 p04 p07 p10"),
            (&["app in (other)"], "p07"),
            (&["!even,app!=a0"], "p01 p05 p07 p11"),
            (&["app=a0", "even=yes"], "p00 p02 p03 p04 p06 p08 p09 p10"),
            (&["app=none"], ""),
        ] {
            let selectors: Vec<Selector> = texts.iter().map(|text| selector::parse(text).unwrap()).collect();
            let found = pods.select("one", &selectors);
            let names: Vec<&str> = found.iter().map(|pod| pod.name.as_str()).collect();
            assert_eq!(names.join(" "), wanted, "{texts:?}");
        }
    }
}
