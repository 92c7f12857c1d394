//! Metrics of requests for addresses, by upstream's names.

use std::time::Instant;

use neonvm_kit::metrics::{Family, Gauge, Held, Histogram, Registry};

/// Upper bounds in seconds.
const BOUNDS: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0];

/// The operation on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Acquire,
    Release,
}

impl Action {
    const fn label(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Release => "release",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ipam {
    ongoing: Family<Gauge, 1>,
    took: Family<Histogram, 2>,
}

/// A request under way; counts as such until it is dropped.
#[derive(Debug)]
pub(crate) struct Timer {
    _ongoing: Held,
    success: Histogram,
    failure: Histogram,
    started: Instant,
}

impl Timer {
    pub(crate) fn end(self, well: bool) {
        let histogram = if well { &self.success } else { &self.failure };
        histogram.observe(self.started.elapsed());
    }
}

impl Ipam {
    pub(crate) fn new(registry: &Registry) -> Self {
        let ipam = Self {
            ongoing: registry.gauges(
                "ipam_ongoing_requests",
                "Requests for addresses under way.",
                ["action"],
            ),
            took: registry.histograms(
                "ipam_request_duration_seconds",
                "Time of a request for an address.",
                ["action", "outcome"],
                BOUNDS,
            ),
        };
        // All series are there from the start.
        for action in [Action::Acquire, Action::Release] {
            drop(ipam.start(action));
        }
        ipam
    }

    /// A request begins.
    pub(crate) fn start(&self, action: Action) -> Timer {
        let action = action.label();
        Timer {
            _ongoing: self.ongoing.with([action]).hold(),
            success: self.took.with([action, "success"]),
            failure: self.took.with([action, "failure"]),
            started: Instant::now(),
        }
    }
}
