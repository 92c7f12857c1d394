//! Metrics of watches, under the names of upstream's services.
//!
//! Two labels differ. A client here does not distinguish whether an object was added or modified: both are `APPLIED`. And a list is
//! counted as requested again each time it is not the first one.

use kube::runtime::watcher::{Error, Event};

use crate::metrics::{Counter, Family, Gauge, Registry};

/// Names of the families; see [`watch_names`](crate::watch_names).
#[derive(Clone, Copy, Debug)]
pub struct WatchNames {
    /// Lists and watches that were requested, by `method`.
    pub client_calls: &'static str,
    /// Lists that were requested again.
    pub relists: &'static str,
    /// Events of watches, by `type`.
    pub events: &'static str,
    /// Errors, by `source`.
    pub errors: &'static str,
    /// 1 for a watch that runs or waits to be tried again.
    pub alive: &'static str,
    /// 1 for a watch whose last request failed.
    pub failing: &'static str,
}

/// The names with a prefix, such as `autoscaling_agent_watchers`.
#[macro_export]
macro_rules! watch_names {
    ($prefix:literal) => {
        $crate::watch_metrics::WatchNames {
            client_calls: concat!($prefix, "_client_calls_total"),
            relists: concat!($prefix, "_relist_requests_total"),
            events: concat!($prefix, "_events_total"),
            errors: concat!($prefix, "_errors_total"),
            alive: concat!($prefix, "_alive_current"),
            failing: concat!($prefix, "_failing_current"),
        }
    };
}

/// Metrics of all watches of a service. Label: the watch, `watcher_instance`.
#[derive(Clone, Debug)]
pub struct WatchMetrics {
    calls: Family<Counter, 2>,
    relists: Family<Counter, 1>,
    events: Family<Counter, 2>,
    errors: Family<Counter, 2>,
    alive: Family<Gauge, 1>,
    failing: Family<Gauge, 1>,
}

impl WatchMetrics {
    #[must_use]
    pub fn new(registry: &Registry, names: &WatchNames) -> Self {
        const WATCH: &str = "watcher_instance";
        let errors = "Lists, watches and events that failed.";
        Self {
            calls: registry.counters(names.client_calls, "Lists and watches requested.", [WATCH, "method"]),
            relists: registry.counters(names.relists, "Lists requested again.", [WATCH]),
            events: registry.counters(names.events, "Changes that watches have shown.", [WATCH, "type"]),
            errors: registry.counters(names.errors, errors, [WATCH, "source"]),
            alive: registry.gauges(names.alive, "Whether a watch runs or is tried again.", [WATCH]),
            failing: registry.gauges(names.failing, "Whether a watch's last request failed.", [WATCH]),
        }
    }

    pub fn observe<K>(&self, watch: &str, shown: &Result<Event<K>, Error>) {
        let (alive, failing) = (self.alive.with([watch]), self.failing.with([watch]));
        let again = alive.get() > 0.0;
        alive.set(1.0);
        failing.set(f64::from(u8::from(shown.is_err())));
        match shown {
            Ok(Event::Init) => {
                self.calls.with([watch, "List"]).inc();
                if again {
                    self.relists.with([watch]).inc();
                }
            }
            Ok(Event::InitApply(_)) => {}
            Ok(Event::InitDone) => self.calls.with([watch, "Watch"]).inc(),
            Ok(Event::Apply(_)) => self.events.with([watch, "APPLIED"]).inc(),
            Ok(Event::Delete(_)) => self.events.with([watch, "DELETED"]).inc(),
            Err(Error::InitialListFailed(_)) => self.errors.with([watch, "List"]).inc(),
            Err(Error::WatchError(_)) => {
                self.events.with([watch, "ERROR"]).inc();
                self.errors.with([watch, "Watch.Event"]).inc();
            }
            Err(_) => self.errors.with([watch, "Watch"]).inc(),
        }
    }

    pub fn ended(&self, watch: &str) {
        self.alive.with([watch]).set(0.0);
        self.failing.with([watch]).set(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_watch_shows_is_counted() {
        let registry = Registry::new();
        let metrics = WatchMetrics::new(&registry, &watch_names!("x_watchers"));
        for shown in [Event::Init, Event::InitApply(1), Event::InitDone, Event::Apply(1), Event::Delete(1)] {
            metrics.observe("Pod", &Ok(shown));
        }
        metrics.observe::<()>("Pod", &Err(Error::NoResourceVersion));
        let failing = registry.page().finish();
        metrics.observe("Pod", &Ok(Event::<()>::Init));
        let text = registry.page().finish();
        assert!(failing.contains("x_watchers_failing_current{watcher_instance=\"Pod\"} 1\n"), "{failing}");
        for line in [
            "x_watchers_client_calls_total{watcher_instance=\"Pod\",method=\"List\"} 2",
            "x_watchers_client_calls_total{watcher_instance=\"Pod\",method=\"Watch\"} 1",
            "x_watchers_relist_requests_total{watcher_instance=\"Pod\"} 1",
            "x_watchers_events_total{watcher_instance=\"Pod\",type=\"APPLIED\"} 1",
            "x_watchers_events_total{watcher_instance=\"Pod\",type=\"DELETED\"} 1",
            "x_watchers_errors_total{watcher_instance=\"Pod\",source=\"Watch\"} 1",
            "x_watchers_alive_current{watcher_instance=\"Pod\"} 1",
            "x_watchers_failing_current{watcher_instance=\"Pod\"} 0",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
