//! Metrics of a service: counters, gauges and histograms in one registry, which writes the page that Prometheus reads.
//!
//! What a service counts is registered once, with its help text, and counted through what the registration returned.
//! Values that can be read when a page is requested are not counted beside it: the service adds them to the page. The
//! text format itself is in [`neonvm_types::exposition`], with the reason why no crate writes it; without that, a crate
//! would only give the atomics that are here, with constructors that fail and label counts that are checked while the
//! program runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use neonvm_types::exposition::{CONTENT_TYPE, Kind, Labels, Page, double};

use crate::http::{FullResponse, text};

/// The value of all labels of the series that counts for those beyond the bound of its family.
const OTHER: &str = "[other]";
/// Series that a family has at most, by default. Label values may come from outside.
const MOST_SERIES: usize = 10_000;

#[must_use]
pub fn answer(page: Page) -> FullResponse {
    text(http::StatusCode::OK, CONTENT_TYPE, page.finish())
}

/// What a family consists of: one for each set of label values.
pub trait Series: Clone + fmt::Debug + Send + Sync + 'static {
    /// Type of the family.
    const KIND: Kind;

    /// A series with nothing counted. Histograms have these upper bounds.
    fn new(bounds: &'static [f64]) -> Self;

    /// Adds the present value to a page.
    fn write(&self, page: &mut Page, labels: Labels<'_>);
}

/// A number that only grows.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Counts one.
    pub fn inc(&self) {
        self.add(1.0);
    }

    /// Counts an amount; what is not above 0 counts as nothing.
    pub fn add(&self, amount: f64) {
        if amount > 0.0 {
            add(&self.0, amount);
        }
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// The bits of a double. Another thread's change in between makes it try again.
fn add(bits: &AtomicU64, amount: f64) {
    let sum = |bits: u64| Some((f64::from_bits(bits) + amount).to_bits());
    // It is retried until it succeeds.
    let _ = bits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
}

impl Series for Counter {
    const KIND: Kind = Kind::Counter;

    fn new(_: &'static [f64]) -> Self {
        Self::default()
    }

    fn write(&self, page: &mut Page, labels: Labels<'_>) {
        page.sample(labels, self.get());
    }
}

/// A number that goes up and down.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Counts one more until the result is dropped.
    #[must_use]
    pub fn hold(&self) -> Held {
        add(&self.0, 1.0);
        Held(self.clone())
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Series for Gauge {
    const KIND: Kind = Kind::Gauge;

    fn new(_: &'static [f64]) -> Self {
        Self::default()
    }

    fn write(&self, page: &mut Page, labels: Labels<'_>) {
        page.sample(labels, self.get());
    }
}

/// Something that a gauge counts as long as it lasts.
#[derive(Debug)]
pub struct Held(Gauge);

impl Drop for Held {
    fn drop(&mut self) {
        add(&self.0.0, -1.0);
    }
}

/// How long things took, counted up to given bounds.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Upper bounds in seconds, ascending.
    bounds: &'static [f64],
    observed: Arc<Mutex<Observed>>,
}

#[derive(Debug, Default)]
struct Observed {
    /// For each bound the observations above the bound before and not above this one.
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    /// Counts something that took this long.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut observed = lock(&self.observed);
        if let Some((count, _)) =
            observed.counts.iter_mut().zip(self.bounds).find(|(_, end)| seconds <= **end)
        {
            *count = count.saturating_add(1);
        }
        observed.count = observed.count.saturating_add(1);
        observed.sum += seconds;
    }

    /// The number of observations.
    #[must_use]
    pub fn count(&self) -> u64 {
        lock(&self.observed).count
    }
}

impl Series for Histogram {
    const KIND: Kind = Kind::Histogram;

    fn new(bounds: &'static [f64]) -> Self {
        let counts = vec![0; bounds.len()];
        Self { bounds, observed: Arc::new(Mutex::new(Observed { counts, ..Observed::default() })) }
    }

    fn write(&self, page: &mut Page, labels: Labels<'_>) {
        let observed = lock(&self.observed);
        let buckets = self.bounds.iter().copied().zip(observed.counts.iter().copied());
        page.histogram(labels, buckets, observed.count, observed.sum);
    }
}

/// The series of one name, by the values of `N` labels.
#[derive(Clone, Debug)]
pub struct Family<S, const N: usize>(Arc<Members<S, N>>);

#[derive(Debug)]
struct Members<S, const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    bounds: &'static [f64],
    most: usize,
    series: Mutex<BTreeMap<[String; N], S>>,
}

impl<S: Series, const N: usize> Family<S, N> {
    /// The series with these values, which is there from now on.
    #[must_use]
    pub fn with(&self, values: [&str; N]) -> S {
        let mut series = lock(&self.0.series);
        let mut key = values.map(str::to_owned);
        if series.len() >= self.0.most && !series.contains_key(&key) {
            key = [OTHER; N].map(str::to_owned);
        }
        series.entry(key).or_insert_with(|| S::new(self.0.bounds)).clone()
    }
}

/// A family, whatever it consists of.
trait Write: fmt::Debug + Send + Sync {
    fn write(&self, page: &mut Page);
}

