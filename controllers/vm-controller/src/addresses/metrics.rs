//! Metrics of requests for addresses, by upstream's names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::metrics::{Histogram, head, line};

/// Upper ends in milliseconds.
const ENDS: &[u64] = &[10, 50, 100, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 30_000];

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Acquire,
    Release,
}

#[derive(Debug)]
struct Of {
    ongoing: AtomicU64,
    success: Histogram,
    failure: Histogram,
}

impl Default for Of {
    fn default() -> Self {
        Self { ongoing: AtomicU64::new(0), success: Histogram::new(ENDS), failure: Histogram::new(ENDS) }
    }
}

/// The metrics.
#[derive(Debug, Default)]
pub(crate) struct Ipam {
    acquire: Of,
    release: Of,
}

/// A request under way; counts as such until it is dropped.
#[derive(Debug)]
pub(crate) struct Timer {
    ipam: Arc<Ipam>,
    action: Action,
    started: Instant,
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.ipam.of(self.action).ongoing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Timer {
    pub(crate) fn end(self, well: bool) {
        let of = self.ipam.of(self.action);
        let histogram = if well { &of.success } else { &of.failure };
        histogram.observe(self.started.elapsed());
    }
}

impl Ipam {
    fn of(&self, action: Action) -> &Of {
        match action {
            Action::Acquire => &self.acquire,
            Action::Release => &self.release,
        }
    }

    /// A request begins.
    pub(crate) fn start(self: &Arc<Self>, action: Action) -> Timer {
        self.of(action).ongoing.fetch_add(1, Ordering::Relaxed);
        Timer { ipam: Arc::clone(self), action, started: Instant::now() }
    }

    /// The text; `counts` are addresses held and resting, if they are known.
    pub(crate) fn render(&self, out: &mut String, counts: Option<(usize, usize)>) {
        let all = [("acquire", &self.acquire), ("release", &self.release)];
        let name = "ipam_ongoing_requests";
        head(out, name, "gauge", "Requests for addresses under way.");
        for (action, of) in all {
            let count = of.ongoing.load(Ordering::Relaxed);
            line(out, format_args!("{name}{{action=\"{action}\"}} {count}"));
        }
        let name = "ipam_request_duration_seconds";
        head(out, name, "histogram", "Time of a request for an address.");
        for (action, of) in all {
            for (outcome, histogram) in [("success", &of.success), ("failure", &of.failure)] {
                histogram.render(out, name, &format!("action=\"{action}\",outcome=\"{outcome}\""));
            }
        }
        if let Some((held, resting)) = counts {
            let name = "neonvm_overlay_addresses";
            head(
                out,
                name,
                "gauge",
                "Addresses on the overlay network that VMs have or that rest after use.",
            );
            line(out, format_args!("{name}{{state=\"held\"}} {held}"));
            line(out, format_args!("{name}{{state=\"resting\"}} {resting}"));
        }
    }
}
