//! From a text in the Prometheus format to the requested series.

use std::{borrow::Borrow, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use crate::{
    histogram::Histogram,
    number::Finite,
    sample::{Measure, Missing, MissingReason},
};

mod query;

pub use query::{Matcher, Query, QueryError, Test};

use neonvm_api::pod_autoscaler::{Function, SeriesAggregation};
use neonvm_types::exposition::line;
pub use neonvm_types::exposition::line::{Kind, Line, Lines, Sample};

/// Most series that are kept of one query.
pub const MOST_SERIES: usize = 2048;
/// Most bytes of labels that are kept of one query.
pub const MOST_LABEL_BYTES: usize = 256 * 1024;

/// The result of one query on a text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Extract {
    /// The metric's type, if the text declares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Series by their labels, as written.
    pub series: BTreeMap<String, Finite>,
    /// What was counted, if it is a histogram or a summary; all series added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Histogram>,
    /// Series with a value that is no number.
    pub not_finite: usize,
    /// Lines of this metric that cannot be read.
    pub unreadable: usize,
    /// Series that were left out because there are too many.
    pub dropped: usize,
    /// Which name of the query was found; one that comes earlier takes the place of a later one.
    #[serde(skip)]
    rank: Option<usize>,
    /// Bytes of labels.
    #[serde(skip)]
    bytes: usize,
}

impl Extract {
    /// How much memory it takes, in bytes: an estimate from above.
    #[must_use]
    pub fn weight(&self) -> usize {
        let series: usize = self.series.keys().map(|labels| labels.len() + 96).sum();
        let buckets = self.histogram.as_ref().map_or(0, |histogram| histogram.buckets.len());
        256 + series + buckets * 32
    }

    fn prefers(&mut self, rank: usize) -> bool {
        if self.rank.is_none_or(|found| rank < found) {
            *self = Self { kind: self.kind, rank: Some(rank), ..Self::default() };
        }
        self.rank == Some(rank)
    }

    fn add(&mut self, labels: &str, value: Finite) {
        if let Some(have) = self.series.get_mut(labels) {
            *have = value;
            return;
        }
        let bytes = self.bytes.saturating_add(labels.len());
        if self.series.len() >= MOST_SERIES || bytes > MOST_LABEL_BYTES {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        self.bytes = bytes;
        self.series.insert(labels.to_owned(), value);
    }
}

/// What a whole text holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    /// One for each query, in their order.
    pub extracts: Vec<Extract>,
    /// Lines that cannot be read, of all metrics.
    pub unreadable: usize,
    /// Number of the first of them, from 1.
    pub first_unreadable: Option<usize>,
}

fn each<Q: Borrow<Query>>(queries: &[Q]) -> impl Iterator<Item = &Query> {
    queries.iter().map(Borrow::borrow)
}

/// Reads a text once for all queries.
#[must_use]
pub fn read<Q: Borrow<Query>>(text: &str, queries: &[Q]) -> Scrape {
    let mut scrape = Scrape { extracts: vec![Extract::default(); queries.len()], ..Scrape::default() };
    for (number, line) in Lines::new(text) {
        match line {
            Line::Kind { name, kind } => {
                for (query, extract) in each(queries).zip(&mut scrape.extracts) {
                    if query
                        .names
                        .iter()
                        .any(|wanted| wanted == name || wanted.strip_suffix("_total") == Some(name))
                    {
                        extract.kind = Some(kind);
                    }
                }
            }
            Line::Sample { name, rest } => {
                for (query, extract) in each(queries).zip(&mut scrape.extracts) {
                    if let Some((rank, part)) = query.part(name)
                        && extract.prefers(rank)
                    {
                        take(query, part, Sample::read(rest), extract);
                    }
                }
            }
            Line::Unreadable => {
                scrape.unreadable = scrape.unreadable.saturating_add(1);
                scrape.first_unreadable = scrape.first_unreadable.or(Some(number));
            }
        }
    }
    scrape
}

/// Which part of a metric a series is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Itself,
    Bucket,
    Sum,
    Count,
}

fn take(query: &Query, part: Part, sample: Option<Sample<'_>>, extract: &mut Extract) {
    let Some(sample) = sample else {
        extract.unreadable = extract.unreadable.saturating_add(1);
        return;
    };
    if !query.matches(&sample) {
        return;
    }
    if part == Part::Itself {
        match Finite::new(sample.value) {
            None => extract.not_finite = extract.not_finite.saturating_add(1),
            Some(value) => extract.add(sample.labels, value),
        }
        return;
    }
    let histogram = extract.histogram.get_or_insert_default();
    let value = if sample.value.is_finite() { sample.value } else { 0.0 };
    match part {
        Part::Sum => histogram.sum += value,
        Part::Count => histogram.count += value.max(0.0),
        Part::Bucket => {
            let bound = sample.label("le").and_then(|bound| line::number(&bound));
            match bound.map(|bound| (Finite::new(bound), bound > 0.0)) {
                Some((None, false)) | None => extract.unreadable = extract.unreadable.saturating_add(1),
                Some((bound, _)) => histogram.add_bucket(bound, value),
            }
        }
        Part::Itself => {}
    }
}

