//! Kinds of objects whose presentation may differ: tables and statuses.

use std::borrow::Cow;
use std::cmp::Reverse;

use serde_json::{Map, Value, json};

type Fields = Map<String, Value>;

/// The object, with what may differ made alike.
pub(crate) fn plain(fields: &Fields) -> Cow<'_, Fields> {
    match fields.get("kind").and_then(Value::as_str) {
        Some("Table") => Cow::Owned(table(fields)),
        Some("Status") => status(fields).map_or(Cow::Borrowed(fields), Cow::Owned),
        _ => Cow::Borrowed(fields),
    }
}

fn list<'a>(fields: &'a Fields, key: &str) -> &'a [Value] {
    fields.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A table without descriptions of columns and with its ages masked.
fn table(fields: &Fields) -> Fields {
    let columns = list(fields, "columnDefinitions");
    let is_age = |index: usize| {
        columns.get(index).and_then(|column| column.get("name")).is_some_and(|name| name == "Age")
    };
    let mask = |row: &Value| {
        let mut row = row.clone();
        let cells = row.get("cells").and_then(Value::as_array).cloned().unwrap_or_default();
        let cells = cells
            .into_iter()
            .enumerate()
            .map(|(index, cell)| if is_age(index) { json!("<age>") } else { cell });
        let cells = cells.collect();
        if let Some(row) = row.as_object_mut() {
            row.insert("cells".into(), Value::Array(cells));
        }
        row
    };
    let bare = |column: &Value| {
        let mut column = column.clone();
        if let Some(column) = column.as_object_mut() {
            column.remove("description");
        }
        column
    };
    let mut out = fields.clone();
    out.insert("rows".into(), list(fields, "rows").iter().map(mask).collect());
    out.insert("columnDefinitions".into(), columns.iter().map(bare).collect());
    out
}

/// A status whose message merely lists all causes in some order is normalised.
fn status(fields: &Fields) -> Option<Fields> {
    let message = fields.get("message")?.as_str()?;
    let mut causes: Vec<&Value> = fields.get("details")?.get("causes")?.as_array()?.iter().collect();
    let mark = " is invalid: [";
    let (head, tail) = message.split_once(mark)?;
    let text = |cause: &Value, key: &str| cause.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    causes.sort_by_key(|cause| Reverse(text(cause, "message").chars().count()));
    let mut tail = tail.to_owned();
    for cause in causes {
        tail = tail.replace(&format!("{}: {}", text(cause, "field"), text(cause, "message")), "");
    }
    if !tail.trim_matches([',', ' ', ']']).is_empty() {
        return None;
    }
    let mut out = fields.clone();
    out.insert("message".into(), json!(format!("{head}{mark}every cause]")));
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_lists_its_causes_is_normalised() {
        let value = json!({"kind": "Status", "message": "x is invalid: [b: no, a: not now]",
            "details": {"causes": [{"field": "a", "message": "not now"}, {"field": "b", "message": "no"}]}});
        let plain = plain(value.as_object().unwrap());
        assert_eq!(plain["message"], "x is invalid: [every cause]");
    }

    #[test]
    fn ages_in_tables_are_masked() {
        let value = json!({"kind": "Table", "columnDefinitions": [{"name": "Age", "description": "d"}], "rows": [{"cells": ["5s"]}]});
        let plain = plain(value.as_object().unwrap());
        assert_eq!(plain["rows"], json!([{"cells": ["<age>"]}]));
        assert_eq!(plain["columnDefinitions"], json!([{"name": "Age"}]));
    }
}
