//! Writing the text exposition format of Prometheus, version 0.0.4; [`line`] reads it. No other code of the project does.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>: a family is a `# HELP` and a `# TYPE` line and then
//! all of its samples. The services write through `neonvm_kit::metrics`, the guest program directly.
//!
//! Why no crate writes it. `prometheus-client` writes OpenMetrics: it appends `_total` to every counter and ends every
//! help text with a dot, and writes bucket bounds as `1.0` where upstream has `1`; its families cannot be iterated and its
//! buckets not be read, so its types cannot feed another encoder. `prometheus` writes this format, from a tree of owned
//! strings: for a page of 24 KB with 250 samples, as a guest's is, the tree takes 162 KB of heap instead of 49 KB, and a
//! small program with the guest's build profile grows by 41 KB instead of 3 KB. Both together are more than what SPEC.md
//! leaves of the memory of an idle guest, 0.1 MiB.

use core::fmt::{self, Write as _};

pub mod line;

pub use line::Kind;

/// The content type of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// Label names with their values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A page being written, family after family.
///
/// A family that comes twice makes Prometheus refuse the whole page, so what is written after the second start of a family
/// is left out.
#[derive(Clone, Debug, Default)]
pub struct Page {
    text: String,
    families: Vec<&'static str>,
    /// The present family is a repeated one.
    is_repeated: bool,
}

impl Page {
    /// An empty page.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a family; the following samples belong to it.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        self.is_repeated = self.families.contains(&name);
        debug_assert!(!self.is_repeated, "{name} twice");
        if self.is_repeated {
            return;
        }
        self.families.push(name);
        self.write(format_args!("# HELP {name} {}\n# TYPE {name} {}\n", Help(help), kind.word()));
    }

    /// Adds a sample to the family.
    pub fn sample(&mut self, labels: Labels<'_>, value: f64) {
        self.line("", labels, None, value);
    }

    /// A family with one sample that has no labels.
    pub fn single(&mut self, name: &'static str, kind: Kind, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }

    /// Adds a histogram to the family: its upper bounds, in ascending order, each with the number of observations above the
    /// bound before and not above this one; the number of all observations and their sum.
    pub fn histogram(
        &mut self,
        labels: Labels<'_>,
        buckets: impl IntoIterator<Item = (f64, u64)>,
        count: u64,
        sum: f64,
    ) {
        let mut up_to = 0_u64;
        for (bound, observations) in buckets {
            up_to = up_to.saturating_add(observations);
            self.line("_bucket", labels, Some(bound), double(up_to));
        }
        self.line("_bucket", labels, Some(f64::INFINITY), double(count));
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, double(count));
    }

    /// The page as text.
    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<f64>, value: f64) {
        let Some(name) = self.families.last().filter(|_| !self.is_repeated) else { return };
        let name = *name;
        self.write(format_args!("{name}{suffix}"));
        let mut separator = '{';
        for (label, value) in labels {
            self.write(format_args!("{separator}{label}=\"{}\"", Value(value)));
            separator = ',';
        }
        if let Some(bound) = bound {
            self.write(format_args!("{separator}le=\"{}\"", Number(bound)));
            separator = ',';
        }
        let close = if separator == ',' { "}" } else { "" };
        self.write(format_args!("{close} {}\n", Number(value)));
    }

    fn write(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.text.write_fmt(text);
    }
}

/// The nearest double; counts beyond 2^53 lose their last digits.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "Prometheus values are doubles")]
pub const fn double(value: u64) -> f64 {
    value as f64
}

struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            f64::INFINITY => out.write_str("+Inf"),
            f64::NEG_INFINITY => out.write_str("-Inf"),
            value => write!(out, "{value}"),
        }
    }
}

struct Help<'a>(&'a str);

impl fmt::Display for Help<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(out, self.0, false)
    }
}

struct Value<'a>(&'a str);

impl fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(out, self.0, true)
    }
}

/// Backslashes, line ends and, in labels, quotes are escaped; other control characters are replaced, because parsers reject them.
fn escape(out: &mut fmt::Formatter<'_>, text: &str, quotes: bool) -> fmt::Result {
    text.chars().try_for_each(|character| match character {
        '\\' => out.write_str("\\\\"),
        '\n' => out.write_str("\\n"),
        '"' if quotes => out.write_str("\\\""),
        character if character.is_control() => out.write_char('\u{fffd}'),
        character => out.write_char(character),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_written_to_the_letter() {
        let mut page = Page::new();
        page.family("requests_total", Kind::Counter, "Requests, by \"path\"\nand a \\.");
        page.sample(&[("path", "C:\\a \"b\"\nc\u{7}"), ("code", "200")], 3.0);
        page.sample(&[("path", ""), ("code", "ü")], 1e15);
        page.single("temperature", Kind::Gauge, "Degrees.", -1.5);
        page.family("took_seconds", Kind::Histogram, "Time.");
        page.histogram(&[("path", "\"")], [(0.001, 1), (1.0, 0), (2.5, 2)], 4, 9.25);
        page.histogram(&[], [(1e-5, 0)], 0, 0.0);
        let expected = r#"# HELP requests_total Requests, by "path"\nand a \\.
# TYPE requests_total counter
requests_total{path="C:\\a \"b\"\nc�",code="200"} 3
requests_total{path="",code="ü"} 1000000000000000
# HELP temperature Degrees.
# TYPE temperature gauge
temperature -1.5
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{path="\"",le="0.001"} 1
took_seconds_bucket{path="\"",le="1"} 1
took_seconds_bucket{path="\"",le="2.5"} 3
took_seconds_bucket{path="\"",le="+Inf"} 4
took_seconds_sum{path="\""} 9.25
took_seconds_count{path="\""} 4
took_seconds_bucket{le="0.00001"} 0
took_seconds_bucket{le="+Inf"} 0
took_seconds_sum 0
took_seconds_count 0
"#;
        assert_eq!(page.finish(), expected);
    }

    #[test]
    fn what_is_no_number_has_the_words_of_the_format() {
        let mut page = Page::new();
        page.family("g", Kind::Gauge, "");
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            page.sample(&[], value);
        }
        assert_eq!(page.finish(), "# HELP g \n# TYPE g gauge\ng +Inf\ng -Inf\ng NaN\n");
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "a twice"))]
    fn a_family_comes_once() {
        let mut page = Page::new();
        page.single("a", Kind::Gauge, "A.", 1.0);
        page.single("a", Kind::Gauge, "A.", 2.0);
        assert_eq!(page.finish(), "# HELP a A.\n# TYPE a gauge\na 1\n");
    }
}
