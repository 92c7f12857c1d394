//! Metrics of the server, under the names of Kubernetes' API server where it has them.

use std::time::Duration;

use neonvm_kit::metrics::{Counter, Family, Gauge, Held, Histogram, Kind, Page, Registry, double};

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.25, 1.0, 5.0, 60.0];

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Counter, 2>,
    latency: Family<Histogram, 1>,
    watches: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::new();
        Self {
            requests: registry.counters(
                "apiserver_request_total",
                "Requests that were answered, by verb and status code.",
                ["verb", "code"],
            ),
            latency: registry.histograms(
                "apiserver_request_duration_seconds",
                "Time from a request to its response, by verb.",
                ["verb"],
                &BUCKETS,
            ),
            watches: registry
                .gauges("apiserver_longrunning_requests", "Open watches.", ["verb"])
                .with(["WATCH"]),
            registry,
        }
    }
}

impl Metrics {
    pub(crate) fn request(&self, verb: &'static str, code: u16, took: Duration) {
        self.requests.with([verb, &code.to_string()]).inc();
        self.latency.with([verb]).observe(took);
    }

    /// Counts a watch as open until the result is dropped.
    pub(crate) fn watch(&self) -> Held {
        self.watches.hold()
    }

    /// A page with all of it; `objects` counts objects by resource.
    pub(crate) fn page(&self, objects: &[(String, usize)], revision: u64) -> Page {
        let mut page = self.registry.page();
        page.family("apiserver_storage_objects", Kind::Gauge, "Stored objects, by resource.");
        for (resource, count) in objects {
            page.sample(&[("resource", resource)], double(*count as u64));
        }
        let help = "The resource version of the latest change.";
        page.single("neonvm_apiserver_revision", Kind::Counter, help, double(revision));
        page
    }
}
