//! Writing the Prometheus text format, version 0.0.4.

use std::fmt::Write as _;

/// Type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// A page being written, family after family.
#[derive(Debug)]
pub(super) struct Text {
    page: String,
    host: String,
    collector: &'static str,
    /// The family whose head is not written yet: a family without samples is left out.
    pending: Option<(&'static str, Kind, &'static str)>,
    name: &'static str,
}

impl Text {
    pub(super) fn new(host: &str) -> Self {
        Self {
            page: String::with_capacity(16 * 1024),
            host: escaped(host),
            collector: "",
            pending: None,
            name: "",
        }
    }

    /// What the following samples name as their `collector`.
    pub(super) const fn collector(&mut self, collector: &'static str) {
        self.collector = collector;
    }

    /// Starts a family.
    pub(super) const fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        self.pending = Some((name, kind, help));
        self.name = name;
    }

    /// Adds a sample with the labels `collector` and `host` besides its own.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let collector = self.collector;
        self.write(&[("collector", collector)], labels, true, value);
    }

    /// Adds a sample with nothing but its own labels.
    pub(super) fn plain(&mut self, labels: &[(&str, &str)], value: f64) {
        self.write(&[], labels, false, value);
    }

    /// A family with one sample without labels of its own; none for a value that is not known.
    pub(super) fn single(&mut self, name: &'static str, kind: Kind, help: &'static str, value: Option<f64>) {
        self.family(name, kind, help);
        if let Some(value) = value {
            self.sample(&[], value);
        }
    }

    pub(super) fn finish(self) -> String {
        self.page
    }

    fn write(&mut self, first: &[(&str, &str)], labels: &[(&str, &str)], host: bool, value: f64) {
        if !value.is_finite() {
            return;
        }
        if let Some((name, kind, help)) = self.pending.take() {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            let _ = writeln!(self.page, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        self.page.push_str(self.name);
        let mut separator = '{';
        for (name, value) in first.iter().chain(labels) {
            let _ = write!(self.page, "{separator}{name}=\"{}\"", escaped(value));
            separator = ',';
        }
        if host && !self.host.is_empty() {
            let _ = write!(self.page, "{separator}host=\"{}\"", self.host);
            separator = ',';
        }
        if separator == ',' {
            self.page.push('}');
        }
        let _ = writeln!(self.page, " {value}");
    }
}

/// Backslashes, quotes and line ends are escaped; other control characters say nothing and confuse parsers.
fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            character if character.is_control() => escaped.push('\u{fffd}'),
            character => escaped.push(character),
        }
    }
    escaped
}
