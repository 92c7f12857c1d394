//! Prometheus metrics of the server, in text form.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.25, 1.0, 5.0, 60.0];

#[derive(Debug, Default)]
struct Latency {
    counts: [u64; BUCKETS.len()],
    total: u64,
    seconds: f64,
}

/// Counters. Labels are bounded: verb and status code.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    latency: Mutex<BTreeMap<&'static str, Latency>>,
    watches: AtomicU64,
}

/// Counts an open watch until dropped.
#[derive(Debug)]
pub(crate) struct OpenWatch(std::sync::Arc<Metrics>);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// Counts a finished request.
    pub(crate) fn request(&self, verb: &'static str, code: u16, took: Duration) {
        *self.requests.lock().entry((verb, code)).or_default() += 1;
        let mut all = self.latency.lock();
        let latency = all.entry(verb).or_default();
        let seconds = took.as_secs_f64();
        for (count, bound) in latency.counts.iter_mut().zip(BUCKETS) {
            *count += u64::from(seconds <= bound);
        }
        latency.total += 1;
        latency.seconds += seconds;
    }

    /// Counts a watch as open.
    pub(crate) fn watch(self: &std::sync::Arc<Self>) -> OpenWatch {
        self.watches.fetch_add(1, Ordering::Relaxed);
        OpenWatch(std::sync::Arc::clone(self))
    }

    /// The text form; `objects` counts objects by resource.
    pub(crate) fn render(&self, objects: &[(String, usize)], revision: u64) -> String {
        let mut text = String::from("# TYPE apiserver_request_total counter\n");
        let mut line = |args: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let written = text.write_fmt(args);
            debug_assert!(written.is_ok());
        };
        for ((verb, code), count) in self.requests.lock().iter() {
            line(format_args!("apiserver_request_total{{verb=\"{verb}\",code=\"{code}\"}} {count}\n"));
        }
        line(format_args!("# TYPE apiserver_request_duration_seconds histogram\n"));
        for (verb, latency) in self.latency.lock().iter() {
            for (count, bound) in latency.counts.iter().zip(BUCKETS) {
                line(format_args!(
                    "apiserver_request_duration_seconds_bucket{{verb=\"{verb}\",le=\"{bound}\"}} {count}\n"
                ));
            }
            let (total, seconds) = (latency.total, latency.seconds);
            line(format_args!(
                "apiserver_request_duration_seconds_bucket{{verb=\"{verb}\",le=\"+Inf\"}} {total}\n"
            ));
            line(format_args!("apiserver_request_duration_seconds_sum{{verb=\"{verb}\"}} {seconds}\n"));
            line(format_args!("apiserver_request_duration_seconds_count{{verb=\"{verb}\"}} {total}\n"));
        }
        line(format_args!("# TYPE apiserver_longrunning_requests gauge\n"));
        let watches = self.watches.load(Ordering::Relaxed);
        line(format_args!("apiserver_longrunning_requests{{verb=\"WATCH\"}} {watches}\n"));
        line(format_args!("# TYPE apiserver_storage_objects gauge\n"));
        for (resource, count) in objects {
            line(format_args!("apiserver_storage_objects{{resource=\"{resource}\"}} {count}\n"));
        }
        line(format_args!(
            "# TYPE neonvm_apiserver_revision counter\nneonvm_apiserver_revision {revision}\n"
        ));
        text
    }
}
