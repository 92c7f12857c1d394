//! `podautoscaler history`: the changes that the object keeps, and events. Newest first.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use neonvm_api::PodAutoscaler;
use serde_json::{Value, json};

use super::show;
use crate::args::podautoscaler::History;
use crate::commands::resource::{NamespaceClient, name_of};
use crate::commands::vm::events::Event;
use crate::connect::block_on;
use crate::error::Result;
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

/// Seconds within which an event belongs to a change.
const SAME: i64 = 5;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: Option<Timestamp>,
    /// Replicas before and after; absent if they did not change.
    pub(super) change: Option<(i32, i32)>,
    /// `done`, `failed`, or the type of an event.
    pub(super) result: String,
    pub(super) reason: String,
    pub(super) message: String,
    /// How often in a row.
    pub(super) count: i32,
}

impl Entry {
    pub(super) fn age(&self) -> String {
        self.at.map_or_else(|| "-".to_owned(), crate::render::age)
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let times = if self.count > 1 { format!(" (x{})", self.count) } else { String::new() };
        let change = self.change.map(|(from, to)| format!("{from}->{to}")).unwrap_or_default();
        vec![
            self.age(),
            dash(&change),
            self.result.clone(),
            dash(&self.reason),
            dash(&(self.message.clone() + &times)),
        ]
    }

    pub(super) fn json(&self) -> Value {
        json!({ "time": self.at.map(|at| at.to_string()), "previousScale": self.change.map(|change| change.0),
            "newScale": self.change.map(|change| change.1), "result": self.result, "reason": self.reason,
            "message": self.message, "count": self.count })
    }
}

/// Events about an object, oldest first.
pub(super) async fn of_object(client: &NamespaceClient, object: &PodAutoscaler) -> Result<Vec<Event>> {
    let api: Api<core::Event> = Api::namespaced(client.connection.client(), &client.namespace);
    let list = client.connection.within("cannot list events", api.list(&ListParams::default())).await?;
    let (name, uid) = (name_of(object), object.metadata.uid.as_deref());
    let about = |event: &core::Event| {
        let of = &event.involved_object;
        let same = of.uid.as_deref().is_none_or(|of| uid.is_none_or(|uid| uid == of));
        of.kind.as_deref() == Some("PodAutoscaler") && of.name.as_deref() == Some(name) && same
    };
    let mut events: Vec<Event> = list.items.into_iter().filter(about).map(Event::from_event).collect();
    events.sort_by_key(|event| event.at);
    Ok(events)
}

/// From `from 3 to 5 replicas: …`.
fn change(message: &str) -> Option<(i32, i32)> {
    let mut words = message.strip_prefix("from ")?.split_whitespace();
    let from = words.next()?.parse().ok()?;
    let to = words.nth(1)?.parse().ok()?;
    Some((from, to))
}

/// Changes that the object keeps, its last failure, and events about other things; newest first.
pub(super) fn story(object: &PodAutoscaler, events: &[Event]) -> Vec<Entry> {
    let status = super::show::status(object);
    let mut all: Vec<Entry> = status
        .scaling_history
        .iter()
        .map(|kept| Entry {
            at: Some(kept.timestamp.0),
            change: Some((kept.previous_scale, kept.new_scale)),
            result: if kept.success { "done" } else { "failed" }.to_owned(),
            reason: kept.reason.clone(),
            message: kept.error.clone(),
            count: 1,
        })
        .collect();
    if let Some(failure) = &status.last_failure {
        let kept = all.iter_mut().find(|entry| entry.result == "failed" && entry.message == failure.message);
        match kept {
            // The object keeps the first of a row.
            Some(entry) => entry.count = failure.count,
            None => all.push(Entry {
                at: Some(failure.time.0),
                result: "failed".to_owned(),
                reason: failure.reason.clone(),
                message: failure.message.clone(),
                count: failure.count,
                change: None,
            }),
        }
    }
    for event in events {
        let change = change(&event.message);
        let matches_event = |entry: &Entry| {
            let near = |a: Timestamp, b: Timestamp| (a.as_second() - b.as_second()).abs() <= SAME;
            let soon = entry.at.zip(event.at).is_some_and(|(kept, reported)| near(kept, reported));
            (change.is_some() && entry.change == change && soon)
                || (!entry.message.is_empty() && entry.message == event.message)
        };
        if !all.iter().any(matches_event) {
            all.push(Entry {
                at: event.at,
                change,
                result: if change.is_some() { "done".to_owned() } else { event.kind.clone() },
                reason: event.reason.clone(),
                message: event.message.clone(),
                count: event.count,
            });
        }
    }
    all.sort_by_key(|entry| std::cmp::Reverse(entry.at));
    all
}

/// What has happened, newest first.
pub(crate) fn history(settings: &Settings, args: &History) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let object = client.find(&args.name).await?;
        let events = of_object(&client, &object).await?;
        let entries = story(&object, &events);
        let report = Report::document(Document {
            value: json!({ "apiVersion": API_VERSION, "kind": "ScalingHistory", "name": args.name,
                "namespace": client.namespace, "items": entries.iter().map(Entry::json).collect::<Vec<_>>() }),
            names: vec![format!("podautoscaler/{}", args.name)],
            text: None,
            columns: ["AGE", "REPLICAS", "RESULT", "REASON", "MESSAGE"].map(left).into(),
            rows: entries.iter().map(Entry::cells).collect(),
        });
        if !entries.is_empty() {
            return Ok(report);
        }
        let why = show::message(&object);
        let why = if why.is_empty() { String::new() } else { format!("; {why}") };
        Ok(report.note(format!("nothing has been scaled yet{why}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::podautoscaler::show::tests::object;

    #[test]
    fn what_is_reported_twice_is_shown_once() {
        let scaled = object(&json!({
            "scalingHistory": [
                { "timestamp": "2026-01-01T00:00:10Z", "previousScale": 1, "newScale": 3, "reason": "AboveTarget", "success": true },
                { "timestamp": "2026-01-01T00:01:00Z", "previousScale": 3, "newScale": 5, "reason": "AboveTarget", "success": false,
                  "error": "scale: not now" }],
            "lastFailure": { "time": "2026-01-01T00:02:00Z", "reason": "FailedUpdateScale", "message": "scale: not now", "count": 7 } }));
        let event = |at: &str, reason: &str, message: &str| {
            Event::from_event(
                serde_json::from_value(json!({ "metadata": {}, "type": "Normal", "reason": reason,
                    "message": message, "lastTimestamp": at, "involvedObject": {} }))
                .unwrap(),
            )
        };
        let events = [
            event("2025-12-31T23:59:00Z", "SuccessfulRescale", "from 2 to 1 replicas: AllBelowTarget"),
            event("2026-01-01T00:00:11Z", "SuccessfulRescale", "from 1 to 3 replicas: AboveTarget"),
            event("2026-01-01T00:01:00Z", "FailedRescale", "scale: not now"),
            event("2026-01-01T00:03:00Z", "FailedGetScale", "gone"),
        ];
        let texts: Vec<String> = story(&scaled, &events)
            .into_iter()
            .map(|entry| format!("{:?} {} {}", entry.change, entry.reason, entry.count))
            .collect();
        assert_eq!(
            texts,
            [
                "None FailedGetScale 1",
                "Some((3, 5)) AboveTarget 7",
                "Some((1, 3)) AboveTarget 1",
                "Some((2, 1)) SuccessfulRescale 1",
            ]
        );
    }
}
