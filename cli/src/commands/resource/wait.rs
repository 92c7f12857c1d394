//! Waiting for one object, and what is shown afterwards.

use std::time::Duration;

use super::{NamespaceClient, Resource, document};
use crate::commands::watching::{self, WaitProgress, Waited};
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report};

pub(crate) struct Messages<'a> {
    /// What is waited for, as in "timed out after 5s waiting for pg to be WHAT".
    pub(crate) what: &'a str,
    /// What continues without the waiting process.
    pub(crate) continues: &'a str,
    pub(crate) again: &'a str,
    /// The command that shows the cause of a delay.
    pub(crate) why: &'a str,
}

/// Waits until `look` accepts the object, or its absence. Ctrl-C detaches: the operation continues. `state` describes the last
/// observed object in the error of a time-out.
pub(crate) async fn until<K: Resource>(
    client: &NamespaceClient,
    (name, known): (&str, Option<K>),
    limit: Duration,
    messages: &Messages<'_>,
    state: fn(&K) -> String,
    look: impl FnMut(Option<&K>) -> WaitProgress,
) -> Result<Waited<K>> {
    let Messages { what, continues, again, why } = messages;
    let detached = || {
        Error::new(Code::Interrupted, format!("stopped waiting for {name}"))
            .hint(format!("{continues} continues; to wait again: {again}"))
    };
    let late = |last: Option<&K>| {
        let now = last.map_or_else(|| "it does not exist".to_owned(), state);
        Error::new(Code::Timeout, format!("timed out after {limit:?} waiting for {name} to be {what}: {now}"))
            .hint(format!("{continues} continues; see why: {why}"))
    };
    watching::until(client.api(), (name, known), limit, detached, late, look).await
}

/// `Done` when `holds`; an error for an object that was deleted.
pub(crate) fn seen<K>(name: &str, object: Option<&K>, holds: impl FnOnce(&K) -> bool) -> WaitProgress {
    match object {
        None => WaitProgress::Never(Error::new(Code::NotFound, format!("{name} was deleted"))),
        Some(object) if holds(object) => WaitProgress::Done,
        Some(_) => WaitProgress::NotYet,
    }
}

/// The report after `wait`: the object, or that it was deleted.
pub(crate) fn report<K: Resource>(name: &str, what: &str, waited: Waited<K>) -> Report {
    let text = format!("{}/{name} {what} ({})", K::PREFIX, seconds(waited.took));
    let document = match waited.object {
        Some(object) => document(&[object]),
        None => Document {
            value: serde_json::json!({ "apiVersion": API_VERSION, "kind": "Deleted", "names": [name] }),
            names: vec![format!("{}/{name}", K::PREFIX)],
            ..Document::default()
        },
    };
    Report::document(Document { text: Some(text), ..document })
}

/// Seconds with one place, as `0.4s`.
pub(crate) fn seconds(took: Duration) -> String {
    format!("{:.1}s", took.as_secs_f64())
}
