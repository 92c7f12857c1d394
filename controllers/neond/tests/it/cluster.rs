//! An API server with our kinds and all that `deploy/manifests` makes.

use std::path::{Path, PathBuf};

use kube::Client;
use neonvm_test_cluster::ApiServer;
use serde_json::Value;

/// Kinds of the manifests that the embedded API server does not have.
const NOT_SERVED: [&str; 2] = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, check: impl AsyncFn() -> bool) {
    neonvm_test_cluster::eventually(what, check).await;
}

/// All documents of `deploy/manifests`, the namespace first.
pub(crate) fn manifests() -> Vec<(String, Value)> {
    documents("manifests")
}

/// All documents of a directory of `deploy`, in the order in which `kubectl apply -f` reads them; each with the name of its file.
pub(crate) fn documents(directory: &str) -> Vec<(String, Value)> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(directory);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |file: &PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let all = neonvm_test_cluster::documents(&format!("{directory}/{name}"));
        all.into_iter().map(move |object| (name.clone(), object)).collect::<Vec<_>>()
    };
    files.iter().flat_map(read).collect()
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let server = ApiServer::with_our_kinds().await;
        let served = manifests()
            .into_iter()
            .filter(|(_, object)| !NOT_SERVED.contains(&object["kind"].as_str().unwrap()));
        for (file, object) in served {
            println!("{file}: {} {}", object["kind"], object["metadata"]["name"]);
            neonvm_test_cluster::apply(&server.client, &object).await;
        }
        Self { client: server.client.clone(), server }
    }

    /// The server's response to `GET`.
    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.client.request(request).await.ok()
    }
}
