//! The page of metrics, with the labels that most samples have in common.

use neonvm_types::exposition::{Kind, Labels, Page};

/// Name, type and help of a family.
type Pending = (&'static str, Kind, &'static str);

/// A page being written, family after family.
#[derive(Debug)]
pub(super) struct Text {
    page: Page,
    host: String,
    collector: &'static str,
    /// The family that is not started yet: a family without samples is left out.
    pending: Option<Pending>,
}

impl Text {
    pub(super) fn new(host: &str) -> Self {
        Self { page: Page::new(), host: host.to_owned(), collector: "", pending: None }
    }

    /// What the following samples name as their `collector`.
    pub(super) const fn collector(&mut self, collector: &'static str) {
        self.collector = collector;
    }

    pub(super) const fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        self.pending = Some((name, kind, help));
    }

    /// Adds a sample with the labels `collector` and `host` besides its own.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: f64) {
        let Self { page, host, collector, pending } = self;
        let mut all = vec![("collector", *collector)];
        all.extend_from_slice(labels);
        if !host.is_empty() {
            all.push(("host", host));
        }
        write(page, pending, &all, value);
    }

    /// Adds a sample with nothing but its own labels.
    pub(super) fn plain(&mut self, labels: Labels<'_>, value: f64) {
        write(&mut self.page, &mut self.pending, labels, value);
    }

    /// A family with one sample without further labels; none for an unknown value.
    pub(super) fn single(&mut self, name: &'static str, kind: Kind, help: &'static str, value: Option<f64>) {
        self.family(name, kind, help);
        if let Some(value) = value {
            self.sample(&[], value);
        }
    }

    pub(super) fn finish(self) -> String {
        self.page.finish()
    }
}

/// Adds a sample, after the start of its family if that is pending; none for what is no number.
fn write(page: &mut Page, pending: &mut Option<Pending>, labels: Labels<'_>, value: f64) {
    if !value.is_finite() {
        return;
    }
    if let Some((name, kind, help)) = pending.take() {
        page.family(name, kind, help);
    }
    page.sample(labels, value);
}
