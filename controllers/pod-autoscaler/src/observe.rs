//! What the metrics of an object are now: one value, or one reason, for each of its sources.

mod apis;
mod before;
mod get;
mod http;
mod idle;
mod room;
mod scrape;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures_util::future::join_all;
use kube::{Client, ResourceExt as _};
use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::MetricSourceType;
use neonvm_core_pod_autoscaler::{Missing, MissingReason, Observed};

pub(crate) use before::Before;
use before::Keeping;
pub(crate) use http::Reader;

use crate::Config;
use crate::pods::PodView;

/// Reads metrics.
pub(crate) struct Observer {
    /// Queries the metrics APIs, each query once.
    client: Client,
    pub(crate) reader: Reader,
    /// Readings that are kept for the next ones.
    keeping: Keeping,
    /// Endpoints that were read, and those of them that gave nothing.
    pub(crate) scrapes: AtomicU64,
    pub(crate) failures: AtomicU64,
}

/// What an observation is about.
pub(crate) struct Scene<'a> {
    pub(crate) object: &'a PodAutoscaler,
    pub(crate) namespace: String,
    pub(crate) pods: &'a [Arc<PodView>],
    /// The pods' selectors as text, for the metrics APIs.
    pub(crate) selectors: Vec<String>,
}

impl Observer {
    pub(crate) fn new(client: Client, config: &Config) -> Result<Self, String> {
        let reader = Reader::new(config)?;
        let keeping = Keeping::default();
        Ok(Self { client, reader, keeping, scrapes: AtomicU64::new(0), failures: AtomicU64::new(0) })
    }

    /// One for each source of the object, in its order.
    pub(crate) async fn observe(
        &self,
        object: &PodAutoscaler,
        pods: &[Arc<PodView>],
        selectors: Vec<String>,
        before: &mut Before,
    ) -> Vec<Observed> {
        let namespace = object.namespace().unwrap_or_default();
        let scene = Scene { object, namespace, pods, selectors };
        let sources = &object.spec.metrics_sources;
        let mut observed: Vec<Observed> = sources.iter().map(|_| Observed::Missing(not_read())).collect();
        let scraped = self.scrape(&scene, before);
        let asked = sources.iter().enumerate().filter(|(_, source)| !is_scraped(source));
        let asked = join_all(asked.map(async |(index, source)| (index, self.ask(&scene, source).await)));
        let (scraped, asked) = tokio::join!(scraped, asked);
        for (index, value) in scraped.into_iter().chain(asked) {
            if let Some(place) = observed.get_mut(index) {
                *place = value;
            }
        }
        observed
    }
}

/// Whether a source is read from an endpoint, not from an API of the cluster.
fn is_scraped(source: &neonvm_api::pod_autoscaler::MetricSource) -> bool {
    source.metric_source_type == MetricSourceType::Pod || source.has_endpoint()
}

fn not_read() -> Missing {
    Missing::new(MissingReason::NotRead, "was not read")
}

/// Where to read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    /// Whether the author of the object chose the host; otherwise it is a pod's own address.
    pub(crate) named: bool,
    pub(crate) tls: bool,
    /// Name or address, and port.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
}
