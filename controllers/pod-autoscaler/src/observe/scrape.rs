//! Sources that are read from endpoints: of the pods, or of a service. Each endpoint is read once, whatever number of
//! sources looks at it, and its text is gone as soon as they did.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use neonvm_api::pod_autoscaler::{Function, MetricProtocol, MetricSource, MetricSourceType};
use neonvm_core_podscale::exposition::{self, Extract, Kind, Query, QueryError};
use neonvm_core_podscale::registry::DEFAULT_ENGINE;
use neonvm_core_podscale::{Measure, Missing, MissingReason, Observed, PodSample};

use super::http::Endpoint;
use super::{Before, Observer, Scene, is_scraped};
use crate::pods::PodView;

/// One endpoint and the sources that look at it.
struct Visit {
    endpoint: Endpoint,
    /// The pod, if it is one.
    pod: Option<Arc<PodView>>,
    sources: Vec<usize>,
}

impl Visit {
    fn engine(&self) -> &str {
        self.pod.as_ref().map_or(DEFAULT_ENGINE, |pod| pod.engine())
    }
}

/// What each source asks for, by engine.
type Queries = HashMap<String, Vec<Result<Query, QueryError>>>;

/// What came of one source at one endpoint.
struct Value {
    source: usize,
    pod: Option<Arc<PodView>>,
    measure: Result<Measure, Missing>,
    /// What the next reading is compared with.
    keep: Option<Extract>,
}

impl Observer {
    /// What each of the sources that are read from endpoints says, with its place in the object.
    pub(super) async fn scrape(&self, scene: &Scene<'_>, before: &mut Before) -> Vec<(usize, Observed)> {
        let sources = &scene.object.spec.metrics_sources;
        let mut values = self.visit_all(sources, visits(scene), before).await;
        let now = Instant::now();
        let mut fresh: HashSet<(usize, String)> = HashSet::new();
        for value in &mut values {
            let key = (value.source, value.pod.as_ref().map_or_else(String::new, |pod| pod.uid.clone()));
            if let Some(extract) = value.keep.take() {
                before.insert(key.clone(), (extract, now));
            }
            fresh.insert(key);
        }
        // Of pods that are gone nothing is kept.
        before.retain(|key, _| fresh.contains(key));
        let scraped = sources.iter().enumerate().filter(|(_, source)| is_scraped(source));
        scraped.map(|(index, source)| (index, gather(index, source, scene, &mut values))).collect()
    }

    async fn visit_all(&self, sources: &[MetricSource], visits: Vec<Visit>, before: &Before) -> Vec<Value> {
        let queries = queries(sources, &visits);
        // Each is polled when something came for it; the others are not asked how they are.
        let visits = visits.into_iter().map(|visit| self.visit(sources, &queries, visit, before));
        let mut visiting: FuturesUnordered<_> = visits.collect();
        let mut values = Vec::new();
        while let Some(found) = visiting.next().await {
            values.extend(found);
        }
        values
    }

    async fn visit(
        &self,
        sources: &[MetricSource],
        queries: &Queries,
        visit: Visit,
        before: &Before,
    ) -> Vec<Value> {
        let text = self.reader.read(&visit.endpoint).await;
        self.scrapes.fetch_add(1, Ordering::Relaxed);
        if text.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        let queries = queries.get(visit.engine()).map(Vec::as_slice).unwrap_or_default();
        values(sources, queries, visit, &text, before)
    }
}

/// Made once, not for every pod.
fn queries(sources: &[MetricSource], visits: &[Visit]) -> Queries {
    let mut all = Queries::new();
    for engine in visits.iter().map(Visit::engine) {
        if !all.contains_key(engine) {
            all.insert(engine.to_owned(), sources.iter().map(|source| Query::of(source, engine)).collect());
        }
    }
    all
}

/// Every endpoint once.
fn visits(scene: &Scene<'_>) -> Vec<Visit> {
    let mut visits: BTreeMap<(Endpoint, String), Visit> = BTreeMap::new();
    let mut add = |endpoint: Endpoint, pod: Option<&Arc<PodView>>, source: usize| {
        let key = (endpoint.clone(), pod.map_or_else(String::new, |pod| pod.uid.clone()));
        let visit =
            visits.entry(key).or_insert_with(|| Visit { endpoint, pod: pod.cloned(), sources: Vec::new() });
        visit.sources.push(source);
    };
    for (index, source) in scene.object.spec.metrics_sources.iter().enumerate() {
        if source.metric_source_type == MetricSourceType::Pod {
            let ready = scene.pods.iter().filter(|pod| pod.ready);
            for (pod, address) in ready.filter_map(|pod| Some((pod, pod.address?))) {
                if let Some(endpoint) = endpoint(source, &address.to_string()) {
                    add(endpoint, Some(pod), index);
                }
            }
        } else if source.has_endpoint()
            && let Some(endpoint) = endpoint(source, &source.endpoint)
        {
            add(endpoint, None, index);
        }
    }
    visits.into_values().collect()
}

/// `host` may have a port of its own.
fn endpoint(source: &MetricSource, host: &str) -> Option<Endpoint> {
    let tls = source.protocol_type == Some(MetricProtocol::Https);
    let usual = if tls { 443 } else { 80 };
    let bare = host.strip_prefix("http://").or_else(|| host.strip_prefix("https://")).unwrap_or(host);
    let bare = bare.trim_end_matches('/');
    let is_address = bare.parse::<std::net::IpAddr>().is_ok();
    let (name, own) = match bare.rsplit_once(':') {
        Some((name, port)) if !is_address => (name, Some(port.parse().ok()?)),
        _ => (bare, None),
    };
    let port = if source.port.is_empty() { own.unwrap_or(usual) } else { source.port.parse().ok()? };
    let path = if source.path.is_empty() { "/metrics" } else { source.path.as_str() };
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let host = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some(Endpoint { tls, host, port, path })
}

