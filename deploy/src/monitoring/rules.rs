//! Recording rules and alerts.

use neonvm_api::names::SYSTEM_NAMESPACE;
use serde_json::{Value, json};

use super::{Alert, Source};

/// The page of the book with the runbooks.
const RUNBOOKS: &str = "troubleshooting.html";

pub(super) fn groups(source: &Source) -> Value {
    let records = json!({"name": "neonvm-records", "interval": "30s", "rules": source.records});
    let alerts = source.alerts.iter().map(|group| {
        let rules: Vec<Value> = group.alerts.iter().map(|one| alert(one, &source.book)).collect();
        json!({"name": group.group, "rules": rules})
    });
    let all: Vec<Value> = std::iter::once(records).chain(alerts).collect();
    json!({"groups": all})
}

fn alert(alert: &Alert, book: &str) -> Value {
    json!({
        "alert": alert.alert,
        "expr": alert.expr,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": format!("{book}/{RUNBOOKS}#{}", alert.runbook),
        },
    })
}

pub(super) fn object(source: &Source) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "neonvm",
            "namespace": SYSTEM_NAMESPACE,
            "labels": {"app.kubernetes.io/part-of": "neonvm"},
        },
        "spec": groups(source),
    })
}
