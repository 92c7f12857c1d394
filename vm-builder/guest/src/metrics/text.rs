//! The page of metrics, with the labels that most samples have in common.

use neonvm_types::exposition::{Kind, Labels, Page};

/// A page being written, family after family.
#[derive(Debug)]
pub(super) struct Text {
    page: Page,
    host: String,
    collector: &'static str,
    /// The family that is not started yet: a family without samples is left out.
    pending: Option<(&'static str, Kind, &'static str)>,
}

impl Text {
    pub(super) fn new(host: &str) -> Self {
        Self { page: Page::new(), host: host.to_owned(), collector: "", pending: None }
    }

    /// What the following samples name as their `collector`.
    pub(super) const fn collector(&mut self, collector: &'static str) {
        self.collector = collector;
    }

    /// Starts a family.
    pub(super) const fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        self.pending = Some((name, kind, help));
    }

    /// Adds a sample with the labels `collector` and `host` besides its own.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: f64) {
        let host = self.host.clone();
        let mut all = vec![("collector", self.collector)];
        all.extend_from_slice(labels);
        if !host.is_empty() {
            all.push(("host", &host));
        }
        self.plain(&all, value);
    }

    /// Adds a sample with nothing but its own labels; none for what is no number.
    pub(super) fn plain(&mut self, labels: Labels<'_>, value: f64) {
        if !value.is_finite() {
            return;
        }
        if let Some((name, kind, help)) = self.pending.take() {
            self.page.family(name, kind, help);
        }
        self.page.sample(labels, value);
    }

    /// A family with one sample without labels of its own; none for a value that is not known.
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
