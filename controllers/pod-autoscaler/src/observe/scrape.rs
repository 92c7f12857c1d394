//! Sources that are read from endpoints: of the pods, or of a service. Each endpoint is read once, whatever number of
//! sources uses it, and its text is dropped as soon as they have been evaluated.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use neonvm_api::pod_autoscaler::{Function, MetricProtocol, MetricSource, MetricSourceType};
use neonvm_core_pod_autoscaler::exposition::{self, Extract, Kind, Query, QueryError};
use neonvm_core_pod_autoscaler::registry::{self, DEFAULT_ENGINE};
use neonvm_core_pod_autoscaler::{Measure, Missing, MissingReason, Observed, PodSample};

use super::Endpoint;
use super::before::{Before, Left};
use super::http::Page;
use super::room::Share;
use super::{Observer, Scene, is_scraped};
use crate::pods::PodView;

/// Sources that are looked for at the same time in one answer: each keeps what it finds for a moment.
const AT_ONCE: usize = 16;

/// One endpoint and the sources that are read from it.
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

/// The query of each source, by engine.
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
    /// Reads each source that is scraped from endpoints; returns the values with the index of the source in the object.
    pub(super) async fn scrape(&self, scene: &Scene<'_>, before: &mut Before) -> Vec<(usize, Observed)> {
        let sources = &scene.object.spec.metrics_sources;
        let mut values = self.visit_all(sources, visits(scene), before).await;
        let now = Instant::now();
        // Of pods that are gone nothing is kept.
        let mut fresh = HashMap::new();
        let mut compared = Vec::new();
        for (index, value) in values.iter_mut().enumerate() {
            let key = (value.source, value.pod.as_ref().map_or_else(String::new, |pod| pod.uid.clone()));
            let kept = value.keep.take().map(|extract| (extract, now));
            if kept.is_some() {
                compared.push(index);
            }
            if let Some(reading) = kept.or_else(|| before.take(&key)) {
                fresh.insert(key, reading);
            }
        }
        if !before.replace(fresh, &self.keeping) {
            for index in compared {
                if let Some(value) = values.get_mut(index) {
                    value.measure = Err(not_kept());
                }
            }
        }
        let scraped = sources.iter().enumerate().filter(|(_, source)| is_scraped(source));
        scraped.map(|(index, source)| (index, gather(index, source, scene, &mut values))).collect()
    }

    async fn visit_all(&self, sources: &[MetricSource], visits: Vec<Visit>, before: &Before) -> Vec<Value> {
        let queries = queries(sources, &visits);
        let (share, left) = (self.reader.share(), Left::new());
        // Each is polled when an event came for it; the others are not polled.
        let visits =
            visits.into_iter().map(|visit| self.visit((sources, &queries), visit, (before, &left), &share));
        let mut visiting: FuturesUnordered<_> = visits.collect();
        let mut values = Vec::new();
        while let Some(found) = visiting.next().await {
            values.extend(found);
        }
        values
    }

    async fn visit(
        &self,
        (sources, queries): (&[MetricSource], &Queries),
        visit: Visit,
        memory: (&Before, &Left),
        share: &Share,
    ) -> Vec<Value> {
        let page = self.reader.read(&visit.endpoint, share).await;
        self.scrapes.fetch_add(1, Ordering::Relaxed);
        if page.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        let queries = queries.get(visit.engine()).map(Vec::as_slice).unwrap_or_default();
        // The room goes back when the sources have looked.
        let (bytes, _room) = match page {
            Ok(Page { bytes, room }) => (Ok(bytes), Some(room)),
            Err(missing) => (Err(missing), None),
        };
        values((sources, queries), visit, bytes, memory)
    }
}

/// Made once, not for every pod.
fn queries(sources: &[MetricSource], visits: &[Visit]) -> Queries {
    let mut all = Queries::new();
    for engine in visits.iter().map(Visit::engine) {
        if !all.contains_key(engine) {
            all.insert(
                engine.to_owned(),
                sources.iter().map(|source| Query::from_source(source, engine)).collect(),
            );
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
                if let Some(endpoint) = endpoint(source, &address.to_string(), Some(pod.engine())) {
                    add(endpoint, Some(pod), index);
                }
            }
        } else if source.has_endpoint()
            && let Some(endpoint) = endpoint(source, &source.endpoint, None)
        {
            add(endpoint, None, index);
        }
    }
    visits.into_values().collect()
}

/// `host` may contain a port. Without the engine of a pod, the object chose it.
fn endpoint(source: &MetricSource, host: &str, engine: Option<&str>) -> Option<Endpoint> {
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
    let path = registry::path(&source.path, engine.unwrap_or(DEFAULT_ENGINE));
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let host = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some(Endpoint { named: engine.is_none(), tls, host, port, path })
}