impl<S: Series, const N: usize> Write for Members<S, N> {
    fn write(&self, page: &mut Page) {
        page.family(self.name, S::KIND, self.help);
        for (values, series) in lock(&self.series).iter() {
            let mut labels = [("", ""); N];
            for (label, (name, value)) in labels.iter_mut().zip(self.labels.iter().zip(values)) {
                *label = (*name, value.as_str());
            }
            series.write(page, &labels);
        }
    }
}

/// Everything that a service counts, in the order of registration.
#[derive(Debug, Default)]
pub struct Registry(Mutex<Vec<Arc<dyn Write>>>);

impl Registry {
    /// A registry with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A counter without labels.
    pub fn counter(&self, name: &'static str, help: &'static str) -> Counter {
        self.counters(name, help, []).with([])
    }

    pub fn counters<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
    ) -> Family<Counter, N> {
        self.register(name, help, labels, &[], MOST_SERIES)
    }

    /// Counters with possibly many label values: those beyond the first `most` are counted as one.
    pub fn bounded_counters<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        most: usize,
    ) -> Family<Counter, N> {
        self.register(name, help, labels, &[], most)
    }

    pub fn gauges<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
    ) -> Family<Gauge, N> {
        self.register(name, help, labels, &[], MOST_SERIES)
    }

    /// A gauge without labels.
    pub fn gauge(&self, name: &'static str, help: &'static str) -> Gauge {
        self.gauges(name, help, []).with([])
    }

    /// A histogram without labels; the bounds are seconds, ascending.
    pub fn histogram(&self, name: &'static str, help: &'static str, bounds: &'static [f64]) -> Histogram {
        self.histograms(name, help, [], bounds).with([])
    }

    /// Histograms with labels; the bounds are seconds, ascending.
    pub fn histograms<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        bounds: &'static [f64],
    ) -> Family<Histogram, N> {
        self.register(name, help, labels, bounds, MOST_SERIES)
    }

    fn register<S: Series, const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        bounds: &'static [f64],
        most: usize,
    ) -> Family<S, N> {
        let members = Arc::new(Members { name, help, labels, bounds, most, series: Mutex::default() });
        lock(&self.0).push(Arc::<Members<S, N>>::clone(&members));
        Family(members)
    }

    /// A page with everything that is registered; what is read at the time of the scrape may be added to it.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new();
        for family in lock(&self.0).iter() {
            family.write(&mut page);
        }
        page
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use prometheus_parse::{Scrape, Value};

    use super::*;

    #[test]
    fn a_page_shows_what_was_counted() {
        let registry = Registry::new();
        let all = registry.counter("all_total", "All.");
        let by_path = registry.counters("by_path_total", "By path.", ["path", "code"]);
        let open = registry.gauge("open", "Open.");
        let took = registry.histograms("took_seconds", "Time.", ["path"], &[0.5, 1.0]);
        by_path.with(["/\"a\"\\\n", "200"]).add(2.5);
        by_path.with(["/\"a\"\\\n", "200"]).inc();
        by_path.with(["/", "200"]).add(-1.0);
        took.with(["/"]).observe(Duration::from_millis(500));
        took.with(["/"]).observe(Duration::from_secs(2));
        let (one, two) = (open.hold(), open.hold());
        drop(one);
        let mut page = registry.page();
        page.single("leading", Kind::Gauge, "Whether it leads.", 1.0);
        let expected = r#"# HELP all_total All.
# TYPE all_total counter
all_total 0
# HELP by_path_total By path.
# TYPE by_path_total counter
by_path_total{path="/",code="200"} 0
by_path_total{path="/\"a\"\\\n",code="200"} 3.5
# HELP open Open.
# TYPE open gauge
open 1
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{path="/",le="0.5"} 1
took_seconds_bucket{path="/",le="1"} 1
took_seconds_bucket{path="/",le="+Inf"} 2
took_seconds_sum{path="/"} 2.5
took_seconds_count{path="/"} 2
# HELP leading Whether it leads.
# TYPE leading gauge
leading 1
"#;
        let text = page.finish();
        assert_eq!(text, expected);
        assert_eq!((all.get(), took.with(["/"]).count()), (0.0, 2));
        drop(two);
        assert_eq!(open.get(), 0.0);

        let parsed = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap();
        let histogram = parsed.samples.iter().find(|sample| sample.metric == "took_seconds").unwrap();
        assert!(matches!(&histogram.value, Value::Histogram(buckets) if buckets.len() == 3));
    }

    #[test]
    fn a_family_is_bounded() {
        let registry = Registry::new();
        let errors = registry.bounded_counters("errors_total", "Errors.", ["client", "cause"], 2);
        for cause in 0..10 {
            errors.with(["http", &cause.to_string()]).inc();
        }
        errors.with(["http", "1"]).inc();
        let text = registry.page().finish();
        let samples: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(
            samples,
            [
                "errors_total{client=\"[other]\",cause=\"[other]\"} 8",
                "errors_total{client=\"http\",cause=\"0\"} 1",
                "errors_total{client=\"http\",cause=\"1\"} 2",
            ]
        );
    }

    #[test]
    fn threads_lose_nothing() {
        let counter = Registry::new().counter("all_total", "All.");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| counter.inc()));
            }
        });
        assert_eq!(counter.get(), 4000.0);
    }

    #[test]
    fn the_answer_names_the_format() {
        let answer = answer(Page::new());
        assert_eq!(answer.headers()[http::header::CONTENT_TYPE], "text/plain; version=0.0.4");
    }
}
