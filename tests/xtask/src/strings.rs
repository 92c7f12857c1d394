//! Texts of authors in the API: each field that holds one has a row in the table "Texts of authors" of SECURITY.md, and each row a field.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

const DEFINITIONS: &str = "controllers/api/src/crd/definitions.json";
const DOCUMENT: &str = "SECURITY.md";
const TITLE: &str = "## Texts of authors";

/// Fields without a row, and rows without a field.
pub(crate) fn faults(root: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(DEFINITIONS)).context(DEFINITIONS)?;
    let fields = fields(&serde_json::from_str(&text).context(DEFINITIONS)?);
    let document = std::fs::read_to_string(root.join(DOCUMENT)).context(DOCUMENT)?;
    Ok(compare(&fields, &rows(&document)))
}

fn compare(fields: &[String], rows: &[String]) -> Vec<String> {
    // A row stands for all that is below its field.
    let covers = |row: &str, field: &str| {
        field.strip_prefix(row).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{']))
    };
    let bare = fields.iter().filter(|field| !rows.iter().any(|row| covers(row, field)));
    let idle = rows.iter().filter(|row| !fields.iter().any(|field| covers(row, field)));
    bare.map(|field| {
        format!(
            "{DOCUMENT}: no row for {field}: state what parses it, where it goes and which test attacks it"
        )
    })
    .chain(idle.map(|row| format!("{DOCUMENT}: {row} is no field with a text")))
    .collect()
}

/// The first column of the table below the title; several fields are joined by commas.
fn rows(document: &str) -> Vec<String> {
    let Some((_, section)) = document.split_once(TITLE) else { return Vec::new() };
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells =
        section.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
    let codes =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    codes.collect()
}

/// `Kind.path` of each text in the specs of the definitions. Enumerations and quantities are no texts: their types hold nothing else.
fn fields(definitions: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for definition in definitions.as_array().into_iter().flatten() {
        let kind = definition.pointer("/spec/names/kind").and_then(Value::as_str).unwrap_or_default();
        for version in definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten() {
            if let Some(spec) = version.pointer("/schema/openAPIV3Schema/properties/spec") {
                walk(spec, &format!("{kind}.spec"), &mut all);
            }
        }
    }
    all
}

fn walk(schema: &Value, path: &str, all: &mut Vec<String>) {
    let is_closed = schema.get("enum").is_some() || schema.get("x-kubernetes-int-or-string").is_some();
    if is_closed {
        return;
    }
    if schema.get("type").and_then(Value::as_str) == Some("string")
        || schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
    {
        all.push(path.to_owned());
    }
    for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        walk(inner, &format!("{path}.{name}"), all);
    }
    if let Some(inner) = schema.get("items") {
        walk(inner, &format!("{path}[]"), all);
    }
    if let Some(inner) = schema.get("additionalProperties").filter(|inner| inner.is_object()) {
        walk(inner, &format!("{path}{{}}"), all);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_new_text_needs_a_row_and_a_row_a_text() {
        let text = json!({"type": "string"});
        let spec = json!({"properties": {"name": text, "mode": {"type": "string", "enum": ["a"]}, "count": {"type": "integer"},
            "size": {"x-kubernetes-int-or-string": true}, "list": {"items": {"properties": {"path": text}}},
            "map": {"additionalProperties": text}}});
        let definitions = json!([{"spec": {"names": {"kind": "K"},
            "versions": [{"schema": {"openAPIV3Schema": {"properties": {"spec": spec}}}}]}}]);
        let mut fields = fields(&definitions);
        fields.sort();
        assert_eq!(fields, ["K.spec.list[].path", "K.spec.map{}", "K.spec.name"]);
        let document =
            |rows: &str| format!("{TITLE}\n\n| Field | b |\n|---|---|\n{rows}\n\n## Next\n| `K.x` | |\n");
        let faults = |document: &str| compare(&fields, &rows(document)).len();
        assert_eq!(faults(&document("| `K.spec.list`, `K.spec.map` | |\n| `K.spec.name` | x |")), 0);
        assert_eq!(faults(&document("| `K.spec.list` | |\n| `K.spec.name` | x |")), 1, "a new field");
        assert_eq!(
            faults(&document("| `K.spec.l` | |\n| `K.spec.map` | |\n| `K.spec.name` | x |")),
            2,
            "not by a part of a name"
        );
        assert_eq!(faults(""), 3);
    }
}