/// An earlier reading of the same pod or endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// The extract of that reading.
    pub extract: &'a Extract,
    /// How long ago it was, in seconds.
    pub seconds: f64,
}

impl Query {
    /// The value of what was read. A rate, a mean and a quantile are over the time since `before`.
    ///
    /// # Errors
    /// Why there is none: not in the text, not a number, too many series, or no earlier reading to compare with.
    pub fn evaluate(&self, now: &Extract, before: Option<Before<'_>>) -> Result<Measure, Missing> {
        let name = self.names.first().map_or("", String::as_str);
        if now.unreadable > 0 {
            let text = format!("{} lines of {name} cannot be read", now.unreadable);
            return Err(Missing::new(MissingReason::Unreadable, text));
        }
        if now.dropped > 0 {
            let text = format!("{name} has more series than are kept; add labels to choose among them");
            return Err(Missing::new(MissingReason::TooLarge, text));
        }
        if now.series.is_empty() && now.histogram.is_none() && now.not_finite == 0 {
            return Err(Missing::new(MissingReason::NoSuchMetric, format!("no series is called {self}")));
        }
        match self.function(now) {
            _ if self.quantile.is_some() => Self::counted(name, now, before),
            Function::Mean => Self::counted(name, now, before),
            Function::Rate => self.rate(name, now, before),
            Function::Value => self.reduce(name, now.series.values().copied(), now.not_finite),
        }
    }

    /// The requested function, or the one that the metric is made for.
    #[must_use]
    pub fn function(&self, extract: &Extract) -> Function {
        let known = match extract.kind {
            Some(Kind::Counter) => Function::Rate,
            Some(Kind::Histogram | Kind::Summary) => Function::Mean,
            Some(Kind::Gauge) => Function::Value,
            Some(Kind::Other) | None if self.counter => Function::Rate,
            Some(Kind::Other) | None if extract.series.is_empty() && extract.not_finite == 0 => {
                Function::Mean
            }
            Some(Kind::Other) | None => Function::Value,
        };
        self.function.unwrap_or(known)
    }

    fn counted(name: &str, now: &Extract, before: Option<Before<'_>>) -> Result<Measure, Missing> {
        let Some(histogram) = &now.histogram else {
            let text = format!("{name} is no histogram: it has no {name}_count");
            return Err(Missing::new(MissingReason::NoSuchMetric, text));
        };
        let earlier = before.and_then(|before| before.extract.histogram.as_ref());
        earlier.map(|earlier| Measure::Histogram(histogram.since(earlier))).ok_or_else(first_reading)
    }

    fn rate(&self, name: &str, now: &Extract, before: Option<Before<'_>>) -> Result<Measure, Missing> {
        let before = before.filter(|before| before.seconds > 0.0).ok_or_else(first_reading)?;
        if before.extract.series.is_empty() {
            return Err(first_reading());
        }
        // A series that went down was reset, and a new one started at zero: the increase is the whole value.
        let increase = |(labels, value): (&String, &Finite)| {
            let earlier = before.extract.series.get(labels).filter(|earlier| *earlier <= value);
            Finite::saturating(
                (value.get() - earlier.map_or(0.0, |earlier| earlier.get())).max(0.0) / before.seconds,
            )
        };
        self.reduce(name, now.series.iter().map(increase), now.not_finite)
    }

    fn reduce(
        &self,
        name: &str,
        values: impl Iterator<Item = Finite>,
        not_finite: usize,
    ) -> Result<Measure, Missing> {
        if not_finite > 0 {
            let text = format!("{not_finite} series of {name} are infinite or no number");
            return Err(Missing::new(MissingReason::NotFinite, text));
        }
        let values: Vec<f64> = values.map(Finite::get).collect();
        let many = f64::from(crate::number::count(values.len()).max(1));
        if values.is_empty() {
            return Err(Missing::new(MissingReason::NoSuchMetric, format!("{name} has no value of its own")));
        }
        let default = if self.share { SeriesAggregation::Average } else { SeriesAggregation::Sum };
        let value = match self.aggregation.unwrap_or(default) {
            SeriesAggregation::Sum => values.iter().sum(),
            SeriesAggregation::Average => values.iter().sum::<f64>() / many,
            SeriesAggregation::Maximum => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
            SeriesAggregation::Minimum => values.into_iter().fold(f64::INFINITY, f64::min),
        };
        Finite::new(value)
            .map(Measure::Value)
            .ok_or_else(|| Missing::new(MissingReason::NotFinite, format!("{name} is too large to add up")))
    }
}

fn first_reading() -> Missing {
    Missing::new(MissingReason::FirstReading, "needs a second reading to know what happened in between")
}

#[cfg(test)]
mod tests;
