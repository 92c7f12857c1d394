//! `local kubeconfig`

use serde_json::json;

use crate::args::local::Kubeconfig;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::instance;
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

/// The path of a cluster's kubeconfig.
pub(crate) fn run(env: &Env, settings: &Settings, args: &Kubeconfig) -> Result<Report> {
    let instance = instance::named(env, settings, &args.which)?;
    instance.demand()?;
    let path = instance.kubeconfig();
    if !path.exists() {
        return Err(Error::new(
            Code::Conflict,
            format!("local cluster {:?} has not started yet", instance.name),
        )
        .hint(format!("start it: neonctl local up --name {}", instance.name)));
    }
    let path = path.display().to_string();
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "LocalKubeconfig", "name": instance.name, "kubeconfig": path }),
        names: vec![format!("localcluster/{}", instance.name)],
        text: Some(path.clone()),
        columns: vec![left("NAME"), left("KUBECONFIG")],
        rows: vec![vec![instance.name, path]],
    }))
}
