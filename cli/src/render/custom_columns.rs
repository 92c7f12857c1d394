//! `-o custom-columns=NAME:.path,…`

use serde_json::Value;

use super::jsonpath::Expression;
use super::out::Shown;
use super::table;
use crate::error::{Code, Error, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    name: String,
    expression: Expression,
}

pub(super) fn parse(spec: &str) -> Result<Vec<Column>> {
    spec.split(',')
        .map(|part| {
            let bad = || {
                Error::new(Code::Usage, format!("{part:?} is not HEADER:PATH"))
                    .hint("use custom-columns=NAME:.name,PID:.pid")
            };
            let (name, path) = part
                .split_once(':')
                .filter(|(name, path)| !name.is_empty() && !path.is_empty())
                .ok_or_else(bad)?;
            Ok(Column { name: name.to_owned(), expression: Expression::parse(path)? })
        })
        .collect()
}

/// One line for each item, without the last line end.
pub(super) fn render(columns: &[Column], items: &[&Value], headers: bool) -> Shown {
    let mut rows: Vec<Vec<String>> = Vec::new();
    if headers {
        rows.push(columns.iter().map(|column| column.name.clone()).collect());
    }
    let cell = |column: &Column, item: &Value| {
        let text = column.expression.text(item);
        if text.is_empty() { "<none>".to_owned() } else { text }
    };
    rows.extend(items.iter().map(|item| columns.iter().map(|column| cell(column, item)).collect()));
    table::align(&rows, &[], false)
}
