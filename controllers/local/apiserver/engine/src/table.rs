//! `meta.k8s.io Table`: the columns kubectl shows.

mod cells;
mod columns;
mod pod_cells;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::form::{Form, INITIAL_END, metadata_only};
use crate::object;

#[derive(Clone, Copy)]
pub(crate) enum Cell {
    Name,
    Age,
    Created,
    /// The value at a dotted path; empty text if missing.
    Path(&'static str),
    Number(&'static str),
    /// Number of entries of a map or list.
    Count(&'static str),
    Of(fn(&Value, Timestamp) -> Value),
}

/// A column of a built-in kind. Shown in the default view at priority 0, in the wide view at 1.
pub(crate) struct Column(pub(crate) &'static str, pub(crate) &'static str, pub(crate) i32, pub(crate) Cell);

pub(crate) fn table(form: &Form<'_>, version: &str, metadata: &Value, objects: &[&Value]) -> Value {
    let (definitions, rows): (Vec<Value>, Vec<Value>) = match &form.kind.custom {
        Some(custom) => columns::custom(form, custom, objects),
        None => columns::builtin(form, objects),
    };
    let rows: Vec<Value> =
        rows.into_iter().zip(objects).map(|(cells, object)| row(form, version, &cells, object)).collect();
    let rows = if rows.is_empty() && columns::is_plain(form.kind) { Value::Null } else { json!(rows) };
    json!({ "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
        "columnDefinitions": definitions, "rows": rows })
}

/// One row: its cells, and of the object as much as is wanted. The mark at the end of initial events is always shown.
fn row(form: &Form<'_>, version: &str, cells: &Value, object: &Value) -> Value {
    let marked = object::meta(object).get("annotations").and_then(|all| all.get(INITIAL_END));
    let shown = match form.include {
        "Object" => object.clone(),
        "None" if marked != Some(&json!("true")) => Value::Null,
        _ => metadata_only(object, version),
    };
    let mut row = json!({ "cells": cells, "object": shown });
    let is_pod = form.kind.is_builtin() && form.kind.table.as_ref() == "/pods";
    if let Some(conditions) = pod_cells::row_conditions(object).filter(|_| is_pod) {
        object::set(&mut row, "conditions", conditions);
    }
    row
}

impl Cell {
    fn value(self, object: &Value, now: Timestamp) -> Value {
        match self {
            Self::Name => json!(object::name(object)),
            Self::Age => json!(age(object::meta_text(object, "creationTimestamp"), now)),
            Self::Created => json!(match object::meta_text(object, "creationTimestamp") {
                "" => "0001-01-01T00:00:00Z",
                time => time,
            }),
            Self::Path(path) => object::at(object, path).cloned().unwrap_or_else(|| json!("")),
            Self::Number(path) => object::at(object, path).cloned().unwrap_or_else(|| json!(0)),
            Self::Count(path) => json!(count(object::at(object, path))),
            Self::Of(function) => function(object, now),
        }
    }
}

fn count(value: Option<&Value>) -> usize {
    match value {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(map)) => map.len(),
        _ => 0,
    }
}

/// How long ago a timestamp was, as kubectl words it; `<unknown>` if it cannot be read.
pub(crate) fn age(timestamp: &str, now: Timestamp) -> String {
    timestamp.parse::<Timestamp>().map_or_else(
        |_| "<unknown>".to_owned(),
        |then| duration(now.as_second().saturating_sub(then.as_second())),
    )
}

/// Seconds in kubectl's short form: `45s`, `3m20s`, `7h5m`, `3d4h`, `2y30d`.
pub(crate) fn duration(seconds: i64) -> String {
    let with = |big: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{small_unit}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        1..120 => format!("{seconds}s"),
        120..600 => with(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => with(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => with(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => with(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests;
