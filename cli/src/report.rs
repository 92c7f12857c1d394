//! The result of a command, before its output format is applied.

use serde::Serialize;
use serde_json::{Value, json};

/// `apiVersion` of our own objects in JSON.
pub const API_VERSION: &str = "cli.neonvm/v1";

/// What is done after a report was printed; returns the exit code.
pub type Then = Box<dyn FnOnce() -> u8>;

/// Makes the JSON form of a document.
pub type Json = Box<dyn FnOnce() -> Value>;

pub struct Report {
    pub body: Body,
    /// For people, on standard error, unless they want it quiet.
    pub notes: Vec<String>,
    /// Exit code, 0 or that of a verdict.
    pub code: u8,
    /// What goes on after printing, such as a server in the foreground.
    pub then: Option<Then>,
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Report").field("body", &self.body).field("notes", &self.notes).finish_non_exhaustive()
    }
}

/// The part for standard output.
pub enum Body {
    /// Text as it is, such as a script.
    Text(String),
    Document(Document),
    /// The same without its JSON form, which is made when it is needed: for a thousand VMs that takes longer than their table.
    Table(Document, Json),
    /// Lines, perhaps without end.
    Lines(Box<dyn Iterator<Item = String>>),
    /// Lines as they were written, with all that steers a terminal: for those who ask for that.
    Raw(Box<dyn Iterator<Item = String>>),
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.debug_tuple("Text").field(text).finish(),
            Self::Document(document) => f.debug_tuple("Document").field(document).finish(),
            Self::Table(document, _) => f.debug_tuple("Table").field(document).finish(),
            Self::Lines(_) => f.write_str("Lines"),
            Self::Raw(_) => f.write_str("Raw"),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The JSON form: with `apiVersion` and `kind`; a list has `items`.
    pub value: Value,
    /// For `-o name`: `kind/name` each.
    pub names: Vec<String>,
    /// The default form, if it is not the table.
    pub text: Option<String>,
    pub columns: Vec<Column>,
    /// Cells, one row for each object.
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    pub right: bool,
    /// Shown with `-o wide` only.
    pub wide: bool,
}

#[must_use]
pub fn left(name: &'static str) -> Column {
    Column { name, right: false, wide: false }
}

#[must_use]
pub fn right(name: &'static str) -> Column {
    Column { name, right: true, wide: false }
}

#[must_use]
pub fn wide(name: &'static str) -> Column {
    Column { name, right: false, wide: true }
}

impl Document {
    /// The table of objects, without their JSON form. `of` names each and gives its cells.
    pub fn table_of<K>(
        kind: &str,
        objects: &[K],
        columns: Vec<Column>,
        of: impl Fn(&K) -> (String, Vec<String>),
    ) -> Self {
        let named = objects.iter().map(of).map(|(name, cells)| (format!("{kind}/{name}"), cells));
        let (names, rows) = named.unzip();
        Self { names, columns, rows, ..Self::default() }
    }
}

/// Objects as the API has them: one by itself, or a list.
pub fn value_of<K: Serialize>(objects: &[K]) -> Value {
    if let [one] = objects { json!(one) } else { list_of(objects) }
}

/// A list of objects as the API has it, even of one.
pub fn list_of<K: Serialize>(objects: &[K]) -> Value {
    let items = objects.iter().map(|object| json!(object)).collect();
    let mut list = json!({ "apiVersion": "v1", "kind": "List", "metadata": {} });
    // Not within `json!`, which would copy the items.
    if let Value::Object(fields) = &mut list {
        fields.insert("items".to_owned(), Value::Array(items));
    }
    list
}

impl Report {
    /// A document, exit code 0.
    #[must_use]
    pub fn document(document: Document) -> Self {
        Self { body: Body::Document(document), notes: Vec::new(), code: 0, then: None }
    }

    /// Lines of a log, exit code 0.
    pub(crate) fn log(lines: impl Iterator<Item = String> + 'static, raw: bool) -> Self {
        let lines = Box::new(lines);
        let body = if raw { Body::Raw(lines) } else { Body::Lines(lines) };
        Self { body, notes: Vec::new(), code: 0, then: None }
    }

    /// A table, exit code 0; `json` makes its JSON form when it is needed.
    #[must_use]
    pub fn table(table: Document, json: impl FnOnce() -> Value + 'static) -> Self {
        Self { body: Body::Table(table, Box::new(json)), notes: Vec::new(), code: 0, then: None }
    }

    /// A text, exit code 0.
    #[must_use]
    pub fn text(text: String) -> Self {
        Self { body: Body::Text(text), notes: Vec::new(), code: 0, then: None }
    }

    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}
