//! Custom resource definitions: their content, validation and conditions.

use std::sync::Arc;

use serde_json::Value;

use crate::field::FieldError;
use crate::schema::{Schema, SchemaRef, parse};

mod columns;
mod names;
pub mod prepare;
pub mod scale;
mod schemas;
pub mod status;
mod structural;
pub mod validate;

pub use prepare::{prepare_create, prepare_update};
pub use validate::{validate_create, validate_update};

#[derive(Clone, Debug)]
pub struct CustomKind {
    pub group: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Every version, served or not, in the order of the definition.
    pub versions: Vec<Arc<CustomVersion>>,
}

#[derive(Clone, Debug)]
pub struct CustomVersion {
    pub name: String,
    pub served: bool,
    pub storage: bool,
    pub deprecation_warning: Option<String>,
    /// The schema, with `apiVersion`, `kind` and `metadata` filled in.
    pub schema: SchemaRef,
    pub document: Value,
    pub has_defaults: bool,
    pub status: bool,
    pub scale: Option<ScalePaths>,
    pub columns: Vec<PrinterColumn>,
    /// Field labels that may be selected by, such as `spec.color`.
    pub selectable_fields: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrinterColumn {
    pub name: String,
    pub json_type: String,
    pub format: String,
    pub description: String,
    /// 0 is always shown.
    pub priority: i64,
    pub json_path: String,
}

impl CustomKind {
    /// Reads a stored, hence valid and defaulted, definition.
    ///
    /// # Errors
    /// Those of [`parse::custom`].
    pub fn read(definition: &Value) -> Result<Self, Vec<FieldError>> {
        let spec = &definition["spec"];
        let names = &spec["names"];
        let mut kind = Self {
            group: text(spec, "group"),
            kind: text(names, "kind"),
            list_kind: text(names, "listKind"),
            plural: text(names, "plural"),
            singular: text(names, "singular"),
            short_names: texts(names, "shortNames"),
            categories: texts(names, "categories"),
            namespaced: spec["scope"] == "Namespaced",
            versions: Vec::new(),
        };
        for version in list(spec, "versions") {
            let version = CustomVersion::read(version)?;
            kind.versions.push(Arc::new(version));
        }
        kind.add_warnings(list(spec, "versions"));
        Ok(kind)
    }

    /// `<group>/<version> <Kind> is deprecated[; use <group>/<newer> <Kind>]`, or the definition's own words.
    fn add_warnings(&mut self, documents: &[Value]) {
        let newest = self
            .versions
            .iter()
            .zip(documents)
            .filter(|(version, document)| version.served && document["deprecated"] != true)
            .map(|(version, _)| version.name.clone())
            .min_by(|a, b| compare_versions(a, b));
        let (group, kind) = (&self.group, &self.kind);
        for (version, document) in self.versions.iter_mut().zip(documents) {
            if document["deprecated"] != true {
                continue;
            }
            let own = document["deprecationWarning"].as_str().map(str::to_owned);
            let name = &version.name;
            let better = newest
                .as_ref()
                .filter(|newest| compare_versions(newest, name).is_lt())
                .map(|newest| format!("; use {group}/{newest} {kind}"));
            let warning = own.unwrap_or_else(|| {
                format!("{group}/{name} {kind} is deprecated{}", better.unwrap_or_default())
            });
            Arc::make_mut(version).deprecation_warning = Some(warning);
        }
    }
}

impl CustomVersion {
    fn read(version: &Value) -> Result<Self, Vec<FieldError>> {
        let document = at(version, &["schema", "openAPIV3Schema"]).clone();
        let schema = parse::custom(&document)?;
        let subresources = &version["subresources"];
        let scale = subresources["scale"].as_object().map(|_| {
            let scale = &subresources["scale"];
            ScalePaths {
                spec_replicas: text(scale, "specReplicasPath"),
                status_replicas: text(scale, "statusReplicasPath"),
                label_selector: Some(text(scale, "labelSelectorPath")).filter(|path| !path.is_empty()),
            }
        });
        let columns = list(version, "additionalPrinterColumns").iter().map(PrinterColumn::read).collect();
        let selectable = list(version, "selectableFields").iter();
        Ok(Self {
            name: text(version, "name"),
            served: version["served"] == true,
            storage: version["storage"] == true,
            deprecation_warning: None,
            has_defaults: has_defaults(&schema, 0),
            schema,
            document,
            status: subresources["status"].is_object(),
            scale,
            columns,
            selectable_fields: selectable
                .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
                .collect(),
        })
    }
}

impl PrinterColumn {
    fn read(column: &Value) -> Self {
        Self {
            name: text(column, "name"),
            json_type: text(column, "type"),
            format: text(column, "format"),
            description: text(column, "description"),
            priority: column["priority"].as_i64().unwrap_or_default(),
            json_path: text(column, "jsonPath"),
        }
    }
}

fn has_defaults(schema: &Schema, depth: usize) -> bool {
    if depth >= crate::schema::MAX_DEPTH {
        return false;
    }
    schema.default.is_some()
        || schema.properties.values().chain(&schema.items).chain(&schema.additional).any(|child| {
            // Built-in metadata has no defaults and is the only part that may refer to itself.
            child.type_name.is_none() && has_defaults(child, depth + 1)
        })
}

/// Order in which discovery prefers versions: GA before beta before alpha, newer before older, then by name.
pub fn compare_versions(a: &str, b: &str) -> std::cmp::Ordering {
    match (version_rank(a), version_rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// `(stage, major, minor)` of a name such as `v2beta3`; stage is 2 for GA, 1 for beta, 0 for alpha.
fn version_rank(name: &str) -> Option<(u8, u64, u64)> {
    let rest = name.strip_prefix('v')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (major, tail) = rest.split_at_checked(digits)?;
    let major = major.parse().ok()?;
    if tail.is_empty() {
        return Some((2, major, 0));
    }
    let (stage, minor) = match tail.strip_prefix("beta") {
        Some(minor) => (1, minor),
        None => (0, tail.strip_prefix("alpha")?),
    };
    Some((stage, major, minor.parse().ok()?))
}

/// The value under some keys; `null` where there is none.
fn at<'a>(value: &'a Value, keys: &[&str]) -> &'a Value {
    keys.iter().try_fold(value, |value, key| value.get(key)).unwrap_or(&Value::Null)
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    list(value, key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What this server does not do of what a definition requests.
pub(crate) fn warnings(definition: &Value) -> Vec<String> {
    let text =
        "spec.conversion.webhook: this server does not call it; versions differ by their apiVersion only";
    let calls = crate::object::text_at(definition, "spec.conversion.strategy") == "Webhook";
    calls.then(|| text.to_owned()).into_iter().collect()
}
