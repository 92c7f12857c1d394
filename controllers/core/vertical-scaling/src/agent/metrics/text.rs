//! The Prometheus text format, version 0.0.4, as far as it is needed.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>: a line is empty, a comment (of which `# TYPE name kind`
//! counts), or `name{label="value",…} value [timestamp]`.

use std::collections::BTreeMap;

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    /// Labels, in the order of the line.
    pub labels: Vec<(String, String)>,
    /// The value: any float, also an invalid one.
    pub value: f64,
}

impl Sample {
    /// The value of a label.
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// One series by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Family {
    /// The metric's type from `# TYPE`.
    pub kind: Option<String>,
    /// Samples of the family, in the order of the text.
    pub samples: Vec<Sample>,
    /// Lines that have its name and cannot be read; the first one's number.
    pub broken: Option<usize>,
}

/// Most samples that are kept of one series.
const MOST_SAMPLES: usize = 4096;
/// Most labels that are read on one line.
const MOST_LABELS: usize = 64;

/// The families whose names are in `wanted`; all others are skipped.
pub(super) fn families(text: &str, wanted: &[&str]) -> BTreeMap<String, Family> {
    let mut found: BTreeMap<String, Family> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            let mut words = comment.split_ascii_whitespace();
            if let (Some("TYPE"), Some(name), Some(kind)) = (words.next(), words.next(), words.next())
                && wanted.contains(&name)
            {
                found.entry(name.to_owned()).or_default().kind = Some(kind.to_owned());
            }
            continue;
        }
        let end = line.find(|c: char| c == '{' || c.is_ascii_whitespace()).unwrap_or(line.len());
        let Some((name, rest)) = line.split_at_checked(end) else { continue };
        if !wanted.contains(&name) {
            continue;
        }
        let family = found.entry(name.to_owned()).or_default();
        match sample(rest) {
            Some(_) if family.samples.len() >= MOST_SAMPLES => {}
            Some(sample) => family.samples.push(sample),
            None => family.broken = family.broken.or(Some(index.saturating_add(1))),
        }
    }
    found
}

/// What follows a name.
fn sample(rest: &str) -> Option<Sample> {
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    let mut words = rest.split_ascii_whitespace();
    let value = number(words.next()?)?;
    let timestamp = words.next().map(str::parse::<i64>);
    (timestamp.is_none_or(|t| t.is_ok()) && words.next().is_none()).then_some(Sample { labels, value })
}

fn number(word: &str) -> Option<f64> {
    match word {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        // Rust also reads "inf", "nan" and "infinity", which the format does not have.
        _ if word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            word.parse().ok().filter(|value: &f64| value.is_finite() || word.contains(['e', 'E']))
        }
        _ => None,
    }
}

type Labels = Vec<(String, String)>;

/// The labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        if labels.len() >= MOST_LABELS {
            return None;
        }
        let (name, after) = rest.split_once('=')?;
        let (value, after) = quoted(after.trim_start().strip_prefix('"')?)?;
        labels.push((name.trim().to_owned(), value));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.starts_with('}') => after,
            None => return None,
        };
    }
}

/// The text up to the closing quote, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(index.checked_add(1)?..)?)),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                escaped @ ('\\' | '"') => value.push(escaped),
                _ => return None,
            },
            _ => value.push(c),
        }
    }
    None
}
