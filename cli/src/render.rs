//! From a report to what is printed. The only place that prints, and where every text is made harmless for a terminal.

mod amount;
mod clean;
mod custom_columns;
mod jsonpath;
mod out;
mod progress;
mod streams;
mod table;

pub(crate) use amount::{age, age_of, bytes, span};
#[cfg(test)]
pub(crate) use clean::tests::hostile;
pub use out::Shown;
pub(crate) use out::{errors, full_screen, interactive};
pub(crate) use progress::Reporter;
pub(crate) use streams::Streams;

use std::ffi::OsString;
use std::io;

use serde::Serialize;
use serde_json::Value;

use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Body, Document, Report};
use amount::seconds;
use out::Output as Stdout;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
    /// `kind/name` lines.
    Name,
    JsonPath(jsonpath::Expression),
    CustomColumns(Vec<custom_columns::Column>),
}

impl Format {
    /// Reads the value of `-o`.
    ///
    /// # Errors
    /// If it is unknown or its expression cannot be read.
    pub fn parse(text: &str) -> Result<Self> {
        let (word, rest) = text.split_once('=').map_or((text, None), |(word, rest)| (word, Some(rest)));
        Ok(match (word, rest) {
            ("table", None) => Self::Table,
            ("wide", None) => Self::Wide,
            ("json", None) => Self::Json,
            ("yaml", None) => Self::Yaml,
            ("name", None) => Self::Name,
            ("jsonpath", Some(expression)) => Self::JsonPath(jsonpath::Expression::parse(expression)?),
            ("custom-columns", Some(spec)) => Self::CustomColumns(custom_columns::parse(spec)?),
            _ => {
                return Err(Error::new(Code::Usage, format!("there is no output format {text:?}"))
                    .hint("use table, wide, json, yaml, name, jsonpath=EXPR or custom-columns=SPEC"));
            }
        })
    }

    const fn needs_json(&self) -> bool {
        !matches!(self, Self::Table | Self::Wide | Self::Name)
    }
}

/// How everything is shown.
#[derive(Clone, Debug, Default)]
pub struct Style {
    pub(crate) format: Format,
    pub(crate) no_headers: bool,
    pub(crate) quiet: bool,
    pub(crate) color_stdout: bool,
    pub(crate) color_stderr: bool,
    pub(crate) terminal: bool,
    pub json_errors: bool,
}

impl Style {
    /// For errors before the flags are understood.
    #[must_use]
    pub fn for_errors(json: bool) -> Self {
        Self { json_errors: json, ..Self::default() }
    }

    pub(crate) const fn colors(&self) -> bool {
        self.color_stdout
    }
}

/// Whether arguments that cannot be understood ask for JSON.
pub(crate) fn wants_json(arguments: &[OsString]) -> bool {
    let words: Vec<&str> =
        arguments.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--").collect();
    words.iter().any(|word| matches!(*word, "-ojson" | "-o=json" | "--output=json"))
        || words.windows(2).any(|pair| matches!(pair, ["-o" | "--output", "json"]))
}

/// Prints a report; returns the exit code.
pub(crate) fn report(env: &Env, style: &Style, report: Report) -> u8 {
    if !style.quiet {
        for note in &report.notes {
            errors(&Shown::text(&format!("{}\n", indented(note))));
        }
    }
    let mut out = Stdout::open();
    let printed = body(style, report.body, &mut out).and_then(|()| Ok(out.flush()?));
    drop(out);
    match printed {
        Ok(()) => {}
        // The reader has seen enough; a server in the foreground goes on all the same.
        Err(Problem::Closed) if report.then.is_none() => return 0,
        Err(Problem::Closed) => {}
        Err(Problem::Failed(problem)) => {
            error(env, style, &problem);
            return problem.code.number();
        }
    }
    report.then.map_or(report.code, |then| then())
}

enum Problem {
    Closed,
    Failed(Error),
}

