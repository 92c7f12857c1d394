//! Cells of events, of either group.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cells::number;
use crate::object::{at, text_at};

fn event_time<'a>(event: &'a Value, paths: &[&str]) -> &'a str {
    paths.iter().map(|path| text_at(event, path)).find(|text| !text.is_empty()).unwrap_or("")
}

pub(super) fn event_last(event: &Value, now: Timestamp) -> Value {
    if at(event, "series").is_some() {
        return json!(age(text_at(event, "series.lastObservedTime"), now));
    }
    match event_time(event, &["lastTimestamp", "deprecatedLastTimestamp"]) {
        "" => event_first(event, now),
        last => json!(age(last, now)),
    }
}

pub(super) fn event_first(event: &Value, now: Timestamp) -> Value {
    const PATHS: &[&str] = &["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"];
    json!(age(event_time(event, PATHS), now))
}

pub(super) fn event_object(event: &Value, _: Timestamp) -> Value {
    let about = if event.get("regarding").is_some() { "regarding" } else { "involvedObject" };
    let kind = text_at(event, &format!("{about}.kind")).to_lowercase();
    let name = text_at(event, &format!("{about}.name"));
    json!(if name.is_empty() { kind } else { format!("{kind}/{name}") })
}

pub(super) fn event_source(event: &Value, _: Timestamp) -> Value {
    const COMPONENT: &[&str] =
        &["source.component", "deprecatedSource.component", "reportingComponent", "reportingController"];
    let host = event_time(event, &["source.host", "deprecatedSource.host", "reportingInstance"]);
    let component = event_time(event, COMPONENT);
    json!(if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") })
}

pub(super) fn event_message(event: &Value, _: Timestamp) -> Value {
    json!(event_time(event, &["message", "note"]).trim())
}

pub(super) fn event_count(event: &Value, _: Timestamp) -> Value {
    if at(event, "series").is_some() {
        return json!(number(event, "series.count"));
    }
    json!(number(event, "count").max(number(event, "deprecatedCount")).max(1))
}