/// What the sources find in one answer.
fn values(
    (sources, queries): (&[MetricSource], &[Result<Query, QueryError>]),
    visit: Visit,
    bytes: Result<Bytes, Missing>,
    (before, left): (&Before, &Left),
) -> Vec<Value> {
    let Visit { endpoint, pod, sources: indexes } = visit;
    let asked = indexes.iter().filter_map(|index| Some((*index, sources.get(*index)?, queries.get(*index)?)));
    let asked: Vec<(usize, &MetricSource, &Result<Query, QueryError>)> = asked.collect();
    let text = bytes.map(text);
    let mut values = Vec::with_capacity(asked.len());
    for some in asked.chunks(AT_ONCE) {
        let good: Vec<&Query> = some.iter().filter_map(|(.., query)| query.as_ref().ok()).collect();
        let mut extracts = text.as_ref().ok().map(|text| {
            let scrape = exposition::read(text, &good);
            if let Some(line) = scrape.first_unreadable {
                tracing::debug!(%endpoint, line, count = scrape.unreadable, "lines cannot be read");
            }
            scrape.extracts.into_iter()
        });
        for (index, source, query) in some {
            let (measure, keep) = match (query, &text) {
                (Err(error), _) => (Err(Missing::new(MissingReason::NoSuchMetric, error.to_string())), None),
                (_, Err(missing)) => (Err(missing.clone()), None),
                (Ok(query), Ok(_)) => {
                    let extract = extracts.as_mut().and_then(Iterator::next).unwrap_or_default();
                    let uid = pod.as_ref().map_or_else(String::new, |pod| pod.uid.clone());
                    let measure = evaluate(&endpoint, query, &extract, before.get(&(*index, uid)));
                    kept(measure, compares(source, query, &extract).then_some(extract), left)
                }
            };
            values.push(Value { source: *index, pod: pod.clone(), measure, keep });
        }
    }
    values
}

/// The answer as text. What is not UTF-8 becomes `?`, byte by byte and in place: the usual way makes three bytes of each.
fn text(bytes: Bytes) -> String {
    let mut bytes = Vec::from(bytes);
    let mut from = 0;
    while let Err(error) = std::str::from_utf8(bytes.get(from..).unwrap_or_default()) {
        let bad = from + error.valid_up_to();
        from = (bad + error.error_len().unwrap_or(usize::MAX).min(bytes.len() - bad)).min(bytes.len());
        bytes.get_mut(bad..from).unwrap_or_default().fill(b'?');
    }
    String::from_utf8(bytes).unwrap_or_default()
}

fn evaluate(
    endpoint: &Endpoint,
    query: &Query,
    extract: &Extract,
    earlier: Option<&(Extract, Instant)>,
) -> Result<Measure, Missing> {
    let earlier =
        earlier.map(|(extract, at)| exposition::Before { extract, seconds: at.elapsed().as_secs_f64() });
    let measure = query.evaluate(extract, earlier);
    measure.map_err(|missing| Missing::new(missing.reason, format!("{endpoint}: {}", missing.message)))
}

/// The measure, and the reading if it is to be kept and there is room for it.
fn kept(
    measure: Result<Measure, Missing>,
    keep: Option<Extract>,
    left: &Left,
) -> (Result<Measure, Missing>, Option<Extract>) {
    match keep {
        Some(extract) if !left.take(&extract) => (Err(not_kept()), None),
        keep => (measure, keep),
    }
}

fn not_kept() -> Missing {
    let text = "its series are too many to be compared with the next reading; choose fewer with labels";
    Missing::new(MissingReason::TooLarge, text)
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
        PodSample { uid: pod.uid.clone(), name: pod.name.clone(), ready: pod.ready, measure, request: None }
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
    fn what_is_no_text_stays_as_long_as_it_is() {
        let read = |bytes: &'static [u8]| text(Bytes::from_static(bytes));
        assert_eq!(read(b"m 1\n"), "m 1\n");
        assert_eq!(read(b"m{a=\"\xff\xfe\"} 1\n\xe2\x82"), "m{a=\"??\"} 1\n??");
        assert_eq!(read("\u{e9}\u{20ac}".as_bytes()), "\u{e9}\u{20ac}");
        assert_eq!(read(b"\xff"), "?");
        assert_eq!(read(b""), "");
    }

    #[test]
    fn the_path_of_the_object_is_read() {
        for (more, host, wanted) in [
            (json!({"protocolType": "http", "path": "/metrics"}), "a.b:8080", "http://a.b:8080/metrics"),
            (json!({"protocolType": "https", "path": "x/y"}), "a.b", "https://a.b:443/x/y"),
            (json!({"protocolType": "http", "path": "/m", "port": "9"}), "::1", "http://[::1]:9/m"),
            (json!({"protocolType": "http", "path": "/m"}), "[::1]:7", "http://[::1]:7/m"),
            (json!({"path": "/m"}), "http://a.b:1/", "http://a.b:1/m"),
        ] {
            assert_eq!(endpoint(&source(&more), host, None).unwrap().to_string(), wanted);
        }
        assert!(endpoint(&source(&json!({"port": "http"})), "a", None).is_none());
        assert!(endpoint(&source(&json!({})), "a:b", None).is_none());
    }
}
