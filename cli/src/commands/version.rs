//! `version`

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::object::{items, text};
use crate::args::Version;
use crate::connect::{Connection, block_on};
use crate::error::{Code, Result};
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

/// How long the cluster may take: a version is asked for where things are broken, too.
const PATIENCE: Duration = Duration::from_secs(2);
/// Label of all workloads of the services.
const OURS: &str = "labelSelector=app.kubernetes.io%2Fpart-of%3Dneonvm";

#[derive(Debug, Default)]
struct Cluster {
    server: String,
    /// Version of each service, by its name; empty for local clusters, whose services belong to the program.
    services: BTreeMap<String, String>,
}

/// The versions of this program, of the cluster and of its services.
pub(super) fn run(settings: &Settings, args: &Version) -> Result<Report> {
    let version = env!("CARGO_PKG_VERSION");
    let (cluster, note) = if args.client { (None, None) } else { look(settings)? };
    let mut value = json!({ "apiVersion": API_VERSION, "kind": "Version", "client": version });
    let mut rows = vec![vec!["neonctl".to_owned(), version.to_owned()]];
    let mut lines = vec![format!("neonctl {version}")];
    if let Some(cluster) = &cluster {
        rows.push(vec!["kubernetes".to_owned(), cluster.server.clone()]);
        lines.push(format!("kubernetes {}", cluster.server));
        for (service, version) in &cluster.services {
            rows.push(vec![service.clone(), version.clone()]);
            lines.push(format!("{service} {version}"));
        }
        if let Some(value) = value.as_object_mut() {
            value.insert("server".to_owned(), json!(cluster.server));
            value.insert("services".to_owned(), json!(cluster.services));
        }
    }
    let report = Report::document(Document {
        value,
        names: vec![format!("version/{version}")],
        text: Some(lines.join("\n")),
        columns: vec![left("PROGRAM"), left("VERSION")],
        rows,
    });
    let skew = cluster.and_then(|cluster| skew(version, &cluster.services));
    Ok(note.into_iter().chain(skew).fold(report, Report::note))
}

/// The cluster's versions, or why there are none. Without a cluster to ask there is nothing to report.
fn look(settings: &Settings) -> Result<(Option<Cluster>, Option<String>)> {
    let looked = block_on(async {
        let connection = Connection::open(settings).await?;
        match tokio::time::timeout(PATIENCE, read(&connection)).await {
            Ok(read) => read.map(Ok),
            Err(_) => Ok(Err(format!("{} has not answered within {PATIENCE:?}", connection.server))),
        }
    });
    let named = settings.place().names_cluster();
    match looked {
        Ok(Ok(cluster)) => Ok((Some(cluster), None)),
        Ok(Err(note)) => Ok((None, Some(note))),
        Err(error) if named => Err(error),
        // No kubeconfig, or none that can be used.
        Err(error) if error.message.contains("kubeconfig") => Ok((None, None)),
        Err(error) => Ok((None, Some(error.message))),
    }
}

async fn read(connection: &Connection) -> Result<Cluster> {
    let server = connection.json("/version").await?;
    let mut cluster = Cluster { server: text(&server, "/gitVersion").to_owned(), ..Cluster::default() };
    for kind in ["deployments", "daemonsets"] {
        match items(connection, &format!("/apis/apps/v1/{kind}?{OURS}")).await {
            Ok(found) => cluster.services.extend(found.iter().filter_map(service)),
            // A person without this right sees the versions of client and server.
            Err(error) if matches!(error.code, Code::Denied | Code::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(cluster)
}

fn service(workload: &Value) -> Option<(String, String)> {
    let name = text(workload, "/metadata/name");
    let short = name.strip_prefix("neonvm-").unwrap_or(name);
    let containers = workload.pointer("/spec/template/spec/containers")?.as_array()?;
    let own = containers.iter().find(|container| text(container, "/name") == short)?;
    let image = text(own, "/image").rsplit('/').next()?.split('@').next()?;
    let version = image.split_once(':').map_or("unknown", |(_, tag)| tag);
    Some((short.to_owned(), version.to_owned()))
}

fn skew(client: &str, services: &BTreeMap<String, String>) -> Option<String> {
    let others: Vec<String> = services
        .iter()
        .filter(|(_, version)| *version != client)
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    (!others.is_empty()).then(|| {
        format!(
            "not of this program's version {client}: {}; bring the services to it with neonctl upgrade, or use their neonctl",
            others.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_the_tag_of_its_own_container() {
        let workload = json!({ "metadata": { "name": "neonvm-scheduler" }, "spec": { "template": { "spec": { "containers": [
            { "name": "kube-scheduler", "image": "k8s/kube-scheduler:v1.36.0" },
            { "name": "scheduler", "image": "registry:5000/neonvm/neond:0.2.0@sha256:00" }] } } } });
        assert_eq!(service(&workload), Some(("scheduler".to_owned(), "0.2.0".to_owned())));
        assert_eq!(service(&json!({ "metadata": { "name": 3 } })), None);
        let services = |version: &str| BTreeMap::from([("agent".to_owned(), version.to_owned())]);
        assert_eq!(skew("0.2.0", &services("0.2.0")), None);
        assert!(skew("0.1.0", &services("0.2.0")).unwrap().contains("agent 0.2.0"));
    }
}
