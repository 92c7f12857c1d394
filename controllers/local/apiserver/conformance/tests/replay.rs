//! Every recorded scenario, against the embedded server in this process.

use std::path::Path;

use neonvm_apiserver_conformance::{Kubectl, Options, replay, start_server};

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_server_answers_as_recorded() {
    let state = tempfile::tempdir().unwrap();
    let kubeconfig = start_server(state.path()).await.unwrap();
    let totals = replay(Options {
        scenarios: Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios"),
        filter: regex::Regex::new("").unwrap(),
        jobs: 8,
        quiet: true,
        kubectl: Kubectl::find(Path::new("kubectl")),
        kubeconfig,
        without: Vec::new(),
    })
    .await
    .unwrap();
    assert_eq!(totals.failed, 0, "{totals}");
    assert!(totals.passed > 1000, "{totals}");
}
