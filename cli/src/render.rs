//! From a report to what is printed. The only place that prints.

mod custom_columns;
mod jsonpath;
mod progress;
mod table;

pub(crate) use progress::Reporter;

use std::ffi::OsString;
use std::io::{self, Write};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::args::{Args, Output};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Body, Document, Report};
use crate::settings::Settings;

/// A form of output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns, or the command's own text.
    #[default]
    Table,
    /// With all columns.
    Wide,
    /// Indented JSON.
    Json,
    /// YAML.
    Yaml,
    /// `kind/name` lines.
    Name,
    /// What an expression selects.
    JsonPath(jsonpath::Expression),
    /// Columns that the user names.
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
}

/// How everything is shown.
#[derive(Clone, Debug, Default)]
pub struct Style {
    format: Format,
    no_headers: bool,
    quiet: bool,
    color_stdout: bool,
    color_stderr: bool,
    /// Errors as JSON.
    pub json_errors: bool,
}

impl Style {
    /// For errors before the flags are understood.
    #[must_use]
    pub fn for_errors(json: bool) -> Self {
        Self { json_errors: json, ..Self::default() }
    }

    /// From flags, settings and environment.
    ///
    /// # Errors
    /// If one of them is not valid.
    pub fn resolve(env: &Env, settings: &Settings, args: &Args) -> Result<Self> {
        let plain = Output::default();
        let output = args.command.output();
        let flags = output.unwrap_or(&plain);
        let format = match (&flags.output, output) {
            (Some(text), _) => Format::parse(text)?,
            // A configured form does not concern commands that have none.
            (None, Some(_)) => Format::parse(&settings.find("output")?.0)?,
            (None, None) => Format::Table,
        };
        let color = settings.value("color", args.global.color.as_deref())?.unwrap_or_default();
        let flag = args.global.color.is_some();
        let quiet = args.global.quiet || settings.find("quiet")?.0 == "true";
        Ok(Self {
            json_errors: format == Format::Json,
            format,
            no_headers: flags.no_headers,
            quiet,
            color_stdout: colored(env, &color, flag, env.stdout_terminal),
            color_stderr: colored(env, &color, flag, env.stderr_terminal),
        })
    }
}

/// The flag wins over everything; `NO_COLOR` and a dumb terminal over `auto`; `CLICOLOR_FORCE` over no terminal.
fn colored(env: &Env, setting: &str, flag: bool, terminal: bool) -> bool {
    match setting {
        "always" if flag => true,
        "never" => false,
        _ if env.var("NO_COLOR").is_some() || env.var("TERM") == Some("dumb") => false,
        "always" => true,
        _ => terminal || env.var("CLICOLOR_FORCE").is_some_and(|force| force != "0"),
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
        let mut err = io::stderr().lock();
        for note in &report.notes {
            // Nobody reads notes that cannot be written.
            let _ = writeln!(err, "{note}");
        }
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let printed = body(style, report.body, &mut out).and_then(|()| Ok(out.flush()?));
    drop(out);
    match printed {
        Ok(()) => {}
        // The reader has seen enough; a server in the foreground goes on all the same.
        Err(Problem::Closed) if report.then.is_none() => return 0,
        Err(Problem::Closed) => {}
        Err(Problem::Told(problem)) => {
            error(env, style, &problem);
            return problem.code.number();
        }
    }
    report.then.map_or(report.code, |then| then())
}

/// Why printing stopped.
enum Problem {
    Closed,
    Told(Error),
}

impl From<io::Error> for Problem {
    fn from(source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        Self::Told(Error::new(Code::Failed, "cannot write the output").cause(crate::error::reason(&source)))
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

fn body(style: &Style, body: Body, out: &mut impl Write) -> std::result::Result<(), Problem> {
    match body {
        Body::Text(text) => Ok(out.write_all(text.as_bytes())?),
        Body::Lines(lines) => {
            for line in lines {
                writeln!(out, "{line}")?;
                out.flush()?;
            }
            Ok(())
        }
        Body::Document(found) => Ok(out.write_all(document(style, &found)?.as_bytes())?),
    }
}

/// A document in the form that is wanted, with its line end.
pub(crate) fn document(style: &Style, document: &Document) -> Result<String> {
    let text = match &style.format {
        Format::Json => serde_json::to_string_pretty(&document.value).unwrap_or_default(),
        Format::Yaml => serde_saphyr::to_string(&document.value)
            .map_err(|error| Error::new(Code::Failed, "cannot write YAML").cause(error.to_string()))?
            .trim_end()
            .to_owned(),
        Format::Name => document.names.join("\n"),
        // Exactly what was asked for: line ends too are the expression's.
        Format::JsonPath(expression) => return Ok(expression.text(&document.value)),
        Format::CustomColumns(columns) => {
            custom_columns::render(columns, &items(&document.value), !style.no_headers)
        }
        Format::Table | Format::Wide => match (&document.text, &style.format) {
            (Some(text), Format::Table) => text.clone(),
            (_, format) => {
                table::render(document, *format == Format::Wide, !style.no_headers, style.color_stdout)
            }
        },
    };
    Ok(if text.is_empty() { text } else { text + "\n" })
}

/// A table inside a text, with its last line end; without colours.
pub(crate) fn rows(columns: &[crate::report::Column], rows: &[Vec<String>]) -> String {
    let document = Document { columns: columns.to_vec(), rows: rows.to_vec(), ..Document::default() };
    table::render(&document, false, true, false) + "\n"
}

/// The items of a list, or the object itself.
fn items(value: &Value) -> Vec<&Value> {
    match value.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().collect(),
        None => vec![value],
    }
}

/// Shows a question to a person at a terminal; the answer is read by the command.
pub(crate) fn question(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Prints an error on standard error.
pub(crate) fn error(_: &Env, style: &Style, error: &Error) {
    let text = if style.json_errors {
        serde_json::json!({ "apiVersion": API_VERSION, "kind": "Error", "code": error.code.word(), "exitCode": error.code.number(),
            "message": error.message, "causes": error.causes, "hint": error.hint })
        .to_string()
            + "\n"
    } else {
        plain_error(error, style.color_stderr)
    };
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

fn plain_error(error: &Error, color: bool) -> String {
    let head = if color { "\u{1b}[31merror:\u{1b}[0m" } else { "error:" };
    let mut text = format!("{head} {}\n", error.message);
    for cause in &error.causes {
        text.push_str(&format!("  caused by: {cause}\n"));
    }
    if let Some(hint) = &error.hint {
        text.push_str(&format!("  hint: {hint}\n"));
    }
    text
}

/// The text that a jsonpath expression selects.
pub(crate) fn select(expression: &str, value: &Value) -> Result<String> {
    Ok(jsonpath::Expression::parse(expression)?.text(value))
}

/// How long ago, as `3d4h`.
pub(crate) fn age(since: Timestamp) -> String {
    let seconds = Timestamp::now().as_second() - since.as_second();
    span(u64::try_from(seconds).unwrap_or(0))
}

/// How long ago an object was made, if it says when.
pub(crate) fn age_of(metadata: &ObjectMeta) -> Option<String> {
    let made = metadata.creation_timestamp.as_ref()?;
    Timestamp::from_second(made.0.as_second()).ok().map(age)
}

/// A length of time, as `12s`, `3m`, `3h5m` or `3d4h`.
pub(crate) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// Sorts a list by a column or by a path into its items.
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
    let number = |index: &usize| keys.get(*index).and_then(|key| key.parse::<i64>().ok()).unwrap_or(i64::MAX);
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
