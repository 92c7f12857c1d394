//! Sources that are read from the metrics APIs of the cluster: resource, custom and external metrics.

use std::collections::HashMap;

use http::Request;
use kube::Error;
use neonvm_api::pod_autoscaler::{MetricSource, MetricSourceType};
use neonvm_core_pod_autoscaler::{Finite, Measure, Missing, MissingReason, Observed, PodSample};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Observer, Scene};
use crate::pods::{PodView, amount};
use crate::request::REQUEST;

/// Versions of the custom metrics API, the preferred one first.
const CUSTOM: [&str; 2] = ["v1beta2", "v1beta1"];

#[derive(Deserialize)]
struct Items<T> {
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

/// Of `metrics.k8s.io`.
#[derive(Deserialize)]
struct PodMetrics {
    metadata: Name,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    #[serde(default)]
    usage: HashMap<String, String>,
}

/// Of `custom.metrics.k8s.io`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomValue {
    described_object: Name,
    value: String,
}

/// Of `external.metrics.k8s.io`.
#[derive(Deserialize)]
struct ExternalValue {
    value: String,
}

/// Text as a part of a URL.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

/// The reason that a request of this kind failed.
fn why(what: &str, error: &Error) -> Missing {
    let reason = match error {
        Error::Api(status) if matches!(status.code, 401 | 403) => MissingReason::Forbidden,
        Error::Api(status) if status.code == 404 => MissingReason::NoSuchMetric,
        Error::Api(_) => MissingReason::BadStatus,
        Error::SerdeError(_) => MissingReason::Unreadable,
        _ => MissingReason::Unreachable,
    };
    let text = match error {
        // The API itself is not served; for an unknown metric an adapter returns a longer message.
        Error::Api(status) if status.code == 404 && status.message.starts_with("404 page not found") => {
            "the cluster does not serve this API; install what provides it".to_owned()
        }
        Error::Api(status) => format!("{}: {}", status.code, status.message.trim()),
        other => other.to_string(),
    };
    Missing::new(reason, format!("{what}: {text}"))
}

impl Observer {
    /// Queries the API; the units are those of the target: thousandths of a core, bytes, or those of the metric.
    pub(super) async fn ask(&self, scene: &Scene<'_>, source: &MetricSource) -> Observed {
        let done = match source.metric_source_type {
            MetricSourceType::Resource => self.resource(scene, source).await,
            MetricSourceType::Custom => self.custom(scene, source).await,
            MetricSourceType::External | MetricSourceType::Domain => self.external(scene, source).await,
            MetricSourceType::Pod => return Observed::Missing(super::not_read()),
        };
        done.unwrap_or_else(Observed::Missing)
    }

    async fn get<T: DeserializeOwned>(&self, what: &str, path: &str) -> Result<T, Missing> {
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(|error| Missing::new(MissingReason::Unreachable, format!("{what}: {error}")))?;
        match tokio::time::timeout(REQUEST, self.client.request(request)).await {
            Ok(answer) => answer.map_err(|error| why(what, &error)),
            Err(_) => {
                let text = format!("{what}: no answer within {} s", REQUEST.as_secs());
                Err(Missing::new(MissingReason::TimedOut, text))
            }
        }
    }

    async fn resource(&self, scene: &Scene<'_>, source: &MetricSource) -> Result<Observed, Missing> {
        let resource = source.target_metric.to_ascii_lowercase();
        let mut used: HashMap<String, Result<Finite, Missing>> = HashMap::new();
        for selector in &scene.selectors {
            let path = format!(
                "/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods?labelSelector={}",
                scene.namespace,
                escaped(selector)
            );
            let found: Items<PodMetrics> = self.get("resource metrics", &path).await?;
            used.extend(found.items.into_iter().map(|pod| {
                let sum = usage(&resource, &pod);
                (pod.metadata.name, sum)
            }));
        }
        let request = |pod: &PodView| if resource == "cpu" { pod.cpu } else { pod.memory };
        Ok(of_pods(scene, request, |pod| {
            used.get(&pod.name).cloned().unwrap_or_else(|| Err(unmeasured(&pod.name)))
        }))
    }

