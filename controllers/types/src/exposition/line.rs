//! Reading the text exposition format of Prometheus, and OpenMetrics as far as it looks the same, line by line.
//!
//! A line is empty, a comment (of which `# TYPE name kind` counts), or `name{label="value",…} value [timestamp]`. The
//! parser is our own because it must skip other series without allocating, continue after an invalid line, and have
//! limits; no available crate does all three.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Longest line that is read, in bytes.
pub const MOST_LINE: usize = 16 * 1024;
/// Longest name, of a metric or of a label, in bytes.
pub const MOST_NAME: usize = 1024;
/// Most labels of a series.
pub const MOST_LABELS: usize = 64;

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Only grows, from 0 at the start of the program.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of observations up to given bounds.
    Histogram,
    /// A sum and a count, and quantiles that cannot be added.
    Summary,
    /// Another type, or none declared.
    Other,
}

impl Kind {
    fn parse(word: &str) -> Self {
        match word {
            "counter" => Self::Counter,
            "gauge" => Self::Gauge,
            "histogram" => Self::Histogram,
            "summary" => Self::Summary,
            _ => Self::Other,
        }
    }

    /// The word after `# TYPE NAME`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
            Self::Other => "untyped",
        }
    }
}

/// Bytes that a name of a series may contain, a bit for each: this is checked for most bytes of a text.
const OF_NAME: u128 = {
    let (mut bits, mut byte) = (0, 0_u8);
    while byte < 128 {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'.' | b'-' | b'/') {
            bits |= 1 << byte;
        }
        byte += 1;
    }
    bits
};

const fn is_of_name(byte: u8) -> bool {
    byte < 128 && (OF_NAME >> byte) & 1 == 1
}

/// One line that is neither empty nor an ignored comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// What a metric is.
    Kind {
        /// Name of the metric.
        name: &'a str,
        /// Type of the metric.
        kind: Kind,
    },
    /// A series with its value, not read yet.
    Sample {
        /// The name of the series.
        name: &'a str,
        /// Labels and value.
        rest: &'a str,
    },
    /// It is invalid.
    Unreadable,
}

/// The lines of a text, without empty ones and ignored comments, with their numbers from 1.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
}

impl<'a> Lines<'a> {
    /// The lines of a text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { lines: text.lines().enumerate() }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (usize, Line<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (index, line) = self.lines.next()?;
            if let Some(line) = Line::read(line.trim_matches([' ', '\t', '\r'])) {
                return Some((index.saturating_add(1), line));
            }
        }
    }
}

impl<'a> Line<'a> {
    /// One line; `None` if it is empty or an ignored comment.
    fn read(line: &'a str) -> Option<Self> {
        if line.is_empty() {
            return None;
        }
        if let Some(comment) = line.strip_prefix('#') {
            // Most comments are help texts, which are ignored.
            let declaration = comment.trim_ascii_start().strip_prefix("TYPE")?;
            if !declaration.starts_with(|c: char| c.is_ascii_whitespace()) {
                return None;
            }
            let mut words = declaration.split_ascii_whitespace();
            let (name, kind) = (words.next()?, words.next()?);
            return Some(Self::Kind { name, kind: Kind::parse(kind) });
        }
        let end = line.bytes().position(|b| !is_of_name(b)).unwrap_or(line.len());
        let (name, rest) = line.split_at_checked(end)?;
        if name.is_empty()
            || !rest.starts_with(['{', ' ', '\t'])
            || line.len() > MOST_LINE
            || name.len() > MOST_NAME
        {
            return Some(Self::Unreadable);
        }
        Some(Self::Sample { name, rest })
    }
}

/// A series with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The labels as written, without braces.
    pub labels: &'a str,
    /// The labels apart.
    pairs: Vec<(&'a str, Cow<'a, str>)>,
    /// Any float, also an implausible one.
    pub value: f64,
}

impl<'a> Sample<'a> {
    /// Reads what follows the name of a series.
    #[must_use]
    pub fn read(rest: &'a str) -> Option<Self> {
        let (labels, pairs, rest) = match rest.trim_start().strip_prefix('{') {
            Some(inside) => {
                let (pairs, after) = pairs(inside)?;
                let labels = inside.get(..inside.len().checked_sub(after.len())?.checked_sub(1)?)?;
                (labels.trim(), pairs, after)
            }
            None => ("", Vec::new(), rest),
        };
        // OpenMetrics may add an example after a hash.
        let rest = rest.split_once(" #").map_or(rest, |(before, _)| before);
        let mut words = rest.split_ascii_whitespace();
        let value = number(words.next()?)?;
        let timestamp = words.next().map(str::parse::<f64>);
        (timestamp.is_none_or(|at| at.is_ok()) && words.next().is_none()).then_some(Self {
            labels,
            pairs,
            value,
        })
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        self.pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())
    }
}

/// A float as the format writes it; `None` if it is none.
#[must_use]
pub fn number(word: &str) -> Option<f64> {
    match word {
        "+Inf" | "Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        // Rust also reads "infinity" and the like, which the format does not have.
        _ if word.len() <= 400 && word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            word.parse().ok().filter(|value: &f64| value.is_finite() || word.contains(['e', 'E']))
        }
        _ => None,
    }
}

type Pairs<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// The labels up to the closing brace, and what follows it.
fn pairs(mut rest: &str) -> Option<(Pairs<'_>, &str)> {
    let mut pairs = Pairs::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Some((pairs, after));
        }
        if pairs.len() >= MOST_LABELS {
            return None;
        }
        let (name, after) = rest.split_once('=')?;
        let name = name.trim();
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'.';
        if name.is_empty() || name.len() > MOST_NAME || !name.bytes().all(good) {
            return None;
        }
        let (value, after) = quoted(after.trim_start().strip_prefix('"')?)?;
        pairs.push((name, value));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.starts_with('}') => after,
            None => return None,
        };
    }
}

/// The text up to the closing quote, and what follows it. Nothing is copied unless something is escaped.
/// `None` without a closing quote, and for an unknown escape.
#[must_use]
pub fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.bytes().position(|b| b == b'"' || b == b'\\')?;
    let (plain, after) = text.split_at_checked(end)?;
    if let Some(after) = after.strip_prefix('"') {
        return Some((Cow::Borrowed(plain), after));
    }
    let mut value = plain.to_owned();
    let mut chars = after.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return Some((Cow::Owned(value), after.get(index.checked_add(1)?..)?)),
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
