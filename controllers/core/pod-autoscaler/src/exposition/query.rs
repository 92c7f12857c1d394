//! Which series are meant by `targetMetric` and the selector of a metric source.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use neonvm_api::pod_autoscaler::{Function, MetricSource, SeriesAggregation};
use neonvm_types::exposition::line::{self, MOST_LABELS, MOST_NAME, Sample};
use serde::{Deserialize, Serialize};

use super::Part;
use crate::registry;

/// What a label must be. A label that is absent is as an empty one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Test {
    In(Vec<String>),
    /// None of these.
    NotIn(Vec<String>),
}

/// A label and what it must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Matcher {
    pub label: String,
    /// What it must be.
    pub test: Test,
}

/// Which series are meant, and how they become a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Query {
    /// The names of the series; the first is what the metric is called in this engine.
    pub names: Vec<String>,
    /// What their labels must be.
    pub matchers: Vec<Matcher>,
    /// How several series are aggregated to one value, if the object specifies it.
    pub aggregation: Option<SeriesAggregation>,
    /// How a series becomes a value, if the object specifies it.
    pub function: Option<Function>,
    pub quantile: Option<f64>,
    /// Whether the metric is a counter if the text declares no type.
    pub counter: bool,
    /// Whether it is a share of a whole.
    pub share: bool,
}

/// Why a metric cannot be requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The name cannot be one.
    #[error("{0:?} is not the name of a series; write name or name{{label=\"value\"}}")]
    Name(String),
    /// What is in braces cannot be read.
    #[error(
        "{0:?} is not a list of labels; write label=\"value\" or label!=\"value\", with commas in between"
    )]
    Labels(String),
    /// An unknown operator in a selector.
    #[error("operator {0:?} is not one of In, NotIn, Exists, DoesNotExist")]
    Operator(String),
}

impl Query {
    /// The selection that a metric source requests of a pod with this engine; for an endpoint that is not a pod, of the
    /// default engine.
    ///
    /// # Errors
    /// What cannot be read in its name or its selector.
    pub fn from_source(source: &MetricSource, engine: &str) -> Result<Self, QueryError> {
        let mut query = Self::parse(&source.target_metric)?;
        query.aggregation = source.series_aggregation;
        query.function = source.function;
        query.quantile = source.quantile_value();
        if let Some(alias) = query.names.first().and_then(|name| registry::alias(name, engine)) {
            (query.counter, query.share) = (alias.counter, alias.share);
            query.names.insert(0, alias.series);
        }
        if let Some(selector) = &source.selector {
            select(selector, &mut query.matchers)?;
        }
        Ok(query)
    }

    /// Reads `name` or `name{label="value",other!="value"}`.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        let (name, labels) = match text.trim().split_once('{') {
            Some((name, labels)) => (name.trim(), Some(labels)),
            None => (text.trim(), None),
        };
        let good = |c: char| c.is_ascii_alphanumeric() || "_:.-/".contains(c);
        if name.is_empty() || name.len() > MOST_NAME || !name.chars().all(good) {
            return Err(QueryError::Name(short(name)));
        }
        let matchers = labels.map_or_else(|| Ok(Vec::new()), matchers)?;
        Ok(Self {
            names: vec![name.to_owned()],
            matchers,
            aggregation: None,
            function: None,
            quantile: None,
            counter: name.ends_with("_total"),
            share: false,
        })
    }

    /// Which of the names a series has, and which part of the metric it is; `None` if it is none.
    pub(crate) fn part(&self, name: &str) -> Option<(usize, Part)> {
        self.names.iter().enumerate().find_map(|(rank, wanted)| {
            let part = match name.strip_prefix(wanted.as_str())? {
                "" => Part::Itself,
                "_bucket" => Part::Bucket,
                "_sum" => Part::Sum,
                "_count" => Part::Count,
                _ => return None,
            };
            Some((rank, part))
        })
    }

    /// Whether the labels of a series are what they must be.
    #[must_use]
    pub fn matches(&self, sample: &Sample<'_>) -> bool {
        self.matchers.iter().all(|matcher| {
            let value = sample.label(&matcher.label).unwrap_or_default();
            match &matcher.test {
                Test::In(values) => values.iter().any(|one| *one == value),
                Test::NotIn(values) => !values.iter().any(|one| *one == value),
            }
        })
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(" or "))?;
        for (index, matcher) in self.matchers.iter().enumerate() {
            f.write_str(if index == 0 { "{" } else { "," })?;
            match &matcher.test {
                Test::In(values) => write!(f, "{}={:?}", matcher.label, values.join("|"))?,
                Test::NotIn(values) => write!(f, "{}!={:?}", matcher.label, values.join("|"))?,
            }
        }
        if self.matchers.is_empty() { Ok(()) } else { f.write_str("}") }
    }
}

fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

/// What follows the opening brace.
fn matchers(text: &str) -> Result<Vec<Matcher>, QueryError> {
    let wrong = || QueryError::Labels(short(text));
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return if after.trim().is_empty() { Ok(found) } else { Err(wrong()) };
        }
        if found.len() >= MOST_LABELS {
            return Err(wrong());
        }
        let (label, after) = rest.split_once('=').ok_or_else(wrong)?;
        let (label, equal) = label.strip_suffix('!').map_or((label, true), |label| (label, false));
        let label = label.trim();
        let good = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
        if label.is_empty() || label.len() > MOST_NAME || !label.chars().all(good) {
            return Err(wrong());
        }
        let inside = after.trim_start().strip_prefix('"').ok_or_else(wrong)?;
        let (value, after) = line::quoted(inside).ok_or_else(wrong)?;
        let values = vec![value.into_owned()];
        let test = if equal { Test::In(values) } else { Test::NotIn(values) };
        found.push(Matcher { label: label.to_owned(), test });
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if after.starts_with('}') => after,
            None => return Err(wrong()),
        };
    }
}

fn select(selector: &LabelSelector, matchers: &mut Vec<Matcher>) -> Result<(), QueryError> {
    for (label, value) in selector.match_labels.iter().flatten() {
        matchers.push(Matcher { label: label.clone(), test: Test::In(vec![value.clone()]) });
    }
    for expression in selector.match_expressions.iter().flatten() {
        let values = expression.values.clone().unwrap_or_default();
        let test = match expression.operator.as_str() {
            "In" => Test::In(values),
            "NotIn" => Test::NotIn(values),
            "Exists" => Test::NotIn(vec![String::new()]),
            "DoesNotExist" => Test::In(vec![String::new()]),
            other => return Err(QueryError::Operator(short(other))),
        };
        matchers.push(Matcher { label: expression.key.clone(), test });
    }
    Ok(())
}
