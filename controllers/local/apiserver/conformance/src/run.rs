//! Replaying many scenarios at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use regex::Regex;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::Cluster;
use crate::kubectl::Kubectl;
use crate::report::{Report, Totals};
use crate::scenario::{self, Setting};

/// What to replay, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of scenario files, or one file.
    pub scenarios: PathBuf,
    /// Only files whose name matches.
    pub filter: Regex,
    pub jobs: usize,
    /// Print failures and skips only.
    pub quiet: bool,
    /// The client for the kubectl steps, if there is one.
    pub kubectl: Option<Kubectl>,
    /// Access for it, and for us.
    pub kubeconfig: PathBuf,
    /// Needs of scenarios that are not met here.
    pub without: Vec<String>,
}

/// Replays; prints a line a step, and the difference where an answer differs.
///
/// # Errors
/// If files cannot be read or the server's address is unknown. A server that does not answer fails the steps.
pub async fn replay(options: Options) -> anyhow::Result<Totals> {
    let cluster = Cluster::read(&options.kubeconfig)?;
    // kubectl asks for every kind there is; a definition of another scenario that goes in that moment would fail it. So
    // its scenarios come last, one by one.
    let (last, first): (Vec<PathBuf>, Vec<PathBuf>) =
        files(&options)?.into_iter().partition(|file| is_kubectl(file));
    let jobs = options.jobs.max(1);
    let shared = Arc::new((options, cluster));
    let together = round(first, jobs, &shared).await?;
    Ok(together.plus(&round(last, 1, &shared).await?))
}

fn is_kubectl(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().contains("kubectl"))
}

/// Replays some files, `jobs` at once.
async fn round(files: Vec<PathBuf>, jobs: usize, shared: &Arc<(Options, Cluster)>) -> anyhow::Result<Totals> {
    let places = Arc::new(Semaphore::new(jobs));
    let mut running = JoinSet::new();
    for file in files {
        let (shared, places) = (Arc::clone(shared), Arc::clone(&places));
        running.spawn(async move {
            let _place = places.acquire().await?;
            one(&file, &shared.0, &shared.1).await
        });
    }
    let mut totals = Totals::default();
    while let Some(done) = running.join_next().await {
        totals = totals.plus(&done.context("a scenario broke off")??);
    }
    Ok(totals)
}

fn files(options: &Options) -> anyhow::Result<Vec<PathBuf>> {
    let at = &options.scenarios;
    if at.is_file() {
        return Ok(vec![at.clone()]);
    }
    let listing = std::fs::read_dir(at).with_context(|| format!("cannot read {}", at.display()))?;
    let mut files: Vec<PathBuf> = listing.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.ends_with(".json") && options.filter.is_match(&name)
    });
    files.sort();
    Ok(files)
}

async fn one(file: &Path, options: &Options, cluster: &Cluster) -> anyhow::Result<Totals> {
    let text = tokio::fs::read_to_string(file).await?;
    let data = crate::body::read(&text).with_context(|| format!("cannot read {}", file.display()))?;
    let label = data.get("name").and_then(Value::as_str).unwrap_or("unnamed").to_owned();
    let mut report = Report::new(&label, options.quiet);
    let needs = data.get("needs").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let unmet =
        needs.iter().filter_map(Value::as_str).find(|need| options.without.iter().any(|word| word == need));
    let steps = data.get("steps").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let count = steps.iter().filter(|step| step.get("sleep").is_none()).count();
    let wants_kubectl = steps.iter().any(|step| step.get("kubectl").is_some());
    if wants_kubectl && options.kubectl.is_none() {
        report.skip(count, "there is no kubectl");
    } else if let Some(need) = unmet {
        report.skip(count, &format!("needs {need}"));
    } else {
        let setting = Setting { cluster, kubectl: options.kubectl.as_ref(), kubeconfig: &options.kubeconfig };
        scenario::run(&label, &data, &setting, &mut report).await?;
    }
    Ok(report.finish())
}

/// Starts the embedded server in this process, with its state in `directory`; returns the path of its kubeconfig.
///
/// # Errors
/// If it cannot start.
pub async fn start_server(directory: &Path) -> anyhow::Result<PathBuf> {
    let config = neonvm_apiserver::Config {
        directory: directory.to_path_buf(),
        listen: std::net::SocketAddr::from(([127, 0, 0, 1], 0)),
        names: Vec::new(),
        faults: false,
        has_hpa_controller: true,
    };
    let server = neonvm_apiserver::Server::start(&config).await?;
    let kubeconfig = directory.join("kubeconfig");
    neonvm_kit::ca::write_private(&kubeconfig, &server.kubeconfig("conformance").to_string())?;
    tokio::spawn(server.run(std::future::pending()));
    Ok(kubeconfig)
}