    async fn custom(&self, scene: &Scene<'_>, source: &MetricSource) -> Result<Observed, Missing> {
        let metric = escaped(&source.target_metric);
        let mut values: HashMap<String, String> = HashMap::new();
        for selector in &scene.selectors {
            let mut last = Missing::new(MissingReason::NoSuchMetric, "custom metrics: not asked");
            let mut found: Option<Items<CustomValue>> = None;
            for version in CUSTOM {
                let mut path = format!(
                    "/apis/custom.metrics.k8s.io/{version}/namespaces/{}/pods/*/{metric}?labelSelector={}",
                    scene.namespace,
                    escaped(selector)
                );
                if let Some(labels) = labels(source)? {
                    path.push_str("&metricLabelSelector=");
                    path.push_str(&escaped(&labels));
                }
                match self.get("custom metrics", &path).await {
                    Ok(items) => {
                        found = Some(items);
                        break;
                    }
                    Err(missing) => last = missing,
                }
                if last.reason != MissingReason::NoSuchMetric {
                    break;
                }
            }
            let items = found.ok_or(last)?.items;
            values.extend(items.into_iter().map(|item| (item.described_object.name, item.value)));
        }
        Ok(of_pods(
            scene,
            |_| None,
            |pod| match values.get(&pod.name) {
                Some(text) => number(&source.target_metric, text),
                None => {
                    let text = format!("pod {} has no metric {}", pod.name, source.target_metric);
                    Err(Missing::new(MissingReason::NoSuchMetric, text))
                }
            },
        ))
    }

    async fn external(&self, scene: &Scene<'_>, source: &MetricSource) -> Result<Observed, Missing> {
        let mut path = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/{}",
            scene.namespace,
            escaped(&source.target_metric)
        );
        if let Some(labels) = labels(source)? {
            path.push_str("?labelSelector=");
            path.push_str(&escaped(&labels));
        }
        let found: Items<ExternalValue> = self.get("external metrics", &path).await?;
        if found.items.is_empty() {
            let text = format!("external metric {} has no value", source.target_metric);
            return Err(Missing::new(MissingReason::NoSuchMetric, text));
        }
        let values = found.items.iter().map(|item| number(&source.target_metric, &item.value));
        let values = values.collect::<Result<Vec<Finite>, Missing>>()?;
        Ok(Observed::total(values.into_iter().map(Finite::get).sum()))
    }
}

fn unmeasured(pod: &str) -> Missing {
    Missing::new(MissingReason::NoSuchMetric, format!("pod {pod} was not measured yet"))
}

/// What all containers of a pod use, in thousandths of a core or in bytes.
fn usage(resource: &str, pod: &PodMetrics) -> Result<Finite, Missing> {
    // A pod without containers in the answer is one that was not measured yet.
    if pod.containers.is_empty() {
        return Err(unmeasured(&pod.metadata.name));
    }
    let mut sum = 0.0;
    for container in &pod.containers {
        let text = container.usage.get(resource).ok_or_else(|| unmeasured(&pod.metadata.name))?;
        sum += number(resource, text)?.get();
    }
    Ok(Finite::saturating(if resource == "cpu" { sum * 1000.0 } else { sum }))
}

fn labels(source: &MetricSource) -> Result<Option<String>, Missing> {
    let Some(selector) = source.selector.clone() else { return Ok(None) };
    let selector = kube::core::Selector::try_from(selector)
        .map_err(|error| Missing::new(MissingReason::NoSuchMetric, format!("selector: {error}")))?;
    Ok(Some(selector.to_string()))
}

fn number(metric: &str, text: &str) -> Result<Finite, Missing> {
    amount(text).and_then(Finite::new).ok_or_else(|| {
        let text: String = text.chars().take(64).collect();
        Missing::new(MissingReason::Unreadable, format!("{metric}: {text:?} is not a quantity"))
    })
}

fn of_pods(
    scene: &Scene<'_>,
    request: impl Fn(&PodView) -> Option<Finite>,
    value: impl Fn(&PodView) -> Result<Finite, Missing>,
) -> Observed {
    let samples = scene.pods.iter().map(|pod| PodSample {
        uid: pod.uid.clone(),
        name: pod.name.clone(),
        ready: pod.ready,
        measure: value(pod).map(Measure::Value),
        request: request(pod),
    });
    Observed::Pods(samples.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_urls_are_escaped() {
        assert_eq!(escaped("app in (a,b),c!=d/e"), "app%20in%20%28a%2Cb%29%2Cc%21%3Dd%2Fe");
        assert_eq!(escaped("plain-1_2.3~"), "plain-1_2.3~");
    }

    #[test]
    fn quantities_keep_their_thousandths() {
        assert_eq!(number("m", "500m").unwrap().get(), 0.5);
        assert_eq!(number("m", "1Ki").unwrap().get(), 1024.0);
        assert_eq!(number("m", "x").unwrap_err().reason, MissingReason::Unreadable);
    }
}