impl From<io::Error> for Problem {
    fn from(source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        Self::Failed(Error::new(Code::Failed, "cannot write the output").cause(crate::error::reason(&source)))
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

fn body(style: &Style, body: Body, out: &mut Stdout) -> std::result::Result<(), Problem> {
    let each = |shown: Shown, out: &mut Stdout| {
        out.write(&shown)?;
        out.write(&Shown::text("\n"))?;
        // A line is of use when it comes.
        out.flush()
    };
    match body {
        Body::Text(text) => out.write(&Shown::text(&text))?,
        // Serial consoles end lines with a carriage return, too.
        Body::Lines(mut lines) => {
            lines.try_for_each(|line| each(Shown::text(line.trim_end_matches('\r')), out))?;
        }
        Body::Raw(mut lines) => lines.try_for_each(|line| each(Shown::exact(line), out))?,
        Body::Document(found) => out.write(&document(style, &found)?)?,
        Body::Table(mut found, json) => {
            if style.format.needs_json() {
                found.value = json();
            }
            out.write(&document(style, &found)?)?;
        }
    }
    Ok(())
}

/// Lines after the first set off from it: a text from outside cannot look like a line of ours.
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n      ")
}

pub(crate) fn document(style: &Style, document: &Document) -> Result<Shown> {
    let named = style.format.needs_json().then(|| named(document)).flatten();
    let document = named.as_ref().unwrap_or(document);
    let mut shown = match &style.format {
        Format::Json => {
            let text = serde_json::to_string_pretty(&document.value).unwrap_or_default();
            Shown::text(&clean::json(text))
        }
        Format::Yaml => Shown::text(&yaml(&document.value)?),
        Format::Name => {
            let names: Vec<Shown> = document.names.iter().map(|name| Shown::line(name)).collect();
            Shown::join(&names, &Shown::text("\n"))
        }
        // Exactly what was asked for, as kubectl does it, where a program reads it: line ends too are the expression's.
        Format::JsonPath(expression) => {
            let text = expression.text(&document.value);
            return Ok(if style.terminal { Shown::text(&text) } else { Shown::exact(text) });
        }
        Format::CustomColumns(columns) => {
            custom_columns::render(columns, &items(&document.value), !style.no_headers)
        }
        Format::Table | Format::Wide => match (&document.text, &style.format) {
            (Some(text), Format::Table) => Shown::text(text),
            (_, format) => {
                table::render(document, *format == Format::Wide, !style.no_headers, style.color_stdout)
            }
        },
    };
    if !shown.is_empty() {
        shown.push(&Shown::text("\n"));
    }
    Ok(shown)
}

/// A list of our own kinds with `metadata.name` in each item, where scripts look for names. `None`: it has nothing to add.
fn named(document: &Document) -> Option<Document> {
    let text = |key: &str| document.value.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("apiVersion") != API_VERSION || !text("kind").ends_with("List") {
        return None;
    }
    let items = document.value.get("items").and_then(Value::as_array)?;
    let lacks = |item: &Value| item.is_object() && item.get("metadata").is_none();
    if !items.iter().any(lacks) {
        return None;
    }
    let mut document = document.clone();
    let Document { value, names, .. } = &mut document;
    for (index, item) in value.get_mut("items").and_then(Value::as_array_mut)?.iter_mut().enumerate() {
        if !lacks(item) {
            continue;
        }
        let own = |key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
        let by_kind =
            || names.get(index).map(|name| name.split_once('/').map_or(&**name, |(_, name)| name).to_owned());
        let Some(name) = own("name").or_else(|| own("reference")).or_else(by_kind) else { continue };
        let metadata = match own("namespace") {
            Some(namespace) => serde_json::json!({ "name": name, "namespace": namespace }),
            None => serde_json::json!({ "name": name }),
        };
        if let Some(fields) = item.as_object_mut() {
            fields.insert("metadata".to_owned(), metadata);
        }
    }
    Some(document)
}

/// YAML whose characters are all harmless. The library escapes control characters but not those that reorder a text; an object
/// with such a text is written as JSON, which is YAML, too.
fn yaml(value: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(value)
        .map_err(|error| Error::new(Code::Failed, "cannot write YAML").cause(error.to_string()))?;
    if text.contains(|c| clean::steers(c) && c != '\n') {
        return Ok(clean::json(serde_json::to_string_pretty(value).unwrap_or_default()));
    }
    // Other line ends may be a part of the last text.
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

pub(crate) fn json_line(value: &impl Serialize) -> String {
    clean::json(serde_json::to_string(value).unwrap_or_default())
}

/// A value inside of a text of several lines: on one line, whatever it holds.
pub(crate) fn one_line(text: &str) -> String {
    clean::line(text).into_owned()
}

/// A table inside a text, with its last line end; without colours.
pub(crate) fn rows(columns: &[crate::report::Column], rows: &[Vec<String>]) -> String {
    let document = Document { columns: columns.to_vec(), rows: rows.to_vec(), ..Document::default() };
    table::render(&document, false, true, false).as_str().to_owned() + "\n"
}

fn items(value: &Value) -> Vec<&Value> {
    match value.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().collect(),
        None => vec![value],
    }
}

/// Shows a question to a person at a terminal; the answer is read by the command.
pub(crate) fn question(text: &str) {
    errors(&Shown::line(text));
}

pub(crate) fn error(_: &Env, style: &Style, error: &Error) {
    errors(&if style.json_errors {
        let value = serde_json::json!({ "apiVersion": API_VERSION, "kind": "Error", "code": error.code.word(),
            "exitCode": error.code.number(), "message": error.message, "causes": error.causes, "hint": error.hint });
        Shown::text(&(json_line(&value) + "\n"))
    } else {
        plain_error(error, style.color_stderr)
    });
}

fn plain_error(error: &Error, color: bool) -> Shown {
    let head = Shown::text("error:");
    let mut shown = if color { out::painted(&head, "31") } else { head };
    let mut text = format!(" {}\n", indented(&error.message));
    for cause in &error.causes {
        text.push_str(&format!("  caused by: {}\n", indented(cause)));
    }
    if let Some(hint) = &error.hint {
        text.push_str(&format!("  hint: {}\n", indented(hint)));
    }
    shown.push(&Shown::text(&text));
    shown
}

pub(crate) fn sort(document: &mut Document, field: &str) -> Result<()> {
    let column = document.columns.iter().position(|column| column.name.eq_ignore_ascii_case(field));
    let keys: Vec<String> = match column {
        Some(index) => document.rows.iter().map(|row| row.get(index).cloned().unwrap_or_default()).collect(),
        None if field.starts_with(['.', '{']) => {
            let expression = jsonpath::Expression::parse(field)?;
            items(&document.value).into_iter().map(|item| expression.text(item)).collect()
        }
        None => {
            let names: Vec<String> =
                document.columns.iter().map(|column| column.name.to_lowercase()).collect();
            return Err(Error::new(Code::Usage, format!("cannot sort by {field:?}"))
                .hint(format!("use {} or a path such as .name", names.join(", "))));
        }
    };
    let mut order: Vec<usize> = (0..keys.len()).collect();
    let read = |key: &String| key.parse::<i64>().ok().or_else(|| seconds(key));
    let number = |index: &usize| keys.get(*index).and_then(read).unwrap_or(i64::MAX);
    order.sort_by(|a, b| number(a).cmp(&number(b)).then_with(|| keys.get(*a).cmp(&keys.get(*b))));
    document.rows = order.iter().filter_map(|&index| document.rows.get(index).cloned()).collect();
    document.names = order.iter().filter_map(|&index| document.names.get(index).cloned()).collect();
    if let Some(Value::Array(items)) = document.value.get_mut("items") {
        *items = order.iter().filter_map(|&index| items.get(index).cloned()).collect();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
