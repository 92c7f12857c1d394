//! The program's own log, and its last line.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object for each line
    Json,
}

/// Sends it to a writer, from now on.
pub(crate) fn to<W>(format: Format, writer: W)
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        // The client logs every attempt of a retry; its callers log a failure once.
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,kube_client=off"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(writer)
        // Otherwise a line that cannot be written, as when the log's reader has gone, panics in the task that logs it.
        .log_internal_errors(false);
    match format {
        Format::Text => log.init(),
        Format::Json => log.event_format(Json).init(),
    }
}

/// A JSON object for each line: `level`, `ts` in seconds since 1970, `logger` and `msg`, as upstream's services have them, and the
/// fields of the line by their names.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let now = jiff::Timestamp::now();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut line = Map::new();
        line.insert("level".to_owned(), metadata.level().as_str().to_lowercase().into());
        line.insert("ts".to_owned(), json!(now.as_duration().as_secs_f64()));
        line.insert("logger".to_owned(), metadata.target().replace("::", ".").into());
        line.insert("msg".to_owned(), fields.message.into());
        for (name, value) in fields.others {
            // A field of one of these names does not hide the line's own.
            line.entry(name).or_insert(value);
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// The message of an event, and its other fields.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(String, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        self.others.push((field.name().to_owned(), value));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            _ => self.add(field, text.into()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.to_owned(),
            _ => self.add(field, value.into()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, json!(value));
    }
}

/// The exit code of a program. An error is the last line of standard error, with its causes and without a backtrace, whatever
/// `RUST_BACKTRACE` is: `neonctl` shows the end of what a program wrote.
pub(crate) fn outcome(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let _ = writeln!(std::io::stderr().lock(), "Error: {error:#}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_line_is_an_object_with_upstream_s_keys() {
        let memory = Memory::default();
        let writer = memory.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).event_format(Json).finish();
        tracing::subscriber::with_default(log, || {
            tracing::warn!(vm = "a/b", count = 3, ready = true, msg = "hidden", error = %"line\n\"two\"", "it {}", "failed");
            tracing::info!(target: "neonvm_agent::runner", "started");
        });
        let text = String::from_utf8(memory.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [first, second] = lines.as_slice() else { panic!("{text}") };
        assert!(first["ts"].as_f64().unwrap() > 1.7e9);
        assert_eq!((&first["level"], &first["msg"]), (&json!("warn"), &json!("it failed")));
        let fields = (&first["vm"], &first["count"], &first["ready"], &first["error"]);
        assert_eq!(fields, (&json!("a/b"), &json!(3), &json!(true), &json!("line\n\"two\"")));
        assert_eq!(second["logger"], "neonvm_agent.runner");
    }
}
