//! `install --dry-run`

use std::time::Duration;

use neonvm_deploy::{Choice, Facts};
use serde_json::{Value, json};

use super::apply::{self, Change};
use super::{Job, chosen};
use crate::commands::object::text;
use crate::connect::{Connection, block_on};
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Body, Document, Report, left, list_of};
use crate::settings::Settings;

/// How long the cluster may take to report its version.
const PATIENCE: Duration = Duration::from_secs(3);

/// The objects, as `kubectl apply --server-side -f -` takes them. The cluster, if there is one, is asked for its version alone.
pub(super) fn client(settings: &Settings, choice: &Choice) -> Result<Report> {
    let kubernetes = block_on(async {
        let version = async {
            let connection = Connection::open(settings).await?;
            connection.json("/version").await
        };
        match tokio::time::timeout(PATIENCE, version).await {
            Ok(Ok(version)) => Ok(Some(text(&version, "/gitVersion").to_owned())),
            _ => Ok(None),
        }
    })?;
    let is_known = kubernetes.is_some();
    let facts = Facts { kubernetes, ..Facts::default() };
    let objects = neonvm_deploy::objects(choice, &facts).map_err(|error| chosen::unusable(&error))?;
    let mut report = match settings.output() {
        Some("yaml") => yaml(&objects)?,
        _ => Report::document(list(&objects)),
    };
    if !is_known {
        report = report
            .note("the cluster version is unknown: the default version of the kube-scheduler image is used");
    }
    Ok(report)
}

/// Documents of one stream.
fn yaml(objects: &[Value]) -> Result<Report> {
    let mut text = String::new();
    for object in objects {
        let one = serde_saphyr::to_string(object)
            .map_err(|error| Error::new(Code::Failed, "cannot write YAML").cause(error.to_string()))?;
        text.push_str("---\n");
        text.push_str(one.trim_end());
        text.push('\n');
    }
    Ok(Report { body: Body::Text(text), notes: Vec::new(), code: 0, then: None })
}

fn list(objects: &[Value]) -> Document {
    let names: Vec<String> =
        objects.iter().map(|object| neonvm_deploy::Named::from_object(object).to_string()).collect();
    Document {
        value: list_of(objects),
        rows: names.iter().map(|name| vec![name.clone()]).collect(),
        names,
        text: None,
        columns: vec![left("OBJECT")],
    }
}

/// What the server would do with each object. Where the namespace does not exist yet, what is in it is judged in `default`.
pub(super) async fn server(job: &Job<'_>) -> Result<Report> {
    let objects = job.objects()?;
    let notes = job.preflight(&objects).await?;
    let namespace = &job.values.namespace;
    let exists = apply::get(&job.connection, &format!("/api/v1/namespaces/{namespace}")).await?.is_some();
    let mut changes: Vec<Change> = Vec::new();
    let mut skipped = 0;
    for object in &objects {
        let mut judged = object.clone();
        if !exists
            && text(object, "/metadata/namespace") == namespace
            && let Some(place) = judged.pointer_mut("/metadata/namespace")
        {
            *place = json!("default");
        }
        let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
        // Their definitions are not there before they are applied.
        if group == "k8s.cni.cncf.io" && apply::get(&job.connection, "/apis/k8s.cni.cncf.io").await?.is_none()
        {
            skipped += 1;
            continue;
        }
        let change = apply::judge(&job.connection, &judged).await?;
        changes.push(Change { named: neonvm_deploy::Named::from_object(object), ..change });
    }
    let items: Vec<Value> = changes.iter().map(Change::json).collect();
    let mut report = Report::document(Document {
        value: json!({"apiVersion": API_VERSION, "kind": "InstallationPlan", "namespace": namespace, "items": items}),
        names: changes.iter().map(|change| change.named.to_string()).collect(),
        text: None,
        columns: vec![left("OBJECT"), left("CHANGE")],
        rows: changes.iter().map(Change::row).collect(),
    });
    report.notes.extend(notes);
    if !exists {
        report = report.note(format!(
            "namespace {namespace} does not exist yet: its objects were validated in namespace default"
        ));
    }
    if skipped > 0 {
        report = report.note(format!(
            "{skipped} objects were not validated: their kinds are not installed in the cluster"
        ));
    }
    Ok(report.note("nothing was applied"))
}