/// What the sources find in one answer.
fn values(
    sources: &[MetricSource],
    queries: &[Result<Query, QueryError>],
    visit: Visit,
    text: &Result<Bytes, Missing>,
    before: &Before,
) -> Vec<Value> {
    let Visit { endpoint, pod, sources: indexes } = visit;
    let asked = indexes.iter().filter_map(|index| Some((*index, sources.get(*index)?, queries.get(*index)?)));
    let asked: Vec<(usize, &MetricSource, &Result<Query, QueryError>)> = asked.collect();
    let good: Vec<&Query> = asked.iter().filter_map(|(.., query)| query.as_ref().ok()).collect();
    let mut extracts = text.as_ref().ok().map(|bytes| {
        // The lossy way looks at each byte, even where all are good.
        let text = std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
        let scrape = exposition::read(&text, &good);
        if let Some(line) = scrape.first_unreadable {
            tracing::debug!(%endpoint, line, count = scrape.unreadable, "lines cannot be read");
        }
        scrape.extracts.into_iter()
    });
    let mut values = Vec::with_capacity(asked.len());
    for (index, source, query) in asked {
        let (measure, keep) = match (query, text) {
            (Err(error), _) => (Err(Missing::new(MissingReason::NoSuchMetric, error.to_string())), None),
            (_, Err(missing)) => (Err(missing.clone()), None),
            (Ok(query), Ok(_)) => {
                let extract = extracts.as_mut().and_then(Iterator::next).unwrap_or_default();
                let uid = pod.as_ref().map_or_else(String::new, |pod| pod.uid.clone());
                let earlier = before.get(&(index, uid));
                let earlier = earlier
                    .map(|(extract, at)| exposition::Before { extract, seconds: at.elapsed().as_secs_f64() });
                let measure = query.evaluate(&extract, earlier);
                let measure = measure.map_err(|missing| {
                    Missing::new(missing.reason, format!("{endpoint}: {}", missing.message))
                });
                (measure, compares(source, query, &extract).then_some(extract))
            }
        };
        values.push(Value { source: index, pod: pod.clone(), measure, keep });
    }
    values
}

/// Whether a value is made of two readings.
fn compares(source: &MetricSource, query: &Query, extract: &Extract) -> bool {
    let grows = query.counter || extract.kind == Some(Kind::Counter) || extract.histogram.is_some();
    let asked = matches!(source.function, Some(Function::Rate | Function::Mean)) || source.quantile.is_some();
    asked || (grows && source.function != Some(Function::Value))
}

/// One observation of all that was found for a source.
fn gather(index: usize, source: &MetricSource, scene: &Scene<'_>, values: &mut Vec<Value>) -> Observed {
    let own = values.extract_if(.., |value| value.source == index);
    if source.metric_source_type != MetricSourceType::Pod {
        let mut own = own;
        return match own.next().map(|value| value.measure) {
            Some(Ok(measure)) => Observed::Whole(measure),
            Some(Err(missing)) => Observed::Missing(missing),
            None => {
                let text =
                    format!("endpoint {:?} with port {:?} cannot be read", source.endpoint, source.port);
                Observed::Missing(Missing::new(MissingReason::Unreachable, text))
            }
        };
    }
    let mut found: BTreeMap<String, Result<Measure, Missing>> =
        own.filter_map(|value| Some((value.pod?.uid.clone(), value.measure))).collect();
    let sample = |pod: &Arc<PodView>| {
        let absent = || match pod.address {
            None => Missing::new(MissingReason::NoAddress, format!("pod {} has no address", pod.name)),
            Some(_) if !pod.ready => {
                Missing::new(MissingReason::NotRead, format!("pod {} is not ready", pod.name))
            }
            Some(_) => Missing::new(MissingReason::Unreachable, format!("port {:?} is no port", source.port)),
        };
        let measure = found.remove(&pod.uid).unwrap_or_else(|| Err(absent()));
        PodSample { uid: pod.uid.clone(), ready: pod.ready, measure, request: None }
    };
    Observed::Pods(scene.pods.iter().map(sample).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(more: &serde_json::Value) -> MetricSource {
        let mut whole = json!({"metricSourceType": "external", "targetMetric": "m", "targetValue": "1"});
        for (key, value) in more.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn what_the_object_says_is_where_is_read() {
        for (more, host, wanted) in [
            (json!({"protocolType": "http", "path": "/metrics"}), "a.b:8080", "http://a.b:8080/metrics"),
            (json!({"protocolType": "https", "path": "x/y"}), "a.b", "https://a.b:443/x/y"),
            (json!({"protocolType": "http", "path": "/m", "port": "9"}), "::1", "http://[::1]:9/m"),
            (json!({"protocolType": "http", "path": "/m"}), "[::1]:7", "http://[::1]:7/m"),
            (json!({"path": "/m"}), "http://a.b:1/", "http://a.b:1/m"),
        ] {
            assert_eq!(endpoint(&source(&more), host).unwrap().to_string(), wanted);
        }
        assert!(endpoint(&source(&json!({"port": "http"})), "a").is_none());
        assert!(endpoint(&source(&json!({})), "a:b").is_none());
    }
}
