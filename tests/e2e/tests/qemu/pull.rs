//! Images of a registry that has an authority of its own and asks for a password.

use neonvm_e2e::client::Resource;
use neonvm_test_support::{need, needs};
use serde_json::{Value, json};

use crate::cluster::{Cluster, possible, until};
use crate::disk::registry::{PASSWORD, Registry};

/// Creates the pull secret of a registry.
fn secret(cluster: &Cluster, name: &str, registry: &str, password: &str) {
    let auths = json!({ "auths": { registry: { "username": "reader", "password": password } } });
    let object = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "default" },
        "type": "kubernetes.io/dockerconfigjson", "stringData": { ".dockerconfigjson": auths.to_string() } });
    cluster.client().create(&object).unwrap();
}

fn create(cluster: &Cluster, name: &str, image: &str, more: &[&str]) {
    let arguments = ["vm", "create", name, "--image", image, "--cpu", "0.5", "--memory", "256Mi"];
    cluster.good(&[&arguments[..], more].concat());
}

/// Waits until the condition `Degraded` of a VM and an event of its pod have all these words.
fn names(cluster: &Cluster, name: &str, words: &[&str]) {
    let has = |text: &str| words.iter().all(|word| text.contains(word));
    let vm = cluster.becomes(name, &format!("names {words:?}"), |vm| {
        let all = vm["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|condition| {
            condition["type"] == "Degraded"
                && condition["status"] == "True"
                && has(condition["message"].as_str().unwrap_or_default())
        })
    });
    let pod = vm["status"]["podName"].clone();
    let is_it = |event: &Value| {
        event["involvedObject"]["name"] == pod && has(event["message"].as_str().unwrap_or_default())
    };
    let events = || cluster.list(Resource::EVENT);
    until(|| events().iter().any(is_it), || format!("{:#?}", events()));
    // People look there.
    let text = cluster.good(&["vm", "describe", name]);
    assert!(has(&text.split_whitespace().collect::<Vec<_>>().join(" ")), "{text}");
}

/// U16 and U17 of the review of ordinary use.
#[test]
fn a_vm_comes_from_a_registry_with_its_own_authority_and_a_wrong_login_is_named() {
    need!(possible());
    need!(needs::program("docker-registry"));
    let open = Registry::start();
    let (registry, authority) = open.secured();
    let host = registry.name("");
    let host = host.trim_end_matches('/');
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(file.path(), authority).unwrap();
    let place = file.path().display().to_string();
    let cluster = Cluster::with(&["--nodes", "1", "--registry-ca-file", &place]);
    cluster.image("idle:1", &["/bin/sh", "-c", "echo up; exec sleep 1000000"]);
    let pushed = open.name("team/idle:1");
    cluster.good(&["image", "push", "idle:1", "--to", &pushed]);
    let image = registry.name("team/idle:1");

    create(&cluster, "none", &image, &[]);
    names(&cluster, "none", &[host, "team/idle: no login was found", "imagePullSecrets"]);
    secret(&cluster, "wrong", host, "wrong-password");
    create(&cluster, "wrong", &image, &["--pull-secret", "wrong"]);
    names(&cluster, "wrong", &["the login in pull secret \"wrong\""]);
    create(&cluster, "missing", &image, &["--pull-secret", "absent"]);
    names(&cluster, "missing", &["pull secret \"absent\" does not exist"]);
    secret(&cluster, "right", host, PASSWORD);
    create(&cluster, "right", &image, &["--pull-secret", "right", "--wait", "--timeout", "170s"]);
    assert_eq!(cluster.inside("right", "echo in").trim(), "in");

    // Without the authority the error is about the certificate, not about the login.
    for name in ["none", "wrong", "missing", "right"] {
        cluster.good(&["vm", "delete", name]);
    }
    cluster.good(&["local", "down", "--timeout", "60s"]);
    cluster.good(&["local", "up", "--accel", "tcg", "--cpus", "4", "--timeout", "120s"]);
    let other = format!("{}@sha256:{}", registry.name("team/idle"), "0".repeat(64));
    create(&cluster, "distrusted", &other, &["--pull-secret", "right"]);
    names(&cluster, "distrusted", &["certificate"]);
    cluster.down();
}
